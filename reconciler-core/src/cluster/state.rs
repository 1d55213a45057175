//! What has been observed, and what the driver has recorded about it. Plain data: only [`fold`] and
//! [`apply`] change it, and only the driver calls those.
//!
//! [`fold`]: crate::fold
//! [`apply`]: crate::apply()

use std::collections::BTreeMap;
use std::time::SystemTime;

use executor_api::{
    BootstrapFacts, BootstrapSessionId, CandidateIndex, Endpoint, LeaseFacts, LogicalNodeId, LogicalNodeSpec,
    MemberFacts, NodeAttemptId, OperationId, OperationKind,
};
use serde::{Deserialize, Serialize};

use crate::cluster::hold::Holds;

/// Where an attempt is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeStage {
    /// Installed; nothing was asked for yet.
    New,
    /// A lease was asked for.
    LeaseRequested,
    /// The lease is known, its endpoint is not.
    LeaseCreated,
    /// The node can be reached.
    EndpointKnown,
    /// The bootstrap session runs.
    BootstrapRunning,
    /// The node joined; the session is not closed yet.
    Joined,
    /// The session was handed over. Ready.
    HandedOff,
    /// Nothing is left to do. Ready.
    Dormant,
    /// The attempt is over and must be cleaned up.
    Failed,
    /// Everything of the attempt is gone.
    Destroyed,
}

impl NodeStage {
    /// The name used in status, plans and stories.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::LeaseRequested => "lease-requested",
            Self::LeaseCreated => "lease-created",
            Self::EndpointKnown => "endpoint-known",
            Self::BootstrapRunning => "bootstrap-running",
            Self::Joined => "joined",
            Self::HandedOff => "handed-off",
            Self::Dormant => "dormant",
            Self::Failed => "failed",
            Self::Destroyed => "destroyed",
        }
    }
}

impl std::fmt::Display for NodeStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The lifecycle facts of one attempt, whoever leases it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// The spec that this attempt implements. Immutable for its life.
    pub desired: LogicalNodeSpec,
    /// Where the attempt is in its life.
    pub stage: NodeStage,
    /// The live lease.
    pub lease: Option<LeaseFacts>,
    /// Where it can be reached.
    pub connection: Option<Endpoint>,
    /// The bootstrap session, live or over.
    pub bootstrap: Option<BootstrapFacts>,
    /// The member that joined.
    pub member: Option<MemberFacts>,
    /// Whether the bootstrap was closed in good order.
    pub handoff_complete: bool,
    /// When the attempt was installed.
    pub created_at: SystemTime,
    /// Why the attempt ended.
    pub failed_reason: Option<String>,
    /// When the attempt ended.
    pub failed_at: Option<SystemTime>,
    /// When nothing of it was left.
    pub destroyed_at: Option<SystemTime>,
}

/// Whether an attempt is to live. Deleting is never taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeIntent {
    /// To be brought up and kept.
    Active,
    /// To be cleaned up.
    Deleting,
}

/// An effect that was recorded before it was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingOperation {
    /// Which operation.
    pub id: OperationId,
    /// What it does.
    pub kind: OperationKind,
    /// When the driver stops it. Sampled and stored before it was sent.
    pub deadline: SystemTime,
    /// Additions to the source text.
    pub extra: PendingExtra,
}

/// Additions to [`PendingOperation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingExtra {
    /// The command may only adopt: whatever comes of it, it made nothing.
    pub adopt_only: bool,
}

/// When and whether to try again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryState {
    /// Failures since the node was last ready for long enough.
    pub consecutive_failures: u32,
    /// Earliest time another effect may be sent.
    pub next_effect_at: Option<SystemTime>,
    /// Earliest time a destroyed attempt may be replaced.
    pub restart_at: Option<SystemTime>,
    /// The last failure, in words for an operator.
    pub last_error: Option<String>,
    /// A create or start whose outcome is unknown: it must be adopted or proved absent before anything else.
    pub ambiguous_operation: Option<OperationKind>,
    /// Additions to the source text.
    pub extra: RetryExtra,
}

