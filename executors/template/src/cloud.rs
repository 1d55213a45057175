//! The world: machines, whose they are, and what runs on them. In your provider this is somebody else's server, and
//! this file is a thin client of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use executor_api::{AttemptKey, LeaseId};

/// One machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The provider's own name for it.
    pub id: LeaseId,
    /// When it was made.
    pub made: SystemTime,
    /// Whether it still works. A dead one is shown until it is removed.
    pub alive: bool,
    /// What runs on it.
    pub session: Session,
}

/// What runs on a machine. There is one at most, so that its id can be the machine's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Session {
    /// Nothing was ever started.
    None,
    /// It runs and has not joined.
    Running,
    /// It has joined, then.
    Joined(SystemTime),
    /// It ended before it joined, with this status.
    Exited(i64),
    /// It was ended on request.
    Cancelled,
}

/// The cloud did not answer: nothing was read and nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable;

/// The machines by the attempt that each is labelled with. A real provider keeps four labels on each resource
/// ([`executor_api::AttemptIdentity`]) and looks them up; here the whole key is the label.
#[derive(Debug, Default)]
pub struct Cloud {
    machines: Mutex<BTreeMap<AttemptKey, Machine>>,
    down: AtomicBool,
}

impl Cloud {
    /// One request: all of it happens, or nothing. What a real provider does with an idempotency token (look
    /// whether it was used, and make something if not, as one step) is here one turn at the lock.
    pub fn request<R>(
        &self,
        of: impl FnOnce(&mut BTreeMap<AttemptKey, Machine>) -> R,
    ) -> Result<R, Unreachable> {
        if self.down.load(Ordering::Relaxed) {
            return Err(Unreachable);
        }
        Ok(of(&mut self.machines.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Cuts the connection, or mends it.
    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
    }
}
