//! The phases of the forward path. Each checks its world at entry, sends at most one operation, and moves on only
//! over what was read back.

use std::collections::{BTreeMap, BTreeSet};

use executor_api::host::{
    AbortStatus, BondMode, BondReading, ConnectionState, HostAction, HostName, ResourceName, Role, VmAction,
    VmName, VmOriginal, VmPicture, VmReading,
};

use crate::maintenance::advance::deed::{self, Patience};
use crate::maintenance::advance::{Next, OnNo, lease, require, resume};
use crate::maintenance::gate::sync::{Demand, Wire};
use crate::maintenance::gate::{Gathering, Look, bond, host, lock, storage, sync, vm};
use crate::maintenance::plan::IoPolicy;
use crate::maintenance::state::Phase;
use crate::maintenance::step::{HaltReason, LockAction, Move, Step};
use crate::maintenance::verdict::{Proof, Subject};

/// The next step of the phase.
pub(crate) fn step(look: Look<'_>) -> Next {
    match look.state.phase {
        Phase::Idle => Ok(idle(look)),
        Phase::PreconditionsCheck => preconditions(look),
        Phase::AcquireLock => acquire_lock(look),
        Phase::SuspendMigration => suspend_migration(look),
        Phase::DisconnectDrbd => disconnect(look),
        Phase::DrainSatellite => drain(look),
        Phase::FlipNode1 => flip(look, 0, Phase::FlipNode2),
        Phase::FlipNode2 => flip(look, 1, Phase::ResumeDrbd),
        Phase::ResumeDrbd => resume_drbd(look),
        Phase::RestoreMigration => restore_migration(look),
        Phase::ReleaseLock => release_lock(look),
        Phase::Complete => Ok(Step::wait(None, "complete")),
    }
}

fn enter(phase: Phase, why: &str) -> Step {
    Step::go(Move::Enter { phase, proof: None }, why)
}

fn enter_proved(phase: Phase, proof: Proof) -> Step {
    Step::proved(Move::Enter { phase, proof: Some(proof.clone()) }, proof)
}

fn idle(look: Look<'_>) -> Step {
    if !look.plan.approved {
        return Step::wait(None, "the plan says that it is not approved");
    }
    match &look.state.approval {
        Some(person) => enter(Phase::PreconditionsCheck, &format!("approved by {}", person.who)),
        None => Step::wait(None, "nobody approved the run"),
    }
}

fn preconditions(look: Look<'_>) -> Next {
    if let Some(problem) = look.plan.problems().first() {
        return Ok(Step::halt(HaltReason::Refused(problem.to_string())));
    }
    require(look, "host gate", host::ready(look), OnNo::Halt)?;
    require(look, "bond gate", bond::untouched(look), OnNo::Halt)?;
    if let IoPolicy::Quiesce { suspend_for: None } = look.plan.io {
        require(look, "quiet gate", storage::quiet(look), OnNo::Halt)?;
    }
    // Storage that is not in sync is waited for: no new work on top of unhealthy storage.
    require(look, "storage pods gate", storage::serving(look), OnNo::Defer)?;
    let identical = sync::identical(look, &look.plan.resources, Demand::FINISH);
    let proof = require(look, "sync gate", identical, OnNo::Defer)?;
    machines(look)?;
    Ok(enter_proved(Phase::AcquireLock, proof))
}

/// The machines, or the step that waits for them.
fn machines(look: Look<'_>) -> Result<&VmPicture, Box<Step>> {
    let mut gathering = Gathering::new(look);
    if let Some(picture) = vm::picture(&mut gathering) {
        return Ok(picture);
    }
    match require(look, "virtual machines", gathering.verdict("virtual machines"), OnNo::Halt) {
        Err(step) => Err(step),
        // Not reached: a verdict without a reading is a "no".
        Ok(_) => Err(Box::new(Step::wait(None, "the virtual machines were not read"))),
    }
}

