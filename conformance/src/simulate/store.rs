//! The durable store of a schedule: in memory, may refuse a write or lose a state, and hands its times out as a
//! wall clock that was set meanwhile would make them look.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::SystemTime;

use executor_api::LeaseOwner;
use executor_fake::FakeWorld;
use reconciler_driver::{Changeset, MemoryStore, StateImage, StateStore, StoreError};

use super::oracle::{Astray, Oracle, Watch};
use super::plan::{Clock, Disk, WriteFault, run};

#[derive(Debug)]
pub(super) struct WatchedStore {
    /// The newest state, whatever a process is given.
    inner: MemoryStore,
    /// What was there before the latest writes, oldest first.
    before: VecDeque<Option<StateImage>>,
    watch: Watch,
    world: FakeWorld,
}

impl WatchedStore {
    /// Another opening of the same disk.
    pub(super) fn over(disk: &MemoryStore, watch: &Watch, world: &FakeWorld) -> Self {
        Self { inner: disk.clone(), before: VecDeque::new(), watch: watch.clone(), world: world.clone() }
    }

    /// Something befalls the disk while no process runs. What nothing in the world contradicts stays as it was:
    /// nobody could tell.
    fn befall(&mut self, disk: Disk) -> Result<(), StoreError> {
        let (image, name) = match disk {
            Disk::Newest => return Ok(()),
            Disk::Unreadable | Disk::Torn => {
                let name = if disk == Disk::Torn { "store write torn" } else { "state unreadable" };
                self.watch.with(|oracle| oracle.count(name));
                let finding = "page 3 is never used".to_owned();
                return Err(StoreError::Damaged { path: PathBuf::from("state.db"), finding });
            }
            Disk::Older { writes } => {
                let Some(at) = self.before.len().checked_sub(writes) else { return Ok(()) };
                (self.before.get(at).cloned().flatten(), "old state put back")
            }
            Disk::Deleted => (None, "state deleted"),
        };
        let next = image.as_ref().map_or(1, |image| image.state.next_attempt_id);
        let now = self.world.now();
        let contradicted = self.world.existing_leases().iter().any(|lease| {
            let newer = |owner: &LeaseOwner| {
                matches!(owner, LeaseOwner::Attempt(key) if key.run == run() && key.attempt.0 >= next)
            };
            newer(&lease.owner) && lease.visible_from <= now
        });
        if contradicted {
            self.watch.with(|oracle| {
                oracle.count(name);
                oracle.astray = Some(Astray { image });
            });
        }
        Ok(())
    }
}

impl StateStore for WatchedStore {
    fn load(&mut self) -> Result<Option<StateImage>, StoreError> {
        if let Some(disk) = self.watch.with(|oracle| oracle.disk.take()) {
            self.befall(disk)?;
        }
        let newest = self.inner.load()?;
        let (mut image, clock) = self.watch.with(|oracle| {
            let image = oracle.astray.clone().map_or(newest, |astray| astray.image);
            oracle.loaded.clone_from(&image);
            oracle.opened(image.as_ref());
            (image, oracle.clock.take())
        });
        if let (Some(image), Some(clock)) = (image.as_mut(), clock) {
            shift(image, clock);
        }
        Ok(image)
    }

    fn commit(&mut self, changes: &Changeset) -> Result<(), StoreError> {
        let (fault, kept) = self.watch.with(|oracle| (oracle.write(changes), oracle.kept));
        let refused = |why: &str| Err(StoreError::Other(why.to_owned()));
        match fault? {
            Some(WriteFault::NoSpace) => refused("no space left"),
            Some(WriteFault::SyncFails { kept: false }) => refused("cannot synchronise"),
            Some(WriteFault::SyncFails { kept: true }) => {
                self.inner.commit(changes)?;
                refused("cannot synchronise")
            }
            None => {
                if kept > 0 {
                    self.before.push_back(self.inner.image());
                    let surplus = self.before.len().saturating_sub(kept);
                    self.before.drain(..surplus);
                }
                self.inner.commit(changes)
            }
        }
    }
}

