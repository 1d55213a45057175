//! Plays one schedule: a disturbed phase of a fixed number of steps, then peace until everything is as
//! declared, then stillness. After every step the driver is held against the world.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::{LogicalNodeId, NodeAttemptId, NodeObservation, RejectReason, RunId, Timer};
use executor_fake::{CallKind, FakeWorld, Fault, Incident, Rule, Weather};
use reconciler_core::{Hold, HoldBy, NodeStep, check, decide_slot, is_converged};
use reconciler_driver::runner::Step;
use reconciler_driver::{
    DriverError, DriverInput, Event, ExecutorTable, Happening, Runner, StateStore, VirtualTimer,
};

use super::Subject;
use super::draw::NO_TICK;
use super::endure::Endured;
use super::interference::Interference;
use super::oracle::{Oracle, Violation, Watch};
use super::plan::{Act, Disturbance, Plan, ShapePlan};
use super::rules::watched;
use super::spy::Spy;
use super::store::WatchedStore;
use super::truth::{Truth, unreachable_leases};

/// More steps than any moment of virtual time can have in a cluster of this size.
const MOST_STEPS_AT_ONCE: u32 = 4000;
/// More steps than peace can take.
const MOST_STEPS_IN_PEACE: u32 = 60_000;

/// What a schedule came to.
#[derive(Debug, Default)]
pub(super) struct Played {
    pub(super) violation: Option<Violation>,
    pub(super) counts: BTreeMap<&'static str, u64>,
    pub(super) story: Vec<String>,
    /// Steps of the runner, peace included.
    pub(super) steps: u64,
}

/// Plays a schedule to its end or to its first violation.
pub(super) fn play(plan: &Plan, subject: &Subject, story: bool) -> Played {
    let watch = Watch::new(plan, story);
    let mut steps = 0;
    let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut stage = match Stage::new(plan, subject, &watch) {
            Ok(stage) => stage,
            Err(error) => {
                return watch.with(|oracle| oracle.violated("L1", None, || format!("cannot start: {error}")));
            }
        };
        stage.play();
        steps = stage.steps;
    }));
    watch.with(|oracle| {
        if let Err(panic) = end {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            oracle.violated("panic", None, || text.unwrap_or_else(|| "the driver panicked".to_owned()));
        }
        Played {
            violation: oracle.violation.take(),
            counts: std::mem::take(&mut oracle.counts),
            story: oracle.story.take().unwrap_or_default(),
            steps,
        }
    })
}

/// Plays under weather that never ends, and measures how ready the cluster is.
pub(super) fn endure(plan: &Plan, subject: &Subject, weather: Weather, hours: u32) -> Endured {
    let watch = Watch::new(plan, false);
    let mut ready_per_mille = Vec::new();
    match Stage::new(plan, subject, &watch) {
        Ok(mut stage) => {
            stage.world.set_weather(Some(weather));
            for _ in 0..hours {
                ready_per_mille.push(stage.hour());
            }
        }
        Err(error) => watch.with(|oracle| oracle.violated("L5", None, || format!("cannot start: {error}"))),
    }
    Endured { ready_per_mille, violation: watch.with(|oracle| oracle.violation.take()) }
}

struct Stage<'a> {
    plan: &'a Plan,
    watch: Watch,
    timer: VirtualTimer,
    world: FakeWorld,
    runner: Runner,
    truth: Truth,
    acts: Vec<(u32, &'a Act)>,
    shape: ShapePlan,
    generation: u64,
    steps: u64,
    /// Steps since time last moved.
    at_once: u32,
    crashes: u64,
    aliens: Vec<executor_api::LeaseId>,
    /// Whether slots may wait for a place at their provider.
    limited: bool,
    failed_for: u32,
}

