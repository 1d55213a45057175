//! For nodes that start by themselves (user data, a baked image, a machine that somebody else runs): nothing is
//! run from here, and the join is a probe that passes.
//!
//! A session is a record in a directory of the run: that this attempt is waited for, and how. Read
//! [`settings`] (what a user writes), then [`bootstrapper`].

pub mod bootstrapper;
pub mod settings;

pub use bootstrapper::ProbeBootstrapper;
pub use settings::ProbeBoot;
