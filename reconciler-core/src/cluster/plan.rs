//! What a pass decided: at most one action per slot, each with enough identity to be refused when it is
//! stale, and each with its reason.

use std::time::SystemTime;

use executor_api::{LogicalNodeId, LogicalNodeSpec, NodeAttemptId, NodeManagerCommand, OperationId};
use serde::{Deserialize, Serialize};

use crate::cluster::why::Why;

/// The outcome of one decision over many slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconcilePlan {
    /// At most one action per slot, in order of slot.
    pub actions: Vec<NodeAction>,
    /// The desired generation that was evaluated.
    pub observed_generation: u64,
    /// Earliest known deadline that needs another pass without an event.
    pub requeue_at: Option<SystemTime>,
    /// Additions to the source text.
    pub extra: PlanExtra,
}

/// Additions to [`ReconcilePlan`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanExtra {
    /// The reason of each action, in the same order.
    pub reasons: Vec<Why>,
    /// The slots that were looked at and do nothing now, though they are not in steady state.
    pub waiting: Vec<Waiting>,
}

/// A slot that does nothing now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The slot.
    pub node: LogicalNodeId,
    /// What it waits for.
    pub why: Why,
}

/// One step of one slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "the public contract spells the variant without a box")]
#[serde(rename_all = "snake_case")]
pub enum NodeAction {
    /// Install the first attempt of a slot.
    Insert {
        /// The id to give out.
        attempt: NodeAttemptId,
        /// What it implements.
        desired: LogicalNodeSpec,
    },
    /// Turn an attempt from living to cleaning up.
    BeginDelete {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt that is meant.
        expected_attempt: NodeAttemptId,
    },
    /// Nothing of the attempt is left.
    MarkDestroyed {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt that is meant.
        expected_attempt: NodeAttemptId,
    },
    /// Install the next attempt of a slot.
    Restart {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt that is replaced.
        expected_attempt: NodeAttemptId,
        /// The id to give out.
        new_attempt: NodeAttemptId,
        /// What it implements.
        desired: LogicalNodeSpec,
    },
    /// Forget the slot.
    Reap {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt that is meant.
        expected_attempt: NodeAttemptId,
    },
    /// Send an effect.
    Dispatch(PlannedEffect),
}

/// An effect, with the identity of its operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedEffect {
    /// The slot.
    pub node: LogicalNodeId,
    /// The operation.
    pub operation: OperationId,
    /// What to do.
    pub command: NodeManagerCommand,
}

impl NodeAction {
    /// The slot that the action is for.
    pub fn node(&self) -> &LogicalNodeId {
        match self {
            Self::Insert { desired, .. } => &desired.id,
            Self::BeginDelete { node, .. }
            | Self::MarkDestroyed { node, .. }
            | Self::Restart { node, .. }
            | Self::Reap { node, .. } => node,
            Self::Dispatch(effect) => &effect.node,
        }
    }

    /// The attempt that the action concerns: the new one where one is installed.
    pub fn attempt(&self) -> NodeAttemptId {
        match self {
            Self::Insert { attempt, .. } => *attempt,
            Self::BeginDelete { expected_attempt, .. }
            | Self::MarkDestroyed { expected_attempt, .. }
            | Self::Reap { expected_attempt, .. } => *expected_attempt,
            Self::Restart { new_attempt, .. } => *new_attempt,
            Self::Dispatch(effect) => effect.operation.attempt,
        }
    }

    /// The name used in plans, logs and stories.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Insert { .. } => "insert",
            Self::BeginDelete { .. } => "begin-delete",
            Self::MarkDestroyed { .. } => "mark-destroyed",
            Self::Restart { .. } => "restart",
            Self::Reap { .. } => "reap",
            Self::Dispatch(effect) => effect.command.kind().as_str(),
        }
    }
}
