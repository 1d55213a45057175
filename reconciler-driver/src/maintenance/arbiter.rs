//! What the cluster reconciler is told while a plan owns the cluster: hands off. One arbiter for both: the hold goes in
//! as [`DriverInput::Hold`](crate::DriverInput::Hold) and comes back out as
//! [`DriverInput::Release`](crate::DriverInput::Release). Derived from the plan's record alone, so that whoever drives the
//! cluster can work it out again after a crash of either process.

use reconciler_core::maintenance::{BondFlipPlan, PlanState};
use reconciler_core::{Hold, HoldBy};

/// The hold that the slots on a plan's hosts must carry, or `None` when they need none (any more).
///
/// It begins before the lock is asked for, so that no node is replaced between the two, and lasts as long as the plan
/// may still touch anything or waits for a person.
pub fn hold_of(plan: &BondFlipPlan, state: &PlanState) -> Option<Hold> {
    use reconciler_core::maintenance::Phase;
    let begun = state.phase >= Phase::AcquireLock || state.hold_placed;
    if !begun || state.is_over() {
        return None;
    }
    let [one, two] = &plan.nodes;
    // Without the phase: a reason that changes is told, and the phase changes all the time.
    let reason = format!("plan {} works on {one} and {two}", plan.uid);
    Some(Hold { by: HoldBy::Maintenance, reason, since: state.created_at })
}
