//! The one next step of a plan. Reads the plan, its state and what was read just now; changes nothing.
//!
//! The order of questions is fixed: is it over; is something under way; have copies diverged; has I/O stood still
//! for too long; is the lock ours; is an outcome unsettled; only then the phase or the rung. One operation is out at
//! a time, because every step waits for the pending one.
//!
//! `forward` has the phases, `resume` the gated reconnect that both directions share, `ladder` what follows
//! a halt, `rollback` the way back, `lease` the lock, `deed` how operations are sent once.

mod deed;
mod forward;
mod ladder;
mod lease;
mod resume;
mod rollback;

use std::time::SystemTime;

use executor_api::host::{HostAction, HostName, HostOperation, VmAction, VmOperation};

use crate::maintenance::escalation::{escalate, frozen};
use crate::maintenance::gate::{Look, sync};
use crate::maintenance::observed::Observed;
use crate::maintenance::plan::BondFlipPlan;
use crate::maintenance::state::{Phase, PlanState, Recovery};
use crate::maintenance::step::{Act, Effect, HaltReason, Step, Why};
use crate::maintenance::verdict::{Finding, FindingKind, Proof, Subject, Verdict, gravest};

/// A step, or the step that has to be taken instead of going on.
pub(crate) type Next = Result<Step, Box<Step>>;

/// Decides.
pub fn advance(plan: &BondFlipPlan, state: &PlanState, observed: &Observed, now: SystemTime) -> Step {
    let look = Look { plan, state, observed, now };
    let step = next(look).unwrap_or_else(|instead| *instead);
    match (&state.recovery, step.act) {
        // The way back is not trusted more than the way forward: what would halt it is for a person.
        (Recovery::Rollback(_), Act::Halt(reason)) => escalate(look, reason),
        (_, act) => Step { act, why: step.why },
    }
}

fn next(look: Look<'_>) -> Next {
    let state = look.state;
    if look.plan.uid != state.plan {
        return Ok(Step::wait(None, format!("the state is that of plan {}", state.plan)));
    }
    if state.is_over() {
        return Ok(Step { act: Act::Over, why: Why::Plain(with_open_outcome(state.label(), state)) });
    }
    if let Some(pending) = &state.pending {
        let why = format!("{} pending: {}", pending.effect.id(), pending.effect);
        return Ok(Step::wait(Some(pending.deadline), why));
    }
    if state.recovery == Recovery::Escalated {
        // The question is closed by then: what is asked comes second.
        if state.handed_over {
            spaced(look)?;
            return hand_over(look);
        }
        if let Some(open) = &state.escalation {
            return Ok(frozen(look, open));
        }
    }
    let unreadable = divergence(look)?;
    overdue(look)?;
    if let Some(step) = unreadable {
        return Ok(step);
    }
    match &state.recovery {
        Recovery::Forward | Recovery::Retry | Recovery::Resumed => {
            // Once replication is back the shortest way out is the end of the plan.
            if let Some(person) = state.abort.as_ref().filter(|_| state.phase < Phase::RestoreMigration) {
                return Ok(Step::halt(HaltReason::Aborted { who: person.who.clone() }));
            }
            spaced(look)?;
            // Before the lock is wanted there is nothing to drive.
            if state.phase >= Phase::AcquireLock {
                lease::ours(look)?;
            }
            settled(look)?;
            fenced(look)?;
            forward::step(look)
        }
        Recovery::Halted(reason) => Ok(ladder::settle_down(look, reason)),
        Recovery::Dwell { until, reason } => ladder::after(look, *until, reason),
        Recovery::Rollback(part) => {
            spaced(look)?;
            if state.hold_placed {
                lease::ours(look)?;
            }
            settled(look)?;
            fenced(look)?;
            rollback::step(look, *part)
        }
        // Both are answered above; a state that holds anything else was not made here.
        Recovery::RevertedSafe | Recovery::Escalated => Ok(Step::wait(None, state.label())),
    }
}

