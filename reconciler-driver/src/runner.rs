//! The driver in virtual time: single-threaded, without a runtime, the same on every machine. Stories,
//! `plan` and simulations use this one; it calls executors through the same dispatcher as the tokio shell.
//!
//! Time stands still while anything can happen, and then jumps to the next moment at which something will.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use executor_api::{ObservationReport, ObservationSink, Timer};
use reconciler_core::{ClusterShape, RetryPolicy};

use crate::dispatch::{Dispatcher, Order};
use crate::driver::{ClusterDriver, DesiredChange, DriverInput, PassReport, TapeEntry, later};
use crate::error::{DesiredRejected, DriverError};
use crate::event::{Event, Happening};
use crate::executors::ExecutorTable;
use crate::rules::Rules;
use crate::store::{Changeset, MemoryStore, StateStore};

mod poller;
mod timer;
mod trace;

use poller::{Polled, Poller};
pub use timer::VirtualTimer;

/// Where a simulated process may die, around each store write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CrashPoint {
    /// Before the changeset is written.
    BeforeCommit,
    /// After it is durable, before the driver knows.
    AfterCommit,
    /// After the driver knows, before its effects are sent.
    BeforeDispatch,
    /// After its effects are sent, before anybody begins them.
    AfterDispatch,
    /// After its effects have reached their executors, before any answer is taken.
    UnderWay,
    /// After the first answer that follows, before the next write.
    AfterAnswer,
}

/// What a simulator may do to the runner. The default does nothing.
pub trait Hooks: Send {
    /// Each input on its way to the driver: deliver it now, later, twice or never. `None` delivers it as it
    /// is.
    fn deliver(&mut self, input: &DriverInput, now: SystemTime) -> Option<Vec<(SystemTime, DriverInput)>> {
        let _ = (input, now);
        None
    }

    /// Whether the process dies here.
    fn crashes(&mut self, point: CrashPoint, seq: u64) -> bool {
        let _ = (point, seq);
        false
    }

    /// What the clock says when an input is handed over: the truth, or something earlier.
    fn stamp(&mut self, input: &DriverInput, now: SystemTime) -> SystemTime {
        let _ = input;
        now
    }

    /// Looks at the runner's driver after every pass.
    fn after_pass(&mut self, driver: &ClusterDriver) {
        let _ = driver;
    }
}

struct NoHooks;
impl Hooks for NoHooks {}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something happened; time stands still.
    Happened,
    /// Time went forward.
    Waited,
    /// Nothing will ever happen by itself.
    Idle,
}

/// How a run until settled ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Everything is as declared, and nothing runs.
    Converged,
    /// Not everything is as declared, and nothing will change that by itself.
    Stuck,
    /// The limit was reached first.
    Limit,
}

/// The runner.
pub struct Runner {
    timer: VirtualTimer,
    start: SystemTime,
    executors: ExecutorTable,
    rules: Rules,
    store: Box<dyn StateStore>,
    /// What the user last asked for; a restarted driver is given it again.
    wanted: ClusterShape,
    policy: RetryPolicy,
    driver: ClusterDriver,
    dispatcher: Dispatcher,
    poller: Poller,
    heard: Arc<Mutex<VecDeque<ObservationReport>>>,
    mail: BTreeMap<(SystemTime, u64), DriverInput>,
    mailed: u64,
    hooks: Box<dyn Hooks>,
    events: Vec<Event>,
    crashes: u64,
    guarded: bool,
    /// The latest write, until its effects have reached their executors.
    reaching: Option<u64>,
    /// The latest write, until the first answer after it.
    unanswered: Option<u64>,
}

impl Runner {
    /// A runner over an empty store in memory.
    pub fn new(
        desired: ClusterShape,
        policy: RetryPolicy,
        executors: ExecutorTable,
        timer: VirtualTimer,
    ) -> Result<Self, DriverError> {
        Self::open(Box::new(MemoryStore::new()), desired, policy, executors, timer, Rules::default())
    }

