//! Incidents, carried out. What is not there makes them come to nothing; only what happened is counted.

use executor_api::host::{DiskState, Generation, HostName, ResourceName};

use super::bond::BondStep;
use super::judge::Subject;
use super::records::Place;
use super::replica::{Cause, Copy, Suspension};
use super::state::{Due, State, later};
use crate::incident::Incident;

impl State {
    /// Something befalls the world.
    pub(crate) fn befall(&mut self, incident: &Incident) {
        if self.carry_out(incident).is_some() {
            *self.incidents.entry(incident.name()).or_default() += 1;
        }
    }

    fn carry_out(&mut self, incident: &Incident) -> Option<()> {
        match incident {
            Incident::CarrierLost { .. }
            | Incident::CarrierBack { .. }
            | Incident::WireLoses { .. }
            | Incident::MemberRefuses { .. }
            | Incident::MemberLeaves { .. }
            | Incident::BondSet { .. }
            | Incident::ConfigurationSet { .. }
            | Incident::RoutesLost { .. } => self.befall_bond(incident),
            Incident::HostReboots { .. }
            | Incident::HostDies { .. }
            | Incident::HostReturns { .. }
            | Incident::AgentRestarts { .. }
            | Incident::Eligible { .. }
            | Incident::PodReturns { .. } => self.befall_host(incident),
            Incident::StandAlone { .. }
            | Incident::Reconnects { .. }
            | Incident::Blocked { .. }
            | Incident::NetChanged { .. }
            | Incident::ResyncHeld { .. }
            | Incident::IoSuspended { .. }
            | Incident::SplitBrainAnnounced { .. }
            | Incident::Module { .. } => self.befall_connection(incident),
            Incident::BitsAppear { .. }
            | Incident::BitsDropped { .. }
            | Incident::Rots { .. }
            | Incident::Verify { .. }
            | Incident::DayZero { .. }
            | Incident::JustCreated { .. }
            | Incident::CrashedPrimary { .. }
            | Incident::Diverges { .. }
            | Incident::DiskFails { .. } => self.befall_copy(incident),
            Incident::Migrates { .. }
            | Incident::MigrationEnds { .. }
            | Incident::EvacuationMark { .. }
            | Incident::Evicted { .. }
            | Incident::Restarts { .. }
            | Incident::Stops { .. }
            | Incident::Appears { .. }
            | Incident::Disappears { .. }
            | Incident::Redeclared { .. }
            | Incident::EffectiveChanged { .. }
            | Incident::ShieldDeleted { .. } => self.befall_vm(incident),
            Incident::LeaseDeleted => {
                self.note(Place::Lock, "the lease is deleted by hand");
                self.lock.lease.take().map(drop)
            }
            Incident::HoldDeleted => {
                self.note(Place::Lock, "the hold is deleted by hand");
                self.lock.hold_taken_away = true;
                self.lock.hold.take().map(drop)
            }
        }
    }

    fn befall_bond(&mut self, incident: &Incident) -> Option<()> {
        if let Incident::WireLoses { wire, every } = incident {
            self.cabling.loses.insert(*wire, *every);
            self.moves(Subject::Link);
            self.links_changed();
            return Some(());
        }
        let (Incident::CarrierLost { host, .. }
        | Incident::CarrierBack { host, .. }
        | Incident::MemberRefuses { host, .. }
        | Incident::MemberLeaves { host, .. }
        | Incident::BondSet { host, .. }
        | Incident::ConfigurationSet { host, .. }
        | Incident::RoutesLost { host }) = incident
        else {
            return None;
        };
        let bond = &mut self.hosts.get_mut(host)?.bond;
        match incident {
            Incident::CarrierLost { interface, .. } => bond.set_carrier(interface, false),
            Incident::CarrierBack { interface, .. } => bond.set_carrier(interface, true),
            Incident::MemberRefuses { interface, times, .. } => {
                bond.nics.get_mut(interface)?.refuses = *times;
            }
            Incident::MemberLeaves { interface, .. } => bond.leave(interface),
            Incident::BondSet { mode, .. } => {
                let mode = mode.clone().unwrap_or_else(|| bond.config_mode.clone());
                let members = bond.config_members.clone();
                let steps = [BondStep::Down, BondStep::Release, BondStep::Mode(mode)];
                let joins = members.into_iter().map(BondStep::Join);
                for step in steps.into_iter().chain(joins).chain([BondStep::Up]) {
                    // A member that refuses is missing; whoever did this did not look.
                    let _ = bond.step(&step);
                }
            }
            Incident::ConfigurationSet { mode, .. } => bond.config_mode = mode.clone(),
            _ => bond.routes.clear(),
        }
        self.note(Place::Host(host.clone()), incident.name());
        self.moves(Subject::Bond(host.clone()));
        self.moves(Subject::Link);
        self.links_changed();
        Some(())
    }

