//! From effects to executor calls and back, without a runtime: the ledger above the executors, listening to
//! sessions, listing providers. The tokio shell and the virtual-time runner both go through here and only
//! differ in who polls the futures. Decides nothing about nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::outcome::EffectFailure;
use executor_api::{
    AttemptKey, Begin, EffectOutcome, EffectSuccess, ExecutorError, ExecutorErrorKind, LeaseId, Ledger,
    Listing, LogicalNodeId, NodeAttemptId, ObservationSink, OperationId, OperationKind, OperationReport,
    ProviderName, RunId, Timer, Visibility,
};
use reconciler_core::ClusterShape;
use tracing::Instrument as _;

use crate::driver::{Attachment, DriverInput, EffectCall, PassReport, Sweep};
use crate::executors::ExecutorTable;

pub(crate) mod contained;

use contained::{Contained, Ended, contained};

/// First wait before a session that stopped talking is listened to again; doubles up to [`HEAR_CAP`].
const HEAR_FIRST: Duration = Duration::from_secs(1);
/// Longest wait before listening again; whoever was heard for longer starts over.
const HEAR_CAP: Duration = Duration::from_mins(1);

/// What a task is for. At most one task runs for each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskKey {
    /// An effect.
    Operation(OperationId),
    /// Listening to an attempt's session.
    Hearing(NodeAttemptId),
    /// Listing a provider.
    Listing(ProviderName),
    /// Telling a provider which slots remain.
    Retaining(ProviderName),
    /// Ending a lease of an attempt that is over.
    Sweeping(ProviderName, LeaseId),
}

/// A call to an executor, to be polled to its end or dropped.
pub struct Task {
    /// What it is for.
    pub key: TaskKey,
    /// The call. Never panics; ends by its deadline.
    pub future: Pin<Box<dyn Future<Output = TaskEnd> + Send>>,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("key", &self.key).finish_non_exhaustive()
    }
}

/// How a task ended. Handed back to [`Dispatcher::ended`].
#[derive(Debug)]
pub struct TaskEnd {
    /// What it was for.
    pub key: TaskKey,
    answer: Answer,
}

#[derive(Debug)]
enum Answer {
    Operation(Ended<Result<EffectSuccess, ExecutorError>>),
    Hearing(Ended<Result<(), ExecutorError>>),
    Listing(Ended<Result<Listing, ExecutorError>>),
    Retaining(Ended<Result<(), ExecutorError>>),
    Sweeping(Ended<Result<(), ExecutorError>>),
}

/// What a shell is to do, in the order given.
#[derive(Debug)]
pub enum Order {
    /// Drop this task. It must be gone before another of its attempt is polled.
    Drop(TaskKey),
    /// Poll this one.
    Poll(Task),
    /// Tell the driver.
    Tell(Box<DriverInput>),
}

#[derive(Debug)]
struct Running {
    node: LogicalNodeId,
    kind: OperationKind,
    visibility: Visibility,
}

#[derive(Debug)]
struct Hearing {
    attachment: Attachment,
    since: SystemTime,
    wait: Duration,
}

/// The table of what runs at the executors.
#[derive(Debug)]
pub struct Dispatcher {
    run: RunId,
    executors: ExecutorTable,
    timer: Arc<dyn Timer>,
    sink: ObservationSink,
    ledger: Ledger,
    running: BTreeMap<OperationId, Running>,
    hearings: BTreeMap<NodeAttemptId, Hearing>,
    /// Sessions that stopped talking, by when they are listened to again.
    hear_again: BTreeSet<(SystemTime, NodeAttemptId)>,
    /// Next listing of each provider; `None` while one is under way.
    listings: BTreeMap<ProviderName, Option<SystemTime>>,
    retaining: BTreeSet<ProviderName>,
}

impl Dispatcher {
    /// A dispatcher with nothing under way; every provider is due to be listed.
    pub fn new(run: RunId, executors: ExecutorTable, timer: Arc<dyn Timer>, sink: ObservationSink) -> Self {
        let now = timer.now();
        let listings = executors.providers().map(|provider| (provider.name(), Some(now))).collect();
        Self {
            run,
            executors,
            timer,
            sink,
            ledger: Ledger::new(),
            running: BTreeMap::new(),
            hearings: BTreeMap::new(),
            hear_again: BTreeSet::new(),
            listings,
            retaining: BTreeSet::new(),
        }
    }

    /// Tells the executors where a new shape will have them look.
    pub fn acquaint(&self, desired: &ClusterShape) {
        self.executors.acquaint(desired);
    }

