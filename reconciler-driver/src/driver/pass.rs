//! One pass: settle what is due, decide the dirty slots, apply, record. Contains no I/O and waits for
//! nothing; an effect leaves only after the changeset that records it was confirmed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::SystemTime;

use executor_api::{AttemptKey, LogicalNodeId, NodeDeadline, NodeObservation, OperationContext, SlotGroup};
use reconciler_core::{Applied, NodeAction, PlannedEffect, Why};

use super::index::{Lane, Stored, deadlines};
use super::{ClusterDriver, EffectCall, PassReport, Route, TapeEntry};
use crate::error::DriverError;
use crate::event::Happening;
use crate::store::{Changeset, MetaChange};

/// How many slots one safety tick looks at.
const TICK_SLOTS: usize = 8192;

impl ClusterDriver {
    /// Decides and records the next step of every dirty slot, at most one each.
    pub fn pass(&mut self, now: SystemTime) -> Result<PassReport, DriverError> {
        let report = self.make_pass(now);
        self.tape_pass(now, &report);
        report
    }

    fn make_pass(&mut self, now: SystemTime) -> Result<PassReport, DriverError> {
        if let Some(reason) = &self.failed {
            return Err(DriverError::StoreFailed { reason: reason.clone() });
        }
        if let Some(distrust) = self.guard.alarm() {
            return Err(DriverError::Distrusted(distrust.clone()));
        }
        let now = self.advance(now);
        if self.guard.waits() {
            return Ok(PassReport { events: std::mem::take(&mut self.events), ..PassReport::default() });
        }
        self.settle_due(now);
        let asked = self.take_dirty();
        let mut looked_at = asked.clone();
        let by_tick = self.tick(now, &mut looked_at);
        if !looked_at.is_empty() || self.shape_pending {
            self.decide(&looked_at, by_tick.then_some(&asked), now)?;
        }
        // A pass that recorded no effect and is followed by another at once leaves its changes to that one.
        let last = !self.recorded.is_empty() || self.dirty.is_empty();
        let commit = if last { self.flush() } else { None };
        self.settled.clear();
        Ok(PassReport {
            stops: std::mem::take(&mut self.stops),
            commit,
            effects: std::mem::take(&mut self.released),
            attach: std::mem::take(&mut self.attach),
            detach: std::mem::take(&mut self.detach),
            retired: std::mem::take(&mut self.retired),
            sweeps: std::mem::take(&mut self.sweeps.wanted),
            reaped: std::mem::take(&mut self.reaped),
            events: std::mem::take(&mut self.events),
            requeue_at: self.next_wakeup(),
        })
    }

    /// Folds every stored deadline that is due; at or before now is due.
    fn settle_due(&mut self, now: SystemTime) {
        for slot in self.index.take_due(now) {
            let held = self.state.holds.on(&slot).is_some();
            let due: Vec<_> = self.state.nodes.get(&slot).map_or_else(Vec::new, |node| {
                deadlines(node, held).filter(|(at, _)| *at <= now).map(|(_, stored)| stored).collect()
            });
            for stored in due {
                match stored {
                    Stored::Operation => self.settle_operation(&slot),
                    Stored::Join => self.settle(&slot, NodeDeadline::Join),
                    Stored::Loss => self.settle(&slot, NodeDeadline::Loss),
                    Stored::Stable => self.settle(&slot, NodeDeadline::Stable),
                }
            }
            self.settled.insert(slot.clone());
            self.mark(&slot);
            self.refresh(&slot, None);
        }
    }

    fn settle(&mut self, slot: &LogicalNodeId, which: NodeDeadline) {
        // A deadline folded a moment before may have cleared this one.
        let stored = self.state.nodes.get(slot).and_then(|node| match which {
            NodeDeadline::Join => node.extra.join_deadline,
            NodeDeadline::Loss => node.extra.loss_deadline,
            NodeDeadline::Stable => node.extra.stable_at,
        });
        if stored.is_some() {
            self.fold(slot, NodeObservation::DeadlinePassed(which));
        }
    }

    fn settle_operation(&mut self, slot: &LogicalNodeId) {
        let Some(node) = self.state.nodes.get(slot) else { return };
        let Some(pending) = node.pending.clone() else { return };
        let attempt = node.attempt;
        let waits = |calls: &[EffectCall]| calls.iter().any(|call| call.context.operation == pending.id);
        let unsent =
            waits(&self.released) || waits(&self.recorded) || self.held.iter().any(|(_, calls)| waits(calls));
        if unsent {
            let keep = |call: &EffectCall| call.context.operation != pending.id;
            self.released.retain(keep);
            self.recorded.retain(keep);
            self.held.iter_mut().for_each(|(_, calls)| calls.retain(keep));
            let message = format!("{} was not sent before its deadline", pending.kind);
            return self.never_sent(slot, pending.id, message);
        }
        self.counters.timeouts += 1;
        self.stops.push(pending.id);
        self.note(Some((slot, attempt)), Happening::TimedOut { operation: pending.id, kind: pending.kind });
        let visibility = self.visibility_of(slot, pending.kind);
        self.fold(slot, NodeObservation::TimedOut { operation: pending.id, visibility });
    }

