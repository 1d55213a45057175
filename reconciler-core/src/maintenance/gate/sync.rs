//! The sync gate. `UpToDate` is one line among many here, and the least of them.
//!
//! Three questions, each answered from both hosts: are the two copies identical, is one provably the other's
//! ancestor, have they diverged. Identifiers are compared without their lowest bit; what a host does not report
//! is unknown; a side that counts nothing may simply be the one that is behind.

use std::collections::BTreeSet;

use executor_api::host::{
    AfterSplitBrain, ConnectionReading, ConnectionState, DiskState, HostName, PeerVolumeReading, Protocol,
    ReplicationState, ResourceName, ResyncSuspended, Role, StorageReading,
};

use crate::maintenance::gate::kinship::{Kinship, kinship};
use crate::maintenance::gate::pair::{Pair, Side, place_of, unknown};
use crate::maintenance::gate::{Gathering, Look, Place};
use crate::maintenance::plan::IoPolicy;
use crate::maintenance::verdict::{Finding, FindingKind, Subject, Verdict};

/// Whether replication is expected to be up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Connected and established.
    Together,
    /// Taken apart on both sides.
    Apart,
    /// Taken apart, and one side waits for the other already.
    Opening,
}

/// What is asked of the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Whether replication is up.
    pub wire: Wire,
    /// A suspension that this plan asked for is no fault.
    pub own_suspension: bool,
}

impl Demand {
    /// What is needed to finish.
    pub const FINISH: Self = Self { wire: Wire::Together, own_suspension: false };
}

/// The copies of these resources are identical, seen from both hosts.
pub fn identical(look: Look<'_>, resources: &BTreeSet<ResourceName>, demand: Demand) -> Verdict {
    both(Gathering::citing(look), resources, "sync gate (identical)", |pair, findings| {
        identical_pair(pair, demand, findings);
    })
}

/// The copies of these resources may meet again, as the plan's policy has it: identical, or (where machines go
/// on writing) one provably the other's ancestor. Where this plan has let one side connect, that side may be waiting.
pub fn may_reconnect(look: Look<'_>, resources: &BTreeSet<ResourceName>) -> Verdict {
    let own_suspension = look.state.io_suspended_until.is_some();
    let gate = match look.plan.io {
        IoPolicy::Quiesce { .. } => "reconnect gate (identical)",
        IoPolicy::Continue => "reconnect gate (fast forward)",
    };
    both(Gathering::citing(look), resources, gate, |pair, findings| {
        let begun = look.state.reconnected.contains(pair.resource);
        let demand = Demand { wire: if begun { Wire::Opening } else { Wire::Apart }, own_suspension };
        let mut not_identical = Vec::new();
        identical_pair(pair, demand, &mut not_identical);
        if not_identical.is_empty() {
            return;
        }
        match look.plan.io {
            IoPolicy::Quiesce { .. } => findings.append(&mut not_identical),
            IoPolicy::Continue => ancestor_pair(pair, demand, findings),
        }
    })
}

/// Nothing shows that copies have diverged. Weaker than the others: it asks only that both hosts answer and that
/// their identifiers are related by more than a common past. Run in every pass.
pub fn not_diverged(look: Look<'_>) -> Verdict {
    both(Gathering::new(look), &look.plan.resources, "divergence watch", |pair, findings| {
        for (a, b) in pair.volumes(findings) {
            let at = format!("{} volume {}", pair.resource, a.number);
            let (Some(ours), Some(theirs)) = (&a.peer.generation, &b.peer.generation) else {
                unknown(findings, format!("{at}: identifiers were not reported"));
                continue;
            };
            if let Kinship::Diverged(how) = kinship(ours, theirs) {
                findings.push(Finding::new(FindingKind::Diverged, Subject::Storage, format!("{at}: {how}")));
            }
        }
    })
}

/// Copies whose wire is neither up nor apart: all the same, none is half copied and none has diverged.
pub fn related(look: Look<'_>, resources: &BTreeSet<ResourceName>) -> Verdict {
    both(Gathering::new(look), resources, "kinship gate", |pair, findings| {
        for (a, b) in pair.volumes(findings) {
            for side in [a, b] {
                let mut place = place_of(pair, side, findings);
                place.must_be("disk", Some(&side.volume.disk), &DiskState::UpToDate);
                if side.peer.generation.is_none() {
                    place.push(FindingKind::Unknown, "identifiers were not reported");
                }
            }
            if let (Some(ours), Some(theirs)) = (&a.peer.generation, &b.peer.generation)
                && let Kinship::Diverged(how) = kinship(ours, theirs)
            {
                place_of(pair, a, findings).push(FindingKind::Diverged, how);
            }
        }
    })
}

