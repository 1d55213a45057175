//! The rules under test, watched: each decision, fold and application is compared with what it may do at
//! most. The watched rules answer exactly as the rules beneath.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::{
    AttemptKey, EffectSuccess, ExecutorErrorKind, LogicalNodeId, NodeDeadline, NodeObservation, OperationId,
};
use executor_fake::FakeWorld;
use reconciler_core::{
    Applied, ClusterState, Expanded, Folded, ManagedNode, NodeAction, NodeIntent, NodeStage, ReconcilePlan,
    RetryPolicy, Stale,
};
use reconciler_driver::Rules;

use super::oracle::{Oracle, Watch};
use super::plan::run;

/// Every this many decisions, folds and applications one is made twice.
const TWICE_EVERY: u64 = 8;
/// Every this many decisions one is made on the state as a store would give it back.
const REREAD_EVERY: u64 = 32;

/// Watches `inner`.
pub(super) fn watched(inner: &Rules, watch: &Watch, world: &FakeWorld) -> Rules {
    let decide = {
        let (inner, watch) = (Arc::clone(&inner.reconcile), watch.clone());
        move |state: &ClusterState, desired: &Expanded, slots: &_, now: SystemTime| {
            let plan = inner(state, desired, slots, now)?;
            let (again, reread) = watch.with(|oracle| {
                decided(oracle, state, desired, now, &plan);
                oracle.passes += 1;
                (
                    oracle.passes.is_multiple_of(TWICE_EVERY),
                    oracle.passes % REREAD_EVERY == REREAD_EVERY / 2 - 1,
                )
            });
            if reread {
                let same = reread_state(state)
                    .is_some_and(|state| inner(&state, &desired.clone(), slots, now).as_ref() == Ok(&plan));
                watch.with(|oracle| {
                    oracle.demand(same, "S2", None, || {
                        "the state as it is read back from a store gave another plan".to_owned()
                    });
                });
            }
            if again {
                let same = inner(&state.clone(), &desired.clone(), slots, now).as_ref() == Ok(&plan);
                watch.with(|oracle| {
                    oracle.demand(same, "S15", None, || "equal inputs gave another plan".to_owned());
                });
            }
            Ok(plan)
        }
    };
    let fold = {
        let (inner, watch, world) = (Arc::clone(&inner.fold), watch.clone(), world.clone());
        move |node: &mut ManagedNode, seen: NodeObservation, now: SystemTime, policy: &RetryPolicy| {
            let (before, told) = (node.clone(), seen.clone());
            let folded = inner(node, seen, now, policy);
            if watch.with(Oracle::take_turn) {
                let mut again = before.clone();
                let same = inner(&mut again, told.clone(), now, policy) == folded && again == *node;
                watch.with(|oracle| {
                    oracle.demand(same, "S1", Some(&before.record.desired.id), || {
                        "the same fact taken in twice came to something else".to_owned()
                    });
                });
            }
            watch.with(|oracle| {
                oracle.clock(now);
                Fold { oracle, before: &before, told: &told, after: node, now }.check(&folded, &world);
            });
            folded
        }
    };
    let apply = {
        let (inner, watch, world) = (Arc::clone(&inner.apply), watch.clone(), world.clone());
        move |state: &mut ClusterState, action: &NodeAction, now: SystemTime, policy: &RetryPolicy| {
            let slot = action.node().clone();
            let before = state.nodes.get(&slot).cloned();
            let (next, alive) = (state.next_attempt_id, state.nodes.len() as u64);
            let twin = watch.with(Oracle::take_turn).then(|| state.clone());
            let applied = inner(state, action, now, policy);
            if let Some(mut again) = twin {
                let same = inner(&mut again, action, now, policy) == applied && again == *state;
                watch.with(|oracle| {
                    oracle.demand(same, "S1", Some(&slot), || {
                        "the same action applied twice came to something else".to_owned()
                    });
                });
            }
            watch.with(|oracle| {
                if oracle.astray.is_some() {
                    oracle.goes_on_astray("something was decided");
                }
                // Whatever an earlier life of the process gave out and no longer has is gone for good.
                oracle.base.get_or_insert_with(|| next.saturating_sub(1).saturating_sub(alive));
                Apply {
                    oracle,
                    slot: &slot,
                    before: before.as_ref(),
                    state,
                    action,
                    now,
                    timeout: policy.operation_timeout,
                }
                .check(&applied, &world);
            });
            applied
        }
    };
    Rules { reconcile: Arc::new(decide), fold: Arc::new(fold), apply: Arc::new(apply) }
}

