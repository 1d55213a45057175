//! How a bug is planted: the core's own rules with something changed before or after, or something put
//! between the driver and its store or executor.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use conformance::simulate::{
    ExecutorWrap, Options, StoreWrap, Subject, Violation, endure, hung, levels, run_one, sweep,
};
use executor_api::{LogicalNodeId, NodeObservation};
use reconciler_core::{
    ClusterState, Expanded, Fact, Folded, ManagedNode, NodeAction, ReconcilePlan, RetryPolicy, apply, fold,
    reconcile_slots,
};
use reconciler_driver::Rules;

/// One deliberate fault.
pub(crate) struct Bug {
    /// In a few words, as its author would never put it.
    pub(crate) name: &'static str,
    /// The rule that is to report it.
    pub(crate) rule: &'static str,
    /// A fresh copy of it: some remember things.
    pub(crate) plant: fn() -> Subject,
    /// What is played with it.
    pub(crate) play: Play,
}

/// What is played with a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Play {
    /// Seeded schedules.
    Schedules,
    /// A blow at every store write of seeded schedules.
    Sweeps,
    /// One declaration, reached in several ways.
    Levels,
    /// Executors that never answer.
    Hung,
    /// Hours of trouble.
    Trouble,
}

impl Play {
    /// Plays one seed.
    pub(crate) fn seed(self, seed: u64, options: &Options) -> Option<Violation> {
        match self {
            Self::Schedules => run_one(seed, options).violation,
            Self::Sweeps => {
                let options = Options { shrink_tries: 0, ..options.clone() };
                sweep(seed, 1, &options).failure().map(|failure| failure.violation.clone())
            }
            Self::Levels => levels(seed, options),
            Self::Hung => hung(100, &options.subject).violation,
            Self::Trouble => endure(seed, 300, 6, options).violation,
        }
    }
}

pub(crate) fn bug(name: &'static str, rule: &'static str, plant: fn() -> Subject) -> Bug {
    Bug { name, rule, plant, play: Play::Schedules }
}

impl Bug {
    /// The same, in another play.
    pub(crate) fn in_play(self, play: Play) -> Self {
        Self { play, ..self }
    }
}

fn subject(rules: Rules) -> Subject {
    Subject { rules, ..Subject::default() }
}

/// Decides, and then changes the plan.
pub(crate) fn plan_changed(
    change: impl Fn(&ClusterState, &Expanded, &mut ReconcilePlan) + Send + Sync + 'static,
) -> Subject {
    let decide =
        move |state: &ClusterState, desired: &Expanded, slots: &BTreeSet<LogicalNodeId>, now: SystemTime| {
            let mut plan = reconcile_slots(state, desired, slots, now)?;
            change(state, desired, &mut plan);
            Ok(plan)
        };
    subject(Rules { reconcile: Arc::new(decide), ..Rules::default() })
}

/// Decides on a state that is not quite the observed one.
pub(crate) fn state_misread(
    change: impl Fn(&mut ClusterState, SystemTime) + Send + Sync + 'static,
) -> Subject {
    let decide =
        move |state: &ClusterState, desired: &Expanded, slots: &BTreeSet<LogicalNodeId>, now: SystemTime| {
            let mut state = state.clone();
            change(&mut state, now);
            reconcile_slots(&state, desired, slots, now)
        };
    subject(Rules { reconcile: Arc::new(decide), ..Rules::default() })
}

/// Hears something else than was told.
pub(crate) fn misheard(
    change: impl Fn(&ManagedNode, NodeObservation) -> NodeObservation + Send + Sync + 'static,
) -> Subject {
    let fold = move |node: &mut ManagedNode, told: NodeObservation, now: SystemTime, policy: &RetryPolicy| {
        let heard = change(node, told);
        fold(node, heard, now, policy)
    };
    subject(Rules { fold: Arc::new(fold), ..Rules::default() })
}

/// Folds, and then does something more. Gets the node before, what was told, and the node after.
pub(crate) fn folded_more(
    change: impl Fn(&ManagedNode, &NodeObservation, &mut ManagedNode, SystemTime, &RetryPolicy)
    + Send
    + Sync
    + 'static,
) -> Subject {
    let fold = move |node: &mut ManagedNode, told: NodeObservation, now: SystemTime, policy: &RetryPolicy| {
        let before = node.clone();
        let folded = fold(node, told.clone(), now, policy);
        change(&before, &told, node, now, policy);
        match folded {
            Folded::Nothing | Folded::Dropped(_) if *node != before => Folded::Applied(Fact::SeenAlive),
            folded => folded,
        }
    };
    subject(Rules { fold: Arc::new(fold), ..Rules::default() })
}

/// Applies, and then does something more. Gets the node before, the action, and the state after.
pub(crate) fn applied_more(
    change: impl Fn(Option<&ManagedNode>, &NodeAction, &mut ClusterState, SystemTime, &RetryPolicy)
    + Send
    + Sync
    + 'static,
) -> Subject {
    let apply =
        move |state: &mut ClusterState, action: &NodeAction, now: SystemTime, policy: &RetryPolicy| {
            let before = state.nodes.get(action.node()).cloned();
            let applied = apply(state, action, now, policy)?;
            change(before.as_ref(), action, state, now, policy);
            Ok(applied)
        };
    subject(Rules { apply: Arc::new(apply), ..Rules::default() })
}

/// Something between the driver and its store.
pub(crate) fn stored_by(store: StoreWrap) -> Subject {
    Subject { store, ..Subject::default() }
}

/// Something between the driver and its executor.
pub(crate) fn called_by(executor: ExecutorWrap) -> Subject {
    Subject { executor, ..Subject::default() }
}
