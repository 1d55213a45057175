//! What a session needs of the host it lives on. Two transports implement [`Host`]; on the host itself both end
//! in the same fixed script (see [`script`]).

pub mod local;
pub mod reply;
pub mod script;

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use executor_api::AttemptKey;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// How much of the events one look may bring, in bytes.
pub const EVENTS_LIMIT: u64 = 64 * 1024;

/// The name of a session on its host, derived from the attempt: a DNS label, so that it is one harmless word
/// wherever it stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionName(String);

/// A text that is no session name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no session name: lowercase letters, digits and '-', at most 63")]
pub struct NotASessionName(String);

impl SessionName {
    /// The name of the attempt's session.
    pub fn of(attempt: &AttemptKey) -> Self {
        Self(attempt.identity().resource_name)
    }

    /// Checks and wraps a name that came from elsewhere.
    pub fn parse(text: impl Into<String>) -> Result<Self, NotASessionName> {
        let text = text.into();
        let plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if plain && !text.starts_with('-') && (1..=63).contains(&text.len()) {
            Ok(Self(text))
        } else {
            Err(NotASessionName(text))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SessionName {
    type Error = NotASessionName;
    fn try_from(text: String) -> Result<Self, NotASessionName> {
        Self::parse(text)
    }
}

impl From<SessionName> for String {
    fn from(name: SessionName) -> Self {
        name.0
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a session is in its life, as its host says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The host has never heard of it, or holds no more than parts of it. Nothing ran.
    Absent,
    /// Its runner lives.
    Running,
    /// Its runner is gone; the events say how far it came.
    Ended,
    /// It was cancelled, and can never be started again.
    Cancelled,
}

/// How far a session's events and output were read, in bytes from their beginnings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Of the events.
    pub events: u64,
    /// Of the output.
    pub output: u64,
}

/// How much output a look is to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputWanted {
    /// At most so many bytes.
    pub limit: u64,
    /// Whether what does not fit may be skipped, so that the end of the output is seen rather than all of it.
    pub tail: bool,
}

/// One look at a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Glimpse {
    /// Where it is in its life. Read before the rest: after `Ended` no event is missing.
    pub standing: Standing,
    /// When it was marked as joined.
    pub joined_at: Option<SystemTime>,
    /// Events after the position asked for; whole or cut anywhere.
    pub events: String,
    /// Where `output` begins.
    pub output_at: u64,
    /// How much output there is in all.
    pub output_size: u64,
    /// Output from `output_at` on; whole or cut anywhere.
    #[serde(with = "lossy")]
    pub output: Vec<u8>,
    /// How many bytes of output were read, which `output` may no longer show after a journey as text.
    pub output_len: u64,
}

/// The content of a file on its way to the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// This text.
    Text(String),
    /// These bytes.
    Bytes(Vec<u8>),
    /// A file of the driving machine, and its size in bytes.
    File(PathBuf, u64),
}

/// How a cancel ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelEnd {
    /// No process of the session is left, and none can come.
    Clean,
    /// These processes could not be ended.
    Left(String),
}

/// Why a host did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// It could not be reached: nothing was done.
    #[error("{0}")]
    Unreachable(String),
    /// It could be reached and does not let us in, which may change while it boots: nothing was done.
    #[error("{0}")]
    Denied(String),
    /// It is not who it should be: nothing was done.
    #[error("{0}")]
    WrongHost(String),
    /// It cannot do what it must, or what it needs from here is missing: trying again is no use.
    #[error("{0}")]
    Unfit(String),
    /// The connection broke after the request had left: it may have been done.
    #[error("{0}")]
    Broken(String),
}

/// One connection to one host.
#[async_trait]
pub trait Host: Send + Sync + fmt::Debug {
    /// A look at a session, from a position on.
    async fn look(
        &self,
        session: &SessionName,
        from: Position,
        output: OutputWanted,
    ) -> Result<Glimpse, HostError>;

    /// Hands over one file of the plan, by its place in it. Whole or not at all; a repeat is harmless.
    async fn put_file(&self, session: &SessionName, index: usize, content: Content) -> Result<(), HostError>;

    /// Hands over what is to be done. Whole or not at all; a repeat is harmless.
    async fn stage(&self, session: &SessionName, plan: &Plan) -> Result<(), HostError>;

    /// Starts the session, unless it was started or cancelled before; how it stands then. The environment is
    /// given to the processes and kept nowhere.
    async fn launch(
        &self,
        session: &SessionName,
        environment: &[(String, String)],
    ) -> Result<Standing, HostError>;

    /// Marks the session as joined; when that was first done.
    async fn mark_joined(&self, session: &SessionName) -> Result<SystemTime, HostError>;

    /// Ends whatever the session started and sees to it that it can never be started again.
    async fn cancel(&self, session: &SessionName, grace: Duration) -> Result<CancelEnd, HostError>;
}

/// Bytes as text where a format knows only text; what is no UTF-8 becomes a replacement character.
mod lossy {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&String::from_utf8_lossy(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        String::deserialize(deserializer).map(String::into_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_name_is_one_harmless_word() {
        assert!(SessionName::parse("demo-web-1-a7-e7b05559ab14").is_ok());
        for bad in ["", "-x", "a b", "a/b", "..", "A", "a;b", "a\n", &"x".repeat(64)] {
            assert!(SessionName::parse(bad).is_err(), "{bad:?} was taken");
        }
    }
}
