//! A provider to copy. It rents out machines that exist only in memory, keeps every promise of the two author
//! traits, and says beside each line why it stands there. `docs/write-a-provider.md` walks through it.
//!
//! ```text
//!   cloud.rs       the world: what your provider's servers know. Replace it with a client of yours.
//!   leases.rs      LeaseProvider: machines made, found, listed, given back
//!   bootstrap.rs   Bootstrapper: what runs on them, and telling the driver about it
//! ```

mod bootstrap;
mod cloud;
mod leases;

use std::sync::Arc;

use executor_api::{Executor, ExecutorError, ExecutorErrorKind, OperationContext, OperationKind, Timer};

pub use cloud::{Cloud, Machine, Session, Unreachable};

/// Both halves of the executor. Holds a way to the world and a clock, and remembers nothing of its own: after a
/// restart of the driver a new instance must know as much as this one.
#[derive(Clone, Debug)]
pub struct Template {
    cloud: Arc<Cloud>,
    timer: Arc<dyn Timer>,
}

impl Template {
    /// An executor on this world, in this time.
    pub fn executor(cloud: Arc<Cloud>, timer: Arc<dyn Timer>) -> Executor {
        let both = Arc::new(Self { cloud, timer });
        Executor::new(Arc::clone(&both) as _, both)
    }
}

/// An error names what was being done, for whom, and what to do next. The kind is what the driver branches on:
/// whatever you cannot prove is `Ambiguous`.
fn failed(
    kind: ExecutorErrorKind,
    effect: OperationKind,
    ctx: &OperationContext,
    why: &str,
) -> ExecutorError {
    ExecutorError::new(kind, effect, format!("{}: {why}", ctx.attempt))
}

/// The connection is not there, so nothing was made: this is the one network error that proves something. A
/// connection that breaks *after* the request was sent proves nothing and is `Ambiguous`.
fn unreachable(effect: OperationKind, ctx: &OperationContext) -> impl Fn(Unreachable) -> ExecutorError {
    let error = failed(ExecutorErrorKind::Unavailable, effect, ctx, "the cloud cannot be reached; try again");
    let context = error.context;
    move |Unreachable| ExecutorError::new(ExecutorErrorKind::Unavailable, effect, context.clone())
}
