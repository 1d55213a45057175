//! What follows a halt: dwell, then a retry while tries are left and the copies are proved, then the way back,
//! then a person. Whatever cannot be proved in either direction goes to a person at once.

use std::collections::BTreeSet;
use std::time::SystemTime;

use executor_api::host::{HostName, ResourceName};

use crate::maintenance::advance::{Next, lease, resume, settled, spaced};
use crate::maintenance::escalation::{Answer, escalate};
use crate::maintenance::gate::sync::{Demand, Wire};
use crate::maintenance::gate::{Gathering, Look, bond, storage, sync};
use crate::maintenance::state::{Phase, RollbackStage};
use crate::maintenance::step::{Act, HaltReason, Move, Step, Why};
use crate::maintenance::verdict::{Finding, FindingKind, Subject, gravest};

/// A halted plan lets things settle.
pub(crate) fn settle_down(look: Look<'_>, reason: &HaltReason) -> Step {
    dwell(look, reason.to_string())
}

fn dwell(look: Look<'_>, why: String) -> Step {
    let until = look.now.checked_add(look.plan.pace.dwell).unwrap_or(look.now);
    let links =
        |node: &HostName| Some((node.clone(), bond::link_failures(look.observed.bonds.get(node)?.value()?)));
    let links = look.plan.nodes.iter().filter_map(links).collect();
    Step::go(Move::Dwell { until, links }, why)
}

/// A link came and went, and nothing else about its bond is as it was not: once it has failed no more for a whole
/// dwell, the bond as it is now is what later readings are held against. One that goes on failing is not noted, and
/// costs a try each time the gate meets it.
fn calmed(look: Look<'_>) -> Option<Step> {
    for node in &look.plan.nodes {
        let mut gathering = Gathering::new(look);
        let reading = gathering.take_host(Subject::Bond, node, look.observed.bonds.get(node));
        let Some(reading) = reading.filter(|reading| bond::only_flapped(look, node, reading)) else {
            continue;
        };
        match look.state.link_failures.get(node) {
            Some(then) if *then == bond::link_failures(reading) => {
                let verify = Move::VerifyBond { node: node.clone(), reading: reading.clone() };
                return Some(Step::go(verify, "its links have settled"));
            }
            Some(_) => {}
            // Nobody counted when it stopped.
            None => return Some(dwell(look, format!("links of {node} came and went"))),
        }
    }
    None
}

/// After the dwell. Nothing is sent before its end, not even to the lock.
pub(crate) fn after(look: Look<'_>, until: SystemTime, reason: &HaltReason) -> Next {
    if look.now < until {
        return Ok(Step::wait(Some(until), format!("letting things settle after: {reason}")));
    }
    spaced(look)?;
    let state = look.state;
    let overdue = state.io_suspended_until.is_some_and(|until| until <= look.now);
    let forward = state.abort.is_none() && !state.going_back && !overdue && worth_another_try(reason);
    // Who goes back and never held the cluster has nothing to give back but a lease: neither the hold of another plan nor
    // its lease is waited for.
    let wanted = state.phase >= Phase::AcquireLock && (forward || lease::is_held_for_us(look)?);
    if state.hold_placed || wanted {
        lease::ours(look)?;
    }
    settled(look)?;
    if let Some(step) = calmed(look) {
        return Ok(step);
    }
    let findings = unproved(look);
    match gravest(&findings) {
        None => {}
        Some(FindingKind::Stale) => {
            let why = Why::Unproved { gate: "consistency".to_owned(), findings };
            return Ok(Step { act: Act::Wait { until: None }, why });
        }
        // Neither direction ends without a reconnect, and none can be justified.
        Some(FindingKind::Negative | FindingKind::Unknown | FindingKind::Diverged) => {
            return Ok(escalate(look, HaltReason::NothingProvable(findings)));
        }
    }
    let tries = state.retries.saturating_add(1);
    let cap = look.plan.pace.retry_cap.saturating_add(state.retries_granted);
    if forward && tries < cap {
        return Ok(Step::go(Move::Retry, format!("try {} of {cap}", tries.saturating_add(1))));
    }
    if state.phase >= Phase::RestoreMigration {
        // Replication is back and machines are being let go: there is nothing to go back to.
        return Ok(escalate(look, reason.clone()));
    }
    let why = if forward { format!("all {cap} tries are spent") } else { reason.to_string() };
    Ok(Step::go(Move::RollBack(RollbackStage::Revert), why))
}

/// Whether the same phase could end otherwise another time.
fn worth_another_try(reason: &HaltReason) -> bool {
    match reason {
        HaltReason::Refused(_)
        | HaltReason::SuspensionExceeded
        | HaltReason::Aborted { .. }
        | HaltReason::Replied(Answer::RollBack) => false,
        HaltReason::Gate { .. }
        | HaltReason::LeaseLost(_)
        | HaltReason::OperationFailed { .. }
        | HaltReason::NotSeen { .. }
        | HaltReason::NotConnected(_)
        | HaltReason::OutcomeUnknown { .. }
        | HaltReason::Replied(Answer::LookAgain | Answer::RetryStep | Answer::HandOver)
        | HaltReason::NothingProvable(_)
        | HaltReason::World(_) => true,
    }
}

/// Why the copies are not proved, resource by resource: each must be identical and connected, or be such that it
/// may be reconnected. Empty when all are, or while nothing was taken apart.
pub(crate) fn unproved(look: Look<'_>) -> Vec<Finding> {
    if look.state.phase < Phase::DisconnectDrbd {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for resource in &look.plan.resources {
        let only = BTreeSet::from([resource.clone()]);
        let demand = Demand { wire: Wire::Together, own_suspension: look.state.io_suspended_until.is_some() };
        if sync::identical(look, &only, demand).passed() {
            continue;
        }
        if storage::apart(look, &only).passed() {
            findings.extend(sync::may_reconnect(look, &only).findings().iter().cloned());
        } else {
            findings.extend(on_the_wire(look, resource, &only));
        }
    }
    findings
}

/// A resource that is neither in sync nor apart. While it is being copied that is waited for; otherwise its copies
/// can be judged all the same, though the wire cannot.
fn on_the_wire(look: Look<'_>, resource: &ResourceName, only: &BTreeSet<ResourceName>) -> Vec<Finding> {
    if resume::is_being_copied(look, resource) {
        let what = format!("{resource} is being copied");
        return vec![Finding::new(FindingKind::Stale, Subject::Storage, what)];
    }
    sync::related(look, only).findings().to_vec()
}
