//! Fencing of the lock: each acquisition has a higher fence than every one before.

use std::sync::Arc;

use crate::case::{CaseResult, ensure};
use crate::hosts::bench::HostBench;
use crate::hosts::harness::HostTrouble;

pub(crate) async fn a_takeover_raises_the_fence(b: Arc<HostBench>) -> CaseResult {
    let first = b.take("suite-a").await?;
    let second = b.take("suite-b").await?;
    ensure!(second.fence > first.fence, "{} was followed by {}", first.fence, second.fence);
    let read = b.lock().await?.lease.map(|lease| lease.fence);
    ensure!(read == Some(second.fence), "the lease was taken with {}, read is {read:?}", second.fence);
    Ok(())
}

pub(crate) async fn the_same_holder_gets_a_higher_fence_too(b: Arc<HostBench>) -> CaseResult {
    let first = b.take("suite-a").await?;
    let second = b.take("suite-a").await?;
    ensure!(
        second.fence > first.fence,
        "{} was followed by {} of the same holder",
        first.fence,
        second.fence
    );
    Ok(())
}

pub(crate) async fn a_renewal_keeps_the_fence(b: Arc<HostBench>) -> CaseResult {
    let first = b.take("suite-a").await?;
    let renewed = b.written(b.hands().lock.renew(&first)).await?;
    ensure!(renewed.fence == first.fence, "a renewal made {} of {}", renewed.fence, first.fence);
    let there = b.truth().await.lock.lease.map(|lease| lease.fence);
    ensure!(
        there == Some(first.fence),
        "a renewal left {there:?} in the record, and {} was told",
        first.fence
    );
    Ok(())
}

pub(crate) async fn the_fence_rises_also_after_a_release(b: Arc<HostBench>) -> CaseResult {
    let first = b.take("suite-a").await?;
    b.written(b.hands().lock.release(&first)).await?;
    let second = b.take("suite-b").await?;
    ensure!(second.fence > first.fence, "{} was released, and {} followed", first.fence, second.fence);
    Ok(())
}

pub(crate) async fn the_fence_rises_also_after_the_record_was_deleted(b: Arc<HostBench>) -> CaseResult {
    let first = b.take("suite-a").await?;
    b.inject(HostTrouble::DeleteLease).await?;
    let second = b.take("suite-b").await?;
    ensure!(
        second.fence > first.fence,
        "the record was deleted, and {} followed {}",
        second.fence,
        first.fence
    );
    Ok(())
}