    /// A runner that goes on from what a store holds.
    pub fn open(
        mut store: Box<dyn StateStore>,
        desired: ClusterShape,
        policy: RetryPolicy,
        executors: ExecutorTable,
        timer: VirtualTimer,
        rules: Rules,
    ) -> Result<Self, DriverError> {
        let now = timer.now();
        let driver = open(store.as_mut(), desired.clone(), policy.clone(), now)?;
        let driver = driver.with_executors(executors.clone()).with_rules(rules.clone());
        let heard = Arc::default();
        let dispatcher = dispatcher(&driver, &executors, &timer, &heard);
        let mut runner = Self {
            start: now,
            timer,
            executors,
            rules,
            store,
            wanted: desired,
            policy,
            driver,
            dispatcher,
            poller: Poller::default(),
            heard,
            mail: BTreeMap::new(),
            mailed: 0,
            hooks: Box::new(NoHooks),
            events: Vec::new(),
            crashes: 0,
            guarded: false,
            reaching: None,
            unanswered: None,
        };
        runner.begin();
        Ok(runner)
    }

    /// Lets a simulator interfere.
    #[must_use]
    pub fn with_hooks(mut self, hooks: Box<dyn Hooks>) -> Self {
        self.hooks = hooks;
        self
    }

    /// From now on every driver waits until the providers in use were listed and bore its state out.
    #[must_use]
    pub fn guarded(mut self) -> Self {
        self.guarded = true;
        self.driver.guard();
        self
    }

    /// Tapes the driver from now on, until the next crash.
    pub fn keep_tape(&mut self) {
        self.driver.keep_tape();
    }

    /// What was taped since the last time.
    pub fn take_tape(&mut self) -> Vec<TapeEntry> {
        self.driver.take_tape()
    }

    /// Asks for another shape.
    pub fn set_desired(&mut self, desired: ClusterShape) -> Result<DesiredChange, DesiredRejected> {
        let change = self.driver.set_desired(desired.clone())?;
        self.wanted = desired;
        Ok(change)
    }

    /// Puts another timing in force.
    pub fn set_policy(&mut self, policy: RetryPolicy) {
        self.driver.set_policy(policy.clone());
        self.policy = policy;
    }

    /// Hands the driver an input directly, past the hooks.
    pub fn tell(&mut self, input: DriverInput) {
        self.driver.handle(input, self.timer.now());
    }

    /// The process dies: whatever it was doing is dropped, and only the store's content is left. A new one
    /// starts at once.
    pub fn crash(&mut self) -> Result<(), DriverError> {
        self.crashes += 1;
        self.poller = Poller::default();
        self.mail.clear();
        self.heard = Arc::default();
        (self.reaching, self.unanswered) = (None, None);
        let now = self.timer.now();
        let driver = open(self.store.as_mut(), self.wanted.clone(), self.policy.clone(), now)?;
        self.driver = driver.with_executors(self.executors.clone()).with_rules(self.rules.clone());
        if self.guarded {
            self.driver.guard();
        }
        self.dispatcher = dispatcher(&self.driver, &self.executors, &self.timer, &self.heard);
        self.begin();
        Ok(())
    }

    /// Does the next thing, or lets time pass until there is one.
    pub fn step(&mut self) -> Result<Step, DriverError> {
        if self.happen()? {
            return Ok(Step::Happened);
        }
        match self.next_moment() {
            Some(at) => {
                self.timer.advance_to(at);
                Ok(Step::Waited)
            }
            None => Ok(Step::Idle),
        }
    }

