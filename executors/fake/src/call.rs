//! One call on its way through the world: it arrives, may suffer a fault, sends its request, waits for the
//! answer until its deadline, and takes the request back if it is dropped. Shared by both traits.

use std::time::{Duration, SystemTime};

use executor_api::{ExecutorError, ExecutorErrorKind, OperationContext, OperationKind, RejectReason};

use crate::faults::{CallKind, Fault, Silence};
use crate::world::FakeWorld;
use crate::world::state::{Act, Answer, later};

/// A call that has arrived and was neither refused nor lost on the way.
pub(crate) struct Call<'a> {
    world: &'a FakeWorld,
    ctx: &'a OperationContext,
    effect: OperationKind,
    pub(crate) fault: Option<Fault>,
}

impl<'a> Call<'a> {
    /// Lets a call arrive. Faults that keep it from doing anything end it here.
    pub(crate) async fn arrive(
        world: &'a FakeWorld,
        ctx: &'a OperationContext,
        kind: CallKind,
        effect: OperationKind,
    ) -> Result<Self, ExecutorError> {
        let fault = world.arrive(kind, Some(&ctx.attempt));
        let call = Self { world, ctx, effect, fault };
        let refused = match fault {
            Some(Fault::NotActed(silence)) => {
                world.fire(Fault::NotActed(silence));
                return Err(call.silence(silence).await);
            }
            Some(Fault::Panics) => {
                world.fire(Fault::Panics);
                panic!("the fake executor was told to panic in {effect} for {}", ctx.attempt);
            }
            Some(Fault::Gone) => {
                world.enter(|state| state.spend(&ctx.attempt));
                call.error(ExecutorErrorKind::Gone, "was reclaimed by the provider")
            }
            Some(Fault::Rejected(reason)) => {
                call.error(ExecutorErrorKind::Rejected(reason), "was refused, as scripted")
            }
            Some(Fault::Throttled { retry_after }) => {
                call.error(ExecutorErrorKind::Throttled { retry_after }, "came too soon after others")
            }
            Some(Fault::Expired) => {
                let kind = ExecutorErrorKind::Rejected(RejectReason::Authorisation);
                call.error(kind, "came with credentials that have expired; renew them")
            }
            Some(Fault::Unavailable) => call.error(ExecutorErrorKind::Unavailable, "did not get through"),
            Some(Fault::Unknown) => {
                call.error(ExecutorErrorKind::Unavailable, "cannot be answered: the world cannot be read")
            }
            Some(Fault::Slow(_)) => {
                call.fire();
                return Ok(call);
            }
            _ => return Ok(call),
        };
        call.fire();
        Err(refused)
    }

    /// Waits for something that changes nothing.
    pub(crate) async fn pause(&self, takes: Duration) -> Result<(), ExecutorError> {
        self.pause_until(later(self.world.now(), self.slowed(takes))).await
    }

    /// Waits until then, or until the deadline and fails.
    pub(crate) async fn pause_until(&self, until: SystemTime) -> Result<(), ExecutorError> {
        let deadline = self.ctx.deadline;
        if until > self.world.now() {
            self.world.timer().sleep_until(until.min(deadline)).await;
        }
        if until > deadline {
            return Err(self.error(ExecutorErrorKind::Ambiguous, "got no answer before its deadline"));
        }
        Ok(())
    }

    /// Sends a request that arrives after `takes`, and waits for what comes of it.
    pub(crate) async fn act(&self, takes: Duration, act: Act) -> Result<Answer, ExecutorError> {
        if let Some(Fault::LandsLate { after, silence }) = self.fault {
            let after = after.min(self.world.enter(|state| state.behaviour.visibility.late_landing));
            let late = Late { world: self.world.clone(), act: Some(act), after };
            self.fire();
            let error = self.silence(silence).await;
            drop(late);
            return Err(error);
        }
        let at = later(self.world.now(), self.slowed(takes));
        let ticket = self.world.enter(|state| state.submit(at, act));
        let sent = Sent { world: self.world.clone(), ticket };
        self.pause_until(at).await?;
        let answer = self.world.enter(|state| state.answer(ticket));
        drop(sent);
        answer.ok_or_else(|| self.error(ExecutorErrorKind::Ambiguous, "ended before its request arrived"))
    }

    /// The truth is about to be told; unless it gets lost.
    pub(crate) async fn tell<T>(&self, truth: T) -> Result<T, ExecutorError> {
        match self.fault {
            Some(Fault::AnswerLost(silence)) => {
                self.fire();
                Err(self.silence(silence).await)
            }
            _ => Ok(truth),
        }
    }

    pub(crate) fn error(&self, kind: ExecutorErrorKind, what: &str) -> ExecutorError {
        ExecutorError::new(kind, self.effect, format!("the call for {} {what}", self.ctx.attempt))
    }

    /// Counts this call's fault as having really happened.
    pub(crate) fn fire(&self) {
        if let Some(fault) = self.fault {
            self.world.fire(fault);
        }
    }

    /// `takes`, or longer if the call is slow.
    pub(crate) fn slowed(&self, takes: Duration) -> Duration {
        match self.fault {
            Some(Fault::Slow(times)) => takes.saturating_mul(times),
            _ => takes,
        }
    }

    async fn silence(&self, silence: Silence) -> ExecutorError {
        match silence {
            Silence::Hangs => std::future::pending().await,
            Silence::Ambiguous => {
                self.error(ExecutorErrorKind::Ambiguous, "lost its connection; look the attempt up again")
            }
        }
    }
}

/// A request on its way; dropping it gives it up.
struct Sent {
    world: FakeWorld,
    ticket: u64,
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.world.enter(|state| state.give_up(self.ticket));
    }
}

/// A request that arrives only after nobody waits for it any more.
struct Late {
    world: FakeWorld,
    act: Option<Act>,
    after: Duration,
}

impl Drop for Late {
    fn drop(&mut self) {
        if let Some(act) = self.act.take() {
            self.world.enter(|state| state.land_late(act, later(state.now, self.after)));
        }
    }
}
