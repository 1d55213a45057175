//! From the driver's snapshot to the document that `status` prints.

use std::time::SystemTime;

use executor_api::LogicalNodeId;
use reconciler_core::{Expanded, Hold, HoldBy, Holds, NodeIntent};
use reconciler_driver::status::node_status;
use reconciler_driver::{Event, Explanation, NodeStatus, StatusSnapshot, snapshot_of};

use crate::cli::failure::Failure;
use crate::cli::view::{Explained, HoldView, Node, Status, rfc3339};
use crate::run::intent::Notes;
use crate::run::state::Stored;

/// A run that is being driven.
pub(crate) fn of_snapshot(snapshot: StatusSnapshot, notes: &Notes, driver_pid: Option<u32>) -> Status {
    Status {
        run: snapshot.run.name().to_owned(),
        uid: snapshot.run.uid().to_owned(),
        file: notes.file.as_ref().map(|file| file.display().to_string()),
        driver_pid,
        generation: snapshot.generation,
        observed_generation: snapshot.observed_generation,
        converged: snapshot.converged,
        nodes: snapshot.nodes.into_iter().map(node).collect(),
        overrides: notes.overrides.iter().map(|(group, over)| (group.to_string(), *over)).collect(),
        holds: holds(&snapshot.holds),
        counters: driver_pid.and_then(|_| serde_json::to_value(snapshot.counters).ok()),
    }
}

/// A run that nobody drives, as its state tells it.
pub(crate) fn of_stored(stored: &Stored) -> Result<Status, Failure> {
    let image = &stored.image;
    let snapshot = snapshot_of(&image.state, &expand(stored)?, &image.run, SystemTime::now());
    Ok(of_snapshot(snapshot, &stored.notes, None))
}

/// One node of a run that nobody drives.
pub(crate) fn explain_stored(stored: &Stored, slot: &LogicalNodeId) -> Result<Explained, Failure> {
    let expanded = expand(stored)?;
    let found = node_status(&stored.image.state, &expanded, slot, SystemTime::now());
    let (status, step) = found.ok_or_else(|| unknown(slot))?;
    Ok(Explained { node: node(status), step: step.to_owned(), history: Vec::new() })
}

/// One node of a run that is being driven.
pub(crate) fn of_explanation(explanation: Explanation) -> Explained {
    let history = explanation.history.iter().map(event).collect();
    Explained { node: node(explanation.status), step: explanation.step, history }
}

/// One event as a line.
pub(crate) fn event(event: &Event) -> String {
    let node = event.node.as_ref().map_or("-", LogicalNodeId::as_str);
    let attempt = event.attempt.map_or_else(|| "-".to_owned(), |attempt| attempt.to_string());
    format!("{}  {node:12} {attempt:4} {:18} {}", rfc3339(event.at), event.what.name(), event.what)
}

/// The failure of naming a node that does not exist.
pub(crate) fn unknown(slot: &LogicalNodeId) -> Failure {
    Failure::error(format!("there is no node {slot}; `reconciler status` lists those that exist"))
}

fn expand(stored: &Stored) -> Result<Expanded, Failure> {
    Expanded::of(&stored.image.desired)
        .map_err(|error| Failure::while_doing("reading the stored shape", &error))
}

fn node(status: NodeStatus) -> Node {
    Node {
        id: status.id.to_string(),
        group: status.group.to_string(),
        attempt: status.attempt.map(|attempt| attempt.0),
        stage: status.stage,
        intent: match status.intent {
            None | Some(NodeIntent::Active) => "active",
            Some(NodeIntent::Deleting) => "deleting",
        }
        .to_owned(),
        ready: status.ready,
        converged: status.converged,
        since: status.since.map(rfc3339),
        endpoint: status.endpoint.as_ref().map(ToString::to_string),
        ports: status.endpoint.map(|endpoint| endpoint.ports).unwrap_or_default(),
        why: status.why,
        until: status.until.map(rfc3339),
        failures: status.failures,
        last_error: status.last_error,
        provider: status.provider.to_string(),
        lease: status.lease_id.map(|lease| lease.0),
        session: status.session.map(|session| session.0),
        phase: status.phase,
    }
}

fn holds(holds: &Holds) -> Vec<HoldView> {
    let view = |node: Option<&LogicalNodeId>, hold: &Hold| HoldView {
        node: node.map(ToString::to_string),
        by: match hold.by {
            HoldBy::Operator => "operator",
            HoldBy::Maintenance => "maintenance",
            HoldBy::Breach => "breach",
        }
        .to_owned(),
        reason: hold.reason.clone(),
        since: rfc3339(hold.since),
    };
    let cluster = holds.cluster.values().map(|hold| view(None, hold));
    let slots =
        holds.slots.iter().flat_map(|(slot, holds)| holds.values().map(move |hold| view(Some(slot), hold)));
    cluster.chain(slots).collect()
}
