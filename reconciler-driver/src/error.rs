//! What stops a driver, and what it refuses to be told.

use executor_api::RunId;
use reconciler_core::{ReconcileError, ShapeError};

use crate::driver::{Distrust, UnknownSlot};
use crate::store::StoreError;

/// Why a desired shape was not accepted. The last accepted one stays in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DesiredRejected {
    /// The shape belongs to another run.
    #[error("the shape belongs to run {given}, this driver serves {serving}; start another driver for it")]
    OtherRun {
        /// The run of the shape.
        given: RunId,
        /// The run of the driver.
        serving: RunId,
    },
    /// An older revision than the one in force.
    #[error("generation {given} is older than {accepted}, which is in force; give it a higher one")]
    OlderGeneration {
        /// The generation of the shape.
        given: u64,
        /// The last accepted generation.
        accepted: u64,
    },
    /// Another content under a generation that is taken.
    #[error("generation {generation} is in force with another content; give the changed shape a higher one")]
    SameGeneration {
        /// The generation.
        generation: u64,
    },
    /// The shape does not expand.
    #[error("the shape cannot be expanded")]
    Shape(#[from] ShapeError),
}

/// Why a driver cannot start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The desired shape was refused.
    #[error("the desired shape was refused")]
    Desired(#[from] DesiredRejected),
    /// No plan could be made.
    #[error("no plan could be made")]
    Reconcile(#[from] ReconcileError),
    /// A tape goes on from what a driver of another version knew.
    #[error(
        "the tape goes on from what version {version} knew, and this version cannot read it: {reason}; play it \
         with that version, or record a new one"
    )]
    Checkpoint {
        /// The version that wrote it.
        version: String,
        /// What does not fit.
        reason: String,
    },
    /// A tape's first entry is not how a driver began or went on.
    #[error("the tape lacks its beginning: nothing on it can be decided again")]
    TapeWithoutBeginning,
    /// The stored state is that of another run.
    #[error("the stored state belongs to run {stored}, not to {given}; use another state directory")]
    ForeignState {
        /// The run of the state.
        stored: RunId,
        /// The run asked for.
        given: RunId,
    },
    /// The store cannot be read.
    #[error("the stored state cannot be loaded")]
    Load(#[source] StoreError),
    /// A change could not be made durable. Nothing is sent any more; the state on disk is that of the last
    /// successful commit, and a fresh start goes on from there.
    #[error("state could not be stored, nothing is sent any more: {reason}; fix the store and start again")]
    StoreFailed {
        /// What the store said.
        reason: String,
    },
    /// The providers contradict the stored state. Nothing was changed.
    #[error("{0}")]
    Distrusted(Distrust),
    /// A slot without an attempt was named.
    #[error(transparent)]
    UnknownSlot(#[from] UnknownSlot),
    /// The driver's task is gone.
    #[error("the driver has stopped")]
    Stopped,
}
