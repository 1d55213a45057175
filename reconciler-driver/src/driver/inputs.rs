//! Everything that a driver can be told, and what each of it does to the state and the queue. Facts are
//! folded here and nowhere else; no effect leaves from here.

use std::time::SystemTime;

use executor_api::{
    AttemptIdentity, AttemptKey, EffectFailure, ExecutorErrorKind, LeaseId, Listing, LogicalNodeId,
    NodeAttemptId, NodeObservation, ObservationReport, OperationId, OperationReport, ProviderName,
};
use reconciler_core::{Folded, Hold, HoldBy};
use serde::{Deserialize, Serialize};

use super::{ClusterDriver, TapeEntry};
use crate::event::Happening;

/// One input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverInput {
    /// An operation ended.
    Outcome {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt.
        attempt: NodeAttemptId,
        /// How it ended.
        report: OperationReport,
    },
    /// Something was observed without asking.
    Observation(ObservationReport),
    /// A provider was listed, or could not be.
    Listing {
        /// Which one.
        provider: ProviderName,
        /// What it holds, or what it said.
        listing: Result<Listing, String>,
    },
    /// The end of an orphan was tried.
    Swept {
        /// Who leased it.
        provider: ProviderName,
        /// Which one.
        lease: LeaseId,
        /// Why it is still there, if it is.
        error: Option<String>,
    },
    /// An effect could not be handed to its executor: nothing was made.
    SubmitFailed {
        /// The slot.
        node: LogicalNodeId,
        /// The operation.
        operation: OperationId,
        /// Why, for an operator.
        error: String,
    },
    /// Somebody wants a slot, or the cluster for `None`, left alone. Over an earlier hold of the same holder: for
    /// another reason from now on.
    Hold {
        /// The slot.
        slot: Option<LogicalNodeId>,
        /// By whose word, and why.
        hold: Hold,
    },
    /// A hold is taken back.
    Release {
        /// The slot.
        slot: Option<LogicalNodeId>,
        /// Whose.
        by: HoldBy,
    },
    /// A fresh attempt is asked for.
    Replace {
        /// The slot.
        slot: LogicalNodeId,
    },
    /// Something to keep beside the state, or to forget for `None`.
    Annotate {
        /// Its name.
        key: String,
        /// Its value.
        value: Option<String>,
    },
    /// An executor panicked; its outcome comes by itself.
    Panicked,
    /// Changesets up to this one are durable.
    Committed(u64),
    /// A changeset could not be made durable.
    CommitFailed(String),
    /// Look at everything once, as the safety tick does.
    Tick,
}

/// A slot without an attempt was named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no node {slot}; `status` lists those that exist")]
pub struct UnknownSlot {
    /// The slot.
    pub slot: LogicalNodeId,
}

impl ClusterDriver {
    /// Takes one input. What follows from it is decided in the next pass.
    pub fn handle(&mut self, input: DriverInput, now: SystemTime) {
        self.tape(|| TapeEntry::Input { now, input: Box::new(input.clone()) });
        self.advance(now);
        match input {
            DriverInput::Outcome { node, attempt, report } => self.outcome(&node, attempt, report),
            DriverInput::Observation(report) => self.observation(report),
            DriverInput::Listing { provider, listing } => self.listed(provider, listing),
            DriverInput::Swept { provider, lease, error } => self.swept(provider, lease, error),
            DriverInput::SubmitFailed { node, operation, error } => {
                self.counters.submit_failures += 1;
                self.never_sent(&node, operation, error);
            }
            DriverInput::Hold { slot, hold } => self.hold(slot.as_ref(), hold),
            DriverInput::Release { slot, by } => self.release(slot.as_ref(), by),
            DriverInput::Replace { slot } => {
                // Whoever wants to know whether the slot exists calls `replace`.
                let _ = self.ask_for_replacement(&slot);
            }
            DriverInput::Annotate { key, value } => {
                self.meta.any = true;
                self.meta.annotations.insert(key, value);
            }
            DriverInput::Panicked => self.counters.panics += 1,
            DriverInput::Committed(seq) => self.committed(seq),
            DriverInput::CommitFailed(reason) => self.commit_failed(reason),
            DriverInput::Tick => self.next_tick = Some(self.now),
        }
    }

    /// Asks for a fresh attempt of a slot; one that is being deleted gets one anyway.
    pub fn replace(&mut self, slot: &LogicalNodeId) -> Result<(), UnknownSlot> {
        let now = self.now;
        self.tape(|| {
            let input = Box::new(DriverInput::Replace { slot: slot.clone() });
            TapeEntry::Input { now, input }
        });
        self.ask_for_replacement(slot)
    }

    fn ask_for_replacement(&mut self, slot: &LogicalNodeId) -> Result<(), UnknownSlot> {
        let Some(node) = self.state.nodes.get_mut(slot) else {
            return Err(UnknownSlot { slot: slot.clone() });
        };
        if node.intent == reconciler_core::NodeIntent::Active && !node.extra.replace_requested {
            node.extra.replace_requested = true;
            let attempt = node.attempt;
            self.touched(slot);
            self.note(Some((slot, attempt)), Happening::ReplaceRequested);
        }
        Ok(())
    }

    fn outcome(&mut self, slot: &LogicalNodeId, attempt: NodeAttemptId, report: OperationReport) {
        let operation = report.operation;
        let current = self.state.nodes.get(slot).filter(|node| node.attempt == attempt);
        let awaited = current.and_then(|node| node.pending.as_ref()).is_some_and(|p| p.id == operation);
        if !awaited || operation.attempt != attempt {
            self.counters.stale_results += 1;
            self.note(Some((slot, attempt)), Happening::StaleResult { operation });
            return;
        }
        self.fold(slot, NodeObservation::Completed(report));
    }

