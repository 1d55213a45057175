//! What no step may be, whoever decided it: the rules that only a decision can break, named as they are everywhere
//! (M0 to M7 are the plan's invariants, R1 to R11 those of its recovery).

use std::collections::BTreeSet;

use executor_api::Timer as _;
use executor_api::host::{Evidence, HostAction, Source, Takeover};
use executor_host_fake::{Breach, BreachKind};
use reconciler_core::maintenance::gate::Look;
use reconciler_core::maintenance::gate::sync::{self, Demand};
use reconciler_core::maintenance::{
    Act, Effect, FindingKind, LockAction, Move as Change, Observed, Phase, PlanState, Proof, Recovery, Step,
};

use crate::model::Model;

impl Model {
    /// Judges a step by the record it is to change and by the truth.
    pub(crate) fn judge(&self, which: usize, step: &Step) -> Result<(), String> {
        self.judge_ladder(step)?;
        match &step.act {
            Act::Dispatch(effect) => self.judge_effect(which, effect),
            Act::Move(change) => self.judge_change(change),
            Act::Wait { .. } | Act::Halt(_) | Act::Escalate(_) | Act::Over => Ok(()),
        }
    }

    fn judge_ladder(&self, step: &Step) -> Result<(), String> {
        let state = &self.state;
        let still = matches!(step.act, Act::Wait { .. } | Act::Escalate(_));
        match &state.recovery {
            Recovery::Escalated if !state.handed_over && !still => {
                return Err(format!("R6: a frozen plan does: {step}"));
            }
            Recovery::Halted(_) if !still && !matches!(step.act, Act::Move(Change::Dwell { .. })) => {
                return Err(format!("R1: a halted plan does: {step}"));
            }
            Recovery::Dwell { until, .. } if self.now() < *until && !still => {
                return Err(format!("R2: before the end of its dwell a plan does: {step}"));
            }
            _ => {}
        }
        let watched = state.hold_placed && !state.hold_lifted && state.pending.is_none();
        if watched && state.recovery != Recovery::Escalated && !matches!(step.act, Act::Escalate(_)) {
            let observed = self.truth();
            let verdict = sync::not_diverged(self.look(&observed));
            if verdict.findings().iter().any(|finding| finding.kind == FindingKind::Diverged) {
                return Err(format!("R5: copies have diverged, and a plan does: {step}"));
            }
        }
        Ok(())
    }

    fn judge_effect(&self, which: usize, effect: &Effect) -> Result<(), String> {
        let state = &self.state;
        let holds = self.world.lock().lease.is_some_and(|lease| lease.holder == self.me(which));
        match effect {
            Effect::Host(_) | Effect::Vm(_) if !holds => {
                return Err(format!("M4: not the holder of the lease, and sends: {effect}"));
            }
            Effect::Lock { action: LockAction::LiftHold, .. } => {
                let touched = !state.vm_originals.is_empty() && !state.handed_over;
                if touched && !self.world.is_in_sync() {
                    return Err("R8: lets go of the cluster over a single whole copy".to_owned());
                }
            }
            Effect::Host(_) | Effect::Vm(_) | Effect::Settle { .. } | Effect::Lock { .. } => {}
        }
        let Effect::Host(operation) = effect else { return Ok(()) };
        match &operation.action {
            HostAction::SetBondMode { mode, .. } => {
                let back = matches!(state.recovery, Recovery::Rollback(_));
                let wanted = if back { &self.plan.from } else { &self.plan.to };
                if mode != wanted {
                    return Err(format!("R4: {} does: {effect}", state.label()));
                }
            }
            HostAction::ConnectResource { resource, gates, .. } => {
                let age = self.now().duration_since(gates.resume_gates_passed_at).unwrap_or_default();
                if age > self.plan.pace.gate_max_age {
                    return Err(format!("M2: under a stamp that is {age:?} old: {effect}"));
                }
                let observed = self.truth();
                let verdict = sync::may_reconnect(self.look(&observed), &BTreeSet::from([resource.clone()]));
                if !state.reconnected.contains(resource) && !verdict.passed() {
                    return Err(format!("M7: {effect}, though {:?}", verdict.findings().first()));
                }
            }
            HostAction::SuspendIo { .. }
            | HostAction::ResumeIo { .. }
            | HostAction::DisconnectResource { .. }
            | HostAction::DrainSatellite
            | HostAction::UndrainSatellite { .. }
            | HostAction::ProbeLink { .. } => {}
        }
        Ok(())
    }