/// What became of the last operation, where that is not known.
pub(crate) fn open_outcome(state: &PlanState) -> Option<String> {
    let operation = state.unsettled.as_ref()?;
    Some(format!("what became of {} ({operation}) is not known, and it may yet act", operation.id()))
}

/// The words, and behind them what became of the last operation, where that is not known.
fn with_open_outcome(words: String, state: &PlanState) -> String {
    match open_outcome(state) {
        Some(outcome) => format!("{words}; {outcome}"),
        None => words,
    }
}

/// A person has the cluster: only the lock is left to give up. An operation that may yet act is barred first, as often
/// as outcomes are tried for; whoever cannot be barred is told of by name.
fn hand_over(look: Look<'_>) -> Next {
    let state = look.state;
    let tries_left = state.settles < look.plan.pace.connect_attempts;
    if state.unsettled.is_some() && tries_left && !state.hold_lifted && lease::is_held_for_us(look)? {
        lease::in_hand(look)?;
        settled(look)?;
    }
    lease::give_up(look, &with_open_outcome("a person took over".to_owned(), state))
}

/// Copies that have diverged, or (while they are apart) storage that does not answer: for a person, in this pass.
/// A step where a reading is no ground to decide on.
fn divergence(look: Look<'_>) -> Result<Option<Step>, Box<Step>> {
    if !look.state.hold_placed || look.state.hold_lifted {
        return Ok(None);
    }
    let verdict = sync::not_diverged(look);
    let findings = verdict.findings();
    let for_a_person = match gravest(findings) {
        Some(FindingKind::Diverged) => true,
        Some(FindingKind::Unknown) => copies_apart(look.state),
        Some(FindingKind::Stale) if copies_apart(look.state) => {
            // A torn or old reading may hide that they have diverged: nothing is decided on it, it is read again.
            let (gate, findings) = ("divergence watch".to_owned(), findings.to_vec());
            let why = Why::Unproved { gate, findings };
            return Ok(Some(Step { act: Act::Wait { until: None }, why }));
        }
        Some(FindingKind::Stale | FindingKind::Negative) | None => false,
    };
    if for_a_person {
        return Err(Box::new(escalate(look, HaltReason::World(findings.to_vec()))));
    }
    Ok(None)
}

/// I/O stands still for no longer than the plan allows, whatever else can or cannot be read. On the forward path the
/// end of that time halts. What follows a halt may take as long again, with no new suspension in it; then a person is
/// asked, whose reply begins the time anew.
fn overdue(look: Look<'_>) -> Result<(), Box<Step>> {
    let Some(until) = look.state.io_suspended_until.filter(|until| *until <= look.now) else { return Ok(()) };
    let step = match look.state.recovery {
        Recovery::Forward | Recovery::Retry | Recovery::Resumed => Step::halt(HaltReason::SuspensionExceeded),
        Recovery::Halted(_) | Recovery::Dwell { .. } | Recovery::Rollback(_) => {
            let again = look.plan.io.suspend_for().and_then(|limit| until.checked_add(limit));
            if again.is_some_and(|again| look.now < again) {
                return Ok(());
            }
            escalate(look, HaltReason::SuspensionExceeded)
        }
        Recovery::RevertedSafe | Recovery::Escalated => return Ok(()),
    };
    Err(Box::new(step))
}

/// Copies are or may be apart: what cannot be read about them cannot be waited for.
fn copies_apart(state: &PlanState) -> bool {
    (Phase::DisconnectDrbd..=Phase::ResumeDrbd).contains(&state.phase)
}

/// Tries keep their distance: those of the lock, of settling, and of a reconnect on the way back.
fn spaced(look: Look<'_>) -> Result<(), Box<Step>> {
    match look.state.not_before.filter(|at| *at > look.now) {
        Some(at) => Err(Box::new(Step::wait(Some(at), "keeping the space between tries"))),
        None => Ok(()),
    }
}