/// The state without anything that memory alone knows: which of its parts are shared, and with whom.
fn reread_state(state: &ClusterState) -> Option<ClusterState> {
    serde_json::from_str(&serde_json::to_string(state).ok()?).ok()
}

impl Oracle {
    /// Whether it is the turn of a fold or an application to be made twice.
    fn take_turn(&mut self) -> bool {
        self.turns += 1;
        self.turns.is_multiple_of(TWICE_EVERY)
    }
}

/// What a plan may hold.
fn decided(
    oracle: &mut Oracle,
    state: &ClusterState,
    desired: &Expanded,
    now: SystemTime,
    plan: &ReconcilePlan,
) {
    oracle.clock(now);
    let generation = plan.observed_generation;
    oracle.demand(
        oracle.last_generation <= generation && generation <= desired.generation,
        "S14",
        None,
        || format!("generation {generation} was acknowledged, {} is declared", desired.generation),
    );
    oracle.last_generation = oracle.last_generation.max(generation);
    let ascending = plan.actions.windows(2).all(|pair| pair[0].node() < pair[1].node());
    oracle.demand(ascending, "S6", None, || {
        let names: Vec<_> = plan.actions.iter().map(|a| format!("{} {}", a.node(), a.name())).collect();
        format!("more than one action for a slot, or out of order: {}", names.join(", "))
    });
    if plan.requeue_at.is_some_and(|at| at <= now && plan.actions.is_empty() && no_deadline(state, at)) {
        oracle.violated("P10", None, || "an empty plan asks for another pass at once".to_owned());
    }
    for action in &plan.actions {
        let slot = action.node();
        let node = state.nodes.get(slot);
        let spec = desired.specs.get(slot);
        if let Some(hold) = state.holds.on(slot) {
            oracle.violated("P3", Some(slot), || format!("{} although held: {}", action.name(), hold.reason));
        }
        match action {
            NodeAction::Insert { desired, .. } | NodeAction::Restart { desired, .. } => {
                oracle.demand(spec == Some(desired), "S3", Some(slot), || {
                    "an attempt at something that is not declared".to_owned()
                });
                if let Some(node) = node {
                    let early = node.retry.restart_at.is_some_and(|at| now < at);
                    oracle.demand(!early, "P10", Some(slot), || {
                        "restarted before its restart delay".to_owned()
                    });
                }
            }
            NodeAction::BeginDelete { .. } => {
                let due = node.is_none_or(|node| {
                    spec != Some(&node.record.desired)
                        || node.record.stage == NodeStage::Failed
                        || node.extra.replace_requested
                });
                oracle.demand(due, "P3", Some(slot), || {
                    "turned to cleanup although it is as declared".to_owned()
                });
                limit(oracle, state, desired, slot, plan);
            }
            NodeAction::Dispatch(effect) => {
                let Some(node) = node else { continue };
                let marked = node.retry.ambiguous_operation.is_some();
                oracle.demand(!(marked && effect.command.may_create()), "P4", Some(slot), || {
                    format!("{} may create although an outcome is unknown", effect.command.kind())
                });
                let early = node.retry.next_effect_at.is_some_and(|at| now < at);
                oracle.demand(!early, "P10", Some(slot), || {
                    format!("{} before its retry time", effect.command.kind())
                });
            }
            NodeAction::MarkDestroyed { .. } | NodeAction::Reap { .. } => {}
        }
    }
}

fn no_deadline(state: &ClusterState, at: SystemTime) -> bool {
    state.nodes.values().all(|node| node.earliest_deadline() != Some(at))
}

