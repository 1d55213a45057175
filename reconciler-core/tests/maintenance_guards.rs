//! What each phase refuses. Each case brings a plan to a place, bends one thing, and shows the step that follows.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    reason = "a test: a panic is a failed test, and arguments are built where they are used"
)]

mod maintenance_support;

use std::collections::BTreeSet;
use std::time::Duration;

use executor_api::host::*;
use expect_test::{Expect, expect};
use maintenance_support::*;
use reconciler_core::maintenance::*;

/// Goes on until a step reads so, bends the world, and shows the next step.
#[track_caller]
fn after(io: IoPolicy, step: &str, bend: impl FnOnce(&mut Run), expected: Expect) -> Run {
    let mut run = Run::new(io);
    if !step.is_empty() {
        run.until(step);
    }
    bend(&mut run);
    let step = run.decide();
    expected.assert_eq(&step.to_string());
    run
}

fn go_on() -> IoPolicy {
    IoPolicy::Continue
}

#[test]
fn nothing_begins_without_both_approvals() {
    after(
        go_on(),
        "",
        |run| run.plan.approved = false,
        expect!["wait (the plan says that it is not approved)"],
    );
    after(go_on(), "", |run| run.state.approval = None, expect!["wait (nobody approved the run)"]);
    after(
        go_on(),
        "",
        |run| run.state.plan = PlanUid::new("p-2").unwrap(),
        expect!["wait (the state is that of plan p-2)"],
    );
}

#[test]
fn a_plan_that_makes_no_sense_is_refused_before_anything_is_read() {
    let start = "enter PreconditionsCheck";
    after(
        go_on(),
        start,
        |run| run.plan.nodes[1] = host("w1"),
        expect!["halt (plan refused: /nodes: the two hosts must differ)"],
    );
    after(
        go_on(),
        start,
        |run| run.plan.probe.packets = 1,
        expect!["halt (plan refused: /probe/packets: at least 10: fewer prove nothing)"],
    );
    after(
        go_on(),
        start,
        |run| run.plan.resources.clear(),
        expect!["halt (plan refused: /resources: name the resources that replicate over the bond)"],
    );
    after(
        go_on(),
        start,
        |run| run.plan.to = BondMode::ActiveBackup,
        expect!["halt (plan refused: /to: the bond has that mode already)"],
    );
}

#[test]
fn preconditions_want_two_live_hosts_sound_bonds_and_copies_in_sync() {
    let start = "enter PreconditionsCheck";
    let cut = |run: &mut Run| {
        let mut observed = run.observed();
        let dead = HostFacts { eligible: Some(true), live: Some(false) };
        observed.hosts.insert(host("w2"), Evidence::seen(Source::Host(host("w2")), at(run.now), dead));
        observed
    };
    let mut run = Run::new(go_on());
    run.until(start);
    let observed = cut(&mut run);
    expect!["halt (host gate: w2: not live)"].assert_eq(&run.decide_on(&observed).to_string());
    after(
        go_on(),
        start,
        |run| run.world.bond_mut("w2").carrier = Some(false),
        expect!["halt (bond gate: w2: carrier is false, must be true)"],
    );
    after(
        go_on(),
        start,
        |run| run.world.peer_volume_mut("w2", "r1").out_of_sync_kib = Some(12),
        expect!["wait (sync gate: w2: r1 volume 0 out-of-sync KiB is 12, must be 0)"],
    );
    after(
        IoPolicy::Quiesce { suspend_for: None },
        start,
        |run| run.world = World::new(true),
        expect!["halt (quiet gate: w1: r1 may be written; w2: r2 may be written)"],
    );
    after(
        go_on(),
        start,
        |run| run.world.storage.get_mut(&host("w1")).unwrap().module = None,
        expect!["wait (sync gate: w1: storage module version was not reported)"],
    );
}

#[test]
fn hosts_that_became_unfit_while_the_lock_was_waited_for_are_not_touched() {
    let mut run = Run::new(go_on());
    run.until("enter AcquireLock");
    // Hours behind another plan.
    run.now += 7200;
    run.until("note hold");
    let mut observed = run.observed();
    for (node, evidence) in &mut observed.hosts {
        let facts = HostFacts { eligible: Some(node.as_str() != "w2"), live: Some(true) };
        *evidence = Evidence::seen(Source::Host(node.clone()), at(run.now), facts);
    }
    expect!["halt (host gate: w2: not eligible)"].assert_eq(&run.decide_on(&observed).to_string());
    observed.hosts.clear();
    assert!(matches!(run.decide_on(&observed).act, Act::Wait { .. }));
    run.until("save targets");
}

