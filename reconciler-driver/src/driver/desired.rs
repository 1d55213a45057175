//! Accepting a new shape or a new policy. Marks the slots that differ and nothing else; starts nothing.

use std::sync::Arc;

use executor_api::{LogicalNodeId, RunId};
use reconciler_core::{ClusterShape, Expanded, ExpandedGroup, RetryPolicy, ShapeError};
use serde::{Deserialize, Serialize, Serializer};

use super::{ClusterDriver, TapeEntry};
use crate::error::DesiredRejected;

/// The shape in force, and what it comes to. Serialised as the shape alone.
#[derive(Debug, Deserialize)]
#[serde(try_from = "ClusterShape")]
pub(super) struct Accepted {
    pub(super) shape: Arc<ClusterShape>,
    pub(super) expanded: Arc<Expanded>,
}

impl TryFrom<ClusterShape> for Accepted {
    type Error = ShapeError;

    fn try_from(shape: ClusterShape) -> Result<Self, ShapeError> {
        let expanded = Arc::new(Expanded::of(&shape)?);
        Ok(Self { shape: Arc::new(shape), expanded })
    }
}

impl Serialize for Accepted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.shape.serialize(serializer)
    }
}

/// How an accepted shape differs from the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredChange {
    /// Slots that were not declared before.
    pub added: Vec<LogicalNodeId>,
    /// Slots that are no longer declared.
    pub removed: Vec<LogicalNodeId>,
    /// Slots whose spec differs: each will be replaced.
    pub changed: Vec<LogicalNodeId>,
}

impl DesiredChange {
    /// Whether no slot differs.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

impl ClusterDriver {
    /// Puts a newer shape in force; the same one again is accepted and changes nothing.
    pub fn set_desired(&mut self, desired: ClusterShape) -> Result<DesiredChange, DesiredRejected> {
        self.tape(|| TapeEntry::Desired(Box::new(desired.clone())));
        let serving: &RunId = &self.accepted.shape.run_id;
        if desired.run_id != *serving {
            return Err(DesiredRejected::OtherRun { given: desired.run_id, serving: serving.clone() });
        }
        let (given, accepted) = (desired.generation, self.accepted.shape.generation);
        if given < accepted {
            return Err(DesiredRejected::OlderGeneration { given, accepted });
        }
        if given == accepted {
            if desired == *self.accepted.shape {
                return Ok(DesiredChange::default());
            }
            return Err(DesiredRejected::SameGeneration { generation: given });
        }
        let old = std::mem::replace(&mut self.accepted, Accepted::try_from(desired)?).expanded;
        let new = Arc::clone(&self.accepted.expanded);
        self.shape_pending = true;
        self.meta.any = true;
        self.meta.desired = true;
        self.rebuild_group_policies();
        let change = difference(&old, &new);
        for slot in change.added.iter().chain(&change.removed).chain(&change.changed) {
            self.mark(slot);
            self.refresh(slot, None);
        }
        // Slots that wait for their group's allowance may go on when it was raised, or when others left the group.
        for (name, group) in &new.groups {
            let limited = group.update.max_unavailable.is_some();
            let waits_no_longer = |before: &ExpandedGroup| {
                before.update != group.update || (limited && before.slots != group.slots)
            };
            if old.groups.get(name).is_none_or(waits_no_longer) {
                group.slots.slots.iter().for_each(|slot| self.mark(slot));
            }
        }
        self.wait_for_providers();
        Ok(change)
    }

    /// Puts another timing in force. Stored deadlines stay as they were sampled.
    pub fn set_policy(&mut self, policy: RetryPolicy) {
        self.tape(|| TapeEntry::Policy(Box::new(policy.clone())));
        self.next_tick = self.now.checked_add(policy.extra.tick_every);
        self.policy = policy;
        self.rebuild_group_policies();
        self.wake_all();
    }

    pub(super) fn rebuild_group_policies(&mut self) {
        let policies = self
            .accepted
            .expanded
            .groups
            .iter()
            .map(|(name, group)| (name.clone(), self.policy.with(&group.policy)));
        self.group_policies = policies.collect();
    }
}

/// One walk over both maps, in order.
fn difference(old: &Expanded, new: &Expanded) -> DesiredChange {
    let mut change = DesiredChange::default();
    for (slot, spec) in &new.specs {
        match old.specs.get(slot) {
            None => change.added.push(slot.clone()),
            // Slots of one group share their template: equal pointers need no look inside.
            Some(before) if Arc::ptr_eq(&before.template, &spec.template) => {}
            Some(before) if before == spec => {}
            Some(_) => change.changed.push(slot.clone()),
        }
    }
    change.removed.extend(old.specs.keys().filter(|slot| !new.specs.contains_key(*slot)).cloned());
    change
}
