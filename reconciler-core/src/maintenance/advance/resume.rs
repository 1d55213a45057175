//! The gated reconnect, the only one there is: forward, retry, way back and a person's reply all come through
//! here. Symmetry, then one probe each way, then what both hosts know of the copies; only their stamp lets a
//! connect out, and only new probes earn it.

use std::collections::{BTreeMap, BTreeSet};

use executor_api::host::{
    BondMode, ConnectionState, Fingerprint, GateToken, HostAction, HostName, LinkProbe, ReplicationState,
    ResourceName, Role,
};

use crate::maintenance::advance::deed::{self, Patience};
use crate::maintenance::advance::{OnNo, forward, require};
use crate::maintenance::gate::sync::{Demand, Wire};
use crate::maintenance::gate::{Gathering, Look, bond, storage, sync, vm};
use crate::maintenance::state::{PreConnect, Recovery};
use crate::maintenance::step::{HaltReason, Move, Step};
use crate::maintenance::verdict::{Finding, FindingKind, Proof, Subject, Verdict};

/// The next step of the reconnect, or `None` once every resource is connected, I/O goes on and storage pods run.
pub(crate) fn step(look: Look<'_>, mode: &BondMode) -> Result<Option<Step>, Box<Step>> {
    let state = look.state;
    if state.disconnected.is_empty() && state.drained.is_empty() && state.io_suspended_until.is_none() {
        return Ok(None);
    }
    forward::world(look)?;
    require(look, "pin gate", vm::pinned(look), OnNo::Halt)?;
    let open = open_resources(look)?;
    let Some(token) = &state.token else {
        return gates(look, mode, &open).map(Some);
    };
    token_holds(look, token)?;
    if let Some(step) = connect(look, &open, token)? {
        return Ok(Some(step));
    }
    if let Some(step) = resume_io(look)? {
        return Ok(Some(step));
    }
    undrain(look, token)
}

/// The stamp stands and vouches for what is there, or the step that earns a new one: a halt and a new lease void
/// the old one, also after everything is connected.
pub(crate) fn stamped(look: Look<'_>, mode: &BondMode) -> Result<(), Box<Step>> {
    if look.state.disconnected.is_empty() {
        return Ok(());
    }
    if let Some(token) = &look.state.token {
        return token_holds(look, token);
    }
    let open = open_resources(look)?;
    if !open.is_empty() {
        let names = open.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(Box::new(Step::halt(HaltReason::NotConnected(names))));
    }
    Err(Box::new(gates(look, mode, &open)?))
}

/// Identical, as the finish demands, with whatever was out of sync before the reconnect seen to have been copied.
pub(crate) fn in_sync(look: Look<'_>) -> Verdict {
    let verdict = sync::identical(look, &look.plan.resources, Demand::FINISH);
    let Verdict::Pass(proof) = verdict else { return verdict };
    let findings = uncopied(look);
    if findings.is_empty() { Verdict::Pass(proof) } else { Verdict::No(findings) }
}

/// Blocks that were out of sync before, and no resync was seen to end since: a zero after a reconnect does not
/// overrule a count before it.
fn uncopied(look: Look<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (resource, before) in &look.state.pre_connect {
        if before.out_of_sync_kib == 0 {
            continue;
        }
        for (node, volumes) in &before.resyncs_finished {
            for (number, then) in volumes {
                let now = resyncs_finished(look, node, resource).get(number).copied();
                let what = format!("{node}: {resource} volume {number}");
                match now {
                    Some(now) if now > *then => {}
                    Some(_) => findings.push(Finding::new(
                        FindingKind::Negative,
                        Subject::Storage,
                        format!("{what} had blocks out of sync, and no resync was seen to end"),
                    )),
                    None => findings.push(Finding::new(
                        FindingKind::Unknown,
                        Subject::Storage,
                        format!("{what} does not report its resyncs"),
                    )),
                }
            }
        }
    }
    findings
}

fn resyncs_finished(look: Look<'_>, node: &HostName, resource: &ResourceName) -> BTreeMap<u16, u64> {
    let storage = look.observed.storage.get(node).and_then(|evidence| evidence.value());
    let connection = storage
        .and_then(|storage| storage.resources.get(resource))
        .and_then(|reading| reading.connections.get(look.plan.peer_of(node)));
    let volumes = connection.into_iter().flat_map(|connection| &connection.volumes);
    volumes.filter_map(|(number, volume)| Some((*number, volume.resyncs_finished?))).collect()
}

