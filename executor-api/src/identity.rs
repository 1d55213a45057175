//! Who is meant: runs, slots, attempts, operations, and the identity that the outside world sees.
//! Every identifier is a type of its own; one function derives what providers put on their resources.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Why a text is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is empty.
    #[error("{what} is empty")]
    Empty {
        /// Which identifier was being read.
        what: &'static str,
    },
    /// The text is longer than the identifier may be.
    #[error("{what} {value:?} has {length} characters; at most {limit} are allowed")]
    TooLong {
        /// Which identifier was being read.
        what: &'static str,
        /// The text as given.
        value: String,
        /// Its length in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A character that is not allowed there.
    #[error(
        "{what} {value:?} may hold only lowercase letters, digits and '-', starting and ending with a letter or digit"
    )]
    Characters {
        /// Which identifier was being read.
        what: &'static str,
        /// The text as given.
        value: String,
    },
    /// A slot id that does not end in `-` and a canonical index.
    #[error("{value:?} is no node id: it must be a group, '-' and an index without leading zeros")]
    NoIndex {
        /// The text as given.
        value: String,
    },
}

/// Longest run, group or provider name in bytes. With it every derived name and label fits the tightest
/// limit known (a DNS label: 63).
pub const NAME_LIMIT: usize = 40;

/// `[a-z0-9]([a-z0-9-]*[a-z0-9])?`, at most `limit` bytes.
fn check_name(what: &'static str, value: &str, limit: usize) -> Result<(), IdError> {
    if value.is_empty() {
        return Err(IdError::Empty { what });
    }
    if value.len() > limit {
        return Err(IdError::TooLong { what, value: value.to_owned(), length: value.len(), limit });
    }
    let inner = value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let edges = !value.starts_with('-') && !value.ends_with('-');
    if inner && edges { Ok(()) } else { Err(IdError::Characters { what, value: value.to_owned() }) }
}

/// The ways from and to text of a newtype over a text that was checked.
macro_rules! text_form {
    ($name:ident, $read:expr, $error:ty) => {
        impl TryFrom<String> for $name {
            type Error = $error;
            fn try_from(value: String) -> Result<Self, $error> {
                $read(value)
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}
pub(crate) use text_form;

/// Defines a newtype over a checked name.
macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks and wraps a name.
            pub fn new(value: impl Into<String>) -> Result<Self, IdError> {
                let value = value.into();
                check_name($what, &value, NAME_LIMIT)?;
                Ok(Self(value))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        text_form!($name, Self::new, IdError);
    };
}

name_type!(
    /// A group of equal nodes within a run.
    GroupId,
    "group name"
);
name_type!(
    /// The name under which a lease provider or a bootstrapper is looked up.
    ProviderName,
    "provider name"
);

/// One run: the name its user chose, and a uid minted once when the run's state was created.
/// Two runs of one name are told apart by the uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "RunIdParts")]
pub struct RunId {
    name: String,
    uid: String,
}

/// The serialised form of [`RunId`], before it is checked.
#[derive(Deserialize)]
struct RunIdParts {
    name: String,
    uid: String,
}

impl TryFrom<RunIdParts> for RunId {
    type Error = IdError;
    fn try_from(parts: RunIdParts) -> Result<Self, IdError> {
        Self::new(parts.name, parts.uid)
    }
}

impl RunId {
    /// Checks and joins a run's name and its uid.
    pub fn new(name: impl Into<String>, uid: impl Into<String>) -> Result<Self, IdError> {
        let (name, uid) = (name.into(), uid.into());
        check_name("run name", &name, NAME_LIMIT)?;
        check_name("run uid", &uid, NAME_LIMIT)?;
        Ok(Self { name, uid })
    }

    /// The name its user chose.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The uid minted for this run's state.
    pub fn uid(&self) -> &str {
        &self.uid
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.uid)
    }
}

/// A stable slot of the declared cluster: `{group}-{index}`. Many attempts may fill it, one after another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LogicalNodeId(String);

impl LogicalNodeId {
    /// The slot of a group with this index.
    pub fn of(group: &GroupId, index: u32) -> Self {
        Self(format!("{group}-{index}"))
    }

    /// Reads a slot id, as an operator would type it.
    pub fn parse(value: impl Into<String>) -> Result<Self, IdError> {
        let value = value.into();
        let no_index = || IdError::NoIndex { value: value.clone() };
        let (group, index) = value.rsplit_once('-').ok_or_else(no_index)?;
        check_name("group name", group, NAME_LIMIT)?;
        let parsed: u32 = index.parse().map_err(|_| no_index())?;
        if parsed.to_string() != index {
            return Err(no_index());
        }
        Ok(Self(value))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The group whose slot it is.
    pub fn group(&self) -> GroupId {
        GroupId(self.parts().0.to_owned())
    }

    /// Its place in the group, from zero.
    pub fn index(&self) -> u32 {
        // Both constructors put a `u32` there.
        self.parts().1.parse().unwrap_or_default()
    }

    fn parts(&self) -> (&str, &str) {
        self.0.rsplit_once('-').unwrap_or((&self.0, ""))
    }
}

text_form!(LogicalNodeId, Self::parse, IdError);

/// One incarnation of a slot. Allocated once per run and never reused, not even after the slot was reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeAttemptId(pub u64);

impl fmt::Display for NodeAttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a{}", self.0)
    }
}

