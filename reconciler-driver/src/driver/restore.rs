//! Going on from stored state: which stored times still hold. The process that stored them is gone, and the
//! wall clock may have moved in between.
//!
//! No wait is longer than its own configured maximum from now on. Only waits that are harmless when early
//! may have become shorter; absences and silences get their whole time again. Operations are not waited for: who
//! sent them is gone, so what they made is looked up.

use std::sync::Arc;
use std::time::SystemTime;

use executor_api::LogicalNodeId;
use reconciler_core::{ManagedNode, RetryPolicy, interrupt};

use super::{ClusterDriver, later};
use crate::event::Happening;

impl ClusterDriver {
    /// Brings restored slots into this process: their times, their sessions, their place in the index.
    pub(super) fn resume(&mut self) {
        for slot in self.state.nodes.keys().cloned().collect::<Vec<_>>() {
            let policy = self.policy_of(&slot).clone();
            let spec = self.accepted.expanded.specs.get(&slot).cloned();
            let now = self.now;
            let Some(node) = self.state.nodes.get_mut(&slot) else { continue };
            let before = node.clone();
            resume_node(node, &policy, now);
            let changed = *node != before;
            // Equal specs share one allocation again.
            if let Some(spec) = spec.filter(|spec| *spec == node.record.desired) {
                node.record.desired.template = Arc::clone(&spec.template);
            }
            if changed {
                self.changed.insert(slot.clone());
                self.meta.any = true;
            }
            self.refresh(&slot, None);
        }
    }

    /// Settles what was pending when the last process ended.
    pub(super) fn settle_interrupted(&mut self) {
        let pending =
            self.state.nodes.iter().filter_map(|(slot, node)| Some((slot, node.pending.as_ref()?.kind)));
        for (slot, kind) in pending.map(|(slot, kind)| (slot.clone(), kind)).collect::<Vec<_>>() {
            let visibility = self.visibility_of(&slot, kind);
            let now = self.now;
            let Some(node) = self.state.nodes.get_mut(&slot) else { continue };
            let attempt = node.attempt;
            if let Some(pending) = interrupt(node, visibility, now) {
                let what = Happening::Interrupted { operation: pending.id, kind };
                self.note(Some((&slot, attempt)), what);
                self.touched(&slot);
            }
        }
    }

    /// Counts absence windows anew: what an earlier process left unknown may land and show as late from now
    /// on as if it had been given up now.
    pub(super) fn restart_absence_windows(&mut self) {
        let marked: Vec<(LogicalNodeId, _)> = self
            .state
            .nodes
            .iter()
            .filter_map(|(slot, node)| Some((slot.clone(), node.retry.ambiguous_operation?)))
            .collect();
        for (slot, kind) in marked {
            let from = self.visibility_of(&slot, kind).absent_counts_from(self.now);
            if let Some(node) = self.state.nodes.get_mut(&slot)
                && node.retry.extra.absent_counts_from != Some(from)
            {
                node.retry.extra.absent_counts_from = Some(from);
                self.changed.insert(slot);
                self.meta.any = true;
            }
        }
    }
}

fn resume_node(node: &mut ManagedNode, policy: &RetryPolicy, now: SystemTime) {
    let at_most = |time: &mut Option<SystemTime>, longest| {
        *time = time.map(|at| at.min(later(now, longest)));
    };
    let retry = &mut node.retry;
    at_most(&mut retry.next_effect_at, policy.cap.max(policy.endpoint_probe_interval));
    at_most(&mut retry.restart_at, policy.cap);
    at_most(&mut node.extra.stable_at, policy.extra.stable_after);
    if let Some(pending) = node.pending.as_mut() {
        pending.deadline = later(now, policy.operation_timeout);
    }
    // Nobody was listening meanwhile: a node that joined in time must be able to say so before the verdict.
    if let Some(join) = node.extra.join_deadline {
        let longest = policy.extra.join_within;
        let grace = policy.operation_timeout.min(longest);
        node.extra.join_deadline = Some(join.clamp(later(now, grace), later(now, longest)));
    }
    if let (Some(_), Some(timeout)) = (node.extra.loss_deadline, policy.extra.loss_timeout) {
        node.extra.loss_deadline = Some(later(now, timeout));
    }
    node.extra.suspect_since = node.extra.suspect_since.map(|at| at.min(now));
    node.extra.ready_at = node.extra.ready_at.map(|at| at.min(now));
}
