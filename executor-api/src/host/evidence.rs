//! What a reading is: a value with its source and its time, or the statement that nothing could be said.
//! Gates take evidence and nothing else.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::host::identity::HostName;

/// Who was asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// One host, directly.
    Host(HostName),
    /// The cluster's own records (virtual machines, pods, the lock).
    Cluster,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(node) => node.fmt(f),
            Self::Cluster => f.write_str("the cluster"),
        }
    }
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Read<T> {
    /// This was seen.
    Seen(T),
    /// Nothing can be said: no answer, an error, or an answer that could not be read. Never "absent".
    Unknown(String),
}

/// One reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence<T> {
    /// Who was asked.
    pub source: Source,
    /// When the question was sent, by the clock of the one who asked: what was seen is at least this new. The
    /// clock of the source plays no part.
    pub read_at: SystemTime,
    /// What came back.
    pub read: Read<T>,
}

impl<T> Evidence<T> {
    /// Something was seen.
    pub fn seen(source: Source, read_at: SystemTime, value: T) -> Self {
        Self { source, read_at, read: Read::Seen(value) }
    }

    /// Nothing could be said, for this reason.
    pub fn unknown(source: Source, read_at: SystemTime, reason: impl Into<String>) -> Self {
        Self { source, read_at, read: Read::Unknown(reason.into()) }
    }

    /// What was seen, if anything was.
    pub fn value(&self) -> Option<&T> {
        match &self.read {
            Read::Seen(value) => Some(value),
            Read::Unknown(_) => None,
        }
    }

    /// Whether this was read at `now` or at most `max_age` before. A time in the future is not fresh.
    pub fn is_fresh(&self, now: SystemTime, max_age: Duration) -> bool {
        now.duration_since(self.read_at).is_ok_and(|age| age <= max_age)
    }
}
