//! Folds what came back into the state. A reported success moves no phase: it only ends the operation, and makes
//! everything read before its end too old to count.

use std::time::SystemTime;

use executor_api::host::{HostErrorKind, HostFailure, HostOperationId, HostReport, LeaseRecord, Settled};
use serde::{Deserialize, Serialize};

use crate::maintenance::plan::BondFlipPlan;
use crate::maintenance::state::{EndedOperation, PendingOperation, Person, PlanState};
use crate::maintenance::step::Effect;

/// What an effect achieved, by its own account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectDone {
    /// A host or a virtual machine was told, or a probe was made.
    Host(HostReport),
    /// An outcome is certain now.
    Settled(Settled),
    /// The lease was taken.
    LeaseAcquired(LeaseRecord),
    /// The hold or the lease was written.
    LockWritten,
}

/// One fact about a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanObservation {
    /// An effect ended.
    Ended {
        /// Which one.
        id: HostOperationId,
        /// How.
        outcome: Result<EffectDone, HostFailure>,
    },
    /// An effect passed its deadline, or its call was lost with the process that made it.
    Lost {
        /// Which one.
        id: HostOperationId,
    },
    /// The effect was recorded and has not left: what was read before it is no ground to act on any more, or its own
    /// deadline has passed.
    NotSent {
        /// Which effect.
        id: HostOperationId,
        /// Why.
        reason: String,
    },
    /// The lease could not be renewed right before an effect. The effect was not sent.
    RenewalFailed {
        /// Which effect.
        id: HostOperationId,
        /// Why.
        reason: String,
    },
    /// An operator lets the plan run.
    Approved(Person),
    /// An operator asks for the way back.
    AbortRequested(Person),
}

/// What a fold did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Folded {
    /// The state changed.
    Applied,
    /// The fact cannot be true of this plan; nothing changed.
    Dropped(Dropped),
}

/// Why a fact was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The operation is not the pending one.
    StaleOperation {
        /// Which one was reported.
        reported: HostOperationId,
        /// Which one is pending.
        pending: Option<HostOperationId>,
    },
    /// It was said before.
    Repeated,
}

/// Folds one fact.
pub fn fold(plan: &BondFlipPlan, state: &mut PlanState, fact: PlanObservation, now: SystemTime) -> Folded {
    let (id, outcome) = match fact {
        PlanObservation::Ended { id, outcome } => (id, outcome),
        PlanObservation::Lost { id } => {
            let message = "its call was given up or lost".to_owned();
            (id, Err(HostFailure { kind: HostErrorKind::Ambiguous, message }))
        }
        PlanObservation::NotSent { id, .. } => {
            let Some(pending) = not_sent(state, id, now) else { return stale(state, id) };
            // What has not left settles nothing, and costs no try of it.
            if matches!(pending.effect, Effect::Settle { .. }) && !pending.effect.raises_fence() {
                state.settles = state.settles.saturating_sub(1);
            }
            return Folded::Applied;
        }
        PlanObservation::RenewalFailed { id, reason } => {
            if not_sent(state, id, now).is_none() {
                return stale(state, id);
            }
            // The lease is another's, as far as can be told.
            state.lease_lost = Some(reason);
            return Folded::Applied;
        }
        PlanObservation::Approved(person) => {
            if state.approval.is_some() {
                return Folded::Dropped(Dropped::Repeated);
            }
            state.approval = Some(person);
            return Folded::Applied;
        }
        PlanObservation::AbortRequested(person) => {
            if state.abort.is_some() {
                return Folded::Dropped(Dropped::Repeated);
            }
            state.abort = Some(person);
            return Folded::Applied;
        }
    };
    let Some(pending) = state.pending.take_if(|pending| pending.effect.id() == id) else {
        return stale(state, id);
    };
    state.fresh_from = now;
    state.settle_until = now.checked_add(plan.pace.settle).unwrap_or(now);
    if pending.effect.raises_fence() {
        fenced(plan, state, &pending.effect, outcome, now);
    } else if let Effect::Settle { operation, .. } = pending.effect {
        settled(plan, state, *operation, outcome, now);
    } else {
        ended(plan, state, pending, outcome, now);
    }
    Folded::Applied
}

fn stale(state: &PlanState, reported: HostOperationId) -> Folded {
    let pending = state.pending.as_ref().map(|pending| pending.effect.id());
    Folded::Dropped(Dropped::StaleOperation { reported, pending })
}

/// The effect never left: nothing is under way, and everything is read anew.
fn not_sent(state: &mut PlanState, id: HostOperationId, now: SystemTime) -> Option<PendingOperation> {
    let pending = state.pending.take_if(|pending| pending.effect.id() == id)?;
    state.fresh_from = now;
    Some(pending)
}

