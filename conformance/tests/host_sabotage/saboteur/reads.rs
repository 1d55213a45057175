//! Reads of hosts and storage, sabotaged.

use std::collections::BTreeSet;
use std::time::SystemTime;

use async_trait::async_trait;
use executor_api::host::{
    BondName, BondReading, ConnectionState, DiskState, HostError, HostFacts, HostName, HostProbe,
    MemberState, MiiStatus, PeerVolumeReading, PersistedBond, ResourceName, SatelliteReading, StorageProbe,
    StorageReading,
};

use super::{Saboteur, peer, w};
use crate::how::How;

#[async_trait]
impl HostProbe for Saboteur {
    async fn host(&self, node: &HostName) -> Result<HostFacts, HostError> {
        self.seat.host(node).await
    }

    async fn bond(&self, node: &HostName, bond: &BondName) -> Result<BondReading, HostError> {
        let known = self.memory().bonds.get(node).cloned();
        if let (How::CachesBonds, Some(known)) = (self.how, &known) {
            return Ok(known.clone());
        }
        let read = match (self.seat.bond(node, bond).await, known) {
            (Err(_), Some(known)) if self.is(How::TellsTheLastWhenItCannotRead) => Ok(known),
            (read, _) => read,
        };
        let mut read = read?;
        match self.how {
            How::TellsTheModeThatWasAskedFor => {
                if let Some(mode) = self.agents.kept().asked_mode.get(node) {
                    read.mode = mode.clone();
                    read.mode_number = mode.number();
                }
            }
            How::CutListsAreWhole => read.members_complete = true,
            How::UnknownWordsAreGood => {
                read.members.values_mut().for_each(|member| {
                    if matches!(member.state, MemberState::Unknown(_)) {
                        member.state = MemberState::Active;
                    }
                });
            }
            How::ConfigurationIsTheMode => {
                let members = read.members.keys().cloned().collect();
                read.persisted = Some(PersistedBond { mode: read.mode.clone(), members });
            }
            How::OneBootForEver => "boot".clone_into(&mut read.boot_id),
            How::EveryLinkIsUp => read.members.values_mut().for_each(|member| member.mii = MiiStatus::Up),
            _ => {}
        }
        self.memory().bonds.insert(node.clone(), read.clone());
        Ok(read)
    }
}

#[async_trait]
impl StorageProbe for Saboteur {
    async fn storage(
        &self,
        node: &HostName,
        resources: &BTreeSet<ResourceName>,
        since: SystemTime,
    ) -> Result<StorageReading, HostError> {
        let known = self.memory().storage.get(node).cloned();
        if let (How::CachesStorage, Some(known)) = (self.how, &known) {
            return Ok(known.clone());
        }
        let all = ["r1", "r2"].map(|name| ResourceName::new(name).unwrap()).into();
        let resources = if self.is(How::ShowsEveryResource) { &all } else { resources };
        let asked = if self.is(How::AsksOneHostForBoth) { &w(1) } else { node };
        let read = match (self.seat.storage(asked, resources, since).await, known) {
            (Err(_), Some(known)) if self.is(How::TellsTheLastWhenItCannotRead) => Ok(known),
            (read, _) => read,
        };
        let mut read = read?;
        if self.is(How::TellsWhatEitherSideCounts)
            && let Ok(other) = self.seat.storage(&peer(node), resources, since).await
        {
            either(node, &mut read, &other);
        }
        match self.how {
            How::MissingCountersAreZero => volumes(&mut read).for_each(|volume| {
                for counter in [&mut volume.out_of_sync_kib, &mut volume.pending, &mut volume.unacked] {
                    *counter = Some(counter.unwrap_or(0));
                }
            }),
            How::MissingIdentifiersAreTheLast => {
                let mut memory = self.memory();
                volumes(&mut read).for_each(|volume| match &volume.generation {
                    Some(seen) => {
                        memory.identifiers.insert(node.clone(), seen.clone());
                    }
                    None => volume.generation = memory.identifiers.get(node).cloned(),
                });
            }
            How::NoEventsIsNoSplitBrain => {
                read.split_brain_seen.get_or_insert_default();
                volumes(&mut read).for_each(|volume| volume.resyncs_finished = Some(0));
            }
            How::ForgetsSplitBrains => read.split_brain_seen = Some(BTreeSet::new()),
            How::AlwaysStable => read.stable = true,
            How::UnknownWordsAreGood => known_words(&mut read),
            How::TellsTheConnectionThatWasAskedFor => {
                let kept = self.agents.kept();
                for (name, resource) in &mut read.resources {
                    if let Some(state) = kept.asked_state.get(&(node.clone(), name.clone())) {
                        resource.connections.values_mut().for_each(|link| link.state = state.clone());
                    }
                }
            }
            _ => {}
        }
        self.memory().storage.insert(node.clone(), read.clone());
        Ok(read)
    }

    async fn satellite(&self, node: &HostName) -> Result<SatelliteReading, HostError> {
        let known = self.memory().pods.get(node).cloned();
        if let (How::CachesPods, Some(known)) = (self.how, &known) {
            return Ok(known.clone());
        }
        let read = match (self.seat.satellite(node).await, known) {
            (Err(_), Some(known)) if self.is(How::TellsTheLastWhenItCannotRead) => Ok(known),
            (Err(_), None) if self.is(How::TellsTheLastWhenItCannotRead) => {
                Ok(SatelliteReading { kept_away: Some(true), pods: Some(BTreeSet::new()) })
            }
            (read, _) => read,
        };
        let mut read = read?;
        if self.is(How::CutListsAreWhole) {
            read.pods.get_or_insert_default();
        }
        self.memory().pods.insert(node.clone(), read.clone());
        Ok(read)
    }
}

fn volumes(read: &mut StorageReading) -> impl Iterator<Item = &mut PeerVolumeReading> {
    let connections = read.resources.values_mut().flat_map(|resource| resource.connections.values_mut());
    connections.flat_map(|connection| connection.volumes.values_mut())
}

/// The larger count of either side, on both.
fn either(node: &HostName, read: &mut StorageReading, other: &StorageReading) {
    for (name, resource) in &mut read.resources {
        let there = other.resources.get(name).and_then(|resource| resource.connections.get(node));
        for connection in resource.connections.values_mut() {
            for (number, volume) in &mut connection.volumes {
                let theirs = there.and_then(|there| there.volumes.get(number)?.out_of_sync_kib);
                volume.out_of_sync_kib = volume.out_of_sync_kib.max(theirs);
            }
        }
    }
}

fn known_words(read: &mut StorageReading) {
    for resource in read.resources.values_mut() {
        for volume in resource.volumes.values_mut() {
            if matches!(volume.disk, DiskState::Unknown(_)) {
                volume.disk = DiskState::UpToDate;
            }
        }
        for connection in resource.connections.values_mut() {
            if matches!(connection.state, ConnectionState::Unknown(_)) {
                connection.state = ConnectionState::Connected;
            }
        }
    }
}
