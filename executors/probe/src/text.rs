//! Placeholders in texts that are meant for one attempt. Pure; validation and rendering are one function.
//!
//! | placeholder | becomes |
//! |---|---|
//! | `{host}`, `{port}`, `{port.NAME}` | the endpoint |
//! | `{node}`, `{index}`, `{group}`, `{run}`, `{attempt}` | who this is |
//! | `{nonce}` | what a node quotes to prove that it was started for this attempt |
//! | `{{`, `}}` | `{` and `}` |

use std::collections::BTreeMap;

use executor_api::{AttemptKey, Endpoint, LogicalNodeSpec};

/// Why a text with placeholders is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// A brace without its partner.
    #[error("the brace at byte {at} has no partner; write '{{{{' or '}}}}' for a brace itself")]
    Unpaired {
        /// Where it is.
        at: usize,
    },
    /// A name that means nothing.
    #[error(
        "unknown placeholder {{{name}}}; known are {{host}}, {{port}}, {{port.NAME}}, {{node}}, {{index}}, \
         {{group}}, {{run}}, {{attempt}} and {{nonce}}"
    )]
    Unknown {
        /// What stands between the braces.
        name: String,
    },
    /// A port that the endpoint does not have.
    #[error("the endpoint has no port named {name:?}; it has {known:?}")]
    NoPort {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
}

/// What placeholders become for one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    words: BTreeMap<&'static str, String>,
    /// `None` while only the spelling is checked: any name goes.
    ports: Option<BTreeMap<String, u16>>,
}

impl Names {
    /// The names of one attempt at one endpoint.
    pub fn of(attempt: &AttemptKey, desired: &LogicalNodeSpec, endpoint: &Endpoint) -> Self {
        let nonce = attempt.identity().nonce;
        let words = BTreeMap::from([
            ("host", endpoint.host.clone()),
            ("port", endpoint.port.to_string()),
            ("node", attempt.node.to_string()),
            ("index", desired.index.to_string()),
            ("group", desired.group.to_string()),
            ("run", attempt.run.name().to_owned()),
            ("attempt", attempt.attempt.0.to_string()),
            ("nonce", nonce),
        ]);
        Self { words, ports: Some(endpoint.ports.clone()) }
    }

    /// Stand-ins under which every known name has a meaning: for checking before there is an attempt.
    pub fn any() -> Self {
        let words = ["host", "port", "node", "index", "group", "run", "attempt", "nonce"];
        Self { words: words.into_iter().map(|word| (word, "1".to_owned())).collect(), ports: None }
    }

    fn meaning(&self, name: &str) -> Result<String, TextError> {
        if let Some(port) = name.strip_prefix("port.") {
            let Some(ports) = &self.ports else { return Ok("1".to_owned()) };
            return ports.get(port).map(u16::to_string).ok_or_else(|| TextError::NoPort {
                name: port.to_owned(),
                known: ports.keys().cloned().collect(),
            });
        }
        self.words.get(name).cloned().ok_or_else(|| TextError::Unknown { name: name.to_owned() })
    }
}

/// Replaces every placeholder.
pub fn render(text: &str, names: &Names) -> Result<String, TextError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(found) = rest.find(['{', '}']) {
        let at = text.len() - rest.len() + found;
        out.push_str(&rest[..found]);
        let tail = &rest[found..];
        if tail.starts_with("{{") || tail.starts_with("}}") {
            out.push_str(&tail[..1]);
            rest = &tail[2..];
            continue;
        }
        let close = tail.find('}').filter(|_| tail.starts_with('{')).ok_or(TextError::Unpaired { at })?;
        out.push_str(&names.meaning(&tail[1..close])?);
        rest = &tail[close + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names {
            words: BTreeMap::from([("host", "h".to_owned()), ("node", "web-1".to_owned())]),
            ports: Some(BTreeMap::from([("http".to_owned(), 8080)])),
        }
    }

    #[test]
    fn placeholders_and_doubled_braces_are_replaced() {
        let text = render("{host}:{port.http} {{node}} is {node}", &names()).unwrap();
        assert_eq!(text, "h:8080 {node} is web-1");
        assert_eq!(render("plain", &names()).unwrap(), "plain");
    }

    #[test]
    fn what_means_nothing_is_refused() {
        assert_eq!(render("a{", &names()), Err(TextError::Unpaired { at: 1 }));
        assert_eq!(render("ab}", &names()), Err(TextError::Unpaired { at: 2 }));
        assert_eq!(render("{nod}", &names()), Err(TextError::Unknown { name: "nod".into() }));
        let error = render("{port.x}", &names()).unwrap_err();
        assert!(error.to_string().contains("\"http\""), "{error}");
        assert!(render("{port.anything}", &Names::any()).is_ok());
    }
}
