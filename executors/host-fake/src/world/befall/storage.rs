//! Incidents of storage: what happens to connections, and what happens to copies.

use executor_api::host::{DiskState, Generation, HostName, ResourceName};

use crate::incident::Incident;
use crate::world::records::Place;
use crate::world::replica::{Cause, Copy, Suspension};
use crate::world::state::State;

impl State {
    pub(super) fn befall_connection(&mut self, incident: &Incident) -> Option<()> {
        if let Incident::Module { version } = incident {
            self.manner.module = *version;
            let hosts: Vec<_> = self.hosts.keys().cloned().collect();
            self.all_storage_moves(&hosts);
            return Some(());
        }
        let (Incident::StandAlone { resource: name, .. }
        | Incident::Reconnects { resource: name, .. }
        | Incident::Blocked { resource: name, .. }
        | Incident::NetChanged { resource: name, .. }
        | Incident::ResyncHeld { resource: name, .. }
        | Incident::IoSuspended { resource: name, .. }
        | Incident::SplitBrainAnnounced { resource: name, .. }) = incident
        else {
            return None;
        };
        let resource = self.resources.get_mut(name)?;
        let hosts: Vec<_> = resource.sides.keys().cloned().collect();
        let peers_of =
            |host: &HostName| hosts.iter().filter(|peer| *peer != host).cloned().collect::<Vec<_>>();
        match incident {
            Incident::StandAlone { host, .. } => {
                resource.sides.get(host)?;
                for peer in peers_of(host) {
                    self.stand_alone(name, host, &peer);
                }
            }
            Incident::Reconnects { host, .. } => {
                resource.sides.get(host)?;
                for peer in peers_of(host) {
                    self.connect(name, host, &peer, &Cause::World);
                }
            }
            Incident::Blocked { blocked, .. } => {
                resource.blocked = *blocked;
                self.links_changed();
            }
            Incident::NetChanged { protocol, after_split_brain, allow_two_primaries, .. } => {
                let net = &mut resource.net;
                net.protocol = protocol.clone().unwrap_or_else(|| net.protocol.clone());
                net.after_split_brain =
                    after_split_brain.clone().unwrap_or_else(|| net.after_split_brain.clone());
                net.allow_two_primaries = allow_two_primaries.unwrap_or(net.allow_two_primaries);
            }
            Incident::ResyncHeld { host, held, .. } => {
                for copy in resource.sides.get_mut(host)?.copies.values_mut() {
                    copy.toward.values_mut().for_each(|toward| toward.held = *held);
                }
                for peer in peers_of(host) {
                    self.kick(name, host, &peer);
                }
            }
            Incident::IoSuspended { host, suspended: true, .. } => {
                self.suspend(name, host, Suspension::ByHand);
            }
            Incident::IoSuspended { host, .. } => self.resume(name, host),
            _ => {
                let Incident::SplitBrainAnnounced { host, .. } = incident else { return None };
                self.announce(name, host);
            }
        }
        self.note(Place::Resource(name.clone()), incident.name());
        self.all_storage_moves(&hosts);
        Some(())
    }

    pub(super) fn befall_copy(&mut self, incident: &Incident) -> Option<()> {
        let (Incident::BitsAppear { resource: name, .. }
        | Incident::BitsDropped { resource: name, .. }
        | Incident::Rots { resource: name, .. }
        | Incident::Verify { resource: name }
        | Incident::DayZero { resource: name, .. }
        | Incident::JustCreated { resource: name, .. }
        | Incident::CrashedPrimary { resource: name, .. }
        | Incident::Diverges { resource: name, .. }
        | Incident::DiskFails { resource: name, .. }) = incident
        else {
            return None;
        };
        let hosts: Vec<_> = self.resources.get(name)?.sides.keys().cloned().collect();
        match incident {
            Incident::BitsAppear { host, blocks, .. } => self.copies(name, host, |copy| {
                let count = u32::try_from(copy.blocks.len()).unwrap_or(u32::MAX).min(*blocks);
                copy.toward.values_mut().for_each(|toward| toward.bits.extend(0..count));
            })?,
            Incident::BitsDropped { host, .. } => {
                self.copies(name, host, |copy| {
                    copy.toward.values_mut().for_each(|toward| toward.bits.clear());
                })?;
                self.hide_uncounted(name);
            }
            Incident::Rots { host, block, .. } => {
                let content = self.ledger.mint();
                let copy = self.resources.get_mut(name)?.copy_mut(host, 0)?;
                copy.blocks.get(*block as usize)?;
                copy.lapse(*block, content);
                self.hidden.insert((name.clone(), 0, *block));
            }
            Incident::Verify { .. } => self.verify(name),
            Incident::DayZero { host, .. } => self.day_zero(name, host)?,
            Incident::JustCreated { host, .. } => {
                for host in host.iter().chain(hosts.iter().filter(|_| host.is_none())) {
                    self.copies(name, host, |copy| {
                        copy.current = Generation::JUST_CREATED;
                        copy.history.clear();
                        copy.toward.values_mut().for_each(|toward| toward.bitmap = Generation::NONE);
                    })?;
                }
            }
            Incident::CrashedPrimary { host, .. } => {
                self.copies(name, host, |copy| copy.crashed_primary = true)?;
            }
            Incident::Diverges { host, writes, .. } => self.diverge(name, host, *writes)?,
            _ => {
                let Incident::DiskFails { host, .. } = incident else { return None };
                self.copies(name, host, |copy| copy.disk = DiskState::Diskless)?;
            }
        }
        self.note(Place::Resource(name.clone()), incident.name());
        self.all_storage_moves(&hosts);
        Some(())
    }