impl Oracle {
    /// A process opens the store and finds this.
    fn opened(&mut self, image: Option<&StateImage>) {
        self.store_failed = false;
        self.durable.clear();
        let Some(image) = image else { return };
        let pending =
            image.state.nodes.iter().filter_map(|(slot, node)| Some((slot, node.pending.as_ref()?)));
        self.durable = pending.map(|(slot, pending)| (slot.clone(), pending.id)).collect();
        self.durable_generation = image.state.observed_generation;
        self.durable_next_attempt = image.state.next_attempt_id;
        self.next_attempt = image.state.next_attempt_id;
    }

    /// What becomes of a write, and what it may hold.
    fn write(&mut self, changes: &Changeset) -> Result<Option<WriteFault>, StoreError> {
        let gone = || StoreError::Other("the store was given up".to_owned());
        if self.astray.is_some() {
            self.goes_on_astray("the state was written over");
            return Err(gone());
        }
        if self.store_failed {
            self.violated("P7", None, || "written again on a handle that had failed".to_owned());
            return Err(gone());
        }
        let number = self.commits.saturating_sub(1);
        if let Some(how) = self.failing_commits.remove(&number) {
            self.store_failed = true;
            self.count(match how {
                WriteFault::NoSpace => "store write without space",
                WriteFault::SyncFails { kept: false } => "store write not synchronised",
                WriteFault::SyncFails { kept: true } => "store write not synchronised and there",
            });
            return Ok(Some(how));
        }
        let meta = &changes.meta;
        let (generation, next) = (meta.observed_generation, meta.next_attempt_id);
        let monotone = self.durable_generation <= generation;
        self.demand(monotone, "S14", None, || {
            format!("generation {generation} was stored after a later one")
        });
        let monotone = self.durable_next_attempt <= next;
        self.demand(monotone, "S11", None, || format!("the next attempt id went back to {next}"));
        self.durable_generation = generation;
        self.durable_next_attempt = next;
        for (slot, node) in &changes.upserted {
            self.demand(node.attempt.0 < next, "S11", Some(slot), || {
                format!("{} was stored without the allocator that gave it out", node.attempt)
            });
            match &node.pending {
                Some(pending) => self.durable.insert(slot.clone(), pending.id),
                None => self.durable.remove(slot),
            };
        }
        for slot in &changes.removed {
            self.durable.remove(slot);
        }
        Ok(None)
    }
}

/// The image as it reads by a clock that was set. Times that others stamped by clocks of their own stay.
fn shift(image: &mut StateImage, clock: Clock) {
    let moved = |at: SystemTime| match clock {
        Clock::True => Some(at),
        // A clock that was set back makes what was stored look later.
        Clock::Back(by) => at.checked_add(by),
        Clock::Forward(by) => at.checked_sub(by),
    };
    let put = |at: &mut SystemTime| *at = moved(*at).unwrap_or(*at);
    let put_some = |at: &mut Option<SystemTime>| *at = at.map(|at| moved(at).unwrap_or(at));
    for node in image.state.nodes.values_mut() {
        put(&mut node.record.created_at);
        put_some(&mut node.record.failed_at);
        put_some(&mut node.record.destroyed_at);
        if let Some(facts) = &mut node.record.bootstrap {
            put(&mut facts.started_at);
        }
        if let Some(pending) = &mut node.pending {
            put(&mut pending.deadline);
        }
        put_some(&mut node.retry.next_effect_at);
        put_some(&mut node.retry.restart_at);
        put_some(&mut node.retry.extra.absent_counts_from);
        put_some(&mut node.extra.join_deadline);
        put_some(&mut node.extra.ready_at);
        put_some(&mut node.extra.stable_at);
        put_some(&mut node.extra.suspect_since);
        put_some(&mut node.extra.loss_deadline);
    }
}
