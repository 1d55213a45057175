//! The end of a schedule: nothing goes wrong any more, the world must become what is declared, and then nothing may
//! move.

use std::time::{Duration, SystemTime};

use executor_api::{LogicalNodeId, RejectReason, Timer};
use executor_fake::{CallKind, FakeWorld, Fault, Rule};
use reconciler_core::{HoldBy, decide_slot};
use reconciler_driver::DriverInput;

use super::Stage;
use crate::simulate::draw::NO_TICK;
use crate::simulate::plan::Plan;
use crate::simulate::truth::unreachable_leases;

/// More steps than peace can take.
const MOST_STEPS_IN_PEACE: u32 = 60_000;

impl Stage<'_> {
    /// No more disturbances: what lasts is put right by hand, and the cluster must become what was declared.
    pub(super) fn peace(&mut self) {
        if self.watch.with(|oracle| oracle.store_failed) {
            // Whoever is told something now would forget it.
            self.die();
            self.observe();
        }
        if self.watch.with(|oracle| oracle.astray.is_some()) {
            // It was not shown yet what its state cannot explain. The state is put back before it is.
            self.put_back();
            self.observe();
        }
        let now = self.timer.now();
        self.watch.with(|oracle| {
            oracle.calm = true;
            oracle.tell(now, || "-- no more disturbances".to_owned());
        });
        self.world.clear_faults();
        script_victim(self.plan, &self.world);
        if self.shape.0.iter().any(|group| group.unserved) {
            let mut shape = self.shape.clone();
            shape.0.iter_mut().for_each(|group| group.unserved = false);
            self.edit(&shape, false);
        }
        self.release();
        self.echo();
        for lease in unreachable_leases(&self.world) {
            self.world.kill(&lease, "never became reachable");
        }
        // A process that dies in the stillness begins everything anew.
        while self.converge() && self.stillness() {}
        let fired = self.world.fired();
        let counters = self.runner.driver().counters();
        self.watch.with(|oracle| {
            for (name, times) in fired {
                *oracle.counts.entry(name).or_default() += times;
            }
            oracle
                .counts
                .entry("submit refused")
                .and_modify(|n| *n += counters.submit_failures)
                .or_insert(counters.submit_failures);
        });
    }

    /// The operator takes every hold back.
    fn release(&mut self) {
        let mut holds = vec![None];
        holds.extend(self.runner.driver().state().holds.slots.keys().cloned().map(Some));
        for slot in holds {
            self.runner.tell(DriverInput::Release { slot, by: HoldBy::Operator });
        }
    }

    /// What was set going before may still happen.
    fn echo(&mut self) {
        let now = self.timer.now();
        let last = now.checked_add(self.plan.echo()).unwrap_or(now);
        while self.timer.now() < last && self.step() {
            self.tidy_breaches();
        }
    }

    fn spared(&self) -> Option<LogicalNodeId> {
        self.plan.victim.as_ref().map(|(slot, _)| slot.clone())
    }

    /// Whether everything is as declared, in the driver's eyes and in the world.
    fn difference(&self) -> Option<String> {
        let driver = self.runner.driver();
        if self.waits_for_trust() {
            return Some("the state is not trusted yet".to_owned());
        }
        if self.watch.with(|oracle| oracle.store_failed) {
            return Some("the store has failed".to_owned());
        }
        let spared = self.spared();
        let (state, desired) = (driver.state(), driver.expanded());
        let slots = driver.slots();
        let off = slots.iter().filter(|slot| spared.as_ref() != Some(*slot)).find(|slot| {
            !reconciler_core::slot_converged(state, desired, slot)
                || state.nodes.get(*slot).is_some_and(|node| node.extra.suspect_since.is_some())
        });
        if let Some(slot) = off {
            let decision = decide_slot(state, desired, slot, driver.now());
            return Some(format!("{slot}: {}", decision.why));
        }
        if state.observed_generation != driver.desired().generation {
            return Some("the last shape is not evaluated".to_owned());
        }
        self.truth.differs(&self.world, state, desired, spared.as_ref())
    }

    fn converge(&mut self) -> bool {
        let mut steps = 0;
        let mut checked = None;
        let mut lives = self.lives;
        let mut end = later(self.timer.now(), self.plan.bound());
        self.release();
        loop {
            let now = self.timer.now();
            // Crashes may come at any write, those of the peace included; each begins everything anew.
            if lives != self.lives {
                lives = self.lives;
                self.release();
                end = later(now, self.plan.echo() + self.plan.bound());
            }
            // Only where time moved on can anything be at rest.
            if checked != Some(now) && self.at_once == 0 {
                checked = Some(now);
                let Some(difference) = self.difference() else { return true };
                steps += 1;
                if now > end || steps > MOST_STEPS_IN_PEACE {
                    let rule = if self.plan.victim.is_some() { "S12" } else { self.liveness() };
                    self.violated(rule, None, || {
                        format!("not converged in {:?}: {difference}", self.plan.bound())
                    });
                    return false;
                }
                self.tidy_breaches();
            }
            if !self.step() {
                return false;
            }
        }
    }

    fn liveness(&self) -> &'static str {
        match self.plan.policy.extra.tick_every {
            _ if self.plan.swept => "L3",
            NO_TICK => "L2",
            _ => "L1",
        }
    }

    /// The operator does what the driver's alarm asks for: ends all but one lease, then releases the slot.
    fn tidy_breaches(&mut self) {
        let state = self.runner.driver().state();
        let alarmed: Vec<_> = state
            .holds
            .slots
            .iter()
            .filter(|(_, holds)| holds.contains_key(&HoldBy::Breach))
            .map(|(slot, _)| {
                let held = state.nodes.get(slot).and_then(|node| node.record.lease.as_ref());
                (slot.clone(), held.map(|facts| facts.lease_id.clone()))
            })
            .collect();
        for (slot, held) in alarmed {
            for lease in self.truth.beside(&slot, held.as_ref()) {
                self.world.kill(&lease, "ended by hand");
            }
            self.watch.with(|oracle| oracle.count("doubled lease reported"));
            self.runner.tell(DriverInput::Release { slot: Some(slot), by: HoldBy::Breach });
        }
    }

    /// Converged means at rest: for three ticks nothing is sent. Says whether the process died meanwhile, so that
    /// it must converge once more.
    fn stillness(&mut self) -> bool {
        if let Some(gone) = self
            .aliens
            .iter()
            .find(|alien| !self.world.existing_leases().iter().any(|lease| lease.id == **alien))
        {
            self.violated("P3", None, || format!("{gone} of another run was destroyed"));
            return false;
        }
        let extra = &self.plan.policy.extra;
        let tick = if extra.tick_every == NO_TICK { Duration::from_secs(10) } else { extra.tick_every };
        let until = self.timer.now() + 3 * tick.max(extra.observe_every);
        let sent = |stage: &Self| {
            let spared = stage.spared();
            stage.watch.with(|oracle| {
                oracle
                    .recent
                    .iter()
                    .filter(|(slot, _)| spared.as_ref() != Some(*slot))
                    .map(|(_, sent)| sent.back().copied())
                    .max()
                    .flatten()
            })
        };
        let (before, lives) = (sent(self), self.lives);
        while self.timer.now() < until {
            if !self.step() {
                return false;
            }
            if self.lives != lives || self.watch.with(|oracle| oracle.store_failed) {
                return true;
            }
        }
        if sent(self) != before {
            self.violated("L1", None, || "converged, and then something was sent".to_owned());
        }
        if let Some(difference) = self.difference() {
            self.violated("L1", None, || format!("converged, and then not: {difference}"));
        }
        let found = self.runner.driver().counters().found_by_tick;
        if found > 0 && !self.limited {
            self.violated("L2", None, || format!("{found} steps were only found by the safety tick"));
        }
        false
    }
}

fn later(at: SystemTime, delay: Duration) -> SystemTime {
    at.checked_add(delay).unwrap_or(at)
}

pub(super) fn script_victim(plan: &Plan, world: &FakeWorld) {
    if let Some((slot, call)) = &plan.victim {
        let fault = match call {
            CallKind::Lookup => Fault::Unavailable,
            _ => Fault::Rejected(RejectReason::Quota),
        };
        let _ = world.script(Rule::new(*call, fault).node(slot).always());
    }
}
