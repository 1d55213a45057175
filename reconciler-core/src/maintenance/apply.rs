//! Applies one step to the state, or refuses it as stale. The driver stores the result before anything is sent;
//! an effect that is not in the stored state was never sent.

use std::time::SystemTime;

use executor_api::host::{FenceValue, HostAction, HostOperationId};

use crate::maintenance::escalation::{Answer, Reply};
use crate::maintenance::plan::BondFlipPlan;
use crate::maintenance::state::{
    AgentName, PendingOperation, Person, Phase, PlanState, Recorded, Recovery, RollbackStage,
};
use crate::maintenance::step::{Act, Effect, HaltReason, Move, Step};

/// What a step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Nothing: it is a wait, or the plan is over.
    Nothing,
    /// The record changed.
    Changed,
    /// The operation is recorded and may be sent once that record is durable.
    Send {
        /// What to send.
        effect: Box<Effect>,
        /// When to give it up.
        deadline: SystemTime,
    },
}

/// Why a step no longer fits. The driver discards it and looks again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepRefused {
    /// Another operation is under way.
    #[error("{id} cannot be recorded: {pending} is pending")]
    Pending {
        /// The operation of the step.
        id: HostOperationId,
        /// The one under way.
        pending: HostOperationId,
    },
    /// The operation's number is not the next one.
    #[error("{id} is not the next operation, which is {next}")]
    OtherSequence {
        /// The operation of the step.
        id: HostOperationId,
        /// The one that is next.
        next: HostOperationId,
    },
    /// A frozen plan takes nothing but a reply.
    #[error("the plan is frozen: only a reply is taken")]
    Frozen,
    /// The phase does not follow.
    #[error("{to} does not follow {from}")]
    OutOfOrder {
        /// Where the plan is.
        from: Phase,
        /// Where the step leads.
        to: Phase,
    },
    /// An operation under a fence that is not that of the recorded lease.
    #[error("{id} carries {fence}, which is not that of the lease in hand")]
    OtherFence {
        /// The operation of the step.
        id: HostOperationId,
        /// Its fence.
        fence: FenceValue,
    },
    /// An operation that needs the resume gates, without the stamp that stands.
    #[error("{id} needs the stamp of the resume gates, and carries another or none that stands")]
    Ungated {
        /// The operation of the step.
        id: HostOperationId,
    },
    /// An operation to an agent that may still obey a former holder of the lease.
    #[error("{id} is for {agent}, which has not met the fence of the lease in hand")]
    Unfenced {
        /// The operation of the step.
        id: HostOperationId,
        /// Who would carry it out.
        agent: AgentName,
    },
    /// The numbers are used up.
    #[error("operation numbers are used up; file a new plan")]
    Exhausted,
}

/// Applies one step. On an error nothing has changed.
pub fn apply(
    plan: &BondFlipPlan,
    state: &mut PlanState,
    step: &Step,
    now: SystemTime,
) -> Result<Applied, StepRefused> {
    match &step.act {
        Act::Wait { .. } | Act::Over => Ok(Applied::Nothing),
        Act::Dispatch(effect) => record(plan, state, effect, now),
        Act::Halt(reason) => {
            thawed(state)?;
            halt(plan, state, reason.clone(), now);
            Ok(Applied::Changed)
        }
        Act::Escalate(escalation) => {
            state.recovery = Recovery::Escalated;
            state.escalations = escalation.sequence;
            state.escalation = Some(escalation.clone());
            void_gates(state);
            Ok(Applied::Changed)
        }
        Act::Move(step) => {
            change(plan, state, step, now)?;
            Ok(Applied::Changed)
        }
    }
}

/// A frozen plan changes nothing, unless a person has taken the cluster over and the lock is to be given up.
fn thawed(state: &PlanState) -> Result<(), StepRefused> {
    if state.recovery == Recovery::Escalated && !state.handed_over {
        return Err(StepRefused::Frozen);
    }
    Ok(())
}

fn halt(plan: &BondFlipPlan, state: &mut PlanState, reason: HaltReason, now: SystemTime) {
    let lost = matches!(reason, HaltReason::LeaseLost(_));
    if state.handed_over {
        // The cluster is a person's: nothing leads back to driving it, and the lock is given up at another try.
        state.not_before = now.checked_add(plan.pace.dwell);
    } else {
        state.recovery = Recovery::Halted(reason);
    }
    // What was proved before a halt is not proved after it.
    void_gates(state);
    if state.lease_lost.take().is_some() || lost {
        state.lease = None;
    }
    state.fresh_from = now;
}

/// A try begins: nothing of an earlier one counts.
fn begin_try(plan: &BondFlipPlan, state: &mut PlanState, now: SystemTime) {
    state.ended.clear();
    state.settles = 0;
    state.connect_deadline = None;
    state.fresh_from = now;
    state.settle_until = now.checked_add(plan.pace.settle).unwrap_or(now);
}

