//! What must not be touched for now, by whose word. The one arbiter between operators, maintenance and the
//! driver's own alarm.
//!
//! While a slot is held: no loss verdict, no begin-delete, no new effect. Running operations finish.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
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
    /// Adds a hold on a slot, or on the cluster for `None`. Over one of the same holder it takes the new reason and keeps
    /// the first time: a hold whose reason changes is never absent in between.
    pub fn hold(&mut self, slot: Option<LogicalNodeId>, hold: Hold) {
        let holds = match slot {
            Some(slot) => self.slots.entry(slot).or_default(),
            None => &mut self.cluster,
        };
        match holds.entry(hold.by) {
            Entry::Occupied(entry) => entry.into_mut().reason = hold.reason,
            Entry::Vacant(free) => {
                free.insert(hold);
            }
        }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_holder_has_one_hold_with_its_latest_reason_and_its_first_time() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let hold = |by, reason: &str, second| Hold { by, reason: reason.to_owned(), since: at(second) };
        let slot = LogicalNodeId::parse("web-1").unwrap();
        for on in [Some(slot), None] {
            let mut holds = Holds::default();
            holds.hold(on.clone(), hold(HoldBy::Maintenance, "plan a", 1));
            holds.hold(on.clone(), hold(HoldBy::Operator, "paused", 2));
            holds.hold(on.clone(), hold(HoldBy::Maintenance, "plan b", 3));
            let all = on.as_ref().map_or(&holds.cluster, |slot| &holds.slots[slot]);
            let all: Vec<_> = all.values().cloned().collect();
            assert_eq!(all, [hold(HoldBy::Operator, "paused", 2), hold(HoldBy::Maintenance, "plan b", 1)]);
        }
    }
}
