//! What is told before anything is created.

use executor_api::LeaseProvider as _;
use executor_ec2::{Ec2Config, Ec2Provider};
use serde_json::{Value, json};

use crate::bench::{config, group, key, persist, provider, run, shape, target};
use crate::world::Region;

async fn problems(region: &Region, changes: &Value) -> Vec<String> {
    match provider().validate(&group(shape(region, changes))).await {
        Ok(()) => Vec::new(),
        Err(found) => found.into_iter().map(|one| format!("{}: {}", one.pointer, one.message)).collect(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_group_passes_its_rehearsal_and_nothing_is_made() {
    let Some(region) = Region::take() else { return };
    assert_eq!(problems(&region, &json!({ "instance_types": ["t3.small", "t3.large"] })).await, [""; 0]);
    assert!(region.instances().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_exist_is_named_at_its_place() {
    let Some(region) = Region::take() else { return };
    let found = problems(&region, &json!({ "instance_types": ["t3.small", "t9.huge"] })).await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("/shape/instance_types/1: would be refused in region"), "{found:?}");
    assert!(found[0].contains("InvalidInstanceType.NotFound"), "{found:?}");

    region.config(&json!({ "images": ["ami-1"] }));
    let found = problems(&region, &json!({})).await;
    assert!(found[0].starts_with("/shape/image:"), "{found:?}");
    assert!(found[0].contains("write an image of this very region"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_region_blinds_no_listing() {
    let Some(region) = Region::take() else { return };
    let driving = Ec2Provider::new(Ec2Config { targets: vec![target(&region)], ..config() });
    let lease = persist(&driving, &key("n-0", 1), &shape(&region, &json!({}))).await;
    let edit = group(shape(&region, &json!({ "region": "eu-cental-1" })));
    let refused = driving.validate(&edit).await.unwrap_err();
    assert_eq!(refused[0].pointer, "/shape/region", "{refused:?}");
    let listing = driving.list(&run()).await.unwrap();
    assert!(listing.complete);
    let listed: Vec<_> = listing.leases.iter().map(|one| &one.lease.lease_id).collect();
    assert_eq!(listed, [&lease.lease_id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_are_one_clear_message() {
    let Some(region) = Region::take() else { return };
    region.faults(&json!([{ "action": "RunInstances", "kind": "error", "status": 403, "times": -1,
                            "code": "UnauthorizedOperation", "message": "You are not authorized" }]));
    let found = problems(&region, &json!({ "instance_types": ["t3.small", "t3.large", "m5.large"] })).await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("UnauthorizedOperation"), "{found:?}");
    assert!(found[0].contains("grant the rights listed"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_launch_and_not_look_is_told() {
    let Some(region) = Region::take() else { return };
    region.faults(&json!([{ "action": "DescribeInstances", "kind": "error", "status": 403, "times": -1,
                            "code": "UnauthorizedOperation" }]));
    assert_eq!(problems(&region, &json!({})).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_out_of_reach_is_not_the_specs_fault() {
    let Some(region) = Region::take() else { return };
    region.faults(
        &json!([{ "action": "*", "kind": "error", "status": 503, "times": -1, "code": "Unavailable" }]),
    );
    assert_eq!(problems(&region, &json!({})).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reserved_tag_is_refused_without_asking_anybody() {
    let Some(region) = Region::take() else { return };
    let found = problems(&region, &json!({ "tags": { "reconciler/node": "x" } })).await;
    assert!(found[0].starts_with("/shape/tags/reconciler~1node: the key"), "{found:?}");
    assert_eq!(region.calls("RunInstances"), 0);
}
