//! What follows a halt: dwell, then a retry while tries are left and the copies are proved, then the way back,
//! then a person. Whatever cannot be proved in either direction goes to a person at once.

use std::collections::BTreeSet;
use std::time::SystemTime;

use executor_api::host::ResourceName;

use crate::maintenance::advance::{Next, lease, resume, settled, spaced};
use crate::maintenance::escalation::{Answer, escalate};
use crate::maintenance::gate::sync::{Demand, Wire};
use crate::maintenance::gate::{Look, storage, sync};
use crate::maintenance::state::{Phase, RollbackStage};
use crate::maintenance::step::{Act, HaltReason, Move, Step, Why};
use crate::maintenance::verdict::{Finding, FindingKind, Subject, gravest};

/// A halted plan lets things settle.
pub(crate) fn settle_down(look: Look<'_>, reason: &HaltReason) -> Step {
    let until = look.now.checked_add(look.plan.pace.dwell).unwrap_or(look.now);
    Step::go(Move::Dwell { until }, reason.to_string())
}

/// After the dwell. Nothing is sent before its end, not even to the lock.
pub(crate) fn after(look: Look<'_>, until: SystemTime, reason: &HaltReason) -> Next {
    if look.now < until {
        return Ok(Step::wait(Some(until), format!("letting things settle after: {reason}")));
    }
    spaced(look)?;
    let state = look.state;
    if state.hold_placed || state.phase >= Phase::AcquireLock {
        lease::ours(look)?;
    }
    settled(look)?;
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
    let forward = state.abort.is_none() && worth_another_try(reason);
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
