//! Plays one schedule: a disturbed phase of a fixed number of steps, then peace until everything is as
//! declared, then stillness. After every step the driver is held against the world.
//!
//! `acts` does what a schedule asks for, `disk` opens drivers and deals with those that do not trust their state,
//! `look` finds what must not be, `tapes` decides everything again, `peace` ends the schedule.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::{LeaseId, LogicalNodeId, RunId, Timer};
use executor_fake::{FakeWorld, Rule, Weather};
use reconciler_core::ClusterState;
use reconciler_driver::runner::Step;
use reconciler_driver::{DriverError, ExecutorTable, MemoryStore, Rules, Runner, VirtualTimer};

use super::Subject;
use super::endure::Endured;
use super::oracle::{Oracle, Violation, Watch};
use super::plan::{Act, Disturbance, Plan, ShapePlan, run};
use super::rules::watched;
use super::spy::Spy;
use super::truth::Truth;

mod acts;
mod disk;
mod look;
mod peace;
mod tapes;

pub(super) use tapes::play_taped;

/// More steps than any moment of virtual time can have in a cluster of this size.
const MOST_STEPS_AT_ONCE: u32 = 4000;

/// What a schedule came to.
#[derive(Debug, Default)]
pub(super) struct Played {
    pub(super) violation: Option<Violation>,
    pub(super) counts: BTreeMap<&'static str, u64>,
    pub(super) story: Vec<String>,
    /// Steps of the runner, peace included.
    pub(super) steps: u64,
    /// Store writes, failed ones included.
    pub(super) writes: u64,
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
            writes: oracle.commits,
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
    subject: &'a Subject,
    watch: Watch,
    timer: VirtualTimer,
    world: FakeWorld,
    disk: MemoryStore,
    executors: ExecutorTable,
    rules: Rules,
    runner: Runner,
    /// The run that the driver drives: another one where its state is gone.
    run: RunId,
    truth: Truth,
    acts: Vec<(u32, &'a Act)>,
    shape: ShapePlan,
    generation: u64,
    steps: u64,
    /// Steps since time last moved.
    at_once: u32,
    /// How often the runner had restarted its process when it was last looked at.
    crashes: u64,
    /// Processes so far, beside the first.
    lives: u64,
    /// The driver's count of changes when it was last looked at, and its state then.
    known: Option<(u64, ClusterState)>,
    aliens: Vec<LeaseId>,
    /// Whether slots may wait for a place at their provider.
    limited: bool,
    failed_for: u32,
    tape: Option<tapes::Tape>,
    /// Passes that were decided again.
    replayed: u64,
}

impl<'a> Stage<'a> {
    fn new(plan: &'a Plan, subject: &'a Subject, watch: &Watch) -> Result<Self, Box<DriverError>> {
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
        peace::script_victim(plan, &world);
        let executor = Spy::executor(world.executor(), &world, watch);
        let executors = ExecutorTable::new().with_executor((subject.executor)(executor));
        watch.with(|oracle| {
            oracle.start = Some(start);
            oracle.force(&plan.shape);
            oracle.next_attempt = 1;
        });
        let rules = watched(&subject.rules, watch, &world);
        let disk = MemoryStore::new();
        let opening = disk::Opening { plan, subject, watch, world: &world, disk: &disk };
        let runner = opening.open(plan.shape.shape(&run(), 1), &executors, &timer, &rules)?;
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
        let crashes = runner.crashes();
        Ok(Self {
            plan,
            subject,
            watch: watch.clone(),
            timer,
            world,
            disk,
            executors,
            rules,
            runner,
            run: run(),
            truth: Truth::default(),
            acts,
            shape: plan.shape.clone(),
            generation: 1,
            steps: 0,
            at_once: 0,
            crashes,
            lives: 0,
            known: None,
            aliens: Vec::new(),
            limited: extra.create_share < 8 || extra.cleanup_share < 8,
            failed_for: 0,
            tape: None,
            replayed: 0,
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
            Err(DriverError::Distrusted(distrust)) => {
                self.distrusted(&distrust);
                false
            }
            Err(error) => {
                self.stopped(&error);
                false
            }
        };
        self.begin_anew();
        self.observe();
        if waited {
            self.rested();
        }
        self.reopen();
        self.tape();
        self.watch.with(|oracle| oracle.violation.is_none() && !oracle.void)
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

    fn violated(&self, rule: &'static str, node: Option<&LogicalNodeId>, what: impl FnOnce() -> String) {
        self.watch.with(|oracle| oracle.violated(rule, node, what));
    }

    /// Whether this process waits to be shown what there is, or was shown something that its state cannot explain.
    fn waits_for_trust(&self) -> bool {
        !self.runner.driver().waits_for().is_empty()
    }

    /// The process is killed and starts again.
    fn die(&mut self) {
        self.watch.with(Oracle::reborn);
        if let Err(error) = self.runner.crash() {
            self.stopped(&error);
        }
        self.begin_anew();
    }
}
