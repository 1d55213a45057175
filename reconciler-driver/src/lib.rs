//! Drives the decisions of `reconciler-core`: the sole writer of state, and everything that waits.
//!
//! ```text
//!   inputs ──handle──► ClusterDriver ──pass──► changeset ──► StateStore
//!     ▲                 (no I/O)         │                       │ committed
//!     │                                  └─► effects, released ◄─┘
//!     └── outcomes, observations, listings ◄── Dispatcher ◄── effects
//! ```
//!
//! The middle does no I/O and takes time as an argument; two thin shells bring it to life with the same
//! [`dispatch`] in between: [`shell`] on tokio and real executors, [`runner`] in virtual time.
//!
//! Reading order: [`rules`], [`driver`] (state, queue, deadlines), [`store`], [`executors`], [`dispatch`],
//! then [`shell`] or [`runner`]; [`event`] and [`status`] are what readers see. [`maintenance`] stands apart: it drives
//! gated plans by the same discipline. Nothing outside [`driver`]
//! holds a `&mut ClusterState`.

pub mod adopt;
pub mod dispatch;
pub mod driver;
pub mod error;
pub mod event;
pub mod executors;
pub mod journal;
pub mod maintenance;
pub mod orphans;
pub mod rules;
pub mod runner;
pub mod shell;
pub mod status;
pub mod store;

pub use driver::{
    Asked, Attachment, Checkpoint, ClusterDriver, DesiredChange, Difference, Distrust, Distrusted,
    DriverInput, EffectCall, PassReport, Playback, Route, Sweep, TapeBegin, TapeEntry, UnknownSlot, replay,
};
pub use error::{DesiredRejected, DriverError};
pub use event::{Counters, Event, Happening};
pub use executors::{ExecutorTable, NoExecutor};
pub use journal::Journal;
pub use orphans::{Orphan, OrphanAge, find_orphans};
pub use rules::Rules;
pub use runner::{Runner, VirtualTimer};
pub use shell::{DriverHandle, ShellConfig, StopReason, Summary, TokioTimer, start};
pub use status::{Explanation, NodeStatus, StatusSnapshot, snapshot_of};
pub use store::{Changeset, MemoryStore, MetaChange, SqliteStore, StateImage, StateStore, StoreError};
