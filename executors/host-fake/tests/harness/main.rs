//! The harness shown to mislead as the real things do: each test arranges a trap and looks at it through the traits
//! alone, then asks the truth.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod agents;
#[path = "../clock/mod.rs"]
mod clock;
mod flips;
mod locks;
mod machines;
mod replication;
mod scenarios;
mod support;
