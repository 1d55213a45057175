//! Machines: what is declared and what runs, migrations and their aborts, evictions, and the writes they make.

use executor_api::host::{
    AbortStatus, EvictionSetting, EvictionStrategy, HostErrorKind, HostName, HostReport, MigrationName,
    MigrationPhase, ResourceName, VmAction, VmName, VmOperation,
};

use super::agent::Outcome;
use super::judge::Subject;
use super::records::{BreachKind, Place};
use super::state::{Due, Instance, Migration, State, Vm};
use super::writes::Wrote;
use crate::faults::Fault;
use crate::incident::MigrationFate;
use crate::spec::VmSpec;

impl Migration {
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, MigrationPhase::Succeeded | MigrationPhase::Failed)
    }
}

impl State {
    pub(crate) fn make_vm(&mut self, spec: &VmSpec) {
        let vm = Vm {
            resources: spec.resources.clone(),
            first: spec.declared(),
            declared: spec.declared(),
            running: None,
            refuses_evictions: false,
            refuses_migrations: false,
            shield_taken_away: false,
            pinned_by: None,
            writes_every: spec.writes_every,
            turn: 0,
            waiting: false,
        };
        self.vms.insert(spec.name.clone(), vm);
        self.moves(Subject::Vms);
    }

    /// A machine comes up. Where its volumes cannot be written it is tried again.
    pub(crate) fn start_vm(&mut self, name: &VmName, node: &HostName) {
        let Some(vm) = self.vms.get(name) else { return };
        if vm.running.is_some() {
            return;
        }
        let resources = vm.resources.clone();
        let alive = self.hosts.get(node).is_some_and(|host| host.alive);
        let ready = alive && resources.iter().all(|resource| self.promote(resource, node));
        if !ready {
            self.release_unused(&resources, node);
            let delay = self.pace.vm_start.max(std::time::Duration::from_secs(1));
            self.after(delay, Due::VmStarts { vm: name.clone(), node: node.clone() });
            return;
        }
        let pod = self.next();
        self.land(name, node, pod);
    }

    /// A machine runs on a host from now on, with what is declared for it.
    fn land(&mut self, name: &VmName, node: &HostName, pod: u64) {
        let Some(vm) = self.vms.get_mut(name) else { return };
        let effective = vm.declared.clone();
        vm.running = Some(Instance { pod, node: node.clone(), effective, evacuating_from: None });
        vm.waiting = false;
        let (every, resources, pinned) = (vm.writes_every, vm.resources.clone(), vm.pinned_by.is_some());
        self.note(Place::Vm(name.clone()), format!("runs on {node}"));
        self.moves(Subject::Vms);
        for resource in resources {
            if !self.serves_whole(&resource, node) {
                // Whoever pinned it left a way to get here, unless the shield was up and somebody went past it, or
                // deleted it; or the copies came apart without them: they were told of a shield that never was, and
                // have not gone on without it.
                let guarded = |vm: &Vm| vm.refuses_migrations || vm.shield_taken_away;
                let theirs = self.resources.get(&resource).is_some_and(|resource| resource.apart_by_caller);
                let excused = !pinned || !theirs || self.vms.get(name).is_some_and(guarded);
                let what = format!("runs on {node}, whose copy of {resource} lacks acknowledged writes");
                self.breach(BreachKind::VmOnUnverifiedCopy, Place::Vm(name.clone()), what, excused);
            }
        }
        if let Some(every) = every {
            self.after(every.max(std::time::Duration::from_millis(1)), Due::Write { vm: name.clone(), pod });
        }
    }

    /// A machine's instance is gone.
    pub(crate) fn stop_vm(&mut self, name: &VmName) -> Option<Instance> {
        let vm = self.vms.get_mut(name)?;
        let instance = vm.running.take()?;
        vm.waiting = false;
        let resources = vm.resources.clone();
        self.release_unused(&resources, &instance.node);
        self.moves(Subject::Vms);
        Some(instance)
    }

    fn release_unused(&mut self, resources: &std::collections::BTreeSet<ResourceName>, node: &HostName) {
        for resource in resources {
            let used = self.vms.values().any(|vm| {
                vm.resources.contains(resource)
                    && vm.running.as_ref().is_some_and(|running| running.node == *node)
            });
            if !used {
                self.demote(resource, node);
            }
        }
    }