/// One dispatched effect of an attempt. Unique within the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OperationId {
    /// The attempt on whose behalf the effect runs.
    pub attempt: NodeAttemptId,
    /// Counts the attempt's operations, from zero.
    pub sequence: u64,
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.attempt, self.sequence)
    }
}

/// Which of a spec's ordered fallbacks an attempt tries. Zero for a spec without fallbacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CandidateIndex(pub u32);

/// The identity that the outside world sees: at most one live lease and one live session exist for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptKey {
    /// The run.
    pub run: RunId,
    /// The slot.
    pub node: LogicalNodeId,
    /// The incarnation.
    pub attempt: NodeAttemptId,
}

impl AttemptKey {
    /// What providers put on its resources: name, labels and nonce, which are the same for every candidate, and the token
    /// of the first one. Who makes something takes [`OperationContext::identity`](crate::OperationContext::identity),
    /// which knows the candidate.
    pub fn identity(&self) -> AttemptIdentity {
        AttemptIdentity::derive(self, CandidateIndex::default())
    }
}

impl fmt::Display for AttemptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} {}", self.run.name(), self.node, self.attempt)
    }
}

/// Keys of the labels that every resource of a run carries. They are reserved: a user's label under
/// [`PREFIX`](labels::PREFIX) is refused.
pub mod labels {
    /// Start of every reserved key.
    pub const PREFIX: &str = "reconciler/";
    /// The bare run name; a listing by it also finds resources of another uid, which are foreign.
    pub const RUN: &str = "reconciler/run";
    /// The run's uid.
    pub const RUN_UID: &str = "reconciler/run-uid";
    /// The slot.
    pub const NODE: &str = "reconciler/node";
    /// The attempt, as a decimal number.
    pub const ATTEMPT: &str = "reconciler/attempt";
}

/// What providers put on a resource, derived from the attempt and the candidate and from nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptIdentity {
    /// Idempotency token: 64 lowercase hexadecimal digits. Covers the attempt and the candidate.
    pub token: String,
    /// The label set. Covers the attempt only, so that a lookup finds every candidate's resource.
    pub labels: BTreeMap<String, String>,
    /// A readable, unique name: at most 63 bytes, a DNS label.
    pub resource_name: String,
    /// Handed over at bootstrap and quoted at join: proves that the one who joins was started for this
    /// attempt. It is an identity, not a secret.
    pub nonce: String,
}

impl AttemptIdentity {
    /// Derives the identity. Stable across versions: the golden test beside it must never change.
    pub fn derive(key: &AttemptKey, candidate: CandidateIndex) -> Self {
        let token = digest("token", key, Some(candidate));
        let by_attempt = digest("name", key, None);
        let labels = BTreeMap::from([
            (labels::RUN.to_owned(), key.run.name().to_owned()),
            (labels::RUN_UID.to_owned(), key.run.uid().to_owned()),
            (labels::NODE.to_owned(), key.node.as_str().to_owned()),
            (labels::ATTEMPT.to_owned(), key.attempt.0.to_string()),
        ]);
        let readable = format!("{}-{}", key.run.name(), key.node);
        // 40 + "-a" + 20 digits at most would pass 63 together with the digest: cut the readable part.
        let attempt = key.attempt.to_string();
        let room = 63 - 1 - attempt.len() - 1 - 12;
        let readable = readable.get(..room).unwrap_or(&readable).trim_end_matches('-');
        let resource_name = format!("{readable}-{attempt}-{}", &by_attempt[..12]);
        Self { token, labels, resource_name, nonce: digest("nonce", key, None)[..32].to_owned() }
    }
}

