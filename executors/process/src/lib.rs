//! Real local nodes. A lease is a node directory and its slot's ports; a node is a program under a small
//! supervisor of its own, so that it outlives the driver and its end is never missed.
//!
//! ```text
//!   driver process                                  one supervisor per node (own session)
//!   ──────────────                                  ────────────────────────────────────
//!   ProcessExecutor                                  supervisor::main
//!     lease.rs      node directories, ports             output.rs   logs, redaction, marker line
//!     bootstrap.rs  start, cancel      ── spawn ──►     reap.rs     the program and all its descendants
//!     attach.rs     probe, watch       ── socket ─►     socket.rs   status, watch, stop
//! ```
//!
//! What holds the two together is the node directory (see [`layout`]): whoever holds the lock on its
//! `session.lock` is the attempt's one session. The driver takes the lock and hands the very same lock to the
//! supervisor it spawns, so that there is no moment in which a session exists and the lock is free.
//!
//! Read in this order: [`settings`] (what a user writes), [`template`] (placeholders), [`layout`] (what is on
//! disk), [`ports`], [`processes`] (identity and signals), then the two sides drawn above.

mod attach;
mod bootstrap;
mod client;
#[cfg(feature = "conformance")]
pub mod conformance;
mod executor;
pub mod layout;
mod lease;
mod lock;
pub mod logs;
pub mod marker;
mod plan;
pub mod ports;
mod probe;
pub mod processes;
pub mod settings;
mod stop;
pub mod supervisor;
pub mod template;
mod validate;

pub use executor::{ProcessConfig, ProcessExecutor, SupervisorCommand, default_port_registry};
pub use logs::{LogFiles, log_files};