    /// Carries out what a pass asks for, all but its commit and its events.
    pub fn carry_out(
        &mut self,
        report: &mut PassReport,
        now: SystemTime,
        timeout: Duration,
        slots: impl FnOnce() -> BTreeSet<LogicalNodeId>,
    ) -> Vec<Order> {
        let mut orders = Vec::new();
        for operation in std::mem::take(&mut report.stops) {
            self.stopped(operation, now);
            orders.push(Order::Drop(TaskKey::Operation(operation)));
        }
        let retired = std::mem::take(&mut report.retired);
        for attempt in &retired {
            self.ledger.retire(&self.run, *attempt);
        }
        for attempt in retired.into_iter().chain(std::mem::take(&mut report.detach)) {
            if self.hearings.remove(&attempt).is_some() {
                orders.push(Order::Drop(TaskKey::Hearing(attempt)));
            }
        }
        for attachment in std::mem::take(&mut report.attach) {
            orders.extend(self.attach(attachment, now).map(Order::Poll));
        }
        for call in std::mem::take(&mut report.effects) {
            orders.extend(self.submit(call, now));
        }
        for sweep in std::mem::take(&mut report.sweeps) {
            orders.push(self.end_orphan(sweep));
        }
        if std::mem::take(&mut report.reaped) {
            orders.extend(self.retain(&slots(), timeout).into_iter().map(Order::Poll));
        }
        orders
    }

    /// Hands an effect to its executor. Nothing is ordered when the same operation runs already.
    pub fn submit(&mut self, call: EffectCall, now: SystemTime) -> Option<Order> {
        let EffectCall { node, command, route, context } = call;
        let operation = context.operation;
        let failed = |error: String| {
            Some(Order::Tell(Box::new(DriverInput::SubmitFailed { node: node.clone(), operation, error })))
        };
        let executor = match self.executors.carrying_out(&route, &command) {
            Ok(executor) => executor,
            Err(error) => return failed(error.to_string()),
        };
        let visibility = executor.visibility(&command);
        match self.ledger.begin(&self.run, operation, &command, now) {
            Begin::Start => {}
            Begin::Join => return None,
            Begin::Replay(outcome) => {
                let report = OperationReport { operation, outcome, visibility };
                let attempt = operation.attempt;
                return Some(Order::Tell(Box::new(DriverInput::Outcome { node, attempt, report })));
            }
            Begin::Conflict => return failed(format!("operation {operation} was used for something else")),
            Begin::Busy { until: None } => {
                return failed(format!("another operation of {} still runs", context.attempt));
            }
            Begin::Busy { until: Some(_) } => {
                return failed(format!("an earlier call for {} may still land", context.attempt));
            }
        }
        let kind = command.kind();
        self.running.insert(operation, Running { node: node.clone(), kind, visibility });
        let span = tracing::info_span!("operation", %node, attempt = %operation.attempt, %operation, %kind);
        let deadline = context.deadline;
        let call = async move { executor.execute(&context, &command).await };
        let call = contained(call, Some(self.timer.sleep_until(deadline)));
        let key = TaskKey::Operation(operation);
        Some(Order::Poll(task(key, call, Answer::Operation, span)))
    }

    /// Listens to a session from now on.
    pub fn attach(&mut self, attachment: Attachment, now: SystemTime) -> Option<Task> {
        let attempt = attachment.attempt;
        let hearing = Hearing { attachment, since: now, wait: HEAR_FIRST };
        self.hearings.insert(attempt, hearing);
        self.hear(attempt, now)
    }

    /// An operation was stopped: its task was dropped, and what it did may still land.
    fn stopped(&mut self, operation: OperationId, now: SystemTime) {
        let Some(running) = self.running.remove(&operation) else { return };
        let lands_until = now.checked_add(running.visibility.late_landing);
        let failure = EffectFailure {
            kind: ExecutorErrorKind::Ambiguous,
            message: format!("{} was stopped at its deadline", running.kind),
        };
        self.ledger.finish(&self.run, operation, Err(failure), lands_until);
    }

