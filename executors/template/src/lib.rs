//! A provider to copy. It rents out machines that exist only in memory, keeps every promise of an executor, and says
//! beside each line why it stands there. `docs/write-a-provider.md` walks through it.
//!
//! ```text
//!   cloud.rs         the world: what your provider's servers know. Replace it with a client of yours.
//!   leases.rs        LeaseWorld: machines seen, made and removed
//!   sessions.rs      SessionWorld: what runs on them. Leave it out if they can be reached over SSH or HTTP.
//!   conformance.rs   the suite's harness: how to make a fresh world, what is in it, how it can go wrong
//! ```

mod cloud;
#[cfg(feature = "conformance")]
pub mod conformance;
mod leases;
mod sessions;

use std::sync::Arc;

use executor_api::{Executor, Timer, world};

pub use cloud::{Cloud, Machine};

/// The provider: a way to the world, and a clock. It remembers nothing of its own: after a restart of the driver a new
/// one must know as much as this one.
#[derive(Clone, Debug)]
pub struct Template {
    cloud: Arc<Cloud>,
    timer: Arc<dyn Timer>,
}

impl Template {
    /// The name under which specs ask for it.
    pub const NAME: &'static str = "template";

    /// An executor on this world, in this time.
    pub fn executor(cloud: Arc<Cloud>, timer: Arc<dyn Timer>) -> Executor {
        world::executor(Self { cloud, timer: Arc::clone(&timer) }, timer)
    }
}
