//! The one task that owns the driver: takes messages, makes passes, has them stored, then has them carried
//! out. Folding goes on while a commit is under way; the next pass waits for it and gathers what came.

use std::collections::BTreeMap;
use std::time::SystemTime;

use executor_api::{LogicalNodeId, NodeAttemptId, ObservationReport, Timer as _};
use reconciler_core::{ClusterShape, Hold, HoldBy, RetryPolicy};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::clock::TokioTimer;
use super::handle::{StopReason, Summary};
use crate::dispatch::{Dispatcher, Order, Task, TaskEnd, TaskKey};
use crate::driver::{ClusterDriver, DesiredChange, DriverInput, UnknownSlot};
use crate::error::{DesiredRejected, DriverError};
use crate::event::{Event, Happening};
use crate::journal::Journal;
use crate::status::{Explanation, StatusSnapshot};
use crate::store::{Changeset, StateStore, StoreError};

/// How many messages are taken before the clock is looked at again.
const BATCH: usize = 4096;

/// What reaches the actor.
#[derive(Debug)]
pub(super) enum Message {
    Heard(ObservationReport),
    Ended(u64, TaskEnd),
    Command(Box<Command>),
}

/// An order from a handle, with where to answer.
#[derive(Debug)]
pub(super) enum Command {
    SetDesired(ClusterShape, oneshot::Sender<Result<DesiredChange, DesiredRejected>>),
    SetPolicy(RetryPolicy, oneshot::Sender<()>),
    Hold {
        slot: Option<LogicalNodeId>,
        by: HoldBy,
        reason: String,
        reply: oneshot::Sender<Result<(), UnknownSlot>>,
    },
    Release {
        slot: Option<LogicalNodeId>,
        by: HoldBy,
        reply: oneshot::Sender<bool>,
    },
    Replace(LogicalNodeId, oneshot::Sender<Result<(), UnknownSlot>>),
    Annotate {
        key: String,
        value: Option<String>,
        reply: oneshot::Sender<()>,
    },
    Snapshot(oneshot::Sender<Box<StatusSnapshot>>),
    Explain(LogicalNodeId, oneshot::Sender<Option<Box<Explanation>>>),
    Desired(oneshot::Sender<ClusterShape>),
    Shutdown,
}

/// The store handed back, and how the commit went.
type Committed = (Box<dyn StateStore>, u64, Result<(), StoreError>);
type Committing = JoinHandle<Committed>;
type Mailbox = (mpsc::UnboundedSender<Message>, mpsc::UnboundedReceiver<Message>);

pub(super) struct Actor {
    driver: ClusterDriver,
    dispatcher: Dispatcher,
    clock: TokioTimer,
    /// The store while nothing is being committed.
    store: Option<Box<dyn StateStore>>,
    committing: Option<Committing>,
    journal: Option<Journal>,
    mail: mpsc::UnboundedSender<Message>,
    inbox: mpsc::UnboundedReceiver<Message>,
    tasks: BTreeMap<TaskKey, (u64, JoinHandle<()>)>,
    spawned: u64,
    /// Tasks told to end, by attempt; the attempt's next one waits for them.
    ending: BTreeMap<NodeAttemptId, Vec<JoinHandle<()>>>,
    summaries: watch::Sender<Summary>,
    events: broadcast::Sender<Event>,
    /// Answers that wait for a changeset to be durable.
    answers: Vec<(u64, Box<dyn FnOnce() + Send>)>,
}

impl Actor {
    pub(super) fn new(
        driver: ClusterDriver,
        dispatcher: Dispatcher,
        clock: TokioTimer,
        (store, journal): (Box<dyn StateStore>, Option<Journal>),
        (mail, inbox): Mailbox,
        summaries: watch::Sender<Summary>,
        events: broadcast::Sender<Event>,
    ) -> Self {
        Self {
            driver,
            dispatcher,
            clock,
            store: Some(store),
            committing: None,
            journal,
            mail,
            inbox,
            tasks: BTreeMap::new(),
            spawned: 0,
            ending: BTreeMap::new(),
            summaries,
            events,
            answers: Vec::new(),
        }
    }

