//! What already exists is found and returned, and nothing of anybody else's is.

use std::sync::Arc;

use executor_api::{
    CreateMode, CreateOutcome, ExecutorErrorKind, LeaseOwner, LeaseProvider as _, Life, Reading,
};
use serde_json::json;

use crate::bench::{create, ctx, desired, destroy, failure, key, persist, provider, run, shape, template};
use crate::world::Region;

#[tokio::test(flavor = "multi_thread")]
async fn forty_creates_at_once_from_two_processes_make_one_instance() {
    let Some(region) = Region::take() else { return };
    region.config(&json!({ "lag_s": 0.4 }));
    let (a, b) = (Arc::new(provider()), Arc::new(provider()));
    let shape = shape(&region, &json!({}));
    let creates: Vec<_> = (0..40)
        .map(|index| {
            let provider = Arc::clone(if index % 2 == 0 { &a } else { &b });
            let shape = shape.clone();
            tokio::spawn(async move { persist(&provider, &key("n-0", 1), &shape).await.lease_id })
        })
        .collect();
    let mut ids = std::collections::BTreeSet::new();
    for create in creates {
        ids.insert(create.await.unwrap().0);
    }
    assert_eq!(ids.into_iter().collect::<Vec<_>>(), [region.the_only_one().id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_is_killed_at_any_moment_is_adopted_by_the_next_process() {
    let Some(region) = Region::take() else { return };
    let shape = shape(&region, &json!({}));
    for index in 0..10_u64 {
        let key = key(&format!("n-{index}"), 1);
        // Dropped without a word, as by SIGKILL: sometimes before the launch, sometimes between it and its answer.
        let (provider, ctx, desired) = (provider(), ctx(&key), desired(key.node.as_str(), shape.clone()));
        let killed = provider.create(&ctx, &desired, CreateMode::CreateOrAdopt);
        let _ = tokio::time::timeout(std::time::Duration::from_millis(index * 12), killed).await;
        drop(provider);
        let lease = persist(&crate::bench::provider(), &key, &shape).await;
        let made: Vec<_> =
            region.living().into_iter().filter(|one| one.owner.as_ref() == Some(&key)).collect();
        assert_eq!(made.iter().map(|one| &one.id).collect::<Vec<_>>(), [&lease.lease_id.0], "{key}");
    }
    assert_eq!(region.living().len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn adopt_only_makes_nothing_and_finds_what_is_there() {
    let Some(region) = Region::take() else { return };
    let (provider, key, shape) = (provider(), key("n-0", 1), shape(&region, &json!({})));
    let wanted = desired("n-0", shape.clone());
    let nothing = create(&provider, &ctx(&key), &wanted, CreateMode::AdoptOnly).await.unwrap();
    assert!(matches!(nothing, CreateOutcome::Absent { .. }));
    assert_eq!(region.calls("RunInstances"), 0);
    let made = persist(&provider, &key, &shape).await;
    match create(&provider, &ctx(&key), &wanted, CreateMode::AdoptOnly).await.unwrap() {
        CreateOutcome::Leased { lease, endpoint } => {
            assert_eq!(lease.lease_id, made.lease_id);
            assert!(endpoint.is_some());
        }
        CreateOutcome::Absent { .. } => panic!("it is there"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_of_another_uid_are_listed_as_foreign_and_left_alone() {
    let Some(region) = Region::take() else { return };
    let (provider, shape) = (provider(), shape(&region, &json!({})));
    let theirs =
        executor_api::AttemptKey { run: executor_api::RunId::new("demo", "other").unwrap(), ..key("n-0", 1) };
    let foreign = persist(&provider, &theirs, &shape).await;
    let ours = persist(&provider, &key("n-0", 1), &shape).await;
    assert_ne!(foreign.lease_id, ours.lease_id);
    let listing = provider.list(&run()).await.unwrap();
    assert!(listing.complete && listing.leases.len() == 2);
    let owner = |id| listing.leases.iter().find(|one| one.lease.lease_id == id).unwrap().owner.clone();
    assert_eq!(owner(foreign.lease_id.clone()), LeaseOwner::Attempt(theirs.clone()));

    let error = provider.destroy(&ctx(&key("n-0", 1)), &foreign).await.unwrap_err();
    assert!(error.summary().contains("does not carry the identity"), "{}", error.summary());
    assert_eq!(region.living().len(), 2);
    destroy(&provider, &key("n-0", 1), &ours).await;
    assert_eq!(region.the_only_one().owner, Some(theirs));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_is_read_to_its_last_page() {
    let Some(region) = Region::take() else { return };
    region.config(&json!({ "page": 2 }));
    let (provider, shape) = (provider(), shape(&region, &json!({})));
    for index in 0..5 {
        persist(&provider, &key(&format!("n-{index}"), 1), &shape).await;
    }
    let before = region.calls("DescribeInstances");
    let listing = provider.list(&run()).await.unwrap();
    assert!(listing.complete);
    assert_eq!(listing.leases.len(), 5);
    assert_eq!(region.calls("DescribeInstances") - before, 3);
    assert!(listing.leases.iter().all(|one| one.life == Life::Live && one.endpoint.is_some()));
    // A page that cannot be read makes the whole unknown.
    region.faults(
        &json!([{ "action": "DescribeInstances", "kind": "error", "code": "RequestExpired", "skip": 1 }]),
    );
    provider.list(&run()).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_is_found_in_whichever_region_it_is() {
    let (Some(one), Some(other)) = (Region::take(), Region::take()) else { return };
    let provider = provider();
    let here = persist(&provider, &key("n-0", 1), &shape(&one, &json!({}))).await;
    let there = persist(&provider, &key("n-1", 1), &shape(&other, &json!({}))).await;
    for (key, lease, region) in [(key("n-0", 1), &here, &one), (key("n-1", 1), &there, &other)] {
        match provider.find(&key).await {
            Reading::Present { facts, .. } => {
                assert_eq!(facts.lease.lease_id, lease.lease_id);
                assert_eq!(facts.lease.attributes["region"], region.name);
            }
            reading => panic!("{reading:?}"),
        }
    }
    assert_eq!(provider.list(&run()).await.unwrap().leases.len(), 2);
    // One region that cannot be read makes what is not found elsewhere unknown.
    other.faults(&json!([{ "action": "*", "kind": "error", "code": "RequestExpired", "times": -1 }]));
    assert!(matches!(provider.find(&key("n-0", 1)).await, Reading::Present { .. }));
    assert!(matches!(provider.find(&key("n-9", 1)).await, Reading::Unknown { .. }));
    provider.list(&run()).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_secret_is_in_any_error_or_debug_output() {
    let Some(region) = Region::take() else { return };
    let provider = provider();
    region.faults(&json!([{ "action": "*", "kind": "error", "code": "SignatureDoesNotMatch", "status": 403, "times": -1 }]));
    let error = failure(&provider, &key("n-0", 1), &shape(&region, &json!({}))).await;
    assert_eq!(error.kind, ExecutorErrorKind::Rejected(executor_api::RejectReason::Authorisation));
    let text = format!("{} {error:?} {provider:?} {:?}", error.summary(), template(json!({})));
    assert!(!text.contains("hunter2"), "{text}");
}
