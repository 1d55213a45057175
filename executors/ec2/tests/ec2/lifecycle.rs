//! From the launch to the end: what a launch carries, when it can be reached, how it ends.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::{
    CreateMode, CreateOutcome, EndpointLookup, ExecutorErrorKind, LeaseProvider as _, Life, OperationContext,
    RejectReason, Timer, Visibility,
};
use executor_ec2::{Ec2Config, Ec2Provider};
use serde_json::json;

use crate::bench::{
    CALL, allowance, config, ctx, desired, destroy, failure, key, persist, provider, run, shape,
};
use crate::world::Region;

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_carries_tags_user_data_and_place() {
    let Some(region) = Region::take() else { return };
    let subnet = region.subnets()[1].clone();
    let wanted = shape(
        &region,
        &json!({
            "subnets": [subnet.0], "disk": { "size_gib": 20 }, "tags": { "team": "x y" }, "market": "spot",
            "user_data": "#!/bin/sh\njoin {{reconciler.node}}\n", "public_ip": true,
            "endpoint": { "address": "public", "port": 8022 }
        }),
    );
    let provider = provider();
    let lease = persist(&provider, &key("n-0", 1), &wanted).await;
    let made = region.the_only_one();
    assert_eq!(made.id, lease.lease_id.0);
    assert_eq!(made.owner, Some(key("n-0", 1)));
    assert_eq!(made.zone, subnet.1);
    assert_eq!(made.tags["team"], "x y");
    assert!(made.tags["Name"].as_str().unwrap().starts_with("demo-n-0-a1-"));
    // The script with the node's name in it, as EC2 wants it encoded.
    assert_eq!(made.user_data.as_deref(), Some("IyEvYmluL3NoCmpvaW4gbi0wCg=="));
    assert_eq!(lease.attributes["zone"], subnet.1);
    assert!(lease.created_at.is_some());
    match provider.lookup_endpoint(&ctx(&key("n-0", 1)), &lease).await.unwrap() {
        EndpointLookup::Found(endpoint) => assert_eq!(endpoint.port, 8022),
        EndpointLookup::NotReady(why) => panic!("{why}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_is_a_probe_until_the_instance_runs() {
    let Some(region) = Region::take() else { return };
    region.config(&json!({ "pending_s": 0.6 }));
    let provider = provider();
    let wanted = shape(&region, &json!({ "endpoint": { "after": "status_checks" } }));
    let lease = persist(&provider, &key("n-0", 1), &wanted).await;
    let mut reasons = Vec::new();
    let endpoint = loop {
        match provider.lookup_endpoint(&ctx(&key("n-0", 1)), &lease).await.unwrap() {
            EndpointLookup::Found(endpoint) => break endpoint,
            EndpointLookup::NotReady(why) => reasons.push(why),
        }
        assert!(reasons.len() < 100, "{reasons:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(reasons[0], format!("{} is pending", lease.lease_id));
    assert_eq!(endpoint.port, 22);
    let listing = provider.list(&run()).await.unwrap();
    assert_eq!(listing.leases[0].endpoint, Some(endpoint), "a listing states the very same endpoint");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spot_interruption_is_told_with_its_reason() {
    let Some(region) = Region::take() else { return };
    let provider = provider();
    let wanted = shape(&region, &json!({ "market": "spot" }));
    let lease = persist(&provider, &key("n-0", 1), &wanted).await;
    region.steer(&json!({ "end": { "instance_id": lease.lease_id.0, "code": "Server.SpotInstanceTermination",
                                   "message": "Server.SpotInstanceTermination: Spot instance termination" } }));
    let listing = provider.list(&run()).await.unwrap();
    assert_eq!(listing.leases[0].life, Life::Dead);
    let reason = listing.leases[0].reason.clone().unwrap();
    assert!(reason.contains("EC2 took the spot capacity back"), "{reason}");
    let error = provider.lookup_endpoint(&ctx(&key("n-0", 1)), &lease).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Gone);
    assert_eq!(failure(&provider, &key("n-0", 1), &wanted).await.kind, ExecutorErrorKind::Gone);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_instance_is_lost_and_ended() {
    let Some(region) = Region::take() else { return };
    let (provider, wanted) = (provider(), shape(&region, &json!({})));
    let lease = persist(&provider, &key("n-0", 1), &wanted).await;
    region.steer(&json!({ "stop": lease.lease_id.0 }));
    assert_eq!(provider.list(&run()).await.unwrap().leases[0].life, Life::Ending);
    // An attempt that lost its answer and finds it stopped still takes it, so that it is ended and not forgotten.
    assert_eq!(persist(&provider, &key("n-0", 1), &wanted).await.lease_id, lease.lease_id);
    destroy(&provider, &key("n-0", 1), &lease).await;
    assert!(region.living().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn ending_twice_and_while_it_shuts_down_is_success() {
    let Some(region) = Region::take() else { return };
    region.config(&json!({ "shutting_down_s": 0.5 }));
    let (provider, wanted) = (provider(), shape(&region, &json!({})));
    let lease = persist(&provider, &key("n-0", 1), &wanted).await;
    provider.destroy(&ctx(&key("n-0", 1)), &lease).await.unwrap();
    provider.destroy(&ctx(&key("n-0", 1)), &lease).await.unwrap();
    assert_eq!(region.calls("TerminateInstances"), 1, "what shuts down is not told again");
    allowance().await;
    provider.destroy(&ctx(&key("n-0", 1)), &lease).await.unwrap();
    assert!(region.living().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn termination_protection_is_respected_and_explained() {
    let Some(region) = Region::take() else { return };
    let (provider, wanted) = (provider(), shape(&region, &json!({})));
    let lease = persist(&provider, &key("n-0", 1), &wanted).await;
    region.steer(&json!({ "protect": lease.lease_id.0 }));
    let error = provider.destroy(&ctx(&key("n-0", 1)), &lease).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Rejected(RejectReason::Authorisation));
    assert!(error.summary().contains("--no-disable-api-termination"), "{}", error.summary());
    region.the_only_one();
    region.steer(&json!({ "unprotect": lease.lease_id.0 }));
    destroy(&provider, &key("n-0", 1), &lease).await;
    assert!(region.living().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_to_an_end_is_looked_up() {
    let Some(region) = Region::take() else { return };
    let (provider, wanted) = (provider(), shape(&region, &json!({})));
    let lease = persist(&provider, &key("n-0", 1), &wanted).await;
    region.faults(&json!([{ "action": "TerminateInstances", "when": "after", "kind": "drop" }]));
    let error = provider.destroy(&ctx(&key("n-0", 1)), &lease).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Ambiguous);
    destroy(&provider, &key("n-0", 1), &lease).await;
    assert!(region.living().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_takes_the_duplicates_along() {
    let Some(region) = Region::take() else { return };
    region.faults(&json!([{ "action": "RunInstances", "kind": "twice" }]));
    let (provider, wanted) = (provider(), shape(&region, &json!({})));
    let lease = persist(&provider, &key("n-0", 1), &wanted).await;
    assert_eq!(region.living().len(), 2);
    destroy(&provider, &key("n-0", 1), &lease).await;
    assert!(region.living().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttle_says_how_long_to_wait() {
    let Some(region) = Region::take() else { return };
    let (provider, wanted) = (provider(), shape(&region, &json!({})));
    region.faults(&json!([{ "action": "RunInstances", "kind": "error", "status": 503,
                            "code": "RequestLimitExceeded", "retry_after": 7 }]));
    let error = failure(&provider, &key("n-0", 1), &wanted).await;
    let retry_after = Some(Duration::from_secs(7));
    assert_eq!(error.kind, ExecutorErrorKind::Throttled { retry_after });
    assert!(region.living().is_empty());
}

/// Longer than any test, and less than the clocks below are off by.
const HALF_AN_HOUR: Visibility =
    Visibility { listing_lag: Duration::from_mins(30), late_landing: Duration::from_mins(30) };

/// A driver's clock that does not agree with the machine's: it was set while the driver ran.
#[derive(Debug)]
struct Off(i64);

impl Timer for Off {
    fn now(&self) -> SystemTime {
        let by = Duration::from_secs(self.0.unsigned_abs());
        if self.0 < 0 { SystemTime::now() - by } else { SystemTime::now() + by }
    }

    fn sleep_until(&self, _: SystemTime) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        panic!("the provider never waits")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h12_a_driver_whose_clock_is_an_hour_off_is_served_all_the_same() {
    let Some(region) = Region::take() else { return };
    for hours in [-1, 1] {
        region.config(&json!({ "lag_s": 3600.0, "id_lag_s": 3600.0 }));
        let timer = Arc::new(Off(hours * 3600));
        let told = Ec2Config { timer: Arc::clone(&timer) as _, ..config() };
        let provider = Ec2Provider::new(Ec2Config { visibility: HALF_AN_HOUR, ..told });
        let (key, wanted) = (key(&format!("n-{}", hours + 1), 1), shape(&region, &json!({})));
        let ctx = || OperationContext { deadline: timer.now() + CALL, ..ctx(&key) };
        let desired = desired(key.node.as_str(), wanted.clone());
        let made = provider.create(&ctx(), &desired, CreateMode::CreateOrAdopt).await.unwrap();
        let CreateOutcome::Leased { lease, .. } = made else { panic!("nothing was leased") };
        // Too young to be seen, by a clock that is an hour off as by any other.
        let ended = provider.destroy(&ctx(), &lease).await;
        assert_eq!(ended.unwrap_err().kind, ExecutorErrorKind::Ambiguous);
        region.config(&json!({ "lag_s": 0.0, "id_lag_s": 0.0 }));
        provider.destroy(&ctx(), &lease).await.unwrap();
        assert!(region.living().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_listening_proves_that_nothing_was_made() {
    let Some(region) = Region::take() else { return };
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let wanted = shape(&region, &json!({ "endpoint_url": format!("http://{closed}") }));
    let error = failure(&provider(), &key("n-0", 1), &wanted).await;
    assert_eq!(error.kind, ExecutorErrorKind::Unavailable, "{}", error.summary());
    assert!(error.summary().contains("no connection to EC2 came about"), "{}", error.summary());
}