#[test]
fn the_lock_is_taken_only_when_it_is_free_and_the_cluster_is_held_for_nobody_else() {
    let other = |run: &mut Run| {
        run.world.lock.lease = Some(LeaseRecord {
            holder: LeaseHolder::new("somebody").unwrap(),
            ttl: Duration::from_mins(1),
            fence: FenceValue(7),
            version: RecordVersion("v7".to_owned()),
        });
    };
    let mut run = Run::new(go_on());
    run.until("enter AcquireLock");
    other(&mut run);
    let mut observed = run.observed();
    observed.takeover = Takeover::Held { remaining: Duration::from_secs(40) };
    expect!["wait (the lease is held by another)"].assert_eq(&run.decide_on(&observed).to_string());
    observed.takeover = Takeover::Expired { version: RecordVersion("v6".to_owned()) };
    expect!["wait (the lease changed while it was read)"].assert_eq(&run.decide_on(&observed).to_string());
    observed.takeover = Takeover::Expired { version: RecordVersion("v7".to_owned()) };
    expect!["send acquire lease (the lease is free)"].assert_eq(&run.decide_on(&observed).to_string());
    after(
        go_on(),
        "enter AcquireLock",
        |run| {
            run.world.lock.hold = Some(PlanHold { plan: PlanUid::new("p-9").unwrap(), since: at(0) });
        },
        expect!["wait (the cluster is held for plan p-9)"],
    );
}

#[test]
fn a_lost_lock_halts_and_a_vanished_hold_asks_a_person() {
    let place = "enter DrainSatellite";
    let rob = |run: &mut Run| {
        let lease = run.world.lock.lease.as_mut().unwrap();
        lease.holder = LeaseHolder::new("somebody").unwrap();
    };
    after(go_on(), place, rob, expect!["halt (lease lost: it is held by somebody)"]);
    after(
        go_on(),
        place,
        |run| run.world.lock.hold = None,
        expect!["escalate #1 (the hold is gone; nobody here lifted it)"],
    );
    after(
        go_on(),
        place,
        |run| {
            let step = run.decide();
            let Ok(Applied::Send { effect, .. }) = apply(&run.plan, &mut run.state, &step, at(run.now))
            else {
                panic!("nothing was sent");
            };
            let reason = "the record has moved".to_owned();
            run.fold(PlanObservation::RenewalFailed { id: effect.id(), reason });
        },
        expect!["halt (lease lost: the record has moved)"],
    );
}

#[test]
fn what_did_not_leave_in_time_is_no_lost_lease_and_no_try_and_leaves_after_another_look() {
    let not_sent = |run: &mut Run| {
        let step = run.decide();
        let Ok(Applied::Send { effect, .. }) = apply(&run.plan, &mut run.state, &step, at(run.now)) else {
            panic!("nothing was sent: {step}");
        };
        let looked = run.observed();
        run.now += 60;
        let reason = "the last look was 60 s ago".to_owned();
        run.fold(PlanObservation::NotSent { id: effect.id(), reason });
        assert_eq!((run.state.pending.as_ref(), run.state.lease_lost.as_ref()), (None, None));
        assert!(
            matches!(run.decide_on(&looked).act, Act::Wait { .. }),
            "what was read before counts no more"
        );
        step.to_string()
    };
    let mut run = Run::new(go_on());
    run.until("enter FlipNode1");
    let step = not_sent(&mut run);
    assert_eq!(run.pass().to_string(), step);

    // A settling that never left is no try of it.
    run.until("enter FlipNode2");
    let step = run.decide();
    let Ok(Applied::Send { effect, .. }) = apply(&run.plan, &mut run.state, &step, at(run.now)) else {
        panic!("nothing was sent: {step}");
    };
    run.fold(PlanObservation::Lost { id: effect.id() });
    for _ in 0..10 {
        assert!(not_sent(&mut run).starts_with("send settle "));
    }
    run.finish();
    assert_eq!(run.state.phase, Phase::Complete);
}

