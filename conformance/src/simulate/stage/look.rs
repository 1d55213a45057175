//! The driver held against the world and against its own promises, after every step and whenever time is about to
//! move. Changes neither.

use std::time::SystemTime;

use executor_api::{NodeObservation, OperationKind, Timer};
use reconciler_core::{ClusterState, NodeStep, check, decide_slot, is_converged};
use reconciler_driver::{ClusterDriver, Event, ExecutorTable, Happening};

use super::Stage;
use crate::simulate::oracle::Oracle;

impl Stage<'_> {
    /// Holds what is against what must be.
    pub(super) fn observe(&mut self) {
        let events = self.runner.take_events();
        let driver = self.runner.driver();
        let (state, now) = (driver.state(), self.timer.now());
        let restarted = self.runner.crashes() != self.crashes;
        self.crashes = self.runner.crashes();
        if restarted {
            self.lives += 1;
            self.known = None;
        }
        let (world, truth, known) = (&self.world, &mut self.truth, &mut self.known);
        let (executors, trusted) = (&self.executors, driver.waits_for().is_empty());
        self.watch.with(|oracle| {
            for event in &events {
                oracle.hear(event, now);
            }
            if restarted {
                oracle.tell(now, || "! the process dies and starts again".to_owned());
                restored(oracle, driver, executors);
            }
            counted(oracle, driver, known);
            oracle.clock(driver.now());
            truth.update(world, oracle);
            if oracle.astray.is_none() {
                truth.check_known(state, oracle);
            }
            if let Some(violation) = check::violations(state).first() {
                let rule = rule_of(violation.what);
                oracle.violated(rule, Some(&violation.node), || violation.what.to_owned());
            }
            if let Some(breach) = world.breaches().first() {
                let rule = if breach.kind == executor_fake::BreachKind::WrongKill { "P3" } else { "P1" };
                oracle.violated(rule, None, || breach.detail.clone());
            }
            let (seen, declared) = (state.observed_generation, driver.desired().generation);
            oracle.demand(seen <= declared, "S14", None, || {
                format!("generation {seen} is acknowledged, {declared} is declared")
            });
            let counted = driver.is_converged();
            let converged = trusted && seen == declared && is_converged(state, driver.expanded());
            oracle.demand(counted == converged, "S14", None, || {
                format!("the counters say converged: {counted}, the state says {converged}")
            });
            if seen == declared && !converged {
                oracle.count("acknowledged and not converged");
            }
        });
        self.probe_stale(&events);
    }

    /// Stale results never reach the fold through the driver; here they are tried on it.
    fn probe_stale(&mut self, events: &[Event]) {
        for event in events {
            let (Happening::StaleResult { operation }, Some(slot)) = (&event.what, &event.node) else {
                continue;
            };
            let Some(node) = self.runner.driver().state().nodes.get(slot) else { continue };
            let report = self.watch.with(|oracle| {
                let old = node.attempt != operation.attempt;
                oracle.count(if old { "result of an attempt that is over" } else { "stale result" });
                oracle.reports.get(operation).cloned()
            });
            let Some(report) = report else { continue };
            let mut copy = node.clone();
            let told = NodeObservation::Completed(report);
            // The watched fold itself finds what is wrong.
            let now = self.runner.driver().now();
            let _ = (self.runner.rules().fold)(&mut copy, told, now, &self.plan.policy);
        }
    }

    /// Time is about to move: whatever can be done now has been.
    pub(super) fn rested(&mut self) {
        let driver = self.runner.driver();
        let (state, desired, now) = (driver.state(), driver.expanded(), driver.now());
        // A driver that waits to be shown what there is decides nothing, and has nothing to be late for.
        if self.watch.with(|oracle| oracle.store_failed) || self.waits_for_trust() {
            return;
        }
        let mut first_due: Option<SystemTime> = None;
        for slot in driver.slots() {
            let decision = decide_slot(state, desired, &slot, now);
            let node = state.nodes.get(&slot);
            match decision.step {
                NodeStep::None => {
                    let fine = node.is_some_and(|node| node.is_ready() && node.pending.is_none());
                    if !fine && state.holds.on(&slot).is_none() {
                        self.violated("L4", Some(&slot), || {
                            format!("neither steady nor waiting: {}", decision.why)
                        });
                        return;
                    }
                }
                NodeStep::Wait => {
                    let held = state.holds.on(&slot).is_some();
                    let limited = matches!(decision.why, reconciler_core::Why::UpdateLimit { .. });
                    match decision.why.until() {
                        Some(until) if !held => first_due = Some(first_due.map_or(until, |at| at.min(until))),
                        Some(_) | None if held || limited => {}
                        Some(_) | None => {
                            self.violated("L4", Some(&slot), || format!("waits for ever: {}", decision.why));
                            return;
                        }
                    }
                }
                _ if self.limited => {}
                step => {
                    self.violated("S9", Some(&slot), || {
                        format!("rests although it could take a step: {step:?}: {}", decision.why)
                    });
                    return;
                }
            }
        }
        let next = driver.next_wakeup();
        if let Some(due) = first_due.filter(|due| next.is_none_or(|next| next > *due)) {
            let late = next.and_then(|next| next.duration_since(due).ok());
            self.violated("S9", None, || format!("sleeps past a stored time: {late:?} late"));
        }
    }
}

