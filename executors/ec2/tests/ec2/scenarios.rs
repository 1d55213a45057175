//! Things that have happened to others, each under the number and name by which it is known here.

use std::sync::Arc;
use std::time::Duration;

use executor_api::{
    CandidateIndex, CreateMode, CreateOutcome, ExecutorErrorKind, LeaseProvider as _, Life, Reading,
    RejectReason, Visibility,
};
use executor_ec2::{Ec2Config, Ec2Provider};
use serde_json::{Value, json};

use crate::bench::{
    LATE, VISIBILITY, allowance, config, create, ctx, desired, destroy, failure, holds_exactly, key, persist,
    provider, run, shape,
};
use crate::world::Region;

#[tokio::test(flavor = "multi_thread")]
async fn h01_listing_is_blind_right_after_a_create() {
    let Some(region) = Region::take() else { return };
    region.config(&json!({ "lag_s": 0.5, "id_lag_s": 0.5 }));
    region.faults(&json!([{ "action": "RunInstances", "when": "after", "kind": "drop" }]));
    let (provider, key, shape) = (provider(), key("n-0", 1), shape(&region, &json!({})));

    let error = failure(&provider, &key, &shape).await;
    assert_eq!(error.kind, ExecutorErrorKind::Ambiguous, "{}", error.summary());
    // Inside the allowance the listing shows nothing; the repeat carries the same token and the same body.
    let lease = persist(&provider, &key, &shape).await;
    assert_eq!(lease.lease_id.0, region.the_only_one().id);
    assert_eq!(region.tokens().len(), 1, "one attempt, one token");
}

#[tokio::test(flavor = "multi_thread")]
async fn h01_with_a_create_that_lands_after_its_timeout() {
    let Some(region) = Region::take() else { return };
    region.config(&json!({ "lag_s": 0.3 }));
    // Well after, for a busy machine, and still within what is declared.
    region.faults(&json!([{ "action": "RunInstances", "kind": "delay", "s": LATE + 0.9 }]));
    let (provider, key, shape) = (provider(), key("n-0", 1), shape(&region, &json!({})));

    let error = failure(&provider, &key, &shape).await;
    assert_eq!(error.kind, ExecutorErrorKind::Ambiguous);
    assert!(region.living().is_empty(), "it has not landed yet");
    let lease = persist(&provider, &key, &shape).await;
    allowance().await;
    assert_eq!(lease.lease_id.0, region.the_only_one().id);
}

#[tokio::test(flavor = "multi_thread")]
async fn h02_a_mismatch_proves_that_an_earlier_create_was_accepted() {
    let Some(region) = Region::take() else { return };
    region.faults(&json!([{ "action": "RunInstances", "when": "after", "kind": "drop" }]));
    let (provider, key) = (provider(), key("n-0", 1));
    let at_first = shape(&region, &json!({ "user_data": "#!/bin/sh\necho one\n" }));
    failure(&provider, &key, &at_first).await;
    let made = region.the_only_one();

    // Blind listing: the mismatch comes, and the instance is not to be seen yet. Never a refusal, never a new one.
    region.config(&json!({ "lag_s": 3600.0 }));
    let other = shape(&region, &json!({ "user_data": "#!/bin/sh\necho two\n" }));
    let error = failure(&provider, &key, &other).await;
    assert_eq!(error.kind, ExecutorErrorKind::Ambiguous, "{}", error.summary());
    assert!(error.summary().contains("accepted with other parameters"), "{}", error.summary());
    region.the_only_one();

    region.config(&json!({ "lag_s": 0.0 }));
    assert_eq!(persist(&provider, &key, &other).await.lease_id.0, made.id);
    region.the_only_one();
}