    fn befall_host(&mut self, incident: &Incident) -> Option<()> {
        match incident {
            Incident::HostReboots { host } => {
                self.host_dies(host)?;
                self.after(self.pace.boot, Due::Boots(host.clone()));
            }
            Incident::HostDies { host } => self.host_dies(host)?,
            Incident::HostReturns { host } => {
                if self.hosts.get(host)?.alive {
                    return None;
                }
                self.boots(host);
            }
            Incident::AgentRestarts { host } => {
                self.hosts.get(host).filter(|host| host.alive)?;
                self.crash_agent(host);
            }
            Incident::Eligible { host, eligible } => self.hosts.get_mut(host)?.eligible = *eligible,
            Incident::PodReturns { host } => {
                let round = self.hosts.get(host)?.pod_round;
                self.moves(Subject::Pods(host.clone()));
                self.storage_moves(host);
                self.pod_starts(host, &Cause::World, round);
            }
            _ => return None,
        }
        Some(())
    }

    fn host_dies(&mut self, name: &HostName) -> Option<()> {
        let host = self.hosts.get_mut(name).filter(|host| host.alive)?;
        host.alive = false;
        host.flip = None;
        host.pods.clear();
        self.note(Place::Host(name.clone()), "the host crashes");
        for subject in [Subject::Bond(name.clone()), Subject::Pods(name.clone()), Subject::Link] {
            self.moves(subject);
        }
        self.storage_moves(name);
        let here: Vec<_> = self
            .vms
            .iter()
            .filter(|(_, vm)| vm.running.as_ref().is_some_and(|running| running.node == *name))
            .map(|(vm, _)| vm.clone())
            .collect();
        let resources: Vec<_> = self.resources.keys().cloned().collect();
        for resource in &resources {
            self.crash_side(resource, name);
        }
        for vm in here {
            self.stop_vm(&vm);
            self.after(self.pace.vm_start, Due::VmStarts { vm, node: name.clone() });
        }
        let agent_back = later(self.now, self.pace.boot);
        if let Some(host) = self.hosts.get_mut(name) {
            host.agent.crash(agent_back);
        }
        self.links_changed();
        Some(())
    }

    /// What a crash does to one side: a write that was under way is on its disk and nowhere else, and what it wrote
    /// last is doubtful.
    fn crash_side(&mut self, name: &ResourceName, host: &HostName) {
        let torn = self.ledger.mint();
        let Some(side) = self.resources.get_mut(name).and_then(|resource| resource.sides.get_mut(host))
        else {
            return;
        };
        if side.primary && side.configured {
            for (number, copy) in &mut side.copies {
                copy.crashed_primary = true;
                if let (0, Some(block)) = (*number, copy.hot.last().copied()) {
                    let before = std::mem::replace(&mut copy.blocks[block as usize], torn);
                    self.ledger.torn(torn, before);
                }
                let doubtful = copy.hot.clone();
                copy.toward.values_mut().for_each(|toward| toward.bits.extend(doubtful.iter().copied()));
            }
        }
        side.primary = false;
        side.configured = false;
        side.suspended = None;
        let peers: Vec<_> = side.links.keys().cloned().collect();
        for link in side.links.values_mut() {
            link.unsent.clear();
        }
        // The side itself forgets its connections; its peers notice in their own time.
        for peer in peers {
            let side = self.resources.get_mut(name).and_then(|resource| resource.sides.get_mut(host));
            if let Some(link) = side.and_then(|side| side.links.get_mut(&peer)) {
                link.state = executor_api::host::ConnectionState::StandAlone;
                link.cause = Cause::World;
            }
        }
        if let Some(side) = self.resources.get_mut(name).and_then(|resource| resource.sides.get_mut(host)) {
            for copy in side.copies.values_mut() {
                copy.rotates = false;
                for toward in copy.toward.values_mut() {
                    toward.replication = executor_api::host::ReplicationState::Off;
                }
            }
        }
    }

