//! Whether stored state may be trusted: at start, what the providers show is held against it. Until every
//! provider in use was listed nothing is decided, and state that is older than the world, or empty while the
//! world is not, decides nothing at all.

use std::collections::BTreeSet;
use std::fmt;

use executor_api::{AttemptKey, LeaseId, LeaseOwner, Life, Listing, ProviderName, RunId};
use reconciler_core::ClusterState;
use serde::{Deserialize, Serialize};

use super::ClusterDriver;

/// How many leases a message names.
const NAMED: usize = 3;

/// What is wrong with the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distrusted {
    /// The provider shows attempts that this state has not given out yet: it is an old copy.
    Older,
    /// Nothing was ever made with this state, and the provider shows nodes of a run of this name.
    Empty,
}

/// Why state is not trusted, with what was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distrust {
    /// What is wrong.
    pub what: Distrusted,
    /// The run of the state.
    pub run: RunId,
    /// Who was listed.
    pub provider: ProviderName,
    /// What contradicts the state; never empty.
    pub leases: Vec<(AttemptKey, LeaseId)>,
}

impl Distrust {
    /// Holds a listing against a state. Leases that are over count only as proof that the state is old: their
    /// attempt ids were given out.
    pub fn of(run: &RunId, state: &ClusterState, provider: &ProviderName, listing: &Listing) -> Option<Self> {
        let unused = state.nodes.is_empty() && state.next_attempt_id <= 1;
        let mut newer = Vec::new();
        let mut unknown = Vec::new();
        for listed in &listing.leases {
            let LeaseOwner::Attempt(key) = &listed.owner else { continue };
            let found = || (key.clone(), listed.lease.lease_id.clone());
            if key.run == *run && key.attempt.0 >= state.next_attempt_id {
                newer.push(found());
            } else if key.run != *run && unused && matches!(listed.life, Life::Pending | Life::Live) {
                unknown.push(found());
            }
        }
        let (what, leases) = match (newer.is_empty(), unknown.is_empty()) {
            (false, _) => (Distrusted::Older, newer),
            (true, false) => (Distrusted::Empty, unknown),
            (true, true) => return None,
        };
        Some(Self { what, run: run.clone(), provider: provider.clone(), leases })
    }
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (provider, count) = (&self.provider, self.leases.len());
        let name = self.run.name();
        match self.what {
            Distrusted::Older => {
                write!(
                    f,
                    "the state of run {name} is older than its nodes: {provider} shows {count} lease(s) of "
                )?;
                f.write_str("attempts that it never gave out")?;
            }
            Distrusted::Empty => {
                write!(
                    f,
                    "the state of run {name} is empty, but {provider} shows {count} living lease(s) of a "
                )?;
                f.write_str("run of this name")?;
            }
        }
        for (index, (key, lease)) in self.leases.iter().take(NAMED).enumerate() {
            let sign = if index == 0 { ": " } else { ", " };
            write!(f, "{sign}{} {} uid {} ({lease})", key.node, key.attempt, key.run.uid())?;
        }
        if count > NAMED {
            write!(f, " and {} more", count - NAMED)?;
        }
        let uid = self.leases.first().map_or_else(|| self.run.uid(), |(key, _)| key.run.uid());
        write!(
            f,
            "; nothing was changed. Put the newest state back, or rebuild it from them with --adopt {uid}"
        )?;
        match self.what {
            Distrusted::Older => Ok(()),
            Distrusted::Empty => f.write_str("; if they are somebody else's, choose another run name"),
        }
    }
}

/// Which providers are still to be listed, and what was found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Guard {
    /// Nobody bore the state out yet, and somebody must before anything is decided.
    unproved: bool,
    waiting: BTreeSet<ProviderName>,
    alarm: Option<Distrust>,
}

impl Guard {
    /// Whether nothing may be decided yet.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty() || self.alarm.is_some()
    }

    pub(super) fn alarm(&self) -> Option<&Distrust> {
        self.alarm.as_ref()
    }

    /// Who must be listed, whether or not anything of the run is theirs by now.
    pub(super) fn waiting(&self) -> &BTreeSet<ProviderName> {
        &self.waiting
    }
}

impl ClusterDriver {
    /// Decides nothing until every provider in use was listed and none of them contradicts the state. Called at
    /// start, after [`with_executors`](Self::with_executors).
    pub fn guard(&mut self) {
        self.guard.unproved = true;
        self.wait_for_providers();
        // Freeing what belonged to other slots waits for the first pass, too.
        self.reaped = true;
    }

    /// Where no provider is in use, those that the shape names are asked: a state that was lost may have had nodes
    /// there. Once one has borne the state out, another that comes into use and cannot be listed holds nobody up.
    pub(super) fn wait_for_providers(&mut self) {
        if !self.guard.unproved {
            return;
        }
        let mut asked = self.providers_in_use();
        if asked.is_empty() {
            asked.extend(self.accepted.shape.groups.iter().map(|group| group.template.provider.clone()));
        }
        let known = |provider: &ProviderName| self.executors.provider(provider).is_some();
        self.guard.waiting = asked.into_iter().filter(known).collect();
    }

    /// The providers that must be listed before anything is decided.
    pub fn waits_for(&self) -> &BTreeSet<ProviderName> {
        &self.guard.waiting
    }

    /// Takes a listing as evidence for or against the state. One that may lack something proves nothing.
    pub(super) fn examine(&mut self, provider: &ProviderName, listing: &Listing) {
        if !self.guard.waiting.contains(provider) {
            return;
        }
        self.guard.alarm = Distrust::of(&self.accepted.shape.run_id, &self.state, provider, listing);
        if listing.complete && self.guard.alarm.is_none() {
            self.guard.waiting.remove(provider);
            self.guard.unproved = false;
        }
    }
}
