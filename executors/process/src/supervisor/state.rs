//! What the supervisor knows, shared by its threads, and the part of it that is told through the socket.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::layout::ExitRecord;
use crate::processes::ProcessId;

/// What a watcher is told, as one JSON line, whenever it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The program, once it was started.
    pub(crate) program: Option<ProcessId>,
    /// How the program ended, once it has.
    pub(crate) exit: Option<ExitRecord>,
    /// Whether the marker text was seen in the output.
    pub(crate) marker_seen: bool,
    /// Processes that are still there although SIGKILL was sent a while ago.
    pub(crate) survivors: Option<String>,
    /// Whether nothing of the node is left but the supervisor, which is about to exit.
    pub(crate) finished: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) status: Status,
    /// Counts changes of the status.
    pub(crate) version: u64,
    /// When a stop was asked for, and how long after that SIGKILL follows.
    pub(crate) stop: Option<(Instant, Duration)>,
    /// Connections that have not been told the latest status.
    pub(crate) connections: usize,
}

/// The state and its alarm.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Shared {
    /// Looks at the state, or changes what no watcher is told.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // A thread that panicked leaves plain data behind, and nothing half-changed.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the status and wakes everyone.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Status)) {
        let mut inner = self.lock();
        change(&mut inner.status);
        inner.version += 1;
        self.changed.notify_all();
    }

    /// Asks for the stop. Of several requests the one whose SIGKILL comes first counts.
    pub(crate) fn request_stop(&self, grace: Duration) {
        let mut inner = self.lock();
        let now = Instant::now();
        inner.stop = Some(match inner.stop {
            Some((begun, earlier)) if begun + earlier <= now + grace => (begun, earlier),
            Some((begun, _)) => (begun, now.duration_since(begun).saturating_add(grace)),
            None => (now, grace),
        });
        self.changed.notify_all();
    }

    /// Waits until `done` says so or the time is up; the state as it is then.
    pub(crate) fn wait(&self, at_most: Duration, done: impl Fn(&Inner) -> bool) -> MutexGuard<'_, Inner> {
        let guard = self.lock();
        self.changed
            .wait_timeout_while(guard, at_most, |inner| !done(inner))
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Wakes everyone after a change through [`Shared::lock`].
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_stops_the_one_that_kills_first_counts() {
        let shared = Shared::default();
        shared.request_stop(Duration::from_mins(1));
        shared.request_stop(Duration::from_secs(1));
        let (_, grace) = shared.lock().stop.unwrap();
        assert!(grace < Duration::from_secs(5), "{grace:?}");
        shared.request_stop(Duration::from_mins(1));
        assert_eq!(shared.lock().stop.unwrap().1, grace);
    }
}
