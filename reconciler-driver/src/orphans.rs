//! Leases that nobody will ever ask for again: of this very run, of attempts that are over, and too old to be
//! on their way. Finds them in a listing; destroys nothing.
//!
//! An attempt that the stored state has given out and that fills no slot never comes back. So what is found with
//! state that was read at any time is an orphan for ever, whoever drives meanwhile.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::{
    AttemptKey, CandidateIndex, LeaseFacts, LeaseOwner, Life, Listing, OperationContext, OperationId, RunId,
    SlotGroup, Visibility,
};
use reconciler_core::ClusterState;
use serde::{Deserialize, Serialize};

/// One lease without an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphan {
    /// The attempt that it was made for.
    pub attempt: AttemptKey,
    /// The lease.
    pub lease: LeaseFacts,
    /// Where it is in its life.
    pub life: Life,
    /// Whether it may be destroyed.
    pub age: OrphanAge,
}

/// Whether a lease is old enough that nothing about it is under way any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrphanAge {
    /// It is.
    Enough,
    /// Not before then.
    TooYoung {
        /// When it will be.
        until: SystemTime,
    },
    /// The provider does not say when it was made.
    Unknown,
}

impl Orphan {
    /// On whose behalf it is ended: that of the attempt it was made for, which has no operation of that number.
    pub fn context(&self, deadline: SystemTime) -> OperationContext {
        let slot = &self.attempt.node;
        OperationContext {
            attempt: self.attempt.clone(),
            operation: OperationId { attempt: self.attempt.attempt, sequence: u64::MAX },
            candidate: CandidateIndex::default(),
            deadline,
            group: SlotGroup { group: slot.group(), slots: Arc::from([slot.clone()]) },
        }
    }
}

/// The orphans of a run in a listing. One that may lack something, or with a state that has forgotten attempts,
/// yields none.
///
/// `call_time` is how long a create may take. A lease must be older than that and twice what the provider says of
/// late and hidden effects: once for its create, once for whoever looked for it.
pub fn find_orphans(
    run: &RunId,
    state: &ClusterState,
    listing: &Listing,
    call_time: Duration,
    visibility: Visibility,
    now: SystemTime,
) -> Vec<Orphan> {
    let given_out = |key: &AttemptKey| key.run == *run && key.attempt.0 < state.next_attempt_id;
    let forgotten = listing.leases.iter().any(|listed| match &listed.owner {
        LeaseOwner::Attempt(key) => key.run == *run && !given_out(key),
        LeaseOwner::Incomplete => false,
    });
    if !listing.complete || forgotten {
        return Vec::new();
    }
    let allowance = visibility.late_landing.saturating_add(visibility.listing_lag).saturating_mul(2);
    let wait = call_time.saturating_add(allowance);
    let orphans = listing.leases.iter().filter_map(|listed| {
        let LeaseOwner::Attempt(key) = &listed.owner else { return None };
        let current = state.nodes.get(&key.node).is_some_and(|node| node.attempt == key.attempt);
        if !given_out(key) || current || matches!(listed.life, Life::Ending | Life::Dead) {
            return None;
        }
        let age = match listed.lease.created_at.and_then(|made| made.checked_add(wait)) {
            None => OrphanAge::Unknown,
            Some(until) if until > now => OrphanAge::TooYoung { until },
            Some(_) => OrphanAge::Enough,
        };
        Some(Orphan { attempt: key.clone(), lease: listed.lease.clone(), life: listed.life, age })
    });
    orphans.collect()
}
