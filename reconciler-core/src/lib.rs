//! Pure decisions. What should happen next follows from the desired shape, the observed state and the time
//! given, and from nothing else.
//!
//! ```text
//!   shape + state + now ──reconcile──► plan ──apply──► effect ──► executor
//!                 ▲                                                  │
//!                 └────────────────── fold ◄──────── outcome ◄───────┘
//! ```
//!
//! The driver holds the only `&mut ClusterState`; both transitions on it ([`fold`] and [`apply`]) are
//! functions here. [`cluster`] decides about nodes, [`maintenance`] about gated plans on hosts; neither knows the
//! other. Deliberately absent: clocks, I/O, randomness, threads, hash maps.

#![warn(clippy::wildcard_enum_match_arm)]

pub mod cluster;
pub mod maintenance;

pub use cluster::apply::{Applied, Stale, apply};
pub use cluster::check;
pub use cluster::fold::{Dropped, Fact, Folded, fold, observe};
pub use cluster::hold::{Hold, HoldBy, Holds};
pub use cluster::interrupt::interrupt;
pub use cluster::node::{NodeDecision, NodeStep, reconcile_node};
pub use cluster::plan::{NodeAction, PlanExtra, PlannedEffect, ReconcilePlan, Waiting};
pub use cluster::policy::{OrphanPolicy, PolicyExtra, RetryPolicy};
pub use cluster::reconcile::{
    ReconcileError, decide_slot, is_converged, reconcile, reconcile_slots, slot_converged,
};
pub use cluster::shape::{ClusterShape, Expanded, ExpandedGroup, NODE_LIMIT, ShapeError};
pub use cluster::state::{
    ClusterState, ManagedNode, NodeExtra, NodeIntent, NodeRecord, NodeStage, PendingExtra, PendingOperation,
    RetryExtra, RetryState,
};
pub use cluster::why::{SpecField, Why};

// The vocabulary the public contract is spelled in.
pub use executor_api::{
    AttemptKey, BootstrapSessionId, CreateMode, GroupId, LogicalNodeId, LogicalNodeSpec, NodeAttemptId,
    NodeManagerCommand, NodeObservation, OperationId, OperationKind, RunId, RunNodeGroupSpec,
    expand_node_group,
};
