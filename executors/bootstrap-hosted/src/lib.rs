//! Bootstrap sessions that live on the node itself: they go on while nobody is connected, and whoever connects next
//! finds them.
//!
//! ```text
//!   driving machine                                        the node
//!   ───────────────                                        ────────
//!   HostedBootstrapper<T: Transport>                       .reconciler/NAME/
//!     settings ──► plan, environment                         plan.sh, files, events, out
//!     record       how to get there, who the host is         lock   held by the one runner
//!     follow       look, tell, look again     ── Host ──►  session.sh  put, launch, look, cancel
//! ```
//!
//! A transport (SSH, the agent) brings a way to a [`Host`] and nothing else. On the node both ways end in the same
//! fixed script, which needs Linux, a POSIX shell, `flock` and `setsid`. The host decides under a lock of its own
//! that a session begins once; a cancelled one leaves a mark behind so that a late launch finds it.
//!
//! Read in this order: [`settings`] (what a user writes), [`plan`] (what that becomes), [`host`] and its script,
//! [`progress`] and [`output`] (what is read from there), [`transport`], [`bootstrapper`], [`logs`] (all of the output).

pub mod bootstrapper;
mod follow;
pub mod host;
pub mod logs;
pub mod output;
pub mod plan;
pub mod progress;
mod record;
mod redact;
pub mod settings;
pub mod transport;

pub use bootstrapper::{HostedBootstrapper, HostedConfig};
pub use host::{CancelEnd, Content, Glimpse, Host, HostError, OutputWanted, Position, SessionName, Standing};
pub use logs::{OutputError, OutputReader, Piece, SessionOutput};
pub use plan::Plan;
pub use settings::BootSettings;
pub use transport::{Pin, Transport};
