//! The README's policy against the calls that are made. Every test here calls with the rights that it grants and no
//! others; this one sees to it that it grants nothing beyond.

use std::collections::BTreeSet;

use executor_api::{EndpointLookup, LeaseProvider as _};
use executor_ec2::conformance::world::granted;
use serde_json::json;

use crate::bench::{ctx, destroy, group, key, persist, provider, run, shape};
use crate::world::Region;

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_grants_exactly_the_calls_of_a_whole_life() {
    let Some(region) = Region::take() else { return };
    let (provider, key) = (provider(), key("n-0", 1));
    let wanted = shape(&region, &json!({ "endpoint": { "after": "status_checks" } }));
    provider.validate(&group(wanted.clone())).await.unwrap();
    let lease = persist(&provider, &key, &wanted).await;
    let found = provider.lookup_endpoint(&ctx(&key), &lease).await.unwrap();
    assert!(matches!(found, EndpointLookup::Found(_)), "{found:?}");
    provider.list(&run()).await.unwrap();
    provider.find(&key).await;
    destroy(&provider, &key, &lease).await;

    let told = region.steer(&json!({}));
    let called = told["log"].as_array().unwrap().iter();
    let mut called: BTreeSet<_> = called.map(|entry| entry["action"].as_str().unwrap().to_owned()).collect();
    // No call of its own: a launch that tags needs it.
    called.insert("CreateTags".to_owned());
    assert_eq!(called, granted().into_iter().collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_carry_the_tag_of_a_run_may_not_be_ended() {
    let Some(region) = Region::take() else { return };
    let (provider, key) = (provider(), key("n-0", 1));
    let lease = persist(&provider, &key, &shape(&region, &json!({}))).await;
    region.steer(&json!({ "change": { "id": lease.lease_id.0, "tags": { "reconciler/run": null } } }));
    let error = provider.destroy(&ctx(&key), &lease).await.unwrap_err();
    assert_eq!(region.living().len(), 1, "{}", error.summary());
}
