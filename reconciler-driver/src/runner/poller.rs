//! Polls tasks one at a time, in the order in which they were woken. Single-threaded and deterministic.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::dispatch::{Task, TaskEnd, TaskKey};

type Woken = Arc<Mutex<VecDeque<u64>>>;

/// What a poll came to.
pub(super) enum Polled {
    /// No task is woken.
    Nothing,
    /// One was polled and goes on.
    GoesOn,
    /// One ended.
    Ended(Box<TaskEnd>),
}

#[derive(Default)]
pub(super) struct Poller {
    tasks: BTreeMap<u64, (Task, Waker, Arc<Bell>)>,
    by_key: BTreeMap<TaskKey, u64>,
    woken: Woken,
    spawned: u64,
}

/// Rings once however often it is pulled, until the task is polled.
struct Bell {
    task: u64,
    rung: AtomicBool,
    woken: Woken,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        if !self.rung.swap(true, Ordering::Relaxed) {
            self.woken.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.task);
        }
    }
}

impl Poller {
    /// Takes a task; one of the same key is dropped for it.
    pub(super) fn spawn(&mut self, task: Task) {
        self.abort(&task.key);
        self.spawned += 1;
        let id = self.spawned;
        let bell = Arc::new(Bell { task: id, rung: AtomicBool::new(false), woken: Arc::clone(&self.woken) });
        let waker = Waker::from(Arc::clone(&bell));
        self.by_key.insert(task.key.clone(), id);
        self.tasks.insert(id, (task, waker.clone(), bell));
        waker.wake();
    }

    /// Drops a task.
    pub(super) fn abort(&mut self, key: &TaskKey) {
        if let Some(id) = self.by_key.remove(key) {
            self.tasks.remove(&id);
        }
    }

    /// Polls the next woken task.
    pub(super) fn poll(&mut self) -> Polled {
        loop {
            let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(id) = woken else { return Polled::Nothing };
            // A dropped task may have been woken before.
            let Some((task, waker, bell)) = self.tasks.get_mut(&id) else { continue };
            bell.rung.store(false, Ordering::Relaxed);
            let Poll::Ready(end) = task.future.as_mut().poll(&mut Context::from_waker(waker)) else {
                return Polled::GoesOn;
            };
            if let Some((task, _, _)) = self.tasks.remove(&id) {
                self.by_key.remove(&task.key);
            }
            return Polled::Ended(Box::new(end));
        }
    }
}
