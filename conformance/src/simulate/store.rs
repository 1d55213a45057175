//! The durable store of a schedule: in memory, may refuse a write, and hands its times out as a wall clock
//! that was set meanwhile would make them look.

use std::time::SystemTime;

use reconciler_driver::{Changeset, MemoryStore, StateImage, StateStore, StoreError};

use super::oracle::Watch;
use super::plan::Clock;

#[derive(Debug)]
pub(super) struct WatchedStore {
    inner: MemoryStore,
    watch: Watch,
}

impl WatchedStore {
    pub(super) fn new(watch: &Watch) -> Self {
        Self { inner: MemoryStore::new(), watch: watch.clone() }
    }
}

impl StateStore for WatchedStore {
    fn load(&mut self) -> Result<Option<StateImage>, StoreError> {
        let mut image = self.inner.load()?;
        let clock = self.watch.with(|oracle| {
            oracle.loaded.clone_from(&image);
            oracle.clock.take()
        });
        if let (Some(image), Some(clock)) = (image.as_mut(), clock) {
            shift(image, clock);
        }
        Ok(image)
    }

    fn commit(&mut self, changes: &Changeset) -> Result<(), StoreError> {
        self.watch.with(|oracle| {
            let number = oracle.commits.saturating_sub(1);
            if !oracle.calm && oracle.failing_commits.remove(&number) {
                oracle.store_failed = true;
                oracle.count("store write fails");
                return Err(StoreError::Other("no space left".to_owned()));
            }
            let meta = &changes.meta;
            let (generation, next) = (meta.observed_generation, meta.next_attempt_id);
            let monotone = oracle.durable_generation <= generation;
            oracle.demand(monotone, "S14", None, || {
                format!("generation {generation} was stored after a later one")
            });
            let monotone = oracle.durable_next_attempt <= next;
            oracle.demand(monotone, "S11", None, || format!("the next attempt id went back to {next}"));
            oracle.durable_generation = generation;
            oracle.durable_next_attempt = next;
            for (slot, node) in &changes.upserted {
                oracle.demand(node.attempt.0 < next, "S11", Some(slot), || {
                    format!("{} was stored without the allocator that gave it out", node.attempt)
                });
                match &node.pending {
                    Some(pending) => oracle.durable.insert(slot.clone(), pending.id),
                    None => oracle.durable.remove(slot),
                };
            }
            for slot in &changes.removed {
                oracle.durable.remove(slot);
            }
            Ok(())
        })?;
        self.inner.commit(changes)
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
