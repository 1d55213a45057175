//! One node's next step. Reads facts and stored deadlines; decides at most one thing; changes nothing.
//! The rows are those of the level-to-effect table (spec 7.2, 8).

use std::time::SystemTime;

use executor_api::{CreateMode, LogicalNodeSpec, NodeManagerCommand, OperationKind};

use crate::cluster::state::{ManagedNode, NodeIntent, NodeStage};
use crate::cluster::why::{SpecField, Why};

/// What a node does next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "decided by value, one at a time; a box would only cost")]
pub enum NodeStep {
    /// Steady: nothing to do until something changes.
    None,
    /// Nothing now; the reason says until when, where it knows.
    Wait,
    /// Turn from living to cleaning up.
    BeginDelete,
    /// Nothing of the attempt is left.
    MarkDestroyed,
    /// Start the next attempt.
    Restart,
    /// Forget the slot.
    Reap,
    /// Send an effect.
    Dispatch(NodeManagerCommand),
}

/// A step with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDecision {
    /// What to do.
    pub step: NodeStep,
    /// Why.
    pub why: Why,
}

impl NodeDecision {
    pub(crate) fn new(step: NodeStep, why: Why) -> Self {
        Self { step, why }
    }

    fn wait(why: Why) -> Self {
        Self::new(NodeStep::Wait, why)
    }
}

/// Decides one node. `desired` is `None` when its slot is not declared.
pub fn reconcile_node(
    node: &ManagedNode,
    desired: Option<&LogicalNodeSpec>,
    now: SystemTime,
) -> NodeDecision {
    if node.record.stage == NodeStage::Destroyed {
        return destroyed(node, desired, now);
    }
    // Topology comes before progression: an operation under way does not delay the turn to cleanup, it only
    // delays the cleanup itself (spec 8; its late result is still folded).
    if node.intent == NodeIntent::Active
        && let Some(why) = must_end(node, desired)
    {
        return NodeDecision::new(NodeStep::BeginDelete, why);
    }
    if let Some(pending) = &node.pending {
        return NodeDecision::wait(Why::Pending {
            operation: pending.id,
            kind: pending.kind,
            until: pending.deadline,
        });
    }
    match node.intent {
        NodeIntent::Active => active(node, now),
        NodeIntent::Deleting => deleting(node, now),
    }
}

/// The first reason to end an active attempt.
fn must_end(node: &ManagedNode, desired: Option<&LogicalNodeSpec>) -> Option<Why> {
    let Some(desired) = desired else {
        return Some(Why::Undeclared);
    };
    if node.record.stage == NodeStage::Failed {
        let reason = node.record.failed_reason.clone().unwrap_or_default();
        return Some(Why::AttemptFailed { reason });
    }
    if node.record.desired != *desired {
        return Some(Why::SpecChanged { fields: SpecField::differing(&node.record.desired, desired) });
    }
    node.extra.replace_requested.then_some(Why::ReplaceRequested)
}

/// Spec 7.2, the two last rows.
fn destroyed(node: &ManagedNode, desired: Option<&LogicalNodeSpec>, now: SystemTime) -> NodeDecision {
    if desired.is_none() {
        return NodeDecision::new(NodeStep::Reap, Why::Undeclared);
    }
    match node.retry.restart_at {
        Some(until) if now < until => NodeDecision::wait(Why::RestartDelay {
            until,
            failures: node.retry.consecutive_failures,
            last_error: node.retry.last_error.clone(),
        }),
        Some(_) | None => NodeDecision::new(NodeStep::Restart, Why::ReadyToRestart),
    }
}