    /// A dead host comes up, in the mode of its configuration.
    pub(crate) fn boots(&mut self, name: &HostName) {
        let Some(host) = self.hosts.get_mut(name).filter(|host| !host.alive) else { return };
        host.alive = true;
        host.boot += 1;
        host.bond.boot();
        host.agent.down_until = None;
        let (kept_away, round) = (host.kept_away, host.pod_round);
        self.note(Place::Host(name.clone()), "the host is up");
        for subject in [Subject::Bond(name.clone()), Subject::Pods(name.clone()), Subject::Link] {
            self.moves(subject);
        }
        self.storage_moves(name);
        self.links_changed();
        if !kept_away {
            self.after(self.pace.pods, Due::PodStarts { host: name.clone(), round });
        }
    }

    fn befall_connection(&mut self, incident: &Incident) -> Option<()> {
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

    fn befall_copy(&mut self, incident: &Incident) -> Option<()> {
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
            }
            Incident::Rots { host, block, .. } => {
                let content = self.ledger.mint();
                let copy = self.resources.get_mut(name)?.copy_mut(host, 0)?;
                *copy.blocks.get_mut(*block as usize)? = content;
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
                    copy.blocks.fill(0);
                }
            }
        }
        // Where nothing was ever written, something was there before the ledger began.
        for volume in volumes {
            let version = self.ledger.mint();
            let resource = self.resources.get_mut(name)?;
            for (_, side) in resource.sides.iter_mut().filter(|(host, _)| *host != empty) {
                if let Some(first) = side.copies.get_mut(&volume).and_then(|copy| copy.blocks.first_mut())
                    && *first == 0
                {
                    *first = version;
                    self.ledger.acknowledge((name.clone(), volume, 0), version, 0);
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

    fn befall_vm(&mut self, incident: &Incident) -> Option<()> {
        match incident {
            Incident::Migrates { vm, to, fate, past_the_shield } => {
                self.vms.get(vm)?;
                self.migrate(vm, to, fate.clone(), *past_the_shield);
            }
            Incident::MigrationEnds { migration } => {
                self.migrations.get(migration)?;
                self.abort_lands(migration);
            }
            Incident::EvacuationMark { vm, marked } => {
                let running = self.vms.get_mut(vm)?.running.as_mut()?;
                running.evacuating_from = marked.then(|| running.node.clone());
                if *marked {
                    self.once_after(self.pace.evacuation, Due::Evacuation(vm.clone()));
                }
            }
            Incident::Evicted { vm } => {
                self.vms.get(vm)?;
                self.evict(vm);
            }
            Incident::Restarts { vm, to } => {
                let before = self.stop_vm(vm)?;
                let node = to.clone().unwrap_or(before.node);
                self.after(self.pace.vm_start, Due::VmStarts { vm: vm.clone(), node });
            }
            Incident::Stops { vm } => self.stop_vm(vm).map(drop)?,
            Incident::Appears { vm } => {
                if self.vms.contains_key(&vm.name) {
                    return None;
                }
                self.make_vm(vm);
                if let Some(node) = &vm.runs_on {
                    self.start_vm(&vm.name, node);
                }
            }
            Incident::Disappears { vm } => {
                self.stop_vm(vm);
                self.vms.remove(vm)?;
            }
            Incident::Redeclared { vm, setting } => {
                let live = self.live_update;
                let machine = self.vms.get_mut(vm)?;
                machine.declared = setting.clone();
                if let Some(running) = machine.running.as_mut().filter(|_| live) {
                    running.effective = setting.clone();
                }
            }
            Incident::EffectiveChanged { vm, setting } => {
                self.vms.get_mut(vm)?.running.as_mut()?.effective = setting.clone();
            }
            _ => {
                let Incident::ShieldDeleted { vm } = incident else { return None };
                let machine = self.vms.get_mut(vm)?;
                machine.refuses_evictions = false;
                machine.refuses_migrations = false;
            }
        }
        self.moves(Subject::Vms);
        Some(())
    }

    fn all_storage_moves(&mut self, hosts: &[HostName]) {
        for host in hosts {
            self.storage_moves(host);
        }
    }

    fn storage_moves(&mut self, host: &HostName) {
        self.moves(Subject::Storage(host.clone()));
    }
}
