//! Exhaustive search: every order of what two operators, their lock, their messages and a number of faults can do, on
//! the real `advance`, `apply` and `fold`, in the harness with its ground truth.
//!
//! The largest searches run only in the optimised profile:
//! `cargo test --profile checked -p executor-host-fake --test search -- --nocapture`.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod bugs;
mod clock;
mod faults;
mod key;
mod model;
mod moves;
mod runs;
mod walk;
mod watch;
