//! The suite that proves an executor: one case per promise of the two author traits.
//!
//! ```text
//!   Harness (yours) ──► Bench ──► cases::{dedup, adoption, …} ──► Report
//!     world, executor,   calls as the driver      ask the inventory
//!     inventory, faults  makes them               never a call log
//! ```
//!
//! An author implements [`Harness`] once and writes `conformance::suite!(MyHarness::new);` in a test file: every
//! case becomes a `#[test]` of its own. [`run_suite`] runs the same cases for a command line. A case that needs
//! a fault which the harness cannot cause is skipped, and says why.
//!
//! Reading order: [`harness`] (what you provide), [`case`] (what a case is), [`mod@bench`] (how a case makes calls),
//! [`cases`] (the promises), [`runner`] and [`report`]. [`hosts`] is the same for gated maintenance. [`lossy`]
//! causes some faults for any harness, by standing [`between`]; [`fake`] is the harness of the fake executor.

pub mod bench;
pub mod between;
pub mod case;
pub mod cases;
pub mod fake;
pub mod harness;
pub mod hosts;
pub mod lossy;
pub mod report;
pub mod runner;
pub mod search;
pub mod secret;
pub mod simulate;
pub mod time;

pub use bench::{Bench, Node, Watch};
pub use case::{CallEnd, Case, CaseEnd, CaseResult};
pub use cases::CASES;
pub use harness::{CannotInject, Harness, HeldLease, HeldSession, Injection, Inventory, NodePlan, template};
pub use hosts::run_host_named;
pub use lossy::Losses;
pub use report::{Report, Verdict};
pub use runner::{UnknownCase, run_named, run_suite, run_suite_telling};
pub use secret::SecretFile;
pub use time::TokioTimer;
