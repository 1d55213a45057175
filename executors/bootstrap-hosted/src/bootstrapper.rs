//! The bootstrapper over any transport. A session exists from the moment its record is written here; it runs from
//! the moment its host has launched it, of which there is one at most whatever is asked how often and by whom:
//! the host decides that under a lock of its own.
//!
//! A host that cannot be reached yet is no failure of a start: the session waits for it in `attach`, until the
//! node's join deadline.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use executor_api::{
    AttemptKey, BootstrapSessionId, Bootstrapper, CreateMode, ExecutorError, ExecutorErrorKind, FoundSession,
    Life, ObservationSink, OperationContext, OperationKind, ProviderName, Reading, RejectReason,
    RunNodeGroupSpec, SpecProblem, StartOutcome, StartRequest, Visibility,
};
use executor_probe::{Names, Records, read};
use tokio::time::timeout;

use crate::follow::Follower;
use crate::host::{
    CancelEnd, Content, Glimpse, Host, HostError, OutputWanted, Position, SessionName, Standing,
};
use crate::progress::Progress;
use crate::record::SessionRecord;
use crate::settings::{BootSettings, EnvValue, FileSource};
use crate::transport::{Pin, Transport};

/// Kept free at the end of every call, so that it ends by itself rather than being given up.
const MARGIN: Duration = Duration::from_millis(300);

/// How long a look that no deadline bounds may take.
const FIND_TIMEOUT: Duration = Duration::from_secs(10);

/// How sessions are kept and watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostedConfig {
    /// A directory of the run, in which the sessions' records are kept.
    pub records: PathBuf,
    /// Time between two looks at a session that has not joined yet.
    pub poll: Duration,
    /// Time between two looks at a node that has.
    pub watch: Duration,
    /// How long a host may refuse our key or token before the attempt is given up: many a machine answers before
    /// its first boot has put the keys in place.
    pub denied_for: Duration,
    /// How long after a call was given up its request may still be carried out by the host.
    pub late_landing: Duration,
}

impl HostedConfig {
    /// The usual times.
    pub fn new(records: PathBuf) -> Self {
        Self {
            records,
            poll: Duration::from_millis(500),
            watch: Duration::from_secs(5),
            denied_for: Duration::from_secs(90),
            late_landing: Duration::from_secs(10),
        }
    }
}

/// Bootstraps nodes through sessions that live on them.
#[derive(Debug)]
pub struct HostedBootstrapper<T: Transport> {
    pub(crate) transport: T,
    pub(crate) config: HostedConfig,
    pub(crate) records: Records<SessionRecord<T::Settings>>,
}

/// A failed call on a host, as the driver is told it.
pub(crate) fn failure(effect: OperationKind, attempt: &AttemptKey, error: HostError) -> ExecutorError {
    let (kind, what) = match &error {
        HostError::Unreachable(_) => {
            (ExecutorErrorKind::Unavailable, "its host cannot be reached; see that it runs")
        }
        HostError::Denied(_) => {
            (ExecutorErrorKind::Unavailable, "its host lets nobody in; check user and key")
        }
        HostError::WrongHost(_) => (
            ExecutorErrorKind::Rejected(RejectReason::Authorisation),
            "its host is not proved to be the one meant, and nothing was sent there; see to key or certificate",
        ),
        HostError::Unfit(_) => {
            (ExecutorErrorKind::Rejected(RejectReason::Validation), "its host cannot run the session")
        }
        HostError::Broken(_) => (ExecutorErrorKind::Ambiguous, "the answer of its host was lost"),
    };
    ExecutorError::new(kind, effect, format!("{attempt}: {what}")).with_source(error)
}

impl<T: Transport> HostedBootstrapper<T> {
    /// A bootstrapper over this transport. Touches nothing yet.
    pub fn new(transport: T, config: HostedConfig) -> Self {
        let records = Records::new(config.records.clone());
        Self { transport, config, records }
    }

