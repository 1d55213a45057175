//! The real decider of gated plans, driven against the harness: nothing of what it must never bring about comes
//! about, whatever the world does.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../clock/mod.rs"]
mod clock;
mod driver;
mod stories;
mod storms;
