//! The invariants of a plan's state, as code. Called by tests and by whatever searches or simulates; an empty answer
//! is the only good one.

use crate::maintenance::plan::BondFlipPlan;
use crate::maintenance::state::{Phase, PlanState, Recovery};
use crate::maintenance::step::Effect;

/// Everything in the state that must never be.
pub fn violations(plan: &BondFlipPlan, state: &PlanState) -> Vec<&'static str> {
    let past = |phase: Phase| state.phase > phase;
    let flipped =
        |which: usize| state.verified_bonds.get(&plan.nodes[which]).is_some_and(|bond| bond.mode == plan.to);
    let forward = matches!(state.recovery, Recovery::Forward | Recovery::Retry | Recovery::Resumed);
    let cap = plan.pace.retry_cap.saturating_add(state.retries_granted);
    let pending_fits = state
        .pending
        .as_ref()
        .is_none_or(|pending| pending.effect.id().0.checked_add(1) == Some(state.next_operation));
    let agent_fits = state.pending.as_ref().is_none_or(|pending| match &pending.effect {
        Effect::Host(_) | Effect::Vm(_) => {
            pending.effect.agent().is_some_and(|agent| state.fenced.contains(&agent))
        }
        Effect::Settle { .. } | Effect::Lock { .. } => true,
    });
    let token_fits = state.token.as_ref().is_none_or(|token| {
        token.plan == state.plan && state.lease.as_ref().is_none_or(|lease| lease.fence == token.fence)
    });
    let over = matches!(state.recovery, Recovery::RevertedSafe) || state.phase == Phase::Complete;
    let rules = [
        (state.plan == plan.uid, "the state is that of another plan"),
        (pending_fits, "the pending operation is not the newest"),
        (agent_fits, "an operation is out to an agent that may still obey a former holder"),
        (token_fits, "the stamp of the resume gates names another plan or lease"),
        (state.retries < cap.max(1), "more tries than the cap allows"),
        (state.reconnected.is_subset(&state.disconnected), "reconnected what was never taken apart"),
        (!past(Phase::AcquireLock) || state.hold_placed, "past the lock without a hold"),
        (
            !past(Phase::AcquireLock) || state.targets.as_ref() == Some(&plan.nodes),
            "the targets have changed",
        ),
        (!past(Phase::SuspendMigration) || state.placed, "past the pins without recorded places"),
        (
            state.touched_bonds.is_empty() || state.bond_originals.len() == 2,
            "a bond was changed before it was saved",
        ),
        (
            !(forward && state.phase == Phase::FlipNode2) || flipped(0),
            "the second flip before the first is verified",
        ),
        (
            !(forward && past(Phase::FlipNode2)) || (flipped(0) && flipped(1)),
            "past the flips without both verified",
        ),
        (!(forward && state.going_back), "forward again from the way back"),
        (
            state.phase != Phase::ReleaseLock || state.restore_proof.is_some(),
            "machines let go without a proof",
        ),
        (
            state.phase != Phase::Complete || state.release_proof.is_some(),
            "complete without the second proof",
        ),
        (!over || state.pending.is_none(), "over with an operation pending"),
        (!over || !state.hold_placed || state.hold_lifted, "over with the cluster held"),
        (!state.handed_over || state.recovery == Recovery::Escalated, "driven on after a person took over"),
        (
            state.recovery != Recovery::Escalated || state.handed_over || state.escalation.is_some(),
            "frozen without a question",
        ),
    ];
    rules.into_iter().filter(|(holds, _)| !holds).map(|(_, what)| what).collect()
}