/// Spec 7.2, the rows of an attempt that is to live.
fn active(node: &ManagedNode, now: SystemTime) -> NodeDecision {
    let record = &node.record;
    match record.stage {
        NodeStage::HandedOff | NodeStage::Dormant => return steady(node),
        NodeStage::BootstrapRunning => {
            return NodeDecision::wait(Why::AwaitingJoin { until: node.extra.join_deadline });
        }
        NodeStage::Joined => {
            // A joined node whose session is closed already became ready in the fold.
            return match &node.active_bootstrap {
                Some(session) => effect(
                    node,
                    now,
                    NodeManagerCommand::BootstrapConvergenceObserved { session: session.clone() },
                    Why::MemberJoined,
                ),
                None => steady(node),
            };
        }
        NodeStage::New
        | NodeStage::LeaseRequested
        | NodeStage::LeaseCreated
        | NodeStage::EndpointKnown
        | NodeStage::Failed
        | NodeStage::Destroyed => {}
    }
    let Some(lease) = &record.lease else {
        let (mode, why) = match node.retry.ambiguous_operation {
            // What an unknown outcome made is looked for; nothing is created beside it (spec 10).
            Some(kind) => (CreateMode::AdoptOnly, Why::OutcomeUnknown { kind }),
            None => (CreateMode::CreateOrAdopt, Why::NoLease),
        };
        return effect(
            node,
            now,
            NodeManagerCommand::CreateLease { desired: record.desired.clone(), mode },
            why,
        );
    };
    let Some(endpoint) = &record.connection else {
        return effect(
            node,
            now,
            NodeManagerCommand::LookupEndpoint { lease: lease.clone() },
            Why::NoEndpoint,
        );
    };
    let (mode, why) = match node.retry.ambiguous_operation {
        // Its driver died while it was starting: a session that is there is gone on with.
        Some(kind) => (CreateMode::AdoptOnly, Why::OutcomeUnknown { kind }),
        None => (CreateMode::CreateOrAdopt, Why::NoSession),
    };
    effect(
        node,
        now,
        NodeManagerCommand::StartBootstrap {
            desired: record.desired.clone(),
            lease: lease.clone(),
            endpoint: endpoint.clone(),
            mode,
        },
        why,
    )
}

/// Nothing to do, and whether that is a comfort.
fn steady(node: &ManagedNode) -> NodeDecision {
    match node.extra.suspect_since {
        Some(since) => {
            NodeDecision::new(NodeStep::None, Why::Suspect { since, until: node.extra.loss_deadline })
        }
        None => NodeDecision::new(NodeStep::None, Why::Ready),
    }
}

/// Spec 7.2, the rows of an attempt that is cleaned up: one thing after the other, never two at once.
fn deleting(node: &ManagedNode, now: SystemTime) -> NodeDecision {
    let record = &node.record;
    if let Some(kind) = node.retry.ambiguous_operation {
        let desired = record.desired.clone();
        let lookup = match (kind, &record.lease, &record.connection) {
            (OperationKind::StartBootstrap, Some(lease), Some(endpoint)) => {
                NodeManagerCommand::StartBootstrap {
                    desired,
                    lease: lease.clone(),
                    endpoint: endpoint.clone(),
                    mode: CreateMode::AdoptOnly,
                }
            }
            // Only creates and starts leave the mark; a start without its lease cannot have been sent.
            (
                OperationKind::StartBootstrap
                | OperationKind::CreateLease
                | OperationKind::LookupEndpoint
                | OperationKind::BootstrapConvergenceObserved
                | OperationKind::CancelBootstrap
                | OperationKind::DestroyLease,
                _,
                _,
            ) => NodeManagerCommand::CreateLease { desired, mode: CreateMode::AdoptOnly },
        };
        return effect(node, now, lookup, Why::OutcomeUnknown { kind });
    }
    if let Some(session) = &node.active_bootstrap {
        let why = Why::SessionLeft { session: session.clone() };
        let command = NodeManagerCommand::CancelBootstrap { session: session.clone() };
        return effect(node, now, command, why);
    }
    if let Some(lease) = &record.lease {
        let why = Why::LeaseLeft { lease: lease.lease_id.clone() };
        return effect(node, now, NodeManagerCommand::DestroyLease { lease: lease.clone() }, why);
    }
    match node.retry.extra.absent_counts_from {
        Some(until) if now < until => NodeDecision::wait(Why::MayStillAppear { until }),
        Some(_) | None => NodeDecision::new(NodeStep::MarkDestroyed, Why::NothingLeft),
    }
}

/// An effect, once the stored retry time is due.
fn effect(node: &ManagedNode, now: SystemTime, command: NodeManagerCommand, why: Why) -> NodeDecision {
    match node.retry.next_effect_at {
        Some(until) if now < until => NodeDecision::wait(Why::Backoff {
            until,
            failures: node.retry.consecutive_failures,
            last_error: node.retry.last_error.clone(),
        }),
        Some(_) | None => NodeDecision::new(NodeStep::Dispatch(command), why),
    }
}
