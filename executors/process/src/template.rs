//! Placeholders in the texts of a node: what they may be, and what they become. Pure; parsed once for
//! validation and once for rendering, by the same function.
//!
//! | placeholder | becomes |
//! |---|---|
//! | `{self}` | the program that drives (or the one configured in its place) |
//! | `{port.NAME}`, `{port}` | a port of this slot; without a name only if there is exactly one |
//! | `{host}` | `127.0.0.1` |
//! | `{node}`, `{index}`, `{group}`, `{run}`, `{attempt}` | who this is |
//! | `{dir}` | the attempt's own working directory |
//! | `{data}` | the data directory |
//! | `{count}` | how many slots the group has |
//! | `{peers:ITEM}` | ITEM for every slot of the group, itself included, joined with `,` |
//! | `{others:ITEM}` | the same without itself |
//! | `{peers\|SEP:ITEM}` | the same, joined with SEP |
//! | `{{`, `}}` | `{` and `}` |
//!
//! Within ITEM, `{node}`, `{index}`, `{host}` and `{port...}` are those of the peer.
//! etcd: `--initial-cluster={peers:{node}=http://{host}:{port.peer}}`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The address that every local node listens on.
pub const HOST: &str = "127.0.0.1";

/// Why a text with placeholders is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A brace that nothing closes.
    #[error("the '{{' at byte {at} is never closed; write '{{{{' for a brace itself")]
    Unclosed {
        /// Where it opens.
        at: usize,
    },
    /// A name that means nothing.
    #[error(
        "unknown placeholder {{{name}}}; known are {{self}}, {{port.NAME}}, {{host}}, {{node}}, {{index}}, {{group}}, \
         {{run}}, {{attempt}}, {{dir}}, {{data}}, {{count}}, {{peers:ITEM}} and {{others:ITEM}}; \
         a brace itself is written twice"
    )]
    Unknown {
        /// What stands between the braces.
        name: String,
    },
    /// A port that the shape does not name.
    #[error("there is no port {name:?}; shape.ports names {known:?}")]
    NoPort {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// `{port}` without a name, where there is not exactly one.
    #[error("{{port}} needs exactly one port, and shape.ports names {known:?}; write {{port.NAME}}")]
    WhichPort {
        /// The names there are.
        known: Vec<String>,
    },
    /// A list of peers within a list of peers.
    #[error("a list of peers cannot stand within a list of peers")]
    Nested,
    /// A peer whose ports are not known.
    #[error("no port {name:?} is reserved for the peer {node}")]
    PeerPort {
        /// The peer.
        node: String,
        /// The port asked for.
        name: String,
    },
}

/// A parsed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Word(Word),
    Peers { separator: String, with_self: bool, item: Template },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    SelfProgram,
    Host,
    Node,
    Index,
    Group,
    Run,
    Attempt,
    Dir,
    Data,
    Count,
    Port(Option<String>),
}

/// One slot as placeholders see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The slot.
    pub node: String,
    /// Its place in the group.
    pub index: u32,
    /// Its ports by name.
    pub ports: BTreeMap<String, u16>,
}

/// What placeholders become for one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// `{self}`
    pub self_program: String,
    /// `{run}`
    pub run: String,
    /// `{group}`
    pub group: String,
    /// `{attempt}`
    pub attempt: u64,
    /// `{dir}`
    pub dir: String,
    /// `{data}`
    pub data: String,
    /// This slot.
    pub own: Peer,
    /// All slots of the group in order, this one included.
    pub peers: Vec<Peer>,
}