#[test]
fn no_step_forward_while_a_machine_may_move() {
    let place = "save v1";
    let migration = |phase: MigrationPhase| MigrationReading {
        vm: vm("v1"),
        phase,
        abort_requested: true,
        abort_status: Some(AbortStatus::Aborting),
        post_copy: Some(false),
    };
    let name = || MigrationName::new("m1").unwrap();
    let with = |reading: MigrationReading| {
        move |run: &mut Run| {
            run.until("send v2: pin");
            run.world.vms.migrations.insert(name(), reading);
        }
    };
    after(
        go_on(),
        place,
        with(migration(MigrationPhase::Scheduling)),
        expect!["wait (migration m1 is not over (Scheduling))"],
    );
    after(
        go_on(),
        place,
        with(migration("Levitating".into())),
        expect!["wait (migration m1 is not over (Levitating))"],
    );
    let fresh =
        MigrationReading { abort_requested: false, abort_status: None, ..migration(MigrationPhase::Running) };
    after(
        go_on(),
        place,
        with(fresh),
        expect!["send v1: abort migration m1 (migration m1 is not over (Running))"],
    );
    let late = MigrationReading { post_copy: Some(true), ..migration(MigrationPhase::Running) };
    after(
        go_on(),
        place,
        with(late),
        expect!["halt (plan refused: migration m1 is not over (Running) and cannot be stopped)"],
    );
    after(
        go_on(),
        "send v2: pin",
        |run| run.world.running_mut("v2").evacuating_from = Some(host("w2")),
        expect!["wait (v2 is to be moved away from w2)"],
    );
}

#[test]
fn a_breach_of_the_pins_halts_every_later_step() {
    for place in [
        "enter DisconnectDRBD",
        "enter DrainSatellite",
        "enter FlipNode1",
        "enter FlipNode2",
        "enter ResumeDRBD",
    ] {
        let mut run = Run::new(go_on());
        run.until(place);
        let whole = run.clone();
        run.world.running_mut("v1").effective = EvictionSetting::Unset;
        let step = run.decide();
        assert!(matches!(step.act, Act::Halt(_)), "{place}: {step}");
        run = whole.clone();
        run.world.running_mut("v1").node = host("w2");
        let step = run.decide();
        assert!(matches!(step.act, Act::Halt(_)), "{place}: {step}");
        run = whole.clone();
        let shield = PinShield { eviction_refused: Some(true), migration_refused: None };
        run.world.vms.vms.get_mut(&vm("v2")).unwrap().shield = shield;
        let step = run.decide();
        assert!(matches!(step.act, Act::Halt(_)), "{place}: {step}");
        run = whole;
        let stranger = run.world.vms.vms[&vm("v1")].clone();
        run.world.vms.vms.insert(vm("v3"), stranger);
        let step = run.decide();
        assert!(matches!(step.act, Act::Halt(_)), "{place}: {step}");
    }
}

#[test]
fn nothing_is_taken_apart_before_it_was_proved_whole() {
    let place = "enter DisconnectDRBD";
    after(
        go_on(),
        place,
        |run| run.world.peer_volume_mut("w2", "r1").out_of_sync_kib = Some(12),
        expect!["wait (sync gate: w2: r1 volume 0 out-of-sync KiB is 12, must be 0)"],
    );
    after(
        go_on(),
        place,
        |run| run.world.peer_volume_mut("w1", "r1").replication = ReplicationState::SyncSource,
        expect!["wait (sync gate: w1: r1 volume 0 replication is SyncSource, must be Established)"],
    );
    after(
        go_on(),
        place,
        |run| run.world.connection_mut("w1", "r1").net.after_sb_1pri = "discard-secondary".into(),
        expect!["wait (sync gate: w1: r1 volume 0 after-sb-1pri is discard-secondary, must be disconnect)"],
    );
}

#[test]
fn quiesce_wants_nobody_to_write() {
    after(
        quiesce(),
        "send w2: suspend-io r2",
        |run| run.world.resource_mut("w1", "r1").suspended.user = Some(false),
        expect!["halt (w1: suspend-io r1 for 598s: reported done, but r1 may be written on w1)"],
    );
    let mut run = Run::new(IoPolicy::Quiesce { suspend_for: None });
    run.until("enter DisconnectDRBD");
    run.world.resource_mut("w1", "r1").role = Role::Primary;
    expect!["halt (plan refused: w1: r1 may be written, and the plan suspends nobody)"]
        .assert_eq(&run.decide().to_string());
}

#[test]
fn a_suspension_that_lasts_too_long_halts() {
    after(
        quiesce(),
        "enter FlipNode2",
        |run| run.now += 3_600,
        expect!["halt (I/O was suspended for longer than allowed)"],
    );
}

