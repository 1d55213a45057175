//! The lock, sabotaged. What is told of a lease may differ from the record; what is told back is translated again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use executor_api::host::{
    ClusterLock, FenceValue, LeaseHolder, LeaseRecord, LockError, LockRecords, PlanHold, PlanUid,
    RecordVersion,
};

use super::Saboteur;
use crate::how::How;

#[async_trait]
impl ClusterLock for Saboteur {
    async fn read(&self) -> Result<LockRecords, LockError> {
        let known = self.memory().lock.clone();
        if let (How::CachesTheLock, Some(known)) = (self.how, &known) {
            return Ok(known.clone());
        }
        let read = match (ClusterLock::read(&*self.seat).await, known) {
            (Err(_), Some(known)) if self.is(How::TellsTheLastWhenItCannotRead) => return Ok(known),
            (read, _) => read,
        };
        let mut read = read?;
        read.lease = read.lease.map(|lease| self.shown(lease));
        self.memory().lock = Some(read.clone());
        Ok(read)
    }

    async fn acquire(
        &self,
        holder: &LeaseHolder,
        ttl: Duration,
        seen: Option<&RecordVersion>,
    ) -> Result<LeaseRecord, LockError> {
        let there = self.there().map(|lease| lease.version);
        let whatever = matches!(self.how, How::TakesWhateverIsThere | How::CachesTheLock)
            || self.is(How::VersionNeverChanges) && seen.is_some();
        let seen = if whatever { there.as_ref() } else { seen };
        let ttl = if self.is(How::DurationOfItsOwn) { Duration::from_secs(15) } else { ttl };
        let taken = self.lost(self.seat.acquire(holder, ttl, seen).await)?;
        self.agents.granted.store(taken.fence.0, Ordering::Relaxed);
        Ok(self.shown(taken))
    }

    async fn renew(&self, lease: &LeaseRecord) -> Result<LeaseRecord, LockError> {
        if self.is(How::RenewalRaisesTheFence) {
            return self.seat.acquire(&lease.holder, lease.ttl, Some(&lease.version)).await;
        }
        match self.lost(self.seat.renew(&self.real(lease)).await) {
            Err(LockError::Moved { .. }) if self.is(How::RenewsWhatWasTaken) => Ok(lease.clone()),
            renewed => renewed.map(|lease| self.shown(lease)),
        }
    }

    async fn release(&self, lease: &LeaseRecord) -> Result<(), LockError> {
        match (self.how, self.there()) {
            (How::ReleaseOnlySaysSo, _) => return Ok(()),
            (How::ReleasesForAnybody, Some(there)) => return self.seat.release(&there).await,
            (How::HoldGoesWithTheLease, _) => {
                if let Some(hold) = self.seat.world().lock().hold {
                    self.seat.lift_hold(&self.real(lease), &hold.plan).await?;
                }
            }
            (How::FenceStartsAnewAfterARelease, _) => {
                self.seat.release(&self.real(lease)).await?;
                self.agents.forget_fences();
                return Ok(());
            }
            _ => {}
        }
        self.lost(self.seat.release(&self.real(lease)).await)
    }

    async fn place_hold(&self, lease: &LeaseRecord, hold: &PlanHold) -> Result<(), LockError> {
        let standing = self.seat.world().lock().hold;
        match (self.how, self.there(), standing) {
            (How::HoldsForAnybody, Some(there), _) => return self.seat.place_hold(&there, hold).await,
            (How::HoldReplacesOthers, _, Some(other)) => self.seat.lift_hold(lease, &other.plan).await?,
            (How::HoldIsPlacedOnce, _, Some(_)) => {
                return Err(LockError::OtherPlan { doing: "hold the cluster".to_owned() });
            }
            _ => {}
        }
        self.seat.place_hold(&self.real(lease), hold).await?;
        if self.is(How::PlacingAHoldRenews) {
            self.seat.renew(lease).await?;
        }
        Ok(())
    }

    async fn lift_hold(&self, lease: &LeaseRecord, plan: &PlanUid) -> Result<(), LockError> {
        let standing = self.seat.world().lock().hold;
        match (self.how, self.there(), standing) {
            (How::LiftsForAnybody, Some(there), _) => self.seat.lift_hold(&there, plan).await,
            (How::HoldReplacesOthers, _, Some(other)) => self.seat.lift_hold(lease, &other.plan).await,
            _ => self.seat.lift_hold(&self.real(lease), plan).await,
        }
    }
}

impl Saboteur {
    /// The lease as it really is.
    fn there(&self) -> Option<LeaseRecord> {
        self.seat.world().lock().lease
    }

    /// What is told of a lease.
    fn shown(&self, mut lease: LeaseRecord) -> LeaseRecord {
        let forgotten = self.agents.forgotten.load(Ordering::Relaxed);
        lease.fence = match self.how {
            How::FenceNeverRises => FenceValue(1),
            How::FencePerHolder => {
                *self.agents.kept().fences.entry(lease.holder.clone()).or_insert(lease.fence)
            }
            How::FenceStartsAnewAfterARelease | How::FenceStartsAnewAfterADeletion => {
                FenceValue(lease.fence.0 - forgotten)
            }
            _ => lease.fence,
        };
        if self.is(How::VersionNeverChanges) {
            lease.version = RecordVersion("one".to_owned());
        }
        lease
    }

    /// The lease that was meant.
    fn real(&self, lease: &LeaseRecord) -> LeaseRecord {
        match self.there() {
            Some(there) if there.holder == lease.holder && self.shown(there.clone()) == *lease => there,
            _ => lease.clone(),
        }
    }

    /// What is told of a write of which nobody can tell.
    fn lost<T>(&self, outcome: Result<T, LockError>) -> Result<T, LockError> {
        match outcome {
            Err(LockError::Ambiguous { doing, reason }) if self.is(How::LostWritesAreUnavailable) => {
                Err(LockError::Unavailable { doing, reason })
            }
            outcome => outcome,
        }
    }
}
