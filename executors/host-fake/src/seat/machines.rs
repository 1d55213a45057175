//! Machines, as the trait has them.

use std::collections::BTreeSet;
use std::time::SystemTime;

use async_trait::async_trait;
use executor_api::host::{
    FenceValue, HostError, HostReport, ResourceName, Settled, VirtualMachines, VmOperation, VmPicture,
};

use crate::faults::CallKind;
use crate::seat::Seat;
use crate::world::{Operation, Subject};

#[async_trait]
impl VirtualMachines for Seat {
    async fn picture(&self, resources: &BTreeSet<ResourceName>) -> Result<VmPicture, HostError> {
        self.read(CallKind::ReadVms, None, &[Subject::Vms], |state, fault| {
            Some(state.read_vms(resources, fault))
        })
        .await
    }

    async fn apply(&self, operation: &VmOperation, deadline: SystemTime) -> Result<HostReport, HostError> {
        let call = CallKind::of_vm(&operation.action);
        self.carry(call, Operation::Vm(operation.clone()), deadline).await
    }

    async fn settle(
        &self,
        operation: &VmOperation,
        fence: FenceValue,
        deadline: SystemTime,
    ) -> Result<Settled, HostError> {
        self.certain(CallKind::SettleVm, Operation::Vm(operation.clone()), fence, deadline).await
    }
}
