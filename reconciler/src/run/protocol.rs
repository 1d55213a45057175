//! What is said over a run's control socket: one JSON document per line, a version in each call. The socket is
//! for this program's own commands; scripts use `status -o json` and the like.

use std::path::PathBuf;

use executor_api::{GroupId, LogicalNodeId};
use serde::{Deserialize, Serialize};

use crate::cli::failure::Failure;
use crate::cli::view::{Explained, Status};

/// The version of this protocol. A driver of another version refuses the call and says so.
pub(crate) const VERSION: u32 = 1;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    /// [`VERSION`] of the caller.
    pub(crate) version: u32,
    /// What is asked.
    pub(crate) request: Request,
}

/// What can be asked of a driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// The run as it stands. Answered by [`Answer::Status`].
    Status,
    /// The run as it stands, again after every change, until the caller hangs up.
    Watch,
    /// What happens from now on, as lines, until the caller hangs up.
    Events,
    /// One node, and why it does what it does. Answered by [`Answer::Explained`].
    Explain {
        /// The node.
        node: LogicalNodeId,
    },
    /// A cluster file to take over.
    Submit {
        /// Where it was read.
        file: PathBuf,
        /// Its text.
        text: String,
        /// Whether it may be another file than the one in force.
        rebind: bool,
    },
    /// Another count for a group.
    Scale {
        /// The group.
        group: GroupId,
        /// How many.
        count: u32,
    },
    /// A fresh attempt for a node.
    Replace {
        /// The node.
        node: LogicalNodeId,
    },
    /// Hold a node, or all of them.
    Pause {
        /// The node, or all.
        node: Option<LogicalNodeId>,
        /// Why.
        reason: String,
    },
    /// Let go of a node, or of all of them.
    Resume {
        /// The node, or all.
        node: Option<LogicalNodeId>,
        /// Whose hold ends: the operator's, or that of the driver's own alarm.
        breach: bool,
    },
    /// Look now what plans of maintenance hold, and hold it.
    HeedPlans,
    /// Remove every node.
    Destroy,
    /// Stop driving; nodes are left as they are.
    Stop,
}

/// What a driver answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The run as it stands.
    Status(Box<Status>),
    /// One node.
    Explained(Box<Explained>),
    /// One thing that happened.
    Event {
        /// In words.
        line: String,
    },
    /// It was done, or is under way.
    Accepted {
        /// The generation now in force.
        generation: u64,
        /// What the caller's user should know.
        notices: Vec<String>,
    },
    /// It was not done.
    Failed(Failure),
}