/// SHA-256 over length-prefixed fields, so that no two field lists read as the same bytes.
fn digest(purpose: &str, key: &AttemptKey, candidate: Option<CandidateIndex>) -> String {
    let mut hash = Sha256::new();
    let mut field = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    field(b"reconciler-identity-1");
    field(purpose.as_bytes());
    field(key.run.name().as_bytes());
    field(key.run.uid().as_bytes());
    field(key.node.as_str().as_bytes());
    field(&key.attempt.0.to_be_bytes());
    if let Some(candidate) = candidate {
        field(&candidate.0.to_be_bytes());
    }
    hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        use fmt::Write as _;
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use proptest::prelude::*;

    fn key(name: &str, uid: &str, node: &str, attempt: u64) -> AttemptKey {
        AttemptKey {
            run: RunId::new(name, uid).unwrap(),
            node: LogicalNodeId::parse(node).unwrap(),
            attempt: NodeAttemptId(attempt),
        }
    }

    #[test]
    fn derivation_is_stable_across_versions() {
        let identity = AttemptIdentity::derive(&key("demo", "0123abcd", "web-1", 7), CandidateIndex(0));
        expect![[r#"
            AttemptIdentity {
                token: "4ea7a00c9e72d0c1ce01f15f4b776e9f6d9d307d315780d3d0d1951474b1af99",
                labels: {
                    "reconciler/attempt": "7",
                    "reconciler/node": "web-1",
                    "reconciler/run": "demo",
                    "reconciler/run-uid": "0123abcd",
                },
                resource_name: "demo-web-1-a7-e7b05559ab14",
                nonce: "1cf18a6a2ce0be477103709293eaba75",
            }
        "#]]
        .assert_eq(&format!("{identity:#?}\n"));
    }

    #[test]
    fn longest_ids_stay_within_every_limit() {
        let run = "r".repeat(NAME_LIMIT);
        let node = format!("{}-{}", "g".repeat(NAME_LIMIT), u32::MAX);
        let identity = AttemptIdentity::derive(&key(&run, &run, &node, u64::MAX), CandidateIndex(u32::MAX));
        assert_eq!(identity.token.len(), 64);
        assert!(identity.resource_name.len() <= 63, "{}", identity.resource_name);
        assert!(identity.labels.values().all(|v| v.len() <= 63));
    }

    #[test]
    fn node_ids_are_canonical() {
        for bad in ["", "web", "web-", "-1", "web-01", "web-+1", "Web-1", "web-4294967296", "we b-1"] {
            assert!(LogicalNodeId::parse(bad).is_err(), "{bad:?} was taken");
        }
        let id = LogicalNodeId::parse("a-1-0").unwrap();
        assert_eq!((id.group().as_str(), id.index()), ("a-1", 0));
    }

    proptest! {
        #[test]
        fn different_attempts_never_share_an_identity(
            a in ("[a-z0-9]{1,6}", "[a-z0-9]{1,6}", "[a-z]{1,3}-[0-9]", 0u64..4),
            b in ("[a-z0-9]{1,6}", "[a-z0-9]{1,6}", "[a-z]{1,3}-[0-9]", 0u64..4),
        ) {
            let (ka, kb) = (key(&a.0, &a.1, &a.2, a.3), key(&b.0, &b.1, &b.2, b.3));
            let (ia, ib) = (
                AttemptIdentity::derive(&ka, CandidateIndex(0)),
                AttemptIdentity::derive(&kb, CandidateIndex(0)),
            );
            prop_assert_eq!(ka == kb, ia.token == ib.token);
            prop_assert_eq!(ka == kb, ia.resource_name == ib.resource_name);
            prop_assert_eq!(ka == kb, ia.labels == ib.labels);
        }
    }
}