fn states<'a>(look: Look<'a>, resource: &ResourceName) -> [Option<&'a ConnectionState>; 2] {
    look.plan.nodes.each_ref().map(|node| {
        let storage = look.observed.storage.get(node)?.value()?;
        storage::connection_state(look, storage, node, resource)
    })
}

pub(crate) fn is_connected(look: Look<'_>, resource: &ResourceName) -> bool {
    states(look, resource) == [Some(&ConnectionState::Connected); 2]
}

/// Connected on both sides, with a copy or its preparation under way on one.
pub(crate) fn is_being_copied(look: Look<'_>, resource: &ResourceName) -> bool {
    let copying = |node: &HostName| {
        let storage = look.observed.storage.get(node).and_then(|evidence| evidence.value())?;
        let connection = storage.resources.get(resource)?.connections.get(look.plan.peer_of(node))?;
        Some(connection.volumes.values().any(|volume| match volume.replication {
            ReplicationState::StartingSyncS
            | ReplicationState::StartingSyncT
            | ReplicationState::WFBitMapS
            | ReplicationState::WFBitMapT
            | ReplicationState::WFSyncUUID
            | ReplicationState::SyncSource
            | ReplicationState::SyncTarget => true,
            ReplicationState::Off
            | ReplicationState::Established
            | ReplicationState::VerifyS
            | ReplicationState::VerifyT
            | ReplicationState::PausedSyncS
            | ReplicationState::PausedSyncT
            | ReplicationState::Ahead
            | ReplicationState::Behind
            | ReplicationState::Unknown(_) => false,
        }))
    };
    is_connected(look, resource) && look.plan.nodes.iter().any(|node| copying(node) == Some(true))
}

/// The resources that are not connected yet. One that is, although nothing here connected it, is a breach.
fn open_resources(look: Look<'_>) -> Result<BTreeSet<ResourceName>, Box<Step>> {
    let mut gathering = Gathering::new(look);
    for node in &look.plan.nodes {
        gathering.take_host(Subject::Storage, node, look.observed.storage.get(node));
    }
    require(look, "storage", gathering.verdict("storage"), OnNo::Halt)?;
    let mut open = BTreeSet::new();
    for resource in &look.plan.resources {
        if !is_connected(look, resource) {
            open.insert(resource.clone());
        } else if look.state.disconnected.contains(resource) && !look.state.reconnected.contains(resource) {
            let what = format!("{resource} was reconnected by somebody else, through no gate");
            let findings = vec![Finding::new(FindingKind::Negative, Subject::Storage, what)];
            let reason = HaltReason::Gate { gate: "disconnected gate".to_owned(), findings };
            return Err(Box::new(Step::halt(reason)));
        }
    }
    Ok(open)
}

/// Symmetry, probes, copies, stamp.
fn gates(look: Look<'_>, mode: &BondMode, open: &BTreeSet<ResourceName>) -> Result<Step, Box<Step>> {
    // What an earlier round left half connected is taken apart first: gates judge copies that are at rest.
    // On the way back that goes for a half-done disconnect too; forward, it would be somebody else's doing.
    let back = matches!(look.state.recovery, Recovery::Rollback(_));
    for resource in open.iter().filter(|resource| back || look.state.reconnected.contains(*resource)) {
        if states(look, resource) != [Some(&ConnectionState::StandAlone); 2] {
            return forward::part(look, resource);
        }
    }
    require(look, "symmetry gate", bond::symmetric(look, mode), OnNo::Halt)?;
    if !open.is_empty() {
        require(look, "disconnected gate", storage::apart(look, open), OnNo::Halt)?;
        if !look.state.drained.is_empty() {
            require(look, "drained gate", storage::drained(look, &look.state.drained), OnNo::Halt)?;
        }
    }
    // What has to be waited for comes before the probes: they are not to grow old meanwhile.
    let together: BTreeSet<_> = look.plan.resources.difference(open).cloned().collect();
    if !together.is_empty() {
        let demand = Demand { wire: Wire::Together, own_suspension: look.state.io_suspended_until.is_some() };
        require(look, "sync gate", sync::identical(look, &together, demand), OnNo::Defer)?;
    }
    for node in &look.plan.nodes {
        let peer = look.plan.peer_of(node);
        let earlier = look.state.probes.iter().find(|probe| probe.from == *node && probe.to == *peer);
        let Some(probe) = earlier else {
            let action = HostAction::ProbeLink {
                bond: look.plan.bond.clone(),
                peer: peer.clone(),
                spec: look.plan.probe,
            };
            return deed::host(look, node, action, Patience::None, "the link was not probed");
        };
        require(look, "connectivity gate", probed(look, probe), OnNo::Halt)?;
    }
    if let Some(step) = lapsed(look) {
        return Ok(step);
    }
    let proof = if open.is_empty() {
        let demand = Demand { wire: Wire::Together, own_suspension: look.state.io_suspended_until.is_some() };
        require(look, "sync gate", sync::identical(look, &look.plan.resources, demand), OnNo::Defer)?
    } else {
        require(look, "reconnect gate", sync::may_reconnect(look, open), OnNo::Halt)?
    };
    Ok(stamp(look, open, proof))
}