    /// Connects, and pins the host if this is the first contact; the pin is on record before the host is asked for
    /// anything. A host that was reached has all of its patience anew.
    pub(crate) async fn reach(
        &self,
        record: &SessionRecord<T::Settings>,
    ) -> Result<Box<dyn Host>, HostError> {
        let keep = |learnt: &str| {
            let mut kept = learnt.to_owned();
            let update = self.records.update(&record.attempt, |record| {
                kept.clone_from(record.pin.get_or_insert_with(|| learnt.to_owned()));
            });
            update.map_err(|error| HostError::Unfit(format!("{error}: {}", error.source)))?;
            if kept == learnt {
                return Ok(());
            }
            Err(HostError::WrongHost(format!(
                "{} showed {learnt}, and {kept} was pinned at the same moment",
                record.endpoint
            )))
        };
        let pin = Pin::new(record.pin.as_deref(), &keep);
        let host = self.transport.connect(&record.endpoint, &record.connect, pin).await?;
        if record.unreachable_since.is_some() {
            let update = self.records.update(&record.attempt, |record| record.unreachable_since = None);
            update.map_err(|error| HostError::Unfit(format!("{error}: {}", error.source)))?;
        }
        Ok(host)
    }

    /// Hands the plan over and launches it, unless the session was cancelled meanwhile. Repeats are harmless.
    pub(crate) async fn launch(
        &self,
        host: &dyn Host,
        record: &SessionRecord<T::Settings>,
    ) -> Result<Standing, HostError> {
        let name = SessionName::of(&record.attempt);
        let environment = record.resolved.environment().map_err(HostError::Unfit)?;
        let identity = [
            ("RECONCILER_RUN", record.attempt.run.name().to_owned()),
            ("RECONCILER_RUN_UID", record.attempt.run.uid().to_owned()),
            ("RECONCILER_NODE", record.attempt.node.to_string()),
            ("RECONCILER_ATTEMPT", record.attempt.attempt.0.to_string()),
            ("RECONCILER_NONCE", nonce(&record.attempt)),
        ];
        let identity = identity.map(|(name, value)| (name.to_owned(), value));
        let environment: Vec<_> = environment.into_iter().chain(identity).collect();
        for (n, source) in record.resolved.sources.iter().enumerate() {
            let content = match source {
                FileSource::Text(text) => Content::Text(text.clone()),
                FileSource::Local(path) => {
                    let found = std::fs::metadata(path);
                    let size = found.map_err(|error| {
                        HostError::Unfit(format!("cannot read the file {}: {error}", path.display()))
                    })?;
                    Content::File(path.clone(), size.len())
                }
            };
            host.put_file(&name, n, content).await?;
        }
        host.stage(&name, &record.resolved.plan).await?;
        let kept = self.records.update(&record.attempt, |record| {
            record.launch_tried = record.launch_tried || !record.cancelled;
        });
        match kept {
            Err(error) => Err(HostError::Unfit(format!("{error}: {}", error.source))),
            Ok(Some(kept)) if !kept.cancelled => match host.launch(&name, &environment).await? {
                Standing::Absent => Err(HostError::Broken("the launch was not carried out".to_owned())),
                other => Ok(other),
            },
            Ok(_) => Ok(Standing::Cancelled),
        }
    }

    fn record(
        &self,
        effect: OperationKind,
        attempt: &AttemptKey,
    ) -> Result<SessionRecord<T::Settings>, ExecutorError> {
        let found = self.records.load(attempt).map_err(|error| error.ends(effect, attempt))?;
        found.ok_or_else(|| {
            let context = format!("{attempt} has no session on record in {}", self.records.dir().display());
            ExecutorError::new(ExecutorErrorKind::Gone, effect, context)
        })
    }

