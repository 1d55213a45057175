//! Is replication apart on both hosts, and are the storage pods gone.

use std::collections::BTreeSet;

use executor_api::host::{ConnectionState, HostName, ResourceName, Role, StorageReading};

use crate::maintenance::gate::{Gathering, Look, Place};
use crate::maintenance::verdict::{FindingKind, Subject, Verdict};

/// Every one of these resources is taken apart on both hosts: neither is connected, and neither waits to be.
pub fn apart(look: Look<'_>, resources: &BTreeSet<ResourceName>) -> Verdict {
    let mut gathering = Gathering::new(look);
    for node in &look.plan.nodes {
        let Some(storage) = stable(&mut gathering, node) else { continue };
        for resource in resources {
            let Some(state) = connection_state(look, storage, node, resource) else {
                let what = format!("{node}: {resource} does not report its connection");
                gathering.no(FindingKind::Unknown, Subject::Storage, what);
                continue;
            };
            let at = format!("{node}: {resource}");
            let mut place = Place { at, subject: Subject::Storage, findings: &mut gathering.findings };
            if matches!(state, ConnectionState::Unknown(_)) {
                place.push(FindingKind::Unknown, format!("connection is {state}"));
            } else {
                place.must_be("connection", Some(state), &ConnectionState::StandAlone);
            }
        }
    }
    gathering.verdict("disconnected gate")
}

/// No storage pod is on these hosts, and none will come.
pub fn drained<'n>(look: Look<'_>, nodes: impl IntoIterator<Item = &'n HostName>) -> Verdict {
    let mut gathering = Gathering::new(look);
    for node in nodes {
        let evidence = look.observed.satellites.get(node);
        if let Some(reading) = gathering.take_host(Subject::Satellite, node, evidence)
            && !reading.is_drained()
        {
            let what = format!("{node}: storage pods are there, or may come");
            gathering.no(FindingKind::Negative, Subject::Satellite, what);
        }
    }
    gathering.verdict("drained gate")
}

/// Storage pods run on both hosts.
pub fn serving(look: Look<'_>) -> Verdict {
    let mut gathering = Gathering::new(look);
    for node in &look.plan.nodes {
        let evidence = look.observed.satellites.get(node);
        if let Some(reading) = gathering.take_host(Subject::Satellite, node, evidence)
            && !reading.is_serving()
        {
            let what = format!("{node}: no storage pod runs");
            gathering.no(FindingKind::Negative, Subject::Satellite, what);
        }
    }
    gathering.verdict("storage pods gate")
}

/// Nobody writes to the resources: on each host each is secondary, or its I/O stands still.
pub fn quiet(look: Look<'_>) -> Verdict {
    let mut gathering = Gathering::new(look);
    for node in &look.plan.nodes {
        let Some(storage) = stable(&mut gathering, node) else { continue };
        for resource in &look.plan.resources {
            let writes = match storage.resources.get(resource) {
                Some(reading) => match &reading.role {
                    Role::Secondary => continue,
                    Role::Primary if reading.suspended.user == Some(true) => continue,
                    Role::Primary => FindingKind::Negative,
                    Role::Unknown(_) => FindingKind::Unknown,
                },
                None => FindingKind::Unknown,
            };
            gathering.no(writes, Subject::Storage, format!("{node}: {resource} may be written"));
        }
    }
    gathering.verdict("quiet gate")
}

/// The state of this node's connection to the other, as far as it is reported.
pub(crate) fn connection_state<'a>(
    look: Look<'_>,
    storage: &'a StorageReading,
    node: &HostName,
    resource: &ResourceName,
) -> Option<&'a ConnectionState> {
    let peer = look.plan.peer_of(node);
    storage.resources.get(resource)?.connections.get(peer).map(|connection| &connection.state)
}

fn stable<'a>(gathering: &mut Gathering<'a>, node: &HostName) -> Option<&'a StorageReading> {
    let look = gathering.look;
    let storage = gathering.take_host(Subject::Storage, node, look.observed.storage.get(node))?;
    if !storage.stable {
        let what = format!("{node}: storage status changed while it was read");
        gathering.no(FindingKind::Stale, Subject::Storage, what);
        return None;
    }
    Some(storage)
}
