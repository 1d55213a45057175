//! What a provider's listing says about the slots: lost, moved, missing, doubled, or not ours. Turns it into
//! observations; destroys and adopts nothing. A listing that shows what is known already changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use executor_api::{
    AttemptKey, LeaseId, LeaseOwner, Life, ListedLease, Listing, LogicalNodeId, NodeAttemptId,
    NodeObservation, ProviderName,
};
use reconciler_core::{Hold, HoldBy, ManagedNode, NodeIntent};
use serde::{Deserialize, Serialize};

use super::ClusterDriver;
use crate::event::Happening;

/// What was seen in earlier listings and need not be told again.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Sightings {
    told: BTreeMap<ProviderName, BTreeSet<LeaseId>>,
    /// Slots whose attempt had two live leases in a provider's last listing. An adoption that tidies up may
    /// be under way when a listing is taken; two in a row are no coincidence.
    doubled: BTreeMap<ProviderName, BTreeSet<(LogicalNodeId, NodeAttemptId)>>,
    /// Why a provider could not be listed at its last try.
    failing: BTreeMap<ProviderName, String>,
}

impl ClusterDriver {
    pub(super) fn listed(&mut self, provider: ProviderName, listing: Result<Listing, String>) {
        let listing = match listing {
            Ok(listing) => listing,
            Err(reason) => {
                self.counters.listing_failures += 1;
                if self.sightings.failing.insert(provider.clone(), reason.clone()).is_none() {
                    self.note(None, Happening::ListingFailed { provider, reason });
                }
                return;
            }
        };
        if self.sightings.failing.remove(&provider).is_some() {
            self.note(None, Happening::ListingRecovered { provider: provider.clone() });
        }
        self.examine(&provider, &listing);
        // What contradicts the state does not change it either.
        if self.guard.alarm().is_some() {
            return;
        }
        let mut live: BTreeMap<(LogicalNodeId, NodeAttemptId), Vec<LeaseId>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut strange = BTreeSet::new();
        for listed in &listing.leases {
            seen.insert(listed.lease.lease_id.clone());
            match &listed.owner {
                LeaseOwner::Attempt(key) if key.run == self.accepted.shape.run_id => {
                    if matches!(listed.life, Life::Pending | Life::Live) {
                        let lives = live.entry((key.node.clone(), key.attempt)).or_default();
                        lives.push(listed.lease.lease_id.clone());
                    }
                    let current =
                        self.state.nodes.get(&key.node).is_some_and(|node| node.attempt == key.attempt);
                    if current {
                        self.own_lease(&key.node, listed, &listing);
                    } else if matches!(listed.life, Life::Pending | Life::Live) {
                        self.tell_strange(&provider, listed, &mut strange);
                    }
                }
                LeaseOwner::Attempt(_) | LeaseOwner::Incomplete => {
                    self.tell_strange(&provider, listed, &mut strange);
                }
            }
        }
        self.sightings.told.insert(provider.clone(), strange);
        self.doubled(&provider, live);
        self.sweep(&provider, &listing);
        if listing.complete {
            self.missing(&provider, &listing, &seen);
        }
    }

    /// Why this provider could not be listed at its last try.
    pub(crate) fn cannot_list(&self, provider: &ProviderName) -> Option<String> {
        self.sightings.failing.get(provider).cloned()
    }

    /// A lease that carries the identity of a slot's current attempt.
    fn own_lease(&mut self, slot: &LogicalNodeId, listed: &ListedLease, listing: &Listing) {
        let Some(node) = self.state.nodes.get(slot) else { return };
        let held = node.record.lease.as_ref().map(|lease| &lease.lease_id);
        // What is not recorded yet is adopted by its operation; what is being deleted is asked about there.
        if held != Some(&listed.lease.lease_id) || node.intent == NodeIntent::Deleting {
            return;
        }
        let lease = listed.lease.lease_id.clone();
        match listed.life {
            Life::Ending | Life::Dead => {
                let reason = listed.reason.clone().unwrap_or_else(|| "the lease is dead".to_owned());
                self.fold(slot, NodeObservation::LeaseLost { lease, reason });
            }
            Life::Pending | Life::Live => {
                let moved = listed.endpoint.as_ref().filter(|endpoint| {
                    node.record.connection.as_ref().is_some_and(|known| known != *endpoint)
                });
                let moved = moved.cloned();
                let back = node.extra.suspect_since.is_some_and(|since| since <= listing.as_of);
                if let Some(endpoint) = moved {
                    self.fold(slot, NodeObservation::EndpointChanged { lease, endpoint });
                }
                if back {
                    self.fold(slot, NodeObservation::SeenAlive);
                }
            }
        }
    }