/// Both hosts' readings of the resources, each pair handed to `check`.
fn both(
    mut gathering: Gathering<'_>,
    resources: &BTreeSet<ResourceName>,
    gate: &str,
    mut check: impl FnMut(&Pair<'_>, &mut Vec<Finding>),
) -> Verdict {
    let look = gathering.look;
    let [first, second] = &look.plan.nodes;
    let one = gathering.take_host(Subject::Storage, first, look.observed.storage.get(first));
    let two = gathering.take_host(Subject::Storage, second, look.observed.storage.get(second));
    let (Some(one), Some(two)) = (one, two) else {
        return gathering.verdict(gate);
    };
    for (node, reading) in [(first, one), (second, two)] {
        node_wide(look, node, reading, &mut gathering);
    }
    if !(one.stable && two.stable) {
        // Parts of different moments: what they seem to say together is no evidence of anything.
        return gathering.verdict(gate);
    }
    for resource in resources {
        match (one.resources.get(resource), two.resources.get(resource)) {
            (Some(a), Some(b)) => {
                let pair = Pair { resource, nodes: [first, second], sides: [a, b] };
                check(&pair, &mut gathering.findings);
            }
            (a, _) => {
                let node = if a.is_none() { first } else { second };
                let what = format!("{node}: {resource} is not configured");
                gathering.no(FindingKind::Unknown, Subject::Storage, what);
            }
        }
    }
    gathering.verdict(gate)
}

fn node_wide(look: Look<'_>, node: &HostName, reading: &StorageReading, gathering: &mut Gathering<'_>) {
    if !reading.stable {
        let what = format!("{node}: storage status changed while it was read");
        gathering.no(FindingKind::Stale, Subject::Storage, what);
    }
    match reading.module {
        Some(module) if module >= look.plan.module_floor => {}
        Some(module) => {
            let what = format!("{node}: storage module {module} is older than {}", look.plan.module_floor);
            gathering.no(FindingKind::Negative, Subject::Storage, what);
        }
        None => {
            let what = format!("{node}: storage module version was not reported");
            gathering.no(FindingKind::Unknown, Subject::Storage, what);
        }
    }
    match &reading.split_brain_seen {
        None => {
            let what = format!("{node}: cannot tell whether a split brain was announced");
            gathering.no(FindingKind::Unknown, Subject::Storage, what);
        }
        Some(seen) => {
            // Any resource counts: one that the plan does not name shares the link and the trouble.
            gathering.extend(seen.iter().map(|resource| {
                let what = format!("{node}: a split brain of {resource} was announced");
                Finding::new(FindingKind::Diverged, Subject::Storage, what)
            }));
        }
    }
}

fn identical_pair(pair: &Pair<'_>, demand: Demand, findings: &mut Vec<Finding>) {
    roles(pair, findings);
    for (a, b) in pair.volumes(findings) {
        for (side, other) in [(a, b), (b, a)] {
            let mut place = place_of(pair, side, findings);
            sound(&mut place, side, other, demand);
            place.must_be("out-of-sync KiB", side.peer.out_of_sync_kib.as_ref(), &0);
            if demand.wire == Wire::Together {
                place.must_be("peer disk", Some(&side.peer.peer_disk), &DiskState::UpToDate);
            } else {
                place.must_be("peer disk", Some(&side.peer.peer_disk), &DiskState::DUnknown);
            }
            if let Some(ids) = &side.peer.generation {
                place.must_be("peer known as outdated", ids.peer_outdated.as_ref(), &false);
                if !ids.bitmap.is_none() {
                    place.push(FindingKind::Negative, "counts changes from an older generation");
                }
                if ids.current.is_trivial() || ids.never_rotated() {
                    place.push(
                        FindingKind::Negative,
                        "has identifiers that were never rotated: they prove nothing",
                    );
                }
            }
        }
        if let (Some(ours), Some(theirs)) = (&a.peer.generation, &b.peer.generation) {
            let mut place = place_of(pair, a, findings);
            if !ours.current.same(theirs.current) {
                place.push(FindingKind::Negative, "is of another generation than the peer's copy");
            }
            if let Kinship::Diverged(how) = kinship(ours, theirs) {
                place.push(FindingKind::Diverged, how);
            }
        }
    }
}

/// One side is provably the other's ancestor, and was not written since.
fn ancestor_pair(pair: &Pair<'_>, demand: Demand, findings: &mut Vec<Finding>) {
    roles(pair, findings);
    // One direction for the whole resource: its volumes were written together.
    let mut ahead: Option<&HostName> = None;
    for (a, b) in pair.volumes(findings) {
        for (side, other) in [(a, b), (b, a)] {
            let mut place = place_of(pair, side, findings);
            sound(&mut place, side, other, demand);
            let state = &side.peer.peer_disk;
            if !matches!(state, DiskState::DUnknown | DiskState::Outdated) {
                place.push(FindingKind::Negative, format!("peer disk is {state} while apart"));
            }
            if side.peer.out_of_sync_kib.is_none() {
                place.push(FindingKind::Unknown, "out-of-sync KiB was not reported");
            }
            if let Some(ids) = &side.peer.generation
                && (ids.current.is_trivial() || ids.never_rotated())
            {
                place.push(
                    FindingKind::Negative,
                    "has identifiers that were never rotated: they prove nothing",
                );
            }
        }
        let (Some(ours), Some(theirs)) = (&a.peer.generation, &b.peer.generation) else {
            continue;
        };
        let (lead, behind) = match kinship(ours, theirs) {
            Kinship::Same => {
                // Equal identifiers, yet not identical by the other verdict: nobody is the ancestor.
                if a.peer.out_of_sync_kib != Some(0) || b.peer.out_of_sync_kib != Some(0) {
                    place_of(pair, a, findings)
                        .push(FindingKind::Negative, "has blocks out of sync under equal identifiers");
                }
                continue;
            }
            Kinship::FirstAhead => (a, b),
            Kinship::SecondAhead => (b, a),
            Kinship::Diverged(how) => {
                place_of(pair, a, findings).push(FindingKind::Diverged, how);
                continue;
            }
        };
        let mut place = place_of(pair, behind, findings);
        place.must_be("role", Some(&behind.resource.role), &Role::Secondary);
        place.must_be("out-of-sync KiB", behind.peer.out_of_sync_kib.as_ref(), &0);
        if let Some(ids) = &behind.peer.generation {
            if !ids.bitmap.is_none() {
                place.push(FindingKind::Negative, "is behind, yet counts changes of its own");
            }
            place.must_be("peer known as outdated", ids.peer_outdated.as_ref(), &false);
        }
        if ahead.is_some_and(|node| node != lead.node) {
            place.push(FindingKind::Diverged, "is ahead in one volume and behind in another");
        }
        ahead = Some(lead.node);
    }
}

/// What both verdicts ask of each side.
fn sound(place: &mut Place<'_>, side: Side<'_>, other: Side<'_>, demand: Demand) {
    let Side { resource, volume, connection, peer, .. } = side;
    place.must_be("disk", Some(&volume.disk), &DiskState::UpToDate);
    place.must_be("client", volume.client.as_ref(), &false);
    place.must_be("quorum", volume.quorum.as_ref(), &true);
    match (volume.size_kib, other.volume.size_kib) {
        (Some(ours), Some(theirs)) if ours == theirs && ours > 0 => {}
        (Some(_), Some(_)) => place.push(FindingKind::Negative, "differs in size from the peer's copy"),
        (None, _) | (_, None) => place.push(FindingKind::Unknown, "size was not reported by both hosts"),
    }
    place.must_be("forced I/O failures", resource.force_io_failures.as_ref(), &false);
    let suspended = &resource.suspended;
    if !(demand.own_suspension && suspended.user.is_some()) {
        place.must_be("suspended by the user", suspended.user.as_ref(), &false);
    }
    place.must_be("suspended for lack of data", suspended.no_data.as_ref(), &false);
    place.must_be("suspended for fencing", suspended.fencing.as_ref(), &false);
    place.must_be("suspended for lack of quorum", suspended.quorum.as_ref(), &false);
    let net = &connection.net;
    place.must_be("protocol", Some(&net.protocol), &Protocol::C);
    for (option, found) in [
        ("after-sb-0pri", &net.after_sb_0pri),
        ("after-sb-1pri", &net.after_sb_1pri),
        ("after-sb-2pri", &net.after_sb_2pri),
    ] {
        place.must_be(option, Some(found), &AfterSplitBrain::Disconnect);
    }
    place.must_be("allow-two-primaries", net.allow_two_primaries.as_ref(), &false);
    place.must_be("peer client", peer.peer_client.as_ref(), &false);
    place.must_be("resync suspended", Some(&peer.resync_suspended), &ResyncSuspended::No);
    place.must_be("pending requests", peer.pending.as_ref(), &0);
    place.must_be("unanswered requests", peer.unacked.as_ref(), &0);
    let quiet = demand.wire == Wire::Together || matches!(resource.role, Role::Secondary);
    if quiet {
        place.must_be("writes pending below", volume.lower_pending.as_ref(), &0);
        if !demand.own_suspension {
            place.must_be("writes pending above", volume.upper_pending.as_ref(), &0);
        }
    }
    if volume.lower_pending.is_none() || volume.upper_pending.is_none() {
        place.push(FindingKind::Unknown, "pending writes were not reported");
    }
    wire(place, connection, peer, demand.wire);
    identifiers(place, side, demand.wire);
}

fn wire(place: &mut Place<'_>, connection: &ConnectionReading, peer: &PeerVolumeReading, wire: Wire) {
    let (state, replication) = match wire {
        Wire::Together => (ConnectionState::Connected, ReplicationState::Established),
        Wire::Opening if connection.state == ConnectionState::Connecting => {
            (ConnectionState::Connecting, ReplicationState::Off)
        }
        Wire::Apart | Wire::Opening => (ConnectionState::StandAlone, ReplicationState::Off),
    };
    place.must_be("connection", Some(&connection.state), &state);
    place.must_be("replication", Some(&peer.replication), &replication);
    if connection.paths.is_empty() {
        place.push(FindingKind::Unknown, "paths were not reported");
    }
    for path in &connection.paths {
        place.must_be("path established", path.as_ref(), &(wire == Wire::Together));
    }
}

fn identifiers(place: &mut Place<'_>, side: Side<'_>, wire: Wire) {
    let Some(ids) = &side.peer.generation else {
        place.push(FindingKind::Unknown, "identifiers were not reported");
        return;
    };
    place.must_be("flag consistent", ids.consistent.as_ref(), &true);
    place.must_be("flag was-up-to-date", ids.was_up_to_date.as_ref(), &true);
    place.must_be("flag crashed-primary", ids.crashed_primary.as_ref(), &false);
    place.must_be("flag primary-lost-quorum", ids.primary_lost_quorum.as_ref(), &false);
    place.must_be("flag peer full-sync", ids.peer_full_sync.as_ref(), &false);
    place.must_be("flag peer connected", ids.peer_connected.as_ref(), &(wire == Wire::Together));
    place.must_be("flag primary", ids.primary.as_ref(), &(side.resource.role == Role::Primary));
    if ids.peer_outdated.is_none() {
        place.push(FindingKind::Unknown, "flag peer outdated was not reported");
    }
}

/// At most one side may write, and while connected each side knows the other's role.
fn roles(pair: &Pair<'_>, findings: &mut Vec<Finding>) {
    for which in [0, 1] {
        let (node, peer_node) = (pair.nodes[which], pair.nodes[1 - which]);
        let (ours, theirs) = (pair.sides[which], pair.sides[1 - which]);
        let at = format!("{node}: {}", pair.resource);
        let mut place = Place { at, subject: Subject::Storage, findings };
        if matches!(ours.role, Role::Unknown(_)) {
            place.push(FindingKind::Unknown, format!("role is {}", ours.role));
        }
        if let Some(connection) = ours.connections.get(peer_node) {
            match (&connection.state, &connection.peer_role) {
                (ConnectionState::Connected, role) if *role == theirs.role => {}
                (ConnectionState::Connected, role) => {
                    place.push(FindingKind::Negative, format!("takes the peer for {role}"));
                }
                // Apart, the peer's role is not known, and must not be claimed.
                (_, Role::Unknown(word)) if word == "Unknown" => {}
                (_, role) => {
                    place.push(FindingKind::Negative, format!("takes the peer for {role} while apart"));
                }
            }
        }
    }
    if pair.sides.iter().all(|side| side.role == Role::Primary) {
        let what = format!("{}: both hosts may write", pair.resource);
        findings.push(Finding::new(FindingKind::Diverged, Subject::Storage, what));
    }
}