    /// Goes on until everything is as declared and nothing runs, or nothing more can happen, or `limit` of
    /// virtual time has passed.
    pub fn run_until_settled(&mut self, limit: Duration) -> Result<Settled, DriverError> {
        let end = later(self.timer.now(), limit);
        loop {
            if self.happen()? {
                continue;
            }
            if self.driver.is_converged() && !self.dispatcher.is_busy() && self.mail.is_empty() {
                return Ok(Settled::Converged);
            }
            let idle =
                !self.dispatcher.is_busy() && self.mail.is_empty() && self.driver.waits_for().is_empty();
            // Sessions are listened to for ever; whoever has something to say later has set an alarm.
            if idle && self.driver.next_deadline().is_none() && self.timer.next().is_none() {
                return Ok(Settled::Stuck);
            }
            match self.next_moment() {
                None => return Ok(Settled::Stuck),
                Some(at) if at > end => {
                    self.timer.advance_to(end);
                    return Ok(Settled::Limit);
                }
                Some(at) => self.timer.advance_to(at),
            }
        }
    }

    /// Goes on for some virtual time.
    pub fn run_for(&mut self, time: Duration) -> Result<(), DriverError> {
        let end = later(self.timer.now(), time);
        loop {
            if self.happen()? {
                continue;
            }
            let Some(at) = self.next_moment().filter(|at| *at <= end) else {
                self.timer.advance_to(end);
                return Ok(());
            };
            self.timer.advance_to(at);
        }
    }

    /// The driver.
    pub fn driver(&self) -> &ClusterDriver {
        &self.driver
    }

    /// The rules in force.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The clock.
    pub fn timer(&self) -> &VirtualTimer {
        &self.timer
    }

    /// How often the process died.
    pub fn crashes(&self) -> u64 {
        self.crashes
    }

    /// Everything that happened.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// What happened, one line each, without the facts behind the steps.
    pub fn trace(&self) -> Vec<String> {
        let told = |event: &&Event| !matches!(event.what, Happening::Fact { .. });
        self.events.iter().filter(told).map(|event| trace::line(event, self.start)).collect()
    }

    /// What happened, one line each, facts included.
    pub fn full_trace(&self) -> Vec<String> {
        self.events.iter().map(|event| trace::line(event, self.start)).collect()
    }

