//! The session half: what runs on a machine. In a provider whose machines bring their own way in (SSH, an agent) this
//! half is one of the bootstrappers that exist already.

use async_trait::async_trait;
use executor_api::spec::unknown_keys;
use executor_api::world::{Session, SessionState, SessionWorld, Trouble};
use executor_api::{
    AttemptKey, BootstrapSessionId, LeaseId, MemberFacts, NodeTemplate, OperationContext, SpecProblem,
    StartRequest,
};
use serde_json::Value;

use crate::Template;

#[async_trait]
impl SessionWorld for Template {
    fn boot_flaws(&self, template: &NodeTemplate) -> Vec<SpecProblem> {
        unknown_keys("/boot", &template.boot.settings, &["joins", "exits"])
    }

    async fn session(&self, attempt: &AttemptKey) -> Result<Option<Session>, Trouble> {
        self.cloud.request(|machines| {
            let machine = machines.get(attempt)?;
            Some(of(&machine.id, machine.session.clone()?))
        })
    }

    // As for `make`: one step, and whoever comes second is given what runs. A real node is handed the nonce and quotes
    // it when it joins, which proves that it was started for this attempt; an address would prove nothing.
    async fn start(&self, ctx: &OperationContext, request: &StartRequest) -> Result<Session, Trouble> {
        let settings = &request.desired.template.boot.settings;
        let (joined_at, nonce) = (self.timer.now(), ctx.identity().nonce);
        let state = match settings.get("exits").and_then(Value::as_i64) {
            // Zero is a failure too: a node that ends has not joined.
            Some(status) => SessionState::Failed(format!("it exited with status {status}")),
            None if settings.get("joins") != Some(&Value::Bool(true)) => SessionState::Running,
            None => {
                SessionState::Joined(MemberFacts { member_id: ctx.attempt.to_string(), nonce, joined_at })
            }
        };
        let started = self.cloud.request(|machines| {
            let machine = machines.get_mut(&ctx.attempt)?;
            Some(of(&machine.id, machine.session.get_or_insert(state).clone()))
        })?;
        started.ok_or_else(|| Trouble::gone("its machine was removed"))
    }

    async fn stop(&self, attempt: &AttemptKey) -> Result<(), Trouble> {
        self.cloud.request(|machines| {
            if let Some(machine) = machines.get_mut(attempt) {
                machine.session = Some(SessionState::Stopped);
            }
        })
    }
}

/// A machine runs one session in its life, so that its name can be derived.
fn of(machine: &LeaseId, state: SessionState) -> Session {
    Session { id: BootstrapSessionId(format!("{machine}/session")), state }
}
