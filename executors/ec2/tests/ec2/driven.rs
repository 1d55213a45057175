//! The provider under the real driver, in the situations by which it is known here; timing scaled to hundreds of
//! milliseconds. Afterwards the world holds exactly what is declared.

use std::sync::Arc;
use std::time::Duration;

use executor_api::{Executor, RunNodeGroupSpec};
use executor_ec2::Ec2Provider;
use reconciler_core::{ClusterShape, PolicyExtra, RetryPolicy};
use reconciler_driver::{DriverHandle, ExecutorTable, MemoryStore, ShellConfig, start};
use serde_json::{Value, json};

use crate::bench::{CALL, LATE, config, group, run, shape};
use crate::world::Region;
use executor_ec2::conformance::sessions::Sessions;

/// Timing of the driver, scaled.
fn policy() -> RetryPolicy {
    RetryPolicy {
        initial_delay: Duration::from_millis(100),
        cap: Duration::from_millis(800),
        jitter_per_mille: 0,
        operation_timeout: CALL,
        endpoint_probe_interval: Duration::from_millis(200),
        extra: PolicyExtra {
            observe_every: Duration::from_millis(500),
            tick_every: Duration::from_millis(500),
            create_share: 10,
            cleanup_share: 10,
            stable_after: Duration::ZERO,
            ..PolicyExtra::default()
        },
    }
}

struct Cluster {
    region: Arc<Region>,
    driver: DriverHandle,
    generation: u64,
}

impl Cluster {
    /// A driver without any state on this region.
    async fn start(region: Arc<Region>, count: u32, changes: &Value) -> Self {
        let leases = Arc::new(Ec2Provider::new(config()));
        let executor = Executor::new(leases, Arc::new(Sessions::new(Arc::clone(&region))));
        let executors = ExecutorTable::new().with_executor(executor);
        let desired = declared(&region, 1, count, changes);
        let store = Box::new(MemoryStore::new());
        let driver = start(ShellConfig { policy: policy(), ..ShellConfig::new(desired, executors, store) });
        let driver = driver.await.unwrap();
        Self { region, driver, generation: 1 }
    }

    async fn declare(&mut self, count: u32, changes: &Value) {
        self.generation += 1;
        let desired = declared(&self.region, self.generation, count, changes);
        self.driver.set_desired(desired).await.unwrap();
    }

    /// Waits until the cluster is what is declared, and the world holds exactly that.
    async fn converges_to(&self, count: usize) {
        let converged = tokio::time::timeout(Duration::from_secs(40), self.driver.converged()).await;
        let status = self.driver.snapshot().await.unwrap();
        assert!(converged.is_ok(), "it did not converge: {status:#?}");
        let mut held: Vec<_> =
            status.nodes.iter().filter_map(|node| Some(node.lease_id.clone()?.0)).collect();
        let mut living: Vec<_> = self.region.living().into_iter().map(|one| one.id).collect();
        held.sort();
        living.sort();
        assert_eq!(held, living, "the world holds what the driver holds");
        assert_eq!(living.len(), count);
    }

    /// The number of each slot's attempt.
    async fn attempts(&self) -> Vec<u64> {
        let status = self.driver.snapshot().await.unwrap();
        status.nodes.iter().filter_map(|node| node.attempt.map(|attempt| attempt.0)).collect()
    }