    /// What happened since the last call; the traces start anew.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn begin(&mut self) {
        let now = self.timer.now();
        for attachment in self.driver.take_attachments() {
            let task = self.dispatcher.attach(attachment, now);
            if let Some(task) = task {
                self.poller.spawn(task);
            }
        }
        let timeout = self.driver.policy().operation_timeout;
        if self.driver.waits_for().is_empty() {
            for task in self.dispatcher.retain(&self.driver.slots(), timeout) {
                self.poller.spawn(task);
            }
        }
    }

    /// One thing that can happen now.
    fn happen(&mut self) -> Result<bool, DriverError> {
        let now = self.timer.now();
        let observe_every = self.driver.policy().extra.observe_every;
        let polled = self.poller.poll();
        if !matches!(polled, Polled::GoesOn)
            && let Some(seq) = self.reaching.take()
            && self.hooks.crashes(CrashPoint::UnderWay, seq)
        {
            self.crash()?;
            return Ok(true);
        }
        match polled {
            Polled::Nothing => {}
            Polled::GoesOn => return Ok(true),
            Polled::Ended(end) => {
                for input in self.dispatcher.ended(*end, now, observe_every) {
                    self.mail(input, now);
                }
                return Ok(true);
            }
        }
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        if let Some(report) = heard {
            self.mail(DriverInput::Observation(report), now);
            return Ok(true);
        }
        if let Some(entry) = self.mail.first_entry().filter(|entry| entry.key().0 <= now) {
            let stamp = self.hooks.stamp(entry.get(), now).min(now);
            let input = entry.remove();
            let answered =
                if matches!(input, DriverInput::Outcome { .. }) { self.unanswered.take() } else { None };
            self.driver.handle(input, stamp);
            if answered.is_some_and(|seq| self.hooks.crashes(CrashPoint::AfterAnswer, seq)) {
                self.crash()?;
            }
            return Ok(true);
        }
        let timeout = self.driver.policy().operation_timeout;
        let driver = &self.driver;
        let tasks = self.dispatcher.due(now, observe_every, timeout, || driver.providers_in_use());
        if !tasks.is_empty() {
            for task in tasks {
                self.poller.spawn(task);
            }
            return Ok(true);
        }
        if self.driver.needs_pass() || self.driver.next_wakeup().is_some_and(|at| at <= now) {
            self.pass(now)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn pass(&mut self, now: SystemTime) -> Result<(), DriverError> {
        let report = self.driver.pass(now)?;
        self.hooks.after_pass(&self.driver);
        self.carry_out(report, now)
    }

    fn carry_out(&mut self, mut report: PassReport, now: SystemTime) -> Result<(), DriverError> {
        self.events.append(&mut report.events);
        let timeout = self.driver.policy().operation_timeout;
        let driver = &self.driver;
        for order in self.dispatcher.carry_out(&mut report, now, timeout, || driver.slots()) {
            match order {
                Order::Drop(key) => self.poller.abort(&key),
                Order::Poll(task) => self.poller.spawn(task),
                Order::Tell(input) => self.mail(*input, now),
            }
        }
        match report.commit {
            Some(changes) => self.commit(&changes, now),
            None => Ok(()),
        }
    }

    /// Makes a changeset durable and sends what was recorded in it, unless the process dies on the way.
    fn commit(&mut self, changes: &Changeset, now: SystemTime) -> Result<(), DriverError> {
        let seq = changes.seq;
        if self.hooks.crashes(CrashPoint::BeforeCommit, seq) {
            return self.crash();
        }
        if let Err(error) = self.store.commit(changes) {
            self.driver.handle(DriverInput::CommitFailed(error.summary()), now);
            return Ok(());
        }
        if self.hooks.crashes(CrashPoint::AfterCommit, seq) {
            return self.crash();
        }
        (self.reaching, self.unanswered) = (Some(seq), Some(seq));
        self.driver.handle(DriverInput::Committed(seq), now);
        if self.hooks.crashes(CrashPoint::BeforeDispatch, seq) {
            return self.crash();
        }
        if self.driver.needs_pass() {
            // The effects come with the next pass; they are sent before anything else happens.
            self.pass(now)?;
        }
        if self.hooks.crashes(CrashPoint::AfterDispatch, seq) {
            return self.crash();
        }
        Ok(())
    }

    fn mail(&mut self, input: DriverInput, now: SystemTime) {
        let deliveries = self.hooks.deliver(&input, now).unwrap_or_else(|| vec![(now, input)]);
        for (at, input) in deliveries {
            self.mailed += 1;
            self.mail.insert((at, self.mailed), input);
        }
    }

    fn next_moment(&self) -> Option<SystemTime> {
        [
            self.timer.next(),
            self.mail.keys().next().map(|(at, _)| *at),
            self.driver.next_wakeup(),
            self.dispatcher.next_due(),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("driver", &self.driver).finish_non_exhaustive()
    }
}

fn open(
    store: &mut dyn StateStore,
    desired: ClusterShape,
    policy: RetryPolicy,
    now: SystemTime,
) -> Result<ClusterDriver, DriverError> {
    match store.load().map_err(DriverError::Load)? {
        Some(image) => ClusterDriver::restore(image, desired, policy, now),
        None => ClusterDriver::new(desired, policy, now),
    }
}

fn dispatcher(
    driver: &ClusterDriver,
    executors: &ExecutorTable,
    timer: &VirtualTimer,
    heard: &Arc<Mutex<VecDeque<ObservationReport>>>,
) -> Dispatcher {
    let heard = Arc::clone(heard);
    let sink = ObservationSink::new(move |report| {
        heard.lock().unwrap_or_else(PoisonError::into_inner).push_back(report);
    });
    Dispatcher::new(driver.run().clone(), executors.clone(), Arc::new(timer.clone()), sink)
}
