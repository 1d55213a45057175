//! What must not be touched for now, by whose word. The one arbiter between operators, maintenance and the
//! driver's own alarm.
//!
//! While a slot is held: no loss verdict, no begin-delete, no new effect. Running operations finish.

use std::collections::BTreeMap;
use std::time::SystemTime;

use executor_api::{LogicalNodeId, NodeObservation};
use serde::{Deserialize, Serialize};

/// By whose word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldBy {
    /// A person.
    Operator,
    /// A maintenance plan that works on the host.
    Maintenance,
    /// The driver itself, after something that must not happen was seen.
    Breach,
}

/// One hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// By whose word.
    pub by: HoldBy,
    /// Why, in that one's words.
    pub reason: String,
    /// Since when.
    pub since: SystemTime,
}

/// All holds: at most one for each holder, on the cluster and on each slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Holds {
    /// On every slot.
    pub cluster: BTreeMap<HoldBy, Hold>,
    /// On single slots. No entry is empty.
    pub slots: BTreeMap<LogicalNodeId, BTreeMap<HoldBy, Hold>>,
}

impl Holds {
    /// Adds a hold on a slot, or on the cluster for `None`. A repeat keeps the first time and reason.
    pub fn hold(&mut self, slot: Option<LogicalNodeId>, hold: Hold) {
        let holds = match slot {
            Some(slot) => self.slots.entry(slot).or_default(),
            None => &mut self.cluster,
        };
        holds.entry(hold.by).or_insert(hold);
    }

    /// Takes a holder's hold back. Says whether there was one.
    pub fn release(&mut self, slot: Option<&LogicalNodeId>, by: HoldBy) -> bool {
        let Some(slot) = slot else {
            return self.cluster.remove(&by).is_some();
        };
        let Some(holds) = self.slots.get_mut(slot) else {
            return false;
        };
        let released = holds.remove(&by).is_some();
        if holds.is_empty() {
            self.slots.remove(slot);
        }
        released
    }

    /// The first hold that stops a slot; the cluster's come first.
    pub fn on(&self, slot: &LogicalNodeId) -> Option<&Hold> {
        let own = self.slots.get(slot).into_iter().flat_map(BTreeMap::values);
        self.cluster.values().chain(own).next()
    }

    /// What a held slot may be told instead: a verdict that would end the attempt becomes a suspicion, which
    /// the next look after the release settles.
    pub fn soften(&self, slot: &LogicalNodeId, observation: NodeObservation) -> NodeObservation {
        if self.on(slot).is_none() {
            return observation;
        }
        match observation {
            NodeObservation::LeaseLost { reason, .. } => NodeObservation::Suspected { reason },
            NodeObservation::Completed(_)
            | NodeObservation::TimedOut { .. }
            | NodeObservation::BootstrapProgress { .. }
            | NodeObservation::MemberJoined { .. }
            | NodeObservation::BootstrapConverged { .. }
            | NodeObservation::BootstrapFailed { .. }
            | NodeObservation::EndpointChanged { .. }
            | NodeObservation::Suspected { .. }
            | NodeObservation::SeenAlive
            | NodeObservation::DeadlinePassed(_) => observation,
        }
    }
}
