//! The truth as its sources tell it, and as faults garble it. Pure: nothing is changed by being read.

use std::collections::BTreeMap;
use std::time::SystemTime;

use executor_api::host::{
    BondReading, ConnectionReading, ConnectionState, DiskState, GenerationIds, HostFacts, HostName,
    MemberState, MigrationPhase, MigrationReading, PeerVolumeReading, PinShield, ReplicationState,
    ResourceName, ResourceReading, ResyncSuspended, Role, RunningVm, SatelliteReading, StorageReading,
    Suspensions, VmPicture, VmReading, VolumeReading,
};

use super::link::Quality;
use super::replica::{Copy, Resource, Side, Toward};
use super::state::State;
use crate::faults::Fault;

/// KiB in a block.
const BLOCK_KIB: u64 = 4;

impl State {
    pub(crate) fn read_host(&self, node: &HostName) -> Option<HostFacts> {
        let host = self.hosts.get(node)?;
        Some(HostFacts {
            eligible: Some(host.eligible),
            live: Some(host.alive && host.agent.down_until.is_none()),
        })
    }

    pub(crate) fn read_bond(&self, node: &HostName, fault: Option<Fault>) -> Option<BondReading> {
        let host = self.hosts.get(node).filter(|host| host.alive)?;
        let mut reading = host.bond.reading(format!("{node}-boot-{}", host.boot));
        match fault {
            Some(Fault::CutShort) => {
                reading.members_complete = false;
                reading.members.pop_last();
            }
            Some(Fault::NoConfiguration) => reading.persisted = None,
            Some(Fault::Garbled) => {
                reading
                    .members
                    .values_mut()
                    .for_each(|member| member.state = MemberState::Unknown("?".to_owned()));
            }
            _ => {}
        }
        Some(reading)
    }

    pub(crate) fn read_satellite(&self, node: &HostName, fault: Option<Fault>) -> Option<SatelliteReading> {
        let host = self.hosts.get(node)?;
        let pods = (fault != Some(Fault::CutShort)).then(|| host.pods.clone());
        Some(SatelliteReading { kept_away: Some(host.kept_away), pods })
    }

    pub(crate) fn read_storage<'a>(
        &self,
        node: &HostName,
        resources: impl IntoIterator<Item = &'a ResourceName>,
        since: SystemTime,
        fault: Option<Fault>,
    ) -> Option<StorageReading> {
        self.hosts.get(node).filter(|host| host.alive)?;
        let asked: Vec<_> = resources.into_iter().collect();
        let mut reading = StorageReading {
            module: Some(self.manner.module),
            stable: true,
            resources: BTreeMap::new(),
            split_brain_seen: Some(std::collections::BTreeSet::new()),
        };
        for (name, resource) in &self.resources {
            let Some(side) = resource.sides.get(node) else { continue };
            if let Some(seen) = &mut reading.split_brain_seen
                && side.announced.iter().any(|at| *at >= since)
            {
                seen.insert(name.clone());
            }
            if side.configured && asked.contains(&name) {
                reading.resources.insert(name.clone(), self.read_side(resource, node, side, since));
            }
        }
        garble(&mut reading, fault);
        Some(reading)
    }

    fn read_side(
        &self,
        resource: &Resource,
        node: &HostName,
        side: &Side,
        since: SystemTime,
    ) -> ResourceReading {
        let waiting = self.vms.values().filter(|vm| {
            vm.waiting && vm.running.as_ref().is_some_and(|running| running.node == *node) && side.primary
        });
        let upper = waiting.count() as u64;
        let volume = |copy: &Copy| VolumeReading {
            disk: copy.disk.clone(),
            client: Some(false),
            quorum: Some(true),
            size_kib: Some(copy.blocks.len() as u64 * BLOCK_KIB),
            upper_pending: Some(upper),
            lower_pending: Some(0),
        };
        ResourceReading {
            role: side.role(),
            suspended: Suspensions {
                user: Some(side.suspended.is_some()),
                no_data: Some(false),
                fencing: Some(false),
                quorum: Some(false),
            },
            force_io_failures: Some(false),
            volumes: side.copies.iter().map(|(number, copy)| (*number, volume(copy))).collect(),
            connections: side
                .links
                .keys()
                .map(|peer| (peer.clone(), self.read_connection(resource, node, peer, side, since)))
                .collect(),
        }
    }

    fn read_connection(
        &self,
        resource: &Resource,
        node: &HostName,
        peer: &HostName,
        side: &Side,
        since: SystemTime,
    ) -> ConnectionReading {
        let link = &side.links[peer];
        let connected = link.state == ConnectionState::Connected;
        let there = &resource.sides[peer];
        let stalled = connected && self.link(node, peer) == Quality::Dead && side.primary;
        let volumes = side.copies.iter().filter_map(|(number, copy)| {
            let toward = copy.toward.get(peer)?;
            let other = there.copies.get(number)?;
            let unsent = link.unsent.iter().filter(|(volume, ..)| volume == number).count() as u64;
            let peer_disk = if connected {
                other.disk.clone()
            } else if toward.outdated {
                DiskState::Outdated
            } else {
                DiskState::DUnknown
            };
            let reading = PeerVolumeReading {
                replication: replication(toward, other.toward.get(node)),
                peer_disk,
                peer_client: Some(false),
                resync_suspended: held(toward, other.toward.get(node)),
                // A node without a copy counts nothing, and says so by a zero.
                out_of_sync_kib: Some(match copy.disk {
                    DiskState::Diskless => 0,
                    _ => toward.bits.len() as u64 * BLOCK_KIB,
                }),
                pending: Some(unsent + u64::from(stalled)),
                unacked: Some(0),
                resyncs_finished: Some(toward.finished.iter().filter(|at| **at >= since).count() as u64),
                generation: (copy.disk != DiskState::Diskless).then(|| ids(copy, toward, side, connected)),
            };
            Some((*number, reading))
        });
        ConnectionReading {
            state: link.state.clone(),
            peer_role: if connected { there.role() } else { Role::Unknown("Unknown".to_owned()) },
            paths: vec![Some(connected)],
            net: resource.net.options(),
            volumes: volumes.collect(),
        }
    }

    pub(crate) fn read_vms<'a>(
        &self,
        resources: impl IntoIterator<Item = &'a ResourceName>,
        fault: Option<Fault>,
    ) -> VmPicture {
        let asked: Vec<_> = resources.into_iter().collect();
        let mut picture = VmPicture { vms: BTreeMap::new(), migrations: BTreeMap::new() };
        for (name, vm) in &self.vms {
            if !vm.resources.iter().any(|resource| asked.contains(&resource)) {
                continue;
            }
            let running = vm.running.as_ref().map(|running| RunningVm {
                pod_uid: format!("{name}-pod-{}", running.pod),
                node: running.node.clone(),
                effective: running.effective.clone(),
                evacuating_from: running.evacuating_from.clone(),
            });
            let shield = PinShield {
                eviction_refused: Some(vm.refuses_evictions),
                migration_refused: Some(vm.refuses_migrations),
            };
            let reading =
                VmReading { resources: vm.resources.clone(), declared: vm.declared.clone(), running, shield };
            picture.vms.insert(name.clone(), reading);
        }
        for (name, migration) in &self.migrations {
            if !picture.vms.contains_key(&migration.vm) {
                continue;
            }
            let mut reading = MigrationReading {
                vm: migration.vm.clone(),
                phase: migration.phase.clone(),
                abort_requested: migration.abort_requested,
                abort_status: migration.abort_status.clone(),
                post_copy: Some(migration.post_copy),
            };
            if fault == Some(Fault::Garbled) {
                reading.phase = MigrationPhase::Unknown("?".to_owned());
            }
            picture.migrations.insert(name.clone(), reading);
        }
        if fault == Some(Fault::Garbled) {
            for vm in picture.vms.values_mut() {
                vm.shield = PinShield { eviction_refused: None, migration_refused: None };
            }
        }
        picture
    }
}