fn acquire_lock(look: Look<'_>) -> Next {
    let state = look.state;
    // The lease is ours here; the hold may still be missing.
    let hold = look.observed.lock.as_ref().and_then(|lock| lock.value()).and_then(|lock| lock.hold.as_ref());
    if hold.is_none() {
        return Ok(lease::send(look, LockAction::PlaceHold, "the lease is ours"));
    }
    if !state.hold_placed {
        return Ok(Step::go(Move::NoteHold, "the cluster is held for this plan"));
    }
    if state.targets.is_none() {
        // The lock may have been waited for since this was asked.
        require(look, "host gate", host::ready(look), OnNo::Halt)?;
        require(look, "bond gate", bond::untouched(look), OnNo::Halt)?;
        let readings = bond_readings(look);
        let originals: BTreeMap<_, _> = readings
            .iter()
            .filter_map(|(node, reading)| Some((node.clone(), bond::original_of(reading)?)))
            .collect();
        if originals.len() != look.plan.nodes.len() {
            return Ok(Step::wait(None, "a bond was not read whole"));
        }
        let targets = look.plan.nodes.clone();
        return Ok(Step::go(
            Move::SaveTargets { targets, originals, readings },
            "before anything is changed",
        ));
    }
    Ok(enter(Phase::SuspendMigration, "lock held, targets recorded"))
}

fn bond_readings(look: Look<'_>) -> BTreeMap<HostName, BondReading> {
    let reading = |node: &HostName| Some((node.clone(), look.observed.bonds.get(node)?.value()?.clone()));
    look.plan.nodes.iter().filter_map(reading).collect()
}

/// Lock, and bonds as they were read back: what every mutating step asks for first.
pub(crate) fn world(look: Look<'_>) -> Result<(), Box<Step>> {
    require(look, "lock gate", lock::held(look), OnNo::Halt)?;
    require(look, "bond gate", bond::as_verified(look, &look.plan.nodes), OnNo::Halt)?;
    Ok(())
}

fn suspend_migration(look: Look<'_>) -> Next {
    world(look)?;
    let picture = machines(look)?;
    let unsaved: BTreeMap<VmName, VmOriginal> = picture
        .vms
        .iter()
        .filter(|(name, _)| !look.state.vm_originals.contains_key(*name))
        .map(|(name, vm)| {
            (name.clone(), VmOriginal { declared: vm.declared.clone(), placement: placement(vm) })
        })
        .collect();
    if !unsaved.is_empty() {
        return Ok(Step::go(Move::SaveVms(unsaved), "before the first write"));
    }
    for (name, machine) in &picture.vms {
        if let Some(what) = vm::pin_fault(machine) {
            return deed::vm(look, name, VmAction::Pin, Patience::Settle, what);
        }
    }
    if let Some(step) = end_migrations(look, picture)? {
        return Ok(step);
    }
    for (name, machine) in &picture.vms {
        if let Some(node) = machine.running.as_ref().and_then(|running| running.evacuating_from.as_ref()) {
            let what = format!("{name} is to be moved away from {node}");
            return Ok(deed::await_until(look, look.state.settle_until, what));
        }
    }
    if !look.state.placed {
        // Only now is the picture one that nothing moves any more: an abort may have lost its race.
        let places = picture.vms.iter().map(|(name, vm)| (name.clone(), placement(vm))).collect();
        return Ok(Step::go(Move::SavePlacements(places), "nothing moves any more"));
    }
    let proof = require(look, "pin gate", vm::pinned(look), OnNo::Halt)?;
    Ok(enter_proved(Phase::DisconnectDrbd, proof))
}

