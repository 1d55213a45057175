//! The bootstrapper over records and probes. Each promise of the trait is kept by the record: it is made once,
//! found by everybody, and says when the session is over.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use executor_api::{
    AttemptKey, BootstrapSessionId, Bootstrapper, CreateMode, ExecutorError, ExecutorErrorKind, FoundSession,
    Life, ObservationSink, OperationContext, OperationKind, ProviderName, Reading, RunNodeGroupSpec,
    SpecProblem, StartOutcome, StartRequest, Visibility,
};
use executor_probe::{Names, Probe, RecordError, Records, Teller, read, watch};
use serde::{Deserialize, Serialize};

use crate::settings::ProbeBoot;

/// How soon a session that was ended elsewhere stops being watched here.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Waits for nodes that start by themselves.
#[derive(Debug)]
pub struct ProbeBootstrapper {
    records: Records<Session>,
}

/// One session, as it outlives the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Session {
    attempt: AttemptKey,
    probe: Probe,
    endpoint: String,
    joined_at: Option<SystemTime>,
    cancelled: bool,
}

impl ProbeBootstrapper {
    /// A bootstrapper whose sessions are kept in this directory of the run. Specs ask for it as `probe`.
    pub fn new(records: PathBuf) -> Self {
        Self { records: Records::new(records) }
    }

    /// Waits until the probe passes; when that was.
    async fn join(&self, attempt: &AttemptKey, probe: &Probe) -> Result<SystemTime, RecordError> {
        let mut last = None;
        watch::until_ready(probe, |failure| {
            // The same silence is not logged over and over.
            if last.as_ref() != Some(failure) {
                tracing::debug!(%attempt, %failure, "not ready yet");
                last = Some(failure.clone());
            }
        })
        .await;
        let now = SystemTime::now();
        self.records.update(attempt, |session| session.joined_at = Some(now))?;
        Ok(now)
    }

    /// Ends watching once the session is over or its record cannot be read.
    async fn over(&self, attempt: &AttemptKey) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            match self.records.load(attempt) {
                Ok(Some(session)) if !session.cancelled => {}
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// The session's name follows from the attempt alone.
fn session_id(attempt: &AttemptKey) -> BootstrapSessionId {
    BootstrapSessionId(attempt.identity().resource_name)
}

#[async_trait]
impl Bootstrapper for ProbeBootstrapper {
    fn name(&self) -> ProviderName {
        #[expect(clippy::expect_used, reason = "the text is a lowercase word")]
        ProviderName::new("probe").expect("`probe` is a provider name")
    }

    fn visibility(&self) -> Visibility {
        Visibility::default()
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        ProbeBoot::parse(&group.template.boot.settings).map(|_| ())
    }

    async fn start(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError> {
        let effect = OperationKind::StartBootstrap;
        let attempt = &ctx.attempt;
        let found = self.records.load(attempt).map_err(|error| error.ends(effect, attempt))?;
        let session = match (found, mode) {
            (Some(found), _) => found,
            (None, CreateMode::AdoptOnly) => return Ok(StartOutcome::Absent { as_of: SystemTime::now() }),
            (None, CreateMode::CreateOrAdopt) => {
                let boot = ProbeBoot::parse(&request.desired.template.boot.settings);
                let boot = boot.map_err(|problems| read::refused(effect, &problems))?;
                let names = Names::of(attempt, &request.desired, &request.endpoint);
                let probe = boot.ready.resolve("/boot/ready", &names);
                let session = Session {
                    attempt: attempt.clone(),
                    probe: probe.map_err(|problems| read::refused(effect, &problems))?,
                    endpoint: request.endpoint.to_string(),
                    joined_at: None,
                    cancelled: false,
                };
                let kept = self.records.load_or_create(attempt, session);
                kept.map_err(|error| error.ends(effect, attempt))?
            }
        };
        if session.cancelled {
            let context = format!("the session of {attempt} was cancelled; the attempt is over");
            return Err(ExecutorError::new(ExecutorErrorKind::Gone, effect, context));
        }
        Ok(StartOutcome::Started { session: session_id(attempt) })
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundSession> {
        let as_of = SystemTime::now();
        match self.records.load(attempt) {
            Err(error) => Reading::Unknown { reason: error.to_string(), as_of },
            Ok(None) => Reading::Absent { as_of },
            Ok(Some(session)) => Reading::Present {
                facts: FoundSession { session: session_id(attempt) },
                life: if session.cancelled { Life::Dead } else { Life::Live },
                as_of,
            },
        }
    }

    async fn complete(&self, _: &OperationContext, _: &BootstrapSessionId) -> Result<(), ExecutorError> {
        // Nothing runs that could be closed: the node was never a child of this session.
        Ok(())
    }

    async fn cancel(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        let effect = OperationKind::CancelBootstrap;
        if *session != session_id(&ctx.attempt) {
            // A name that is not this attempt's names nothing of it, and nothing else is touched.
            return Ok(());
        }
        let kept = self.records.update(&ctx.attempt, |session| session.cancelled = true);
        kept.map(|_| ()).map_err(|error| error.ends(effect, &ctx.attempt))
    }

    async fn attach(
        &self,
        attempt: &AttemptKey,
        session: &BootstrapSessionId,
        sink: ObservationSink,
    ) -> Result<(), ExecutorError> {
        let effect = OperationKind::StartBootstrap;
        let own = *session == session_id(attempt);
        let found = self.records.load(attempt).map_err(|error| error.ends(effect, attempt))?;
        let Some(found) = found.filter(|found| own && !found.cancelled) else {
            let context = format!("there is no session {session} of {attempt} to follow");
            return Err(ExecutorError::new(ExecutorErrorKind::Gone, effect, context));
        };
        let teller = Teller::new(attempt.clone(), session.clone(), sink);
        let follow = async {
            let joined_at = if let Some(at) = found.joined_at {
                at
            } else {
                teller.progress(1, &format!("waiting for {}", found.probe.check));
                self.join(attempt, &found.probe).await.map_err(|error| error.ends(effect, attempt))?
            };
            teller.progress(2, "ready");
            teller.joined(found.endpoint.clone(), joined_at);
            watch::stay(&found.probe, &teller).await;
            Ok(())
        };
        tokio::select! {
            ended = follow => ended,
            () = self.over(attempt) => Ok(()),
        }
    }
}
