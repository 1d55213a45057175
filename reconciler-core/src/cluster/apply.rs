//! Applies one action to the state, or refuses it as stale. The only way an attempt is installed, turned,
//! retired, or given an operation; called by the driver for each action of a plan, right before its effect is
//! sent.

use std::time::SystemTime;

use executor_api::{CreateMode, LogicalNodeId, NodeAttemptId, NodeManagerCommand, OperationId};

use crate::cluster::plan::{NodeAction, PlannedEffect};
use crate::cluster::policy::{RetryPolicy, later};
use crate::cluster::state::{
    ClusterState, ManagedNode, NodeIntent, NodeStage, PendingExtra, PendingOperation, RetryState,
};

/// What an action did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// A transition of the slot is done; its next step belongs to a later pass.
    Transition,
    /// The slot is forgotten.
    Reaped,
    /// The operation is recorded and may be sent once that record is durable.
    Recorded {
        /// When it is stopped.
        deadline: SystemTime,
    },
}

/// Why an action no longer fits. The driver discards it and looks again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    /// The slot is not there.
    #[error("{node} has no attempt")]
    NoAttempt {
        /// The slot.
        node: LogicalNodeId,
    },
    /// The slot has an attempt already.
    #[error("{node} has attempt {found} already")]
    Taken {
        /// The slot.
        node: LogicalNodeId,
        /// Its attempt.
        found: NodeAttemptId,
    },
    /// Another attempt is meant.
    #[error("{node} is at {found}, not at {expected}")]
    OtherAttempt {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt of the action.
        expected: NodeAttemptId,
        /// The attempt of the slot.
        found: NodeAttemptId,
    },
    /// The attempt is not in the condition that the action needs.
    #[error("{node} {attempt}: {needed}")]
    Condition {
        /// The slot.
        node: LogicalNodeId,
        /// Its attempt.
        attempt: NodeAttemptId,
        /// What is needed.
        needed: &'static str,
    },
    /// The operation's sequence is not the next one.
    #[error("{node}: operation {operation} is not the next one, which is {next}")]
    OtherSequence {
        /// The slot.
        node: LogicalNodeId,
        /// The operation of the action.
        operation: OperationId,
        /// The sequence that is next.
        next: u64,
    },
    /// The attempt id is not the one to give out next.
    #[error("{node}: {assigned} is not the next attempt id, which is {next}")]
    AllocatorMoved {
        /// The slot.
        node: LogicalNodeId,
        /// The id of the action.
        assigned: NodeAttemptId,
        /// The id that is next.
        next: NodeAttemptId,
    },
    /// A counter is at its end.
    #[error("{node}: a counter is used up; create a new run")]
    Exhausted {
        /// The slot.
        node: LogicalNodeId,
    },
}

/// Applies one action. On an error nothing has changed.
pub fn apply(
    state: &mut ClusterState,
    action: &NodeAction,
    now: SystemTime,
    retry: &RetryPolicy,
) -> Result<Applied, Stale> {
    match action {
        NodeAction::Insert { attempt, desired } => {
            if let Some(node) = state.nodes.get(&desired.id) {
                return Err(Stale::Taken { node: desired.id.clone(), found: node.attempt });
            }
            state.next_attempt_id = allocate(state, &desired.id, *attempt)?;
            state.nodes.insert(desired.id.clone(), ManagedNode::new(*attempt, desired.clone(), now));
            Ok(Applied::Transition)
        }
        NodeAction::BeginDelete { node, expected_attempt } => {
            begin_delete(attempt_of(state, node, *expected_attempt)?, node)
        }
        NodeAction::MarkDestroyed { node, expected_attempt } => {
            mark_destroyed(attempt_of(state, node, *expected_attempt)?, node, now)
        }
        NodeAction::Restart { node, expected_attempt, new_attempt, desired } => {
            let old = attempt_of(state, node, *expected_attempt)?;
            require(old.record.stage == NodeStage::Destroyed, node, old, "must be destroyed to restart")?;
            // Failures outlive the attempt, deadlines do not (spec 5.2).
            let retry = RetryState {
                consecutive_failures: old.retry.consecutive_failures,
                last_error: old.retry.last_error.clone(),
                ..RetryState::default()
            };
            state.next_attempt_id = allocate(state, node, *new_attempt)?;
            let mut fresh = ManagedNode::new(*new_attempt, desired.clone(), now);
            fresh.retry = retry;
            state.nodes.insert(node.clone(), fresh);
            Ok(Applied::Transition)
        }
        NodeAction::Reap { node, expected_attempt } => {
            let old = attempt_of(state, node, *expected_attempt)?;
            require(old.record.stage == NodeStage::Destroyed, node, old, "must be destroyed to be reaped")?;
            state.nodes.remove(node);
            Ok(Applied::Reaped)
        }
        NodeAction::Dispatch(effect) => {
            record(attempt_of(state, &effect.node, effect.operation.attempt)?, effect, now, retry)
        }
    }
}

