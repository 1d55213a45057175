//! Carries one recorded effect out: renews first, looks at the clock once more, keeps the lease alive meanwhile, and
//! comes back by the deadline with what is to be folded.

use std::time::{Duration, SystemTime};

use executor_api::host::{
    FenceValue, HostError, HostErrorKind, HostFailure, LeaseRecord, LockError, PlanHold,
};
use reconciler_core::maintenance::{BondFlipPlan, Effect, EffectDone, LockAction, PlanObservation};

use super::hands::Hands;
use super::keeper::Keeper;
use crate::dispatch::contained::{Ended, contained};

/// How much longer than its own deadline a call is waited for.
const GRACE: Duration = Duration::from_secs(5);

type Outcome = Result<EffectDone, HostFailure>;

/// On what an effect may leave.
pub(super) struct Terms {
    /// When the look began that it rests on.
    pub(super) looked: SystemTime,
    /// When it is given up.
    pub(super) deadline: SystemTime,
    /// The lease as it was read.
    pub(super) lease: Option<LeaseRecord>,
}

impl Terms {
    /// Why it may not leave any more: storing the record and renewing the lease may have taken any time.
    fn lapsed(&self, plan: &BondFlipPlan, now: SystemTime) -> Option<String> {
        if now >= self.deadline {
            return Some("its deadline has passed".to_owned());
        }
        let oldest = self.looked.checked_add(plan.pace.evidence_max_age);
        oldest.is_some_and(|oldest| now > oldest).then(|| {
            let age = now.duration_since(self.looked).unwrap_or_default();
            format!("the last look was {} s ago, and is no ground to act on", age.as_secs())
        })
    }
}

/// Sends, or finds that it must not.
pub(super) async fn send(
    hands: &Hands,
    keeper: &mut Keeper,
    plan: &BondFlipPlan,
    effect: &Effect,
    terms: Terms,
) -> PlanObservation {
    let id = effect.id();
    if let Some(fence) = fence(effect)
        && let Err(reason) = keeper.renew_for(hands, fence).await
    {
        return PlanObservation::RenewalFailed { id, reason };
    }
    if let Some(reason) = terms.lapsed(plan, hands.timer.now()) {
        return PlanObservation::NotSent { id, reason };
    }
    let Terms { deadline, lease, .. } = terms;
    let call = carry(hands.clone(), plan.clone(), keeper.me.clone(), effect.clone(), lease, deadline);
    let end = deadline.checked_add(GRACE).unwrap_or(deadline);
    let mut call = std::pin::pin!(contained(call, Some(hands.timer.sleep_until(end))));
    let ended = loop {
        let Some(due) = keeper.due() else { break call.as_mut().await };
        tokio::select! {
            biased;
            ended = call.as_mut() => break ended,
            () = hands.timer.sleep_until(due) => {
                // A failure ends nothing here: the fence protects what is under way, and the next pass reads.
                let _ = keeper.renew(hands).await;
            }
        }
    };
    match ended {
        Ended::Returned(outcome) => {
            if let Ok(EffectDone::LeaseAcquired(lease)) = &outcome {
                keeper.took(lease.clone(), hands.timer.now());
            }
            PlanObservation::Ended { id, outcome }
        }
        Ended::Panicked(message) => {
            let message = format!("{effect}: the implementation panicked: {message}");
            PlanObservation::Ended {
                id,
                outcome: Err(HostFailure { kind: HostErrorKind::Ambiguous, message }),
            }
        }
        Ended::GaveUp => PlanObservation::Lost { id },
    }
}

/// The fence that an effect is sent under. Lock actions carry their own condition.
fn fence(effect: &Effect) -> Option<FenceValue> {
    match effect {
        Effect::Host(operation) => Some(operation.fence),
        Effect::Vm(operation) => Some(operation.fence),
        Effect::Settle { fence, .. } => Some(*fence),
        Effect::Lock { .. } => None,
    }
}

async fn carry(
    hands: Hands,
    plan: BondFlipPlan,
    me: executor_api::host::LeaseHolder,
    effect: Effect,
    lease: Option<LeaseRecord>,
    deadline: SystemTime,
) -> Outcome {
    match effect {
        Effect::Host(operation) => {
            hands.hosts.apply(&operation, deadline).await.map(EffectDone::Host).map_err(told)
        }
        Effect::Vm(operation) => {
            hands.vms.apply(&operation, deadline).await.map(EffectDone::Host).map_err(told)
        }
        Effect::Settle { operation, fence, .. } => {
            let settled = match *operation {
                Effect::Host(operation) => hands.hosts.settle(&operation, fence, deadline).await,
                Effect::Vm(operation) => hands.vms.settle(&operation, fence, deadline).await,
                other @ (Effect::Settle { .. } | Effect::Lock { .. }) => {
                    let message =
                        format!("{other}: only what was sent to a host or a machine can be settled");
                    return Err(HostFailure { kind: HostErrorKind::Refused, message });
                }
            };
            settled.map(EffectDone::Settled).map_err(told)
        }
        Effect::Lock { action, .. } => lock(&hands, &plan, &me, action, lease).await,
    }
}

async fn lock(
    hands: &Hands,
    plan: &BondFlipPlan,
    me: &executor_api::host::LeaseHolder,
    action: LockAction,
    lease: Option<LeaseRecord>,
) -> Outcome {
    let lock = &hands.lock;
    let ours = lease.filter(|lease| lease.holder == *me).ok_or_else(|| HostFailure {
        kind: HostErrorKind::Refused,
        message: "the lock's record does not show the lease as ours; read it again".to_owned(),
    });
    let written = match action {
        LockAction::AcquireLease { seen } => {
            let taken = lock.acquire(me, plan.pace.lease_ttl, seen.as_ref()).await;
            return taken.map(EffectDone::LeaseAcquired).map_err(|error| refused(&error));
        }
        LockAction::PlaceHold => {
            let hold = PlanHold { plan: plan.uid.clone(), since: hands.timer.now() };
            lock.place_hold(&ours?, &hold).await
        }
        LockAction::LiftHold => lock.lift_hold(&ours?, &plan.uid).await,
        LockAction::ReleaseLease => lock.release(&ours?).await,
    };
    written.map(|()| EffectDone::LockWritten).map_err(|error| refused(&error))
}

#[expect(clippy::needless_pass_by_value, reason = "handed to map_err")]
fn told(error: HostError) -> HostFailure {
    error.failure()
}

fn refused(error: &LockError) -> HostFailure {
    let kind = match error {
        LockError::Moved { .. } | LockError::OtherPlan { .. } => HostErrorKind::Refused,
        LockError::Unavailable { .. } => HostErrorKind::Unavailable,
        LockError::Ambiguous { .. } => HostErrorKind::Ambiguous,
    };
    HostFailure { kind, message: error.to_string() }
}
