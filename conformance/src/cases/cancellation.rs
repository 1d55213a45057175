//! Cancellation: a call ends by its deadline; dropping it leaves an adoptable or absent world, and nothing lands
//! later than declared.

use std::sync::Arc;
use std::time::Duration;

use executor_api::{AttemptKey, CreateMode};

use super::dedup::{one_lease, one_session};
use crate::bench::Bench;
use crate::case::{CallEnd, CaseResult, ensure};
use crate::harness::{Injection, NodePlan};

/// When a call is dropped: from before its first breath to long after a quick provider has answered.
const MOMENTS: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(300),
    Duration::from_millis(1500),
];

pub(crate) async fn a_call_ends_by_its_deadline(b: Arc<Bench>) -> CaseResult {
    b.inject(Injection::SlowCreate).await?;
    let key = b.key("web", 0, 1);
    let (ctx, desired) = (b.ctx(&key), b.desired(&key, NodePlan::Joins));
    let grace = Duration::from_secs(1);
    let create = b.executor().leases().create(&ctx, &desired, CreateMode::CreateOrAdopt);
    let ended = b.call_for(b.call_timeout() + grace, create).await;
    ensure!(!matches!(ended, Err(CallEnd::GivenUp { .. })), "a slow create did not end by its deadline");
    ensure!(ended.is_err(), "a create far slower than its deadline ended as {ended:?}");
    Ok(())
}

pub(crate) async fn a_dropped_create_leaves_one_lease_or_none(b: Arc<Bench>) -> CaseResult {
    for (index, moment) in (0..).zip(MOMENTS) {
        let key = b.key("web", index, u64::from(index) + 1);
        drop_create(&b, &key, moment).await;
        b.absence_counts().await;
        let left = b.inventory().await.leases_of(&key);
        ensure!(left.len() <= 1, "a create dropped after {moment:?} left {left:?}");
        let lease = b.create(&key).await?;
        ensure!(left.is_empty() || left == [lease.lease_id.clone()], "{left:?} was not adopted");
        one_lease(&b, &key).await?;
    }
    Ok(())
}

pub(crate) async fn a_dropped_start_leaves_one_session_or_none(b: Arc<Bench>) -> CaseResult {
    for (index, moment) in (0..).zip(MOMENTS) {
        let key = b.key("web", index, u64::from(index) + 1);
        let request = b.leased(&key, NodePlan::NeverJoins).await?;
        let ctx = b.ctx(&key);
        let start = b.executor().bootstrap().start(&ctx, &request, CreateMode::CreateOrAdopt);
        let _ = b.call_for(moment, start).await;
        b.absence_counts().await;
        b.start_on(b.executor(), &request, &key, CreateMode::CreateOrAdopt).await?;
        one_session(&b, &key).await?;
    }
    Ok(())
}

pub(crate) async fn a_dropped_destroy_can_be_repeated(b: Arc<Bench>) -> CaseResult {
    for (index, moment) in (0..).zip(MOMENTS) {
        let key = b.key("web", index, u64::from(index) + 1);
        let node = b.started(&key, NodePlan::NeverJoins).await?;
        b.absence_counts().await;
        let ctx = b.ctx(&key);
        let _ = b.call_for(moment, b.executor().leases().destroy(&ctx, &node.lease)).await;
        b.destroy(&key, &node.lease).await?;
        let left = b.inventory().await;
        ensure!(left.is_empty(), "after a destroy dropped at {moment:?} and repeated there is {left:?}");
    }
    Ok(())
}

pub(crate) async fn nothing_lands_after_the_declared_time(b: Arc<Bench>) -> CaseResult {
    let late = b.visibility().late_landing;
    for (index, moment) in (0..).zip(MOMENTS) {
        let key = b.key("web", index, u64::from(index) + 1);
        drop_create(&b, &key, moment).await;
        b.rest(late).await;
        let landed = b.inventory().await.leases_of(&key);
        b.rest(b.quiet()).await;
        let later = b.inventory().await.leases_of(&key);
        ensure!(later == landed, "{later:?} landed later than the declared {late:?} after the drop");
    }
    Ok(())
}

async fn drop_create(b: &Bench, key: &AttemptKey, moment: Duration) {
    let (ctx, desired) = (b.ctx(key), b.desired(key, NodePlan::Joins));
    let create = b.executor().leases().create(&ctx, &desired, CreateMode::CreateOrAdopt);
    let _ = b.call_for(moment, create).await;
}
