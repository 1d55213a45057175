//! All slots against the declared ones. One decision for each, attempt ids given out in order, holds and
//! replacement limits included.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use executor_api::{GroupId, LogicalNodeId, NodeAttemptId, OperationId};

use crate::cluster::node::{NodeDecision, NodeStep, reconcile_node};
use crate::cluster::plan::{NodeAction, PlannedEffect, ReconcilePlan, Waiting};
use crate::cluster::shape::{ClusterShape, Expanded, ShapeError};
use crate::cluster::state::{ClusterState, ManagedNode, NodeIntent};
use crate::cluster::why::Why;

/// Why no plan could be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReconcileError {
    /// The shape does not expand.
    #[error("the desired shape cannot be expanded")]
    Shape(#[from] ShapeError),
    /// The allocator is at its end.
    #[error("attempt ids are used up: no attempt can be started for {node}; create a new run")]
    AttemptsExhausted {
        /// The slot that would have had one.
        node: LogicalNodeId,
    },
}

/// Decides all slots. Pure: equal inputs give equal plans.
pub fn reconcile(
    observed: &ClusterState,
    desired: &ClusterShape,
    now: SystemTime,
) -> Result<ReconcilePlan, ReconcileError> {
    let expanded = Expanded::of(desired)?;
    let slots = expanded.specs.keys().chain(observed.nodes.keys());
    decide_all(observed, &expanded, slots.collect::<BTreeSet<_>>().into_iter(), now)
}

/// Decides some slots, as [`reconcile`] would. `requeue_at` speaks of these slots only.
pub fn reconcile_slots(
    observed: &ClusterState,
    desired: &Expanded,
    slots: &BTreeSet<LogicalNodeId>,
    now: SystemTime,
) -> Result<ReconcilePlan, ReconcileError> {
    decide_all(observed, desired, slots.iter(), now)
}

/// Decides one slot, with everything that may hold it back: what status and `explain` print.
pub fn decide_slot(
    observed: &ClusterState,
    desired: &Expanded,
    slot: &LogicalNodeId,
    now: SystemTime,
) -> NodeDecision {
    decide(observed, desired, slot, now, &mut Budgets::default())
        .unwrap_or_else(|| NodeDecision::new(NodeStep::None, Why::Undeclared))
}