#[test]
fn bonds_are_flipped_one_at_a_time_and_only_from_what_was_recorded() {
    after(
        go_on(),
        "enter FlipNode1",
        |run| run.world.bond_mut("w2").mode = BondMode::BalanceRr,
        expect!["halt (bond gate: w2: the bond changed (balance-rr instead of active-backup))"],
    );
    after(
        go_on(),
        "enter FlipNode1",
        |run| run.world.bond_mut("w1").boot_id = "boot-2".to_owned(),
        expect!["halt (bond gate: w1: the bond changed (the host was booted))"],
    );
    after(
        go_on(),
        "enter FlipNode2",
        |run| {
            let first = InterfaceName::new("s0").unwrap();
            run.world.bond_mut("w1").members.remove(&first);
        },
        expect!["halt (bond gate: w1: the bond changed (other members))"],
    );
    let mut run = Run::new(go_on());
    run.until("enter FlipNode2");
    run.until("verify bond of w2");
    let flips = run.deeds.iter().filter(|deed| deed.contains("set bond0")).count();
    assert_eq!(flips, 2);
}

#[test]
fn a_probe_that_lost_one_packet_resumes_nothing() {
    after(
        go_on(),
        "send w2: probe",
        |run| run.state.probes[1].received -= 1,
        expect!["halt (connectivity gate: w2 to w1: 49 of 50 packets arrived)"],
    );
    after(
        go_on(),
        "send w2: probe",
        |run| run.state.probes[0].receiver.values_mut().for_each(|counter| counter.rx_nohandler = 3),
        expect![
            "halt (connectivity gate: w1 to w2: s0 on w2 threw frames away; w1 to w2: s1 on w2 threw frames away)"
        ],
    );
}

#[test]
fn no_connect_goes_out_under_a_stamp_that_is_void_or_old() {
    let place = "stamp gates";
    after(
        go_on(),
        place,
        |run| run.now += 60,
        expect!["halt (stamp: the stamp of the resume gates is too old to connect on)"],
    );
    after(
        go_on(),
        place,
        |run| run.state.token.as_mut().unwrap().fence = FenceValue(0),
        expect!["halt (stamp: the stamp of the resume gates is void)"],
    );
    after(
        go_on(),
        place,
        |run| run.world.write("w2", "r1", 4),
        expect!["escalate #1 (r1 volume 0: split brain: both were written since the same generation)"],
    );
    after(
        go_on(),
        place,
        |run| run.world.bond_mut("w2").mii_down(),
        expect!["halt (bond gate: w2: the bond changed (a member's state))"],
    );
}

trait Bend {
    fn mii_down(&mut self);
}

impl Bend for BondReading {
    fn mii_down(&mut self) {
        self.members.values_mut().for_each(|member| member.mii = MiiStatus::Down);
    }
}

#[test]
fn machines_are_let_go_only_over_copies_in_sync_and_the_lock_only_over_a_second_look() {
    for (place, next) in
        [("enter RestoreMigration", "send v1: restore"), ("enter ReleaseLock", "keep the second")]
    {
        let mut run = Run::new(go_on());
        run.until(place);
        let whole = run.clone();
        run.world.peer_volume_mut("w2", "r1").out_of_sync_kib = Some(12);
        let step = run.decide();
        assert!(matches!(step.act, Act::Wait { until: None }), "{place}: {step}");
        // As long as it takes, and no way around it.
        run.now += 1_000_000;
        let step = run.decide();
        assert!(matches!(step.act, Act::Wait { until: None }), "{place}: {step}");
        run = whole;
        assert!(run.decide().to_string().starts_with(next), "{}", run.decide());
    }
    let mut run = Run::new(go_on());
    run.until("enter ReleaseLock");
    // The very readings on which the machines were let go are not looked at twice.
    run.now -= 1;
    run.state.fresh_from = at(0);
    let old = run.state.restore_proof.as_ref().and_then(Proof::newest).unwrap();
    let observed = run.world.observe(&run.me, old);
    expect!["wait (the second sync gate needs readings of its own)"]
        .assert_eq(&run.decide_on(&observed).to_string());
}

#[test]
fn blocks_that_were_out_of_sync_before_need_a_resync_that_was_seen() {
    after(
        go_on(),
        "send w2: undrain",
        |run| run.world.peer_volume_mut("w2", "r1").resyncs_finished = Some(0),
        expect!["wait (sync gate: w2: r1 volume 0 had blocks out of sync, and no resync was seen to end)"],
    );
}

