//! Settling: an outcome that was lost is made certain, once and for ever, and nothing else is changed.

use std::sync::Arc;
use std::time::Duration;

use executor_api::host::{
    BondMode, EvictionSetting, HostAction, HostErrorKind, HostReport, Settled, VmAction,
};

use crate::case::{CaseResult, ensure};
use crate::hosts::bench::HostBench;
use crate::hosts::harness::HostTrouble;

pub(crate) async fn what_was_done_is_said_to_be_done(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    let drain = b.op(&lease, &one, HostAction::DrainSatellite);
    b.inject(HostTrouble::LoseAnswer(drain.clone())).await?;
    b.lost(&drain).await?;
    let settled = b.settled(&drain, lease.fence).await?;
    ensure!(settled == Settled::Done(HostReport::Done), "a drain that was done was settled as {settled:?}");
    ensure!(b.is_drained(&one).await, "a drain that was settled as done is not there");
    Ok(())
}

pub(crate) async fn what_never_came_never_acts(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    let drain = b.op(&lease, &one, HostAction::DrainSatellite);
    b.inject(HostTrouble::LoseRequest(drain.clone())).await?;
    b.lost(&drain).await?;
    let settled = b.settled(&drain, lease.fence).await?;
    ensure!(settled == Settled::NeverBegun, "a drain that never came was settled as {settled:?}");
    b.refused(&drain).await?;
    ensure!(!b.is_drained(&one).await, "a drain acted after it was settled as never begun");
    Ok(())
}

pub(crate) async fn what_lands_after_it_was_settled_does_nothing(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    let drain = b.op(&lease, &one, HostAction::DrainSatellite);
    b.inject(HostTrouble::LandLate(drain.clone())).await?;
    b.lost(&drain).await?;
    let settled = b.settled(&drain, lease.fence).await?;
    ensure!(settled == Settled::NeverBegun, "a drain that had not come yet was settled as {settled:?}");
    b.pass(Duration::from_mins(2)).await;
    ensure!(!b.is_drained(&one).await, "a drain landed after it was settled as never begun");
    Ok(())
}

pub(crate) async fn what_is_under_way_is_waited_for(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    b.quiet(&lease).await?;
    let one = b.one().clone();
    let flip = b.set_bond(&one, BondMode::BalanceRr).await?;
    let slow = b.op(&lease, &one, flip);
    b.inject(HostTrouble::Slow(slow.clone())).await?;
    let (applied, settled) = tokio::join!(b.apply(&slow), async {
        b.pass(Duration::from_secs(3)).await;
        let settled = b.settled(&slow, lease.fence).await;
        (settled, b.true_bond(&one).await)
    });
    let (settled, bond) = (settled.0?, settled.1?);
    ensure!(applied?.is_ok(), "the flip was not carried out");
    ensure!(
        settled == Settled::Done(HostReport::Done),
        "a flip that was under way was settled as {settled:?}"
    );
    ensure!(bond.mode == BondMode::BalanceRr, "a flip was settled as done before it was over: {}", bond.mode);
    Ok(())
}

pub(crate) async fn what_was_settled_stays_so(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    let never = b.op(&lease, &one, HostAction::DrainSatellite);
    let first = b.settled(&never, lease.fence).await?;
    b.inject(HostTrouble::RestartAgent(one.clone())).await?;
    b.until_agent(&lease, &one).await?;
    let second = b.settled(&never, lease.fence).await?;
    ensure!(
        (&first, &second) == (&Settled::NeverBegun, &Settled::NeverBegun),
        "one operation was settled as {first:?} and then as {second:?}"
    );
    b.refused(&never).await?;
    ensure!(!b.is_drained(&one).await, "a drain acted after it was settled as never begun");
    Ok(())
}

pub(crate) async fn a_former_holder_settles_nothing(b: Arc<HostBench>) -> CaseResult {
    let former = b.lead().await?;
    let one = b.one().clone();
    let now = b.take("suite-b").await?;
    b.act(&now, &one, b.probe(&one, 10)).await?;
    let drain = b.op(&now, &one, HostAction::DrainSatellite);
    let settled = b.settle(&drain, former.fence).await?.map_err(|error| error.kind);
    let stale = HostErrorKind::StaleFence { highest: now.fence };
    ensure!(settled == Err(stale), "a former holder settled an operation: {settled:?}");
    b.done(&drain).await?;
    ensure!(b.is_drained(&one).await, "a former holder barred an operation of the next one");
    Ok(())
}

pub(crate) async fn a_settling_changes_nothing(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    let drain = b.op(&lease, &one, HostAction::DrainSatellite);
    b.done(&drain).await?;
    b.act(&lease, &one, b.undrain(&lease)).await?;
    b.settled(&drain, lease.fence).await?;
    ensure!(!b.is_drained(&one).await, "settling a drain drained the host");
    Ok(())
}

pub(crate) async fn a_machine_operation_that_was_done_is_said_to_be_done(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let vm = b.site().set.clone();
    let pin = b.vm_op(&lease, &vm, VmAction::Pin);
    b.inject(HostTrouble::LoseVmAnswer(pin.clone())).await?;
    b.vm_lost(&pin).await?;
    let settled = b.vm_settled(&pin, lease.fence).await?;
    ensure!(settled == Settled::Done(HostReport::Done), "a pin that was done was settled as {settled:?}");
    let declared = b.true_machine(&vm).await?.declared;
    ensure!(declared == EvictionSetting::PINNED, "a pin that was settled as done is not there: {declared}");
    Ok(())
}

pub(crate) async fn a_machine_operation_that_never_came_never_acts(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let vm = b.site().set.clone();
    let pin = b.vm_op(&lease, &vm, VmAction::Pin);
    b.inject(HostTrouble::LoseVmRequest(pin.clone())).await?;
    b.vm_lost(&pin).await?;
    let settled = b.vm_settled(&pin, lease.fence).await?;
    ensure!(settled == Settled::NeverBegun, "a pin that never came was settled as {settled:?}");
    b.vm_refused(&pin).await?;
    let declared = b.true_machine(&vm).await?.declared;
    ensure!(declared != EvictionSetting::PINNED, "a pin acted after it was settled as never begun");
    Ok(())
}