fn replication(toward: &Toward, back: Option<&Toward>) -> ReplicationState {
    let held = toward.held || back.is_some_and(|back| back.held);
    match &toward.replication {
        ReplicationState::SyncSource if held => ReplicationState::PausedSyncS,
        ReplicationState::SyncTarget if held => ReplicationState::PausedSyncT,
        state => state.clone(),
    }
}

fn held(toward: &Toward, back: Option<&Toward>) -> ResyncSuspended {
    if toward.held {
        ResyncSuspended::User
    } else if back.is_some_and(|back| back.held) {
        ResyncSuspended::Peer
    } else {
        ResyncSuspended::No
    }
}

fn ids(copy: &Copy, toward: &Toward, side: &Side, connected: bool) -> GenerationIds {
    let former = |at: usize| copy.history.get(at).copied().unwrap_or_default();
    let mut current = copy.current;
    // The lowest bit says "was primary".
    current.0 |= u64::from(side.primary);
    GenerationIds {
        current,
        bitmap: toward.bitmap,
        history: [former(0), former(1)],
        consistent: Some(copy.consistent),
        was_up_to_date: Some(copy.was_up_to_date),
        primary: Some(side.primary),
        crashed_primary: Some(copy.crashed_primary),
        primary_lost_quorum: Some(false),
        peer_connected: Some(connected),
        peer_outdated: Some(toward.outdated),
        peer_full_sync: Some(toward.full_sync),
    }
}

fn garble(reading: &mut StorageReading, fault: Option<Fault>) {
    let connections = reading.resources.values_mut().flat_map(|resource| resource.connections.values_mut());
    match fault {
        Some(Fault::NoCounters) => {
            connections.flat_map(|connection| connection.volumes.values_mut()).for_each(|volume| {
                volume.out_of_sync_kib = None;
                volume.pending = None;
                volume.unacked = None;
            });
        }
        Some(Fault::NoIdentifiers) => {
            connections
                .flat_map(|connection| connection.volumes.values_mut())
                .for_each(|volume| volume.generation = None);
        }
        Some(Fault::NoPeers) => {
            reading.resources.values_mut().for_each(|resource| resource.connections.clear());
        }
        Some(Fault::NoEvents) => {
            connections
                .flat_map(|connection| connection.volumes.values_mut())
                .for_each(|volume| volume.resyncs_finished = None);
            reading.split_brain_seen = None;
        }
        Some(Fault::Torn) => {
            // The counters are from before, the states from after.
            reading.stable = false;
            connections.for_each(|connection| {
                connection.state = ConnectionState::Connected;
                connection.volumes.values_mut().for_each(|volume| volume.out_of_sync_kib = Some(0));
            });
        }
        Some(Fault::Garbled) => {
            for resource in reading.resources.values_mut() {
                resource
                    .volumes
                    .values_mut()
                    .for_each(|volume| volume.disk = DiskState::Unknown("?".to_owned()));
                resource.connections.values_mut().for_each(|connection| {
                    connection.state = ConnectionState::Unknown("?".to_owned());
                });
            }
        }
        Some(Fault::NoConfiguration) => reading.module = None,
        _ => {}
    }
}