    /// Ends a lease that belongs to no attempt any more.
    fn end_orphan(&self, sweep: Sweep) -> Order {
        let Sweep { provider, orphan, deadline } = sweep;
        let lease = orphan.lease.lease_id.clone();
        let Some(leases) = self.executors.provider(&provider).map(Arc::clone) else {
            let error = Some(format!("provider {provider} is not built in"));
            return Order::Tell(Box::new(DriverInput::Swept { provider, lease, error }));
        };
        let context = orphan.context(deadline);
        let span = tracing::info_span!("sweep", %provider, %lease);
        let call = async move { leases.destroy(&context, &orphan.lease).await };
        let call = contained(call, Some(self.timer.sleep_until(deadline)));
        Order::Poll(task(TaskKey::Sweeping(provider, lease), call, Answer::Sweeping, span))
    }

    /// Tells every provider which slots remain, so that it may free what belonged to others.
    pub fn retain(&mut self, slots: &BTreeSet<LogicalNodeId>, timeout: Duration) -> Vec<Task> {
        let slots: Arc<[LogicalNodeId]> = slots.iter().cloned().collect();
        let mut tasks = Vec::new();
        for provider in self.executors.providers() {
            let name = provider.name();
            let (provider, slots, run) = (Arc::clone(provider), Arc::clone(&slots), self.run.clone());
            let call = async move { provider.retain_slots(&run, &slots).await };
            let call = contained(call, Some(self.timeout(timeout)));
            let span = tracing::debug_span!("retain", provider = %name);
            self.retaining.insert(name.clone());
            tasks.push(task(TaskKey::Retaining(name), call, Answer::Retaining, span));
        }
        tasks
    }