fn ended(
    plan: &BondFlipPlan,
    state: &mut PlanState,
    pending: PendingOperation,
    outcome: Result<EffectDone, HostFailure>,
    now: SystemTime,
) {
    let PendingOperation { effect, deadline } = pending;
    let recorded = deadline.checked_sub(plan.pace.operation_timeout);
    let failure = match (&effect, outcome) {
        (Effect::Lock { .. }, Ok(_)) => None,
        (Effect::Lock { .. }, Err(failure)) => {
            // The records show what came of it; another go waits, so that a refusing lock is not hammered.
            state.not_before = now.checked_add(plan.pace.dwell.min(plan.pace.settle));
            Some(failure)
        }
        (Effect::Host(_) | Effect::Vm(_) | Effect::Settle { .. }, Ok(EffectDone::Host(report))) => {
            reported(state, report, Some(now));
            None
        }
        (Effect::Host(_) | Effect::Vm(_) | Effect::Settle { .. }, Ok(_)) => {
            // An answer to another question proves nothing about this one.
            lost(state, effect, recorded);
            return;
        }
        (Effect::Host(_) | Effect::Vm(_) | Effect::Settle { .. }, Err(failure)) => match failure.kind {
            HostErrorKind::Ambiguous => {
                lost(state, effect, recorded);
                return;
            }
            HostErrorKind::StaleFence { .. } => {
                state.lease_lost = Some(failure.message.clone());
                Some(failure)
            }
            HostErrorKind::Refused | HostErrorKind::Failed | HostErrorKind::Unavailable => Some(failure),
        },
    };
    state.ended.push(EndedOperation { effect, at: now, failure });
}

/// What became of it is to be settled.
fn lost(state: &mut PlanState, effect: Effect, recorded: Option<SystemTime>) {
    state.unsettled = Some(effect);
    state.unsettled_from = recorded;
}

/// A probe's finding is kept, with the time from which on it may have been made; it is judged by the gate.
fn reported(state: &mut PlanState, report: HostReport, made: Option<SystemTime>) {
    match report {
        HostReport::Probed(probe) => {
            state.probed_at = if state.probes.is_empty() { made } else { state.probed_at.min(made) };
            state.probes.push(probe);
        }
        HostReport::Done => {}
    }
}

/// An agent has met the fence, or may not have: then it is told again, after a pause.
fn fenced(
    plan: &BondFlipPlan,
    state: &mut PlanState,
    effect: &Effect,
    outcome: Result<EffectDone, HostFailure>,
    now: SystemTime,
) {
    match outcome {
        // Whatever it says of an operation that was never sent, it said it under the new fence.
        Ok(EffectDone::Settled(_)) => state.fenced.extend(effect.agent()),
        Ok(EffectDone::Host(_) | EffectDone::LeaseAcquired(_) | EffectDone::LockWritten) | Err(_) => {
            if let Err(HostFailure { kind: HostErrorKind::StaleFence { .. }, message }) = outcome {
                state.lease_lost = Some(message);
            }
            state.settles = state.settles.saturating_add(1);
            state.not_before = now.checked_add(plan.pace.dwell);
        }
    }
}

/// Whether an operation was sent under the lease in hand.
fn is_under_the_lease(state: &PlanState, effect: &Effect) -> bool {
    let Effect::Host(operation) = effect else { return false };
    state.lease.as_ref().is_some_and(|lease| lease.fence == operation.fence)
}

fn settled(
    plan: &BondFlipPlan,
    state: &mut PlanState,
    operation: Effect,
    outcome: Result<EffectDone, HostFailure>,
    now: SystemTime,
) {
    match outcome {
        Ok(EffectDone::Settled(Settled::Done(report))) => {
            state.unsettled = None;
            if matches!(report, HostReport::Probed(_)) && !is_under_the_lease(state, &operation) {
                // Of a round that ended with a former lease: as if it had never been made.
                return;
            }
            let recorded = state.unsettled_from;
            reported(state, report, recorded);
            state.ended.push(EndedOperation { effect: operation, at: now, failure: None });
        }
        Ok(EffectDone::Settled(Settled::Failed(message))) => {
            state.unsettled = None;
            let failure = Some(HostFailure { kind: HostErrorKind::Failed, message });
            state.ended.push(EndedOperation { effect: operation, at: now, failure });
        }
        // Certain that nothing happened and nothing will: it may be sent anew.
        Ok(EffectDone::Settled(Settled::NeverBegun)) => state.unsettled = None,
        Ok(EffectDone::Host(_) | EffectDone::LeaseAcquired(_) | EffectDone::LockWritten) | Err(_) => {
            if let Err(HostFailure { kind: HostErrorKind::StaleFence { .. }, message }) = &outcome {
                state.lease_lost = Some(message.clone());
            }
            state.not_before = now.checked_add(plan.pace.dwell);
        }
    }
}