    /// A new session's record.
    fn plan(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
    ) -> Result<SessionRecord<T::Settings>, Vec<SpecProblem>> {
        let boot =
            BootSettings::<T::Settings>::parse_for(&self.transport, &request.desired.template.boot.settings)?;
        let names = Names::of(&ctx.attempt, &request.desired, &request.endpoint);
        Ok(SessionRecord {
            attempt: ctx.attempt.clone(),
            lease: request.lease.lease_id.clone(),
            endpoint: request.endpoint.clone(),
            resolved: boot.resolve(&names, &request.desired.template.join)?,
            connect: boot.connect,
            pin: None,
            launch_tried: false,
            told: 0,
            joined_at: None,
            unreachable_since: None,
            cancelled: false,
            over: false,
        })
    }

    /// Finds or launches the session on its host.
    async fn find_or_launch(
        &self,
        record: &SessionRecord<T::Settings>,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError> {
        let effect = OperationKind::StartBootstrap;
        let attempt = &record.attempt;
        let failed = |error| failure(effect, attempt, error);
        let gone = |how: &str| {
            let context =
                format!("the session of {attempt} is over: {how}; its output is on {}", record.endpoint);
            ExecutorError::new(ExecutorErrorKind::Gone, effect, context)
        };
        let name = SessionName::of(attempt);
        let started = StartOutcome::Started { session: session_id(attempt) };
        let host = match self.reach(record).await {
            Ok(host) => host,
            // Nothing runs there that was not launched before; it is waited for in `attach`.
            Err(HostError::Unreachable(_) | HostError::Denied(_)) if mode == CreateMode::CreateOrAdopt => {
                return Ok(started);
            }
            Err(error) => return Err(failed(error)),
        };
        let glimpse = look(&*host, &name).await.map_err(failed)?;
        if glimpse.standing != Standing::Absent {
            // Launched by somebody whose records are not ours: a cancel must know that something may run.
            let kept = self.records.update(attempt, |record| record.launch_tried = true);
            kept.map_err(|error| error.ends(effect, attempt))?;
        }
        match glimpse.standing {
            Standing::Running => Ok(started),
            Standing::Cancelled => Err(gone("it was cancelled")),
            Standing::Ended => match ended(record, &glimpse) {
                Some(how) => Err(gone(&how)),
                None => Ok(started),
            },
            Standing::Absent if mode == CreateMode::AdoptOnly => {
                Ok(StartOutcome::Absent { as_of: SystemTime::now() })
            }
            Standing::Absent => match self.launch(&*host, record).await.map_err(failed)? {
                Standing::Cancelled => Err(gone("it was cancelled")),
                Standing::Absent | Standing::Running | Standing::Ended => Ok(started),
            },
        }
    }

    /// Whether a host has been given enough time, counted from the first try since it was last reached.
    fn out_of_patience(&self, attempt: &AttemptKey) -> bool {
        let now = SystemTime::now();
        let kept = self.records.update(attempt, |record| {
            record.unreachable_since.get_or_insert(now);
        });
        let Ok(Some(record)) = kept else { return false };
        let waited = record.unreachable_since.and_then(|since| now.duration_since(since).ok());
        waited.is_some_and(|waited| waited >= record.resolved.stop.unreachable_for)
    }
}

#[async_trait]
impl<T: Transport> Bootstrapper for HostedBootstrapper<T> {
    fn name(&self) -> ProviderName {
        self.transport.name()
    }