/// Additions to [`RetryState`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryExtra {
    /// From when on "absent" proves that the ambiguous operation made nothing.
    pub absent_counts_from: Option<SystemTime>,
    /// Throttled answers in a row. They slow the node down and are not its failures.
    pub throttles: u32,
}

/// One slot with its current attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedNode {
    /// The incarnation.
    pub attempt: NodeAttemptId,
    /// Whether it is to live.
    pub intent: NodeIntent,
    /// Its lifecycle facts.
    pub record: NodeRecord,
    /// The session that can be addressed now; its facts may outlive this handle.
    pub active_bootstrap: Option<BootstrapSessionId>,
    /// The one effect that is under way.
    pub pending: Option<PendingOperation>,
    /// Sequence of the attempt's next operation.
    pub next_operation_sequence: u64,
    /// When and whether to try again.
    pub retry: RetryState,
    /// Additions to the source text.
    pub extra: NodeExtra,
}

/// Additions to [`ManagedNode`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeExtra {
    /// The bootstrap must have joined by then.
    pub join_deadline: Option<SystemTime>,
    /// When the node became ready.
    pub ready_at: Option<SystemTime>,
    /// When its failures are forgotten, if it stays ready.
    pub stable_at: Option<SystemTime>,
    /// Since when the node could not be seen.
    pub suspect_since: Option<SystemTime>,
    /// When silence ends the attempt.
    pub loss_deadline: Option<SystemTime>,
    /// An operator asked for a fresh attempt.
    pub replace_requested: bool,
    /// Which of the spec's fallbacks the attempt tries.
    pub candidate: CandidateIndex,
}

/// Everything that the driver knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterState {
    /// Latest desired generation that a completed pass has evaluated. Not readiness.
    pub observed_generation: u64,
    /// The next attempt id to give out; ids are never reused.
    pub next_attempt_id: u64,
    /// The slots.
    pub nodes: BTreeMap<LogicalNodeId, ManagedNode>,
    /// What must not be touched for now.
    pub holds: Holds,
}

impl Default for ClusterState {
    /// Nothing is there; the first attempt will be `a1`.
    fn default() -> Self {
        Self { observed_generation: 0, next_attempt_id: 1, nodes: BTreeMap::new(), holds: Holds::default() }
    }
}

impl ManagedNode {
    /// A fresh attempt at a spec.
    pub fn new(attempt: NodeAttemptId, desired: LogicalNodeSpec, now: SystemTime) -> Self {
        Self {
            attempt,
            intent: NodeIntent::Active,
            record: NodeRecord {
                desired,
                stage: NodeStage::New,
                lease: None,
                connection: None,
                bootstrap: None,
                member: None,
                handoff_complete: false,
                created_at: now,
                failed_reason: None,
                failed_at: None,
                destroyed_at: None,
            },
            active_bootstrap: None,
            pending: None,
            next_operation_sequence: 0,
            retry: RetryState::default(),
            extra: NodeExtra::default(),
        }
    }

    /// Whether the node does its work: ready stage, and meant to live.
    pub fn is_ready(&self) -> bool {
        match self.record.stage {
            NodeStage::HandedOff | NodeStage::Dormant => self.intent == NodeIntent::Active,
            NodeStage::New
            | NodeStage::LeaseRequested
            | NodeStage::LeaseCreated
            | NodeStage::EndpointKnown
            | NodeStage::BootstrapRunning
            | NodeStage::Joined
            | NodeStage::Failed
            | NodeStage::Destroyed => false,
        }
    }

    /// The earliest stored deadline of the node that a driver must act on: an operation to stop, a join, a
    /// loss or a stability to settle. Retry times are not among them; decisions read those.
    pub fn earliest_deadline(&self) -> Option<SystemTime> {
        let pending = self.pending.as_ref().map(|p| p.deadline);
        [pending, self.extra.join_deadline, self.extra.loss_deadline, self.extra.stable_at]
            .into_iter()
            .flatten()
            .min()
    }
}
