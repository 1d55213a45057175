//! What comes from above: roles, writes and their acknowledgement, suspended I/O; and whether a copy holds what was
//! promised.

use std::time::SystemTime;

use executor_api::host::{DiskState, HostName, Protocol, ReplicationState, ResourceName};

use super::ledger;
use super::link::Quality;
use super::records::Place;
use super::replica::{Copy, Resource, Suspension};
use super::state::{Due, State};
use crate::spec::Rotation;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// It is acknowledged.
    Done,
    /// It waits.
    Waits,
    /// It fails.
    Fails,
}

impl State {
    /// A host becomes primary. Not possible while a connected peer is, unless two are allowed.
    pub(crate) fn promote(&mut self, name: &ResourceName, host: &HostName) -> bool {
        let at_once = self.manner.rotation == Rotation::AtOnce;
        let Some(resource) = self.resources.get_mut(name) else { return false };
        let connected = resource.peers_connected(host);
        let other = connected.iter().any(|peer| resource.sides[peer].primary);
        if other && !resource.net.allow_two_primaries {
            return false;
        }
        let good = |host: &HostName, resource: &Resource| {
            resource.sides.get(host).is_some_and(|side| {
                side.configured && side.copies.values().all(|copy| copy.disk == DiskState::UpToDate)
            })
        };
        let can = good(host, resource) || connected.iter().any(|peer| good(peer, resource));
        let alone = resource.sides.len() > connected.len() + 1;
        let Some(side) = resource.sides.get_mut(host) else { return false };
        if !can || !side.configured {
            return false;
        }
        if side.primary {
            return true;
        }
        side.primary = true;
        if alone {
            side.copies.values_mut().for_each(|copy| copy.rotates = true);
        }
        if alone && at_once {
            self.rotate(name, host);
        }
        true
    }

    /// A host becomes secondary.
    pub(crate) fn demote(&mut self, name: &ResourceName, host: &HostName) {
        let side = self.resources.get_mut(name).and_then(|resource| resource.sides.get_mut(host));
        if let Some(side) = side {
            side.primary = false;
            side.copies.values_mut().for_each(|copy| copy.rotates = false);
        }
    }

    /// A write from above on a host.
    pub(crate) fn write(&mut self, name: &ResourceName, host: &HostName, volume: u16, block: u32) -> Wrote {
        let Some(resource) = self.resources.get(name) else { return Wrote::Fails };
        let Some(side) = resource.sides.get(host) else { return Wrote::Fails };
        if !side.primary || !side.configured {
            return Wrote::Fails;
        }
        let connected = resource.peers_connected(host);
        if side.suspended.is_some() || connected.iter().any(|peer| self.link(host, peer) == Quality::Dead) {
            return Wrote::Waits;
        }
        let Some(copy) = side.copies.get(&volume) else { return Wrote::Fails };
        let up = |copy: Option<&Copy>| copy.is_some_and(|copy| copy.disk == DiskState::UpToDate);
        if !up(Some(copy)) && !connected.iter().any(|peer| up(resource.copy(peer, volume))) {
            return Wrote::Fails;
        }
        let apart: Vec<_> = side.links.keys().filter(|peer| !connected.contains(peer)).cloned().collect();
        if copy.rotates && !apart.is_empty() {
            self.rotate(name, host);
        }
        self.put(name, host, volume, block, &connected, &apart);
        Wrote::Done
    }

    fn put(
        &mut self,
        name: &ResourceName,
        host: &HostName,
        volume: u16,
        block: u32,
        connected: &[HostName],
        apart: &[HostName],
    ) {
        let version = self.ledger.mint();
        let Some(resource) = self.resources.get_mut(name) else { return };
        let early = resource.net.protocol == Protocol::A;
        let Some(copy) = resource.copy_mut(host, volume) else { return };
        // Without a disk here, only the other side's answer is one.
        let later = early && copy.is_there();
        let before = copy.set(block, version);
        copy.heat(block);
        for peer in apart {
            if let Some(toward) = copy.toward.get_mut(peer) {
                toward.bits.insert(block);
            }
        }
        for peer in connected {
            if later {
                let side = resource.sides.get_mut(host);
                if let Some(link) = side.and_then(|side| side.links.get_mut(peer)) {
                    link.unsent.push((volume, block, version));
                }
                continue;
            }
            if let Some(copy) = resource.copy_mut(peer, volume) {
                copy.set(block, version);
                copy.toward.iter_mut().filter(|(other, _)| apart.contains(other)).for_each(|(_, toward)| {
                    toward.bits.insert(block);
                });
            }
            // Both have it now, whichever of them was behind.
            for (one, other) in [(host, peer), (peer, host)] {
                if let Some(toward) =
                    resource.copy_mut(one, volume).and_then(|copy| copy.toward.get_mut(other))
                    && toward.replication != ReplicationState::Established
                {
                    toward.bits.remove(&block);
                }
            }
        }
        let place = (name.clone(), volume, block);
        self.ledger.acknowledge(place.clone(), version, before);
        // What another copy held, and nothing showed it, is older from now on for all that can be told.
        let hidden = self.hidden.remove(&place);
        let unknown = hidden || connected.iter().any(|peer| self.nobody_could_know(name, host, peer));
        let others: Vec<_> = self.ledger.owed(&place).filter(|write| *write != version).collect();
        for write in others {
            if hidden || (unknown && !self.holds(&place, write)) {
                self.ledger.take(place.clone(), write);
            }
        }
        if later {
            for peer in connected {
                let due = Due::Flush { resource: name.clone(), host: host.clone(), peer: peer.clone() };
                self.once_after(self.pace.handshake, due);
            }
        }
    }