    pub(super) async fn run(mut self) -> StopReason {
        let reason = self.drive().await;
        match &reason {
            StopReason::Requested => tracing::info!(run = %self.driver.run(), "stopped driving"),
            StopReason::StoreFailed(why) | StopReason::Distrusted(why) | StopReason::Failed(why) => {
                tracing::error!(run = %self.driver.run(), "stopped driving: {why}");
            }
        }
        for (_, (_, task)) in std::mem::take(&mut self.tasks) {
            task.abort();
        }
        // Whoever is sending in this very moment must learn that nobody answers: only a closed channel that was read
        // to its end is sure to hold no message.
        self.inbox.close();
        while self.inbox.recv().await.is_some() {}
        reason
    }

    async fn drive(&mut self) -> StopReason {
        let now = self.clock.now();
        for attachment in self.driver.take_attachments() {
            if let Some(task) = self.dispatcher.attach(attachment, now) {
                self.spawn(task);
            }
        }
        let timeout = self.driver.policy().operation_timeout;
        if self.driver.waits_for().is_empty() {
            for task in self.dispatcher.retain(&self.driver.slots(), timeout) {
                self.spawn(task);
            }
        }
        // Sessions that have something to say get their chance before the first pass.
        tokio::task::yield_now().await;
        loop {
            for _ in 0..BATCH {
                let Ok(message) = self.inbox.try_recv() else { break };
                if self.take(message) {
                    return self.shut_down().await;
                }
            }
            let now = self.clock.now();
            self.chores(now);
            if self.committing.is_none()
                && (self.driver.needs_pass() || self.driver.next_wakeup().is_some_and(|at| at <= now))
            {
                if let Err(error) = self.pass(now) {
                    let events = self.driver.take_events();
                    self.tell(events);
                    return stop_reason(&error);
                }
                continue;
            }
            self.publish();
            let wakeup = self.driver.next_wakeup().filter(|_| self.committing.is_none());
            let wakeup = [wakeup, self.dispatcher.next_due()].into_iter().flatten().min();
            let clock = self.clock.clone();
            let alarm = async move {
                match wakeup {
                    Some(at) => tokio::time::sleep_until(clock.instant_of(at)).await,
                    None => std::future::pending().await,
                }
            };
            let committing = &mut self.committing;
            let committed = async move {
                match committing {
                    Some(commit) => commit.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                done = committed => {
                    self.committing = None;
                    if let Some(reason) = self.commit_done(done) {
                        return reason;
                    }
                }
                // The actor keeps a sender of its own: the channel never closes before it ends.
                Some(message) = self.inbox.recv() => {
                    if self.take(message) {
                        return self.shut_down().await;
                    }
                }
                () = alarm => {}
            }
        }
    }

    /// Takes one message. Says whether it asks the driver to end.
    fn take(&mut self, message: Message) -> bool {
        let now = self.clock.now();
        match message {
            Message::Heard(report) => self.driver.handle(DriverInput::Observation(report), now),
            Message::Ended(id, end) => {
                // A task that was dropped, or replaced, has nothing to say any more.
                if self.tasks.get(&end.key).is_some_and(|(current, _)| *current == id) {
                    self.tasks.remove(&end.key);
                    let observe_every = self.driver.policy().extra.observe_every;
                    for input in self.dispatcher.ended(end, now, observe_every) {
                        self.driver.handle(input, now);
                    }
                }
            }
            Message::Command(command) => return self.obey(*command, now),
        }
        false
    }

    /// Carries out an order. What changes something is answered once it is durable.
    fn obey(&mut self, command: Command, now: SystemTime) -> bool {
        match command {
            Command::SetDesired(desired, reply) => {
                let answer = self.driver.set_desired(desired);
                self.dispatcher.acquaint(self.driver.desired());
                self.publish();
                self.answer(reply, answer);
            }
            Command::SetPolicy(policy, reply) => {
                self.driver.set_policy(policy);
                self.answer(reply, ());
            }
            Command::Hold { slot, by, reason, reply } => {
                // A person who names a node that is not there made a mistake; a plan's node may be scaled away, and come
                // back while the plan works on its host.
                let unknown = slot.as_ref().filter(|slot| {
                    by == HoldBy::Operator
                        && !self.driver.state().nodes.contains_key(*slot)
                        && !self.driver.expanded().specs.contains_key(*slot)
                });
                let answer = unknown.map_or(Ok(()), |slot| Err(UnknownSlot { slot: slot.clone() }));
                if answer.is_ok() {
                    let hold = Hold { by, reason, since: now };
                    self.driver.handle(DriverInput::Hold { slot, hold }, now);
                }
                self.answer(reply, answer);
            }
            Command::Release { slot, by, reply } => {
                let holds = &self.driver.state().holds;
                let held = match &slot {
                    Some(slot) => holds.slots.get(slot).is_some_and(|holds| holds.contains_key(&by)),
                    None => holds.cluster.contains_key(&by),
                };
                self.driver.handle(DriverInput::Release { slot, by }, now);
                self.answer(reply, held);
            }
            Command::Replace(slot, reply) => {
                let answer = self.driver.replace(&slot);
                self.answer(reply, answer);
            }
            Command::Annotate { key, value, reply } => {
                self.driver.handle(DriverInput::Annotate { key, value }, now);
                self.answer(reply, ());
            }
            Command::Snapshot(reply) => {
                let _ = reply.send(Box::new(self.driver.snapshot()));
            }
            Command::Explain(slot, reply) => {
                let _ = reply.send(self.driver.explain(&slot).map(Box::new));
            }
            Command::Desired(reply) => {
                let _ = reply.send(self.driver.desired().as_ref().clone());
            }
            Command::Shutdown => return true,
        }
        false
    }

    /// Answers once everything accepted so far is durable. Whoever asked may have stopped waiting.
    fn answer<T: Send + 'static>(&mut self, reply: oneshot::Sender<T>, answer: T) {
        let send = move || {
            let _ = reply.send(answer);
        };
        match self.driver.durable_with() {
            Some(seq) => self.answers.push((seq, Box::new(send))),
            None => send(),
        }
    }

