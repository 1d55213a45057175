//! The three pure functions that the driver is built around, as values. A test crate wraps one to plant a
//! bug; shipped code holds no test switch.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use executor_api::{LogicalNodeId, NodeObservation};
use reconciler_core::{
    Applied, ClusterState, Expanded, Folded, ManagedNode, NodeAction, ReconcileError, ReconcilePlan,
    RetryPolicy, Stale,
};

/// Decides some slots.
pub type ReconcileRule = dyn Fn(
        &ClusterState,
        &Expanded,
        &BTreeSet<LogicalNodeId>,
        SystemTime,
    ) -> Result<ReconcilePlan, ReconcileError>
    + Send
    + Sync;
/// Folds one observation into one node.
pub type FoldRule =
    dyn Fn(&mut ManagedNode, NodeObservation, SystemTime, &RetryPolicy) -> Folded + Send + Sync;
/// Applies one action to the state.
pub type ApplyRule =
    dyn Fn(&mut ClusterState, &NodeAction, SystemTime, &RetryPolicy) -> Result<Applied, Stale> + Send + Sync;

/// Decide, fold, apply.
#[derive(Clone)]
pub struct Rules {
    /// Decides some slots.
    pub reconcile: Arc<ReconcileRule>,
    /// Folds one observation into one node.
    pub fold: Arc<FoldRule>,
    /// Applies one action to the state.
    pub apply: Arc<ApplyRule>,
}

impl Default for Rules {
    /// The core's own.
    fn default() -> Self {
        Self {
            reconcile: Arc::new(reconciler_core::reconcile_slots),
            fold: Arc::new(reconciler_core::fold),
            apply: Arc::new(reconciler_core::apply),
        }
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rules")
    }
}