impl Template {
    /// Parses a text.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut parser = Parser { text, at: 0 };
        parser.template(false)
    }

    /// Checks the ports it names against those of the shape.
    pub fn check_ports(&self, known: &[String]) -> Result<(), TemplateError> {
        self.parts.iter().try_for_each(|part| match part {
            Part::Word(Word::Port(Some(name))) if !known.contains(name) => {
                Err(TemplateError::NoPort { name: name.clone(), known: known.to_vec() })
            }
            Part::Word(Word::Port(None)) if known.len() != 1 => {
                Err(TemplateError::WhichPort { known: known.to_vec() })
            }
            Part::Peers { item, .. } => item.check_ports(known),
            Part::Text(_) | Part::Word(_) => Ok(()),
        })
    }

    /// Whether it has no placeholder but `{self}`, so that it means the same for every attempt.
    pub fn is_fixed(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Text(_) | Part::Word(Word::SelfProgram)))
    }

    /// The text for one attempt.
    pub fn render(&self, scope: &Scope) -> Result<String, TemplateError> {
        let mut text = String::new();
        self.render_for(&scope.own, scope, &mut text)?;
        Ok(text)
    }

    fn render_for(&self, who: &Peer, scope: &Scope, text: &mut String) -> Result<(), TemplateError> {
        for part in &self.parts {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Word(word) => word.render_for(who, scope, text)?,
                Part::Peers { separator, with_self, item } => {
                    let peers = scope.peers.iter().filter(|peer| *with_self || peer.node != who.node);
                    for (place, peer) in peers.enumerate() {
                        if place > 0 {
                            text.push_str(separator);
                        }
                        item.render_for(peer, scope, text)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Word {
    fn parse(name: &str) -> Result<Self, TemplateError> {
        Ok(match name {
            "self" => Self::SelfProgram,
            "host" => Self::Host,
            "node" => Self::Node,
            "index" => Self::Index,
            "group" => Self::Group,
            "run" => Self::Run,
            "attempt" => Self::Attempt,
            "dir" => Self::Dir,
            "data" => Self::Data,
            "count" => Self::Count,
            "port" => Self::Port(None),
            _ => match name.strip_prefix("port.") {
                Some(port) if !port.is_empty() => Self::Port(Some(port.to_owned())),
                _ => return Err(TemplateError::Unknown { name: name.to_owned() }),
            },
        })
    }

    fn render_for(&self, who: &Peer, scope: &Scope, text: &mut String) -> Result<(), TemplateError> {
        let number = |text: &mut String, number: u64| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{number}");
        };
        match self {
            Self::SelfProgram => text.push_str(&scope.self_program),
            Self::Host => text.push_str(HOST),
            Self::Node => text.push_str(&who.node),
            Self::Index => number(text, u64::from(who.index)),
            Self::Group => text.push_str(&scope.group),
            Self::Run => text.push_str(&scope.run),
            Self::Attempt => number(text, scope.attempt),
            Self::Dir => text.push_str(&scope.dir),
            Self::Data => text.push_str(&scope.data),
            Self::Count => number(text, scope.peers.len() as u64),
            Self::Port(None) => match who.ports.first_key_value() {
                Some((_, port)) if who.ports.len() == 1 => number(text, u64::from(*port)),
                _ => {
                    return Err(TemplateError::WhichPort { known: who.ports.keys().cloned().collect() });
                }
            },
            Self::Port(Some(name)) => match who.ports.get(name) {
                Some(port) => number(text, u64::from(*port)),
                None => {
                    return Err(TemplateError::PeerPort { node: who.node.clone(), name: name.clone() });
                }
            },
        }
        Ok(())
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    /// Reads up to the end, or up to the brace that closes an item. Within an item a closing brace always
    /// closes; only outside is `}}` a brace itself.
    fn template(&mut self, within_item: bool) -> Result<Template, TemplateError> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(next) = rest.chars().next() else { break };
            if rest.starts_with("{{") {
                literal.push('{');
                self.at += 2;
            } else if next == '}' && within_item {
                break;
            } else if rest.starts_with("}}") {
                literal.push('}');
                self.at += 2;
            } else if next == '{' {
                if !literal.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut literal)));
                }
                parts.push(self.placeholder(within_item)?);
            } else {
                literal.push(next);
                self.at += next.len_utf8();
            }
        }
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Template { parts })
    }

    /// Reads one placeholder, from its opening brace on.
    fn placeholder(&mut self, within_item: bool) -> Result<Part, TemplateError> {
        let opened = self.at;
        self.at += 1;
        let rest = &self.text[self.at..];
        let end = rest.find(['}', ':', '{']).ok_or(TemplateError::Unclosed { at: opened })?;
        let head = &rest[..end];
        self.at += end + 1;
        match rest.as_bytes()[end] {
            b'}' => Word::parse(head).map(Part::Word),
            b':' => {
                let (name, separator) = head.split_once('|').unwrap_or((head, ","));
                let with_self = match name {
                    "peers" => true,
                    "others" => false,
                    _ => return Err(TemplateError::Unknown { name: head.to_owned() }),
                };
                if within_item {
                    return Err(TemplateError::Nested);
                }
                let item = self.template(true)?;
                if !self.text[self.at..].starts_with('}') {
                    return Err(TemplateError::Unclosed { at: opened });
                }
                self.at += 1;
                Ok(Part::Peers { separator: separator.to_owned(), with_self, item })
            }
            _ => Err(TemplateError::Unclosed { at: opened }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(index: u32) -> Peer {
        Peer {
            node: format!("n-{index}"),
            index,
            ports: BTreeMap::from([
                ("client".to_owned(), 20_000 + u16::try_from(index).unwrap() * 2),
                ("peer".to_owned(), 20_001 + u16::try_from(index).unwrap() * 2),
            ]),
        }
    }

    fn scope() -> Scope {
        Scope {
            self_program: "/bin/me".into(),
            run: "demo".into(),
            group: "n".into(),
            attempt: 7,
            dir: "/d".into(),
            data: "/data".into(),
            own: peer(1),
            peers: vec![peer(0), peer(1), peer(2)],
        }
    }

    fn render(text: &str) -> String {
        Template::parse(text).unwrap().render(&scope()).unwrap()
    }

    #[test]
    fn every_placeholder_becomes_what_the_table_says() {
        assert_eq!(
            render("{self} {port.client} {host} {node} {index} {group} {run} {attempt} {dir} {data} {count}"),
            "/bin/me 20002 127.0.0.1 n-1 1 n demo 7 /d /data 3"
        );
    }

    #[test]
    fn an_etcd_cluster_can_be_spelled() {
        assert_eq!(
            render("--initial-cluster={peers:{node}=http://{host}:{port.peer}}"),
            "--initial-cluster=n-0=http://127.0.0.1:20001,n-1=http://127.0.0.1:20003,n-2=http://127.0.0.1:20005"
        );
    }

    #[test]
    fn others_leave_out_the_slot_itself_and_the_separator_can_be_chosen() {
        assert_eq!(render("{others|, :{node}@{run}}"), "n-0@demo, n-2@demo");
        assert_eq!(
            render("[{peers| :{host}:{port.client}}]"),
            "[127.0.0.1:20000 127.0.0.1:20002 127.0.0.1:20004]"
        );
    }

    #[test]
    fn braces_can_be_written_and_a_lone_closing_one_stands_for_itself() {
        assert_eq!(render("{{\"a\": {{\"b\": {index}}}}}"), "{\"a\": {\"b\": 1}}");
        assert_eq!(render("a } b"), "a } b");
        assert_eq!(render("größe {node}"), "größe n-1");
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for (text, start) in [
            ("{nope}", "unknown placeholder {nope}"),
            ("{port.}", "unknown placeholder {port.}"),
            ("x {node", "the '{' at byte 2 is never closed"),
            ("{no{de}}", "the '{' at byte 0 is never closed"),
            ("{peers:{node}", "the '{' at byte 0 is never closed"),
            ("{pears:{node}}", "unknown placeholder {pears}"),
            ("{peers:{others:{node}}}", "a list of peers cannot stand"),
        ] {
            let error = Template::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(start), "{text}: {error}");
        }
    }

    #[test]
    fn ports_must_be_named_by_the_shape_even_within_a_list_of_peers() {
        let check = |text: &str, known: &[&str]| {
            let known: Vec<String> = known.iter().map(|s| (*s).to_owned()).collect();
            Template::parse(text).unwrap().check_ports(&known)
        };
        assert!(check("{port}", &["http"]).is_ok());
        assert!(check("{port}", &["http", "admin"]).is_err());
        assert!(check("{port}", &[]).is_err());
        assert!(check("{peers:{port.raft}}", &["http"]).is_err());
        assert!(check("{peers:{port.raft}}", &["raft"]).is_ok());
    }
}
