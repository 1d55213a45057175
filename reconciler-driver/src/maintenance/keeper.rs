//! Keeps the lease: watches the record as a candidate, renews it as its holder. Decides nothing.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::host::{
    Evidence, FenceValue, LeaseHolder, LeaseRecord, LeaseWatch, LockRecords, RecordVersion, Takeover,
};

use super::hands::Hands;
use super::look::ask;

/// One process's hold on the lease.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) me: LeaseHolder,
    watch: LeaseWatch,
    watched: Option<RecordVersion>,
    /// The lease as last written or read, while it is ours.
    ours: Option<LeaseRecord>,
    renewed_at: SystemTime,
    origin: SystemTime,
}

impl Keeper {
    pub(super) fn new(me: LeaseHolder, now: SystemTime) -> Self {
        Self { me, watch: LeaseWatch::new(), watched: None, ours: None, renewed_at: now, origin: now }
    }

    /// Takes a reading of the lock. A version met for the first time counts from the answer, one met again up to the
    /// question: the wait is never judged shorter than it was.
    pub(super) fn look(&mut self, lock: &Evidence<LockRecords>, answered: SystemTime) -> Takeover {
        let Some(records) = lock.value() else {
            return Takeover::Held { remaining: Duration::MAX };
        };
        let version = records.lease.as_ref().map(|lease| lease.version.clone());
        let at = if version == self.watched { lock.read_at } else { answered };
        self.watched = version;
        self.ours = records.lease.clone().filter(|lease| lease.holder == self.me);
        self.watch.look(records.lease.as_ref(), at.duration_since(self.origin).unwrap_or_default())
    }

    /// The lease was taken by this process.
    pub(super) fn took(&mut self, lease: LeaseRecord, now: SystemTime) {
        self.ours = Some(lease);
        self.renewed_at = now;
    }

    /// When the lease is to be renewed next, if it is ours. A third of its time leaves room for two failures.
    pub(super) fn due(&self) -> Option<SystemTime> {
        let lease = self.ours.as_ref()?;
        self.renewed_at.checked_add(lease.ttl / 3)
    }

    /// Renews, or says why the lease may not be ours any more.
    pub(super) async fn renew(&mut self, hands: &Hands) -> Result<(), String> {
        let Some(lease) = self.ours.clone() else {
            return Err("the lock's record does not show the lease as ours".to_owned());
        };
        let (lock, within) = (Arc::clone(&hands.lock), lease.ttl / 3);
        let sent = hands.timer.now();
        let renewed = ask(hands, within, "renewing the lease", async move { lock.renew(&lease).await }).await;
        match renewed {
            Ok(lease) => {
                self.ours = Some(lease);
                self.renewed_at = sent;
                Ok(())
            }
            Err(reason) => {
                // Whether it was written is not known: the next reading tells.
                self.ours = None;
                Err(reason)
            }
        }
    }

    /// Renews for an operation under this fence.
    pub(super) async fn renew_for(&mut self, hands: &Hands, fence: FenceValue) -> Result<(), String> {
        if let Some(lease) = self.ours.as_ref().filter(|lease| lease.fence != fence) {
            return Err(format!("the operation is under {fence}, the lease under {}", lease.fence));
        }
        self.renew(hands).await
    }
}
