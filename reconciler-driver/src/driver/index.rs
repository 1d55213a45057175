//! What is derived from each slot and kept beside it, so that no question walks the cluster: when it is due,
//! whether it is ready and converged, and whose place it takes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use executor_api::{BootstrapSessionId, LogicalNodeId, NodeAttemptId, OperationKind, ProviderName};
use reconciler_core::{ClusterState, Expanded, ManagedNode, NodeIntent, NodeStage, slot_converged};
use serde::{Deserialize, Serialize, Serializer};

use super::Route;

/// One provider's share of one kind of work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Lane {
    pub(super) worker: ProviderName,
    pub(super) cleanup: bool,
}

impl Lane {
    pub(super) fn of(node: &ManagedNode, kind: OperationKind) -> Self {
        let route = Route::of(&node.record.desired.template);
        Self { worker: route.worker(kind).clone(), cleanup: kind.is_cleanup() }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    due: Option<SystemTime>,
    ready: bool,
    converged: bool,
    running: Option<Lane>,
    provider: ProviderName,
}

/// The index over all slots that have an attempt. Serialised as its entries alone.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "BTreeMap<LogicalNodeId, Entry>")]
pub(super) struct Index {
    entries: BTreeMap<LogicalNodeId, Entry>,
    agenda: BTreeSet<(SystemTime, LogicalNodeId)>,
    ready: usize,
    converged: usize,
    running: BTreeMap<Lane, u32>,
    providers: BTreeMap<ProviderName, usize>,
}

impl Serialize for Index {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.entries.serialize(serializer)
    }
}

impl From<BTreeMap<LogicalNodeId, Entry>> for Index {
    fn from(entries: BTreeMap<LogicalNodeId, Entry>) -> Self {
        let mut index = Self::default();
        for (slot, entry) in entries {
            index.count(&slot, &entry);
            index.entries.insert(slot, entry);
        }
        index
    }
}

impl Index {
    /// Brings one slot up to date. `settled`: all of its deadlines up to then were settled just now. Answers
    /// with the lane in which its operation no longer takes a place.
    pub(super) fn refresh(
        &mut self,
        state: &ClusterState,
        desired: &Expanded,
        slot: &LogicalNodeId,
        retry_at: Option<SystemTime>,
        settled: Option<SystemTime>,
    ) -> Option<Lane> {
        let Some(node) = state.nodes.get(slot) else {
            let old = self.entries.remove(slot)?;
            return self.forget(slot, old);
        };
        let held = state.holds.on(slot).is_some();
        // A deadline that is stored still, right after it was settled, would wake the driver for ever.
        let unsettled = |at: &SystemTime| settled.is_none_or(|settled| settled < *at);
        let deadline = deadlines(node, held).map(|(at, _)| at).filter(unsettled).min();
        let entry = Entry {
            due: [deadline, retry_at].into_iter().flatten().min(),
            ready: node.is_ready(),
            converged: desired.specs.contains_key(slot) && slot_converged(state, desired, slot),
            running: node.pending.as_ref().map(|pending| Lane::of(node, pending.kind)),
            provider: node.record.desired.template.provider.clone(),
        };
        self.count(slot, &entry);
        let (due, runs_in) = (entry.due, entry.running.clone());
        let Some(place) = self.entries.get_mut(slot) else {
            self.entries.insert(slot.clone(), entry);
            return None;
        };
        let old = std::mem::replace(place, entry);
        let same_due = old.due == due;
        let old = Entry { due: if same_due { None } else { old.due }, ..old };
        self.forget(slot, old).filter(|lane| runs_in.as_ref() != Some(lane))
    }

    fn count(&mut self, slot: &LogicalNodeId, new: &Entry) {
        self.ready += usize::from(new.ready);
        self.converged += usize::from(new.converged);
        if let Some(due) = new.due {
            self.agenda.insert((due, slot.clone()));
        }
        if let Some(lane) = &new.running {
            *self.running.entry(lane.clone()).or_default() += 1;
        }
        *self.providers.entry(new.provider.clone()).or_default() += 1;
    }

    fn forget(&mut self, slot: &LogicalNodeId, old: Entry) -> Option<Lane> {
        self.ready -= usize::from(old.ready);
        self.converged -= usize::from(old.converged);
        if let Some(due) = old.due {
            self.agenda.remove(&(due, slot.clone()));
        }
        if let Some(count) = self.providers.get_mut(&old.provider) {
            *count -= 1;
            if *count == 0 {
                self.providers.remove(&old.provider);
            }
        }
        if let Some(count) = old.running.as_ref().and_then(|lane| self.running.get_mut(lane)) {
            *count = count.saturating_sub(1);
        }
        old.running
    }

    /// Takes every slot that is due.
    pub(super) fn take_due(&mut self, now: SystemTime) -> Vec<LogicalNodeId> {
        let mut due = Vec::new();
        while self.agenda.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, slot)) = self.agenda.pop_first() else { break };
            if let Some(entry) = self.entries.get_mut(&slot) {
                entry.due = None;
            }
            due.push(slot);
        }
        due
    }

    pub(super) fn first(&self) -> Option<SystemTime> {
        self.agenda.first().map(|(at, _)| *at)
    }

    pub(super) fn ready(&self) -> usize {
        self.ready
    }

    pub(super) fn converged(&self) -> usize {
        self.converged
    }

    pub(super) fn running(&self, lane: &Lane) -> u32 {
        self.running.get(lane).copied().unwrap_or_default()
    }

    pub(super) fn providers(&self) -> impl Iterator<Item = &ProviderName> {
        self.providers.keys()
    }
}

/// Which stored deadline of a node it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    Operation,
    Join,
    Loss,
    Stable,
}

/// The deadlines that the driver settles. A held slot is spared every verdict until its release.
pub(super) fn deadlines(node: &ManagedNode, held: bool) -> impl Iterator<Item = (SystemTime, Stored)> {
    let operation = node.pending.as_ref().map(|pending| (pending.deadline, Stored::Operation));
    let verdicts = [(node.extra.join_deadline, Stored::Join), (node.extra.loss_deadline, Stored::Loss)]
        .map(|(at, stored)| at.filter(|_| !held).map(|at| (at, stored)));
    let stable = node.extra.stable_at.map(|at| (at, Stored::Stable));
    [operation, verdicts[0], verdicts[1], stable].into_iter().flatten()
}

/// The session that a node should be heard through: from its start until the attempt is to end.
pub(super) fn session_to_hear(node: &ManagedNode) -> Option<(NodeAttemptId, &BootstrapSessionId)> {
    let living = node.intent == NodeIntent::Active
        && match node.record.stage {
            NodeStage::BootstrapRunning | NodeStage::Joined | NodeStage::HandedOff | NodeStage::Dormant => {
                true
            }
            NodeStage::New
            | NodeStage::LeaseRequested
            | NodeStage::LeaseCreated
            | NodeStage::EndpointKnown
            | NodeStage::Failed
            | NodeStage::Destroyed => false,
        };
    let facts = node.record.bootstrap.as_ref().filter(|_| living)?;
    Some((node.attempt, &facts.session))
}
