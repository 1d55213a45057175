//! Dedup: an operation is known by plan and id, and acts once: however often it is sent, at once, by a new instance,
//! after a restart of the agent. Shown by the world: what was undone since must stay undone.

use std::sync::Arc;
use std::time::Duration;

use executor_api::host::{EvictionSetting, HostAction, HostErrorKind, VmAction};

use crate::case::{CaseResult, ensure};
use crate::hosts::bench::{HostBench, plan};
use crate::hosts::harness::HostTrouble;

pub(crate) async fn the_same_operation_twice_acts_once(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    let drain = b.op(&lease, &one, HostAction::DrainSatellite);
    b.done(&drain).await?;
    b.act(&lease, &one, b.undrain(&lease)).await?;
    b.done(&drain).await?;
    ensure!(!b.is_drained(&one).await, "a drain acted a second time under the same id");
    Ok(())
}

pub(crate) async fn the_same_operation_at_once_is_answered_alike(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let probe = b.op(&lease, b.one(), b.probe(b.one(), 20));
    let (first, second) = tokio::join!(b.done(&probe), b.done(&probe));
    let (first, second) = (first?, second?);
    ensure!(first == second, "one operation, sent twice at once, was answered {first:?} and {second:?}");
    Ok(())
}

pub(crate) async fn a_new_instance_repeats_nothing(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    let drain = b.op(&lease, &one, HostAction::DrainSatellite);
    b.done(&drain).await?;
    b.act(&lease, &one, b.undrain(&lease)).await?;
    let again = b.apply_through(&b.restarted(), &drain).await?;
    ensure!(again.is_ok(), "what was done is no longer known to a new instance: {again:?}");
    ensure!(!b.is_drained(&one).await, "a drain acted a second time through a new instance");
    Ok(())
}

pub(crate) async fn a_restarted_agent_remembers_what_it_did(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    let drain = b.op(&lease, &one, HostAction::DrainSatellite);
    b.done(&drain).await?;
    b.act(&lease, &one, b.undrain(&lease)).await?;
    b.inject(HostTrouble::RestartAgent(one.clone())).await?;
    b.until_agent(&lease, &one).await?;
    b.done(&drain).await?;
    ensure!(!b.is_drained(&one).await, "a drain acted a second time after a restart of the agent");
    Ok(())
}

pub(crate) async fn the_same_id_with_other_content_is_refused(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    let mut op = b.op(&lease, &one, b.probe(&one, 10));
    b.done(&op).await?;
    op.action = HostAction::DrainSatellite;
    let kind = b.refused(&op).await?;
    ensure!(kind == HostErrorKind::Refused, "an id with other content was told as {kind}");
    ensure!(!b.is_drained(&one).await, "an id with other content was carried out");
    Ok(())
}

pub(crate) async fn another_plan_has_ids_of_its_own(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    let mut op = b.op(&lease, &one, b.probe(&one, 10));
    b.done(&op).await?;
    b.written(b.hands().lock.lift_hold(&lease, &op.plan)).await?;
    op.plan = plan("suite-other");
    op.action = HostAction::DrainSatellite;
    b.done(&op).await?;
    ensure!(b.is_drained(&one).await, "an operation of another plan was taken for one that was done");
    Ok(())
}

pub(crate) async fn an_operation_that_arrives_twice_acts_once(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    let drain = b.op(&lease, &one, HostAction::DrainSatellite);
    b.inject(HostTrouble::Repeat(drain.clone())).await?;
    b.done(&drain).await?;
    b.act(&lease, &one, b.undrain(&lease)).await?;
    b.pass(Duration::from_mins(1)).await;
    ensure!(!b.is_drained(&one).await, "a drain whose request came a second time acted a second time");
    Ok(())
}

pub(crate) async fn the_same_machine_operation_twice_acts_once(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let vm = b.site().set.clone();
    let original = b.true_machine(&vm).await?.declared;
    let pin = b.vm_op(&lease, &vm, VmAction::Pin);
    b.vm_done(&pin).await?;
    b.vm_act(&lease, &vm, VmAction::Restore { original: original.clone() }).await?;
    b.vm_done(&pin).await?;
    let declared = b.true_machine(&vm).await?.declared;
    ensure!(declared == original, "a pin acted a second time under the same id: {vm} has {declared}");
    Ok(())
}

pub(crate) async fn the_same_machine_id_with_other_content_is_refused(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let vm = b.site().set.clone();
    let mut op = b.vm_op(&lease, &vm, VmAction::Pin);
    b.vm_done(&op).await?;
    op.action = VmAction::Restore { original: EvictionSetting::Unset };
    let kind = b.vm_refused(&op).await?;
    ensure!(kind == HostErrorKind::Refused, "an id with other content was told as {kind}");
    let declared = b.true_machine(&vm).await?.declared;
    ensure!(declared == EvictionSetting::PINNED, "an id with other content was carried out: {declared}");
    Ok(())
}
