//! The hold: it has no duration, belongs to one plan, and is placed and lifted by the holder of the lease only.

use std::sync::Arc;

use executor_api::host::{LockError, PlanHold};

use crate::case::{CaseResult, ensure};
use crate::hosts::bench::{HostBench, plan};

pub(crate) async fn a_hold_outlives_its_lease(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    b.written(b.hands().lock.release(&lease)).await?;
    held(&b).await?;
    b.take("suite-b").await?;
    held(&b).await
}

pub(crate) async fn a_hold_keeps_other_plans_out(b: Arc<HostBench>) -> CaseResult {
    b.lead().await?;
    let lease = b.take("suite-b").await?;
    let placed = b.tried(b.hands().lock.place_hold(&lease, &other(&b))).await?;
    ensure!(
        matches!(placed, Err(LockError::OtherPlan { .. })),
        "a second plan's hold was told as {placed:?}"
    );
    let lifted = b.tried(b.hands().lock.lift_hold(&lease, &other(&b).plan)).await?;
    ensure!(lifted.is_err(), "a plan lifted the hold of another");
    held(&b).await
}

pub(crate) async fn only_the_holder_places_a_hold(b: Arc<HostBench>) -> CaseResult {
    let former = b.take("suite-a").await?;
    b.take("suite-b").await?;
    let placed = b.tried(b.hands().lock.place_hold(&former, &other(&b))).await?;
    ensure!(matches!(placed, Err(LockError::Moved { .. })), "a former holder's hold was told as {placed:?}");
    let there = b.truth().await.lock.hold;
    ensure!(there.is_none(), "a former holder placed a hold: {there:?}");
    Ok(())
}

pub(crate) async fn only_the_holder_lifts_a_hold(b: Arc<HostBench>) -> CaseResult {
    let former = b.lead().await?;
    b.take("suite-b").await?;
    let lifted = b.tried(b.hands().lock.lift_hold(&former, &b.plan())).await?;
    ensure!(
        matches!(lifted, Err(LockError::Moved { .. })),
        "lifting by a former holder was told as {lifted:?}"
    );
    held(&b).await
}

pub(crate) async fn a_hold_is_placed_and_lifted_once(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let again = PlanHold { plan: b.plan(), since: b.hands().timer.now() };
    b.written(b.hands().lock.place_hold(&lease, &again)).await?;
    held(&b).await?;
    for _ in 0..2 {
        b.written(b.hands().lock.lift_hold(&lease, &b.plan())).await?;
        let there = b.truth().await.lock.hold;
        ensure!(there.is_none(), "a hold was lifted and is {there:?}");
    }
    Ok(())
}

pub(crate) async fn a_hold_renews_nothing(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let there = b.truth().await.lock.lease;
    ensure!(there.as_ref() == Some(&lease), "placing a hold made {there:?} of {lease:?}");
    Ok(())
}

async fn held(b: &HostBench) -> CaseResult {
    let there = b.truth().await.lock.hold.map(|hold| hold.plan);
    ensure!(there == Some(b.plan()), "the cluster should be held for {} and is held for {there:?}", b.plan());
    Ok(())
}

fn other(b: &HostBench) -> PlanHold {
    PlanHold { plan: plan("suite-other"), since: b.hands().timer.now() }
}
