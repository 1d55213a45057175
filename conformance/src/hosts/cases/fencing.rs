//! Fencing: who held the lease before is refused, durably, whatever its plan, and nothing is done.

use std::sync::Arc;

use executor_api::host::{BondMode, EvictionSetting, HostAction, HostErrorKind, LeaseRecord, VmAction};

use crate::case::{CaseEnd, CaseResult, ensure};
use crate::hosts::bench::{HostBench, plan};
use crate::hosts::harness::HostTrouble;

pub(crate) async fn a_former_holder_is_refused_and_nothing_is_done(b: Arc<HostBench>) -> CaseResult {
    let (former, now) = takeover(&b).await?;
    let one = b.one().clone();
    b.act(&now, &one, b.probe(&one, 10)).await?;
    stale(&b, &former, &now).await
}

pub(crate) async fn a_former_holder_is_refused_whatever_its_plan(b: Arc<HostBench>) -> CaseResult {
    let (former, now) = takeover(&b).await?;
    let one = b.one().clone();
    b.act(&now, &one, b.probe(&one, 10)).await?;
    let mut late = b.op(&former, &one, HostAction::DrainSatellite);
    late.plan = plan("suite-other");
    let kind = b.refused(&late).await?;
    ensure!(kind == highest(&now), "an older fence of another plan was told as {kind}");
    ensure!(!b.is_drained(&one).await, "an older fence of another plan was let through");
    Ok(())
}

pub(crate) async fn a_former_holder_is_not_even_answered_from_memory(b: Arc<HostBench>) -> CaseResult {
    let former = b.lead().await?;
    let one = b.one().clone();
    let probe = b.op(&former, &one, b.probe(&one, 10));
    b.done(&probe).await?;
    let now = b.take("suite-b").await?;
    b.act(&now, &one, b.probe(&one, 10)).await?;
    let kind = b.refused(&probe).await?;
    ensure!(kind == highest(&now), "what a former holder did is told it again, as {kind}");
    Ok(())
}

pub(crate) async fn a_restarted_agent_remembers_the_fence(b: Arc<HostBench>) -> CaseResult {
    let (former, now) = takeover(&b).await?;
    let one = b.one().clone();
    b.act(&now, &one, b.probe(&one, 10)).await?;
    b.inject(HostTrouble::RestartAgent(one.clone())).await?;
    // Whoever calls first after the restart is the former holder.
    let (resource, nodes) = (b.site().resource.clone(), b.site().nodes.clone());
    b.until("the host answers", |truth| {
        nodes.iter().all(|node| truth.storage.get(node).is_some_and(|s| s.resources.contains_key(&resource)))
    })
    .await?;
    let late = b.op(&former, &one, HostAction::DrainSatellite);
    for _ in 0..100 {
        match b.apply(&late).await? {
            Err(error) if error.kind == HostErrorKind::Unavailable => {
                b.pass(std::time::Duration::from_secs(1)).await;
            }
            Err(error) => {
                ensure!(
                    error.kind == highest(&now),
                    "after a restart an older fence was told as {}",
                    error.kind
                );
                break;
            }
            Ok(_) => {
                return Err(CaseEnd::Failed("a restarted agent let an older fence through".to_owned()));
            }
        }
    }
    ensure!(!b.is_drained(&one).await, "a restarted agent acted for an older fence");
    Ok(())
}

pub(crate) async fn a_settling_raises_the_fence(b: Arc<HostBench>) -> CaseResult {
    let (former, now) = takeover(&b).await?;
    let never = b.op(&former, b.one(), b.probe(b.one(), 10));
    b.settled(&never, now.fence).await?;
    stale(&b, &former, &now).await
}

pub(crate) async fn what_was_let_through_is_over_before_the_next_holder_is_let_in(
    b: Arc<HostBench>,
) -> CaseResult {
    let former = b.lead().await?;
    b.quiet(&former).await?;
    let one = b.one().clone();
    let flip = b.set_bond(&one, BondMode::BalanceRr).await?;
    let slow = b.op(&former, &one, flip);
    b.inject(HostTrouble::Slow(slow.clone())).await?;
    let now = b.take("suite-b").await?;
    let probe = b.op(&now, &one, b.probe(&one, 10));
    let (first, second) = tokio::join!(b.apply(&slow), async {
        // The flip has long begun, and is not nearly over.
        b.pass(std::time::Duration::from_secs(3)).await;
        let outcome = b.apply(&probe).await;
        (outcome, b.true_bond(&one).await)
    });
    let (outcome, bond) = (second.0?, second.1?);
    ensure!(first?.is_ok(), "a flip that was let through was not carried out");
    ensure!(outcome.is_ok(), "the next holder was not let in: {outcome:?}");
    let over = bond.mode == BondMode::BalanceRr && bond.up == Some(true) && bond.members.len() > 1;
    ensure!(over, "the next holder was let in while the former one's flip was under way");
    Ok(())
}

pub(crate) async fn a_former_holder_is_refused_at_the_machines(b: Arc<HostBench>) -> CaseResult {
    let (former, now) = takeover(&b).await?;
    let (set, unset) = (b.site().set.clone(), b.site().unset.clone());
    b.vm_act(&now, &unset, VmAction::Pin).await?;
    let kind = b.vm_refused(&b.vm_op(&former, &set, VmAction::Pin)).await?;
    ensure!(kind == highest(&now), "an older fence was told at the machines as {kind}");
    let declared = b.true_machine(&set).await?.declared;
    ensure!(declared != EvictionSetting::PINNED, "an older fence was let through at the machines");
    Ok(())
}

/// A lease, and the one that was taken after it.
async fn takeover(b: &HostBench) -> Result<(LeaseRecord, LeaseRecord), CaseEnd> {
    let former = b.lead().await?;
    let now = b.take("suite-b").await?;
    Ok((former, now))
}

/// The former holder is told so, and does nothing.
async fn stale(b: &HostBench, former: &LeaseRecord, now: &LeaseRecord) -> CaseResult {
    let one = b.one().clone();
    let kind = b.refused(&b.op(former, &one, HostAction::DrainSatellite)).await?;
    ensure!(kind == highest(now), "an older fence was told as {kind}");
    ensure!(!b.is_drained(&one).await, "an older fence was let through");
    Ok(())
}

fn highest(now: &LeaseRecord) -> HostErrorKind {
    HostErrorKind::StaleFence { highest: now.fence }
}
