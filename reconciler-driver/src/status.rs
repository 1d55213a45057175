//! What readers see of a run: one line per node, with the reason from the decider itself. Made from state
//! alone, so that it can be had while nobody drives. Changes nothing.

use std::collections::BTreeSet;
use std::time::SystemTime;

use executor_api::{
    BootstrapSessionId, Endpoint, GroupId, LeaseId, LogicalNodeId, NodeAttemptId, ProviderName, RunId,
};
use reconciler_core::{
    ClusterState, Expanded, Holds, NodeDecision, NodeIntent, NodeStep, Why, decide_slot, is_converged,
};
use serde::{Deserialize, Serialize};

use crate::driver::ClusterDriver;
use crate::event::{Counters, Event};

/// One slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The slot.
    pub id: LogicalNodeId,
    /// Its group.
    pub group: GroupId,
    /// Its attempt; `None` before the first.
    pub attempt: Option<NodeAttemptId>,
    /// The attempt's stage as [`NodeStage::as_str`](reconciler_core::NodeStage::as_str) says it, or `absent`.
    pub stage: String,
    /// Whether the attempt is to live.
    pub intent: Option<NodeIntent>,
    /// Whether it does its work.
    pub ready: bool,
    /// Whether it is all that is declared of it.
    pub converged: bool,
    /// Where it can be reached.
    pub endpoint: Option<Endpoint>,
    /// What it does next, or why it does nothing, in words.
    pub why: String,
    /// The same as data.
    pub reason: Why,
    /// When a wait ends by itself.
    pub until: Option<SystemTime>,
    /// Failures since it was last ready for long enough.
    pub failures: u32,
    /// The last failure.
    pub last_error: Option<String>,
    /// Its lease.
    pub lease_id: Option<LeaseId>,
    /// Its bootstrap session, live or over.
    pub session: Option<BootstrapSessionId>,
    /// What the session is doing, in its own words.
    pub phase: Option<String>,
    /// Who leases it.
    pub provider: ProviderName,
    /// Since when it is ready, or else since when this attempt exists.
    pub since: Option<SystemTime>,
}

/// A run at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusSnapshot {
    /// The run.
    pub run: RunId,
    /// When this was taken.
    pub at: SystemTime,
    /// The accepted generation.
    pub generation: u64,
    /// The latest generation evaluated. Not readiness.
    pub observed_generation: u64,
    /// Whether everything is as declared.
    pub converged: bool,
    /// The slots, declared or still there, in order.
    pub nodes: Vec<NodeStatus>,
    /// What must not be touched for now.
    pub holds: Holds,
    /// How often things happened; zero while nobody drives.
    pub counters: Counters,
}

/// One slot, what it would do next, and how it came there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The slot.
    pub status: NodeStatus,
    /// Its next step: an action's name, `wait` or `none`.
    pub step: String,
    /// Its latest events, oldest first.
    pub history: Vec<Event>,
}

/// A run as its stored state tells it, while nobody drives.
pub fn snapshot_of(state: &ClusterState, desired: &Expanded, run: &RunId, now: SystemTime) -> StatusSnapshot {
    let slots: BTreeSet<_> = state.nodes.keys().chain(desired.specs.keys()).collect();
    let nodes = slots.into_iter().filter_map(|slot| node_status(state, desired, slot, now));
    StatusSnapshot {
        run: run.clone(),
        at: now,
        generation: desired.generation,
        observed_generation: state.observed_generation,
        converged: state.observed_generation == desired.generation && is_converged(state, desired),
        nodes: nodes.map(|(status, _)| status).collect(),
        holds: state.holds.clone(),
        counters: Counters::default(),
    }
}

/// One slot as its stored state tells it, with the name of its next step. `None`: neither declared nor there.
pub fn node_status(
    state: &ClusterState,
    desired: &Expanded,
    slot: &LogicalNodeId,
    now: SystemTime,
) -> Option<(NodeStatus, &'static str)> {
    let node = state.nodes.get(slot);
    let spec = desired.specs.get(slot).or_else(|| node.map(|node| &node.record.desired))?;
    let NodeDecision { step, why } = decide_slot(state, desired, slot, now);
    let record = node.map(|node| &node.record);
    let status = NodeStatus {
        id: slot.clone(),
        group: spec.group.clone(),
        attempt: node.map(|node| node.attempt),
        stage: record.map_or("absent", |record| record.stage.as_str()).to_owned(),
        intent: node.map(|node| node.intent),
        ready: node.is_some_and(reconciler_core::ManagedNode::is_ready),
        converged: reconciler_core::slot_converged(state, desired, slot),
        endpoint: record.and_then(|record| record.connection.clone()),
        why: why.to_string(),
        until: why.until(),
        reason: why,
        failures: node.map_or(0, |node| node.retry.consecutive_failures),
        last_error: node.and_then(|node| node.retry.last_error.clone()),
        lease_id: record.and_then(|record| Some(record.lease.as_ref()?.lease_id.clone())),
        session: record.and_then(|record| Some(record.bootstrap.as_ref()?.session.clone())),
        phase: record.and_then(|record| record.bootstrap.as_ref()?.phase.clone()),
        provider: spec.template.provider.clone(),
        since: node.map(|node| node.extra.ready_at.unwrap_or(node.record.created_at)),
    };
    Some((status, step_name(&step)))
}

fn step_name(step: &NodeStep) -> &'static str {
    match step {
        NodeStep::None => "none",
        NodeStep::Wait => "wait",
        NodeStep::BeginDelete => "begin-delete",
        NodeStep::MarkDestroyed => "mark-destroyed",
        NodeStep::Restart => "restart",
        NodeStep::Reap => "reap",
        NodeStep::Dispatch(command) => command.kind().as_str(),
    }
}

impl ClusterDriver {
    /// One slot, its place in line at its provider included.
    pub fn status_of(&self, slot: &LogicalNodeId) -> Option<NodeStatus> {
        self.status_and_step(slot).map(|(status, _)| status)
    }

    /// One slot, what it would do next, and how it came there.
    pub fn explain(&self, slot: &LogicalNodeId) -> Option<Explanation> {
        let (status, step) = self.status_and_step(slot)?;
        let history = self.history(slot).cloned().collect();
        Some(Explanation { status, step: step.to_owned(), history })
    }

    /// The whole run.
    pub fn snapshot(&self) -> StatusSnapshot {
        let nodes = self.slots().iter().filter_map(|slot| self.status_of(slot)).collect();
        StatusSnapshot {
            run: self.run().clone(),
            at: self.now(),
            generation: self.desired().generation,
            observed_generation: self.state().observed_generation,
            converged: self.is_converged(),
            nodes,
            holds: self.state().holds.clone(),
            counters: self.counters(),
        }
    }

    fn status_and_step(&self, slot: &LogicalNodeId) -> Option<(NodeStatus, &'static str)> {
        let (mut status, step) = node_status(self.state(), self.expanded(), slot, self.now())?;
        // Whom a node waits for first: its own provider, if that is among them.
        let own = self.waits_for().get(&status.provider);
        status.reason = if let Some(provider) = own.or_else(|| self.waits_for().first()) {
            Why::ProviderUnlisted { provider: provider.clone(), error: self.cannot_list(provider) }
        } else if let Some((provider, running)) = self.refused(slot) {
            Why::ProviderBusy { provider, running }
        } else {
            return Some((status, step));
        };
        status.why = status.reason.to_string();
        status.until = None;
        Some((status, "wait"))
    }
}
