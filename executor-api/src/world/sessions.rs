//! The session half of a world, with the promises of [`Bootstrapper`] kept.

use async_trait::async_trait;

use super::leases::{flawed, gone};
use super::{OfWorld, SessionState, SessionWorld, Trouble, is_over};
use crate::command::{CreateMode, OperationKind};
use crate::error::ExecutorError;
use crate::executor::{
    Bootstrapper, FoundSession, ObservationSink, OperationContext, StartOutcome, StartRequest, Visibility,
};
use crate::facts::{BootstrapSessionId, Life, Reading};
use crate::identity::{AttemptKey, ProviderName};
use crate::outcome::{NodeObservation, ObservationReport};
use crate::spec::{RunNodeGroupSpec, SpecProblem};

#[async_trait]
impl<W: SessionWorld> Bootstrapper for OfWorld<W> {
    fn name(&self) -> ProviderName {
        self.world.name()
    }

    fn visibility(&self) -> Visibility {
        self.world.visibility()
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        let flaws = self.world.boot_flaws(&group.template);
        if flaws.is_empty() { Ok(()) } else { Err(flaws) }
    }

    async fn start(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError> {
        self.start_or_adopt(ctx, request, mode)
            .await
            .map_err(self.error(OperationKind::StartBootstrap, &ctx.attempt))
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundSession> {
        let as_of = self.timer.now();
        match self.world.session(attempt).await {
            Ok(Some(session)) => {
                let life = if session.state.is_over() { Life::Dead } else { Life::Live };
                Reading::Present { facts: FoundSession { session: session.id }, life, as_of }
            }
            Ok(None) => Reading::Absent { as_of },
            Err(trouble) => Reading::Unknown { reason: trouble.reason(), as_of },
        }
    }

    async fn complete(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        let error = self.error(OperationKind::BootstrapConvergenceObserved, &ctx.attempt);
        if self.runs(&ctx.attempt, session).await.map_err(&error)? {
            self.world.complete(&ctx.attempt).await.map_err(error)?;
        }
        Ok(())
    }

    async fn cancel(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        let error = self.error(OperationKind::CancelBootstrap, &ctx.attempt);
        if self.runs(&ctx.attempt, session).await.map_err(&error)? {
            self.world.stop(&ctx.attempt).await.map_err(error)?;
        }
        Ok(())
    }

    async fn attach(
        &self,
        attempt: &AttemptKey,
        session: &BootstrapSessionId,
        sink: ObservationSink,
    ) -> Result<(), ExecutorError> {
        self.follow(attempt, session, &sink).await;
        Ok(())
    }
}

impl<W: SessionWorld> OfWorld<W> {
    async fn start_or_adopt(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, Trouble> {
        if let Some(flaw) = self.world.boot_flaws(&request.desired.template).pop() {
            return Err(flawed(&flaw));
        }
        let as_of = self.timer.now();
        match self.lease(&ctx.attempt).await? {
            Some(dead) if is_over(&dead) => return Err(gone(&dead)),
            None if !self.may_be_hidden(&request.lease, as_of) => {
                return Err(Trouble::gone(format!("{} is not there any more", request.lease.lease_id)));
            }
            Some(_) | None => {}
        }
        let session = match self.world.session(&ctx.attempt).await? {
            Some(over) if over.state.is_over() => {
                return Err(Trouble::gone(format!("session {} is over", over.id)));
            }
            Some(running) => running,
            None if mode == CreateMode::AdoptOnly => return Ok(StartOutcome::Absent { as_of }),
            None => {
                self.starting(&ctx.attempt);
                let session = self.world.start(ctx, request).await?;
                // It began some time during the call.
                self.starting(&ctx.attempt);
                session
            }
        };
        Ok(StartOutcome::Started { session: session.id })
    }

    /// Whether the attempt's session is this one, and not over. One that was started a moment ago may not show yet,
    /// and is not taken for one that is not there.
    async fn runs(&self, attempt: &AttemptKey, session: &BootstrapSessionId) -> Result<bool, Trouble> {
        let as_of = self.timer.now();
        let seen = self.world.session(attempt).await?;
        if seen.is_none() && self.session_may_be_hidden(attempt, as_of) {
            return Err(Trouble::ambiguous(format!("{session} is too young to be seen; try again")));
        }
        Ok(seen.is_some_and(|seen| seen.id == *session && !seen.state.is_over()))
    }

    /// Levels, not edges: looks at what is, tells what has not been told, looks again. So who follows after a restart
    /// is told of a join that was long ago, and a missed event costs nothing. What cannot be seen is no news.
    async fn follow(&self, attempt: &AttemptKey, session: &BootstrapSessionId, sink: &ObservationSink) {
        let tell = |observation| {
            let (node, attempt) = (attempt.node.clone(), attempt.attempt);
            sink.send(ObservationReport { node, attempt, observation });
        };
        let began = self.timer.now();
        let all_shows_from = began.checked_add(self.world.visibility().listing_lag).unwrap_or(began);
        let (mut seen_lease, mut seen_session, mut told_join) = (false, false, false);
        loop {
            let as_of = self.timer.now();
            if let (Ok(now), Ok(lease)) = (self.world.session(attempt).await, self.lease(attempt).await) {
                let now = now.filter(|now| now.id == *session).map(|now| now.state);
                seen_lease |= lease.is_some();
                seen_session |= now.is_some();
                if let (Some(SessionState::Joined(member)), false) = (&now, told_join) {
                    let member = member.clone();
                    tell(NodeObservation::MemberJoined { session: session.clone(), member });
                    told_join = true;
                }
                if let Some(dead) = lease.as_ref().filter(|lease| is_over(lease)) {
                    let lease = dead.lease.lease_id.clone();
                    let reason = dead.reason.clone().unwrap_or_else(|| "it is dead".to_owned());
                    return tell(NodeObservation::LeaseLost { lease, reason });
                }
                if let Some(SessionState::Failed(reason)) = now {
                    return tell(NodeObservation::BootstrapFailed { session: session.clone(), reason });
                }
                // Destroyed or cancelled on request, or never this attempt's: nothing to tell.
                let hidden = as_of < all_shows_from;
                let left = (lease.is_none() && (seen_lease || !hidden))
                    || (now.is_none() && (seen_session || !hidden));
                if left || now == Some(SessionState::Stopped) {
                    return;
                }
            }
            let next = self.timer.now().checked_add(self.world.pace());
            self.timer.sleep_until(next.unwrap_or(as_of)).await;
        }
    }
}
