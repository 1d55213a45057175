//! Machines, sabotaged.

use std::collections::BTreeSet;
use std::time::SystemTime;

use async_trait::async_trait;
use executor_api::host::{
    EvictionSetting, EvictionStrategy, FenceValue, HostError, HostReport, PinShield, ResourceName, Settled,
    VirtualMachines, VmAction, VmName, VmOperation, VmPicture,
};
use executor_host_fake::Incident;

use super::{Content, Saboteur};
use crate::how::How;

#[async_trait]
impl VirtualMachines for Saboteur {
    async fn picture(&self, resources: &BTreeSet<ResourceName>) -> Result<VmPicture, HostError> {
        let known = self.memory().machines.clone();
        if let (How::CachesMachines, Some(known)) = (self.how, &known) {
            return Ok(known.clone());
        }
        let all = ["r1", "r2"].map(|name| ResourceName::new(name).unwrap()).into();
        let resources = if self.is(How::ShowsEveryMachine) { &all } else { resources };
        let read = match (self.seat.picture(resources).await, known) {
            (Err(_), Some(known)) if self.is(How::TellsTheLastWhenItCannotRead) => Ok(known),
            (read, _) => read,
        };
        let mut read = read?;
        for vm in read.vms.values_mut() {
            match (self.how, &mut vm.running) {
                (How::ReadsTheDeclaredMachine, Some(running)) => running.effective = vm.declared.clone(),
                (How::UnsetReadsAsNone, _) if vm.declared == EvictionSetting::Unset => {
                    vm.declared = EvictionSetting::PINNED;
                }
                (How::HidesMarks, Some(running)) => running.evacuating_from = None,
                (How::ShieldIsAlwaysUp, _) => {
                    vm.shield = PinShield { eviction_refused: Some(true), migration_refused: Some(true) };
                }
                _ => {}
            }
        }
        if self.is(How::HidesMigrations) {
            read.migrations.clear();
        }
        self.memory().machines = Some(read.clone());
        Ok(read)
    }

    async fn apply(&self, operation: &VmOperation, deadline: SystemTime) -> Result<HostReport, HostError> {
        let content = Content::Vm(operation.vm.clone(), operation.action.clone());
        let skipped = matches!(operation.action, VmAction::AbortMigration { .. });
        if self.is(How::AbortDoesNothing) && skipped || self.is(How::DoesNothing) {
            return Ok(HostReport::Done);
        }
        let mut passed = operation.clone();
        passed.fence = self.fence(operation.fence, &operation.plan);
        passed.id = self.id_for(&operation.plan, operation.id, &content);
        if let VmAction::Restore { original } = &mut passed.action {
            match self.how {
                How::RestoresUnsetAsNone if *original == EvictionSetting::Unset => {
                    *original = EvictionSetting::PINNED;
                }
                How::RestoresToLiveMigrate => {
                    *original = EvictionSetting::Set(EvictionStrategy::LiveMigrateIfPossible);
                }
                How::RestoreKeepsTheShield => {
                    // As a restore would, by hand; and whoever refuses evictions and migrations is forgotten.
                    let (vm, setting) = (operation.vm.clone(), original.clone());
                    self.befall(&Incident::Redeclared { vm: vm.clone(), setting: setting.clone() });
                    self.befall(&Incident::EffectiveChanged { vm, setting });
                    return Ok(HostReport::Done);
                }
                _ => {}
            }
        }
        let before = self.seat.world().vms().vms.remove(&operation.vm).and_then(|vm| vm.running);
        self.began(&operation.plan, operation.id, content);
        let outcome = VirtualMachines::apply(&*self.seat, &passed, deadline).await;
        if outcome.is_ok() && operation.action == VmAction::Pin {
            let vm = operation.vm.clone();
            match self.how {
                How::PinOnlyDeclares => {
                    let setting = before.map_or(EvictionSetting::Unset, |running| running.effective);
                    self.befall(&Incident::EffectiveChanged { vm, setting });
                }
                How::PinRaisesNoShield => self.befall(&Incident::ShieldDeleted { vm }),
                How::PinReplacesThePod => self.befall(&Incident::Restarts { vm, to: None }),
                How::PinsEveryMachine => {
                    for name in ["v1", "v2"] {
                        let vm = VmName::new(name).unwrap();
                        self.also_vm(VmOperation { vm, ..operation.clone() }, deadline).await;
                    }
                }
                _ => {}
            }
        }
        self.told(outcome).await
    }

    async fn settle(
        &self,
        operation: &VmOperation,
        fence: FenceValue,
        deadline: SystemTime,
    ) -> Result<Settled, HostError> {
        match self.how {
            How::SettlesAsDone => return Ok(Settled::Done(HostReport::Done)),
            How::SettlesAsNeverBegun => return Ok(Settled::NeverBegun),
            How::SettlingActs => self.also_vm(operation.clone(), deadline).await,
            _ => {}
        }
        let mut passed = operation.clone();
        passed.id = self.id(operation.id);
        let fence = self.fence(fence, &operation.plan);
        self.told(VirtualMachines::settle(&*self.seat, &passed, fence, deadline).await).await
    }
}