    /// Another host that has all volumes of a machine.
    pub(crate) fn elsewhere(&self, name: &VmName, node: &HostName) -> Option<HostName> {
        let vm = self.vms.get(name)?;
        let fits = |host: &HostName| {
            vm.resources.iter().all(|name| {
                self.resources.get(name).is_some_and(|resource| resource.sides.contains_key(host))
            })
        };
        self.hosts
            .iter()
            .find(|(host, truth)| *host != node && truth.alive && fits(host))
            .map(|(host, _)| host.clone())
    }

    /// A machine's pod is evicted: refused, answered with a migration, or granted.
    pub(crate) fn evict(&mut self, name: &VmName) {
        let Some(vm) = self.vms.get_mut(name) else { return };
        let Some(running) = vm.running.as_mut() else { return };
        if vm.refuses_evictions {
            self.note(Place::Vm(name.clone()), "an eviction is refused");
            return;
        }
        let strategy = match &running.effective {
            EvictionSetting::Set(strategy) => strategy.clone(),
            EvictionSetting::Unset => self.default_eviction.clone(),
        };
        if strategy == EvictionStrategy::None || matches!(strategy, EvictionStrategy::Unknown(_)) {
            let pinned = vm.pinned_by.is_some();
            let node = running.node.clone();
            if pinned {
                let what = format!("evicted from {node}");
                // No operation lowers a shield and leaves the pin: this was done to the caller, not by it. Going on
                // without the shield is a breach of its own.
                self.breach(BreachKind::PinnedVmEvicted, Place::Vm(name.clone()), what, true);
            }
            self.move_pod(name, &node);
            return;
        }
        running.evacuating_from = Some(running.node.clone());
        self.moves(Subject::Vms);
        self.note(Place::Vm(name.clone()), "is marked to be moved away");
        if strategy != EvictionStrategy::External {
            self.evacuate(name);
        }
    }

    /// A pod is gone, and its machine comes up elsewhere if it can.
    fn move_pod(&mut self, name: &VmName, node: &HostName) {
        let target = self.elsewhere(name, node).unwrap_or_else(|| node.clone());
        self.stop_vm(name);
        self.note(Place::Vm(name.clone()), format!("its pod on {node} is gone"));
        self.after(self.pace.vm_start, Due::VmStarts { vm: name.clone(), node: target });
    }

    /// Every pod on a host is deleted, shield or no shield.
    pub(crate) fn delete_pods(&mut self, node: &HostName) {
        let here: Vec<_> = self
            .vms
            .iter()
            .filter(|(_, vm)| vm.running.as_ref().is_some_and(|running| running.node == *node))
            .map(|(name, _)| name.clone())
            .collect();
        if !here.is_empty() {
            self.faults.fire("evicts-machines");
        }
        for name in here {
            self.breach(
                BreachKind::PinnedVmEvicted,
                Place::Vm(name.clone()),
                "its pod was deleted by the agent",
                true,
            );
            self.move_pod(&name, node);
        }
    }

    /// A mark leads to a migration, as long as it stands.
    pub(crate) fn evacuate(&mut self, name: &VmName) {
        let Some(vm) = self.vms.get(name) else { return };
        let Some(running) = &vm.running else { return };
        if running.evacuating_from.as_ref() != Some(&running.node) {
            return;
        }
        let moving = self.migrations.values().any(|migration| migration.vm == *name && !migration.is_over());
        if !moving && let Some(target) = self.elsewhere(name, &running.node.clone()) {
            self.migrate(name, &target, MigrationFate::Obedient, false);
        }
        let delay = self.pace.evacuation.max(std::time::Duration::from_secs(1));
        self.once_after(delay, Due::Evacuation(name.clone()));
    }

    /// Somebody asks for a migration.
    pub(crate) fn migrate(&mut self, vm: &VmName, to: &HostName, fate: MigrationFate, past_the_shield: bool) {
        let Some(machine) = self.vms.get(vm) else { return };
        if machine.running.is_none() {
            return;
        }
        if machine.refuses_migrations && !past_the_shield {
            self.note(Place::Vm(vm.clone()), "a migration is refused");
            return;
        }
        let number = self.migrations.len() + 1;
        let Ok(name) = MigrationName::new(format!("{vm}-{number}")) else { return };
        let migration = Migration {
            vm: vm.clone(),
            phase: MigrationPhase::Pending,
            target: to.clone(),
            abort_requested: false,
            abort_status: None,
            post_copy: false,
            fate,
        };
        self.migrations.insert(name.clone(), migration);
        self.moves(Subject::Vms);
        self.note(Place::Vm(vm.clone()), format!("migration {name} to {to} begins"));
        self.after(self.pace.migration_phase, Due::Migration(name));
    }