impl<'a> Stage<'a> {
    fn new(plan: &'a Plan, subject: &Subject, watch: &Watch) -> Result<Self, Box<DriverError>> {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let timer = VirtualTimer::new(start);
        let world = FakeWorld::new(Arc::new(timer.clone()), plan.behaviour.clone());
        for disturbance in &plan.disturbances {
            let Disturbance::Call { call, node, nth, fault } = disturbance else { continue };
            let rule = Rule::new(*call, *fault).after_calls(*nth);
            let rule = node.as_ref().map_or_else(|| rule.clone(), |node| rule.clone().node(node));
            // Only faults that suit their call are drawn.
            let _ = world.script(rule);
        }
        script_victim(plan, &world);
        let executor = Spy::executor(world.executor(), &world, watch);
        let executors = ExecutorTable::new().with_executor((subject.executor)(executor));
        let store: Box<dyn StateStore> = Box::new(WatchedStore::new(watch));
        let store = (subject.store)(store);
        watch.with(|oracle| {
            oracle.start = Some(start);
            oracle.force(&plan.shape);
            oracle.next_attempt = 1;
        });
        let rules = watched(&subject.rules, watch, &world);
        let runner =
            Runner::open(store, plan.shape.shape(1), plan.policy.clone(), executors, timer.clone(), rules)?
                .with_hooks(Box::new(Interference(watch.clone())));
        let mut acts: Vec<_> = plan
            .disturbances
            .iter()
            .filter_map(|disturbance| match disturbance {
                Disturbance::Act { step, act } => Some((*step, act)),
                _ => None,
            })
            .collect();
        acts.sort_by_key(|(step, _)| *step);
        let extra = &plan.policy.extra;
        Ok(Self {
            plan,
            watch: watch.clone(),
            timer,
            world,
            runner,
            truth: Truth::default(),
            acts,
            shape: plan.shape.clone(),
            generation: 1,
            steps: 0,
            at_once: 0,
            crashes: 0,
            aliens: Vec::new(),
            limited: extra.create_share < 8 || extra.cleanup_share < 8,
            failed_for: 0,
        })
    }

    fn play(&mut self) {
        let mut acts = std::mem::take(&mut self.acts).into_iter().peekable();
        for step in 0..self.plan.steps {
            while let Some((_, act)) = acts.next_if(|(at, _)| *at <= step) {
                self.act(act);
                self.observe();
            }
            if !self.step() {
                return;
            }
        }
        self.peace();
    }

    /// One step of the runner and a look at what it led to. Says whether to go on.
    fn step(&mut self) -> bool {
        self.steps += 1;
        let stepped = self.runner.step();
        let waited = match stepped {
            Ok(Step::Happened) => {
                self.at_once += 1;
                if self.at_once > MOST_STEPS_AT_ONCE {
                    self.violated("P10", None, || {
                        "time stands still: the driver keeps itself busy".to_owned()
                    });
                }
                false
            }
            Ok(Step::Waited) => {
                self.at_once = 0;
                true
            }
            Ok(Step::Idle) => {
                self.violated("L4", None, || "nothing will ever happen again".to_owned());
                false
            }
            Err(DriverError::StoreFailed { .. }) if self.watch.with(|oracle| oracle.store_failed) => {
                self.failed_for = u32::MAX;
                false
            }
            Err(error) => {
                self.violated("L1", None, || format!("the driver stopped: {error}"));
                false
            }
        };
        self.observe();
        if waited {
            self.rested();
        }
        self.reopen();
        self.watch.with(|oracle| oracle.violation.is_none())
    }

    /// An hour of weather. Answers with the share of it that the declared nodes were ready, in thousandths.
    fn hour(&mut self) -> u32 {
        let begin = self.timer.now();
        let end = begin + Duration::from_hours(1);
        let mut ready = Duration::ZERO;
        let mut before = begin;
        while self.timer.now() < end {
            let nodes = u32::try_from(self.runner.driver().ready()).unwrap_or(u32::MAX);
            if !self.step() {
                break;
            }
            let now = self.timer.now();
            ready += now.duration_since(before).unwrap_or_default() * nodes;
            before = now;
        }
        let declared = u32::try_from(self.runner.driver().expanded().specs.len()).unwrap_or(u32::MAX);
        let whole = before.duration_since(begin).unwrap_or_default() * declared.max(1);
        u32::try_from(ready.as_millis() * 1000 / whole.as_millis().max(1)).unwrap_or(u32::MAX)
    }

