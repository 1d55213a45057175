//! Many slots at once: insertion, removal, replacement, limits, holds, and the ids given out.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    reason = "a test: a panic is a failed test, and arguments are built where they are used"
)]

mod support;

use std::collections::BTreeSet;

use expect_test::{Expect, expect};
use reconciler_core::*;
use support::*;

fn render(plan: &ReconcilePlan) -> String {
    let mut lines: Vec<_> = plan
        .actions
        .iter()
        .zip(&plan.extra.reasons)
        .map(|(action, why)| format!("{} {} {}: {why}", action.node(), action.attempt(), action.name()))
        .collect();
    lines.extend(plan.extra.waiting.iter().map(|w| format!("{} waits: {}", w.node, w.why)));
    lines.join("\n") + "\n"
}

#[track_caller]
fn check(state: &ClusterState, desired: &ClusterShape, now: u64, expected: Expect) {
    let plan = reconcile(state, desired, at(now)).unwrap();
    assert!(plan.actions.is_sorted_by(|a, b| a.node() < b.node()), "not one action per slot, in order");
    assert_eq!(plan.observed_generation, desired.generation);
    expected.assert_eq(&render(&plan));
}

/// `web` with nodes built by `build(index)`.
fn cluster(count: u32, build: impl Fn(u32) -> Build) -> ClusterState {
    let mut state = ClusterState::default();
    for index in 0..count {
        let mut node = build(index).0;
        node.record.desired = expand_node_group(&group("web", count, "a")).nth(index as usize).unwrap();
        node.attempt = NodeAttemptId(state.next_attempt_id);
        state.next_attempt_id += 1;
        state.nodes.insert(node.record.desired.id.clone(), node);
    }
    state
}