#[test]
fn torn_and_old_evidence_is_read_again_and_decides_nothing() {
    after(
        go_on(),
        "enter FlipNode1",
        |run| run.world.storage.get_mut(&host("w1")).unwrap().stable = false,
        expect!["wait (divergence watch: w1: storage status changed while it was read)"],
    );
    let mut run = Run::new(go_on());
    run.until("enter FlipNode1");
    let observed = run.world.observe(&run.me, at(run.now - 2));
    expect!["wait (divergence watch: w1: storage read too long ago; w2: storage read too long ago)"]
        .assert_eq(&run.decide_on(&observed).to_string());
}

#[test]
fn one_operation_is_out_at_a_time() {
    let mut run = Run::new(go_on());
    run.until("enter FlipNode1");
    let step = run.decide();
    apply(&run.plan, &mut run.state, &step, at(run.now)).unwrap();
    assert!(matches!(run.decide().act, Act::Wait { .. }));
    assert!(apply(&run.plan, &mut run.state, &step, at(run.now)).is_err());
    let ghost = PlanObservation::Lost { id: HostOperationId(1) };
    assert!(matches!(fold(&run.plan, &mut run.state, ghost, at(run.now)), Folded::Dropped(_)));
}

#[test]
fn phases_cannot_be_skipped() {
    let mut run = Run::new(go_on());
    run.until("enter FlipNode1");
    let skip = Step {
        act: Act::Move(Move::Enter { phase: Phase::ResumeDrbd, proof: None }),
        why: Why::Plain("a bug".to_owned()),
    };
    let refused = apply(&run.plan, &mut run.state, &skip, at(run.now)).unwrap_err();
    expect!["ResumeDRBD does not follow FlipNode1"].assert_eq(&refused.to_string());
}

#[test]
fn an_announced_split_brain_asks_a_person_in_any_phase() {
    for place in [
        "enter SuspendMigration",
        "enter FlipNode1",
        "stamp gates",
        "enter RestoreMigration",
        "enter ReleaseLock",
    ] {
        let mut run = Run::new(go_on());
        run.until(place);
        run.world.storage.get_mut(&host("w2")).unwrap().split_brain_seen =
            Some(BTreeSet::from([resource("r1")]));
        let step = run.decide();
        assert!(matches!(step.act, Act::Escalate(_)), "{place}: {step}");
    }
}

#[test]
fn no_operation_is_recorded_under_another_fence_or_without_the_stamp_that_stands() {
    let mut run = Run::new(go_on());
    run.until("stamp gates");
    let step = run.decide();
    let whole = run.state.clone();
    run.state.lease.as_mut().unwrap().fence = FenceValue(9);
    let refused = apply(&run.plan, &mut run.state, &step, at(run.now)).unwrap_err();
    expect!["op-18 carries fence 1, which is not that of the lease in hand"].assert_eq(&refused.to_string());
    run.state = whole;
    run.state.token = None;
    let refused = apply(&run.plan, &mut run.state, &step, at(run.now)).unwrap_err();
    expect!["op-18 needs the stamp of the resume gates, and carries another or none that stands"]
        .assert_eq(&refused.to_string());
}

#[test]
fn a_survey_shows_every_gate_before_anything_is_approved() {
    let mut run = Run::new(go_on());
    run.plan.approved = false;
    let observed = run.observed();
    let look = gate::Look { plan: &run.plan, state: &run.state, observed: &observed, now: at(run.now) };
    let lines: Vec<_> = gate::survey(look)
        .into_iter()
        .map(|(name, verdict)| {
            let findings: Vec<_> = verdict.findings().iter().take(1).map(ToString::to_string).collect();
            format!("{name}: {}", if verdict.passed() { "yes".to_owned() } else { findings.join("") })
        })
        .collect();
    expect![[r#"
        hosts ready: yes
        bonds sound in the mode to leave: yes
        bonds as last verified: w1: the bond was never recorded
        bonds alike in the mode to reach: w1: 1 member(s) carry, must be 2
        machines pinned: v1 appeared after the machines were recorded
        nobody writes: w1: r1 may be written
        replication apart: w1: r1 connection is Connected, must be StandAlone
        storage pods gone: w1: storage pods are there, or may come
        storage pods running: yes
        copies not diverged: yes
        copies may meet again: w1: r1 volume 0 connection is Connected, must be StandAlone
        copies identical: yes
        lock held: the cluster is not held for this plan"#]]
    .assert_eq(&lines.join("\n"));
}