    /// Waits until a node says this in its last error.
    async fn complains(&self, of: &str) {
        for _ in 0..100 {
            let status = self.driver.snapshot().await.unwrap();
            if status.nodes.iter().any(|node| node.last_error.as_deref().is_some_and(|e| e.contains(of))) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("nobody complains of {of}: {:#?}", self.driver.snapshot().await);
    }
}

fn declared(region: &Region, generation: u64, count: u32, changes: &Value) -> ClusterShape {
    let group = RunNodeGroupSpec { count, ..group(shape(region, changes)) };
    let groups = if count == 0 { Vec::new() } else { vec![group] };
    ClusterShape { run_id: run(), generation, groups }
}

#[tokio::test(flavor = "multi_thread")]
async fn h01_driven_the_answer_is_lost_and_the_listing_blind() {
    let Some(region) = Region::take() else { return };
    region.config(&json!({ "lag_s": 0.4, "id_lag_s": 0.4, "pending_s": 0.2 }));
    region.faults(&json!([{ "action": "RunInstances", "when": "after", "kind": "drop" }]));
    let cluster = Cluster::start(Arc::new(region), 1, &json!({})).await;
    cluster.converges_to(1).await;
    assert_eq!(cluster.region.tokens().len(), 1);
    assert_eq!(cluster.attempts().await, [1], "still the first attempt");
}

#[tokio::test(flavor = "multi_thread")]
async fn h02_driven_a_mismatch_is_neither_a_refusal_nor_a_reason_for_another_attempt() {
    let Some(region) = Region::take() else { return };
    region.config(&json!({ "lag_s": 1.5, "id_lag_s": 0.2 }));
    region.faults(&json!([
        { "action": "RunInstances", "when": "after", "kind": "drop" },
        { "action": "RunInstances", "kind": "error", "status": 400, "code": "IdempotentParameterMismatch" },
    ]));
    let cluster = Cluster::start(Arc::new(region), 1, &json!({})).await;
    cluster.complains("accepted with other parameters").await;
    cluster.converges_to(1).await;
    assert_eq!(cluster.attempts().await, [1], "still the first attempt");
    assert_eq!(cluster.region.instances().len(), 1, "never more than one");
}

#[tokio::test(flavor = "multi_thread")]
async fn h02_driven_another_spec_is_another_attempt_and_no_mismatch() {
    let Some(region) = Region::take() else { return };
    region.faults(&json!([{ "action": "RunInstances", "kind": "error", "status": 400, "times": -1,
                            "code": "InsufficientInstanceCapacity", "match": { "InstanceType": "t3.small" } }]));
    let mut cluster = Cluster::start(Arc::new(region), 1, &json!({})).await;
    cluster.complains("InsufficientInstanceCapacity").await;
    cluster.declare(1, &json!({ "instance_types": ["t3.large"] })).await;
    cluster.converges_to(1).await;
    assert_eq!(cluster.attempts().await, [2]);
    assert_eq!(cluster.region.instances().len(), 1);
    assert_eq!(cluster.region.the_only_one().kind, "t3.large");
}

#[tokio::test(flavor = "multi_thread")]
async fn h03_driven_a_spent_token_ends_the_attempt_and_the_next_is_ready() {
    let Some(region) = Region::take() else { return };
    region.config(&json!({ "lag_s": 0.4 }));
    // The answer is lost, and every lookup fails until the instance has been reclaimed.
    region.faults(&json!([
        { "action": "RunInstances", "when": "after", "kind": "drop" },
        { "action": "DescribeInstances", "kind": "error", "status": 500, "code": "InternalError", "skip": 1, "times": -1,
          "match": { "Filter.1.Name": "tag:reconciler/attempt" } },
    ]));
    let cluster = Cluster::start(Arc::new(region), 1, &json!({})).await;
    cluster.complains("InternalError").await;
    let first = cluster.region.the_only_one().id;
    let end = json!({ "instance_id": first, "code": "Server.SpotInstanceTermination", "message": "" });
    cluster.region.steer(&json!({ "end": end, "rules": [] }));
    cluster.converges_to(1).await;
    assert_ne!(cluster.region.the_only_one().id, first);
    assert_eq!(cluster.region.tokens().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn h04_driven_three_refused_creates_made_an_instance_each_and_scale_to_zero_leaves_none() {
    let Some(region) = Region::take() else { return };
    // Tokens are ignored and the listing is honest and immediate: the lookup alone has to do it.
    region.config(&json!({ "tokens": false }));
    region.faults(&json!([{ "action": "RunInstances", "when": "after", "kind": "error", "status": 503,
                            "code": "ServiceUnavailable", "times": 3 }]));
    let mut cluster = Cluster::start(Arc::new(region), 1, &json!({})).await;
    cluster.converges_to(1).await;
    cluster.declare(0, &json!({})).await;
    cluster.converges_to(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h07_driven_expired_credentials_end_no_ready_node() {
    let Some(region) = Region::take() else { return };
    let mut cluster = Cluster::start(Arc::new(region), 4, &json!({})).await;
    cluster.converges_to(4).await;
    let before = cluster.attempts().await;
    cluster.region.faults(&json!([{ "action": "*", "kind": "error", "status": 400, "times": -1,
                                    "code": "RequestExpired", "message": "Request has expired." }]));
    cluster.declare(3, &json!({})).await;
    cluster.complains("RequestExpired").await;
    assert_eq!(cluster.region.living().len(), 4, "nothing was ended, and nothing was believed to be");
    cluster.region.faults(&json!([]));
    cluster.converges_to(3).await;
    assert_eq!(cluster.attempts().await, before[..3], "the other three were left alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn h10_driven_the_whole_group_runs_into_the_operation_timeout() {
    let Some(region) = Region::take() else { return };
    region.config(&json!({ "lag_s": 0.4 }));
    region.faults(&json!([{ "action": "RunInstances", "kind": "delay", "s": LATE, "times": 10 }]));
    let cluster = Cluster::start(Arc::new(region), 10, &json!({})).await;
    cluster.converges_to(10).await;
    assert_eq!(cluster.region.tokens().len(), 10, "ten tokens in all");
    assert_eq!(cluster.region.instances().len(), 10, "never more than ten");
}

#[tokio::test(flavor = "multi_thread")]
async fn h14_driven_a_capacity_outage_stops_nobody_else() {
    let Some(region) = Region::take() else { return };
    region
        .faults(&json!([{ "action": "RunInstances", "kind": "error", "status": 500, "times": -1, "skip": 3,
                            "code": "InsufficientInstanceCapacity" }]));
    let cluster = Cluster::start(Arc::new(region), 4, &json!({})).await;
    cluster.complains("InsufficientInstanceCapacity").await;
    while cluster.driver.snapshot().await.unwrap().nodes.iter().filter(|node| node.ready).count() < 3 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(cluster.region.living().len(), 3);
    let before = cluster.attempts().await;
    cluster.region.faults(&json!([]));
    cluster.converges_to(4).await;
    assert_eq!(cluster.attempts().await, before, "a refused create uses up no attempt");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_dies_behind_our_back_is_replaced_and_a_changed_spec_replaces_all() {
    let Some(region) = Region::take() else { return };
    let mut cluster = Cluster::start(Arc::new(region), 3, &json!({})).await;
    cluster.converges_to(3).await;
    let lost = cluster.region.living()[0].id.clone();
    let end = json!({ "instance_id": lost, "code": "Server.InternalError", "message": "" });
    cluster.region.steer(&json!({ "end": end }));
    while cluster.region.living().len() < 3 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster.converges_to(3).await;
    cluster.declare(3, &json!({ "instance_types": ["t3.large"] })).await;
    cluster.converges_to(3).await;
    assert!(cluster.region.living().iter().all(|one| one.kind == "t3.large"));
}