#[test]
fn missing_slots_are_inserted_with_ids_in_order() {
    check(
        &ClusterState::default(),
        &web(1, 3, "a"),
        0,
        expect![[r#"
        web-0 a1 insert: declared
        web-1 a2 insert: declared
        web-2 a3 insert: declared
    "#]],
    );
}

#[test]
fn scaling_down_removes_the_higher_indices() {
    check(
        &cluster(3, |_| node().ready()),
        &web(2, 1, "a"),
        0,
        expect![[r#"
        web-1 a2 begin-delete: absent from desired
        web-2 a3 begin-delete: absent from desired
    "#]],
    );
}

#[test]
fn a_changed_spec_replaces_all_at_once_without_a_limit() {
    check(
        &cluster(3, |_| node().ready()),
        &web(2, 3, "b"),
        0,
        expect![[r#"
        web-0 a1 begin-delete: spec changed: shape
        web-1 a2 begin-delete: spec changed: shape
        web-2 a3 begin-delete: spec changed: shape
    "#]],
    );
}

#[test]
fn a_limit_takes_down_no_more_than_it_allows() {
    let limited = |generation, size: &str| {
        let mut desired = web(generation, 4, size);
        desired.groups[0].update.max_unavailable = Some(2);
        desired
    };
    check(
        &cluster(4, |_| node().ready()),
        &limited(2, "b"),
        0,
        expect![[r#"
        web-0 a1 begin-delete: spec changed: shape
        web-1 a2 begin-delete: spec changed: shape
        web-2 waits: 2 of group web unavailable, limit 2
        web-3 waits: 2 of group web unavailable, limit 2
    "#]],
    );
    // One is down already: one more may follow. What is not up may always be replaced.
    let one_down = cluster(4, |index| if index == 3 { node().booting() } else { node().ready() });
    check(
        &one_down,
        &limited(2, "b"),
        0,
        expect![[r#"
        web-0 a1 begin-delete: spec changed: shape
        web-3 a4 begin-delete: spec changed: shape
        web-1 waits: 2 of group web unavailable, limit 2
        web-2 waits: 2 of group web unavailable, limit 2
    "#]],
    );
    // A limit never delays a removal or the cleanup of a failure.
    let failed = cluster(4, |_| node().ready().failed("exit 1"));
    check(
        &failed,
        &limited(2, "a"),
        0,
        expect![[r#"
        web-0 a1 begin-delete: attempt failed: exit 1
        web-1 a2 begin-delete: attempt failed: exit 1
        web-2 a3 begin-delete: attempt failed: exit 1
        web-3 a4 begin-delete: attempt failed: exit 1
    "#]],
    );
}

#[test]
fn a_hold_stops_the_slot_and_no_other() {
    let mut state = cluster(3, |_| node().ready());
    let hold = Hold { by: HoldBy::Maintenance, reason: "bond flip".into(), since: at(0) };
    state.holds.hold(Some(slot("web-1")), hold);
    check(
        &state,
        &web(2, 3, "b"),
        0,
        expect![[r#"
        web-0 a1 begin-delete: spec changed: shape
        web-2 a3 begin-delete: spec changed: shape
        web-1 waits: held by maintenance: bond flip
    "#]],
    );
    assert!(state.holds.release(Some(&slot("web-1")), HoldBy::Maintenance));
    assert!(!state.holds.release(Some(&slot("web-1")), HoldBy::Maintenance));
    assert_eq!(state.holds, Holds::default());
}

#[test]
fn a_held_cluster_does_nothing() {
    let mut state = cluster(1, |_| node().ready().failed("exit 1"));
    let hold = Hold { by: HoldBy::Operator, reason: "looking into it".into(), since: at(0) };
    state.holds.hold(None, hold);
    check(
        &state,
        &web(2, 2, "a"),
        0,
        expect![[r#"
        web-0 waits: held by operator: looking into it
        web-1 waits: held by operator: looking into it
    "#]],
    );
    let lost = NodeObservation::LeaseLost { lease: lease().lease_id, reason: "gone".into() };
    assert_eq!(
        state.holds.soften(&slot("web-0"), lost),
        NodeObservation::Suspected { reason: "gone".into() }
    );
}

#[test]
fn attempt_ids_at_the_end_are_an_error_and_not_a_wrap() {
    let state = ClusterState { next_attempt_id: u64::MAX, ..ClusterState::default() };
    let error = reconcile(&state, &web(1, 1, "a"), at(0)).unwrap_err();
    expect!["attempt ids are used up: no attempt can be started for web-0; create a new run"]
        .assert_eq(&error.to_string());
}

#[test]
fn the_requeue_time_is_the_earliest_of_all() {
    let state = cluster(3, |index| match index {
        0 => node().backoff(20),
        1 => node().pending(OperationKind::CreateLease),
        _ => node().booting(),
    });
    let plan = reconcile(&state, &web(1, 3, "a"), at(0)).unwrap();
    assert_eq!(plan.requeue_at, Some(at(20)));
    let ready = cluster(3, |_| node().ready());
    assert_eq!(reconcile(&ready, &web(1, 3, "a"), at(0)).unwrap().requeue_at, None);
}

#[test]
fn convergence_is_more_than_an_acknowledged_generation() {
    let desired = web(1, 2, "a");
    let expanded = Expanded::of(&desired).unwrap();
    let mut state = cluster(2, |_| node().ready());
    state.observed_generation = 1;
    assert!(is_converged(&state, &expanded));
    let pending = cluster(2, |_| node().ready().pending(OperationKind::LookupEndpoint));
    assert!(!is_converged(&pending, &expanded));
    let extra = cluster(3, |_| node().ready());
    assert!(!is_converged(&extra, &expanded));
    let deleting = cluster(2, |_| node().ready().deleting());
    assert!(!is_converged(&deleting, &expanded));
    assert!(!is_converged(&ClusterState::default(), &expanded));
}

#[test]
fn some_slots_are_decided_as_all_of_them_would_be() {
    let state = cluster(4, |index| match index {
        0 => node().leased(),
        1 => node().ready(),
        2 => node().booting().failed("exit 1"),
        _ => node().destroyed(),
    });
    let desired = web(2, 4, "a");
    let all = reconcile(&state, &desired, at(0)).unwrap();
    let some: BTreeSet<_> = [slot("web-0"), slot("web-2")].into();
    let part = reconcile_slots(&state, &Expanded::of(&desired).unwrap(), &some, at(0)).unwrap();
    let expected: Vec<_> = all.actions.iter().filter(|a| some.contains(a.node())).cloned().collect();
    assert_eq!(part.actions, expected);
}

#[test]
fn a_shape_that_cannot_be_expanded_is_refused() {
    let twice = shape(1, vec![group("web", 1, "a"), group("web", 2, "b")]);
    let mut foreign = web(1, 1, "a");
    foreign.groups[0].run_id = RunId::new("other", "u2").unwrap();
    let mut never = web(1, 1, "a");
    never.groups[0].update.max_unavailable = Some(0);
    let errors: Vec<_> = [twice, foreign, web(1, u32::MAX, "a"), never]
        .iter()
        .map(|shape| shape.expand().unwrap_err().to_string())
        .collect();
    expect![[r#"
        group web is declared twice; group names must be unique
        group web belongs to run other (u2), not to demo (u1)
        the shape declares 4294967295 nodes; at most 1000000 are allowed
        group web: max_unavailable must be at least 1, or absent for no limit
    "#]]
    .assert_eq(&(errors.join("\n") + "\n"));
}