/// Asks for the end of every migration, then waits for it: `None` once none is left.
fn end_migrations(look: Look<'_>, picture: &VmPicture) -> Result<Option<Step>, Box<Step>> {
    let mut ending = None;
    for (name, migration) in picture.unfinished() {
        let what = format!("migration {name} is not over ({})", migration.phase);
        if migration.post_copy == Some(true) || migration.abort_status == Some(AbortStatus::Failed) {
            // The machine is half over there already; stopping it now would lose it.
            return Ok(Some(Step::halt(HaltReason::Refused(format!("{what} and cannot be stopped")))));
        }
        if !migration.abort_requested {
            let action = VmAction::AbortMigration { migration: name.clone() };
            return deed::vm(look, &migration.vm, action, Patience::Settle, what).map(Some);
        }
        ending.get_or_insert(what);
    }
    Ok(ending.map(|what| deed::await_until(look, look.state.settle_until, what)))
}

fn placement(vm: &VmReading) -> Option<(HostName, String)> {
    vm.running.as_ref().map(|running| (running.node.clone(), running.pod_uid.clone()))
}

fn disconnect(look: Look<'_>) -> Next {
    world(look)?;
    require(look, "pin gate", vm::pinned(look), OnNo::Halt)?;
    quiet_first(look, &look.plan.resources)?;
    for resource in &look.plan.resources {
        let only = BTreeSet::from([resource.clone()]);
        if storage::apart(look, &only).passed() {
            continue;
        }
        if !look.state.disconnected.contains(resource) {
            // Whole and proved before it is taken apart, so that what comes later has a known beginning.
            identical_before(look, &only)?;
        }
        return part(look, resource);
    }
    let proof = require(look, "disconnected gate", storage::apart(look, &look.plan.resources), OnNo::Halt)?;
    Ok(enter_proved(Phase::DrainSatellite, proof))
}

/// Under `quiesce`, nobody writes any more, or the step that stops a writer. `whole` are the resources that are
/// connected: nobody's I/O is stopped for a step that copies out of sync would not let follow.
pub(crate) fn quiet_first(look: Look<'_>, whole: &BTreeSet<ResourceName>) -> Result<(), Box<Step>> {
    let IoPolicy::Quiesce { suspend_for } = look.plan.io else { return Ok(()) };
    let Some((node, resource)) = writer(look) else {
        require(look, "quiet gate", storage::quiet(look), OnNo::Halt)?;
        return Ok(());
    };
    let Some(limit) = suspend_for else {
        let what = format!("{node}: {resource} may be written, and the plan suspends nobody");
        return Err(Box::new(Step::halt(HaltReason::Refused(what))));
    };
    identical_before(look, whole)?;
    // One bound for all of them, from the first on. Once it is over, only a person's reply begins another.
    let left = look.state.io_suspended_until.map_or(Some(limit), |until| until.duration_since(look.now).ok());
    let Some(limit) = left.filter(|left| !left.is_zero()) else {
        return Err(Box::new(Step::halt(HaltReason::SuspensionExceeded)));
    };
    let what = format!("{resource} may be written on {node}");
    let action = HostAction::SuspendIo { resource, limit };
    Err(Box::new(deed::host(look, &node, action, Patience::None, what)?))
}

/// These resources are identical and connected; waited for.
pub(crate) fn identical_before(look: Look<'_>, resources: &BTreeSet<ResourceName>) -> Result<(), Box<Step>> {
    let demand = Demand { wire: Wire::Together, own_suspension: look.state.io_suspended_until.is_some() };
    require(look, "sync gate", sync::identical(look, resources, demand), OnNo::Defer)?;
    Ok(())
}

/// A host on which a resource may be written.
fn writer(look: Look<'_>) -> Option<(HostName, ResourceName)> {
    for node in &look.plan.nodes {
        let storage = look.observed.storage.get(node)?.value()?;
        for resource in &look.plan.resources {
            let reading = storage.resources.get(resource)?;
            if reading.role == Role::Primary && reading.suspended.user != Some(true) {
                return Some((node.clone(), resource.clone()));
            }
        }
    }
    None
}