    /// A migration reaches its next phase.
    pub(crate) fn migration_step(&mut self, name: &MigrationName) {
        use MigrationPhase::{
            Pending, PreparingTarget, Running, Scheduled, Scheduling, Succeeded, TargetReady,
        };
        let Some(migration) = self.migrations.get_mut(name) else { return };
        let stands = matches!(migration.fate, MigrationFate::Stuck { .. }) && migration.phase == Scheduling;
        if migration.is_over() || stands {
            return;
        }
        let vm = migration.vm.clone();
        migration.phase = match migration.phase {
            Pending => Scheduling,
            Scheduling => Scheduled,
            Scheduled => PreparingTarget,
            PreparingTarget => TargetReady,
            TargetReady => Running,
            _ => Succeeded,
        };
        let there = self.hosts.get(&migration.target).is_some_and(|host| host.alive);
        if migration.phase == Succeeded && !there {
            migration.phase = MigrationPhase::Failed;
            self.note(Place::Vm(vm), format!("migration {name} failed: its target is down"));
            self.moves(Subject::Vms);
            return;
        }
        migration.post_copy = migration.phase == Running && migration.fate == MigrationFate::PostCopy;
        if migration.phase == Succeeded {
            if migration.abort_requested {
                migration.abort_status = Some(AbortStatus::Failed);
            }
            let target = migration.target.clone();
            self.note(Place::Vm(vm.clone()), format!("migration {name} succeeded"));
            self.arrive(&vm, &target);
        } else {
            self.after(self.pace.migration_phase, Due::Migration(name.clone()));
        }
        self.moves(Subject::Vms);
    }

    fn arrive(&mut self, name: &VmName, target: &HostName) {
        let Some(before) = self.stop_vm(name) else { return };
        let resources = self.vms.get(name).map(|vm| vm.resources.clone()).unwrap_or_default();
        if resources.iter().all(|resource| self.promote(resource, target)) {
            let pod = self.next();
            self.land(name, target, pod);
        } else {
            self.release_unused(&resources, target);
            self.after(self.pace.vm_start, Due::VmStarts { vm: name.clone(), node: target.clone() });
        }
        // What the instance had goes with it.
        if let Some(running) = self.vms.get_mut(name).and_then(|vm| vm.running.as_mut()) {
            running.effective = before.effective;
        }
    }

    /// An abort reaches its migration.
    pub(crate) fn abort_lands(&mut self, name: &MigrationName) {
        let Some(migration) = self.migrations.get_mut(name) else { return };
        if migration.is_over() {
            return;
        }
        migration.phase = MigrationPhase::Failed;
        migration.abort_status = Some(AbortStatus::Succeeded);
        let vm = migration.vm.clone();
        self.moves(Subject::Vms);
        self.note(Place::Vm(vm), format!("migration {name} is over without a move"));
    }

    /// What an operation does to a machine.
    pub(crate) fn perform_vm(&mut self, operation: &VmOperation, fault: Option<Fault>) -> Outcome {
        let name = &operation.vm;
        match &operation.action {
            VmAction::Pin => {
                self.declare(name, &EvictionSetting::PINNED, fault)?;
                let shields = fault != Some(Fault::NoShield);
                if !shields {
                    self.faults.fire("no-shield");
                }
                if let Some(vm) = self.vms.get_mut(name) {
                    vm.pinned_by = Some(operation.plan.clone());
                    vm.refuses_evictions = shields;
                    vm.refuses_migrations = shields;
                    vm.shield_taken_away = false;
                }
            }
            VmAction::Restore { original } => {
                let wrong = fault == Some(Fault::RestoresNone);
                if wrong {
                    self.faults.fire("restores-none");
                }
                self.declare(name, if wrong { &EvictionSetting::PINNED } else { original }, fault)?;
                if let Some(vm) = self.vms.get_mut(name) {
                    vm.pinned_by = None;
                    vm.refuses_evictions = false;
                    vm.refuses_migrations = false;
                }
            }
            VmAction::AbortMigration { migration } => self.abort(name, migration)?,
        }
        let what = format!("{} is done", operation.action);
        self.note(Place::Vm(name.clone()), what);
        Ok(HostReport::Done)
    }

