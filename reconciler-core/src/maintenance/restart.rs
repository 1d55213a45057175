//! Takes a stored state up in another process, whose clock may show less than the one that wrote it. No wait is longer
//! than its configured maximum from now on; what was read or stamped in what is now the future vouches for nothing.
//! Counters stay as they are. A record of an earlier program that did not note the way back is read by what shows it.

use std::time::SystemTime;

use crate::maintenance::escalation::Answer;
use crate::maintenance::plan::BondFlipPlan;
use crate::maintenance::state::{PlanState, Recovery};
use crate::maintenance::verdict::Proof;

/// Brings the stored times in line with the clock of a new process.
pub fn restarted(plan: &BondFlipPlan, state: &mut PlanState, now: SystemTime) {
    // Only the way back asks a question that offers the way back and no other try.
    let asked_there = state.escalation.as_ref().is_some_and(|open| {
        open.answers.contains(&Answer::RollBack) && !open.answers.contains(&Answer::RetryStep)
    });
    state.going_back |= asked_there || matches!(state.recovery, Recovery::Rollback(_));
    let pace = &plan.pace;
    let within = |at: SystemTime, longest| now.checked_add(longest).map_or(at, |last| at.min(last));
    // Nothing that another process read counts.
    state.fresh_from = now;
    state.settle_until = within(state.settle_until, pace.settle);
    state.not_before = state.not_before.map(|at| within(at, pace.dwell));
    state.connect_deadline = state.connect_deadline.map(|at| within(at, pace.connect_within));
    let suspended = state.io_suspended_until;
    state.io_suspended_until =
        suspended.map(|at| plan.io.suspend_for().map_or(at, |longest| within(at, longest)));
    if let Some(pending) = &mut state.pending {
        pending.deadline = within(pending.deadline, pace.operation_timeout);
    }
    if let Recovery::Dwell { until, .. } = &mut state.recovery {
        *until = within(*until, pace.dwell);
    }
    state.token.take_if(|token| token.resume_gates_passed_at > now);
    if state.probed_at.take_if(|at| *at > now).is_some() {
        state.probes.clear();
    }
    state.unsettled_from = state.unsettled_from.map(|at| at.min(now));
    // The second gate needs readings that are newer than the first one's, which are at least as old as this start.
    let proofs = [&mut state.restore_proof, &mut state.release_proof];
    for Proof { read, .. } in proofs.into_iter().flatten() {
        for (_, at) in read {
            *at = now.min(*at);
        }
    }
    if state.created_at > now {
        // Since when storage events count cannot be told any more. Once copies may have come apart all of them do.
        state.created_at = if state.hold_placed { SystemTime::UNIX_EPOCH } else { now };
    }
}