    fn copies(
        &mut self,
        name: &ResourceName,
        host: &HostName,
        mut change: impl FnMut(&mut Copy),
    ) -> Option<()> {
        let side = self.resources.get_mut(name)?.sides.get_mut(host)?;
        side.copies.values_mut().for_each(&mut change);
        Some(())
    }

    /// Compares every block. Differences are marked on both sides, and hidden no more.
    fn verify(&mut self, name: &ResourceName) {
        let Some(resource) = self.resources.get_mut(name) else { return };
        let hosts: Vec<_> = resource.sides.keys().cloned().collect();
        for volume in resource.volumes() {
            for one in &hosts {
                for other in hosts.iter().filter(|other| *other != one) {
                    let (Some(a), Some(b)) = (resource.copy(one, volume), resource.copy(other, volume))
                    else {
                        continue;
                    };
                    let pairs = a.blocks.iter().zip(&b.blocks).enumerate();
                    let differing: Vec<_> = pairs
                        .filter(|(_, (ours, theirs))| ours != theirs)
                        .filter_map(|(at, _)| u32::try_from(at).ok())
                        .collect();
                    if let Some(toward) =
                        resource.copy_mut(one, volume).and_then(|copy| copy.toward.get_mut(other))
                    {
                        toward.bits.extend(differing);
                    }
                }
            }
        }
        self.hidden.retain(|(resource, ..)| resource != name);
    }

    /// One identifier by fiat on every side, never rotated; one copy holds nothing that was written.
    fn day_zero(&mut self, name: &ResourceName, empty: &HostName) -> Option<()> {
        self.resources.get(name)?.sides.get(empty)?;
        let fiat = self.generation();
        let resource = self.resources.get_mut(name)?;
        let volumes = resource.volumes();
        for (host, side) in &mut resource.sides {
            for copy in side.copies.values_mut() {
                copy.current = fiat;
                copy.history.clear();
                for toward in copy.toward.values_mut() {
                    toward.bitmap = Generation::NONE;
                    toward.bits.clear();
                }
                if host == empty {
                    for block in (0..).take(copy.blocks.len()) {
                        copy.lapse(block, 0);
                    }
                }
            }
        }
        // Where nothing was ever written, something was there before the ledger began.
        for volume in volumes {
            let version = self.ledger.mint();
            let resource = self.resources.get_mut(name)?;
            for (_, side) in resource.sides.iter_mut().filter(|(host, _)| *host != empty) {
                if let Some(copy) =
                    side.copies.get_mut(&volume).filter(|copy| copy.blocks.first() == Some(&0))
                {
                    let replaced = copy.set(0, version);
                    self.ledger.acknowledge((name.clone(), volume, 0), version, replaced);
                }
            }
        }
        Some(())
    }

    /// A host becomes primary beside the other and writes. Nothing of it reaches anybody.
    fn diverge(&mut self, name: &ResourceName, host: &HostName, writes: u32) -> Option<()> {
        let resource = self.resources.get(name)?;
        if !resource.peers_connected(host).is_empty() {
            return None;
        }
        let was_primary = resource.sides.get(host)?.primary;
        if !was_primary {
            let side = self.resources.get_mut(name)?.sides.get_mut(host)?;
            side.primary = true;
            side.copies.values_mut().for_each(|copy| copy.rotates = true);
        }
        let blocks = u32::try_from(self.resources.get(name)?.copy(host, 0)?.blocks.len()).ok()?;
        for turn in 0..writes {
            self.write(name, host, 0, turn % blocks);
        }
        if !was_primary {
            // Becoming primary is enough: the generation is another even without a write.
            if self.resources.get(name)?.copy(host, 0)?.rotates {
                self.rotate(name, host);
            }
            self.demote(name, host);
        }
        Some(())
    }

    fn all_storage_moves(&mut self, hosts: &[HostName]) {
        for host in hosts {
            self.storage_moves(host);
        }
    }
}