fn change(
    plan: &BondFlipPlan,
    state: &mut PlanState,
    step: &Move,
    now: SystemTime,
) -> Result<(), StepRefused> {
    if let Move::TakeReply { reply, by } = step {
        take_reply(plan, state, reply, by, now);
        return Ok(());
    }
    thawed(state)?;
    match step {
        Move::Enter { phase, proof } => {
            follows(state.phase, *phase)?;
            if *phase == Phase::ReleaseLock {
                state.restore_proof.clone_from(proof);
            }
            if *phase == Phase::DrainSatellite {
                // All of them are seen apart, whoever saw to it: each is the plan's to bring together again.
                state.disconnected.extend(plan.resources.iter().cloned());
            }
            state.phase = *phase;
            if state.recovery == Recovery::Retry {
                state.recovery = Recovery::Resumed;
            }
            begin_try(plan, state, now);
        }
        Move::AdoptLease(lease) => {
            // The stamp and the probes vouch under the lease they were made under, and under no other.
            if state.lease.as_ref().is_none_or(|known| known.fence != lease.fence) {
                void_gates(state);
                state.ended.retain(|ended| !is_of_a_round(&ended.effect));
                state.fenced.clear();
            }
            state.lease = Some(lease.clone());
            state.lease_lost = None;
            state.fresh_from = now;
        }
        Move::NoteHold => state.hold_placed = true,
        Move::NoteHoldLifted => state.hold_lifted = true,
        Move::NoteIoResumed => state.io_suspended_until = None,
        Move::KeepReleaseProof(proof) => state.release_proof = Some(proof.clone()),
        Move::NoteLeaseReleased => state.lease = None,
        Move::SaveTargets { targets, originals, readings } => {
            // Recorded once: what is read later is no longer what it was before.
            if state.targets.is_none() {
                state.targets = Some(targets.clone());
                state.bond_originals.clone_from(originals);
                state.verified_bonds.clone_from(readings);
            }
        }
        Move::SaveVms(vms) => {
            for (name, original) in vms {
                state.vm_originals.entry(name.clone()).or_insert_with(|| original.clone());
            }
        }
        Move::SavePlacements(places) => {
            for (name, place) in places {
                if let Some(original) = state.vm_originals.get_mut(name) {
                    original.placement.clone_from(place);
                }
            }
            state.placed = true;
        }
        Move::VerifyBond { node, reading } => {
            state.verified_bonds.insert(node.clone(), reading.clone());
            // Stamp and probes vouch for the bonds as they were.
            void_gates(state);
        }
        Move::StampGates { token, pre_connect } => {
            state.token = Some(token.clone());
            // What the gates let meet again was seen apart, on the way back also where somebody else left it so.
            state.disconnected.extend(pre_connect.keys().cloned());
            state.pre_connect.extend(pre_connect.iter().map(|(name, before)| (name.clone(), before.clone())));
            state.connect_deadline = None;
            state.ended.retain(|ended| !is_of_a_round(&ended.effect));
        }
        Move::Dwell { until, links } => {
            if let Recovery::Halted(reason) | Recovery::Dwell { reason, .. } = &state.recovery {
                state.recovery = Recovery::Dwell { until: *until, reason: reason.clone() };
                state.link_failures.clone_from(links);
            }
        }
        Move::Retry => {
            state.retries = state.retries.saturating_add(1);
            state.recovery = Recovery::Retry;
            if state.phase == Phase::SuspendMigration {
                // Nothing on a host has changed yet: where machines run is read anew.
                state.placed = false;
            }
            void_gates(state);
            begin_try(plan, state, now);
        }
        Move::RollBack(part) => {
            if *part == RollbackStage::Revert {
                state.connect_rounds = 0;
                void_gates(state);
            }
            state.recovery = Recovery::Rollback(*part);
            state.going_back = true;
            begin_try(plan, state, now);
        }
        Move::ReconnectLater { at } => {
            state.connect_rounds = state.connect_rounds.saturating_add(1);
            state.not_before = Some(*at);
            void_gates(state);
            begin_try(plan, state, now);
        }
        Move::RevertedSafe => state.recovery = Recovery::RevertedSafe,
        Move::TakeReply { .. } => {}
    }
    Ok(())
}

fn void_gates(state: &mut PlanState) {
    state.token = None;
    state.probes.clear();
    state.probed_at = None;
}

/// Whether a deed belongs to one round of gates and connects. A new lease and a new stamp begin another; changes
/// of a bond stay counted, so that no restart gives them a try for nothing.
fn is_of_a_round(effect: &Effect) -> bool {
    let Effect::Host(operation) = effect else { return false };
    match operation.action {
        HostAction::ProbeLink { .. }
        | HostAction::ConnectResource { .. }
        | HostAction::DisconnectResource { .. } => true,
        HostAction::SuspendIo { .. }
        | HostAction::ResumeIo { .. }
        | HostAction::DrainSatellite
        | HostAction::UndrainSatellite { .. }
        | HostAction::SetBondMode { .. } => false,
    }
}

