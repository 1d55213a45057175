//! The bootstrap half: what runs on a machine, and telling the driver about it. In a provider whose machines bring
//! their own way in (SSH, an agent) this half is one of the bootstrappers that exist already.

use std::time::Duration;

use async_trait::async_trait;
use executor_api::{
    AttemptIdentity, AttemptKey, BootstrapSessionId, Bootstrapper, CandidateIndex, CreateMode, ExecutorError,
    ExecutorErrorKind, FoundSession, LeaseProvider, Life, MemberFacts, NodeObservation, ObservationReport,
    ObservationSink, OperationContext, OperationKind, ProviderName, Reading, RunNodeGroupSpec, SpecProblem,
    StartOutcome, StartRequest, Visibility,
};

use crate::cloud::{Machine, Session};
use crate::{Template, failed, unreachable};

#[async_trait]
impl Bootstrapper for Template {
    fn name(&self) -> ProviderName {
        LeaseProvider::name(self)
    }

    fn visibility(&self) -> Visibility {
        LeaseProvider::visibility(self)
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        let settings = &group.template.boot.settings;
        let known = settings.is_null() || settings.get("joins").is_some() || settings.get("exits").is_some();
        let problem = || SpecProblem::new("/boot", "write `joins: true` or `exits: STATUS`");
        if known { Ok(()) } else { Err(vec![problem()]) }
    }

    // As for `create`: what runs is adopted, what is over is `Gone`, and one turn at the lock keeps two starts at
    // once from starting twice.
    async fn start(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError> {
        let effect = OperationKind::StartBootstrap;
        let as_of = self.timer.now();
        let settings = &request.desired.template.boot.settings;
        let asked = self.cloud.request(|machines| {
            let machine = machines.get_mut(&ctx.attempt).filter(|machine| machine.alive)?;
            let fresh = machine.session == Session::None && mode == CreateMode::CreateOrAdopt;
            if fresh {
                machine.session = match settings.get("exits").and_then(serde_json::Value::as_i64) {
                    Some(status) => Session::Exited(status),
                    None if settings.get("joins").is_some() => Session::Joined(as_of),
                    None => Session::Running,
                };
            }
            Some((machine.clone(), fresh))
        });
        let gone = |why| failed(ExecutorErrorKind::Gone, effect, ctx, why);
        match asked.map_err(unreachable(effect, ctx))?.ok_or_else(|| gone("its machine is gone"))? {
            (Machine { session: Session::None, .. }, _) => Ok(StartOutcome::Absent { as_of }),
            (machine, false) if is_over(&machine.session) => Err(gone("its session is over")),
            (machine, _) => Ok(StartOutcome::Started { session: session_of(&machine) }),
        }
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundSession> {
        let as_of = self.timer.now();
        match self.cloud.request(|machines| machines.get(attempt).cloned()) {
            Err(_) => Reading::Unknown { reason: "the cloud cannot be reached".to_owned(), as_of },
            Ok(Some(machine)) if machine.session != Session::None => {
                let life = if is_over(&machine.session) { Life::Dead } else { Life::Live };
                Reading::Present { facts: FoundSession { session: session_of(&machine) }, life, as_of }
            }
            Ok(_) => Reading::Absent { as_of },
        }
    }

    // The node joined, and nothing of the bootstrap is left to be put away. The node itself lives on.
    async fn complete(&self, _: &OperationContext, _: &BootstrapSessionId) -> Result<(), ExecutorError> {
        Ok(())
    }

    // Only this attempt's own session, and only the one that is named; no such session is success.
    async fn cancel(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        let cancelled = self.cloud.request(|machines| {
            let named = machines.get_mut(&ctx.attempt).filter(|machine| session_of(machine) == *session);
            if let Some(machine) = named {
                machine.session = Session::Cancelled;
            }
        });
        cancelled.map_err(unreachable(OperationKind::CancelBootstrap, ctx))
    }

    // Levels, not edges: look at what is, tell what the listener has not heard yet, look again. So a driver that
    // attaches after a restart is told of a join that was long ago, and a missed event costs nothing.
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
        let mut told = false;
        loop {
            let seen = self.cloud.request(|machines| machines.get(attempt).cloned());
            match seen {
                // Not being able to look is no news.
                Err(_) => {}
                Ok(Some(machine)) if session_of(&machine) == *session => {
                    if let (Session::Joined(joined_at), false) = (&machine.session, told) {
                        // The nonce proves that the one who joined was started for this attempt. A real node is
                        // handed it at the start and quotes it; an address would prove nothing.
                        let nonce = nonce(attempt);
                        let member =
                            MemberFacts { member_id: machine.id.0.clone(), nonce, joined_at: *joined_at };
                        tell(NodeObservation::MemberJoined { session: session.clone(), member });
                        told = true;
                    }
                    if !machine.alive {
                        let reason = "its machine died".to_owned();
                        tell(NodeObservation::LeaseLost { lease: machine.id, reason });
                        return Ok(());
                    }
                    if let Session::Exited(status) = machine.session {
                        // Zero is a failure too: a node that ends has not joined.
                        let reason = format!("it exited with status {status}");
                        tell(NodeObservation::BootstrapFailed { session: session.clone(), reason });
                        return Ok(());
                    }
                }
                // Destroyed on request, or never this session's.
                Ok(_) => return Ok(()),
            }
            self.timer.sleep_until(self.timer.now() + Duration::from_millis(100)).await;
        }
    }
}

/// A machine runs one session in its life, so that its name can be derived.
fn session_of(machine: &Machine) -> BootstrapSessionId {
    BootstrapSessionId(format!("{}/session", machine.id))
}

fn is_over(session: &Session) -> bool {
    matches!(session, Session::Exited(_) | Session::Cancelled)
}

fn nonce(attempt: &AttemptKey) -> String {
    AttemptIdentity::derive(attempt, CandidateIndex(0)).nonce
}
