//! The public contract: every signature spelled, every listed struct built. A change here needs an ADR.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    reason = "a test: a panic is a failed test, and arguments are built where they are used"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use reconciler_core::*;
use support::*;

#[test]
fn every_public_function_has_its_signature() {
    let _: fn(&ClusterState, &ClusterShape, SystemTime) -> Result<ReconcilePlan, ReconcileError> = reconcile;
    let _: fn(&ManagedNode, Option<&LogicalNodeSpec>, SystemTime) -> NodeDecision = reconcile_node;
    let _: fn(&mut ManagedNode, NodeObservation, SystemTime, &RetryPolicy) = observe;
    let _: fn(&mut ManagedNode, NodeObservation, SystemTime, &RetryPolicy) -> Folded = fold;
    let _: fn(&mut ClusterState, &NodeAction, SystemTime, &RetryPolicy) -> Result<Applied, Stale> = apply;
    let _: fn(&ClusterShape) -> Result<BTreeMap<LogicalNodeId, LogicalNodeSpec>, ShapeError> =
        ClusterShape::expand;
    let _: fn(
        &ClusterState,
        &Expanded,
        &BTreeSet<LogicalNodeId>,
        SystemTime,
    ) -> Result<ReconcilePlan, ReconcileError> = reconcile_slots;
    let _: fn(&ClusterState, &Expanded, &LogicalNodeId, SystemTime) -> NodeDecision = decide_slot;
    let _: fn(&ClusterState, &Expanded) -> bool = is_converged;
    let _: fn(&ClusterState, &Expanded, &LogicalNodeId) -> bool = slot_converged;
    let _: fn(&ClusterShape) -> Result<Expanded, ShapeError> = Expanded::of;
    let _: fn(&ClusterState) -> Vec<check::Violation> = check::violations;
    let _ = expand_node_group(&group("web", 1, "a")).next();
}

#[test]
fn every_listed_struct_can_be_built_from_its_fields() {
    let desired = spec("a");
    let pending = PendingOperation {
        id: OperationId { attempt: NodeAttemptId(1), sequence: 0 },
        kind: OperationKind::CreateLease,
        deadline: at(30),
        extra: PendingExtra::default(),
    };
    let retry = RetryState {
        consecutive_failures: 0,
        next_effect_at: None,
        restart_at: None,
        last_error: None,
        ambiguous_operation: None,
        extra: RetryExtra::default(),
    };
    let record = NodeRecord {
        desired: desired.clone(),
        stage: NodeStage::LeaseRequested,
        lease: None,
        connection: None,
        bootstrap: None,
        member: None,
        handoff_complete: false,
        created_at: at(0),
        failed_reason: None,
        failed_at: None,
        destroyed_at: None,
    };
    let managed = ManagedNode {
        attempt: NodeAttemptId(1),
        intent: NodeIntent::Active,
        record,
        active_bootstrap: None,
        pending: Some(pending),
        next_operation_sequence: 1,
        retry,
        extra: NodeExtra::default(),
    };
    let state = ClusterState {
        observed_generation: 1,
        next_attempt_id: 2,
        nodes: BTreeMap::from([(slot("web-0"), managed)]),
        holds: Holds::default(),
    };
    assert_eq!(check::violations(&state), []);
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<ClusterState>(&text).unwrap(), state);

    let effect = PlannedEffect {
        node: slot("web-0"),
        operation: OperationId { attempt: NodeAttemptId(1), sequence: 0 },
        command: NodeManagerCommand::CreateLease {
            desired: desired.clone(),
            mode: CreateMode::CreateOrAdopt,
        },
    };
    let actions = vec![
        NodeAction::Insert { attempt: NodeAttemptId(1), desired: desired.clone() },
        NodeAction::BeginDelete { node: slot("web-0"), expected_attempt: NodeAttemptId(1) },
        NodeAction::MarkDestroyed { node: slot("web-0"), expected_attempt: NodeAttemptId(1) },
        NodeAction::Restart {
            node: slot("web-0"),
            expected_attempt: NodeAttemptId(1),
            new_attempt: NodeAttemptId(2),
            desired,
        },
        NodeAction::Reap { node: slot("web-0"), expected_attempt: NodeAttemptId(1) },
        NodeAction::Dispatch(effect),
    ];
    let plan =
        ReconcilePlan { actions, observed_generation: 1, requeue_at: None, extra: PlanExtra::default() };
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<ReconcilePlan>(&text).unwrap(), plan);

    let policy = RetryPolicy {
        initial_delay: Duration::from_secs(1),
        cap: Duration::from_mins(1),
        jitter_per_mille: 0,
        operation_timeout: Duration::from_secs(30),
        endpoint_probe_interval: Duration::from_secs(5),
        extra: PolicyExtra::default(),
    };
    assert_eq!(policy, RetryPolicy::default());
    let shape = ClusterShape { run_id: run_id(), generation: 1, groups: vec![] };
    assert_eq!(shape.expand().unwrap(), BTreeMap::new());
}