/// An operation whose outcome was lost is settled before anything else is sent.
fn settled(look: Look<'_>) -> Result<(), Box<Step>> {
    let state = look.state;
    let Some(operation) = &state.unsettled else { return Ok(()) };
    if state.settles >= look.plan.pace.connect_attempts {
        let reason = HaltReason::OutcomeUnknown { deed: operation.to_string() };
        return Err(Box::new(escalate(look, reason)));
    }
    let Some(lease) = &state.lease else {
        return Err(Box::new(Step::wait(None, "an outcome is to be settled, and the lease is not ours")));
    };
    let effect =
        Effect::Settle { id: state.next_id(), operation: Box::new(operation.clone()), fence: lease.fence };
    Err(Box::new(Step::send(effect, format!("outcome of {} unknown", operation.id()))))
}

/// Every agent has met the fence of the lease in hand before the first operation under it. An agent that has not
/// would still obey a former holder, and two holders' changes would mingle.
fn fenced(look: Look<'_>) -> Result<(), Box<Step>> {
    let state = look.state;
    let Some(lease) = &state.lease else { return Ok(()) };
    if !state.hold_placed || state.hold_lifted || state.phase < Phase::SuspendMigration {
        return Ok(());
    }
    let (id, plan, fence) = (state.next_id(), look.plan.uid.clone(), lease.fence);
    let host = |node: &HostName| {
        // Never sent, and never to be: settling bars it. Its number is that of the settling itself.
        let action = HostAction::DrainSatellite;
        Effect::Host(HostOperation { id, plan: plan.clone(), node: node.clone(), fence, action })
    };
    let mut barred: Vec<_> = look.plan.nodes.iter().map(host).collect();
    let machines = look.observed.vms.as_ref().and_then(|vms| vms.value());
    if let Some(vm) = machines.and_then(|machines| machines.vms.keys().next()) {
        let action = VmAction::Pin;
        barred.push(Effect::Vm(VmOperation { id, plan: plan.clone(), vm: vm.clone(), fence, action }));
    }
    for operation in barred {
        let Some(agent) = operation.agent().filter(|agent| !state.fenced.contains(agent)) else { continue };
        if state.settles >= look.plan.pace.connect_attempts {
            let deed = format!("fence off {agent}");
            let message = "it never answered; see that it runs and can be reached".to_owned();
            return Err(Box::new(Step::halt(HaltReason::OperationFailed { deed, message })));
        }
        let effect = Effect::Settle { id, operation: Box::new(operation), fence };
        return Err(Box::new(Step::send(effect, "before the first operation under this lease")));
    }
    Ok(())
}

/// What a "no" leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnNo {
    /// Freeze.
    Halt,
    /// Wait, for as long as it takes.
    Defer,
}

/// The proof of a gate, or the step that its "no" leads to.
pub(crate) fn require(look: Look<'_>, gate: &str, verdict: Verdict, on_no: OnNo) -> Result<Proof, Box<Step>> {
    let findings = match verdict {
        Verdict::Pass(proof) => return Ok(proof),
        Verdict::No(findings) => findings,
    };
    let unproved = |findings: Vec<Finding>| Step {
        act: Act::Wait { until: None },
        why: Why::Unproved { gate: gate.to_owned(), findings },
    };
    let storage_unknown = findings
        .iter()
        .any(|finding| finding.kind == FindingKind::Unknown && finding.subject == Subject::Storage);
    let step = match gravest(&findings) {
        Some(FindingKind::Diverged) => escalate(look, HaltReason::World(findings)),
        Some(FindingKind::Unknown) if storage_unknown && copies_apart(look.state) => {
            escalate(look, HaltReason::World(findings))
        }
        Some(FindingKind::Stale) => unproved(findings),
        Some(FindingKind::Unknown | FindingKind::Negative) | None => match on_no {
            OnNo::Halt => Step::halt(HaltReason::Gate { gate: gate.to_owned(), findings }),
            OnNo::Defer => unproved(findings),
        },
    };
    Err(Box::new(step))
}
