//! A bootstrapper without a program: sessions in memory that do what the spec's boot settings say, on leases that
//! are really there. What the tests pair the provider with.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use executor_api::{
    AttemptIdentity, AttemptKey, BootstrapSessionId, Bootstrapper, CandidateIndex, CreateMode, ExecutorError,
    ExecutorErrorKind, FoundSession, LeaseId, Life, MemberFacts, NodeObservation, ObservationReport,
    ObservationSink, OperationContext, OperationKind, ProviderName, Reading, RunNodeGroupSpec, SpecProblem,
    StartOutcome, StartRequest, Visibility,
};
use serde_json::Value;

use super::world::Region;

/// The sessions of a world. Shared by all instances of the bootstrapper on it.
#[derive(Clone)]
pub struct Sessions {
    region: Arc<Region>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    sessions: BTreeMap<AttemptKey, Session>,
    lose_next_answer: bool,
}

#[derive(Clone)]
struct Session {
    id: BootstrapSessionId,
    lease: LeaseId,
    plan: Value,
    over: bool,
}

impl Sessions {
    /// No sessions yet, on the instances of this region.
    pub fn new(region: Arc<Region>) -> Self {
        Self { region, kept: Arc::default() }
    }

    /// The next start starts its session and says nothing.
    pub fn lose_next_answer(&self) {
        self.lock().lose_next_answer = true;
    }

    /// Those that run: not over, on a lease that lives.
    pub fn running(&self) -> Vec<(BootstrapSessionId, AttemptKey)> {
        let living = self.region.living();
        let kept = self.lock();
        let running = kept
            .sessions
            .iter()
            .filter(|(_, session)| !session.over && living.iter().any(|one| one.id == session.lease.0));
        running.map(|(key, session)| (session.id.clone(), key.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap()
    }

    fn lives(&self, lease: &LeaseId) -> bool {
        self.region.living().iter().any(|one| one.id == lease.0)
    }

    fn end(&self, key: &AttemptKey, session: &BootstrapSessionId) {
        if let Some(found) = self.lock().sessions.get_mut(key).filter(|found| found.id == *session) {
            found.over = true;
        }
    }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sessions")
    }
}

#[async_trait]
impl Bootstrapper for Sessions {
    fn name(&self) -> ProviderName {
        ProviderName::new("ec2").unwrap()
    }

    fn visibility(&self) -> Visibility {
        Visibility::default()
    }

    async fn validate(&self, _: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        Ok(())
    }

    async fn start(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError> {
        let failed = |kind, text: &str| ExecutorError::new(kind, OperationKind::StartBootstrap, text);
        let mut kept = self.lock();
        match (kept.sessions.get(&ctx.attempt), mode) {
            (Some(session), _) if session.over => {
                return Err(failed(ExecutorErrorKind::Gone, "its session is over"));
            }
            (Some(session), _) => return Ok(StartOutcome::Started { session: session.id.clone() }),
            (None, CreateMode::AdoptOnly) => {
                return Ok(StartOutcome::Absent { as_of: SystemTime::now() });
            }
            (None, CreateMode::CreateOrAdopt) => {}
        }
        let plan = request.desired.template.boot.settings.clone();
        let id = BootstrapSessionId(format!("{} of {}", request.lease.lease_id, ctx.attempt));
        let over = plan["exits"].is_number();
        let session = Session { id: id.clone(), lease: request.lease.lease_id.clone(), plan, over };
        kept.sessions.insert(ctx.attempt.clone(), session);
        if std::mem::take(&mut kept.lose_next_answer) {
            return Err(failed(ExecutorErrorKind::Ambiguous, "the answer was lost"));
        }
        Ok(StartOutcome::Started { session: id })
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundSession> {
        let as_of = SystemTime::now();
        match self.lock().sessions.get(attempt) {
            Some(session) => Reading::Present {
                facts: FoundSession { session: session.id.clone() },
                life: if session.over { Life::Dead } else { Life::Live },
                as_of,
            },
            None => Reading::Absent { as_of },
        }
    }

    async fn complete(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        self.end(&ctx.attempt, session);
        Ok(())
    }

    async fn cancel(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        self.end(&ctx.attempt, session);
        Ok(())
    }

    async fn attach(
        &self,
        attempt: &AttemptKey,
        session: &BootstrapSessionId,
        sink: ObservationSink,
    ) -> Result<(), ExecutorError> {
        let tell = |observation| {
            sink.send(ObservationReport {
                node: attempt.node.clone(),
                attempt: attempt.attempt,
                observation,
            });
        };
        let found = self.lock().sessions.get(attempt).filter(|found| found.id == *session).cloned();
        let Some(found) = found else { return Ok(()) };
        let session = session.clone();
        tell(NodeObservation::BootstrapProgress {
            session: session.clone(),
            sequence: 1,
            phase: "started".to_owned(),
        });
        if let Some(status) = found.plan["exits"].as_i64() {
            let reason = format!("exited with {status} before it joined");
            tell(NodeObservation::BootstrapFailed { session, reason });
            return Ok(());
        }
        if found.plan["never"].is_null() {
            let nonce = AttemptIdentity::derive(attempt, CandidateIndex(0)).nonce;
            let member =
                MemberFacts { member_id: found.lease.0.clone(), nonce, joined_at: SystemTime::now() };
            tell(NodeObservation::MemberJoined { session, member });
        }
        while self.lives(&found.lease) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let reason = "the instance died".to_owned();
        tell(NodeObservation::LeaseLost { lease: found.lease, reason });
        Ok(())
    }
}
