//! The forward path, step by step, and each guard's refusal on it.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test: a panic is a failed test"
)]

mod maintenance_support;

use expect_test::expect;
use maintenance_support::*;
use reconciler_core::maintenance::*;

#[test]
fn machines_write_on_and_the_plan_completes() {
    let mut run = Run::new(IoPolicy::Continue);
    run.finish();
    expect![[r#"
        enter PreconditionsCheck (approved by ann)
        enter AcquireLock (sync gate (identical) passed)
        send acquire lease (the lease is free)
        adopt lease, fence 1 (the lease is ours)
        send place hold (the lease is ours)
        note hold (the cluster is held for this plan)
        save targets (before anything is changed)
        enter SuspendMigration (lock held, targets recorded)
        send fence off the agent on w1 (before the first operation under this lease)
        send fence off the agent on w2 (before the first operation under this lease)
        send fence off the agent of the machines (before the first operation under this lease)
        save v1 LiveMigrate, v2 (not set) (before the first write)
        send v1: pin (declared LiveMigrate)
        send v2: pin (declared (not set))
        save placements (nothing moves any more)
        enter DisconnectDRBD (pin gate passed)
        send w1: disconnect r1 from w2 (r1 is Connected on w1)
        send w2: disconnect r1 from w1 (r1 is Connecting on w2)
        send w1: disconnect r2 from w2 (r2 is Connected on w1)
        send w2: disconnect r2 from w1 (r2 is Connecting on w2)
        enter DrainSatellite (disconnected gate passed)
        send w1: drain-satellite (storage pods are there, or may come)
        send w2: drain-satellite (storage pods are there, or may come)
        enter FlipNode1 (drained gate passed)
        send w1: set bond0 to balance-rr (bond0 is in active-backup)
        verify bond of w1: balance-rr (read back)
        enter FlipNode2 (w1 verified balance-rr)
        send w2: set bond0 to balance-rr (bond0 is in active-backup)
        verify bond of w2: balance-rr (read back)
        enter ResumeDRBD (w2 verified balance-rr)
        send w1: probe bond0 to w2 with 50 packets (the link was not probed)
        send w2: probe bond0 to w1 with 50 packets (the link was not probed)
        stamp gates (reconnect gate (fast forward) passed)
        send w1: connect r1 to w2 (r1 is apart on w1)
        send w2: connect r1 to w1 (r1 is apart on w2)
        send w1: connect r2 to w2 (r2 is apart on w1)
        send w2: connect r2 to w1 (r2 is apart on w2)
        send w1: undrain-satellite (no storage pod runs)
        send w2: undrain-satellite (no storage pod runs)
        enter RestoreMigration (sync gate (identical) passed)
        send v1: restore LiveMigrate (declared None, was LiveMigrate)
        send v2: restore (not set) (declared None, was (not set))
        enter ReleaseLock (sync gate (identical) passed)
        keep the second proof (sync gate (identical) passed)
        send lift hold (two sync gates passed)
        note hold lifted (no hold is left)
        send release lease (the hold is lifted)
        note lease released (no lease of ours is left)
        enter Complete (the lock is released)
        over (Complete)
    "#]]
    .assert_eq(&run.all_steps());
    assert_eq!(run.state.phase, Phase::Complete);
}

#[test]
fn with_suspended_io_the_plan_completes() {
    let mut run = Run::new(quiesce());
    run.finish();
    expect![[r#"
        acquire lease
        place hold
        fence off the agent on w1
        fence off the agent on w2
        fence off the agent of the machines
        v1: pin
        v2: pin
        w1: suspend-io r1 for 600s
        w2: suspend-io r2 for 599s
        w1: disconnect r1 from w2
        w2: disconnect r1 from w1
        w1: disconnect r2 from w2
        w2: disconnect r2 from w1
        w1: drain-satellite
        w2: drain-satellite
        w1: set bond0 to balance-rr
        w2: set bond0 to balance-rr
        w1: probe bond0 to w2 with 50 packets
        w2: probe bond0 to w1 with 50 packets
        w1: connect r1 to w2
        w2: connect r1 to w1
        w1: connect r2 to w2
        w2: connect r2 to w1
        w1: resume-io r1
        w2: resume-io r2
        w1: undrain-satellite
        w2: undrain-satellite
        v1: restore LiveMigrate
        v2: restore (not set)
        lift hold
        release lease"#]]
    .assert_eq(&run.deeds.join("\n"));
}
