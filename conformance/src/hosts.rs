//! The suite for gated maintenance: one case per promise of the five traits behind which hosts, storage, machines and
//! the lock stand.
//!
//! ```text
//!   HostHarness (yours) ──► HostBench ──► cases::{dedup, fencing, …} ──► Report
//!     site, hands,            an operator with      ask the truth
//!     truth, troubles         leases and ids        never a call log
//! ```
//!
//! An author implements [`HostHarness`] once and writes `conformance::host_suite!(MyHarness::new);` in a test file.
//! [`run_host_suite`] runs the same cases for a command line. The site is small: two hosts with one bond each, two
//! replicated resources with a copy on both, and a machine on either host.
//!
//! Reading order: [`harness`] (what you provide), [`mod@bench`] (how a case acts), [`cases`] (the promises), [`runner`].
//! [`fake`] is the harness of the simulated hosts. Deliberately absent: real hosts; nothing here knows a kernel.

pub mod bench;
pub mod cases;
pub mod fake;
pub mod harness;
pub mod runner;

pub use bench::HostBench;
pub use cases::HOST_CASES;
pub use fake::SimulatedHosts;
pub use harness::{HostHarness, HostTrouble, HostTruth, Site};
pub use runner::{run_host_named, run_host_suite, run_host_suite_telling};
