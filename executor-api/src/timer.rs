//! Time as an argument: the only way an executor without a runtime may wait.

use std::fmt::Debug;
use std::pin::Pin;
use std::time::SystemTime;

/// A clock and its alarm. The tokio shell and the virtual-time runner each bring one.
pub trait Timer: Send + Sync + Debug {
    /// The current time.
    fn now(&self) -> SystemTime;

    /// Completes once `now() >= at`; at once if that is already so.
    fn sleep_until(&self, at: SystemTime) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}
