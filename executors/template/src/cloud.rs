//! The world: machines, whose they are, and what runs on them. In your provider this is somebody else's server, and
//! this file is a thin client of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use executor_api::world::{SessionState, Trouble};
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
    /// What runs on it, once something was started.
    pub session: Option<SessionState>,
}

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
    ///
    /// # Errors
    /// The connection is not there, so nothing was done: this is the one network error that proves something. A
    /// connection that breaks *after* the request was sent proves nothing and is [`Trouble::ambiguous`].
    pub fn request<R>(&self, of: impl FnOnce(&mut BTreeMap<AttemptKey, Machine>) -> R) -> Result<R, Trouble> {
        if self.down.load(Ordering::Relaxed) {
            return Err(Trouble::unreachable("the cloud cannot be reached; see that it runs"));
        }
        Ok(of(&mut self.machines.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Cuts the connection, or mends it.
    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
    }
}