/// What a restarted driver knows is what was durable.
fn restored(oracle: &mut Oracle, driver: &ClusterDriver, executors: &ExecutorTable) {
    let Some(image) = oracle.loaded.take() else { return };
    let state = driver.state();
    let same = image.state.next_attempt_id == state.next_attempt_id
        && image.state.holds == state.holds
        && image.state.nodes.len() == state.nodes.len()
        && image.state.nodes.iter().zip(&state.nodes).all(|((slot, old), (same_slot, new))| {
            slot == same_slot
                && old.attempt == new.attempt
                && old.intent == new.intent
                && old.active_bootstrap == new.active_bootstrap
                && new.pending.is_none()
                && old.next_operation_sequence == new.next_operation_sequence
                && old.record.stage == new.record.stage
                && old.record.lease == new.record.lease
                && old.record.desired == new.record.desired
                && old.retry.consecutive_failures == new.retry.consecutive_failures
                // What was pending is settled; what it may have made is unknown until it was looked up.
                && old
                    .pending
                    .as_ref()
                    .filter(|pending| pending.kind.is_creating() && !pending.extra.adopt_only)
                    .map(|pending| pending.kind)
                    .or(old.retry.ambiguous_operation)
                    == new.retry.ambiguous_operation
        });
    oracle.demand(same, "P6", None, || "the restarted driver does not know what was stored".to_owned());
    for (slot, node) in &state.nodes {
        let Some(kind) = node.retry.ambiguous_operation else { continue };
        let bootstrap = kind != OperationKind::CreateLease;
        let allowance = executors.visibility(&node.record.desired.template.provider, bootstrap);
        let from = Some(allowance.absent_counts_from(driver.now()));
        oracle.demand(from <= node.retry.extra.absent_counts_from, "P4", Some(slot), || {
            "what an earlier process left unknown counts as absent too early".to_owned()
        });
    }
}

/// Whoever waits for changes sees the driver's count of them: without a change of it the state is the same.
fn counted(oracle: &mut Oracle, driver: &ClusterDriver, known: &mut Option<(u64, ClusterState)>) {
    let (count, state) = (driver.revision(), driver.state());
    match known {
        Some((before, old)) if *before == count => {
            oracle.demand(old == state, "S4", None, || {
                format!("the state changed, and the driver still counts {count} changes")
            });
        }
        _ => *known = Some((count, state.clone())),
    }
}

/// Which rule a violation of the state's own invariants belongs to.
fn rule_of(what: &str) -> &'static str {
    match what {
        what if what.contains("destroyed") => "S10",
        what if what.contains("attempt id") => "S11",
        what if what.contains("pending operation") => "S8",
        what if what.contains("unknown outcome") => "P4",
        what if what.contains("ready") => "S14",
        _ => "S5",
    }
}

impl Oracle {
    fn hear(&mut self, event: &Event, now: SystemTime) {
        match &event.what {
            Happening::TimedOut { .. } => self.count("operation timed out"),
            Happening::ForeignMember { .. } => self.count("foreign member refused"),
            Happening::ForeignLease { .. } => self.count("foreign lease reported"),
            Happening::Orphan { .. } => self.count("orphan reported"),
            Happening::Dropped { .. } => self.count("fact dropped"),
            _ => {}
        }
        let attempt = event.attempt.map(|attempt| attempt.to_string()).unwrap_or_default();
        if let Some(node) = &event.node {
            self.tell(event.at, || format!("{node} {attempt} {}: {}", event.what.name(), event.what));
        } else {
            self.tell(now, || format!("{}: {}", event.what.name(), event.what));
        }
    }
}