    fn visibility(&self) -> Visibility {
        // A request that was on its way when the call was given up is carried out by the host within moments.
        Visibility { listing_lag: Duration::ZERO, late_landing: self.config.late_landing }
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        let boot = BootSettings::<T::Settings>::parse_for(&self.transport, &group.template.boot.settings)?;
        let mut problems = Vec::new();
        for (n, file) in boot.files.iter().enumerate() {
            if let Some(Err(error)) = file.from.as_ref().map(std::fs::metadata) {
                problems.push(SpecProblem::new(format!("/boot/files/{n}/from"), error.to_string()));
            }
        }
        for (name, value) in &boot.env {
            if let EnvValue::Secret(reference) = value
                && let Err(error) = reference.resolve()
            {
                let pointer = format!("/boot/env{}", read::pointer_key(name));
                problems.push(SpecProblem::new(pointer, error.to_string()));
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    async fn start(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError> {
        let effect = OperationKind::StartBootstrap;
        let attempt = &ctx.attempt;
        let absent = StartOutcome::Absent { as_of: SystemTime::now() };
        let found = self.records.load(attempt).map_err(|error| error.ends(effect, attempt))?;
        let record = match (found, mode) {
            (Some(found), _) => found,
            (None, CreateMode::AdoptOnly) => return Ok(absent),
            (None, CreateMode::CreateOrAdopt) => {
                let record = self.plan(ctx, request).map_err(|problems| read::refused(effect, &problems))?;
                let kept = self.records.load_or_create(attempt, record);
                kept.map_err(|error| error.ends(effect, attempt))?
            }
        };
        if record.cancelled {
            let context = format!("the session of {attempt} was cancelled; the attempt is over");
            return Err(ExecutorError::new(ExecutorErrorKind::Gone, effect, context));
        }
        if mode == CreateMode::AdoptOnly && !record.launch_tried {
            return Ok(absent);
        }
        let ended = timeout(remaining(ctx), self.find_or_launch(&record, mode)).await;
        let outcome = ended.unwrap_or_else(|_| {
            let context = format!("{} did not answer for {attempt} in time", record.endpoint);
            let tried = self.records.load(attempt).is_ok_and(|found| found.is_some_and(|r| r.launch_tried));
            if tried {
                return Err(ExecutorError::ambiguous(effect, context));
            }
            // No launch was sent: the session waits for its host in `attach`.
            Ok(StartOutcome::Started { session: session_id(attempt) })
        });
        match outcome {
            Err(error)
                if mode == CreateMode::AdoptOnly
                    && !matches!(error.kind, ExecutorErrorKind::Gone)
                    && self.out_of_patience(attempt) =>
            {
                Err(ExecutorError { kind: ExecutorErrorKind::Gone, ..error })
            }
            other => other,
        }
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundSession> {
        let as_of = SystemTime::now();
        let facts = FoundSession { session: session_id(attempt) };
        let record = match self.records.load(attempt) {
            Err(error) => return Reading::Unknown { reason: error.to_string(), as_of },
            Ok(None) => return Reading::Absent { as_of },
            Ok(Some(record)) if record.over => return Reading::Present { facts, life: Life::Dead, as_of },
            Ok(Some(record)) if !record.launch_tried => return Reading::Absent { as_of },
            Ok(Some(record)) => record,
        };
        let name = SessionName::of(attempt);
        let seen = timeout(FIND_TIMEOUT, async { look(&*self.reach(&record).await?, &name).await }).await;
        match seen {
            Err(_) => Reading::Unknown { reason: format!("{} does not answer", record.endpoint), as_of },
            Ok(Err(error)) => Reading::Unknown { reason: error.to_string(), as_of },
            Ok(Ok(glimpse)) => match glimpse.standing {
                Standing::Absent => Reading::Absent { as_of },
                Standing::Running => Reading::Present { facts, life: Life::Live, as_of },
                Standing::Cancelled => Reading::Present { facts, life: Life::Dead, as_of },
                Standing::Ended => {
                    let life = if ended(&record, &glimpse).is_some() { Life::Dead } else { Life::Live };
                    Reading::Present { facts, life, as_of }
                }
            },
        }
    }

    async fn complete(&self, _: &OperationContext, _: &BootstrapSessionId) -> Result<(), ExecutorError> {
        // The steps are done and the program is on its own: there is nothing that would have to be told.
        Ok(())
    }

    async fn cancel(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        let effect = OperationKind::CancelBootstrap;
        let attempt = &ctx.attempt;
        if *session != session_id(attempt) {
            // A name that is not this attempt's names nothing of it, and nothing else is touched.
            return Ok(());
        }
        // From here on no launch is sent, neither from here nor from anybody who shares the records.
        let kept = self.records.update(attempt, |record| {
            if !record.cancelled {
                // What was waited for before is not time that was given to the cancel.
                record.unreachable_since = None;
            }
            record.cancelled = true;
        });
        let Some(record) = kept.map_err(|error| error.ends(effect, attempt))? else { return Ok(()) };
        if record.over {
            return Ok(());
        }
        let name = SessionName::of(attempt);
        let grace = record.resolved.stop.grace;
        let ended = if record.launch_tried {
            let cancel = async { self.reach(&record).await?.cancel(&name, grace).await };
            let late = || HostError::Broken(format!("{} did not answer in time", record.endpoint));
            timeout(remaining(ctx), cancel).await.unwrap_or_else(|_| Err(late()))
        } else {
            Ok(CancelEnd::Clean)
        };
        match ended {
            Ok(CancelEnd::Clean) => {}
            Ok(CancelEnd::Left(pids)) => {
                let context = format!(
                    "{attempt}: these processes on {} could not be ended: {pids}; end them by hand",
                    record.endpoint
                );
                return Err(ExecutorError::new(ExecutorErrorKind::Unavailable, effect, context));
            }
            Err(error) if self.out_of_patience(attempt) => {
                tracing::warn!(%attempt, %error, "the host is given up; the session ends with its lease");
            }
            Err(error) => return Err(failure(effect, attempt, error)),
        }
        let kept = self.records.update(attempt, |record| record.over = true);
        kept.map(|_| ()).map_err(|error| error.ends(effect, attempt))
    }

    async fn attach(
        &self,
        attempt: &AttemptKey,
        session: &BootstrapSessionId,
        sink: ObservationSink,
    ) -> Result<(), ExecutorError> {
        let effect = OperationKind::StartBootstrap;
        let record = self.record(effect, attempt)?;
        if record.cancelled || *session != session_id(attempt) {
            let context = format!("{attempt} has no session {session} that could be followed");
            return Err(ExecutorError::new(ExecutorErrorKind::Gone, effect, context));
        }
        Follower::new(self, record, sink).run().await;
        Ok(())
    }
}

impl<C: Default + for<'de> serde::Deserialize<'de>> BootSettings<C> {
    /// Reads the settings, the transport's own included.
    fn parse_for<T: Transport<Settings = C>>(
        transport: &T,
        settings: &serde_json::Value,
    ) -> Result<Self, Vec<SpecProblem>> {
        let boot = Self::parse(settings)?;
        let problems = transport.check(&boot.connect);
        if problems.is_empty() { Ok(boot) } else { Err(problems) }
    }
}

/// The session's name follows from the attempt alone.
pub(crate) fn session_id(attempt: &AttemptKey) -> BootstrapSessionId {
    BootstrapSessionId(SessionName::of(attempt).to_string())
}

fn nonce(attempt: &AttemptKey) -> String {
    attempt.identity().nonce
}

/// A first look: the standing and the events, no output.
async fn look(host: &dyn Host, name: &SessionName) -> Result<Glimpse, HostError> {
    host.look(name, Position::default(), OutputWanted { limit: 0, tail: true }).await
}

/// Why a session that has ended is dead; `None` if it did all it had to do.
fn ended<S>(record: &SessionRecord<S>, glimpse: &Glimpse) -> Option<String> {
    let mut progress = Progress::default();
    progress.feed(&record.resolved.plan, &glimpse.events);
    progress.death(&record.resolved.plan)
}

/// What is left of a call's time.
fn remaining(ctx: &OperationContext) -> Duration {
    ctx.deadline.duration_since(SystemTime::now()).unwrap_or_default().saturating_sub(MARGIN)
}
