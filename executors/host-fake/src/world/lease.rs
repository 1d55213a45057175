//! The lock: a lease record and a hold, both in one place. Every write is conditional; fences only rise, whatever
//! becomes of the record.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use executor_api::host::{
    FenceValue, LeaseHolder, LeaseRecord, LockError, LockRecords, PlanHold, PlanUid, RecordVersion,
};

use super::records::{BreachKind, Place};
use super::state::{State, later};

/// Both records, and what they were.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lock {
    pub(crate) lease: Option<Held>,
    pub(crate) hold: Option<PlanHold>,
    /// Every fence there ever was.
    pub(crate) granted: BTreeSet<FenceValue>,
    /// The hold was deleted by hand, and none was placed since.
    pub(crate) hold_taken_away: bool,
    versions: u64,
}

/// A lease, and when it was last renewed.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) record: LeaseRecord,
    pub(crate) renewed: SystemTime,
}

impl State {
    pub(crate) fn read_lock(&self) -> LockRecords {
        LockRecords {
            lease: self.lock.lease.as_ref().map(|held| held.record.clone()),
            hold: self.lock.hold.clone(),
        }
    }

    pub(crate) fn acquire(
        &mut self,
        holder: &LeaseHolder,
        ttl: Duration,
        seen: Option<&RecordVersion>,
    ) -> Result<LeaseRecord, LockError> {
        if self.lock.lease.as_ref().map(|held| &held.record.version) != seen {
            return Err(moved(format!("acquire the lease for {holder}")));
        }
        if let Some(held) = &self.lock.lease {
            let alive = later(held.renewed, held.record.ttl) > self.now;
            if alive && held.record.holder != *holder {
                let what = format!("{holder} took it from {}", held.record.holder);
                self.breach(BreachKind::TakenWhileAlive, Place::Lock, what, false);
            }
        }
        // The fence outlives the record: a lease that was deleted and made anew goes on counting.
        let fence = FenceValue(self.lock.granted.last().map_or(1, |last| last.0 + 1));
        self.lock.granted.insert(fence);
        let version = self.version();
        let record = LeaseRecord { holder: holder.clone(), ttl, fence, version };
        self.lock.lease = Some(Held { record: record.clone(), renewed: self.now });
        self.note(Place::Lock, format!("{holder} has the lease, {fence}"));
        Ok(record)
    }

    pub(crate) fn renew(&mut self, lease: &LeaseRecord) -> Result<LeaseRecord, LockError> {
        self.must_hold(lease, "renew the lease")?;
        let version = self.version();
        let now = self.now;
        let Some(held) = self.lock.lease.as_mut() else { return Err(moved("renew the lease".to_owned())) };
        held.record.version = version;
        held.renewed = now;
        Ok(held.record.clone())
    }

    pub(crate) fn release(&mut self, lease: &LeaseRecord) -> Result<(), LockError> {
        self.must_hold(lease, "release the lease")?;
        self.lock.lease = None;
        self.note(Place::Lock, format!("{} gave the lease up", lease.holder));
        Ok(())
    }

    pub(crate) fn place_hold(&mut self, lease: &LeaseRecord, hold: &PlanHold) -> Result<(), LockError> {
        let doing = format!("hold the cluster for {}", hold.plan);
        self.must_hold(lease, &doing)?;
        match &self.lock.hold {
            Some(there) if there.plan != hold.plan => Err(LockError::OtherPlan { doing }),
            Some(_) => Ok(()),
            None => {
                self.lock.hold = Some(hold.clone());
                self.lock.hold_taken_away = false;
                self.note(Place::Lock, format!("the cluster is held for {}", hold.plan));
                Ok(())
            }
        }
    }

    pub(crate) fn lift_hold(&mut self, lease: &LeaseRecord, plan: &PlanUid) -> Result<(), LockError> {
        let doing = format!("lift the hold of {plan}");
        self.must_hold(lease, &doing)?;
        match &self.lock.hold {
            Some(there) if there.plan != *plan => Err(LockError::OtherPlan { doing }),
            None => Ok(()),
            Some(_) => {
                self.lock.hold = None;
                self.note(Place::Lock, format!("the hold of {plan} is lifted"));
                Ok(())
            }
        }
    }

    fn must_hold(&self, lease: &LeaseRecord, doing: &str) -> Result<(), LockError> {
        let same = self.lock.lease.as_ref().is_some_and(|held| {
            held.record.version == lease.version
                && held.record.holder == lease.holder
                && held.record.fence == lease.fence
        });
        if same { Ok(()) } else { Err(moved(doing.to_owned())) }
    }

    fn version(&mut self) -> RecordVersion {
        self.lock.versions += 1;
        RecordVersion(format!("rv-{}", self.lock.versions))
    }
}

fn moved(doing: String) -> LockError {
    LockError::Moved { doing }
}
