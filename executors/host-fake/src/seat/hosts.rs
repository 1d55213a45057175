//! Operations on hosts, as the trait has them.

use std::time::SystemTime;

use async_trait::async_trait;
use executor_api::host::{FenceValue, HostError, HostExecutor, HostOperation, HostReport, Settled};

use crate::faults::CallKind;
use crate::seat::Seat;
use crate::world::Operation;

#[async_trait]
impl HostExecutor for Seat {
    async fn apply(&self, operation: &HostOperation, deadline: SystemTime) -> Result<HostReport, HostError> {
        let call = CallKind::of_host(&operation.action);
        self.carry(call, Operation::Host(operation.clone()), deadline).await
    }

    async fn settle(
        &self,
        operation: &HostOperation,
        fence: FenceValue,
        deadline: SystemTime,
    ) -> Result<Settled, HostError> {
        self.certain(CallKind::SettleHost, Operation::Host(operation.clone()), fence, deadline).await
    }
}