    fn chores(&mut self, now: SystemTime) {
        let policy = self.driver.policy();
        let (every, timeout) = (policy.extra.observe_every, policy.operation_timeout);
        let driver = &self.driver;
        for task in self.dispatcher.due(now, every, timeout, || driver.providers_in_use()) {
            self.spawn(task);
        }
    }

    fn pass(&mut self, now: SystemTime) -> Result<(), DriverError> {
        let mut report = self.driver.pass(now)?;
        let timeout = self.driver.policy().operation_timeout;
        let driver = &self.driver;
        for order in self.dispatcher.carry_out(&mut report, now, timeout, || driver.slots()) {
            match order {
                Order::Drop(key) => self.stop(&key),
                Order::Poll(task) => self.spawn(task),
                Order::Tell(input) => self.driver.handle(*input, now),
            }
        }
        self.tell(report.events);
        self.ending.retain(|_, tasks| {
            tasks.retain(|task| !task.is_finished());
            !tasks.is_empty()
        });
        if let Some(changes) = report.commit {
            self.commit(changes);
        }
        Ok(())
    }

    fn commit(&mut self, changes: Changeset) {
        let Some(mut store) = self.store.take() else { return };
        self.committing = Some(tokio::task::spawn_blocking(move || {
            let done = store.commit(&changes);
            (store, changes.seq, done)
        }));
    }

    /// Takes the end of a commit. A failed one ends the driver.
    fn commit_done(&mut self, done: Result<Committed, tokio::task::JoinError>) -> Option<StopReason> {
        let now = self.clock.now();
        let failed = match done {
            Ok((store, seq, Ok(()))) => {
                self.store = Some(store);
                self.driver.handle(DriverInput::Committed(seq), now);
                for (_, send) in self.answers.extract_if(.., |(with, _)| *with <= seq) {
                    send();
                }
                return None;
            }
            Ok((_, _, Err(error))) => error.summary(),
            Err(error) => format!("the store panicked: {error}"),
        };
        self.driver.handle(DriverInput::CommitFailed(failed.clone()), now);
        let events = self.driver.take_events();
        self.tell(events);
        Some(StopReason::StoreFailed(failed))
    }