/// Sends the disconnect of the first side that is not apart.
pub(crate) fn part(look: Look<'_>, resource: &ResourceName) -> Next {
    for node in &look.plan.nodes {
        let storage = look.observed.storage.get(node).and_then(|evidence| evidence.value());
        let state = storage.and_then(|storage| storage::connection_state(look, storage, node, resource));
        let what = match state {
            Some(ConnectionState::StandAlone) => continue,
            Some(state) => format!("{resource} is {state} on {node}"),
            None => format!("{resource} does not report its connection on {node}"),
        };
        let action = HostAction::DisconnectResource {
            resource: resource.clone(),
            peer: look.plan.peer_of(node).clone(),
        };
        return deed::host(look, node, action, Patience::None, what);
    }
    Ok(Step::wait(None, format!("{resource} is to be seen apart")))
}

fn drain(look: Look<'_>) -> Next {
    world(look)?;
    require(look, "pin gate", vm::pinned(look), OnNo::Halt)?;
    require(look, "disconnected gate", storage::apart(look, &look.plan.resources), OnNo::Halt)?;
    drain_both(look)?;
    let proof = require(look, "drained gate", storage::drained(look, &look.plan.nodes), OnNo::Halt)?;
    Ok(enter_proved(Phase::FlipNode1, proof))
}

/// Both hosts are drained, or the step that drains one.
pub(crate) fn drain_both(look: Look<'_>) -> Result<(), Box<Step>> {
    for node in &look.plan.nodes {
        let mut gathering = Gathering::new(look);
        let evidence = look.observed.satellites.get(node);
        match gathering.take_host(Subject::Satellite, node, evidence) {
            Some(reading) if reading.is_drained() => {}
            Some(_) => {
                let what = "storage pods are there, or may come";
                let step = deed::host(look, node, HostAction::DrainSatellite, Patience::Settle, what)?;
                return Err(Box::new(step));
            }
            None => {
                require(look, "drained gate", gathering.verdict("drained gate"), OnNo::Halt)?;
            }
        }
    }
    Ok(())
}

/// Machines pinned, storage apart and drained: what must hold around every change of a bond.
pub(crate) fn sheltered(look: Look<'_>) -> Result<(), Box<Step>> {
    require(look, "lock gate", lock::held(look), OnNo::Halt)?;
    require(look, "pin gate", vm::pinned(look), OnNo::Halt)?;
    require(look, "disconnected gate", storage::apart(look, &look.plan.resources), OnNo::Halt)?;
    require(look, "drained gate", storage::drained(look, &look.plan.nodes), OnNo::Halt)?;
    Ok(())
}

fn flip(look: Look<'_>, which: usize, next: Phase) -> Next {
    sheltered(look)?;
    let Some(targets) = &look.state.targets else {
        return Ok(Step::halt(HaltReason::Refused("the targets were never recorded".to_owned())));
    };
    let node = &targets[which];
    others_whole(look, node)?;
    if which == 1 {
        // Turned back meanwhile, or never turned: the second one would be turned alone.
        require(look, "bond gate", bond::turned(look, &targets[0]), OnNo::Halt)?;
    }
    match turn(look, node, &look.plan.to)? {
        Some(step) => Ok(step),
        None => Ok(enter(next, &format!("{node} verified {}", look.plan.to))),
    }
}

/// Every other bond is as it was verified: one bond at a time is in transition, in either direction.
pub(crate) fn others_whole(look: Look<'_>, node: &HostName) -> Result<(), Box<Step>> {
    let others = look.plan.nodes.iter().filter(|other| *other != node);
    require(look, "bond gate", bond::as_verified(look, others), OnNo::Halt)?;
    Ok(())
}

