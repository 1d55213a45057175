//! How sessions are spoilt.

use std::time::Duration;

use async_trait::async_trait;
use executor_api::{
    AttemptKey, BootstrapSessionId, Bootstrapper, CreateMode, ExecutorError, FoundSession, NodeObservation,
    ObservationSink, OperationContext, OperationKind, ProviderName, Reading, RunNodeGroupSpec, SecretRef,
    SpecProblem, StartOutcome, StartRequest, Visibility,
};

use super::Saboteur;
use crate::how::How;

#[async_trait]
impl Bootstrapper for Saboteur {
    fn name(&self) -> ProviderName {
        Bootstrapper::name(&self.inner)
    }

    fn visibility(&self) -> Visibility {
        if self.is(How::DeclaresNoDelay) {
            return Visibility::default();
        }
        Bootstrapper::visibility(&self.inner)
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        Bootstrapper::validate(&self.inner, group).await
    }

    async fn start(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError> {
        if self.is(How::ForgetsItsSessions) {
            if mode == CreateMode::AdoptOnly {
                return Ok(StartOutcome::Absent { as_of: self.world.now() });
            }
            let session = self.world.plant_session(&ctx.attempt, &request.lease.lease_id);
            tokio::time::sleep(Duration::from_millis(500)).await;
            return Ok(StartOutcome::Started { session });
        }
        let over = self.world.sessions().into_iter().find(|truth| truth.owner == ctx.attempt);
        if let (Some(over), true) = (over, self.is(How::AdoptsFailedSessions)) {
            return Ok(StartOutcome::Started { session: over.id });
        }
        if self.is(How::TellsSecrets) {
            let settings = &request.desired.template.boot.settings;
            let reference = settings.get("secret").cloned().map(serde_json::from_value::<SecretRef>);
            if let Some(Ok(reference)) = reference {
                let secret = reference.resolve().unwrap();
                secret.expose().clone_into(&mut self.secret.lock().unwrap());
            }
        }
        let mode = if self.is(How::StartsUnderAdoptOnly) { CreateMode::CreateOrAdopt } else { mode };
        self.inner.start(ctx, request, mode).await
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundSession> {
        Bootstrapper::find(&self.inner, attempt).await
    }

    async fn complete(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        if self.is(How::CompletingEndsTheNode) {
            for lease in self.world.leases_of(&ctx.attempt) {
                self.world.kill(&lease.id, "its session ended");
            }
        }
        let joined = self.world.sessions().iter().any(|truth| truth.id == *session && truth.runs());
        if self.is(How::CompletesOnlyOnce) && !joined {
            return Err(Self::gone(OperationKind::BootstrapConvergenceObserved));
        }
        self.inner.complete(ctx, session).await
    }

    async fn cancel(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        let runs = self.world.sessions().iter().any(|truth| truth.id == *session && truth.runs());
        match self.how {
            How::AbsentIsAnError if !runs => Err(Self::gone(OperationKind::CancelBootstrap)),
            How::CancelOnlySaysSo => Ok(()),
            How::DestroysBeforeCancelling => {
                for lease in self.world.leases_of(&ctx.attempt) {
                    self.world.kill(&lease.id, "destroyed before its session was cancelled");
                }
                self.inner.cancel(ctx, session).await
            }
            How::CancelsWhateverRuns => {
                let running = self.world.sessions_of(&ctx.attempt).into_iter().next();
                let session = running.map_or_else(|| session.clone(), |truth| truth.id);
                self.inner.cancel(ctx, &session).await
            }
            How::DestroysForAnybody => {
                let mut ctx = ctx.clone();
                let owner = self.world.sessions().into_iter().find(|truth| truth.id == *session);
                ctx.attempt = owner.map_or(ctx.attempt, |truth| truth.owner);
                self.inner.cancel(&ctx, session).await
            }
            _ => self.inner.cancel(ctx, session).await,
        }
    }

    async fn attach(
        &self,
        attempt: &AttemptKey,
        session: &BootstrapSessionId,
        sink: ObservationSink,
    ) -> Result<(), ExecutorError> {
        let (how, world, owner, named) = (self.how, self.world.clone(), attempt.clone(), session.clone());
        let secret = self.secret.lock().unwrap().clone();
        let mut session = session.clone();
        if let (How::FollowsWhateverRuns, Some(truth)) = (how, self.world.sessions_of(attempt).first()) {
            session = truth.id.clone();
        }
        let session = &session;
        let joined_before =
            self.world.sessions().iter().any(|truth| truth.id == *session && truth.member.is_some());
        let spoiled = ObservationSink::new(move |mut report| {
            match &mut report.observation {
                NodeObservation::BootstrapFailed { reason, .. }
                    if how == How::ExitZeroIsNoFailure && reason.contains("status 0") =>
                {
                    return;
                }
                NodeObservation::BootstrapFailed { .. } if how == How::NoExitIsFailure => return,
                NodeObservation::BootstrapFailed { reason, .. } if how == How::TellsSecrets => {
                    reason.extend(["; its token was ", &secret]);
                }
                NodeObservation::LeaseLost { .. }
                    if how == How::ForgetsDeathDuringTheBoot
                        && world.sessions().iter().all(|s| s.owner != owner || s.member.is_none()) =>
                {
                    return;
                }
                NodeObservation::MemberJoined { session, .. } if how == How::FollowsWhateverRuns => {
                    session.clone_from(&named);
                }
                NodeObservation::MemberJoined { .. }
                    if how == How::NeverTellsOfJoins || (how == How::TellsOnlyEdges && joined_before) =>
                {
                    return;
                }
                NodeObservation::BootstrapProgress { sequence, .. } if how == How::NumbersDownwards => {
                    *sequence = 100 - *sequence;
                }
                NodeObservation::LeaseLost { .. } if how == How::ForgetsLossAfterTheJoin => return,
                NodeObservation::MemberJoined { member, .. } if how == How::SharesOneNonce => {
                    "the-run's-nonce".clone_into(&mut member.nonce);
                }
                _ => {}
            }
            sink.send(report);
        });
        self.inner.attach(attempt, session, spoiled).await
    }
}