    fn tell(&mut self, events: Vec<Event>) {
        self.write_down(&events);
        for event in events {
            let (node, attempt) = (event.node.as_ref(), event.attempt);
            let (node, attempt) = (node.map(tracing::field::display), attempt.map(tracing::field::display));
            if matches!(event.what, Happening::ListingFailed { .. }) {
                tracing::warn!("{}: {}", event.what.name(), event.what);
            } else {
                tracing::info!(node, attempt, "{}: {}", event.what.name(), event.what);
            }
            // Nobody may be listening.
            drop(self.events.send(event));
        }
    }

    /// Nothing depends on the journal: one that cannot be written is given up, and said once.
    fn write_down(&mut self, events: &[Event]) {
        let tape = self.driver.take_tape();
        let driver = &self.driver;
        let Some(journal) = &mut self.journal else { return };
        if let Err(error) =
            journal.events(events).and_then(|()| journal.passes(&tape, || driver.checkpoint()))
        {
            tracing::warn!("what happens is no longer written down: {error}");
            self.journal = None;
        }
    }

    fn publish(&self) {
        let summary = Summary::of(&self.driver);
        self.summaries.send_if_modified(|current| {
            let changed = summary != *current;
            *current = summary;
            changed
        });
    }

    fn spawn(&mut self, task: Task) {
        self.spawned += 1;
        let (id, mail, key) = (self.spawned, self.mail.clone(), task.key.clone());
        let before = match &key {
            TaskKey::Operation(operation) => self.ending.remove(&operation.attempt).unwrap_or_default(),
            TaskKey::Hearing(_) | TaskKey::Listing(_) | TaskKey::Retaining(_) | TaskKey::Sweeping(..) => {
                Vec::new()
            }
        };
        let task = tokio::spawn(async move {
            for ending in before {
                // However it ended: it is gone.
                let _ = ending.await;
            }
            let end = task.future.await;
            drop(mail.send(Message::Ended(id, end)));
        });
        if let Some((_, replaced)) = self.tasks.insert(key, (id, task)) {
            replaced.abort();
        }
    }

    fn stop(&mut self, key: &TaskKey) {
        let Some((_, task)) = self.tasks.remove(key) else { return };
        task.abort();
        if let TaskKey::Operation(operation) = key {
            self.ending.entry(operation.attempt).or_default().push(task);
        }
    }

    /// Stops every operation, waits until each is gone, and stores that what they did is unknown.
    async fn shut_down(&mut self) -> StopReason {
        for (key, (_, task)) in std::mem::take(&mut self.tasks) {
            // What frees the rest of reaped slots is no operation: nobody would look for what it left
            // undone. It has a timeout of its own.
            if !matches!(key, TaskKey::Retaining(_)) {
                task.abort();
            }
            let _ = task.await;
        }
        if let Some(commit) = self.committing.take()
            && let Some(reason) = self.commit_done(commit.await)
        {
            return reason;
        }
        self.driver.settle_all_operations(self.clock.now());
        let events = self.driver.take_events();
        self.tell(events);
        if let Some(changes) = self.driver.flush() {
            self.commit(changes);
        }
        if let Some(commit) = self.committing.take()
            && let Some(reason) = self.commit_done(commit.await)
        {
            return reason;
        }
        self.publish();
        StopReason::Requested
    }
}

fn stop_reason(error: &DriverError) -> StopReason {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    match error {
        DriverError::StoreFailed { reason } => StopReason::StoreFailed(reason.clone()),
        DriverError::Distrusted(_) => StopReason::Distrusted(text),
        DriverError::Desired(_)
        | DriverError::Reconcile(_)
        | DriverError::ForeignState { .. }
        | DriverError::Checkpoint { .. }
        | DriverError::Load(_)
        | DriverError::UnknownSlot(_)
        | DriverError::TapeWithoutBeginning
        | DriverError::Stopped => StopReason::Failed(text),
    }
}
