//! The orphan sweep: what a provider's listing shows of attempts that are over. Counts how often in a row each was
//! seen, and asks for the end of one only where the run allows it. An orphan is told of by [`listing`](super::listing),
//! whatever the run allows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use executor_api::{LeaseId, Listing, ProviderName};
use reconciler_core::OrphanPolicy;
use serde::{Deserialize, Serialize};

use super::{ClusterDriver, later};
use crate::event::Happening;
use crate::orphans::{Orphan, OrphanAge, find_orphans};

/// How many sweeps in a row must have found a lease before it is ended: an answer that was wrong once ends nothing.
const SIGHTINGS: u32 = 2;

/// An orphan whose end is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sweep {
    /// Who leases it.
    pub provider: ProviderName,
    /// The lease, and the attempt that it was made for.
    pub orphan: Orphan,
    /// When the call is given up.
    pub deadline: SystemTime,
}

/// What earlier sweeps found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Sweeps {
    /// Next sweep of each provider.
    next: BTreeMap<ProviderName, SystemTime>,
    /// How often in a row each orphan was found.
    found: BTreeMap<ProviderName, BTreeMap<LeaseId, u32>>,
    under_way: BTreeSet<LeaseId>,
    pub(super) wanted: Vec<Sweep>,
}

impl ClusterDriver {
    /// Takes a listing as a sweep, if one is due.
    pub(super) fn sweep(&mut self, provider: &ProviderName, listing: &Listing) {
        let due = self.sweeps.next.get(provider).is_none_or(|at| *at <= self.now);
        if !due {
            return;
        }
        self.sweeps.next.insert(provider.clone(), later(self.now, self.policy.extra.sweep_every));
        let visibility = self.executors.visibility(provider, false);
        let call_time = self.policy.operation_timeout;
        let orphans =
            find_orphans(&self.accepted.shape.run_id, &self.state, listing, call_time, visibility, self.now);
        let before = self.sweeps.found.remove(provider).unwrap_or_default();
        let mut found = BTreeMap::new();
        for orphan in orphans {
            let lease = orphan.lease.lease_id.clone();
            let times = before.get(&lease).map_or(1, |times| times.saturating_add(1));
            found.insert(lease.clone(), times);
            let allowed = self.policy.extra.orphans == OrphanPolicy::Destroy
                && orphan.age == OrphanAge::Enough
                && times >= SIGHTINGS
                && self.state.holds.on(&orphan.attempt.node).is_none();
            if allowed && self.sweeps.under_way.insert(lease) {
                let deadline = later(self.now, self.policy.operation_timeout);
                self.sweeps.wanted.push(Sweep { provider: provider.clone(), orphan, deadline });
            }
        }
        self.sweeps.found.insert(provider.clone(), found);
    }

    /// The end of an orphan's end. One that failed is found again by the next sweep.
    pub(super) fn swept(&mut self, provider: ProviderName, lease: LeaseId, error: Option<String>) {
        self.sweeps.under_way.remove(&lease);
        let what = match error {
            None => Happening::OrphanDestroyed { provider, lease },
            Some(reason) => Happening::OrphanLeft { provider, lease, reason },
        };
        self.note(None, what);
    }
}
