//! What each outcome and observation changes: success (spec 7.1), failure (spec 11), and what is dropped.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    reason = "a test: a panic is a failed test, and arguments are built where they are used"
)]

mod support;

use executor_api::{EffectSuccess, ExecutorErrorKind, MemberFacts, NodeDeadline, RejectReason, Visibility};
use expect_test::{Expect, expect};
use reconciler_core::*;
use std::time::Duration;
use support::*;

const CREATE: OperationKind = OperationKind::CreateLease;
const LOOKUP: OperationKind = OperationKind::LookupEndpoint;
const START: OperationKind = OperationKind::StartBootstrap;
const COMPLETE: OperationKind = OperationKind::BootstrapConvergenceObserved;
const CANCEL: OperationKind = OperationKind::CancelBootstrap;
const DESTROY: OperationKind = OperationKind::DestroyLease;

#[track_caller]
fn check(node: Build, observation: NodeObservation, expected: Expect) {
    expected.assert_eq(&folded(node, observation, 10, &RetryPolicy::default()));
}

fn leased(with_endpoint: bool) -> EffectSuccess {
    EffectSuccess::LeaseCreated { lease: lease(), endpoint: with_endpoint.then(endpoint) }
}

#[test]
fn successes_store_their_facts() {
    check(
        node().pending(CREATE),
        ok(0, leased(false)),
        expect![[r#"
        lease l-1
          lease-created lease=l-1"#]],
    );
    check(
        node().pending(CREATE),
        ok(0, leased(true)),
        expect![[r#"
        lease l-1 at 127.0.0.1:80
          endpoint-known lease=l-1 endpoint=127.0.0.1:80"#]],
    );
    let found = EffectSuccess::EndpointFound { endpoint: endpoint() };
    check(
        node().leased().pending(LOOKUP),
        ok(0, found),
        expect![[r#"
        endpoint 127.0.0.1:80
          endpoint-known lease=l-1 endpoint=127.0.0.1:80"#]],
    );
    let not_ready = EffectSuccess::EndpointNotReady { reason: "no address".into() };
    check(
        node().leased().pending(LOOKUP),
        ok(0, not_ready),
        expect![[r#"
        not reachable yet: no address
          lease-created lease=l-1 next=+15s"#]],
    );
    let started = EffectSuccess::BootstrapStarted { session: session() };
    check(
        node().reachable().pending(START),
        ok(0, started),
        expect![[r#"
        session bs-1 started
          bootstrap-running lease=l-1 endpoint=127.0.0.1:80 session=bs-1 join-by=+610s"#]],
    );
    check(
        node().joined().pending(COMPLETE),
        ok(0, EffectSuccess::BootstrapCompleted),
        expect![[r#"
        ready
          dormant lease=l-1 endpoint=127.0.0.1:80 member=web-0"#]],
    );
    let cancelled = EffectSuccess::BootstrapCancelled;
    check(
        node().booting().deleting().pending(CANCEL),
        ok(0, cancelled),
        expect![[r#"
        session bs-1 closed
          bootstrap-running lease=l-1 endpoint=127.0.0.1:80 join-by=+600s"#]],
    );
    let destroyed = EffectSuccess::LeaseDestroyed;
    check(
        node().reachable().deleting().pending(DESTROY),
        ok(0, destroyed),
        expect![[r#"
        lease gone
          endpoint-known"#]],
    );
}

#[test]
fn failures_that_are_retried_within_the_attempt() {
    let quota = ExecutorErrorKind::Rejected(RejectReason::Quota);
    check(
        node().pending(CREATE),
        err(0, quota),
        expect![[r#"
        create-lease failed: it broke
          new failures=1 next=+11s"#]],
    );
    check(
        node().leased().pending(LOOKUP),
        err(0, ExecutorErrorKind::Unavailable),
        expect![[r#"
        lookup-endpoint failed: it broke
          lease-created lease=l-1 failures=1 next=+11s"#]],
    );
    check(
        node().joined().pending(COMPLETE),
        err(0, ExecutorErrorKind::Ambiguous),
        expect![[r#"
        complete-bootstrap failed: it broke
          joined lease=l-1 endpoint=127.0.0.1:80 session=bs-1 member=web-0 failures=1 next=+11s"#]],
    );
    check(
        node().booting().deleting().pending(CANCEL),
        timed_out(0),
        expect![[r#"
        cancel-bootstrap failed: operation a1.0 passed its deadline and was stopped
          bootstrap-running lease=l-1 endpoint=127.0.0.1:80 session=bs-1 failures=1 next=+11s join-by=+600s"#]],
    );
    check(
        node().leased().deleting().pending(DESTROY),
        timed_out(0),
        expect![[r#"
        destroy-lease failed: operation a1.0 passed its deadline and was stopped
          lease-created lease=l-1 failures=1 next=+11s"#]],
    );
}

#[test]
fn failures_that_end_the_attempt() {
    check(
        node().reachable().pending(START),
        err(0, ExecutorErrorKind::Unavailable),
        expect![[r#"
        attempt failed: it broke
          failed lease=l-1 endpoint=127.0.0.1:80 failures=1 restart=+11s reason=it broke"#]],
    );
    check(
        node().reachable().pending(START),
        timed_out(0),
        expect![[r#"
        attempt failed: operation a1.0 passed its deadline and was stopped
          failed lease=l-1 endpoint=127.0.0.1:80 unknown=start-bootstrap absent-counts=+70s failures=1 restart=+11s reason=operation a1.0 passed its deadline and was stopped"#]],
    );
    let failed = NodeObservation::BootstrapFailed { session: session(), reason: "exit status 1".into() };
    check(
        node().booting(),
        failed.clone(),
        expect![[r#"
        attempt failed: exit status 1
          failed lease=l-1 endpoint=127.0.0.1:80 session=bs-1 failures=1 restart=+11s reason=exit status 1"#]],
    );
    check(
        node().joined(),
        failed,
        expect![[r#"
        attempt failed: exit status 1
          failed lease=l-1 endpoint=127.0.0.1:80 session=bs-1 member=web-0 failures=1 restart=+11s reason=exit status 1"#]],
    );
    check(
        node().pending(CREATE),
        err(0, ExecutorErrorKind::Gone),
        expect![[r#"
        attempt failed: it broke
          failed failures=1 restart=+11s reason=it broke"#]],
    );
    check(
        node().leased().pending(LOOKUP),
        err(0, ExecutorErrorKind::Gone),
        expect![[r#"
        attempt failed: it broke
          failed lease=l-1 failures=1 restart=+11s reason=it broke"#]],
    );
}

#[test]
fn a_throttle_slows_the_node_down_and_is_not_its_failure() {
    let asked = ExecutorErrorKind::Throttled { retry_after: Some(Duration::from_secs(17)) };
    check(
        node().pending(CREATE),
        err(0, asked),
        expect![[r#"
        create-lease failed: it broke
          new next=+27s"#]],
    );
    let silent = ExecutorErrorKind::Throttled { retry_after: None };
    let third = node().pending(CREATE).with(|n| n.retry.extra.throttles = 2);
    check(
        third,
        err(0, silent),
        expect![[r#"
        create-lease failed: it broke
          new next=+14s"#]],
    );
    check(
        node().reachable().pending(START),
        err(0, silent),
        expect![[r#"
        start-bootstrap failed: it broke
          endpoint-known lease=l-1 endpoint=127.0.0.1:80 next=+11s"#]],
    );
}

#[test]
fn what_its_driver_left_pending_is_unknown_where_it_makes_something_and_done_again_elsewhere() {
    let visibility = Visibility { listing_lag: Duration::from_secs(3), late_landing: Duration::from_secs(4) };
    for kind in [CREATE, LOOKUP, START, COMPLETE, CANCEL, DESTROY] {
        let mut left = node().reachable().pending(kind).0;
        let before = left.clone();
        assert_eq!(interrupt(&mut left, visibility, at(10)), before.pending);
        let makes = matches!(kind, OperationKind::CreateLease | OperationKind::StartBootstrap);
        let unknown = (makes.then_some(kind), makes.then_some(at(17)));
        assert_eq!((left.retry.ambiguous_operation, left.retry.extra.absent_counts_from), unknown);
        // And nothing else: no failure, no delay, no other stage.
        left.pending.clone_from(&before.pending);
        left.retry.ambiguous_operation = None;
        left.retry.extra.absent_counts_from = None;
        assert_eq!(left, before);
    }
    let mut adopting = node().pending(CREATE).unknown(CREATE, 60).0;
    adopting.pending.as_mut().unwrap().extra.adopt_only = true;
    interrupt(&mut adopting, visibility, at(10));
    assert_eq!(adopting.retry.ambiguous_operation, Some(CREATE), "what was unknown before still is");
    assert_eq!(interrupt(&mut adopting, visibility, at(10)), None);
}

#[test]
fn an_unknown_create_is_marked_until_adoption_or_proved_absence() {
    check(
        node().pending(CREATE),
        timed_out(0),
        expect![[r#"
        outcome of create-lease unknown: operation a1.0 passed its deadline and was stopped
          new unknown=create-lease absent-counts=+70s failures=1 next=+11s"#]],
    );
    let looking = || node().unknown(CREATE, 60).pending(CREATE).adopt_only();
    check(
        looking(),
        ok(0, leased(false)),
        expect![[r#"
        lease l-1
          lease-created lease=l-1"#]],
    );
    // The reading describes a time at which it might not have shown yet.
    check(
        looking(),
        ok(0, EffectSuccess::NothingToAdopt { as_of: at(59) }),
        expect![[r#"
        nothing of create-lease found yet
          new unknown=create-lease absent-counts=+60s next=+15s"#]],
    );
    check(
        looking(),
        ok(0, EffectSuccess::NothingToAdopt { as_of: at(60) }),
        expect![[r#"
        create-lease proved to have made nothing
          new"#]],
    );
    // A lookup that fails made nothing: the window is not restarted. A refusal proves nothing about before.
    check(
        looking(),
        timed_out(0),
        expect![[r#"
        outcome of create-lease unknown: operation a1.0 passed its deadline and was stopped
          new unknown=create-lease absent-counts=+60s failures=1 next=+11s"#]],
    );
    let refused = ExecutorErrorKind::Rejected(RejectReason::Validation);
    check(
        looking(),
        err(0, refused),
        expect![[r#"
        outcome of create-lease unknown: it broke
          new unknown=create-lease absent-counts=+60s failures=1 next=+11s"#]],
    );
    check(
        looking(),
        err(0, ExecutorErrorKind::Gone),
        expect![[r#"
        attempt failed: it broke
          failed failures=1 restart=+11s reason=it broke"#]],
    );
    check(
        looking().deleting(),
        err(0, ExecutorErrorKind::Gone),
        expect![[r#"
        lease gone
          new"#]],
    );
}

#[test]
fn a_create_that_fails_while_deleting_does_not_delay_the_cleanup() {
    let quota = ExecutorErrorKind::Rejected(RejectReason::Quota);
    check(
        node().deleting().pending(CREATE),
        err(0, quota),
        expect![[r#"
        create-lease failed: it broke
          new failures=1"#]],
    );
    check(
        node().deleting().pending(CREATE),
        timed_out(0),
        expect![[r#"
        outcome of create-lease unknown: operation a1.0 passed its deadline and was stopped
          new unknown=create-lease absent-counts=+70s failures=1"#]],
    );
    // The late success of a create is folded, and cleaned up next.
    check(
        node().deleting().pending(CREATE),
        ok(0, leased(true)),
        expect![[r#"
        lease l-1 at 127.0.0.1:80
          new lease=l-1 endpoint=127.0.0.1:80"#]],
    );
}

#[test]
fn gone_while_deleting_is_absent() {
    let gone = ExecutorErrorKind::Gone;
    check(
        node().leased().deleting().pending(DESTROY),
        err(0, gone),
        expect![[r#"
        lease gone
          lease-created"#]],
    );
    check(
        node().booting().deleting().pending(CANCEL),
        err(0, gone),
        expect![[r#"
        session bs-1 closed
          bootstrap-running lease=l-1 endpoint=127.0.0.1:80 join-by=+600s"#]],
    );
}

#[test]
fn stale_and_impossible_facts_change_nothing() {
    check(
        node().pending(CREATE),
        ok(7, leased(true)),
        expect!["dropped: result of a1.7, while a1.0 is pending"],
    );
    check(node(), ok(0, leased(true)), expect!["dropped: result of a1.0, while nothing is pending"]);
    let other = BootstrapSessionId("bs-9".into());
    let joined = |session| NodeObservation::MemberJoined { session, member: member() };
    check(node().booting(), joined(other), expect!["dropped: session bs-9 is not this attempt's"]);
    check(node().reachable(), joined(session()), expect!["dropped: session bs-1 is not this attempt's"]);
    check(
        node().booting().deleting(),
        joined(session()),
        expect!["dropped: a join while deleting cannot be in stage bootstrap-running"],
    );
    check(node().ready(), joined(session()), expect!["nothing"]);
    let lost = NodeObservation::LeaseLost {
        lease: executor_api::LeaseId("l-9".into()),
        reason: "terminated".into(),
    };
    check(node().ready(), lost, expect!["dropped: lease l-9 is not this attempt's"]);
    let progress = |sequence| NodeObservation::BootstrapProgress {
        session: session(),
        sequence,
        phase: "installing".into(),
    };
    check(
        node().booting(),
        progress(1),
        expect![[r#"
        bootstrap: installing
          bootstrap-running lease=l-1 endpoint=127.0.0.1:80 session=bs-1 join-by=+600s"#]],
    );
    check(
        node().booting().with(|n| n.record.bootstrap.as_mut().unwrap().last_sequence = 1),
        progress(1),
        expect!["dropped: report 1 after report 1"],
    );
    let failed = NodeObservation::BootstrapFailed { session: session(), reason: "late".into() };
    check(node().ready(), failed, expect!["dropped: a failed bootstrap cannot be in stage dormant"]);
    check(
        node().booting(),
        NodeObservation::DeadlinePassed(NodeDeadline::Join),
        expect!["dropped: the join deadline is not due"],
    );
}

#[test]
fn an_answer_to_another_question_is_an_unknown_outcome() {
    check(
        node().pending(CREATE),
        ok(0, EffectSuccess::LeaseDestroyed),
        expect![[r#"
        outcome of create-lease unknown: create-lease: the executor answered something else (not an outcome of create-lease)
          new unknown=create-lease absent-counts=+70s failures=1 next=+11s"#]],
    );
    let nameless = executor_api::LeaseFacts { lease_id: executor_api::LeaseId(String::new()), ..lease() };
    let answer = EffectSuccess::LeaseCreated { lease: nameless, endpoint: None };
    check(
        node().pending(CREATE),
        ok(0, answer),
        expect![[r#"
        outcome of create-lease unknown: create-lease: the executor answered something else (not an outcome of create-lease)
          new unknown=create-lease absent-counts=+70s failures=1 next=+11s"#]],
    );
    // Nobody asked to adopt only.
    check(
        node().pending(CREATE),
        ok(0, EffectSuccess::NothingToAdopt { as_of: at(10) }),
        expect![[r#"
        outcome of create-lease unknown: create-lease: the executor answered something else (not an outcome of create-lease)
          new unknown=create-lease absent-counts=+70s failures=1 next=+11s"#]],
    );
    check(
        node().leased().deleting().pending(DESTROY),
        ok(0, leased(true)),
        expect![[r#"
        destroy-lease failed: destroy-lease: the executor answered something else (not an outcome of destroy-lease)
          lease-created lease=l-1 failures=1 next=+11s"#]],
    );
}

#[test]
fn a_node_becomes_ready_in_either_order_of_join_and_close() {
    let joined = || NodeObservation::MemberJoined {
        session: session(),
        member: MemberFacts { joined_at: at(10), ..member() },
    };
    let closed = || NodeObservation::BootstrapConverged { session: session() };
    check(
        node().booting(),
        joined(),
        expect![[r#"
        web-0 joined
          joined lease=l-1 endpoint=127.0.0.1:80 session=bs-1 member=web-0"#]],
    );
    check(
        node().joined(),
        closed(),
        expect![[r#"
        ready
          dormant lease=l-1 endpoint=127.0.0.1:80 member=web-0"#]],
    );
    check(
        node().booting(),
        closed(),
        expect![[r#"
        session bs-1 closed
          bootstrap-running lease=l-1 endpoint=127.0.0.1:80 join-by=+600s"#]],
    );
    let closed_first = node().booting().with(|n| n.active_bootstrap = None);
    check(
        closed_first,
        joined(),
        expect![[r#"
        ready
          dormant lease=l-1 endpoint=127.0.0.1:80 member=web-0"#]],
    );
}

#[test]
fn a_join_deadline_that_passes_ends_the_attempt() {
    let passed = NodeObservation::DeadlinePassed(NodeDeadline::Join);
    let due = node().booting().with(|n| n.extra.join_deadline = Some(at(10)));
    check(
        due,
        passed,
        expect![[r#"
        attempt failed: did not join within 600s
          failed lease=l-1 endpoint=127.0.0.1:80 session=bs-1 failures=1 restart=+11s reason=did not join within 600s"#]],
    );
}

fn with_stability() -> RetryPolicy {
    let mut policy = RetryPolicy::default();
    policy.extra.stable_after = secs(10);
    policy.extra.loss_timeout = Some(secs(30));
    policy
}

#[track_caller]
fn check_at(node: Build, observation: NodeObservation, now: u64, expected: Expect) {
    expected.assert_eq(&folded(node, observation, now, &with_stability()));
}

#[test]
fn a_stable_node_that_is_lost_restarts_at_once_and_a_young_one_waits() {
    let lost = || NodeObservation::LeaseLost { lease: lease().lease_id, reason: "exit status 137".into() };
    let twice_failed = || node().ready().with(|n| n.retry.consecutive_failures = 2);
    check_at(
        twice_failed(),
        lost(),
        10,
        expect![[r#"
        attempt failed: exit status 137
          failed lease=l-1 endpoint=127.0.0.1:80 member=web-0 reason=exit status 137"#]],
    );
    check_at(
        twice_failed(),
        lost(),
        9,
        expect![[r#"
        attempt failed: exit status 137
          failed lease=l-1 endpoint=127.0.0.1:80 member=web-0 failures=3 restart=+13s reason=exit status 137"#]],
    );
    check_at(
        node().booting(),
        lost(),
        9,
        expect![[r#"
        attempt failed: exit status 137
          failed lease=l-1 endpoint=127.0.0.1:80 session=bs-1 failures=1 restart=+10s reason=exit status 137"#]],
    );
    check_at(node().ready().failed("before"), lost(), 9, expect!["nothing"]);
    check_at(node().ready().deleting(), lost(), 9, expect!["nothing"]);
}

#[test]
fn failures_are_forgotten_only_after_a_stable_time() {
    let closed = NodeObservation::BootstrapConverged { session: session() };
    let failed_before = node().joined().with(|n| n.retry.consecutive_failures = 3);
    check_at(
        failed_before,
        closed,
        5,
        expect![[r#"
        ready
          dormant lease=l-1 endpoint=127.0.0.1:80 member=web-0 failures=3 stable-at=+15s"#]],
    );
    let stable = NodeObservation::DeadlinePassed(NodeDeadline::Stable);
    let waiting = node().ready().with(|n| {
        n.retry.consecutive_failures = 3;
        n.extra.stable_at = Some(at(15));
    });
    check_at(waiting.clone(), stable.clone(), 14, expect!["dropped: the stable time is not due"]);
    check_at(
        waiting,
        stable,
        15,
        expect![[r#"
        stable; failures forgotten
          dormant lease=l-1 endpoint=127.0.0.1:80 member=web-0"#]],
    );
}

#[test]
fn silence_makes_a_node_suspect_and_only_the_timeout_ends_it() {
    let silent = || NodeObservation::Suspected { reason: "not in the listing".into() };
    check_at(
        node().ready(),
        silent(),
        5,
        expect![[r#"
        suspect: not in the listing
          dormant lease=l-1 endpoint=127.0.0.1:80 member=web-0 suspect=+5s loss-at=+35s"#]],
    );
    check_at(node().booting(), silent(), 5, expect!["nothing"]);
    let suspect = || {
        node().ready().with(|n| {
            n.extra.suspect_since = Some(at(5));
            n.extra.loss_deadline = Some(at(35));
        })
    };
    check_at(suspect(), silent(), 6, expect!["nothing"]);
    check_at(
        suspect(),
        NodeObservation::SeenAlive,
        6,
        expect![[r#"
        seen alive again
          dormant lease=l-1 endpoint=127.0.0.1:80 member=web-0"#]],
    );
    check_at(node().ready(), NodeObservation::SeenAlive, 6, expect!["nothing"]);
    check_at(
        suspect(),
        NodeObservation::DeadlinePassed(NodeDeadline::Loss),
        34,
        expect!["dropped: the loss deadline is not due"],
    );
    check_at(
        suspect(),
        NodeObservation::DeadlinePassed(NodeDeadline::Loss),
        35,
        expect![[r#"
        attempt failed: could not be seen for 30s
          failed lease=l-1 endpoint=127.0.0.1:80 member=web-0 reason=could not be seen for 30s"#]],
    );
    // Off by default.
    check(
        node().ready(),
        silent(),
        expect![[r#"
        suspect: not in the listing
          dormant lease=l-1 endpoint=127.0.0.1:80 member=web-0 suspect=+10s"#]],
    );
}

#[test]
fn an_address_is_never_an_identity() {
    let elsewhere = executor_api::Endpoint { host: "127.0.0.2".into(), ..endpoint() };
    let moved = NodeObservation::EndpointChanged { lease: lease().lease_id, endpoint: elsewhere };
    check(
        node().ready(),
        moved,
        expect![[r#"
        endpoint 127.0.0.2:80
          dormant lease=l-1 endpoint=127.0.0.2:80 member=web-0"#]],
    );
    let same = NodeObservation::EndpointChanged { lease: lease().lease_id, endpoint: endpoint() };
    check(node().ready(), same, expect!["nothing"]);
}

#[test]
fn a_candidate_is_spent_only_by_a_proved_lack_and_only_while_nothing_is_unknown() {
    let tried = |node: Build, observation| {
        let mut node = node.0;
        fold(&mut node, observation, at(10), &RetryPolicy::default());
        node.extra.candidate.0
    };
    let refused = |reason| err(0, ExecutorErrorKind::Rejected(reason));
    assert_eq!(tried(node().pending(CREATE), refused(RejectReason::Capacity)), 1);
    assert_eq!(tried(node().pending(CREATE), refused(RejectReason::Quota)), 1);
    assert_eq!(tried(node().pending(CREATE), refused(RejectReason::Validation)), 0);
    assert_eq!(tried(node().pending(CREATE), err(0, ExecutorErrorKind::Unavailable)), 0);
    assert_eq!(tried(node().pending(CREATE), timed_out(0)), 0);
    let looking = node().unknown(CREATE, 60).pending(CREATE).adopt_only();
    assert_eq!(tried(looking, refused(RejectReason::Capacity)), 0);
}