/// Brings one host's bond into a mode: `None` once that was read back and recorded.
pub(crate) fn turn(look: Look<'_>, node: &HostName, mode: &BondMode) -> Result<Option<Step>, Box<Step>> {
    let state = look.state;
    let mut gathering = Gathering::new(look);
    let Some(reading) = gathering.take_host(Subject::Bond, node, look.observed.bonds.get(node)) else {
        require(look, "bond gate", gathering.verdict("bond gate"), OnNo::Halt)?;
        return Ok(Some(Step::wait(None, "the bond was not read")));
    };
    let faults = bond::reached(look, node, reading, mode);
    if faults.is_empty() {
        if state.verified_bonds.get(node) == Some(reading) {
            return Ok(None);
        }
        // Reached without an operation of ours: somebody else is at work here.
        if !state.touched_bonds.contains(node) {
            require(look, "bond gate", bond::as_verified(look, [node]), OnNo::Halt)?;
        }
        let verify = Move::VerifyBond { node: node.clone(), reading: reading.clone() };
        return Ok(Some(Step::go(verify, "read back")));
    }
    if !state.touched_bonds.contains(node) {
        require(look, "bond gate", bond::as_verified(look, [node]), OnNo::Halt)?;
    }
    let Some(original) = state.bond_originals.get(node) else {
        return Ok(Some(Step::halt(HaltReason::Refused(format!("{node}: the bond was never recorded")))));
    };
    let action = HostAction::SetBondMode {
        bond: look.plan.bond.clone(),
        mode: mode.clone(),
        original: original.clone(),
    };
    // Everything else about the bond follows from the mode; while that is another, it says it all.
    let seen = if reading.mode == *mode {
        faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    } else {
        format!("{} is in {}", look.plan.bond, reading.mode)
    };
    deed::host(look, node, action, Patience::None, seen).map(Some)
}

fn resume_drbd(look: Look<'_>) -> Next {
    if let Some(step) = resume::step(look, &look.plan.to)? {
        return Ok(step);
    }
    let proof = require(look, "sync gate", resume::in_sync(look), OnNo::Defer)?;
    Ok(enter_proved(Phase::RestoreMigration, proof))
}

fn restore_migration(look: Look<'_>) -> Next {
    world(look)?;
    resume::stamped(look, &look.plan.to)?;
    let proof = require(look, "sync gate", resume::in_sync(look), OnNo::Defer)?;
    match restore_machines(look)? {
        Some(step) => Ok(step),
        None => Ok(enter_proved(Phase::ReleaseLock, proof)),
    }
}

/// Gives every machine back what it had: `None` once all have it.
pub(crate) fn restore_machines(look: Look<'_>) -> Result<Option<Step>, Box<Step>> {
    let picture = machines(look)?;
    for (name, original) in &look.state.vm_originals {
        // A machine that is gone needs nothing.
        let Some(machine) = picture.vms.get(name) else { continue };
        if let Some(what) = vm::restore_fault(machine, &original.declared) {
            let action = VmAction::Restore { original: original.declared.clone() };
            return deed::vm(look, name, action, Patience::Settle, what).map(Some);
        }
    }
    Ok(None)
}

fn release_lock(look: Look<'_>) -> Next {
    let state = look.state;
    if state.hold_lifted {
        if state.lease.is_none() {
            return Ok(enter(Phase::Complete, "the lock is released"));
        }
        return lease::give_up(look, "the hold is lifted");
    }
    world(look)?;
    resume::stamped(look, &look.plan.to)?;
    let proof = require(look, "sync gate", resume::in_sync(look), OnNo::Defer)?;
    // The gate before this phase and this one must not rest on one reading.
    if state.restore_proof.as_ref().and_then(Proof::newest) >= proof.read.iter().map(|(_, at)| *at).min() {
        return Ok(Step::wait(None, "the second sync gate needs readings of its own"));
    }
    if state.release_proof.is_none() {
        return Ok(Step::proved(Move::KeepReleaseProof(proof.clone()), proof));
    }
    lease::give_up(look, "two sync gates passed")
}
