//! Bugs in the decider.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use conformance::simulate::Subject;
use executor_api::{CreateMode, LogicalNodeId, NodeManagerCommand};
use reconciler_core::{ClusterState, Expanded, Holds, NodeAction, NodeIntent, reconcile_slots};
use reconciler_driver::Rules;

use crate::plant::{Bug, Play, bug, plan_changed, state_misread};

pub(crate) fn bugs() -> Vec<Bug> {
    let mut bugs = decisions();
    bugs.extend(levels());
    bugs
}

/// What decides on something else than levels, and on more than what is given.
fn levels() -> Vec<Bug> {
    vec![
        bug("knows a spec by where it lies in memory", "S2", || {
            let decide = |state: &ClusterState,
                          desired: &Expanded,
                          slots: &BTreeSet<LogicalNodeId>,
                          now: SystemTime| {
                let mut state = state.clone();
                for (slot, node) in &mut state.nodes {
                    let spec = desired.specs.get(slot);
                    let moved =
                        spec.is_some_and(|spec| !Arc::ptr_eq(&spec.template, &node.record.desired.template));
                    node.extra.replace_requested |= moved;
                }
                reconcile_slots(&state, desired, slots, now)
            };
            let rules = Rules { reconcile: Arc::new(decide), ..Rules::default() };
            Subject { rules, ..Subject::default() }
        }),
        bug("acts on an edit only when it comes, one at a time", "S2", || {
            plan_changed(|state, desired, plan| {
                let comes = state.observed_generation + 1 == desired.generation;
                plan.actions.retain(|action| comes || !matches!(action, NodeAction::BeginDelete { .. }));
                plan.extra.reasons.truncate(plan.actions.len());
            })
        })
        .in_play(Play::Levels),
        bug("sends nothing while an executor has not answered", "S13", || {
            plan_changed(|state, _, plan| {
                let mut free = state.nodes.values().all(|node| node.pending.is_none());
                plan.actions
                    .retain(|action| !matches!(action, NodeAction::Dispatch(_)) || std::mem::take(&mut free));
                plan.extra.reasons.truncate(plan.actions.len());
            })
        })
        .in_play(Play::Hung),
    ]
}

fn decisions() -> Vec<Bug> {
    vec![
        bug("two actions for one slot", "S6", || {
            plan_changed(|_, _, plan| {
                if let Some(first) = plan.actions.first().cloned() {
                    plan.actions.insert(0, first);
                    plan.extra.reasons.insert(0, plan.extra.reasons[0].clone());
                }
            })
        }),
        bug("actions out of order", "S6", || {
            plan_changed(|_, _, plan| {
                plan.actions.reverse();
                plan.extra.reasons.reverse();
            })
        }),
        bug("one failing slot takes a ready one down", "P3", || {
            plan_changed(|state, _, plan| {
                let ready = state.nodes.iter().find(|(_, node)| node.is_ready());
                let failing = state.nodes.values().any(|node| node.retry.consecutive_failures > 1);
                if let (Some((slot, node)), true, true) = (ready, failing, plan.actions.is_empty()) {
                    let (node, expected_attempt) = (slot.clone(), node.attempt);
                    plan.actions.push(NodeAction::BeginDelete { node, expected_attempt });
                    plan.extra.reasons.push(reconciler_core::Why::Undeclared);
                }
            })
        }),
        bug("creates again while an outcome is unknown", "P4", || {
            plan_changed(|_, _, plan| {
                for action in &mut plan.actions {
                    if let NodeAction::Dispatch(effect) = action
                        && let NodeManagerCommand::CreateLease { mode, .. } = &mut effect.command
                    {
                        *mode = CreateMode::CreateOrAdopt;
                    }
                }
            })
        }),
        bug("acknowledges a generation too many", "S14", || {
            plan_changed(|_, _, plan| plan.observed_generation += 1)
        }),
        bug("takes acknowledged for ready", "S9", || {
            plan_changed(|state, desired, plan| {
                if state.observed_generation == desired.generation && desired.generation > 1 {
                    plan.actions.retain(|action| matches!(action, NodeAction::Dispatch(_)));
                }
            })
        }),
        bug("restarts at once", "P10", || {
            state_misread(|state, _| {
                state.nodes.values_mut().for_each(|node| node.retry.restart_at = None);
            })
        }),
        bug("sends again at once", "P10", || {
            state_misread(|state, _| {
                state.nodes.values_mut().for_each(|node| node.retry.next_effect_at = None);
            })
        }),
        bug("does not look at holds", "P3", || state_misread(|state, _| state.holds = Holds::default())),
        bug("restarts with the spec it first knew", "S3", || {
            let first = Mutex::new(std::collections::BTreeMap::new());
            plan_changed(move |_, desired, plan| {
                let mut first = first.lock().unwrap();
                for (slot, spec) in &desired.specs {
                    first.entry(slot.clone()).or_insert_with(|| spec.clone());
                }
                for action in &mut plan.actions {
                    if let NodeAction::Restart { node, desired, .. } = action {
                        *desired = first[node].clone();
                    }
                }
            })
        }),
        bug("remembers what it decided before", "S15", || {
            let calls = AtomicU32::new(0);
            plan_changed(move |_, _, plan| {
                if calls.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
                    plan.requeue_at = plan.requeue_at.and_then(|at| at.checked_add(Duration::from_secs(1)));
                }
            })
        }),
        bug("forgets slots that are no longer declared", "S9", || {
            plan_changed(|_, desired, plan| {
                plan.actions.retain(|action| {
                    !matches!(action, NodeAction::BeginDelete { node, .. } if !desired.specs.contains_key(node))
                });
                plan.extra.reasons.truncate(plan.actions.len());
            })
        }),
        bug("forgets when to look again", "S9", || plan_changed(|_, _, plan| plan.extra.waiting.clear())),
        bug("gives up after five failures", "S9", || {
            plan_changed(|state, _, plan| {
                plan.actions.retain(|action| {
                    state.nodes.get(action.node()).is_none_or(|node| node.retry.consecutive_failures < 5)
                });
                plan.extra.reasons.truncate(plan.actions.len());
            })
        }),
        bug("resurrects an attempt whose spec is wanted again", "S6", || {
            state_misread(|state, _| {
                for node in state.nodes.values_mut().filter(|node| node.record.lease.is_some()) {
                    node.intent = NodeIntent::Active;
                }
            })
        }),
        bug("takes a whole limited group down at once", "P3", || {
            plan_changed(|state, desired, plan| {
                let waiting = plan
                    .extra
                    .waiting
                    .iter()
                    .filter(|waiting| matches!(waiting.why, reconciler_core::Why::UpdateLimit { .. }));
                for waiting in waiting {
                    let node = waiting.node.clone();
                    let expected_attempt = state.nodes[&node].attempt;
                    let at = plan.actions.partition_point(|action| *action.node() < node);
                    plan.actions.insert(at, NodeAction::BeginDelete { node, expected_attempt });
                    plan.extra.reasons.insert(at, waiting.why.clone());
                }
                let _ = desired;
            })
        }),
    ]
}
