//! Many creates at once while answers are lost and late: exactly as many instances as were asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use executor_api::{LeaseProvider as _, Life, Listing};
use executor_ec2::{Ec2Config, Ec2Provider, Timeouts, Tokens};
use serde_json::json;

use crate::bench::{LATE, allowance, config, key, persist, provider, run, shape, target};
use crate::world::Region;

/// How many nodes; `EC2_MANY=500` is the long form.
fn many() -> usize {
    std::env::var("EC2_MANY").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

/// Every third launch loses its answer after the act, every tenth acts only after it was given up.
fn faults() -> serde_json::Value {
    json!([
        { "action": "RunInstances", "kind": "delay", "s": LATE, "every": 10, "times": -1 },
        { "action": "RunInstances", "when": "after", "kind": "drop", "every": 3, "times": -1 },
    ])
}

/// Creates all of them at once and compares what they hold with what there is.
async fn all_at_once(region: &Region, provider: Ec2Provider, count: usize) {
    let (provider, shape) = (Arc::new(provider), shape(region, &json!({})));
    // As many at a time as a driver would allow.
    let turns = Arc::new(tokio::sync::Semaphore::new(8));
    let nodes: Vec<_> = (0..count)
        .map(|index| {
            let (provider, shape, turns) = (Arc::clone(&provider), shape.clone(), Arc::clone(&turns));
            tokio::spawn(async move {
                let _turn = turns.acquire_owned().await.unwrap();
                persist(&provider, &key(&format!("n-{index}"), 1), &shape).await.lease_id.0
            })
        })
        .collect();
    let mut held = BTreeSet::new();
    for node in nodes {
        held.insert(node.await.unwrap());
    }
    allowance().await;
    let living: BTreeSet<_> = region.living().into_iter().map(|one| one.id).collect();
    assert_eq!(held.len(), count);
    assert_eq!(living, held, "no duplicate, no orphan");
    // Five hundred take a while to list: with the times of the real world.
    let patient = Ec2Config { timeouts: Timeouts::default(), targets: vec![target(region)], ..config() };
    let listing = list(&Ec2Provider::new(patient)).await;
    assert_eq!(listing.leases.iter().filter(|one| one.life == Life::Live).count(), count);
    let fired = region.fired();
    assert!(fired.iter().all(|fired| *fired > 0), "the faults happened: {fired:?}");
}

/// Lists, as the driver does: again until it is answered, for the world shares a machine with everything else here.
async fn list(provider: &Ec2Provider) -> Listing {
    let mut last = None;
    for _ in 0..10 {
        match provider.list(&run()).await {
            Ok(listing) => return listing,
            Err(error) => last = Some(error.summary()),
        }
    }
    panic!("no listing after 10 tries; the last: {last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_creates_with_lost_and_late_answers_make_sixty_instances() {
    let Some(region) = Region::take() else { return };
    region.config(&json!({ "lag_s": 0.3, "pending_s": 0.2 }));
    region.faults(&faults());
    all_at_once(&region, provider(), many()).await;
    assert_eq!(region.tokens().len(), many());
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_creates_where_tokens_are_ignored_make_sixty_instances_only_slower() {
    let Some(region) = Region::take() else { return };
    region.config(&json!({ "tokens": false, "lag_s": 0.3 }));
    region.faults(&faults());
    let provider = Ec2Provider::new(Ec2Config { tokens: Tokens::Ignored, ..config() });
    all_at_once(&region, provider, many()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_tokens_are_ignored_and_believed_in_there_are_duplicates() {
    // What the setting is for: the same world, without it.
    let Some(region) = Region::take() else { return };
    region.config(&json!({ "tokens": false, "lag_s": 0.6 }));
    region.faults(&json!([{ "action": "RunInstances", "when": "after", "kind": "drop" }]));
    persist(&provider(), &key("n-0", 1), &shape(&region, &json!({}))).await;
    assert_eq!(region.living().len(), 2);
}