/// Whether a declared slot is what it should be, or an undeclared one is gone.
pub fn slot_converged(observed: &ClusterState, desired: &Expanded, slot: &LogicalNodeId) -> bool {
    match (observed.nodes.get(slot), desired.specs.get(slot)) {
        (Some(node), Some(spec)) => {
            node.is_ready()
                && node.pending.is_none()
                && !node.extra.replace_requested
                && node.record.desired == *spec
        }
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Whether every slot is what it should be. Equality of generations alone says nothing (spec 9).
pub fn is_converged(observed: &ClusterState, desired: &Expanded) -> bool {
    observed.nodes.len() == desired.specs.len()
        && observed.nodes.keys().all(|slot| slot_converged(observed, desired, slot))
}

fn decide_all<'a>(
    observed: &ClusterState,
    desired: &Expanded,
    slots: impl Iterator<Item = &'a LogicalNodeId>,
    now: SystemTime,
) -> Result<ReconcilePlan, ReconcileError> {
    let mut plan = ReconcilePlan { observed_generation: desired.generation, ..ReconcilePlan::default() };
    let mut next_attempt = observed.next_attempt_id;
    let mut budgets = Budgets::default();
    for slot in slots {
        let Some(NodeDecision { step, why }) = decide(observed, desired, slot, now, &mut budgets) else {
            continue;
        };
        let node = observed.nodes.get(slot);
        if observed.holds.on(slot).is_none() {
            let times = [why.until(), node.and_then(ManagedNode::earliest_deadline)];
            plan.requeue_at = times.into_iter().flatten().chain(plan.requeue_at).min();
        }
        let expected_attempt = node.map(|n| n.attempt);
        let mut allocate = || {
            let attempt = NodeAttemptId(next_attempt);
            next_attempt = next_attempt
                .checked_add(1)
                .ok_or_else(|| ReconcileError::AttemptsExhausted { node: slot.clone() })?;
            Ok::<_, ReconcileError>(attempt)
        };
        let action = match (step, expected_attempt, desired.specs.get(slot)) {
            (NodeStep::Wait, _, _) => {
                plan.extra.waiting.push(Waiting { node: slot.clone(), why });
                continue;
            }
            (NodeStep::Restart, None, Some(spec)) => {
                NodeAction::Insert { attempt: allocate()?, desired: spec.clone() }
            }
            (NodeStep::Restart, Some(expected_attempt), Some(spec)) => NodeAction::Restart {
                node: slot.clone(),
                expected_attempt,
                new_attempt: allocate()?,
                desired: spec.clone(),
            },
            (NodeStep::BeginDelete, Some(expected_attempt), _) => {
                NodeAction::BeginDelete { node: slot.clone(), expected_attempt }
            }
            (NodeStep::MarkDestroyed, Some(expected_attempt), _) => {
                NodeAction::MarkDestroyed { node: slot.clone(), expected_attempt }
            }
            (NodeStep::Reap, Some(expected_attempt), _) => {
                NodeAction::Reap { node: slot.clone(), expected_attempt }
            }
            (NodeStep::Dispatch(command), Some(attempt), _) => {
                let sequence = node.map_or(0, |n| n.next_operation_sequence);
                let operation = OperationId { attempt, sequence };
                NodeAction::Dispatch(PlannedEffect { node: slot.clone(), operation, command })
            }
            // `decide` gives steps for existing nodes only, and a restart only for a declared slot.
            (
                NodeStep::None
                | NodeStep::BeginDelete
                | NodeStep::MarkDestroyed
                | NodeStep::Restart
                | NodeStep::Reap
                | NodeStep::Dispatch(_),
                _,
                _,
            ) => continue,
        };
        plan.actions.push(action);
        plan.extra.reasons.push(why);
    }
    Ok(plan)
}

/// One slot, or `None` when there is nothing and nothing is declared.
fn decide(
    observed: &ClusterState,
    desired: &Expanded,
    slot: &LogicalNodeId,
    now: SystemTime,
    budgets: &mut Budgets,
) -> Option<NodeDecision> {
    let spec = desired.specs.get(slot);
    let decision = match observed.nodes.get(slot) {
        Some(node) => reconcile_node(node, spec, now),
        // A first attempt is installed like a next one; the plan names it an insert.
        None => spec.map(|_| NodeDecision::new(NodeStep::Restart, Why::Declared))?,
    };
    match decision.step {
        NodeStep::None => return Some(decision),
        NodeStep::Wait
        | NodeStep::BeginDelete
        | NodeStep::MarkDestroyed
        | NodeStep::Restart
        | NodeStep::Reap
        | NodeStep::Dispatch(_) => {}
    }
    if let Some(hold) = observed.holds.on(slot) {
        let why = Why::Held { by: hold.by, reason: hold.reason.clone() };
        return Some(NodeDecision::new(NodeStep::Wait, why));
    }
    if decision.step == NodeStep::BeginDelete
        && let Some(why) = budgets.refuse(observed, desired, slot, &decision.why)
    {
        return Some(NodeDecision::new(NodeStep::Wait, why));
    }
    Some(decision)
}

/// How many slots of each limited group are unavailable, the replacements begun in this plan included.
#[derive(Default)]
struct Budgets {
    unavailable: BTreeMap<GroupId, u32>,
}

impl Budgets {
    /// Why a ready slot may not be taken down for a planned replacement now.
    fn refuse(
        &mut self,
        observed: &ClusterState,
        desired: &Expanded,
        slot: &LogicalNodeId,
        why: &Why,
    ) -> Option<Why> {
        if !matches!(why, Why::SpecChanged { .. } | Why::ReplaceRequested) {
            return None;
        }
        let group = &desired.specs.get(slot)?.group;
        let expanded = desired.groups.get(group)?;
        let limit = expanded.update.max_unavailable?;
        // Taking down what is not up costs nothing.
        if !observed.nodes.get(slot).is_some_and(ManagedNode::is_ready) {
            return None;
        }
        let unavailable = self.unavailable.entry(group.clone()).or_insert_with(|| {
            let down = |slot: &&LogicalNodeId| {
                !observed
                    .nodes
                    .get(*slot)
                    .is_some_and(|node| node.is_ready() && node.intent == NodeIntent::Active)
            };
            u32::try_from(expanded.slots.slots.iter().filter(down).count()).unwrap_or(u32::MAX)
        });
        if *unavailable >= limit {
            return Some(Why::UpdateLimit { group: group.clone(), limit, unavailable: *unavailable });
        }
        *unavailable = unavailable.saturating_add(1);
        None
    }
}