fn attempt_of<'a>(
    state: &'a mut ClusterState,
    node: &LogicalNodeId,
    expected: NodeAttemptId,
) -> Result<&'a mut ManagedNode, Stale> {
    let found = state.nodes.get_mut(node).ok_or_else(|| Stale::NoAttempt { node: node.clone() })?;
    if found.attempt != expected {
        return Err(Stale::OtherAttempt { node: node.clone(), expected, found: found.attempt });
    }
    Ok(found)
}

fn require(
    holds: bool,
    node: &LogicalNodeId,
    managed: &ManagedNode,
    needed: &'static str,
) -> Result<(), Stale> {
    if holds {
        return Ok(());
    }
    Err(Stale::Condition { node: node.clone(), attempt: managed.attempt, needed })
}

/// The allocator after giving out `assigned`, which must be the id that is next.
fn allocate(state: &ClusterState, node: &LogicalNodeId, assigned: NodeAttemptId) -> Result<u64, Stale> {
    if assigned.0 != state.next_attempt_id {
        let next = NodeAttemptId(state.next_attempt_id);
        return Err(Stale::AllocatorMoved { node: node.clone(), assigned, next });
    }
    assigned.0.checked_add(1).ok_or_else(|| Stale::Exhausted { node: node.clone() })
}

fn begin_delete(managed: &mut ManagedNode, node: &LogicalNodeId) -> Result<Applied, Stale> {
    require(managed.intent == NodeIntent::Active, node, managed, "is being deleted already")?;
    managed.intent = NodeIntent::Deleting;
    // A create's or a probe's backoff does not delay cleanup; the restart time stands.
    managed.retry.next_effect_at = None;
    managed.extra.join_deadline = None;
    managed.extra.stable_at = None;
    managed.extra.suspect_since = None;
    managed.extra.loss_deadline = None;
    managed.extra.replace_requested = false;
    Ok(Applied::Transition)
}

fn mark_destroyed(
    managed: &mut ManagedNode,
    node: &LogicalNodeId,
    now: SystemTime,
) -> Result<Applied, Stale> {
    let retry = &managed.retry;
    require(managed.intent == NodeIntent::Deleting, node, managed, "must be deleting to be destroyed")?;
    require(managed.record.stage != NodeStage::Destroyed, node, managed, "is destroyed already")?;
    require(managed.pending.is_none(), node, managed, "an operation is pending")?;
    require(managed.active_bootstrap.is_none(), node, managed, "a session is left")?;
    require(managed.record.lease.is_none(), node, managed, "a lease is left")?;
    require(retry.ambiguous_operation.is_none(), node, managed, "an outcome is unknown")?;
    let settled = retry.extra.absent_counts_from.is_none_or(|at| at <= now);
    require(settled, node, managed, "an earlier call may still land")?;
    managed.record.stage = NodeStage::Destroyed;
    managed.record.destroyed_at = Some(now);
    managed.retry.next_effect_at = None;
    managed.retry.extra.absent_counts_from = None;
    Ok(Applied::Transition)
}

fn record(
    managed: &mut ManagedNode,
    effect: &PlannedEffect,
    now: SystemTime,
    retry: &RetryPolicy,
) -> Result<Applied, Stale> {
    let node = &effect.node;
    require(managed.pending.is_none(), node, managed, "an operation is pending")?;
    require(managed.record.stage != NodeStage::Destroyed, node, managed, "is destroyed")?;
    // A mark forbids making anything (spec 10): checked here too, where the effect leaves.
    let may_create = effect.command.may_create();
    let unmarked = managed.retry.ambiguous_operation.is_none();
    require(unmarked || !may_create, node, managed, "an outcome is unknown: only adoption is allowed")?;
    let living = managed.intent == NodeIntent::Active;
    require(living || !may_create, node, managed, "nothing is created for an attempt being deleted")?;
    let next = managed.next_operation_sequence;
    if effect.operation.sequence != next {
        return Err(Stale::OtherSequence { node: node.clone(), operation: effect.operation, next });
    }
    managed.next_operation_sequence =
        next.checked_add(1).ok_or_else(|| Stale::Exhausted { node: node.clone() })?;
    let deadline = later(now, retry.operation_timeout);
    let kind = effect.command.kind();
    let adopt_only = match &effect.command {
        NodeManagerCommand::CreateLease { mode, .. } | NodeManagerCommand::StartBootstrap { mode, .. } => {
            *mode == CreateMode::AdoptOnly
        }
        NodeManagerCommand::LookupEndpoint { .. }
        | NodeManagerCommand::BootstrapConvergenceObserved { .. }
        | NodeManagerCommand::CancelBootstrap { .. }
        | NodeManagerCommand::DestroyLease { .. } => false,
    };
    let extra = PendingExtra { adopt_only };
    managed.pending = Some(PendingOperation { id: effect.operation, kind, deadline, extra });
    if managed.record.stage == NodeStage::New {
        managed.record.stage = NodeStage::LeaseRequested;
    }
    Ok(Applied::Recorded { deadline })
}