    fn judge_change(&self, change: &Change) -> Result<(), String> {
        match change {
            Change::VerifyBond { node, reading } => {
                let there = self.world.bond(node);
                let same =
                    there.is_some_and(|there| there.mode == reading.mode && there.members == reading.members);
                if !same {
                    return Err(format!(
                        "R11: notes the bond of {node} as {}, which it is not",
                        reading.mode
                    ));
                }
            }
            Change::Enter { phase: Phase::RestoreMigration | Phase::ReleaseLock, .. } => {
                let observed = self.truth();
                let verdict = sync::identical(self.look(&observed), &self.plan.resources, Demand::FINISH);
                if !verdict.passed() {
                    return Err(format!("M6: goes on, though {:?}", verdict.findings().first()));
                }
            }
            Change::StampGates { .. } => {
                let probed = self.state.probed_at.and_then(|at| self.now().duration_since(at).ok());
                if probed.is_none_or(|age| age > self.plan.pace.gate_max_age) {
                    return Err(format!("M2: stamps the gates over a link that was probed {probed:?} ago"));
                }
            }
            Change::Enter { phase: Phase::Complete, .. } if !two_readings(&self.state) => {
                return Err("M5: completes on one sync gate".to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    /// What both hosts would say of storage now.
    fn truth(&self) -> Observed {
        let mut observed = Observed::nothing(self.me(0), Takeover::Free);
        for node in &self.plan.nodes {
            let source = Source::Host(node.clone());
            let reading = match self.world.storage(node) {
                Some(storage) => Evidence::seen(source, self.timer.now(), storage),
                None => Evidence::unknown(source, self.timer.now(), "the host does not answer"),
            };
            observed.storage.insert(node.clone(), reading);
        }
        observed
    }

    fn look<'a>(&'a self, observed: &'a Observed) -> Look<'a> {
        Look { plan: &self.plan, state: &self.state, observed, now: self.now() }
    }
}

/// Both gates before the end were passed, the second on readings of its own.
fn two_readings(state: &PlanState) -> bool {
    let first = state.restore_proof.as_ref().and_then(Proof::newest);
    let second = state.release_proof.as_ref().and_then(|proof| proof.read.iter().map(|(_, at)| *at).min());
    first.is_some() && second.is_some() && first < second
}

/// The rule that a breach of the world's is one of.
pub(crate) fn breach(breach: &Breach) -> String {
    let rule = match breach.kind {
        BreachKind::DataDestroyed => "M0",
        BreachKind::TwoBondsInTransition | BreachKind::OperationsOverlap => "M1",
        BreachKind::ReconnectOverMarginalLink | BreachKind::ReconnectWithoutGates => "M2",
        BreachKind::UnpinnedDuringHostChange | BreachKind::PinnedVmEvicted => "M3",
        BreachKind::FenceNeverGranted
        | BreachKind::HoldersInterleave
        | BreachKind::WithoutHold
        | BreachKind::TakenWhileAlive => "M4",
        BreachKind::RestoredTooEarly => "M5",
        BreachKind::VmOnUnverifiedCopy => "M6",
        BreachKind::FlippedWhileConnected
        | BreachKind::FlippedUndrained
        | BreachKind::ReconnectDiverged
        | BreachKind::ReconnectUnproved => "M7",
    };
    format!("{rule}: {breach}")
}

/// The rule that a violation of the record's is one of.
pub(crate) fn violation(what: &str) -> String {
    let rule = match what {
        "an operation is out to an agent that may still obey a former holder"
        | "past the lock without a hold"
        | "over with the cluster held" => "M4",
        "the stamp of the resume gates names another plan or lease" => "R10",
        "more tries than the cap allows" => "R3",
        "reconnected what was never taken apart" => "M7",
        "past the pins without recorded places" => "M3",
        "a bond was changed before it was saved" | "forward again from the way back" => "R4",
        "machines let go without a proof" | "complete without the second proof" => "M5",
        "over with an operation pending" | "driven on after a person took over" => "R6",
        "frozen without a question" => "R7",
        // The pending operation, the targets, and the order of the flips.
        _ => "M1",
    };
    format!("{rule}: {what}")
}
