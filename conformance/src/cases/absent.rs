//! Already absent: ending what is not there is success, once "not there" is proved; what cannot be read is
//! unknown, never absent.

use std::sync::Arc;
use std::time::Duration;

use executor_api::{BootstrapSessionId, LeaseFacts, LeaseId, LeaseOwner, Reading};

use crate::bench::Bench;
use crate::case::{CaseResult, ensure};
use crate::harness::{Injection, NodePlan};

pub(crate) async fn a_destroyed_lease_is_gone_from_the_world(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let lease = visible_lease(&b, &key).await?;
    b.destroy(&key, &lease).await?;
    // Not "soon": success means that nothing of it is left.
    let left = b.inventory().await;
    ensure!(left.is_empty(), "after the destroy succeeded there is {left:?}");
    Ok(())
}

pub(crate) async fn destroying_twice_is_success(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let lease = visible_lease(&b, &key).await?;
    b.destroy(&key, &lease).await?;
    Ok(b.destroy(&key, &lease).await?)
}

pub(crate) async fn destroying_what_was_removed_by_hand_is_success(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let lease = visible_lease(&b, &key).await?;
    b.inject(Injection::RemoveByHand(lease.lease_id.clone())).await?;
    Ok(b.destroy(&key, &lease).await?)
}

pub(crate) async fn destroying_what_never_was_is_success(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let long_ago = b.now().checked_sub(Duration::from_hours(24));
    let lease = LeaseFacts {
        lease_id: LeaseId("no-such-lease-1".to_owned()),
        provider: b.executor().leases().name(),
        created_at: long_ago,
        attributes: std::collections::BTreeMap::new(),
    };
    Ok(b.destroy(&key, &lease).await?)
}

pub(crate) async fn destroying_right_after_the_create_leaves_nothing(b: Arc<Bench>) -> CaseResult {
    // "Not found" may only mean "too young to be seen": then the destroy must not succeed.
    let key = b.key("web", 0, 1);
    let lease = b.create(&key).await?;
    let mut ended = b.destroy(&key, &lease).await;
    if ended.is_err() {
        b.absence_counts().await;
        ended = b.destroy(&key, &lease).await;
    }
    ended?;
    let left = b.inventory().await;
    ensure!(left.is_empty(), "the destroy succeeded and there is {left:?}");
    Ok(())
}

pub(crate) async fn cancelling_twice_is_success(b: Arc<Bench>) -> CaseResult {
    let node = b.started(&b.key("web", 0, 1), NodePlan::NeverJoins).await?;
    b.cancel(&node.key, &node.session).await?;
    Ok(b.cancel(&node.key, &node.session).await?)
}

pub(crate) async fn cancelling_what_never_was_is_success(b: Arc<Bench>) -> CaseResult {
    let session = BootstrapSessionId("no-such-session-1".to_owned());
    Ok(b.cancel(&b.key("web", 0, 1), &session).await?)
}

pub(crate) async fn cancelling_what_was_removed_by_hand_is_success(b: Arc<Bench>) -> CaseResult {
    let node = b.started(&b.key("web", 0, 1), NodePlan::NeverJoins).await?;
    b.absence_counts().await;
    b.inject(Injection::RemoveByHand(node.lease.lease_id.clone())).await?;
    b.cancel(&node.key, &node.session).await?;
    let left = b.inventory().await;
    ensure!(left.is_empty(), "after the cancel of what was removed by hand there is {left:?}");
    Ok(())
}

pub(crate) async fn completing_twice_is_success(b: Arc<Bench>) -> CaseResult {
    let (node, _watch) = b.joined(&b.key("web", 0, 1)).await?;
    b.complete(&node).await?;
    b.complete(&node).await
}

pub(crate) async fn what_cannot_be_read_is_not_absent(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    visible_lease(&b, &key).await?;
    b.inject(Injection::FailReads).await?;
    let reading = b.executor().leases().find(&key).await;
    b.inject(Injection::Heal).await?;
    ensure!(matches!(reading, Reading::Unknown { .. }), "what could not be read was read as {reading:?}");
    Ok(())
}

pub(crate) async fn what_cannot_be_listed_is_not_absent(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    visible_lease(&b, &key).await?;
    b.inject(Injection::FailReads).await?;
    let listed = b.list(b.run()).await;
    b.inject(Injection::Heal).await?;
    if let Ok(listing) = listed {
        let owner = LeaseOwner::Attempt(key.clone());
        let claims_absence = listing.complete && !listing.leases.iter().any(|lease| lease.owner == owner);
        ensure!(!claims_absence, "a listing that could not be read claims that {key} holds nothing");
    }
    Ok(())
}

pub(crate) async fn expired_credentials_prove_no_absence(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let lease = visible_lease(&b, &key).await?;
    b.inject(Injection::ExpireCredentials).await?;
    let reading = b.executor().leases().find(&key).await;
    let listed = b.list(b.run()).await;
    let destroyed = b.destroy(&key, &lease).await;
    b.inject(Injection::Heal).await?;
    ensure!(
        matches!(reading, Reading::Unknown { .. }),
        "without credentials a lease was read as {reading:?}"
    );
    let claims_absence = listed.is_ok_and(|listing| listing.complete && listing.leases.is_empty());
    ensure!(!claims_absence, "without credentials a listing claims that there is nothing");
    let left = b.inventory().await.leases_of(&key);
    ensure!(destroyed.is_err() || left.is_empty(), "the destroy of {left:?} succeeded without credentials");
    Ok(())
}

pub(crate) async fn a_throttled_read_proves_no_absence(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    visible_lease(&b, &key).await?;
    b.inject(Injection::ThrottleReads).await?;
    let reading = b.executor().leases().find(&key).await;
    let listed = b.list(b.run()).await;
    b.inject(Injection::Heal).await?;
    ensure!(matches!(reading, Reading::Unknown { .. }), "what was asked too often was read as {reading:?}");
    let claims_absence = listed.is_ok_and(|listing| listing.complete && listing.leases.is_empty());
    ensure!(!claims_absence, "a listing that was refused for coming too often claims that there is nothing");
    Ok(())
}

async fn visible_lease(b: &Bench, key: &executor_api::AttemptKey) -> Result<LeaseFacts, crate::CaseEnd> {
    let lease = b.create(key).await?;
    b.absence_counts().await;
    Ok(lease)
}
