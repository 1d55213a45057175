//! Behaviour of the lock: every write is conditional on the version that its caller has seen.

use std::sync::Arc;
use std::time::Duration;

use executor_api::host::{LeaseRecord, LockError};

use crate::case::{CaseResult, ensure};
use crate::hosts::bench::{HostBench, holder};
use crate::hosts::harness::HostTrouble;

const TTL: Duration = Duration::from_secs(73);

pub(crate) async fn a_free_lease_is_taken_by_one_of_two(b: Arc<HostBench>) -> CaseResult {
    let (one, two) = (Arc::clone(&b.hands().lock), b.restarted().lock);
    let (first, second) = (holder("suite-a"), holder("suite-b"));
    let (first, second) =
        tokio::join!(b.tried(one.acquire(&first, TTL, None)), b.tried(two.acquire(&second, TTL, None)));
    let taken: Vec<_> = [first?, second?].into_iter().flatten().collect();
    ensure!(taken.len() == 1, "a free lease was taken by {} of two at once", taken.len());
    let there = b.truth().await.lock.lease;
    ensure!(there.as_ref() == taken.first(), "the record is {there:?}, and {taken:?} was told");
    Ok(())
}

pub(crate) async fn a_lease_that_moved_is_not_taken(b: Arc<HostBench>) -> CaseResult {
    let seen = b.take("suite-a").await?;
    let renewed = b.written(b.hands().lock.renew(&seen)).await?;
    let late = b.tried(b.hands().lock.acquire(&holder("suite-b"), TTL, Some(&seen.version))).await?;
    moved("a takeover", &late)?;
    unchanged(&b, &renewed).await
}

pub(crate) async fn a_lease_that_is_there_is_not_made_anew(b: Arc<HostBench>) -> CaseResult {
    let lease = b.take("suite-a").await?;
    let late = b.tried(b.hands().lock.acquire(&holder("suite-b"), TTL, None)).await?;
    moved("taking a lease that is there as if it were not", &late)?;
    unchanged(&b, &lease).await
}

pub(crate) async fn every_write_changes_the_version(b: Arc<HostBench>) -> CaseResult {
    let first = b.take("suite-a").await?;
    let second = b.written(b.hands().lock.renew(&first)).await?;
    let third = b.written(b.hands().lock.renew(&second)).await?;
    let versions = [&first.version, &second.version, &third.version];
    ensure!(
        versions[0] != versions[1] && versions[1] != versions[2],
        "three writes left the versions {versions:?}"
    );
    let read = b.lock().await?.lease.map(|lease| lease.version);
    ensure!(read.as_ref() == Some(versions[2]), "the last write left {:?}, read is {read:?}", versions[2]);
    Ok(())
}

pub(crate) async fn the_duration_is_that_of_the_holder(b: Arc<HostBench>) -> CaseResult {
    b.written(b.hands().lock.acquire(&holder("suite-a"), TTL, None)).await?;
    let read = b.lock().await?.lease.map(|lease| lease.ttl);
    ensure!(read == Some(TTL), "a lease for {TTL:?} reads as one for {read:?}");
    Ok(())
}

pub(crate) async fn a_lease_that_was_taken_cannot_be_renewed(b: Arc<HostBench>) -> CaseResult {
    let former = b.take("suite-a").await?;
    let now = b.take("suite-b").await?;
    let late = b.tried(b.hands().lock.renew(&former)).await?;
    moved("renewing a lease that somebody else has", &late)?;
    unchanged(&b, &now).await
}

pub(crate) async fn a_lease_that_was_taken_cannot_be_released(b: Arc<HostBench>) -> CaseResult {
    let former = b.take("suite-a").await?;
    let now = b.take("suite-b").await?;
    let late = b.tried(b.hands().lock.release(&former)).await?;
    moved("releasing a lease that somebody else has", &late)?;
    unchanged(&b, &now).await
}

pub(crate) async fn a_released_lease_is_free(b: Arc<HostBench>) -> CaseResult {
    let lease = b.take("suite-a").await?;
    b.written(b.hands().lock.release(&lease)).await?;
    let there = b.truth().await.lock.lease;
    ensure!(there.is_none(), "a lease was released and is {there:?}");
    b.written(b.hands().lock.acquire(&holder("suite-b"), TTL, None)).await?;
    Ok(())
}

pub(crate) async fn a_write_shows_at_once_to_everybody(b: Arc<HostBench>) -> CaseResult {
    let other = b.restarted();
    let before = b.written(other.lock.read()).await?;
    ensure!(before.lease.is_none(), "a fresh lock is held: {before:?}");
    let lease = b.take("suite-a").await?;
    let seen = b.written(other.lock.read()).await?.lease;
    ensure!(seen.as_ref() == Some(&lease), "a write was done, and another reads {seen:?}");
    Ok(())
}

pub(crate) async fn an_answer_that_was_lost_is_not_told_as_a_refusal(b: Arc<HostBench>) -> CaseResult {
    let lease = b.take("suite-a").await?;
    b.inject(HostTrouble::LoseRenewalAnswer).await?;
    let told = b.tried(b.hands().lock.renew(&lease)).await?;
    let unknown = matches!(told, Err(LockError::Ambiguous { .. }));
    ensure!(unknown, "a renewal that was written and not answered was told as {told:?}");
    let released = b.lock().await?.lease;
    if let Some(lease) = released {
        b.written(b.hands().lock.release(&lease)).await?;
    }
    b.inject(HostTrouble::LoseAcquisition).await?;
    let told = b.tried(b.hands().lock.acquire(&holder("suite-b"), TTL, None)).await?;
    let unknown = matches!(told, Err(LockError::Ambiguous { .. }));
    ensure!(unknown, "an acquisition of which nobody can tell whether it came was told as {told:?}");
    Ok(())
}

pub(crate) async fn what_cannot_be_read_is_an_error(b: Arc<HostBench>) -> CaseResult {
    b.take("suite-a").await?;
    b.inject(HostTrouble::FailLock).await?;
    let told = b.tried(b.hands().lock.read()).await?;
    ensure!(told.is_err(), "a lock that cannot be read is told: {told:?}");
    Ok(())
}

/// The caller hears that the record is not the one it knows.
fn moved<T: std::fmt::Debug>(doing: &str, told: &Result<T, LockError>) -> CaseResult {
    ensure!(matches!(told, Err(LockError::Moved { .. })), "{doing} was told as {told:?}");
    Ok(())
}

async fn unchanged(b: &HostBench, lease: &LeaseRecord) -> CaseResult {
    let there = b.truth().await.lock.lease;
    ensure!(there.as_ref() == Some(lease), "the record is {there:?} and should be {lease:?}");
    Ok(())
}
