//! Keeps, takes and gives up the lock. A lease lost by this process halts the plan; a fresh process takes over
//! only what its own watch shows to be free.

use executor_api::host::{LockRecords, Takeover};

use crate::maintenance::advance::{Next, OnNo, require};
use crate::maintenance::escalation::escalate;
use crate::maintenance::gate::{Gathering, Look, lock};
use crate::maintenance::step::{Effect, HaltReason, LockAction, Move, Step};
use crate::maintenance::verdict::{Finding, FindingKind, Subject};

/// The lease is ours and the hold is this plan's, or the step that makes it so.
pub(crate) fn ours(look: Look<'_>) -> Result<(), Box<Step>> {
    if let Some(reason) = &look.state.lease_lost {
        return Err(Box::new(Step::halt(HaltReason::LeaseLost(reason.clone()))));
    }
    let records = records(look)?;
    hold_stands(look, records)?;
    lease_stands(look, records)
}

fn records(look: Look<'_>) -> Result<&LockRecords, Box<Step>> {
    let mut gathering = Gathering::new(look);
    match lock::records(&mut gathering) {
        Some(records) => Ok(records),
        None => match require(look, "lock", gathering.verdict("lock"), OnNo::Halt) {
            Err(step) => Err(step),
            // Not reached: a verdict without a reading is a "no".
            Ok(_) => Err(Box::new(Step::wait(None, "the lock was not read"))),
        },
    }
}

/// The lease is ours, or the step that makes it so, whatever became of the hold.
pub(crate) fn in_hand(look: Look<'_>) -> Result<(), Box<Step>> {
    if let Some(reason) = &look.state.lease_lost {
        return Err(Box::new(Step::halt(HaltReason::LeaseLost(reason.clone()))));
    }
    lease_stands(look, records(look)?)
}

/// Whether the lock's records show the cluster held for this plan, noted or not.
pub(crate) fn is_held_for_us(look: Look<'_>) -> Result<bool, Box<Step>> {
    Ok(records(look)?.hold.as_ref().is_some_and(|hold| hold.plan == look.plan.uid))
}

fn hold_stands(look: Look<'_>, records: &LockRecords) -> Result<(), Box<Step>> {
    let state = look.state;
    let finding =
        |what: String| HaltReason::World(vec![Finding::new(FindingKind::Negative, Subject::Lock, what)]);
    match &records.hold {
        Some(hold) if hold.plan == look.plan.uid => Ok(()),
        Some(hold) if state.hold_placed && !state.hold_lifted => {
            Err(Box::new(escalate(look, finding(format!("the cluster is held for plan {}", hold.plan)))))
        }
        Some(_) if state.hold_lifted => Ok(()),
        Some(hold) => Err(Box::new(Step::wait(None, format!("the cluster is held for plan {}", hold.plan)))),
        None if state.hold_placed && !state.hold_lifted => {
            let lifting = state
                .ended
                .iter()
                .any(|ended| matches!(&ended.effect, Effect::Lock { action: LockAction::LiftHold, .. }));
            if lifting {
                return Err(Box::new(Step::go(Move::NoteHoldLifted, "no hold is left")));
            }
            Err(Box::new(escalate(look, finding("the hold is gone; nobody here lifted it".to_owned()))))
        }
        None => Ok(()),
    }
}

fn lease_stands(look: Look<'_>, records: &LockRecords) -> Result<(), Box<Step>> {
    let state = look.state;
    let me = &look.observed.me;
    if let Some(lease) = records.lease.as_ref().filter(|lease| lease.holder == *me) {
        let known = state.lease.as_ref();
        if known.is_some_and(|known| known.holder == lease.holder && known.fence == lease.fence) {
            return Ok(());
        }
        return Err(Box::new(Step::go(Move::AdoptLease(lease.clone()), "the lease is ours")));
    }
    if state.hold_lifted {
        // Giving up: no lease of ours is what is wanted.
        return Ok(());
    }
    if state.lease.as_ref().is_some_and(|known| known.holder == *me) {
        let holder =
            records.lease.as_ref().map_or_else(|| "nobody".to_owned(), |lease| lease.holder.to_string());
        return Err(Box::new(Step::halt(HaltReason::LeaseLost(format!("it is held by {holder}")))));
    }
    let seen = match (&look.observed.takeover, &records.lease) {
        (Takeover::Free, None) => None,
        (Takeover::Expired { version }, Some(lease)) if lease.version == *version => Some(version.clone()),
        (Takeover::Held { remaining }, _) => {
            let until = look.now.checked_add(*remaining);
            return Err(Box::new(Step::wait(until, "the lease is held by another")));
        }
        // The record moved between the watch and the reading.
        (Takeover::Free | Takeover::Expired { .. }, _) => {
            return Err(Box::new(Step::wait(None, "the lease changed while it was read")));
        }
    };
    Err(Box::new(send(look, LockAction::AcquireLease { seen }, "the lease is free")))
}

/// Sends a lock action. These may be sent again: each is conditional on what was read.
pub(crate) fn send(look: Look<'_>, action: LockAction, why: &str) -> Step {
    Step::send(Effect::Lock { id: look.state.next_id(), action }, why)
}

/// Lifts the hold, then gives the lease up. Goes by what the lock's records show, so that a hold whose placing was
/// never confirmed is lifted too.
pub(crate) fn give_up(look: Look<'_>, why: &str) -> Next {
    let state = look.state;
    let records = records(look)?;
    if records.hold.as_ref().is_some_and(|hold| hold.plan == look.plan.uid) {
        in_hand(look)?;
        return Ok(send(look, LockAction::LiftHold, why));
    }
    if !state.hold_lifted {
        return Ok(Step::go(Move::NoteHoldLifted, "no hold of ours is there"));
    }
    match &records.lease {
        Some(lease) if lease.holder == look.observed.me => Ok(send(look, LockAction::ReleaseLease, why)),
        Some(_) | None => Ok(Step::go(Move::NoteLeaseReleased, "no lease of ours is left")),
    }
}