/// A planned replacement takes down no more of its group than the group allows.
fn limit(
    oracle: &mut Oracle,
    state: &ClusterState,
    desired: &Expanded,
    slot: &LogicalNodeId,
    plan: &ReconcilePlan,
) {
    let ready = |slot: &LogicalNodeId| state.nodes.get(slot).is_some_and(ManagedNode::is_ready);
    let Some(spec) = desired.specs.get(slot).filter(|_| ready(slot)) else { return };
    let Some(group) = desired.groups.get(&spec.group) else { return };
    let Some(limit) = group.update.max_unavailable else { return };
    let taken_down = |slot: &LogicalNodeId| {
        plan.actions.iter().any(|a| matches!(a, NodeAction::BeginDelete { node, .. } if node == slot))
    };
    let down = group.slots.slots.iter().filter(|slot| !ready(slot) || taken_down(slot)).count();
    oracle.demand(down <= limit as usize, "P3", Some(slot), || {
        format!("a replacement leaves {down} slots down where {limit} may be")
    });
}

/// One fold, before and after.
struct Fold<'a> {
    oracle: &'a mut Oracle,
    before: &'a ManagedNode,
    told: &'a NodeObservation,
    after: &'a ManagedNode,
    now: SystemTime,
}

impl Fold<'_> {
    fn check(mut self, folded: &Folded, world: &FakeWorld) {
        let (before, after) = (self.before, self.after);
        let answered = match self.told {
            NodeObservation::Completed(report) => Some(report.operation),
            NodeObservation::TimedOut { operation, .. } => Some(*operation),
            _ => None,
        };
        if let Some(operation) = answered
            && before.pending.as_ref().map(|p| p.id) != Some(operation)
        {
            return self.demand(before == after, "S8", || {
                format!("the result of {operation}, which is not awaited, changed the node")
            });
        }
        match folded {
            Folded::Applied(fact) => {
                self.demand(before != after, "S5", || format!("learnt {fact:?} and did not change"));
            }
            Folded::Nothing | Folded::Dropped(_) => {
                self.demand(before == after, "S5", || {
                    "a fact that was not taken changed the node".to_owned()
                });
            }
        }
        self.demand(before.attempt == after.attempt, "S11", || "a fold changed the attempt".to_owned());
        self.demand(
            before.intent == after.intent
                && before.record.desired == after.record.desired
                && before.next_operation_sequence == after.next_operation_sequence
                && (after.pending.is_none() || after.pending == before.pending),
            "S5",
            || "a fold decided something".to_owned(),
        );
        let back = after.record.stage < before.record.stage;
        self.demand(!back, "S5", || format!("back from {} to {}", before.record.stage, after.record.stage));
        let over = before.record.stage >= NodeStage::Failed && after.record.stage != before.record.stage;
        self.demand(!over, "S5", || format!("an attempt that is over became {}", after.record.stage));
        self.pending(answered);
        self.mark();
        self.waits();
        self.verdict(world);
        self.readiness();
    }

    fn demand(&mut self, holds: bool, rule: &'static str, what: impl FnOnce() -> String) {
        self.oracle.demand(holds, rule, Some(&self.before.record.desired.id), what);
    }

    /// An operation is awaited until its result or its deadline.
    fn pending(&mut self, answered: Option<OperationId>) {
        let (before, after, now) = (self.before, self.after, self.now);
        let Some(pending) = &before.pending else { return };
        let ends = answered == Some(pending.id);
        self.demand(ends == after.pending.is_none(), "P4", || {
            format!(
                "{} {} {} awaited",
                pending.kind,
                pending.id,
                if ends { "is still" } else { "is no longer" }
            )
        });
        if let NodeObservation::TimedOut { .. } = self.told {
            self.demand(pending.deadline <= now, "P9", || {
                format!("{} stopped before its deadline", pending.id)
            });
        }
    }

    /// What may have been made stays marked until it is adopted or proved absent.
    fn mark(&mut self) {
        let (before, after, now) = (self.before, self.after, self.now);
        let proved = match self.told {
            NodeObservation::Completed(report) => match &report.outcome {
                Ok(EffectSuccess::LeaseCreated { .. } | EffectSuccess::BootstrapStarted { .. }) => true,
                Ok(EffectSuccess::NothingToAdopt { as_of }) => {
                    before.retry.extra.absent_counts_from.is_none_or(|from| from <= *as_of)
                }
                Err(failure) => failure.kind == ExecutorErrorKind::Gone,
                Ok(_) => false,
            },
            _ => false,
        };
        let cleared = before.retry.ambiguous_operation.is_some() && after.retry.ambiguous_operation.is_none();
        self.demand(!cleared || proved, "P4", || {
            "an unknown outcome was forgotten without adoption or proof of absence".to_owned()
        });
        let unknown = match self.told {
            NodeObservation::Completed(report) => match &report.outcome {
                Err(failure) if failure.kind == ExecutorErrorKind::Ambiguous => Some(report.visibility),
                Err(_) | Ok(_) => None,
            },
            NodeObservation::TimedOut { visibility, .. } => Some(*visibility),
            _ => None,
        };
        let Some(pending) = before.pending.as_ref().filter(|p| p.kind.is_creating() && !p.extra.adopt_only)
        else {
            return;
        };
        if let Some(visibility) = unknown {
            let from = Some(visibility.absent_counts_from(now));
            let marked = after.retry.ambiguous_operation == Some(pending.kind)
                && after.retry.extra.absent_counts_from >= from;
            self.demand(marked, "P4", || {
                format!("the outcome of {} {} is unknown and not marked", pending.kind, pending.id)
            });
        }
    }

    /// After a failure there is something to wait for.
    fn waits(&mut self) {
        let (before, after, now) = (self.before, self.after, self.now);
        let failed = match self.told {
            NodeObservation::Completed(report) => {
                matches!(&report.outcome, Err(failure) if failure.kind != ExecutorErrorKind::Gone)
            }
            NodeObservation::TimedOut { .. } => true,
            _ => false,
        };
        let cleanup = before.pending.as_ref().is_some_and(|p| p.kind.is_cleanup() || p.extra.adopt_only);
        if !failed
            || (before.intent == NodeIntent::Deleting && !cleanup)
            || before.record.stage == NodeStage::Failed
        {
            return;
        }
        let until = if after.record.stage == NodeStage::Failed {
            after.retry.restart_at
        } else {
            after.retry.next_effect_at
        };
        self.demand(until.is_some_and(|at| now < at), "P10", || {
            "a failure without a wait after it".to_owned()
        });
    }

    /// No ready node is given up without proof.
    fn verdict(&mut self, world: &FakeWorld) {
        let (before, after) = (self.before, self.after);
        if !before.is_ready() || after.is_ready() {
            return;
        }
        let key = AttemptKey { run: run(), node: before.record.desired.id.clone(), attempt: before.attempt };
        match self.told {
            NodeObservation::DeadlinePassed(NodeDeadline::Loss) => {}
            NodeObservation::LeaseLost { lease, .. } => {
                let lives = world.leases_of(&key).iter().any(|truth| truth.id == *lease);
                self.demand(!lives, "P3", || format!("given up as lost although {lease} lives"));
            }
            told => {
                let what = format!("a ready node was given up: {told:?}");
                self.demand(false, "P3", || what);
            }
        }
    }

    /// Nobody is ready who did not join.
    fn readiness(&mut self) {
        if !self.after.is_ready() || self.before.is_ready() {
            return;
        }
        let session = self.after.record.bootstrap.as_ref().map(|facts| &facts.session);
        let joined = session.is_some_and(|session| self.oracle.joined.contains(session));
        self.demand(joined, "S14", || "ready although its node did not join".to_owned());
    }
}