    fn observation(&mut self, report: ObservationReport) {
        let ObservationReport { node: slot, attempt, observation } = report;
        let current = self.state.nodes.get(&slot).map(|node| (node.attempt, node.extra.candidate));
        let Some((_, candidate)) = current.filter(|(found, _)| *found == attempt) else {
            self.counters.dropped_facts += 1;
            let reason = "it speaks of an attempt that is not the current one".to_owned();
            self.note(Some((&slot, attempt)), Happening::Dropped { reason });
            return;
        };
        match &observation {
            // Outcomes come with their operation, deadlines from the driver itself; neither is observed.
            NodeObservation::Completed(report) => {
                let report = report.clone();
                return self.outcome(&slot, attempt, report);
            }
            NodeObservation::TimedOut { .. } | NodeObservation::DeadlinePassed(_) => {
                self.counters.dropped_facts += 1;
                let reason = "deadlines are settled by the driver alone".to_owned();
                return self.note(Some((&slot, attempt)), Happening::Dropped { reason });
            }
            NodeObservation::MemberJoined { member, .. } => {
                let key = AttemptKey { run: self.accepted.shape.run_id.clone(), node: slot.clone(), attempt };
                if member.nonce != AttemptIdentity::derive(&key, candidate).nonce {
                    self.counters.foreign_members += 1;
                    let member = member.member_id.clone();
                    return self.note(Some((&slot, attempt)), Happening::ForeignMember { member });
                }
            }
            NodeObservation::BootstrapProgress { .. }
            | NodeObservation::BootstrapConverged { .. }
            | NodeObservation::BootstrapFailed { .. }
            | NodeObservation::LeaseLost { .. }
            | NodeObservation::EndpointChanged { .. }
            | NodeObservation::Suspected { .. }
            | NodeObservation::SeenAlive => {}
        }
        self.fold(&slot, observation);
    }

    /// Folds one fact into the current attempt of a slot, and counts and tells what became of it.
    pub(super) fn fold(&mut self, slot: &LogicalNodeId, observation: NodeObservation) {
        let observation = self.state.holds.soften(slot, observation);
        let policy = self.policy_of(slot).clone();
        let now = self.now;
        let Some(node) = self.state.nodes.get_mut(slot) else { return };
        let attempt = node.attempt;
        match (self.rules.fold)(node, observation, now, &policy) {
            Folded::Applied(fact) => {
                self.touched(slot);
                self.note(Some((slot, attempt)), Happening::Fact { text: fact.to_string() });
            }
            Folded::Nothing => {}
            Folded::Dropped(dropped) => {
                self.counters.dropped_facts += 1;
                self.note(Some((slot, attempt)), Happening::Dropped { reason: dropped.to_string() });
            }
        }
    }

    /// A slot changed: it is looked at in the next pass and stored with it.
    pub(super) fn touched(&mut self, slot: &LogicalNodeId) {
        self.changed.insert(slot.clone());
        self.mark(slot);
        self.refresh(slot, None);
    }

    /// An effect that its executor never saw: proved to have made nothing.
    pub(super) fn never_sent(&mut self, slot: &LogicalNodeId, operation: OperationId, message: String) {
        let pending = self.state.nodes.get(slot).and_then(|node| node.pending.as_ref());
        let Some(kind) = pending.filter(|pending| pending.id == operation).map(|pending| pending.kind) else {
            self.counters.stale_results += 1;
            return self.note(Some((slot, operation.attempt)), Happening::StaleResult { operation });
        };
        let visibility = self.visibility_of(slot, kind);
        let failure = EffectFailure { kind: ExecutorErrorKind::Unavailable, message };
        self.fold(
            slot,
            NodeObservation::Completed(OperationReport { operation, outcome: Err(failure), visibility }),
        );
    }

    pub(super) fn hold(&mut self, slot: Option<&LogicalNodeId>, hold: Hold) {
        let (by, reason) = (hold.by, hold.reason.clone());
        self.state.holds.hold(slot.cloned(), hold);
        self.holds_changed(slot, Happening::Held { by, reason });
    }

    fn release(&mut self, slot: Option<&LogicalNodeId>, by: HoldBy) {
        if self.state.holds.release(slot, by) {
            self.holds_changed(slot, Happening::Released { by });
        }
    }

    fn holds_changed(&mut self, slot: Option<&LogicalNodeId>, what: Happening) {
        self.meta.any = true;
        self.meta.holds = true;
        if let Some(slot) = slot {
            self.mark(slot);
            self.refresh(slot, None);
            let event_attempt = self.state.nodes.get(slot).map(|node| node.attempt);
            self.note(event_attempt.map(|attempt| (slot, attempt)), what);
        } else {
            self.mark_all();
            for slot in self.state.nodes.keys().cloned().collect::<Vec<_>>() {
                self.refresh(&slot, None);
            }
            self.note(None, what);
        }
    }

    fn committed(&mut self, seq: u64) {
        while self.held.front().is_some_and(|(held, _)| *held <= seq) {
            if let Some((_, effects)) = self.held.pop_front() {
                self.released.extend(effects);
            }
        }
    }

    fn commit_failed(&mut self, reason: String) {
        self.held.clear();
        self.released.clear();
        self.recorded.clear();
        self.note(None, Happening::StoreFailed { reason: reason.clone() });
        self.failed.get_or_insert(reason);
    }
}