    /// Listings and listeners that are due. `in_use` is asked only when a listing is due.
    pub fn due(
        &mut self,
        now: SystemTime,
        observe_every: Duration,
        timeout: Duration,
        in_use: impl FnOnce() -> BTreeSet<ProviderName>,
    ) -> Vec<Task> {
        let mut tasks = Vec::new();
        while self.hear_again.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, attempt)) = self.hear_again.pop_first() else { break };
            tasks.extend(self.hear(attempt, now));
        }
        let listed: Vec<_> = self
            .listings
            .iter()
            .filter(|(_, at)| at.is_some_and(|at| at <= now))
            .map(|(provider, _)| provider.clone())
            .collect();
        if !listed.is_empty() {
            let in_use = in_use();
            for name in listed {
                match self.executors.provider(&name) {
                    Some(provider) if in_use.contains(&name) => {
                        let (provider, run) = (Arc::clone(provider), self.run.clone());
                        let call = async move { provider.list(&run).await };
                        let call = contained(call, Some(self.timeout(timeout)));
                        let span = tracing::debug_span!("list", provider = %name);
                        self.listings.insert(name.clone(), None);
                        tasks.push(task(TaskKey::Listing(name), call, Answer::Listing, span));
                    }
                    Some(_) | None => {
                        self.listings.insert(name, now.checked_add(observe_every));
                    }
                }
            }
        }
        tasks
    }

    /// When something of [`due`](Self::due) is due next.
    pub fn next_due(&self) -> Option<SystemTime> {
        let again = self.hear_again.first().map(|(at, _)| *at);
        again.into_iter().chain(self.listings.values().copied().flatten()).min()
    }

    /// Takes the end of a task. Answers with what the driver is to be told.
    pub fn ended(&mut self, end: TaskEnd, now: SystemTime, observe_every: Duration) -> Vec<DriverInput> {
        let mut inputs = Vec::new();
        let panicked = match &end.answer {
            Answer::Operation(ended) => ended.panicked(),
            Answer::Hearing(ended) | Answer::Retaining(ended) | Answer::Sweeping(ended) => ended.panicked(),
            Answer::Listing(ended) => ended.panicked(),
        };
        if panicked {
            inputs.push(DriverInput::Panicked);
        }
        match (end.key, end.answer) {
            (TaskKey::Operation(operation), Answer::Operation(ended)) => {
                inputs.extend(self.operation_ended(operation, ended, now));
            }
            (TaskKey::Hearing(attempt), Answer::Hearing(ended)) => {
                if let Some(hearing) = self.hearings.get_mut(&attempt) {
                    let heard = now.duration_since(hearing.since).unwrap_or_default();
                    if heard >= HEAR_CAP {
                        hearing.wait = HEAR_FIRST;
                    }
                    self.hear_again.extend(now.checked_add(hearing.wait).map(|at| (at, attempt)));
                    let node = &hearing.attachment.node;
                    let wait = hearing.wait;
                    tracing::debug!(%node, %attempt, ?wait, "{}", ended.problem("session ended"));
                    hearing.wait = hearing.wait.saturating_mul(2).min(HEAR_CAP);
                }
            }
            (TaskKey::Listing(provider), Answer::Listing(ended)) => {
                self.listings.insert(provider.clone(), now.checked_add(observe_every));
                let listing = match ended {
                    Ended::Returned(Ok(listing)) => Ok(listing),
                    other => Err(other.problem("listed nothing")),
                };
                inputs.push(DriverInput::Listing { provider, listing });
            }
            (TaskKey::Retaining(provider), Answer::Retaining(ended)) => {
                self.retaining.remove(&provider);
                if !matches!(ended, Ended::Returned(Ok(()))) {
                    let problem = ended.problem("retained");
                    tracing::warn!(%provider, "could not free what belonged to reaped slots: {problem}");
                }
            }
            (TaskKey::Sweeping(provider, lease), Answer::Sweeping(ended)) => {
                let done = matches!(ended, Ended::Returned(Ok(())));
                let error = (!done).then(|| ended.problem("ended nothing"));
                inputs.push(DriverInput::Swept { provider, lease, error });
            }
            // A task answers for what it was made for.
            (
                TaskKey::Operation(_)
                | TaskKey::Hearing(_)
                | TaskKey::Listing(_)
                | TaskKey::Retaining(_)
                | TaskKey::Sweeping(..),
                _,
            ) => {}
        }
        inputs
    }

    /// How many effects run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether a call other than listening is under way.
    pub fn is_busy(&self) -> bool {
        !self.running.is_empty() || !self.retaining.is_empty()
    }

    fn operation_ended(
        &mut self,
        operation: OperationId,
        ended: Ended<Result<EffectSuccess, ExecutorError>>,
        now: SystemTime,
    ) -> Option<DriverInput> {
        // An operation that was stopped meanwhile is no longer known; its driver settled it.
        let Running { node, kind, visibility } = self.running.remove(&operation)?;
        let outcome: EffectOutcome = match ended {
            Ended::Returned(Ok(success)) => Ok(success),
            Ended::Returned(Err(error)) => {
                if error.kind == ExecutorErrorKind::Ambiguous {
                    tracing::warn!(%node, %operation, "{}", error.summary());
                }
                Err(EffectFailure::from(&error))
            }
            Ended::Panicked(message) => {
                tracing::error!(%node, %operation, "the executor panicked: {message}");
                let message = format!("{kind}: the executor panicked: {message}");
                Err(EffectFailure { kind: ExecutorErrorKind::Ambiguous, message })
            }
            Ended::GaveUp => {
                // The driver stops the operation at this very deadline, by its own clock.
                self.running.insert(operation, Running { node, kind, visibility });
                return None;
            }
        };
        let ambiguous = matches!(&outcome, Err(failure) if failure.kind == ExecutorErrorKind::Ambiguous);
        let lands_until = now.checked_add(visibility.late_landing).filter(|_| ambiguous);
        self.ledger.finish(&self.run, operation, outcome.clone(), lands_until);
        let report = OperationReport { operation, outcome, visibility };
        Some(DriverInput::Outcome { node, attempt: operation.attempt, report })
    }

    fn hear(&mut self, attempt: NodeAttemptId, now: SystemTime) -> Option<Task> {
        let hearing = self.hearings.get_mut(&attempt)?;
        hearing.since = now;
        let Attachment { node, session, route, .. } = hearing.attachment.clone();
        let executor = match self.executors.serving(&route) {
            Ok(executor) => executor,
            Err(error) => {
                tracing::warn!(%node, %attempt, "cannot listen to session {session}: {error}");
                self.hear_again.extend(now.checked_add(HEAR_CAP).map(|at| (at, attempt)));
                return None;
            }
        };
        let key = AttemptKey { run: self.run.clone(), node: node.clone(), attempt };
        let span = tracing::info_span!("attempt", %node, %attempt);
        let sink = self.sink.clone();
        let call = async move { executor.bootstrap().attach(&key, &session, sink).await };
        Some(task(TaskKey::Hearing(attempt), contained(call, None), Answer::Hearing, span))
    }

    fn timeout(&self, timeout: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let now = self.timer.now();
        self.timer.sleep_until(now.checked_add(timeout).unwrap_or(now))
    }
}

fn task<T: 'static>(
    key: TaskKey,
    call: Contained<T>,
    answer: fn(Ended<T>) -> Answer,
    span: tracing::Span,
) -> Task {
    let end = key.clone();
    let future = async move { TaskEnd { key: end, answer: answer(call.await) } };
    Task { key, future: Box::pin(future.instrument(span)) }
}