/// One action, before and after.
struct Apply<'a> {
    oracle: &'a mut Oracle,
    slot: &'a LogicalNodeId,
    before: Option<&'a ManagedNode>,
    state: &'a ClusterState,
    action: &'a NodeAction,
    now: SystemTime,
    timeout: Duration,
}

impl Apply<'_> {
    fn check(mut self, applied: &Result<Applied, Stale>, world: &FakeWorld) {
        let (slot, before, action) = (self.slot, self.before, self.action);
        if let Err(stale) = applied {
            let what = format!("{} of a fresh plan was stale: {stale}", action.name());
            return self.demand(false, "S6", || what);
        }
        let after = self.state.nodes.get(slot);
        match action {
            NodeAction::MarkDestroyed { .. } => self.nothing_left(world),
            NodeAction::Restart { .. } | NodeAction::Reap { .. } => {
                let destroyed = before.is_some_and(|node| node.record.stage == NodeStage::Destroyed);
                self.demand(destroyed, "S10", || {
                    format!("{} of an attempt that is not destroyed", action.name())
                });
                self.nothing_left(world);
                self.oracle.retired += 1;
            }
            NodeAction::BeginDelete { .. } => {
                let turned = after.is_some_and(|node| {
                    node.intent == NodeIntent::Deleting && node.retry.next_effect_at.is_none()
                });
                self.demand(turned, "S10", || "begin-delete did not turn the attempt to cleanup".to_owned());
            }
            NodeAction::Insert { .. } | NodeAction::Dispatch(_) => {}
        }
        if let NodeAction::Insert { attempt, .. } | NodeAction::Restart { new_attempt: attempt, .. } = action
        {
            let fresh = attempt.0 >= self.oracle.next_attempt && self.state.next_attempt_id > attempt.0;
            self.demand(fresh, "S11", || {
                format!("attempt id {attempt} was given out before, or may be again")
            });
            self.oracle.next_attempt = self.oracle.next_attempt.max(self.state.next_attempt_id);
        }
        if let NodeAction::Dispatch(effect) = action {
            let operation = effect.operation;
            let recorded = after.and_then(|node| node.pending.as_ref());
            let fits = recorded.is_some_and(|p| p.id == operation && p.kind == effect.command.kind());
            self.demand(fits, "S7", || format!("{operation} was not recorded as pending"));
            let until = self.now.checked_add(self.timeout);
            let in_time = recorded.map(|p| p.deadline) == until;
            self.demand(in_time, "P9", || format!("{operation} is not given its time"));
            let counted = after.is_some_and(|node| node.next_operation_sequence > operation.sequence);
            self.demand(counted, "S11", || format!("{operation} may be given out again"));
            let deleting = before.is_some_and(|node| node.intent == NodeIntent::Deleting);
            let kind = effect.command.kind();
            self.demand(deleting || !kind.is_cleanup(), "P3", || {
                format!("{kind} of an attempt that is to live")
            });
            self.demand(!(deleting && effect.command.may_create()), "S10", || {
                format!("{kind} for an attempt being deleted")
            });
        }
        if let (Some(before), Some(after)) = (before, after) {
            let same = before.attempt == after.attempt;
            let resurrected =
                same && before.intent == NodeIntent::Deleting && after.intent == NodeIntent::Active;
            self.demand(!resurrected, "S10", || "an attempt came back from deleting".to_owned());
            self.demand(!same || before.record.desired == after.record.desired, "S3", || {
                "an attempt changed its spec".to_owned()
            });
        }
        let given_out = self.state.next_attempt_id.saturating_sub(1);
        let accounted =
            self.oracle.base.unwrap_or_default() + self.oracle.retired + self.state.nodes.len() as u64;
        self.demand(given_out == accounted, "P11", || {
            format!("{given_out} attempts were given out, {accounted} are accounted for")
        });
    }

    fn demand(&mut self, holds: bool, rule: &'static str, what: impl FnOnce() -> String) {
        self.oracle.demand(holds, rule, Some(self.slot), what);
    }

    /// Of an attempt that is given up for good nothing exists and nothing can come.
    fn nothing_left(&mut self, world: &FakeWorld) {
        let Some(before) = self.before else { return };
        let key = AttemptKey { run: run(), node: self.slot.clone(), attempt: before.attempt };
        let name = self.action.name();
        for lease in world.leases_of(&key) {
            self.demand(false, "S10", || format!("{name} of {} while {} exists", key.attempt, lease.id));
        }
        for session in world.sessions_of(&key) {
            self.demand(false, "S10", || format!("{name} of {} while {} runs", key.attempt, session.id));
        }
        let coming = world.in_flight(&key);
        self.demand(coming == 0, "S10", || {
            format!("{name} of {} while {coming} requests for it can land", key.attempt)
        });
        let unknown = before.retry.ambiguous_operation;
        self.demand(unknown.is_none(), "S10", || {
            format!("{name} of {} with an outcome unknown", key.attempt)
        });
    }
}
