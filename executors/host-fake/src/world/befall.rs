//! Incidents, carried out. What is not there makes them come to nothing; only what happened is counted. Those of
//! storage are in `storage`.

mod storage;

use std::collections::BTreeSet;

use executor_api::host::{HostName, ResourceName};

use super::bond::BondStep;
use super::judge::Subject;
use super::records::{MissingWrite, Place};
use super::replica::Cause;
use super::state::{Due, State, later};
use crate::incident::Incident;

impl State {
    /// Something befalls the world.
    pub(crate) fn befall(&mut self, incident: &Incident) {
        let before: BTreeSet<_> = self.missing(|_| true).into_iter().collect();
        if self.carry_out(incident).is_some() {
            *self.incidents.entry(incident.name()).or_default() += 1;
            for MissingWrite { resource, volume, block, write } in self.missing(|_| true) {
                if !before.contains(&MissingWrite { resource: resource.clone(), volume, block, write }) {
                    self.ledger.take((resource, volume, block), write);
                }
            }
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
        // Whoever had not yet noticed that the host was gone is told so by the host itself.
        for resource in self.resources.keys().cloned().collect::<Vec<_>>() {
            let peers = self.resources[&resource]
                .sides
                .get(name)
                .map(|side| side.links.keys().cloned().collect::<Vec<_>>());
            for peer in peers.unwrap_or_default() {
                self.break_link(&resource, name, &peer);
            }
        }
        self.links_changed();
        if !kept_away {
            self.after(self.pace.pods, Due::PodStarts { host: name.clone(), round });
        }
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
                machine.shield_taken_away = true;
            }
        }
        self.moves(Subject::Vms);
        Some(())
    }

    fn storage_moves(&mut self, host: &HostName) {
        self.moves(Subject::Storage(host.clone()));
    }
}
