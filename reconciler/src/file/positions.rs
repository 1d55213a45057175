//! Where each key of a YAML text stands, so that a problem found long after parsing can still name its line
//! and column. Keys and items are looked up by JSON pointer.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A line and a column, both from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

/// The positions of all keys and items of one text.
#[derive(Clone, Debug, Default)]
pub struct Positions(BTreeMap<String, Position>);

impl Positions {
    /// Reads a text that was parsed before. One that cannot be read has no positions.
    pub fn of(text: &str, options: serde_saphyr::Options) -> Self {
        let mut positions = BTreeMap::new();
        if let Ok(Spanned { value, referenced, .. }) =
            serde_saphyr::from_str_with_options::<Spanned<Node>>(text, options)
        {
            positions.insert(String::new(), position(referenced));
            value.collect("", &mut positions);
        }
        Self(positions)
    }

    /// Where a pointer leads; where it leads nowhere, the place of the nearest part around it.
    pub fn locate(&self, pointer: &str) -> Option<Position> {
        let mut pointer = pointer;
        loop {
            if let Some(position) = self.0.get(pointer) {
                return Some(*position);
            }
            pointer = &pointer[..pointer.rfind('/')?];
        }
    }
}

fn position(location: serde_saphyr::Location) -> Position {
    Position { line: location.line(), column: location.column() }
}

/// A YAML node of which only the places are kept.
enum Node {
    Scalar,
    List(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<String>, Self)>),
}

impl Node {
    fn collect(self, at: &str, into: &mut BTreeMap<String, Position>) {
        match self {
            Self::Scalar => {}
            Self::List(items) => {
                for (index, item) in items.into_iter().enumerate() {
                    let pointer = format!("{at}/{index}");
                    into.insert(pointer.clone(), position(item.referenced));
                    item.value.collect(&pointer, into);
                }
            }
            Self::Map(entries) => {
                for (key, value) in entries {
                    let pointer = format!("{at}/{}", key.value.replace('~', "~0").replace('/', "~1"));
                    into.insert(pointer.clone(), position(key.referenced));
                    value.collect(&pointer, into);
                }
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Scalar)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }
    fn visit_i128<E>(self, _: i128) -> Result<Node, E> {
        Ok(Node::Scalar)
    }
    fn visit_u128<E>(self, _: u128) -> Result<Node, E> {
        Ok(Node::Scalar)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }
    fn visit_str<E>(self, _: &str) -> Result<Node, E> {
        Ok(Node::Scalar)
    }
    fn visit_bytes<E>(self, _: &[u8]) -> Result<Node, E> {
        Ok(Node::Scalar)
    }
    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }
    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_leads_to_its_key_or_item_or_what_is_around_it() {
        let text = "run: demo\ngroups:\n  - name: web\n    shape: { ports: [http, \"a/b\"] }\n    boot:\n      a/b: 1\n";
        let positions = Positions::of(text, serde_saphyr::Options::default());
        let at = |pointer| positions.locate(pointer).map(|p| (p.line, p.column));
        assert_eq!(at("/run"), Some((1, 1)));
        assert_eq!(at("/groups/0"), Some((3, 5)));
        assert_eq!(at("/groups/0/shape/ports"), Some((4, 14)));
        assert_eq!(at("/groups/0/shape/ports/1"), Some((4, 28)));
        assert_eq!(at("/groups/0/boot/a~1b"), Some((6, 7)));
        assert_eq!(at("/groups/0/shape/missing/deeper"), Some((4, 5)));
        assert_eq!(at(""), Some((1, 1)));
    }
}
