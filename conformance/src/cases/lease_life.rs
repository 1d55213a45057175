//! The life of a lease: reachable in time, never returned once dead, reported as it is.

use std::sync::Arc;

use executor_api::{
    CreateMode, CreateOutcome, EndpointLookup, ExecutorErrorKind, LeaseFacts, LeaseOwner, Life, Reading,
};

use super::dedup::{one_lease, one_session};
use crate::bench::Bench;
use crate::case::{CaseEnd, CaseResult, ensure};
use crate::harness::{Injection, NodePlan};

pub(crate) async fn an_endpoint_is_found_in_time(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let lease = b.create(&key).await?;
    let endpoint = b.endpoint(&key, &lease).await?;
    ensure!(!endpoint.host.is_empty(), "the endpoint has no host");
    Ok(())
}

pub(crate) async fn an_endpoint_that_does_not_come_is_waited_for(b: Arc<Bench>) -> CaseResult {
    b.inject(Injection::WithholdEndpoint).await?;
    let key = b.key("web", 0, 1);
    let lease = b.create(&key).await?;
    let end = b.now() + b.quiet();
    while b.now() < end {
        let ctx = b.ctx(&key);
        let lookup = b.call(b.executor().leases().lookup_endpoint(&ctx, &lease)).await?;
        if let EndpointLookup::Found(endpoint) = lookup {
            return Err(CaseEnd::Failed(format!("a lease without an endpoint was found at {endpoint}")));
        }
        b.rest(b.quiet() / 10).await;
    }
    // How long is too long is for the driver to say.
    one_lease(&b, &key).await
}

pub(crate) async fn a_dead_lease_is_never_returned(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    killed(&b, &key).await?;
    for mode in [CreateMode::CreateOrAdopt, CreateMode::AdoptOnly] {
        let ended = b.create_on(b.executor(), &key, mode).await;
        let gone = ended.as_ref().is_err_and(|end| end.kind() == ExecutorErrorKind::Gone);
        // The first create may have cleared the remains away; then there is truly nothing to adopt.
        let absent = matches!(ended, Ok(CreateOutcome::Absent { .. })) && mode == CreateMode::AdoptOnly;
        let cleared = absent && b.inventory().await.leases_of(&key).is_empty();
        ensure!(gone || cleared, "a create ({mode:?}) of an attempt whose lease is dead ended as {ended:?}");
    }
    Ok(())
}

pub(crate) async fn a_dead_lease_has_no_endpoint(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let lease = killed(&b, &key).await?;
    let ctx = b.ctx(&key);
    match b.call(b.executor().leases().lookup_endpoint(&ctx, &lease)).await {
        Ok(EndpointLookup::Found(endpoint)) => {
            Err(CaseEnd::Failed(format!("a dead lease can be reached at {endpoint}")))
        }
        Ok(EndpointLookup::NotReady(why)) => {
            Err(CaseEnd::Failed(format!("a dead lease is said to be on its way: {why}")))
        }
        Err(end) => {
            ensure!(end.kind() == ExecutorErrorKind::Gone, "a lookup of a dead lease: {end}");
            Ok(())
        }
    }
}

pub(crate) async fn a_dead_lease_does_not_read_as_alive(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    killed(&b, &key).await?;
    let reading = b.find_visible(&key).await;
    let alive = matches!(reading, Reading::Present { life: Life::Pending | Life::Live, .. });
    ensure!(!alive, "a dead lease was read as {reading:?}");
    let listing = b.list(b.run()).await?;
    let owner = LeaseOwner::Attempt(key);
    let listed = listing.leases.iter().find(|lease| lease.owner == owner && lease.life < Life::Ending);
    ensure!(listed.is_none(), "a dead lease is listed as {listed:?}");
    Ok(())
}

pub(crate) async fn a_dead_lease_can_be_destroyed(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let lease = killed(&b, &key).await?;
    b.destroy(&key, &lease).await?;
    let left = b.inventory().await;
    ensure!(left.is_empty(), "after the destroy succeeded there is {left:?}");
    Ok(())
}

pub(crate) async fn the_next_attempt_gets_a_lease_of_its_own(b: Arc<Bench>) -> CaseResult {
    let (before, after) = (b.key("web", 0, 1), b.key("web", 0, 2));
    let old = b.create(&before).await?;
    b.absence_counts().await;
    b.destroy(&before, &old).await?;
    let new = b.create(&after).await?;
    ensure!(new.lease_id != old.lease_id, "{after} was given {} of {before}", old.lease_id);
    one_lease(&b, &after).await
}

pub(crate) async fn a_moved_lease_is_listed_where_it_is(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let lease = b.create(&key).await?;
    let before = b.endpoint(&key, &lease).await?;
    b.inject(Injection::Move(lease.lease_id.clone())).await?;
    b.rest(b.visibility().listing_lag).await;
    let after = b.endpoint(&key, &lease).await?;
    ensure!(after != before, "the lease moved and is still looked up at {before}");
    let listing = b.list(b.run()).await?;
    let listed = listing.leases.iter().find(|listed| listed.lease.lease_id == lease.lease_id);
    let listed = listed.and_then(|listed| listed.endpoint.clone());
    ensure!(listed.is_none_or(|listed| listed == after), "the lease is at {after} and not listed there");
    Ok(())
}

pub(crate) async fn an_address_used_again_is_another_lease(b: Arc<Bench>) -> CaseResult {
    let (before, after) = (b.key("web", 0, 1), b.key("web", 0, 2));
    let old = b.started(&before, NodePlan::NeverJoins).await?;
    b.absence_counts().await;
    b.end(&old).await?;
    let new = b.started(&after, NodePlan::NeverJoins).await?;
    if new.endpoint != old.endpoint {
        return Err(CaseEnd::Skipped("the next lease has another address here".to_owned()));
    }
    b.absence_counts().await;
    // Whatever is still said of the old one must not reach the new one.
    b.cancel(&before, &old.session).await?;
    b.destroy(&before, &old.lease).await?;
    let ctx = b.ctx(&before);
    let lookup = b.call(b.executor().leases().lookup_endpoint(&ctx, &old.lease)).await;
    ensure!(!matches!(lookup, Ok(EndpointLookup::Found(_))), "a lease that is gone was found as {lookup:?}");
    one_session(&b, &after).await?;
    one_lease(&b, &after).await
}

/// A lease whose node had joined and that then died by itself.
async fn killed(b: &Bench, key: &executor_api::AttemptKey) -> Result<LeaseFacts, CaseEnd> {
    let node = b.started(key, NodePlan::Joins).await?;
    b.absence_counts().await;
    b.inject(Injection::Kill(node.lease.lease_id.clone())).await?;
    b.rest(b.visibility().listing_lag).await;
    Ok(node.lease)
}
