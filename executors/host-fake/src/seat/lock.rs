//! The lock, as the trait has it.

use std::time::Duration;

use async_trait::async_trait;
use executor_api::host::{
    ClusterLock, LeaseHolder, LeaseRecord, LockError, LockRecords, PlanHold, PlanUid, RecordVersion,
};

use crate::faults::{CallKind, Fault};
use crate::seat::Seat;
use crate::world::State;

impl Seat {
    async fn lock_call<T>(
        &self,
        call: CallKind,
        doing: &str,
        act: impl FnOnce(&mut State) -> Result<T, LockError> + Send,
    ) -> Result<T, LockError>
    where
        T: Send,
    {
        let fault = self.arrive(call, None, None);
        let pace = self.world.enter(|state| state.pace.lock);
        self.spend(pace, fault).await;
        let (doing, reason) = (doing.to_owned(), "the connection was lost; read the lock".to_owned());
        match fault {
            Some(fault @ (Fault::Unavailable | Fault::Unreadable)) => {
                self.world.fire(fault);
                Err(LockError::Unavailable { doing, reason: "no answer; try again".to_owned() })
            }
            Some(fault @ Fault::RequestLost) => {
                self.world.fire(fault);
                Err(LockError::Ambiguous { doing, reason })
            }
            Some(fault @ Fault::AnswerLost) => {
                // Written all the same, or refused: nobody hears which.
                let _ = self.world.enter(act);
                self.world.fire(fault);
                Err(LockError::Ambiguous { doing, reason })
            }
            _ => self.world.enter(act),
        }
    }
}

#[async_trait]
impl ClusterLock for Seat {
    async fn read(&self) -> Result<LockRecords, LockError> {
        self.lock_call(CallKind::ReadLock, "read the lock", |state| Ok(state.read_lock())).await
    }

    async fn acquire(
        &self,
        holder: &LeaseHolder,
        ttl: Duration,
        seen: Option<&RecordVersion>,
    ) -> Result<LeaseRecord, LockError> {
        self.lock_call(CallKind::Acquire, "acquire the lease", |state| state.acquire(holder, ttl, seen)).await
    }

    async fn renew(&self, lease: &LeaseRecord) -> Result<LeaseRecord, LockError> {
        self.lock_call(CallKind::Renew, "renew the lease", |state| state.renew(lease)).await
    }

    async fn release(&self, lease: &LeaseRecord) -> Result<(), LockError> {
        self.lock_call(CallKind::Release, "release the lease", |state| state.release(lease)).await
    }

    async fn place_hold(&self, lease: &LeaseRecord, hold: &PlanHold) -> Result<(), LockError> {
        self.lock_call(CallKind::PlaceHold, "place the hold", |state| state.place_hold(lease, hold)).await
    }

    async fn lift_hold(&self, lease: &LeaseRecord, plan: &PlanUid) -> Result<(), LockError> {
        self.lock_call(CallKind::LiftHold, "lift the hold", |state| state.lift_hold(lease, plan)).await
    }
}
