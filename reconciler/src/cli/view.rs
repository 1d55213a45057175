//! What `status` says, as one document: the same for tables, JSON, YAML and the control socket. Times are
//! RFC 3339 texts. Its field names are this program's promise to scripts.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// A run as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The run's name.
    pub(crate) run: String,
    /// The uid minted for its state.
    pub(crate) uid: String,
    /// The cluster file it was made from.
    pub(crate) file: Option<String>,
    /// The process that drives it, if one does.
    pub(crate) driver_pid: Option<u32>,
    /// The last accepted generation.
    pub(crate) generation: u64,
    /// The last generation that a completed pass has evaluated.
    pub(crate) observed_generation: u64,
    /// Whether everything is as declared.
    pub(crate) converged: bool,
    /// The nodes in order of id.
    pub(crate) nodes: Vec<Node>,
    /// Counts that stand instead of the file's own, by group.
    pub(crate) overrides: BTreeMap<String, Override>,
    /// What must not be touched for now.
    pub(crate) holds: Vec<HoldView>,
    /// How often things happened since the driver started; absent while nobody drives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) counters: Option<serde_json::Value>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Node {
    /// Its id.
    pub(crate) id: String,
    /// Its group.
    pub(crate) group: String,
    /// Its present attempt; absent if there is none yet.
    pub(crate) attempt: Option<u64>,
    /// Where the attempt is in its life.
    pub(crate) stage: String,
    /// Whether the attempt is to live: `active` or `deleting`.
    pub(crate) intent: String,
    /// Whether the node does its work.
    pub(crate) ready: bool,
    /// Whether it is all that is declared of it.
    pub(crate) converged: bool,
    /// Since when it is ready, or else since when this attempt exists.
    pub(crate) since: Option<String>,
    /// Where it can be reached.
    pub(crate) endpoint: Option<String>,
    /// Further named ports.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) ports: BTreeMap<String, u16>,
    /// Why it does what it does, or waits.
    pub(crate) why: String,
    /// When a wait ends by itself.
    pub(crate) until: Option<String>,
    /// Failures since it was last ready for long enough.
    pub(crate) failures: u32,
    /// The last failure.
    pub(crate) last_error: Option<String>,
    /// Who leases it.
    pub(crate) provider: String,
    /// The lease.
    pub(crate) lease: Option<String>,
    /// The bootstrap session.
    pub(crate) session: Option<String>,
    /// What the session is doing, in its own words.
    pub(crate) phase: Option<String>,
}

/// One node, what it would do next, and how it came there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Explained {
    /// The node.
    pub(crate) node: Node,
    /// Its next step: an action's name, `wait` or `none`.
    pub(crate) step: String,
    /// What happened to it lately, oldest first; empty while nobody drives.
    pub(crate) history: Vec<String>,
}

/// A count that stands instead of the file's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Override {
    /// The count in force.
    pub(crate) count: u32,
    /// The file's own when it was overridden.
    pub(crate) file_count: u32,
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HoldView {
    /// The node, or absent for all of them.
    pub(crate) node: Option<String>,
    /// By whose word.
    pub(crate) by: String,
    /// Why.
    pub(crate) reason: String,
    /// Since when.
    pub(crate) since: String,
}

/// A time as text, to the millisecond.
pub(crate) fn rfc3339(at: SystemTime) -> String {
    jiff::Timestamp::try_from(at).map_or_else(|_| "?".to_owned(), |at| format!("{at:.3}"))
}

/// How long from now until a time written by [`rfc3339`]; zero for one that has passed.
pub(crate) fn remaining(until: &str) -> Option<std::time::Duration> {
    let at: jiff::Timestamp = until.parse().ok()?;
    let left = at.duration_since(jiff::Timestamp::now());
    Some(left.try_into().unwrap_or_default())
}
