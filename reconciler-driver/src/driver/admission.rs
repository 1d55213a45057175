//! Who may start work at a provider now. Each provider has a number of places for creating and another for
//! cleaning up; a slot that finds none waits in line, unrecorded, and is looked at again when one is free.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use executor_api::LogicalNodeId;
use serde::{Deserialize, Serialize};

use super::ClusterDriver;
use super::checkpoint::pairs;
use super::index::Lane;

/// Slots in line, and slots that were called up and have not used their place yet.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Admission {
    #[serde(with = "pairs")]
    lines: BTreeMap<Lane, VecDeque<LogicalNodeId>>,
    waiting: BTreeMap<LogicalNodeId, Lane>,
    called: BTreeMap<LogicalNodeId, Lane>,
    #[serde(with = "pairs")]
    called_in: BTreeMap<Lane, u32>,
}

impl Admission {
    /// The lane in which a slot was refused a place.
    pub(super) fn refused(&self, slot: &LogicalNodeId) -> Option<&Lane> {
        self.waiting.get(slot)
    }

    fn join(&mut self, slot: &LogicalNodeId, lane: Lane) {
        if self.waiting.get(slot) != Some(&lane) {
            self.lines.entry(lane.clone()).or_default().push_back(slot.clone());
            self.waiting.insert(slot.clone(), lane);
        }
    }

    fn leave_call(&mut self, slot: &LogicalNodeId) -> Option<Lane> {
        let lane = self.called.remove(slot)?;
        if let Some(count) = self.called_in.get_mut(&lane) {
            *count = count.saturating_sub(1);
        }
        Some(lane)
    }

    fn called_in(&self, lane: &Lane) -> u32 {
        self.called_in.get(lane).copied().unwrap_or_default()
    }

    /// The next in line, who keeps a place until it was looked at.
    fn call(&mut self, lane: &Lane) -> Option<LogicalNodeId> {
        let queue = self.lines.get_mut(lane)?;
        while let Some(slot) = queue.pop_front() {
            // Whoever left the line meanwhile is skipped.
            if self.waiting.get(&slot) == Some(lane) {
                self.waiting.remove(&slot);
                self.called.insert(slot.clone(), lane.clone());
                *self.called_in.entry(lane.clone()).or_default() += 1;
                return Some(slot);
            }
        }
        None
    }
}

impl ClusterDriver {
    fn share(&self, lane: &Lane) -> u32 {
        let extra = &self.policy.extra;
        // A share of nothing would stop the run for ever.
        if lane.cleanup { extra.cleanup_share.max(1) } else { extra.create_share.max(1) }
    }

    fn free_places(&self, lane: &Lane) -> u32 {
        let taken = self.index.running(lane).saturating_add(self.admission.called_in(lane));
        self.share(lane).saturating_sub(taken)
    }

    /// Gives a slot a place, or puts it in line.
    pub(super) fn admit(&mut self, slot: &LogicalNodeId, lane: Lane) -> bool {
        let called = self.admission.leave_call(slot).is_some_and(|called| called == lane);
        if called || self.free_places(&lane) > 0 {
            self.admission.waiting.remove(slot);
            return true;
        }
        self.admission.join(slot, lane);
        false
    }

    /// Calls up as many waiting slots as there are free places.
    pub(super) fn wake(&mut self, lane: &Lane) {
        for _ in 0..self.free_places(lane) {
            let Some(slot) = self.admission.call(lane) else { break };
            self.mark(&slot);
        }
    }

    /// Calls up whoever a larger share has room for.
    pub(super) fn wake_all(&mut self) {
        for lane in self.admission.lines.keys().cloned().collect::<Vec<_>>() {
            self.wake(&lane);
        }
    }

    /// After a pass: places kept for slots that turned out to need none go to the next in line, and slots
    /// that no longer want to be admitted leave the line.
    pub(super) fn settle_calls(
        &mut self,
        looked_at: &BTreeSet<LogicalNodeId>,
        refused: &BTreeSet<LogicalNodeId>,
    ) {
        let mut freed = BTreeSet::new();
        for slot in looked_at {
            freed.extend(self.admission.leave_call(slot));
            if !refused.contains(slot) {
                self.admission.waiting.remove(slot);
            }
        }
        for lane in freed {
            self.wake(&lane);
        }
    }
}
