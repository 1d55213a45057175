//! An operator that falls asleep between its last check and its mutation, as a process does that is stopped.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use executor_api::Timer as _;
use executor_api::host::{
    FenceValue, HostError, HostErrorKind, HostExecutor, HostOperation, HostReport, ResourceName, Settled,
    VirtualMachines, VmOperation, VmPicture,
};
use executor_host_fake::Seat;
use reconciler_driver::VirtualTimer;
use reconciler_driver::maintenance::Start;

/// Puts a whole operator to sleep right before one mutation leaves it: its lease is renewed, its record is written.
#[derive(Debug)]
pub(crate) struct Sleeper {
    seat: Seat,
    timer: VirtualTimer,
    sleeps: Arc<Mutex<Sleep>>,
}

#[derive(Debug, Default)]
pub(crate) struct Sleep {
    /// So many mutations go out before it.
    pub(crate) after: u32,
    pub(crate) lasts: Duration,
    pub(crate) until: Option<SystemTime>,
    /// What came of the mutation.
    pub(crate) woken: Option<Result<HostReport, HostErrorKind>>,
}

impl Sleeper {
    /// An operator that reaches the world through this seat.
    pub(crate) fn sits(start: &mut Start, seat: Seat, timer: &VirtualTimer, sleeps: &Arc<Mutex<Sleep>>) {
        let sleeper = Arc::new(Self { seat, timer: timer.clone(), sleeps: Arc::clone(sleeps) });
        start.hands.hosts = Arc::<Self>::clone(&sleeper);
        start.hands.vms = sleeper;
    }

    /// Whether this is the one, from now on asleep.
    fn falls_asleep(&self) -> bool {
        let mut sleeps = self.sleeps.lock().unwrap();
        if sleeps.until.is_some() {
            return false;
        }
        if sleeps.after == 0 {
            sleeps.until = Some(self.timer.now() + sleeps.lasts);
            self.seat.sets_out();
            return true;
        }
        sleeps.after -= 1;
        false
    }

    fn woke(&self, outcome: &Result<HostReport, HostError>) {
        let kind = match outcome {
            Ok(report) => Ok(report.clone()),
            Err(error) => Err(error.kind.clone()),
        };
        self.sleeps.lock().unwrap().woken = Some(kind);
    }
}

/// Gives way once, so that whoever polls can leave it alone.
async fn give_way() {
    let mut given = false;
    std::future::poll_fn(
        |_| if std::mem::replace(&mut given, true) { Poll::Ready(()) } else { Poll::Pending },
    )
    .await;
}

#[async_trait]
impl HostExecutor for Sleeper {
    async fn apply(&self, operation: &HostOperation, deadline: SystemTime) -> Result<HostReport, HostError> {
        if !self.falls_asleep() {
            return HostExecutor::apply(&self.seat, operation, deadline).await;
        }
        give_way().await;
        let outcome = HostExecutor::apply(&self.seat, operation, deadline).await;
        self.woke(&outcome);
        outcome
    }

    async fn settle(
        &self,
        operation: &HostOperation,
        fence: FenceValue,
        deadline: SystemTime,
    ) -> Result<Settled, HostError> {
        HostExecutor::settle(&self.seat, operation, fence, deadline).await
    }
}

#[async_trait]
impl VirtualMachines for Sleeper {
    async fn picture(&self, resources: &BTreeSet<ResourceName>) -> Result<VmPicture, HostError> {
        self.seat.picture(resources).await
    }

    async fn apply(&self, operation: &VmOperation, deadline: SystemTime) -> Result<HostReport, HostError> {
        if !self.falls_asleep() {
            return VirtualMachines::apply(&self.seat, operation, deadline).await;
        }
        give_way().await;
        let outcome = VirtualMachines::apply(&self.seat, operation, deadline).await;
        self.woke(&outcome);
        outcome
    }

    async fn settle(
        &self,
        operation: &VmOperation,
        fence: FenceValue,
        deadline: SystemTime,
    ) -> Result<Settled, HostError> {
        VirtualMachines::settle(&self.seat, operation, fence, deadline).await
    }
}
