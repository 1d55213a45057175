//! What the agent and its client speak: JSON over HTTP/1.1, every request with `Authorization: Bearer TOKEN`.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/health` | [`Health`] |
//! | `GET /v1/sessions/NAME?events=&output=&limit=&tail=` | [`bootstrap_hosted::Glimpse`] |
//! | `PUT /v1/sessions/NAME/files/N`, the file's bytes | nothing |
//! | `PUT /v1/sessions/NAME/plan`, a [`bootstrap_hosted::Plan`] | nothing |
//! | `POST /v1/sessions/NAME/start`, [`Start`] | [`Started`] |
//! | `POST /v1/sessions/NAME/joined` | [`Joined`] |
//! | `POST /v1/sessions/NAME/cancel`, [`Cancel`] | [`bootstrap_hosted::CancelEnd`] |
//!
//! A request that was not carried out is answered with a status from 400 on and a [`Problem`].

use bootstrap_hosted::Standing;
use serde::{Deserialize, Serialize};

/// The protocol of this version.
pub const PROTOCOL: u32 = 1;

/// Largest file that can be handed over, in bytes.
pub const FILE_LIMIT: usize = 64 * 1024 * 1024;

/// That the agent is there, and what it speaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// [`PROTOCOL`] of the agent.
    pub protocol: u32,
}

/// From where and how much of a session is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookQuery {
    /// Position in the events.
    pub events: u64,
    /// Position in the output.
    pub output: u64,
    /// How much output at most.
    pub limit: u64,
    /// Whether output may be skipped so that its end is seen.
    pub tail: bool,
}

/// A start: the environment of the session's processes. Kept nowhere.
#[derive(Clone, Serialize, Deserialize)]
pub struct Start {
    /// Names and values.
    pub environment: Vec<(String, String)>,
}

impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values may be secrets.
        f.debug_list().entries(self.environment.iter().map(|(name, _)| name)).finish()
    }
}

/// How a session stands after a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// How it stands.
    pub standing: Standing,
}

/// When a session was first marked as joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// Seconds since the epoch, on the node's clock.
    pub at: u64,
}

/// A cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    /// Time between SIGTERM and SIGKILL, in milliseconds.
    pub grace_ms: u64,
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// In words.
    pub error: String,
}