    /// A lease of another run, or of an attempt that is over. Told once for as long as it is listed.
    fn tell_strange(
        &mut self,
        provider: &ProviderName,
        listed: &ListedLease,
        strange: &mut BTreeSet<LeaseId>,
    ) {
        let lease = listed.lease.lease_id.clone();
        let told = self.sightings.told.get(provider).is_some_and(|told| told.contains(&lease));
        strange.insert(lease.clone());
        if told {
            return;
        }
        let provider = provider.clone();
        match &listed.owner {
            LeaseOwner::Attempt(AttemptKey { run, node, attempt }) => {
                let owner = format!("{run} {node} {attempt}");
                let ours = *run == self.accepted.shape.run_id;
                let what = if ours {
                    Happening::Orphan { provider, lease, owner }
                } else {
                    Happening::ForeignLease { provider, lease, owner }
                };
                self.note(ours.then_some((node, *attempt)), what);
            }
            LeaseOwner::Incomplete => {
                let owner = "somebody with an incomplete identity".to_owned();
                self.note(None, Happening::ForeignLease { provider, lease, owner });
            }
        }
    }

    /// Two live leases for one attempt, with nothing under way that would tidy them up.
    fn doubled(
        &mut self,
        provider: &ProviderName,
        live: BTreeMap<(LogicalNodeId, NodeAttemptId), Vec<LeaseId>>,
    ) {
        let before = self.sightings.doubled.remove(provider).unwrap_or_default();
        let mut now_doubled = BTreeSet::new();
        for ((slot, attempt), leases) in live.into_iter().filter(|(_, leases)| leases.len() > 1) {
            let settled = |node: &&ManagedNode| {
                node.attempt == attempt && node.pending.is_none() && node.retry.ambiguous_operation.is_none()
            };
            if self.state.nodes.get(&slot).as_ref().is_none_or(|node| !settled(node)) {
                continue;
            }
            let key = (slot, attempt);
            let again = before.contains(&key);
            now_doubled.insert(key.clone());
            let slot = key.0;
            let known = self.state.holds.slots.get(&slot).is_some_and(|by| by.contains_key(&HoldBy::Breach));
            if again && !known {
                self.note(Some((&slot, attempt)), Happening::Breach { leases: leases.clone() });
                let names: Vec<_> = leases.iter().map(ToString::to_string).collect();
                let reason = format!(
                    "attempt {attempt} has {} live leases: {}; end all but one, then release the node",
                    leases.len(),
                    names.join(", ")
                );
                self.hold(Some(&slot), Hold { by: HoldBy::Breach, reason, since: self.now });
            }
        }
        self.sightings.doubled.insert(provider.clone(), now_doubled);
    }

    /// Leases that a complete listing lacks. Not proof: listings lag, and one may be empty by mistake.
    fn missing(&mut self, provider: &ProviderName, listing: &Listing, seen: &BTreeSet<LeaseId>) {
        let lag = self.executors.visibility(provider, false).listing_lag;
        let old_enough = |node: &ManagedNode| {
            let made = node.record.lease.as_ref().and_then(|lease| lease.created_at);
            let known = made.into_iter().chain(node.extra.ready_at).max().unwrap_or(node.record.created_at);
            known.checked_add(lag).is_some_and(|at| at < listing.as_of)
        };
        let missing = self.state.nodes.iter().filter(|(_, node)| {
            node.is_ready()
                && node.extra.suspect_since.is_none()
                && node
                    .record
                    .lease
                    .as_ref()
                    .is_some_and(|lease| lease.provider == *provider && !seen.contains(&lease.lease_id))
                && old_enough(node)
        });
        for slot in missing.map(|(slot, _)| slot.clone()).collect::<Vec<_>>() {
            let reason = format!("{provider} does not list its lease");
            self.fold(&slot, NodeObservation::Suspected { reason });
        }
    }
}