    /// A driver whose store failed is left alone for a while, to see that it sends nothing, and then started
    /// again.
    fn reopen(&mut self) {
        if !self.watch.with(|oracle| oracle.store_failed) {
            self.failed_for = 0;
            return;
        }
        self.failed_for = self.failed_for.saturating_add(1);
        if self.failed_for > 20 {
            self.failed_for = 0;
            self.watch.with(Oracle::reborn);
            self.crash();
            self.observe();
        }
    }

    fn crash(&mut self) {
        if let Err(error) = self.runner.crash() {
            self.violated("L1", None, || format!("cannot start again: {error}"));
        }
    }

    /// Holds what is against what must be.
    fn observe(&mut self) {
        let events = self.runner.take_events();
        let driver = self.runner.driver();
        let (state, now) = (driver.state(), self.timer.now());
        let restarted = self.runner.crashes() != self.crashes;
        self.crashes = self.runner.crashes();
        let (world, truth) = (&self.world, &mut self.truth);
        self.watch.with(|oracle| {
            for event in &events {
                oracle.hear(event, now);
            }
            if restarted {
                oracle.tell(now, || "! the process dies and starts again".to_owned());
                restored(oracle, driver);
            }
            oracle.clock(driver.now());
            truth.update(world, oracle);
            truth.check_known(state, oracle);
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
            let converged = seen == declared && is_converged(state, driver.expanded());
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
    fn rested(&mut self) {
        let driver = self.runner.driver();
        let (state, desired, now) = (driver.state(), driver.expanded(), driver.now());
        if self.watch.with(|oracle| oracle.store_failed) {
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

    fn violated(&self, rule: &'static str, node: Option<&LogicalNodeId>, what: impl FnOnce() -> String) {
        self.watch.with(|oracle| oracle.violated(rule, node, what));
    }

    fn act(&mut self, act: &Act) {
        let now = self.timer.now();
        self.watch.with(|oracle| oracle.tell(now, || format!("! {act}")));
        let mut done = None;
        match act {
            Act::Edit(shapes) => {
                for (index, shape) in shapes.iter().enumerate() {
                    self.edit(shape, index + 1 < shapes.len());
                }
                done = Some(if shapes.len() > 1 { "edits at once" } else { "edit" });
            }
            Act::Befall(slot, incident) => done = self.befall(slot, incident),
            Act::Suspend(time) => {
                self.timer.advance_to(now.checked_add(*time).unwrap_or(now));
                self.at_once = 0;
                done = Some("suspended");
            }
            Act::ClockBehind { by, inputs } => {
                self.watch.with(|oracle| oracle.behind = Some((*by, *inputs)));
            }
            Act::Die(clock) => {
                self.watch.with(|oracle| {
                    oracle.clock = Some(*clock);
                    oracle.count_clock(*clock);
                    oracle.reborn();
                });
                self.crash();
                done = Some("killed");
            }
            Act::Hold(slot) => {
                let hold = Hold { by: HoldBy::Operator, reason: "by hand".to_owned(), since: now };
                self.runner.tell(DriverInput::Hold { slot: slot.clone(), hold });
                done = Some("held");
            }
            Act::Release(slot) => {
                self.runner.tell(DriverInput::Release { slot: slot.clone(), by: HoldBy::Operator });
            }
            Act::Replace(slot) => {
                if self.runner.driver().state().nodes.contains_key(slot) {
                    done = Some("replacement asked for");
                }
                self.runner.tell(DriverInput::Replace { slot: slot.clone() });
            }
            Act::Tick => {
                self.runner.tell(DriverInput::Tick);
                done = Some("tick out of turn");
            }
            Act::Alien(slot) => {
                #[expect(clippy::expect_used, reason = "literal names")]
                let run = RunId::new("sim", "u2").expect("valid names");
                let attempt = NodeAttemptId(1);
                let key = executor_api::AttemptKey { run, node: slot.clone(), attempt };
                self.aliens.push(self.world.plant(&key));
                done = Some("alien lease");
            }
        }
        if let Some(name) = done {
            self.watch.with(|oracle| oracle.count(name));
        }
    }

    /// Something befalls what our run has for a slot; names it if there was anything.
    fn befall(&mut self, slot: &LogicalNodeId, incident: &Incident) -> Option<&'static str> {
        let leases = self.world.leases_of_slot(&super::plan::run(), slot);
        if leases.is_empty() {
            return None;
        }
        for lease in leases {
            match incident {
                Incident::Dies(why) => self.world.kill(&lease.id, why),
                Incident::Vanishes => self.world.vanish(&lease.id),
                Incident::Moves => self.world.move_lease(&lease.id),
                // Programs are found by their slot alone; those of other runs are left out of it.
                Incident::Exits(_) if !self.aliens.is_empty() => return None,
                Incident::Exits(_) => self.world.befall(slot, incident),
            }
        }
        Some(match incident {
            Incident::Dies(_) => "lease dies",
            Incident::Vanishes => "lease vanishes",
            Incident::Moves => "lease moves",
            Incident::Exits(_) => "program exits",
        })
    }

    fn edit(&mut self, shape: &ShapePlan, skipped: bool) {
        self.generation += 1;
        self.watch.with(|oracle| if skipped { oracle.skip(shape) } else { oracle.force(shape) });
        if let Err(error) = self.runner.set_desired(shape.shape(self.generation)) {
            self.violated("S3", None, || format!("a newer shape was refused: {error}"));
        }
        self.shape = shape.clone();
    }

    /// No more disturbances: what lasts is put right by hand, and the cluster must become what was declared.
    fn peace(&mut self) {
        if self.watch.with(|oracle| oracle.store_failed) {
            // Whoever is told something now would forget it.
            self.watch.with(Oracle::reborn);
            self.crash();
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
        let mut holds = vec![None];
        holds.extend(self.runner.driver().state().holds.slots.keys().cloned().map(Some));
        for slot in holds {
            self.runner.tell(DriverInput::Release { slot, by: HoldBy::Operator });
        }
        let last = now.checked_add(self.plan.echo()).unwrap_or(now);
        while self.timer.now() < last {
            if !self.step() {
                return;
            }
            self.tidy_breaches();
        }
        for lease in unreachable_leases(&self.world) {
            self.world.kill(&lease, "never became reachable");
        }
        let end = last.checked_add(self.plan.bound()).unwrap_or(last);
        if self.converge(end) {
            self.stillness();
        }
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

    fn spared(&self) -> Option<LogicalNodeId> {
        self.plan.victim.as_ref().map(|(slot, _)| slot.clone())
    }

    /// Whether everything is as declared, in the driver's eyes and in the world.
    fn difference(&self) -> Option<String> {
        let driver = self.runner.driver();
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

    fn converge(&mut self, end: SystemTime) -> bool {
        let mut steps = 0;
        let mut checked = None;
        loop {
            let now = self.timer.now();
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
        if self.plan.policy.extra.tick_every == NO_TICK { "L2" } else { "L1" }
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

    /// Converged means at rest: for three ticks nothing is sent.
    fn stillness(&mut self) {
        if let Some(gone) = self
            .aliens
            .iter()
            .find(|alien| !self.world.existing_leases().iter().any(|lease| lease.id == **alien))
        {
            return self.violated("P3", None, || format!("{gone} of another run was destroyed"));
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
        let before = sent(self);
        while self.timer.now() < until {
            if !self.step() {
                return;
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
    }
}

fn script_victim(plan: &Plan, world: &FakeWorld) {
    if let Some((slot, call)) = &plan.victim {
        let fault = match call {
            CallKind::Lookup => Fault::Unavailable,
            _ => Fault::Rejected(RejectReason::Quota),
        };
        let _ = world.script(Rule::new(*call, fault).node(slot).always());
    }
}

/// What a restarted driver knows is what was durable.
fn restored(oracle: &mut Oracle, driver: &reconciler_driver::ClusterDriver) {
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

    fn force(&mut self, shape: &ShapePlan) {
        for group in &shape.0 {
            let version = format!("v{}", group.version);
            self.skipped.remove(&version);
            self.in_force.insert(version);
        }
    }

    fn skip(&mut self, shape: &ShapePlan) {
        for group in shape.0.iter().filter(|group| group.count > 0) {
            let version = format!("v{}", group.version);
            if !self.in_force.contains(&version) {
                self.skipped.insert(version);
            }
        }
    }
}
