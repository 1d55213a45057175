//! Drives one gated plan: reads the world, lets `reconciler-core` decide, stores before it sends, and folds what came
//! back. The sole writer of a plan's record.
//!
//! ```text
//!   Hands ──look──► Observed ──advance──► step ──apply──► record ──PlanStore──► durable
//!     ▲                                                                           │
//!     └────────── operation, under a lease renewed right before ◄─────────────────┘
//! ```
//!
//! Reading order: [`hands`] (what is reached, and how), [`store`] (what outlives the process), [`drive`] (one pass),
//! [`arbiter`] (what the cluster reconciler is told). `look` reads, `keeper` has the lease, `send` carries one
//! operation. Nothing here knows a runtime: every wait is the [`Timer`](executor_api::Timer)'s, so that virtual
//! time and tokio run the same code.

pub mod arbiter;
pub mod drive;
pub mod hands;
pub mod store;

mod keeper;
mod look;
mod send;

pub use arbiter::hold_of;
pub use drive::{MaintenanceDriver, MaintenanceError, Pass, PlanRules, RespondError, Start};
pub use hands::Hands;
pub use store::{
    LogLine, MemoryPlanStore, PlanRecord, PlanStore, PlanStoreError, Request, RequestKind, SqlitePlanStore,
};
