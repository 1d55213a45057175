//! The bootstrap half. A session is one file, made with an exclusive create; what it says is how the session is.

use std::fs;
use std::io::{self, Write as _};
use std::time::Duration;

use async_trait::async_trait;
use executor_api::{
    AttemptKey, BootstrapSessionId, Bootstrapper, CreateMode, ExecutorError, FoundSession, Life, MemberFacts,
    NodeObservation, ObservationReport, ObservationSink, OperationContext, OperationKind, ProviderName,
    Reading, RunNodeGroupSpec, SpecProblem, StartOutcome, StartRequest, Visibility,
};

use crate::site::{Directory, Seen, doubtful, gone, identity, provider};

#[async_trait]
impl Bootstrapper for Directory {
    fn name(&self) -> ProviderName {
        provider()
    }

    fn visibility(&self) -> Visibility {
        Visibility::default()
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        match group.template.boot.settings.as_str() {
            Some(_) => Ok(()),
            None => Err(vec![SpecProblem::new("/boot", "write `joined`, `running` or `exited N`")]),
        }
    }

    async fn start(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError> {
        let (key, effect) = (&ctx.attempt, OperationKind::StartBootstrap);
        if self.look(key).map_err(doubtful(effect, key))? != Seen::Alive {
            return Err(gone(effect, key, "there is no directory to start in"));
        }
        let started = || Ok(StartOutcome::Started { session: session_id(key) });
        match self.session(key).map_err(doubtful(effect, key))? {
            Some(state) if is_over(&state) => Err(gone(effect, key, "its session is over")),
            Some(_) => started(),
            None if mode == CreateMode::AdoptOnly => Ok(StartOutcome::Absent { as_of: self.timer.now() }),
            None => {
                let state = request.desired.template.boot.settings.as_str().unwrap_or("running");
                self.begin(key, state).map_err(doubtful(effect, key))?;
                started()
            }
        }
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundSession> {
        let as_of = self.timer.now();
        match self.session(attempt) {
            Err(error) => Reading::Unknown { reason: error.to_string(), as_of },
            Ok(None) => Reading::Absent { as_of },
            Ok(Some(state)) => {
                let life = if is_over(&state) { Life::Dead } else { Life::Live };
                Reading::Present { facts: FoundSession { session: session_id(attempt) }, life, as_of }
            }
        }
    }

    async fn complete(&self, _: &OperationContext, _: &BootstrapSessionId) -> Result<(), ExecutorError> {
        Ok(())
    }

    async fn cancel(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        let (key, effect) = (&ctx.attempt, OperationKind::CancelBootstrap);
        let runs = self.session(key).map_err(doubtful(effect, key))?.is_some_and(|state| !is_over(&state));
        if runs && *session == session_id(key) {
            fs::write(self.place(key).join("session"), "cancelled").map_err(doubtful(effect, key))?;
        }
        Ok(())
    }

    async fn attach(
        &self,
        attempt: &AttemptKey,
        session: &BootstrapSessionId,
        sink: ObservationSink,
    ) -> Result<(), ExecutorError> {
        if *session != session_id(attempt) {
            return Ok(());
        }
        let tell = |observation| {
            let (node, attempt) = (attempt.node.clone(), attempt.attempt);
            sink.send(ObservationReport { node, attempt, observation });
        };
        let mut told = false;
        loop {
            // What cannot be read is no news.
            if let (Ok(seen), Ok(state)) = (self.look(attempt), self.session(attempt)) {
                let state = state.unwrap_or_default();
                if state.starts_with("joined") && !told {
                    let member = MemberFacts {
                        member_id: self.facts(attempt).lease_id.0,
                        nonce: identity(attempt).nonce,
                        joined_at: self.timer.now(),
                    };
                    tell(NodeObservation::MemberJoined { session: session.clone(), member });
                    told = true;
                }
                match seen {
                    Seen::Nothing => return Ok(()),
                    Seen::Dead => {
                        let lease = self.facts(attempt).lease_id;
                        tell(NodeObservation::LeaseLost { lease, reason: "marked as dead".to_owned() });
                        return Ok(());
                    }
                    Seen::Alive if state.starts_with("exited") => {
                        tell(NodeObservation::BootstrapFailed { session: session.clone(), reason: state });
                        return Ok(());
                    }
                    Seen::Alive if state == "cancelled" => return Ok(()),
                    Seen::Alive => {}
                }
            }
            self.timer.sleep_until(self.timer.now() + Duration::from_millis(100)).await;
        }
    }
}

impl Directory {
    /// Of two at once only one makes the file; the other adopts it.
    fn begin(&self, key: &AttemptKey, state: &str) -> io::Result<()> {
        let file = fs::File::options().write(true).create_new(true).open(self.place(key).join("session"));
        match file {
            Ok(mut file) => file.write_all(state.as_bytes()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn session_id(key: &AttemptKey) -> BootstrapSessionId {
    BootstrapSessionId(format!("{}/session", identity(key).resource_name))
}

pub(crate) fn is_over(state: &str) -> bool {
    state == "cancelled" || state.starts_with("exited")
}
