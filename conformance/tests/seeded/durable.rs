//! Bugs in what outlives the process: what is written, when, what of it is read back, and whether it is believed.

use std::collections::BTreeMap;
use std::sync::Mutex;

use conformance::simulate::Subject;
use executor_api::{EffectSuccess, NodeAttemptId, NodeObservation};
use reconciler_core::ManagedNode;
use reconciler_driver::{Changeset, StateImage, StateStore, StoreError};

use crate::plant::{Bug, Play, bug, misheard, stored_by};

pub(crate) fn bugs() -> Vec<Bug> {
    let mut bugs = writing();
    bugs.extend(reading());
    bugs
}

fn writing() -> Vec<Bug> {
    vec![
        bug("dispatch before commit: a write is done with the next", "S7", || {
            stored_by(|inner| Box::new(Behind { inner, waiting: None }))
        }),
        bug("the allocator is not stored", "S11", || {
            stored_by(|inner| {
                let spoil = |changes: &mut Changeset| changes.meta.next_attempt_id = 1;
                Box::new(Spoiled { inner, written: Some(spoil), read: None })
            })
        }),
        bug("a failed write is tried again on the same handle", "P7", || {
            stored_by(|inner| Box::new(Stubborn { inner }))
        }),
    ]
}

fn reading() -> Vec<Bug> {
    vec![
        bug("pending operations are dropped at load", "P6", || {
            stored_by(|inner| {
                let forget = |image: &mut StateImage| {
                    image.state.nodes.values_mut().for_each(|node| node.pending = None);
                };
                Box::new(Spoiled { inner, written: None, read: Some(forget) })
            })
        }),
        bug("half a write is taken for a whole one", "P6", || {
            stored_by(|inner| Box::new(Torn { inner, half: None }))
        }),
        bug("the absence window is shortened at load", "P4", || windows(true)),
        bug("an absence proved after a restart is not believed", "L3", || windows(false))
            .in_play(Play::Sweeps),
        bug("an empty store is trusted", "P8", || Subject { guarded: false, ..Subject::default() }),
    ]
}

/// Writes each changeset with the next one, and says at once that it is done.
#[derive(Debug)]
struct Behind {
    inner: Box<dyn StateStore>,
    waiting: Option<Changeset>,
}

impl StateStore for Behind {
    fn load(&mut self) -> Result<Option<StateImage>, StoreError> {
        self.waiting = None;
        self.inner.load()
    }

    fn commit(&mut self, changes: &Changeset) -> Result<(), StoreError> {
        match self.waiting.replace(changes.clone()) {
            Some(before) => self.inner.commit(&before),
            None => Ok(()),
        }
    }
}

/// Leaves something out of what is written or read.
#[derive(Debug)]
struct Spoiled {
    inner: Box<dyn StateStore>,
    written: Option<fn(&mut Changeset)>,
    read: Option<fn(&mut StateImage)>,
}

impl StateStore for Spoiled {
    fn load(&mut self) -> Result<Option<StateImage>, StoreError> {
        let mut image = self.inner.load()?;
        if let (Some(image), Some(spoil)) = (&mut image, self.read) {
            spoil(image);
        }
        Ok(image)
    }

    fn commit(&mut self, changes: &Changeset) -> Result<(), StoreError> {
        let mut changes = changes.clone();
        if let Some(spoil) = self.written {
            spoil(&mut changes);
        }
        self.inner.commit(&changes)
    }
}

/// Tries a failed write once more.
#[derive(Debug)]
struct Stubborn {
    inner: Box<dyn StateStore>,
}

impl StateStore for Stubborn {
    fn load(&mut self) -> Result<Option<StateImage>, StoreError> {
        self.inner.load()
    }

    fn commit(&mut self, changes: &Changeset) -> Result<(), StoreError> {
        self.inner.commit(changes).or_else(|_| self.inner.commit(changes))
    }
}

/// Of a write that failed, its first half is there.
#[derive(Debug)]
struct Torn {
    inner: Box<dyn StateStore>,
    half: Option<Changeset>,
}

impl StateStore for Torn {
    fn load(&mut self) -> Result<Option<StateImage>, StoreError> {
        let mut image = self.inner.load()?;
        if let (Some(image), Some(half)) = (&mut image, self.half.take()) {
            image.state.next_attempt_id = half.meta.next_attempt_id;
            let first = half.upserted.len().div_ceil(2);
            image.state.nodes.extend(half.upserted.into_iter().take(first));
        }
        Ok(image)
    }

    fn commit(&mut self, changes: &Changeset) -> Result<(), StoreError> {
        let done = self.inner.commit(changes);
        self.half = done.is_err().then(|| changes.clone());
        done
    }
}

/// Remembers from when on an absence counted when its mark was set. A process that starts again counts it anew; this
/// one goes by what was, or believes no absence that was counted anew.
fn windows(shortened: bool) -> Subject {
    let windows: Mutex<BTreeMap<NodeAttemptId, _>> = Mutex::default();
    let first_window = move |node: &ManagedNode| {
        let now = (node.retry.ambiguous_operation?, node.retry.extra.absent_counts_from?);
        let mut windows = windows.lock().unwrap();
        let first = windows.entry(node.attempt).or_insert(now);
        if first.0 != now.0 {
            *first = now;
        }
        Some((first.1, now.1))
    };
    let hear = move |node: &ManagedNode, told: NodeObservation| {
        let Some((first, now)) = first_window(node) else { return told };
        match told {
            NodeObservation::Completed(mut report) if first < now => {
                if let Ok(EffectSuccess::NothingToAdopt { as_of }) = &mut report.outcome {
                    *as_of = if shortened && first <= *as_of { now.max(*as_of) } else { (*as_of).min(first) };
                }
                NodeObservation::Completed(report)
            }
            told => told,
        }
    };
    misheard(hear)
}