/// Where the probes are too old to vouch for the link as it is: forward that is a halt like any other, for a resume
/// probes once; on the way back it is a round of its own.
fn lapsed(look: Look<'_>) -> Option<Step> {
    let age = look.state.probed_at.and_then(|at| look.now.duration_since(at).ok());
    if age.is_some_and(|age| age <= look.plan.pace.gate_max_age) {
        return None;
    }
    let what = match age {
        Some(age) => format!("the link was probed {} s ago, which is too long", age.as_secs()),
        None => "when the link was probed is not known".to_owned(),
    };
    let left = look.state.connect_rounds.saturating_add(1) < look.plan.pace.connect_attempts;
    if left && matches!(look.state.recovery, Recovery::Rollback(_)) {
        return Some(Step::go(Move::ReconnectLater { at: look.now }, what));
    }
    let findings = vec![Finding::new(FindingKind::Negative, Subject::Link, what)];
    Some(Step::halt(HaltReason::Gate { gate: "connectivity gate".to_owned(), findings }))
}

fn probed(look: Look<'_>, probe: &LinkProbe) -> Verdict {
    let findings = bond::probe_faults(look, probe);
    if findings.is_empty() {
        let evidence = Some(Fingerprint::of("probe", probe));
        return Verdict::Pass(Proof { gate: "connectivity gate".to_owned(), evidence, read: Vec::new() });
    }
    Verdict::No(findings)
}

fn stamp(look: Look<'_>, open: &BTreeSet<ResourceName>, proof: Proof) -> Step {
    let Some(lease) = &look.state.lease else {
        return Step::wait(None, "the lease is not ours");
    };
    let Some(evidence) = proof.evidence.clone() else {
        return Step::wait(None, "the proof cites no evidence");
    };
    let pre_connect = open
        .iter()
        .map(|resource| {
            let finished = |node: &HostName| (node.clone(), resyncs_finished(look, node, resource));
            let before = PreConnect {
                proof: proof.clone(),
                out_of_sync_kib: out_of_sync(look, resource),
                resyncs_finished: look.plan.nodes.iter().map(finished).collect(),
            };
            (resource.clone(), before)
        })
        .collect();
    let token = GateToken {
        plan: look.plan.uid.clone(),
        fence: lease.fence,
        resume_gates_passed_at: look.now,
        evidence,
        bonds: Fingerprint::of("bonds", &look.state.verified_bonds),
    };
    Step::proved(Move::StampGates { token, pre_connect }, proof)
}

/// What both sides together count, in KiB. The gate before has seen to it that both report.
fn out_of_sync(look: Look<'_>, resource: &ResourceName) -> u64 {
    let mut sum = 0_u64;
    for node in &look.plan.nodes {
        let storage = look.observed.storage.get(node).and_then(|evidence| evidence.value());
        let connection = storage
            .and_then(|storage| storage.resources.get(resource))
            .and_then(|reading| reading.connections.get(look.plan.peer_of(node)));
        for volume in connection.into_iter().flat_map(|connection| connection.volumes.values()) {
            sum = sum.saturating_add(volume.out_of_sync_kib.unwrap_or(u64::MAX));
        }
    }
    sum
}

