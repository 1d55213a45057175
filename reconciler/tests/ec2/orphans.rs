//! `reconciler orphans` on EC2: it looks into the regions of the run, and not into the caller's own.

use std::time::SystemTime;

use executor_api::{
    AttemptKey, CandidateIndex, CreateMode, LeaseProvider as _, LogicalNodeId, NodeAttemptId,
    OperationContext, OperationId, RunId, SlotGroup,
};
use executor_ec2::Ec2Provider;
use executor_ec2::conformance::{config, shape, template};
use serde_json::{Value, json};

use crate::fleet::Fleet;
use crate::lab::wait;

/// Launches an instance for an attempt that is long over, as a launch that landed after everything else would.
fn launch_late(fleet: &Fleet, run: RunId, node: &str, attempt: u64) -> String {
    let attempt = NodeAttemptId(attempt);
    let node = LogicalNodeId::parse(node).unwrap();
    let key = AttemptKey { run, node: node.clone(), attempt };
    let group = executor_api::GroupId::new("web").unwrap();
    let ctx = OperationContext {
        attempt: key,
        operation: OperationId { attempt, sequence: 0 },
        candidate: CandidateIndex(0),
        deadline: SystemTime::now() + std::time::Duration::from_secs(20),
        group: SlotGroup { group: group.clone(), slots: std::sync::Arc::from([node.clone()]) },
    };
    let template = std::sync::Arc::new(template(shape(&fleet.region, &json!({}))));
    let desired = executor_api::LogicalNodeSpec { id: node, group, index: 0, template };
    let provider = Ec2Provider::new(config());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let made = runtime.block_on(provider.create(&ctx, &desired, CreateMode::CreateOrAdopt)).unwrap();
    let executor_api::CreateOutcome::Leased { lease, .. } = made else { panic!("nothing was leased") };
    lease.lease_id.0
}

#[test]
fn an_instance_of_an_attempt_that_is_over_is_found_in_its_region_and_ended_when_allowed() {
    let Some(fleet) = Fleet::new() else { return };
    let Fleet { lab, region } = &fleet;
    lab.write(&fleet.file("orphan", 2, "t3.small"));
    lab.ok(&["apply", "-q", "--timeout", "120s"]);
    let before = fleet.holds_exactly(2);
    lab.ok(&["replace", "web-0"]);
    lab.ok(&["apply", "-q", "--timeout", "120s"]);
    let after = fleet.holds_exactly(2);
    assert!(lab.ok(&["orphans"]).contains("no orphans"), "{}", lab.ok(&["orphans"]));

    // Of the first attempt EC2 has forgotten everything; now another launch of it lands.
    let over = before.keys().find(|lease| !after.contains_key(*lease)).unwrap();
    region.steer(&json!({ "forget": over }));
    region.config(&json!({ "tokens": false }));
    let uid = lab.status()["uid"].as_str().unwrap().to_owned();
    let orphan = launch_late(&fleet, RunId::new("orphan", &uid).unwrap(), "web-0", 1);
    assert_eq!(region.living().len(), 3);

    wait("the orphan to be listed", 30, || lab.output(&["orphans"]).status.code() == Some(2));
    wait("the orphan to be old enough, and ended", 60, || {
        let told = lab.output(&["orphans", "--destroy", "-o", "json"]);
        let told: Value = serde_json::from_slice(&told.stdout).unwrap();
        assert!(told["orphans"].as_array().unwrap().iter().all(|one| one["lease"] == orphan), "{told}");
        region.living().len() == 2
    });
    assert_eq!(fleet.holds_exactly(2), after);
    fleet.destroy();
}