/// Phases follow one another and none is skipped.
fn follows(from: Phase, to: Phase) -> Result<(), StepRefused> {
    let next = Phase::ALL.iter().skip_while(|phase| **phase != from).nth(1);
    if next == Some(&to) { Ok(()) } else { Err(StepRefused::OutOfOrder { from, to }) }
}

fn take_reply(plan: &BondFlipPlan, state: &mut PlanState, reply: &Reply, by: &Person, now: SystemTime) {
    let sequence = state.escalations;
    state.replies.push(Recorded { sequence, answer: reply.answer, by: by.clone() });
    state.escalation = None;
    // The lease was not renewed while the plan was frozen: it is read and taken anew.
    state.lease = None;
    state.lease_lost = None;
    state.settles = 0;
    state.connect_rounds = 0;
    state.fresh_from = now;
    state.link_failures.clear();
    if state.io_suspended_until.is_some() {
        // Whoever replies lets I/O stand still for as long again, and no longer.
        state.io_suspended_until =
            plan.io.suspend_for().and_then(|limit| now.checked_add(limit)).or(Some(now));
    }
    let replied = HaltReason::Replied(reply.answer);
    match reply.answer {
        Answer::LookAgain => state.recovery = Recovery::Halted(replied),
        Answer::RetryStep => {
            state.going_back = false;
            state.retries_granted = state.retries_granted.saturating_add(1);
            state.recovery = Recovery::Dwell { until: now, reason: replied };
        }
        Answer::RollBack => {
            state.going_back = true;
            state.recovery = Recovery::Dwell { until: now, reason: replied };
        }
        Answer::HandOver => state.handed_over = true,
    }
}

fn record(
    plan: &BondFlipPlan,
    state: &mut PlanState,
    effect: &Effect,
    now: SystemTime,
) -> Result<Applied, StepRefused> {
    thawed(state)?;
    if let Some(pending) = &state.pending {
        return Err(StepRefused::Pending { id: effect.id(), pending: pending.effect.id() });
    }
    if effect.id() != state.next_id() {
        return Err(StepRefused::OtherSequence { id: effect.id(), next: state.next_id() });
    }
    vouched(state, effect)?;
    state.next_operation = state.next_operation.checked_add(1).ok_or(StepRefused::Exhausted)?;
    note_intent(plan, state, effect, now);
    let deadline = now.checked_add(plan.pace.operation_timeout).unwrap_or(now);
    state.pending = Some(PendingOperation { effect: effect.clone(), deadline });
    Ok(Applied::Send { effect: Box::new(effect.clone()), deadline })
}

/// The last look before an operation is recorded: the lease in hand is the one it names, its agent has met that
/// lease's fence, and what needs the resume gates carries the stamp that stands. Decisions see to both; this is where a wrong one stops.
fn vouched(state: &PlanState, effect: &Effect) -> Result<(), StepRefused> {
    let (fence, gates) = match effect {
        Effect::Host(operation) => (operation.fence, operation.action.gates()),
        Effect::Vm(operation) => (operation.fence, None),
        Effect::Settle { fence, .. } => (*fence, None),
        Effect::Lock { .. } => return Ok(()),
    };
    let id = effect.id();
    if state.lease.as_ref().is_none_or(|lease| lease.fence != fence) {
        return Err(StepRefused::OtherFence { id, fence });
    }
    if gates.is_some_and(|gates| state.token.as_ref() != Some(gates)) {
        return Err(StepRefused::Ungated { id });
    }
    let settles = matches!(effect, Effect::Settle { .. });
    if let Some(agent) = effect.agent().filter(|agent| !settles && !state.fenced.contains(agent)) {
        return Err(StepRefused::Unfenced { id, agent });
    }
    Ok(())
}

/// What is about to be done is noted before it is done: from now on it may have happened.
fn note_intent(plan: &BondFlipPlan, state: &mut PlanState, effect: &Effect, now: SystemTime) {
    let later = |wait| now.checked_add(wait).unwrap_or(now);
    let Effect::Host(operation) = effect else {
        if matches!(effect, Effect::Settle { .. }) && !effect.raises_fence() {
            state.settles = state.settles.saturating_add(1);
        }
        return;
    };
    match &operation.action {
        HostAction::SuspendIo { limit, .. } => {
            // The first suspension's time counts for all.
            let until = later(*limit);
            state.io_suspended_until = Some(state.io_suspended_until.map_or(until, |first| first.min(until)));
        }
        HostAction::DisconnectResource { resource, .. } => {
            state.disconnected.insert(resource.clone());
            state.reconnected.remove(resource);
        }
        HostAction::ConnectResource { resource, .. } => {
            state.reconnected.insert(resource.clone());
            state.connect_deadline = Some(later(plan.pace.connect_within));
        }
        HostAction::DrainSatellite => {
            state.drained.insert(operation.node.clone());
        }
        HostAction::UndrainSatellite { .. } => {
            state.drained.remove(&operation.node);
        }
        HostAction::SetBondMode { .. } => {
            state.touched_bonds.insert(operation.node.clone());
            void_gates(state);
        }
        HostAction::ResumeIo { .. } | HostAction::ProbeLink { .. } => {}
    }
}
