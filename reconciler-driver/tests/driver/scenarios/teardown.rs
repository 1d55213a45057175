//! Deleting while creating, deleting what is not there, and answers that only look like "gone".

use std::time::Duration;

use executor_api::{RejectReason, Visibility};
use executor_fake::{CallKind, FakeBehaviour, Fault, Joining, NodeBehaviour, Rule, Silence};
use expect_test::expect;

use crate::support::{Stage, at, group, policy, secs, shape, slot};

/// A world without delays but those named.
fn quick(change: impl FnOnce(&mut NodeBehaviour)) -> FakeBehaviour {
    let mut behaviour = FakeBehaviour::instant();
    change(&mut behaviour.node);
    behaviour
}

#[test]
fn h05a_a_slot_deleted_while_its_create_runs_destroys_what_the_create_made() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), quick(|n| n.create = secs(20)));
    stage.run_to(5);
    stage.ask(shape(2, vec![]));
    stage.run_to(19);
    assert!(!stage.runner.driver().is_converged(), "success reported before anything was cleaned up");
    stage.settle(60);
    expect![[r#"
        +0s  n-0 a1  insert              declared
        +0s  n-0 a1  create-lease        no lease
        +5s  n-0 a1  begin-delete        absent from desired
        +20s  n-0 a1  destroy-lease       lease i-1 held
        +20s  n-0 a1  mark-destroyed      nothing left to clean
        +20s  n-0 a1  reap                absent from desired"#]]
    .assert_eq(&stage.trace());
}

#[test]
fn h05b_a_lost_create_of_a_deleted_slot_is_looked_up_and_destroyed() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), quick(|n| n.create = secs(20)));
    stage.script(Rule::new(CallKind::Create, Fault::AnswerLost(Silence::Hangs)));
    stage.run_to(5);
    stage.ask(shape(2, vec![]));
    stage.run_to(29);
    assert_eq!(stage.steps("mark-destroyed"), 0);
    stage.settle(60);
    expect![[r#"
        +0s  n-0 a1  insert              declared
        +0s  n-0 a1  create-lease        no lease
        +5s  n-0 a1  begin-delete        absent from desired
        +30s  n-0 a1  timed-out           create-lease a1.0 stopped at its deadline
        +30s  n-0 a1  create-lease        outcome of create-lease unknown: adopt or prove absent
        +30s  n-0 a1  destroy-lease       lease i-1 held
        +30s  n-0 a1  mark-destroyed      nothing left to clean
        +30s  n-0 a1  reap                absent from desired"#]]
    .assert_eq(&stage.trace());
}

#[test]
fn h06a_a_slot_that_never_got_a_lease_is_reaped_without_a_destroy() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), quick(|_| {}));
    stage.script(Rule::new(CallKind::Create, Fault::Rejected(RejectReason::Quota)).always());
    stage.run_to(10);
    stage.ask(shape(2, vec![]));
    stage.settle(1);
    assert_eq!(stage.calls(CallKind::Destroy), 0);
}

#[test]
fn h06b_a_lease_that_was_removed_by_hand_is_destroyed_in_one_call() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), quick(|_| {}));
    stage.settle(60);
    stage.run_to(3600);
    stage.ask(shape(2, vec![]));
    stage.world.vanish(&stage.world.existing_leases()[0].id);
    stage.settle(60);
    assert_eq!(stage.calls(CallKind::Destroy), 1);
}

#[test]
fn h07a_a_throttled_provider_is_no_proof_of_absence() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), quick(|_| {}));
    stage.settle(60);
    stage.run_to(10);
    let throttled = Fault::Throttled { retry_after: None };
    stage.script(Rule::new(CallKind::Destroy, throttled).always().until(at(70)));
    stage.ask(shape(2, vec![]));
    stage.run_to(69);
    let node = &stage.runner.driver().state().nodes[&slot("n-0")];
    assert!(node.record.lease.is_some(), "lease facts were dropped without a real answer");
    stage.settle(120);
}