    fn declare(
        &mut self,
        name: &VmName,
        setting: &EvictionSetting,
        fault: Option<Fault>,
    ) -> Result<(), (HostErrorKind, String)> {
        let Some(vm) = self.vms.get_mut(name) else {
            return Err((
                HostErrorKind::Failed,
                format!("there is no machine {name}; read the machines again"),
            ));
        };
        vm.declared = setting.clone();
        if fault == Some(Fault::NotPropagated) {
            self.faults.fire("not-propagated");
        } else if let Some(running) = vm.running.as_mut() {
            running.effective = setting.clone();
        }
        Ok(())
    }

    fn abort(&mut self, vm: &VmName, name: &MigrationName) -> Result<(), (HostErrorKind, String)> {
        let Some(migration) = self.migrations.get_mut(name).filter(|migration| migration.vm == *vm) else {
            return Err((
                HostErrorKind::Failed,
                format!("{vm} has no migration {name}; read the machines again"),
            ));
        };
        if migration.is_over() || migration.abort_requested {
            return Ok(());
        }
        migration.abort_requested = true;
        migration.abort_status = Some(AbortStatus::Aborting);
        let after = match migration.fate {
            MigrationFate::Obedient => Some(self.pace.migration_phase / 2),
            MigrationFate::Stuck { ends_after } => ends_after,
            MigrationFate::WinsTheRace | MigrationFate::PostCopy => None,
        };
        if let Some(after) = after {
            self.after(after, Due::AbortLands(name.clone()));
        }
        Ok(())
    }

    /// The time of a machine's regular write has come.
    pub(crate) fn write_due(&mut self, name: &VmName, pod: u64) {
        let Some(vm) = self.vms.get(name) else { return };
        let runs = vm.running.as_ref().is_some_and(|running| running.pod == pod);
        let Some(every) = vm.writes_every else { return };
        if !runs || vm.waiting {
            return;
        }
        if self.write_next(name) != Some(Wrote::Waits) {
            self.after(every.max(std::time::Duration::from_millis(1)), Due::Write { vm: name.clone(), pod });
        }
    }

    /// A machine writes the next block in turn.
    pub(crate) fn write_next(&mut self, name: &VmName) -> Option<Wrote> {
        let vm = self.vms.get(name)?;
        let node = vm.running.as_ref()?.node.clone();
        let turn = usize::try_from(vm.turn).ok()?;
        let resource = vm.resources.iter().nth(turn % vm.resources.len().max(1))?.clone();
        let sizes: Vec<_> = {
            let side = self.resources.get(&resource)?.sides.get(&node)?;
            side.copies.iter().map(|(volume, copy)| (*volume, copy.blocks.len())).collect()
        };
        let (volume, blocks) = sizes[turn % sizes.len()];
        // A stride that meets every block of a volume of any size that has no factor 7.
        let block = u32::try_from((turn * 7) % blocks).ok()?;
        let wrote = self.write(&resource, &node, volume, block);
        let vm = self.vms.get_mut(name)?;
        vm.waiting = wrote == Wrote::Waits;
        if wrote == Wrote::Done {
            vm.turn += 1;
        }
        Some(wrote)
    }

    /// Writes that waited on a resource are tried again.
    pub(crate) fn wake_writers(&mut self, resource: &ResourceName) {
        let waiting: Vec<_> = self
            .vms
            .iter()
            .filter(|(_, vm)| vm.waiting && vm.resources.contains(resource))
            .filter_map(|(name, vm)| Some((name.clone(), vm.running.as_ref()?.pod, vm.writes_every)))
            .collect();
        for (name, pod, every) in waiting {
            if self.write_next(&name) != Some(Wrote::Waits)
                && let Some(every) = every
            {
                self.after(every.max(std::time::Duration::from_millis(1)), Due::Write { vm: name, pod });
            }
        }
    }
}
