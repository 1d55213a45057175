//! What comes back: the outcome of a dispatched operation, and what was observed without asking.
//! Both are plain data, so that they can be folded, journalled and replayed.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::error::{ExecutorError, ExecutorErrorKind};
use crate::executor::Visibility;
use crate::facts::{BootstrapSessionId, Endpoint, LeaseFacts, LeaseId, MemberFacts};
use crate::identity::{LogicalNodeId, NodeAttemptId, OperationId};

/// What a command achieved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectSuccess {
    /// The attempt holds this lease, made or adopted.
    LeaseCreated {
        /// The lease.
        lease: LeaseFacts,
        /// Where it can be reached, if that is known already.
        endpoint: Option<Endpoint>,
    },
    /// Adopt-only found nothing for the attempt.
    NothingToAdopt {
        /// The time that this reading describes.
        as_of: SystemTime,
    },
    /// Where the lease can be reached.
    EndpointFound {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// The lease lives, and cannot be reached yet. A probe, not a failure.
    EndpointNotReady {
        /// What it is waiting for.
        reason: String,
    },
    /// The attempt has this session, started or adopted.
    BootstrapStarted {
        /// The session.
        session: BootstrapSessionId,
    },
    /// The session ended in good order.
    BootstrapCompleted,
    /// No session is left, cancelled or already absent.
    BootstrapCancelled,
    /// No lease is left, destroyed or already absent.
    LeaseDestroyed,
}

/// A failed operation as it is folded: the kind, and the words for an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectFailure {
    /// What the fold branches on.
    pub kind: ExecutorErrorKind,
    /// The whole error chain in one line.
    pub message: String,
}

impl From<&ExecutorError> for EffectFailure {
    fn from(error: &ExecutorError) -> Self {
        Self { kind: error.kind, message: error.summary() }
    }
}

/// How an operation ended.
pub type EffectOutcome = Result<EffectSuccess, EffectFailure>;

/// How an operation of an attempt ended, with the allowance of the one who ran it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationReport {
    /// Which operation.
    pub operation: OperationId,
    /// How it ended.
    pub outcome: EffectOutcome,
    /// Stamped by the driver from the executor's own statement: how late and how hidden its effects may be.
    pub visibility: Visibility,
}

/// A stored deadline of a node that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeDeadline {
    /// The bootstrap should have joined by now.
    Join,
    /// The node has been suspect for too long.
    Loss,
    /// The node has been ready for long enough to forget its failures.
    Stable,
}

/// One fact about one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeObservation {
    /// An operation ended.
    Completed(OperationReport),
    /// An operation passed its deadline and was stopped; its outcome is ambiguous.
    TimedOut {
        /// Which operation.
        operation: OperationId,
        /// How late and how hidden its effects may still be.
        visibility: Visibility,
    },
    /// The bootstrap session says what it is doing.
    BootstrapProgress {
        /// The session.
        session: BootstrapSessionId,
        /// Counts the session's reports; an older one is a repeat.
        sequence: u64,
        /// What it is doing, in its own words.
        phase: String,
    },
    /// The node joined.
    MemberJoined {
        /// The session that it quotes.
        session: BootstrapSessionId,
        /// Who joined; its nonce must be that of the attempt.
        member: MemberFacts,
    },
    /// The session ended in good order without being told to.
    BootstrapConverged {
        /// The session.
        session: BootstrapSessionId,
    },
    /// The session failed.
    BootstrapFailed {
        /// The session.
        session: BootstrapSessionId,
        /// Why, in its own words.
        reason: String,
    },
    /// Proved: the lease is terminated, exited or dead.
    LeaseLost {
        /// The lease.
        lease: LeaseId,
        /// How it ended.
        reason: String,
    },
    /// The lease moved to another address.
    EndpointChanged {
        /// The lease.
        lease: LeaseId,
        /// Where it is now.
        endpoint: Endpoint,
    },
    /// Silence: the node could not be seen. Not proof of anything.
    Suspected {
        /// What was tried.
        reason: String,
    },
    /// The node was seen alive.
    SeenAlive,
    /// A deadline stored in the node has passed.
    DeadlinePassed(NodeDeadline),
}

/// One observation, addressed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservationReport {
    /// The slot.
    pub node: LogicalNodeId,
    /// The attempt that it speaks of; any other attempt ignores it.
    pub attempt: NodeAttemptId,
    /// What was observed.
    pub observation: NodeObservation,
}
