//! The shipped driver of gated plans, driven against hosts, storage and machines that mislead, with ground truth.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod arbiter;
mod bench;
mod crashes;
mod duel;
mod flips;
mod links;
mod operators;
mod replies;
mod sleeper;
mod stalls;
mod stores;
mod storms;
mod traps;
mod waits;
