//! What executors share that look at a node from outside: is it ready, and how is that written down.
//!
//! ```text
//!   settings ──► text (placeholders) ──► probe ──► watch ──► tell
//!   what a user     rendered for one       one      until      observations
//!   writes          attempt                try      ready      for the driver
//! ```
//!
//! Read in this order: [`settings`] (a probe as a user writes it), [`text`] (its placeholders), [`probe`] (one
//! try), [`watch`] (many), [`tell`] (what the driver is told), [`read`] and [`span`] (settings with places),
//! [`records`] (what outlives the driver).
//! Nothing here knows how a node was started.

pub mod probe;
pub mod read;
pub mod records;
pub mod settings;
pub mod span;
pub mod tell;
pub mod text;
pub mod watch;

pub use probe::{Check, Probe, ProbeFailure};
pub use records::{RecordError, Records};
pub use settings::ProbeSettings;
pub use span::Span;
pub use tell::Teller;
pub use text::{Names, TextError};