#[test]
fn h07b_expired_credentials_end_no_ready_node_and_delay_by_at_most_one_cap() {
    let mut stage = Stage::with(shape(1, vec![group("n", 5, 1)]), policy(), quick(|_| {}));
    stage.settle(60);
    stage.run_to(10);
    let refused = Fault::Rejected(RejectReason::Authorisation);
    for call in [CallKind::Create, CallKind::Destroy, CallKind::Lookup, CallKind::Start, CallKind::Cancel] {
        stage.script(Rule::new(call, refused).always().until(at(200)));
    }
    stage.script(Rule::new(CallKind::List, Fault::Unknown).always().until(at(200)));
    stage.ask(shape(2, vec![group("n", 4, 1)]));
    stage.run_to(199);
    assert_eq!(stage.runner.driver().ready(), 4);
    assert!(stage.runner.driver().counters().listing_failures > 10);
    stage.run_to(260);
    stage.assert_converged();
    assert_eq!(stage.steps("insert"), 5);
}

#[test]
fn h07c_not_found_for_a_lease_too_young_to_be_seen_is_tried_again() {
    let mut behaviour = quick(|node| node.join = Joining::Never);
    behaviour.visibility = Visibility { listing_lag: secs(60), late_landing: Duration::ZERO };
    behaviour.direct_lag = secs(6);
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), behaviour);
    stage.run_to(2);
    stage.ask(shape(2, vec![]));
    stage.settle(120);
    assert!(stage.calls(CallKind::Destroy) > 1);
    assert_eq!(stage.world.existing_leases(), []);
}

#[test]
fn h07d_one_empty_listing_only_makes_nodes_suspect() {
    let mut stage = Stage::with(shape(1, vec![group("n", 3, 1)]), policy(), quick(|_| {}));
    stage.settle(60);
    stage.script(Rule::new(CallKind::List, Fault::Empty).from(at(15)));
    stage.run_to(25);
    let suspect = |stage: &Stage| {
        let nodes = stage.runner.driver().state().nodes.values();
        nodes.filter(|node| node.extra.suspect_since.is_some()).count()
    };
    assert_eq!(suspect(&stage), 3);
    stage.run_to(60);
    assert_eq!(suspect(&stage), 0);
    stage.assert_converged();
    assert_eq!(stage.steps("begin-delete"), 0);
}

#[test]
fn h08_a_spec_that_comes_back_while_deleting_does_not_resurrect_the_attempt() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), quick(|n| n.destroy = secs(14)));
    stage.settle(60);
    stage.run_to(10);
    stage.ask(shape(2, vec![group("n", 1, 2)]));
    stage.run_to(11);
    stage.ask(shape(3, vec![group("n", 1, 1)]));
    stage.settle(60);
    expect![[r#"
        +0s  n-0 a1  insert              declared
        +0s  n-0 a1  create-lease        no lease
        +0s  n-0 a1  start-bootstrap     no bootstrap session
        +0s  n-0 a1  complete-bootstrap  member joined
        +10s  n-0 a1  begin-delete        spec changed: role
        +10s  n-0 a1  destroy-lease       lease i-1 held
        +24s  n-0 a1  mark-destroyed      nothing left to clean
        +24s  n-0 a2  restart             slot free
        +24s  n-0 a2  create-lease        no lease
        +24s  n-0 a2  start-bootstrap     no bootstrap session
        +24s  n-0 a2  complete-bootstrap  member joined"#]]
    .assert_eq(&stage.trace());
    assert_eq!(stage.world.creates_by_token().len(), 2);
}

#[test]
fn h08_a_slot_that_comes_back_while_deleting_gets_a_new_attempt() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), quick(|n| n.destroy = secs(14)));
    stage.settle(60);
    stage.run_to(10);
    stage.ask(shape(2, vec![]));
    stage.run_to(11);
    stage.ask(shape(3, vec![group("n", 1, 1)]));
    stage.settle(60);
    assert_eq!(stage.attempt("n-0"), 2);
    assert_eq!(stage.world.creates_by_token().len(), 2);
    assert_eq!(stage.steps("reap"), 0);
}
