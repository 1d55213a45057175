//! The way back: bonds toward the mode they had and no other, one host at a time, the reconnect through the same
//! gates as forward. What would halt the forward path goes to a person here.

use std::collections::BTreeSet;

use crate::maintenance::advance::{Next, OnNo, forward, lease, require, resume};
use crate::maintenance::gate::{Gathering, Look, bond, lock, storage, vm};
use crate::maintenance::state::{Phase, RollbackStage};
use crate::maintenance::step::{Act, HaltReason, Move, Step};
use crate::maintenance::verdict::Subject;

/// The next step of the way back.
pub(crate) fn step(look: Look<'_>, stage: RollbackStage) -> Next {
    match stage {
        RollbackStage::Revert => revert(look),
        RollbackStage::Reconnect => reconnect(look),
        RollbackStage::Restore => restore(look),
        RollbackStage::Release => release(look),
    }
}

fn revert(look: Look<'_>) -> Next {
    let state = look.state;
    if !state.hold_placed {
        return Ok(Step::go(Move::RollBack(RollbackStage::Release), "nothing was touched"));
    }
    if all_as_before(look)? {
        return Ok(Step::go(Move::RollBack(RollbackStage::Reconnect), "both bonds are as before the plan"));
    }
    require(look, "lock gate", lock::held(look), OnNo::Halt)?;
    require(look, "pin gate", vm::pinned(look), OnNo::Halt)?;
    // A failed reconnect may have left replication half up; a bond is never turned under it. What is connected is
    // taken apart the way it was the first time: whole, and with nobody writing where the plan has it so.
    let connected: BTreeSet<_> =
        look.plan.resources.iter().filter(|resource| resume::is_connected(look, resource)).cloned().collect();
    if !connected.is_empty() {
        forward::quiet_first(look, &connected)?;
        forward::identical_before(look, &connected)?;
    }
    for resource in &look.plan.resources {
        if !storage::apart(look, &BTreeSet::from([resource.clone()])).passed() {
            return forward::part(look, resource);
        }
    }
    forward::drain_both(look)?;
    forward::sheltered(look)?;
    if let Some(step) = turn_back(look)? {
        return Ok(step);
    }
    // What was never touched must be as recorded, or the bonds are not as before.
    require(look, "bond gate", bond::as_verified(look, &look.plan.nodes), OnNo::Halt)?;
    Ok(Step::go(Move::RollBack(RollbackStage::Reconnect), "both bonds are as before the plan"))
}

/// The step that brings the next bond back; `None` once all that were touched are. One that is not whole is mended
/// first, then the last one turned is the first one back: none is ever turned beside another that is not whole.
fn turn_back(look: Look<'_>) -> Result<Option<Step>, Box<Step>> {
    let touched = look.plan.nodes.iter().rev().filter(|node| look.state.touched_bonds.contains(*node));
    let (whole, broken): (Vec<_>, Vec<_>) =
        touched.partition(|node| bond::as_verified(look, [*node]).passed());
    for node in broken.into_iter().chain(whole) {
        let Some(step) = forward::turn(look, node, &look.plan.from)? else { continue };
        if matches!(step.act, Act::Dispatch(_)) {
            forward::others_whole(look, node)?;
        }
        return Ok(Some(step));
    }
    Ok(None)
}

/// No bond was ever sent a change, or each that was is back and recorded so.
fn all_as_before(look: Look<'_>) -> Result<bool, Box<Step>> {
    for node in &look.state.touched_bonds {
        let mut gathering = Gathering::new(look);
        let evidence = look.observed.bonds.get(node);
        let Some(reading) = gathering.take_host(Subject::Bond, node, evidence) else {
            require(look, "bond gate", gathering.verdict("bond gate"), OnNo::Halt)?;
            return Ok(false);
        };
        let back = bond::reached(look, node, reading, &look.plan.from).is_empty();
        if !back || look.state.verified_bonds.get(node) != Some(reading) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn reconnect(look: Look<'_>) -> Next {
    if look.state.targets.is_none() {
        return Ok(Step::go(Move::RollBack(RollbackStage::Release), "nothing was touched"));
    }
    let next = resume::step(look, &look.plan.from)?;
    match next {
        None => {
            proved(look)?;
            Ok(Step::go(Move::RollBack(RollbackStage::Restore), "replication is back"))
        }
        Some(step) => Ok(again(look, step)),
    }
}

/// The copies are in sync, as the finish demands; waited for. Asked as soon as a machine may have been pinned, also
/// where replication was never taken apart: whatever befell the copies meanwhile, a machine that is pinned to a good
/// one stays there until both are.
fn proved(look: Look<'_>) -> Result<(), Box<Step>> {
    if !look.state.vm_originals.is_empty() || look.state.phase >= Phase::DisconnectDrbd {
        require(look, "sync gate", resume::in_sync(look), OnNo::Defer)?;
    }
    Ok(())
}

/// A reconnect that did not come about is tried again, after a pause and through all gates, as often as the plan
/// allows.
fn again(look: Look<'_>, step: Step) -> Step {
    let stuck = matches!(&step.act, Act::Halt(HaltReason::NotConnected(_)));
    if !stuck || look.state.connect_rounds.saturating_add(1) >= look.plan.pace.connect_attempts {
        return step;
    }
    let at = look.now.checked_add(look.plan.pace.dwell).unwrap_or(look.now);
    let why = format!("reconnect {} did not come about", look.state.connect_rounds.saturating_add(1));
    Step::go(Move::ReconnectLater { at }, why)
}

fn restore(look: Look<'_>) -> Next {
    forward::world(look)?;
    resume::stamped(look, &look.plan.from)?;
    proved(look)?;
    match forward::restore_machines(look)? {
        Some(step) => Ok(step),
        None => Ok(Step::go(Move::RollBack(RollbackStage::Release), "every machine has what it had")),
    }
}

fn release(look: Look<'_>) -> Next {
    let state = look.state;
    if state.lease.is_none() && (state.hold_lifted || state.phase < Phase::AcquireLock) {
        return Ok(Step::go(Move::RevertedSafe, "back where it began"));
    }
    if state.hold_placed && !state.hold_lifted {
        proved(look)?;
    }
    lease::give_up(look, "back where it began")
}