    /// The dirty slots, and with each the others of its group where one slot's place depends on the rest.
    fn take_dirty(&mut self) -> BTreeSet<LogicalNodeId> {
        let mut dirty = std::mem::take(&mut self.dirty);
        let mut limited = BTreeMap::new();
        for spec in dirty.iter().filter_map(|slot| self.accepted.expanded.specs.get(slot)) {
            if let Some(group) = self.accepted.expanded.groups.get(&spec.group)
                && group.update.max_unavailable.is_some()
            {
                limited.insert(&spec.group, Arc::clone(&group.slots.slots));
            }
        }
        for slots in limited.into_values() {
            dirty.extend(slots.iter().cloned());
        }
        dirty
    }

    /// The safety tick adds the next stretch of slots to a pass. Says whether it was due.
    fn tick(&mut self, now: SystemTime, looked_at: &mut BTreeSet<LogicalNodeId>) -> bool {
        if self.next_tick.is_none_or(|at| now < at) {
            return false;
        }
        self.next_tick = now.checked_add(self.policy.extra.tick_every).filter(|at| now < *at);
        let after = self.tick_cursor.take();
        let after = (after.as_ref().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let there = self.state.nodes.range::<LogicalNodeId, _>(after).map(|(slot, _)| slot);
        let declared = self.accepted.expanded.specs.range::<LogicalNodeId, _>(after).map(|(slot, _)| slot);
        let stretch: BTreeSet<_> = there.take(TICK_SLOTS).chain(declared.take(TICK_SLOTS)).collect();
        let stretch: Vec<_> = stretch.into_iter().take(TICK_SLOTS).cloned().collect();
        if stretch.len() == TICK_SLOTS {
            self.tick_cursor = stretch.last().cloned();
        }
        looked_at.extend(stretch);
        true
    }

    fn decide(
        &mut self,
        looked_at: &BTreeSet<LogicalNodeId>,
        asked: Option<&BTreeSet<LogicalNodeId>>,
        now: SystemTime,
    ) -> Result<(), DriverError> {
        self.counters.passes += 1;
        self.counters.slots_looked_at += looked_at.len() as u64;
        let expanded = Arc::clone(&self.accepted.expanded);
        let plan = (self.rules.reconcile)(&self.state, &expanded, looked_at, now)?;
        let mut retry_at: BTreeMap<&LogicalNodeId, SystemTime> = BTreeMap::new();
        for waiting in &plan.extra.waiting {
            if let Some(until) = waiting.why.until() {
                retry_at.insert(&waiting.node, until);
            }
        }
        let mut refused = BTreeSet::new();
        let mut allocator_moved = false;
        let mut reasons = plan.extra.reasons.into_iter();
        for action in &plan.actions {
            let why = reasons.next().unwrap_or(Why::Declared);
            let slot = action.node();
            if asked.is_some_and(|asked| !asked.contains(slot)) && self.admission.refused(slot).is_none() {
                self.counters.found_by_tick += 1;
            }
            let allocates = matches!(action, NodeAction::Insert { .. } | NodeAction::Restart { .. });
            if allocates && allocator_moved {
                self.stale(action, "an earlier attempt id of this plan was stale".to_owned());
                continue;
            }
            if let NodeAction::Dispatch(effect) = action
                && let Some(node) = self.state.nodes.get(slot)
            {
                let lane = Lane::of(node, effect.command.kind());
                if !self.admit(slot, lane) {
                    refused.insert(slot.clone());
                    continue;
                }
            }
            let taken = self.apply(action, why, now);
            allocator_moved |= allocates && !taken;
        }
        // What only the tick looked at has not changed: its place in the index is as it was.
        for slot in looked_at.iter().filter(|slot| asked.is_none_or(|asked| asked.contains(*slot))) {
            self.refresh(slot, retry_at.get(slot).copied());
        }
        self.settle_calls(looked_at, &refused);
        self.shape_pending = false;
        if self.state.observed_generation != plan.observed_generation {
            self.state.observed_generation = plan.observed_generation;
            self.meta.any = true;
            // Whoever waits for a generation to be acknowledged looks at the state again when this has risen.
            self.revision = self.revision.saturating_add(1);
        }
        Ok(())
    }

    /// Applies one action; a stale one is discarded and its slot looked at again.
    fn apply(&mut self, action: &NodeAction, why: Why, now: SystemTime) -> bool {
        let slot = action.node();
        let retires = match action {
            NodeAction::Restart { expected_attempt, .. } | NodeAction::Reap { expected_attempt, .. } => {
                Some(*expected_attempt)
            }
            NodeAction::Insert { .. }
            | NodeAction::BeginDelete { .. }
            | NodeAction::MarkDestroyed { .. }
            | NodeAction::Dispatch(_) => None,
        };
        let policy = self.policy_of(slot).clone();
        let applied = match (self.rules.apply)(&mut self.state, action, now, &policy) {
            Ok(applied) => applied,
            Err(stale) => {
                self.stale(action, stale.to_string());
                return false;
            }
        };
        self.changed.insert(slot.clone());
        self.meta.any = true;
        self.retired.extend(retires);
        let mut operation = None;
        match (applied, action) {
            (Applied::Recorded { deadline }, NodeAction::Dispatch(effect)) => {
                operation = Some(effect.operation);
                self.counters.dispatched += 1;
                self.record(effect, deadline);
            }
            (Applied::Reaped, _) => self.reaped = true,
            (Applied::Transition | Applied::Recorded { .. }, _) => self.mark(slot),
        }
        self.refresh(slot, None);
        let action_name = Cow::Borrowed(action.name());
        let what = Happening::Step { action: action_name, operation, why };
        self.note(Some((slot, action.attempt())), what);
        true
    }

    fn stale(&mut self, action: &NodeAction, reason: String) {
        self.counters.stale_actions += 1;
        self.mark(action.node());
        let what = Happening::StaleAction { action: Cow::Borrowed(action.name()), reason };
        self.note(Some((action.node(), action.attempt())), what);
    }

    fn record(&mut self, effect: &PlannedEffect, deadline: SystemTime) {
        let Some(node) = self.state.nodes.get(&effect.node) else { return };
        let spec = &node.record.desired;
        let own = || SlotGroup { group: spec.group.clone(), slots: Arc::from([effect.node.clone()]) };
        let group =
            self.accepted.expanded.groups.get(&spec.group).map_or_else(own, |group| group.slots.clone());
        self.recorded.push(EffectCall {
            node: effect.node.clone(),
            command: effect.command.clone(),
            route: Route::of(&spec.template),
            context: OperationContext {
                attempt: AttemptKey {
                    run: self.accepted.shape.run_id.clone(),
                    node: effect.node.clone(),
                    attempt: effect.operation.attempt,
                },
                operation: effect.operation,
                candidate: node.extra.candidate,
                deadline,
                group,
            },
        });
    }

    /// What differs from the stored image, without deciding anything: for a driver that is about to end.
    pub fn flush(&mut self) -> Option<Changeset> {
        self.has_changes().then(|| self.changeset())
    }

    fn changeset(&mut self) -> Changeset {
        self.last_seq += 1;
        let mut upserted = Vec::with_capacity(self.changed.len());
        let mut removed = Vec::new();
        for slot in std::mem::take(&mut self.changed) {
            match self.state.nodes.get(&slot) {
                Some(node) => upserted.push((slot, node.clone())),
                None => removed.push(slot),
            }
        }
        let meta = std::mem::take(&mut self.meta);
        self.held.push_back((self.last_seq, std::mem::take(&mut self.recorded)));
        Changeset {
            seq: self.last_seq,
            upserted,
            removed,
            meta: MetaChange {
                run: meta.run.then(|| self.accepted.shape.run_id.clone()),
                observed_generation: self.state.observed_generation,
                next_attempt_id: self.state.next_attempt_id,
                holds: meta.holds.then(|| self.state.holds.clone()),
                desired: meta.desired.then(|| Arc::clone(&self.accepted.shape)),
                annotations: meta.annotations,
            },
        }
    }

    /// Settles every operation because its task was stopped: for a driver that is about to end. What was
    /// never sent is proved to have made nothing; the rest is unknown.
    pub fn settle_all_operations(&mut self, now: SystemTime) {
        self.tape(|| TapeEntry::Settled { now });
        self.advance(now);
        let pending = self.state.nodes.iter().filter(|(_, node)| node.pending.is_some());
        for slot in pending.map(|(slot, _)| slot.clone()).collect::<Vec<_>>() {
            self.settle_operation(&slot);
        }
    }
}