    /// What was acknowledged early reaches the other side.
    pub(crate) fn flush(&mut self, name: &ResourceName, host: &HostName, peer: &HostName) {
        if self.link(host, peer) == Quality::Dead {
            return;
        }
        let Some(resource) = self.resources.get_mut(name) else { return };
        if !resource.connected(host, peer) {
            return;
        }
        let side = resource.sides.get_mut(host);
        let link = side.and_then(|side| side.links.get_mut(peer));
        let unsent = link.map(|link| std::mem::take(&mut link.unsent)).unwrap_or_default();
        for (volume, block, version) in unsent {
            if let Some(copy) = resource.copy_mut(peer, volume) {
                copy.set(block, version);
            }
        }
    }

    /// I/O on a host stands still from now on.
    pub(crate) fn suspend(&mut self, name: &ResourceName, host: &HostName, until: Suspension) {
        let side = self.resources.get_mut(name).and_then(|resource| resource.sides.get_mut(host));
        if let Some(side) = side {
            side.suspended = Some(until);
            self.note(Place::Resource(name.clone()), format!("I/O on {host} is suspended"));
        }
        if let Suspension::Until(until) = until {
            self.at(until, Due::SuspensionEnds { resource: name.clone(), host: host.clone(), until });
        }
    }

    /// I/O on a host goes on.
    pub(crate) fn resume(&mut self, name: &ResourceName, host: &HostName) {
        let side = self.resources.get_mut(name).and_then(|resource| resource.sides.get_mut(host));
        if let Some(side) = side
            && side.suspended.take().is_some()
        {
            self.note(Place::Resource(name.clone()), format!("I/O on {host} goes on"));
            self.wake_writers(name);
        }
    }

    pub(crate) fn suspension_ends(&mut self, name: &ResourceName, host: &HostName, until: SystemTime) {
        let side = self.resources.get(name).and_then(|resource| resource.sides.get(host));
        if side.is_some_and(|side| side.suspended == Some(Suspension::Until(until))) {
            self.resume(name, host);
        }
    }

    /// Whether the host's copy, or a good one that it is connected to, holds everything promised.
    pub(crate) fn serves_whole(&self, name: &ResourceName, host: &HostName) -> bool {
        let Some(resource) = self.resources.get(name) else { return true };
        let up = |host: &HostName| {
            resource.sides[host].copies.values().all(|copy| copy.disk == DiskState::UpToDate)
        };
        let Some(side) = resource.sides.get(host) else { return false };
        if side.configured && up(host) {
            return self.is_whole(name, host);
        }
        resource.peers_connected(host).iter().any(|peer| up(peer) && self.is_whole(name, peer))
    }

    /// Whether any copy holds a write.
    pub(crate) fn holds(&self, place: &ledger::Place, write: u64) -> bool {
        let (name, volume, block) = place;
        let sides = self.resources.get(name).into_iter().flat_map(|resource| resource.sides.values());
        let copies = sides.filter_map(|side| side.copies.get(volume)).filter(|copy| copy.is_there());
        copies.into_iter().any(|copy| self.ledger.holds(copy.blocks[*block as usize], write))
    }

    /// Whether the host's copy holds everything promised.
    pub(crate) fn is_whole(&self, name: &ResourceName, host: &HostName) -> bool {
        let Some(side) = self.resources.get(name).and_then(|resource| resource.sides.get(host)) else {
            return false;
        };
        self.ledger.heads().filter(|((resource, ..), _)| resource == name).all(|(place, _)| {
            let copy = side.copies.get(&place.1);
            copy.filter(|copy| copy.is_there())
                .is_some_and(|copy| self.ledger.is_whole(place, copy.blocks[place.2 as usize]))
        })
    }
}