#[tokio::test(flavor = "multi_thread")]
async fn h02_a_mismatch_whose_instance_lost_its_tags_is_adopted_by_its_token() {
    let Some(region) = Region::take() else { return };
    region.faults(&json!([{ "action": "RunInstances", "when": "after", "kind": "drop" }]));
    let (provider, key) = (provider(), key("n-0", 1));
    failure(&provider, &key, &shape(&region, &json!({ "key_pair": null }))).await;
    let made = region.the_only_one();
    region.steer(&json!({ "change": { "id": made.id, "tags": { "reconciler/node": null } } }));
    let other = shape(&region, &json!({ "tags": { "more": "x" } }));
    assert_eq!(persist(&provider, &key, &other).await.lease_id.0, made.id);
    holds_exactly(&region, &[&made.id]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h02_a_changed_spec_is_another_attempt_with_a_token_of_its_own() {
    let Some(region) = Region::take() else { return };
    let capacity = json!([{ "action": "RunInstances", "kind": "error", "status": 500, "times": -1,
                            "code": "InsufficientInstanceCapacity", "match": { "InstanceType": "t3.small" } }]);
    region.faults(&capacity);
    let provider = provider();
    let error = failure(&provider, &key("n-0", 1), &shape(&region, &json!({}))).await;
    assert_eq!(error.kind, ExecutorErrorKind::Rejected(RejectReason::Capacity));
    let other = shape(&region, &json!({ "instance_types": ["t3.large"] }));
    persist(&provider, &key("n-0", 2), &other).await;
    assert_eq!(region.the_only_one().kind, "t3.large");
    assert_eq!(region.tokens().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn h03_a_token_of_a_terminated_instance_ends_the_attempt() {
    let Some(region) = Region::take() else { return };
    for spent in ["error", "dead"] {
        region.reset();
        // The listing never shows it: only the token tells.
        region.config(&json!({ "spent": spent, "lag_s": 3600.0 }));
        region.faults(&json!([{ "action": "RunInstances", "when": "after", "kind": "drop" }]));
        let (provider, shape) = (provider(), shape(&region, &json!({})));
        failure(&provider, &key("n-0", 1), &shape).await;
        let reclaimed = region.the_only_one().id;
        let (code, message) = ("Server.SpotInstanceTermination", "Spot instance termination");
        region.steer(&json!({ "end": { "instance_id": reclaimed, "code": code, "message": message } }));

        let error = failure(&provider, &key("n-0", 1), &shape).await;
        assert_eq!(error.kind, ExecutorErrorKind::Gone, "{spent}: {}", error.summary());
        let lease = persist(&provider, &key("n-0", 2), &shape).await;
        assert_ne!(lease.lease_id.0, reclaimed);
        assert_eq!(region.the_only_one().id, lease.lease_id.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h03_a_dead_instance_of_an_earlier_attempt_is_not_adopted() {
    let Some(region) = Region::take() else { return };
    let (provider, shape) = (provider(), shape(&region, &json!({})));
    let first = persist(&provider, &key("n-0", 1), &shape).await;
    destroy(&provider, &key("n-0", 1), &first).await;
    let second = persist(&provider, &key("n-0", 2), &shape).await;
    assert_ne!(first.lease_id, second.lease_id);
    region.the_only_one();
}

#[tokio::test(flavor = "multi_thread")]
async fn h04_a_call_that_failed_made_the_instance_anyway() {
    let Some(region) = Region::take() else { return };
    region.faults(&json!([{ "action": "RunInstances", "when": "after", "kind": "error", "status": 503,
                            "code": "Unavailable", "times": 3 }]));
    let (provider, key, shape) = (provider(), key("n-0", 1), shape(&region, &json!({})));
    let error = failure(&provider, &key, &shape).await;
    assert_eq!(error.kind, ExecutorErrorKind::Ambiguous, "{}", error.summary());
    // The lookup comes before the next launch, and finds it.
    let lease = persist(&provider, &key, &shape).await;
    assert_eq!(lease.lease_id.0, region.the_only_one().id);
    assert_eq!(region.calls("RunInstances"), 1);
    destroy(&provider, &key, &lease).await;
    assert!(region.living().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn h04_every_answer_that_proves_nothing_is_looked_up() {
    let Some(region) = Region::take() else { return };
    let (provider, shape) = (provider(), shape(&region, &json!({})));
    for (index, kind) in ["empty", "garbage", "page", "cut", "drop"].into_iter().enumerate() {
        region.faults(&json!([{ "action": "RunInstances", "when": "after", "kind": kind }]));
        let key = key(&format!("n-{index}"), 1);
        let error = failure(&provider, &key, &shape).await;
        assert_eq!(error.kind, ExecutorErrorKind::Ambiguous, "{kind}: {}", error.summary());
        persist(&provider, &key, &shape).await;
    }
    assert_eq!(region.living().len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn h04_of_two_instances_the_older_is_kept_by_everybody() {
    let Some(region) = Region::take() else { return };
    region.faults(&json!([{ "action": "RunInstances", "kind": "twice" }]));
    let (key, shape) = (key("n-0", 1), shape(&region, &json!({})));
    persist(&provider(), &key, &shape).await;
    let both = region.living();
    assert_eq!(both.len(), 2);
    // Two drivers at once, each after a restart.
    let (a, b) = (provider(), provider());
    let (a, b) = tokio::join!(persist(&a, &key, &shape), persist(&b, &key, &shape));
    assert_eq!(a.lease_id, b.lease_id);
    assert_eq!(a.lease_id.0, region.the_only_one().id);
}

#[tokio::test(flavor = "multi_thread")]
async fn h07_answers_that_only_look_like_gone() {
    let Some(region) = Region::take() else { return };
    let (provider, key, shape) = (provider(), key("n-0", 1), shape(&region, &json!({})));
    let lease = persist(&provider, &key, &shape).await;
    allowance().await;
    let faults: [(&str, Value); 3] = [
        ("throttled", json!({ "kind": "error", "status": 503, "code": "RequestLimitExceeded" })),
        ("expired", json!({ "kind": "error", "status": 400, "code": "RequestExpired" })),
        ("broken", json!({ "kind": "garbage" })),
    ];
    for (what, mut fault) in faults {
        fault["action"] = json!("*");
        fault["times"] = json!(-1);
        region.faults(&json!([fault]));
        let reading = provider.find(&key).await;
        assert!(matches!(reading, Reading::Unknown { .. }), "{what}: {reading:?}");
        assert!(provider.list(&run()).await.is_err(), "{what}");
        let looked = provider.lookup_endpoint(&ctx(&key), &lease).await.unwrap_err();
        assert_ne!(looked.kind, ExecutorErrorKind::Gone, "{what}: {}", looked.summary());
        let adopt =
            create(&provider, &ctx(&key), &desired("n-0", shape.clone()), CreateMode::AdoptOnly).await;
        assert!(adopt.is_err(), "{what}: {adopt:?}");
        provider.destroy(&ctx(&key), &lease).await.unwrap_err();
    }
    region.faults(&json!([]));
    assert_eq!(
        region.the_only_one().id,
        lease.lease_id.0,
        "nobody ended it for an answer that proves nothing"
    );
    destroy(&provider, &key, &lease).await;
    assert!(region.living().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn h07_a_listing_that_ends_in_the_middle_is_no_listing() {
    let Some(region) = Region::take() else { return };
    let (provider, key, shape) = (provider(), key("n-0", 1), shape(&region, &json!({})));
    let lease = persist(&provider, &key, &shape).await;
    region.faults(&json!([{ "action": "DescribeInstances", "when": "after", "kind": "short", "times": -1 }]));
    assert!(matches!(provider.find(&key).await, Reading::Unknown { .. }));
    provider.list(&run()).await.unwrap_err();
    let adopt = create(&provider, &ctx(&key), &desired("n-0", shape), CreateMode::AdoptOnly).await;
    assert_eq!(adopt.unwrap_err().kind, ExecutorErrorKind::Unavailable);
    region.faults(&json!([]));
    holds_exactly(&region, &[&lease.lease_id.0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h07_not_found_right_after_the_create_is_too_young_to_be_seen() {
    let Some(region) = Region::take() else { return };
    region.config(&json!({ "lag_s": 3600.0, "id_lag_s": 3600.0 }));
    let (provider, key, shape) = (patient(), key("n-0", 1), shape(&region, &json!({})));
    let lease = persist(&provider, &key, &shape).await;
    let looked = provider.lookup_endpoint(&ctx(&key), &lease).await.unwrap();
    assert!(format!("{looked:?}").contains("not visible yet"), "{looked:?}");
    let error = provider.destroy(&ctx(&key), &lease).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Ambiguous, "{}", error.summary());
    assert_eq!(region.living().len(), 1);
    region.config(&json!({ "lag_s": 0.0, "id_lag_s": 0.0 }));
    destroy(&provider, &key, &lease).await;
    assert!(region.living().is_empty());
}

/// A provider that declares half an hour until everything is visible.
fn patient() -> Ec2Provider {
    let visibility = Visibility { listing_lag: Duration::from_mins(30), ..VISIBILITY };
    Ec2Provider::new(Ec2Config { visibility, ..config() })
}

#[tokio::test(flavor = "multi_thread")]
async fn h07_listed_and_then_not_found_is_too_young_to_be_ended() {
    let Some(region) = Region::take() else { return };
    // Listings come to know an instance before its id does.
    region.config(&json!({ "lag_s": 0.0, "id_lag_s": 3600.0 }));
    let (provider, key, shape) = (patient(), key("n-0", 1), shape(&region, &json!({})));
    let lease = persist(&provider, &key, &shape).await;
    // As made, and as adopted from the listing, with no more than EC2's own word on its age.
    let adopted = persist(&patient(), &key, &shape).await;
    for lease in [&lease, &adopted] {
        let error = provider.destroy(&ctx(&key), lease).await.unwrap_err();
        assert_eq!(error.kind, ExecutorErrorKind::Ambiguous, "{}", error.summary());
        assert!(error.summary().contains("too young to be found"), "{}", error.summary());
        assert_eq!(region.the_only_one().id, lease.lease_id.0);
    }
    region.config(&json!({ "id_lag_s": 0.0 }));
    destroy(&provider, &key, &lease).await;
    holds_exactly(&region, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h07_a_duplicate_that_is_listed_and_then_not_found_is_not_said_to_be_over() {
    let Some(region) = Region::take() else { return };
    region.config(&json!({ "lag_s": 0.0, "id_lag_s": 3600.0 }));
    region.faults(&json!([{ "action": "RunInstances", "kind": "twice" }]));
    let (provider, key, shape) = (patient(), key("n-0", 1), shape(&region, &json!({})));
    let lease = persist(&provider, &key, &shape).await;
    assert_eq!(region.living().len(), 2);
    let error = failure(&provider, &key, &shape).await;
    assert_eq!(error.kind, ExecutorErrorKind::Ambiguous, "{}", error.summary());
    let error = provider.destroy(&ctx(&key), &lease).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Ambiguous, "{}", error.summary());
    assert_eq!(region.living().len(), 2, "and so nothing was said to be over");
    region.config(&json!({ "id_lag_s": 0.0 }));
    let kept = persist(&provider, &key, &shape).await;
    holds_exactly(&region, &[&kept.lease_id.0]).await;
    destroy(&provider, &key, &kept).await;
    holds_exactly(&region, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h07_an_instance_that_is_gone_between_the_listing_and_the_end_is_absence() {
    let Some(region) = Region::take() else { return };
    let (provider, key, shape) = (provider(), key("n-0", 1), shape(&region, &json!({})));
    let lease = persist(&provider, &key, &shape).await;
    allowance().await;
    region.faults(&json!([{ "action": "TerminateInstances", "kind": "forget-first" }]));
    provider.destroy(&ctx(&key), &lease).await.unwrap();
    assert_eq!(region.fired(), [1], "it was there to be listed");
    holds_exactly(&region, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h07_one_empty_listing_ends_nothing() {
    let Some(region) = Region::take() else { return };
    let (provider, key, shape) = (provider(), key("n-0", 1), shape(&region, &json!({})));
    let lease = persist(&provider, &key, &shape).await;
    allowance().await;
    // The lookup by tags shows nothing; the lease is known by its id, and is asked for by it.
    region.faults(&json!([{ "action": "DescribeInstances", "kind": "nothing" }]));
    provider.destroy(&ctx(&key), &lease).await.unwrap();
    assert!(region.living().is_empty(), "done was said, and it is done");
}

#[tokio::test(flavor = "multi_thread")]
async fn h06_not_found_for_a_long_known_instance_is_absence() {
    let Some(region) = Region::take() else { return };
    let (provider, key, shape) = (provider(), key("n-0", 1), shape(&region, &json!({})));
    let lease = persist(&provider, &key, &shape).await;
    allowance().await;
    region.steer(&json!({ "forget": lease.lease_id.0 }));
    provider.destroy(&ctx(&key), &lease).await.unwrap();
    assert_eq!(region.calls("TerminateInstances"), 0);
    holds_exactly(&region, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h10_the_whole_group_runs_into_the_operation_timeout() {
    let Some(region) = Region::take() else { return };
    // Each first launch lands only after it was given up, and listings lag behind that.
    region.config(&json!({ "lag_s": 0.4 }));
    region.faults(&json!([{ "action": "RunInstances", "kind": "delay", "s": LATE, "times": 10 }]));
    let (provider, shape) = (Arc::new(provider()), shape(&region, &json!({})));
    let nodes: Vec<_> = (0..10)
        .map(|index| {
            let (provider, shape) = (Arc::clone(&provider), shape.clone());
            tokio::spawn(async move { persist(&provider, &key(&format!("n-{index}"), 1), &shape).await })
        })
        .collect();
    let mut leases = Vec::new();
    for node in nodes {
        leases.push(node.await.unwrap().lease_id.0);
    }
    allowance().await;
    let mut living: Vec<_> = region.living().into_iter().map(|one| one.id).collect();
    living.sort();
    leases.sort();
    assert_eq!(living, leases, "exactly the ten that were adopted");
    assert_eq!(region.tokens().len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn h14_a_capacity_outage_is_told_at_once_and_tried_by_nobody_else() {
    let Some(region) = Region::take() else { return };
    region.faults(&json!([{ "action": "RunInstances", "kind": "error", "status": 500, "times": -1,
                            "code": "InsufficientInstanceCapacity", "message": "no t3.small in us-east-1a" }]));
    let (provider, key, shape) = (provider(), key("n-2", 1), shape(&region, &json!({})));
    for _ in 0..3 {
        let error = failure(&provider, &key, &shape).await;
        assert_eq!(error.kind, ExecutorErrorKind::Rejected(RejectReason::Capacity));
        assert!(error.summary().contains("InsufficientInstanceCapacity: no t3.small"), "{}", error.summary());
    }
    assert_eq!(region.calls("RunInstances"), 3, "one call each: nothing is retried inside");
    region.faults(&json!([]));
    persist(&provider, &key, &shape).await;
    region.the_only_one();
}

#[tokio::test(flavor = "multi_thread")]
async fn h14_the_next_candidate_has_a_type_a_place_and_a_token_of_its_own() {
    let Some(region) = Region::take() else { return };
    region.faults(&json!([{ "action": "RunInstances", "kind": "error", "status": 500, "times": -1,
                            "code": "InsufficientInstanceCapacity", "match": { "InstanceType": "t3.small" } }]));
    let subnets: Vec<_> = region.subnets().into_iter().take(2).collect();
    let shape = shape(
        &region,
        &json!({ "instance_types": ["t3.small", "t3.large"], "subnets": [subnets[0].0, subnets[1].0] }),
    );
    let (provider, key) = (provider(), key("n-0", 1));
    let mut outcomes = Vec::new();
    for index in 0..3 {
        let ctx = executor_api::OperationContext { candidate: CandidateIndex(index), ..ctx(&key) };
        outcomes
            .push(create(&provider, &ctx, &desired("n-0", shape.clone()), CreateMode::CreateOrAdopt).await);
    }
    assert!(outcomes[0].is_err() && outcomes[1].is_err(), "{outcomes:?}");
    assert!(matches!(&outcomes[2], Ok(CreateOutcome::Leased { .. })), "{outcomes:?}");
    let only = region.the_only_one();
    assert_eq!((only.kind.as_str(), only.zone.as_str()), ("t3.large", subnets[0].1.as_str()));
    assert_eq!(region.tokens().len(), 3);
    // Whichever candidate made it, the attempt finds it.
    let found = provider.find(&key).await;
    assert!(matches!(found, Reading::Present { life: Life::Live, .. }), "{found:?}");
}
