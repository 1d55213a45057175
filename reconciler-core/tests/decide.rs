//! Every row of the level-to-effect table and of topology (spec 7.2, 8), one node at a time.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    reason = "a test: a panic is a failed test, and arguments are built where they are used"
)]

mod support;

use expect_test::{Expect, expect};
use reconciler_core::*;
use support::*;

const CREATE: OperationKind = OperationKind::CreateLease;
const START: OperationKind = OperationKind::StartBootstrap;

#[track_caller]
fn check(node: Build, desired: Option<&str>, now: u64, expected: Expect) {
    let desired = desired.map(spec);
    let made = reconcile_node(&node.0, desired.as_ref(), at(now));
    assert_eq!(made, reconcile_node(&node.0, desired.as_ref(), at(now)), "not deterministic");
    expected.assert_eq(&decision(&made));
}

#[test]
fn an_active_node_is_brought_up_step_by_step() {
    check(node(), Some("a"), 0, expect!["create-lease: no lease"]);
    check(node().stage(NodeStage::LeaseRequested), Some("a"), 0, expect!["create-lease: no lease"]);
    check(node().leased(), Some("a"), 0, expect!["lookup-endpoint: endpoint not known"]);
    check(node().reachable(), Some("a"), 0, expect!["start-bootstrap: no bootstrap session"]);
    check(node().booting(), Some("a"), 0, expect!["wait: bootstrap runs, not joined yet until +600s"]);
    check(node().joined(), Some("a"), 0, expect!["complete-bootstrap: member joined"]);
    check(node().ready(), Some("a"), 0, expect!["steady: ready"]);
    check(node().ready().stage(NodeStage::HandedOff), Some("a"), 0, expect!["steady: ready"]);
    check(node().booting().failed("exit 1"), Some("a"), 0, expect!["begin-delete: attempt failed: exit 1"]);
}

#[test]
fn a_deleting_node_is_cleaned_one_thing_after_the_other() {
    check(node().booting().deleting(), None, 0, expect!["cancel-bootstrap: session bs-1 active"]);
    check(node().leased().deleting(), None, 0, expect!["destroy-lease: lease l-1 held"]);
    check(node().deleting(), None, 0, expect!["mark-destroyed: nothing left to clean"]);
    check(node().destroyed(), None, 0, expect!["reap: absent from desired"]);
    check(node().destroyed(), Some("a"), 0, expect!["restart: slot free"]);
    check(
        node().destroyed().restart_at(5),
        Some("a"),
        4,
        expect!["wait: restart delayed after 0 failure(s) until +5s"],
    );
    check(node().destroyed().restart_at(5), Some("a"), 5, expect!["restart: slot free"]);
    check(node().destroyed().restart_at(5), None, 4, expect!["reap: absent from desired"]);
}

#[test]
fn a_pending_operation_outranks_backoff_and_topology_outranks_both() {
    check(
        node().pending(CREATE).backoff(60),
        Some("a"),
        0,
        expect!["wait: create-lease a1.0 pending until +30s"],
    );
    check(node().pending(CREATE), None, 0, expect!["begin-delete: absent from desired"]);
    check(node().pending(CREATE), Some("b"), 0, expect!["begin-delete: spec changed: shape"]);
    check(node().pending(CREATE).deleting(), None, 0, expect!["wait: create-lease a1.0 pending until +30s"]);
}

#[test]
fn an_effect_waits_for_its_stored_time_and_equality_is_due() {
    check(node().backoff(5), Some("a"), 4, expect!["wait: backing off after 1 failure(s) until +5s"]);
    check(node().backoff(5), Some("a"), 5, expect!["create-lease: no lease"]);
    check(
        node().leased().backoff(5),
        Some("a"),
        4,
        expect!["wait: backing off after 1 failure(s) until +5s"],
    );
    check(
        node().leased().deleting().backoff(5),
        None,
        4,
        expect!["wait: backing off after 1 failure(s) until +5s"],
    );
    // What is not an effect does not wait.
    check(node().deleting().backoff(5), None, 4, expect!["mark-destroyed: nothing left to clean"]);
}

#[test]
fn an_unknown_outcome_is_adopted_before_anything_else() {
    check(
        node().unknown(CREATE, 60),
        Some("a"),
        0,
        expect!["create-lease (adopt only): outcome of create-lease unknown: adopt or prove absent"],
    );
    check(
        node().unknown(CREATE, 60).deleting(),
        None,
        0,
        expect!["create-lease (adopt only): outcome of create-lease unknown: adopt or prove absent"],
    );
    check(
        node().reachable().unknown(START, 60).deleting(),
        None,
        0,
        expect!["start-bootstrap (adopt only): outcome of start-bootstrap unknown: adopt or prove absent"],
    );
    // Its driver died while it was starting: a session that is there is gone on with.
    check(
        node().reachable().unknown(START, 60),
        Some("a"),
        0,
        expect!["start-bootstrap (adopt only): outcome of start-bootstrap unknown: adopt or prove absent"],
    );
    check(
        node().booting().unknown(CREATE, 60).deleting(),
        None,
        0,
        expect!["create-lease (adopt only): outcome of create-lease unknown: adopt or prove absent"],
    );
    // The mark is gone, but what it stood for could still land.
    let landing = node().deleting().with(|n| n.retry.extra.absent_counts_from = Some(at(9)));
    check(landing.clone(), None, 8, expect!["wait: an unknown outcome may still appear until +9s"]);
    check(landing, None, 9, expect!["mark-destroyed: nothing left to clean"]);
}

#[test]
fn an_attempt_ends_for_a_stated_reason() {
    check(node().ready(), None, 0, expect!["begin-delete: absent from desired"]);
    check(node().ready(), Some("b"), 0, expect!["begin-delete: spec changed: shape"]);
    check(
        node().ready().with(|n| n.extra.replace_requested = true),
        Some("a"),
        0,
        expect!["begin-delete: replacement requested"],
    );
    let other_role = {
        let mut desired = spec("b");
        let mut template = (*desired.template).clone();
        template.role.0 = "db".into();
        desired.template = std::sync::Arc::new(template);
        desired
    };
    let made = reconcile_node(&node().ready().0, Some(&other_role), at(0));
    expect!["begin-delete: spec changed: role, shape"].assert_eq(&decision(&made));
}

#[test]
fn a_deletion_is_never_taken_back() {
    check(node().ready().deleting(), Some("a"), 0, expect!["destroy-lease: lease l-1 held"]);
}

#[test]
fn a_suspect_node_is_left_alone_and_says_so() {
    let suspect = node().ready().with(|n| {
        n.extra.suspect_since = Some(at(3));
        n.extra.loss_deadline = Some(at(33));
    });
    check(suspect, Some("a"), 10, expect!["steady: could not be seen lately until +33s"]);
}
