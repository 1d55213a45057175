//! The invariants of a state, as code. Called by tests, by the simulator after every step, and by the driver
//! for the slots it touched. An empty answer is the only good one.

use std::collections::BTreeMap;
use std::fmt;

use executor_api::{LogicalNodeId, NodeAttemptId};

use crate::cluster::state::{ClusterState, ManagedNode, NodeIntent, NodeStage};

/// Something that must never be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The slot.
    pub node: LogicalNodeId,
    /// Its attempt.
    pub attempt: NodeAttemptId,
    /// What is wrong.
    pub what: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.node, self.attempt, self.what)
    }
}

/// Everything in the state that must never be.
pub fn violations(state: &ClusterState) -> Vec<Violation> {
    let mut found: Vec<_> = state
        .nodes
        .iter()
        .flat_map(|(slot, node)| node_violations(slot, node, state.next_attempt_id))
        .collect();
    let mut seen: BTreeMap<NodeAttemptId, &LogicalNodeId> = BTreeMap::new();
    for (slot, node) in &state.nodes {
        if seen.insert(node.attempt, slot).is_some() {
            let what = "two slots share an attempt id";
            found.push(Violation { node: slot.clone(), attempt: node.attempt, what });
        }
    }
    found
}

/// Everything in one node that must never be.
pub fn node_violations(slot: &LogicalNodeId, node: &ManagedNode, next_attempt_id: u64) -> Vec<Violation> {
    let record = &node.record;
    let retry = &node.retry;
    let destroyed = record.stage == NodeStage::Destroyed;
    let ready = matches!(record.stage, NodeStage::HandedOff | NodeStage::Dormant);
    let pending_fits = node.pending.as_ref().is_none_or(|p| {
        p.id.attempt == node.attempt && p.id.sequence.checked_add(1) == Some(node.next_operation_sequence)
    });
    let session_fits = node
        .active_bootstrap
        .as_ref()
        .is_none_or(|session| record.bootstrap.as_ref().is_some_and(|facts| facts.session == *session));
    let rules = [
        (record.desired.id == *slot, "the record belongs to another slot"),
        (node.attempt.0 < next_attempt_id, "the attempt id was not given out by the allocator"),
        (pending_fits, "the pending operation is not the attempt's newest"),
        (session_fits, "the active session has no facts"),
        (record.lease.as_ref().is_none_or(|lease| !lease.lease_id.0.is_empty()), "a lease without an id"),
        (!destroyed || node.intent == NodeIntent::Deleting, "destroyed but not deleting"),
        (!destroyed || record.lease.is_none(), "destroyed with a lease"),
        (!destroyed || node.active_bootstrap.is_none(), "destroyed with a session"),
        (!destroyed || node.pending.is_none(), "destroyed with an operation pending"),
        (!destroyed || retry.ambiguous_operation.is_none(), "destroyed with an outcome unknown"),
        (!destroyed || record.destroyed_at.is_some(), "destroyed at no time"),
        (!ready || record.member.is_some(), "ready without a member"),
        (!ready || record.handoff_complete, "ready without a handoff"),
        (!ready || node.extra.ready_at.is_some(), "ready at no time"),
        (!node.is_ready() || record.lease.is_some(), "ready without a lease"),
        (!node.is_ready() || node.active_bootstrap.is_none(), "ready with a session open"),
        (
            retry.ambiguous_operation.is_none_or(executor_api::OperationKind::is_creating),
            "an unknown outcome of an operation that makes nothing",
        ),
        (
            retry.ambiguous_operation.is_none() || retry.extra.absent_counts_from.is_some(),
            "an unknown outcome without a time from which absence counts",
        ),
        (record.stage != NodeStage::Failed || record.failed_reason.is_some(), "failed without a reason"),
    ];
    rules
        .into_iter()
        .filter(|(holds, _)| !holds)
        .map(|(_, what)| Violation { node: slot.clone(), attempt: node.attempt, what })
        .collect()
}