/// The stamp still vouches for what is there: plan, lease and bonds.
fn token_holds(look: Look<'_>, token: &GateToken) -> Result<(), Box<Step>> {
    let fence = look.state.lease.as_ref().map(|lease| lease.fence);
    let bonds = Fingerprint::of("bonds", &look.state.verified_bonds);
    if token.plan == look.plan.uid && Some(token.fence) == fence && token.bonds == bonds {
        return Ok(());
    }
    Err(Box::new(no_stamp("the stamp of the resume gates is void")))
}

fn no_stamp(what: &str) -> Step {
    let findings = vec![Finding::new(FindingKind::Negative, Subject::Link, what)];
    Step::halt(HaltReason::Gate { gate: "stamp".to_owned(), findings })
}

/// Sends the connects, then waits for them.
fn connect(
    look: Look<'_>,
    open: &BTreeSet<ResourceName>,
    token: &GateToken,
) -> Result<Option<Step>, Box<Step>> {
    for resource in open {
        for (node, state) in look.plan.nodes.iter().zip(states(look, resource)) {
            if state != Some(&ConnectionState::StandAlone) {
                continue;
            }
            let aged = look.now.duration_since(token.resume_gates_passed_at);
            if aged.is_err() || aged.is_ok_and(|age| age > look.plan.pace.gate_max_age) {
                return Ok(Some(no_stamp("the stamp of the resume gates is too old to connect on")));
            }
            // Since the stamp, and since the other side's connect, the copies may have moved.
            let only = BTreeSet::from([resource.clone()]);
            require(look, "reconnect gate", sync::may_reconnect(look, &only), OnNo::Halt)?;
            let action = HostAction::ConnectResource {
                resource: resource.clone(),
                peer: look.plan.peer_of(node).clone(),
                gates: token.clone(),
            };
            let what = format!("{resource} is apart on {node}");
            return deed::host(look, node, action, Patience::None, what).map(Some);
        }
    }
    if open.is_empty() {
        return Ok(None);
    }
    let names = open.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match look.state.connect_deadline {
        Some(until) if look.now < until => {
            Ok(Some(Step::wait(Some(until), format!("{names} not connected yet"))))
        }
        Some(_) | None => Ok(Some(Step::halt(HaltReason::NotConnected(names)))),
    }
}

/// Lets I/O go on where this plan stopped it, once the copies are connected and in sync.
fn resume_io(look: Look<'_>) -> Result<Option<Step>, Box<Step>> {
    if look.state.io_suspended_until.is_none() {
        return Ok(None);
    }
    let demand = Demand { wire: Wire::Together, own_suspension: true };
    require(look, "sync gate", sync::identical(look, &look.plan.resources, demand), OnNo::Defer)?;
    for node in &look.plan.nodes {
        let Some(storage) = look.observed.storage.get(node).and_then(|evidence| evidence.value()) else {
            continue;
        };
        for (resource, reading) in &storage.resources {
            let ours = look.plan.resources.contains(resource);
            if ours && reading.role == Role::Primary && reading.suspended.user == Some(true) {
                let action = HostAction::ResumeIo { resource: resource.clone() };
                let what = format!("I/O of {resource} stands still on {node}");
                return deed::host(look, node, action, Patience::None, what).map(Some);
            }
        }
    }
    Ok(Some(Step::go(Move::NoteIoResumed, "no I/O stands still")))
}

/// Lets storage pods come back, once replication is.
fn undrain(look: Look<'_>, token: &GateToken) -> Result<Option<Step>, Box<Step>> {
    for node in &look.plan.nodes {
        let mut gathering = Gathering::new(look);
        let evidence = look.observed.satellites.get(node);
        let Some(reading) = gathering.take_host(Subject::Satellite, node, evidence) else {
            require(look, "storage pods gate", gathering.verdict("storage pods gate"), OnNo::Halt)?;
            continue;
        };
        if !reading.is_serving() {
            let action = HostAction::UndrainSatellite { gates: token.clone() };
            return deed::host(look, node, action, Patience::Settle, "no storage pod runs").map(Some);
        }
    }
    require(look, "storage pods gate", storage::serving(look), OnNo::Halt)?;
    Ok(None)
}
