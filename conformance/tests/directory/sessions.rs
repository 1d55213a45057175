//! The session half. A session is one file, made with an exclusive create; what it says is how the session is.

use std::fs;
use std::io::{ErrorKind, Write as _};

use async_trait::async_trait;
use executor_api::world::{Session, SessionState, SessionWorld, Trouble};
use executor_api::{
    AttemptKey, BootstrapSessionId, MemberFacts, NodeTemplate, OperationContext, SpecProblem, StartRequest,
};

use crate::site::Directory;

#[async_trait]
impl SessionWorld for Directory {
    fn boot_flaws(&self, template: &NodeTemplate) -> Vec<SpecProblem> {
        match template.boot.settings.as_str() {
            Some(_) => Vec::new(),
            None => vec![SpecProblem::new("/boot", "write `joined`, `running` or `exited N`")],
        }
    }

    async fn session(&self, attempt: &AttemptKey) -> Result<Option<Session>, Trouble> {
        let path = self.place(attempt).join("session");
        let Some(text) = self.read(&path)? else { return Ok(None) };
        let state = match text.as_str() {
            "cancelled" => SessionState::Stopped,
            exited if exited.starts_with("exited") => SessionState::Failed(exited.to_owned()),
            joined if joined.starts_with("joined") => SessionState::Joined(MemberFacts {
                member_id: attempt.identity().resource_name,
                nonce: attempt.identity().nonce,
                joined_at: fs::metadata(path)?.modified()?,
            }),
            _ => SessionState::Running,
        };
        let id = BootstrapSessionId(format!("{}/session", attempt.identity().resource_name));
        Ok(Some(Session { id, state }))
    }

    // Of two at once only one makes the file; the other adopts it.
    async fn start(&self, ctx: &OperationContext, request: &StartRequest) -> Result<Session, Trouble> {
        let path = self.place(&ctx.attempt).join("session");
        let state = request.desired.template.boot.settings.as_str().unwrap_or("running");
        match fs::File::options().write(true).create_new(true).open(path) {
            Ok(mut file) => file.write_all(state.as_bytes())?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
        let started = self.session(&ctx.attempt).await?;
        started.ok_or_else(|| Trouble::ambiguous("its session was removed as soon as it was started"))
    }

    async fn stop(&self, attempt: &AttemptKey) -> Result<(), Trouble> {
        Ok(fs::write(self.place(attempt).join("session"), "cancelled")?)
    }
}
