//! What follows a halt: dwell, retry, the way back, a person; and the traps that have caught people.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test: a panic is a failed test"
)]

mod maintenance_support;

use std::collections::BTreeSet;
use std::time::Duration;

use executor_api::host::*;
use expect_test::expect;
use maintenance_support::*;
use reconciler_core::maintenance::gate::Look;
use reconciler_core::maintenance::*;

fn at_step(io: IoPolicy, step: &str) -> Run {
    let mut run = Run::new(io);
    run.until(step);
    run
}

/// Passes in which every flip of w2 is reported done and leaves the kernel as it was.
fn with_stubborn_w2(run: &mut Run) {
    for _ in 0..400 {
        let before = run.world.bonds[&host("w2")].clone();
        let step = run.pass();
        if step.to_string().starts_with("send w2: set bond0 to balance-rr") {
            run.world.bonds.insert(host("w2"), before);
        }
        if run.state.recovery == Recovery::Escalated || step.act == Act::Over {
            return;
        }
    }
    panic!("no end:\n{}", run.steps.join("\n"));
}

fn machines_are_as_before(run: &Run) {
    let declared = |name: &str| run.world.vms.vms[&vm(name)].declared.clone();
    assert_eq!(declared("v1"), EvictionSetting::Set(EvictionStrategy::LiveMigrate));
    assert_eq!(declared("v2"), EvictionSetting::Unset);
}

#[test]
fn h20_a_flip_reported_done_but_not_seen_halts_before_the_other_host() {
    let mut run = at_step(IoPolicy::Continue, "enter FlipNode1");
    let before = run.world.bonds[&host("w1")].clone();
    run.until("send w1: set bond0");
    run.world.bonds.insert(host("w1"), before);
    run.pass();
    expect!["halt (w1: set bond0 to balance-rr: reported done, but bond0 is in active-backup)"]
        .assert_eq(&run.last_steps(1));
    assert!(!run.deeds.iter().any(|deed| deed.starts_with("w2: set bond0")));
    assert!(run.world.lock.hold.is_some());

    // The right mode with a member missing is no better.
    let mut run = at_step(IoPolicy::Continue, "send w1: set bond0");
    let gone = InterfaceName::new("s1").unwrap();
    run.world.bond_mut("w1").members.remove(&gone);
    run.pass();
    expect!["halt (w1: set bond0 to balance-rr: reported done, but w1: the members at the next boot are others; w1: member s1 is missing)"].assert_eq(&run.last_steps(1));
}

#[test]
fn h21_up_to_date_on_both_sides_and_out_of_sync_on_one_defers_for_as_long_as_it_takes() {
    let mut run = at_step(IoPolicy::Continue, "send w2: undrain");
    run.world.peer_volume_mut("w2", "r1").out_of_sync_kib = Some(12);
    for hours in 1..100 {
        run.now += 3_600 * hours;
        let step = run.pass();
        assert!(matches!(step.act, Act::Wait { .. }), "{step}");
    }
    run.world.peer_volume_mut("w2", "r1").out_of_sync_kib = Some(0);
    run.until("enter ReleaseLock");
    run.world.peer_volume_mut("w2", "r1").out_of_sync_kib = Some(12);
    for _ in 0..10 {
        run.pass();
    }
    assert!(run.world.lock.lease.is_some() && run.world.lock.hold.is_some());
    run.world.peer_volume_mut("w2", "r1").out_of_sync_kib = Some(0);
    run.finish();
    assert_eq!(run.state.phase, Phase::Complete);
}

#[test]
fn h22_a_split_brain_seen_from_one_host_asks_a_person_at_once() {
    let split = |run: &mut Run| {
        // w2 was written too: both count from one generation.
        run.world.write("w2", "r1", 8);
    };
    let mut run = at_step(IoPolicy::Continue, "enter ResumeDRBD");
    split(&mut run);
    let (retries, deeds) = (run.state.retries, run.deeds.len());
    run.pass();
    expect!["escalate #1 (r1 volume 0: split brain: both were written since the same generation)"]
        .assert_eq(&run.last_steps(1));
    assert_eq!((run.state.retries, run.deeds.len()), (retries, deeds));
    assert_eq!(run.state.phase, Phase::ResumeDrbd);

    // No answer from one host, while the copies are apart, is no better.
    let run = at_step(IoPolicy::Continue, "enter ResumeDRBD");
    let mut observed = run.observed();
    let silent = Evidence::unknown(Source::Host(host("w2")), at(run.now), "no answer within 5 s");
    observed.storage.insert(host("w2"), silent);
    expect!["escalate #1 (w2: storage unreadable: no answer within 5 s)"]
        .assert_eq(&run.decide_on(&observed).to_string());
}

#[test]
fn a_frozen_plan_touches_nothing() {
    let mut run = at_step(IoPolicy::Continue, "enter ResumeDRBD");
    run.world.write("w2", "r1", 8);
    run.until("escalate");
    let (deeds, world, state) = (run.deeds.len(), run.world.clone(), run.state.clone());
    for _ in 0..60 {
        run.now += 60;
        let step = run.pass();
        assert!(matches!(step.act, Act::Wait { until: None }), "{step}");
    }
    assert_eq!(run.deeds.len(), deeds);
    assert_eq!(run.state, state);
    assert_eq!(run.world.lock, world.lock);
    // Not even a step that a bug made up is taken.
    let step = Step { act: Act::Move(Move::Retry), why: Why::Plain("a bug".to_owned()) };
    assert_eq!(apply(&run.plan, &mut run.state, &step, at(run.now)), Err(StepRefused::Frozen));
}

#[test]
fn h23_storage_that_reconnects_by_itself_stops_the_flip() {
    for (place, deed) in [("enter FlipNode1", "w1: set bond0"), ("enter FlipNode2", "w2: set bond0")] {
        let mut run = at_step(IoPolicy::Continue, place);
        let pods = Some(BTreeSet::from(["satellite-w1-3".to_owned()]));
        run.world.satellites.insert(host("w1"), SatelliteReading { kept_away: Some(true), pods });
        run.world.connect("w1", "r1");
        run.world.connect("w2", "r1");
        let step = run.pass();
        assert!(matches!(step.act, Act::Halt(_)), "{place}: {step}");
        assert!(!run.deeds.iter().any(|sent| sent.starts_with(deed)), "{place}");
    }
    // A reconnect through no gate does not count as resumed.
    let mut run = at_step(IoPolicy::Continue, "enter ResumeDRBD");
    run.world.connect("w1", "r1");
    run.world.connect("w2", "r1");
    run.pass();
    expect!["halt (disconnected gate: r1 was reconnected by somebody else, through no gate)"]
        .assert_eq(&run.last_steps(1));
}

#[test]
fn h24_an_abort_is_over_when_the_migration_is_and_placement_is_read_afterwards() {
    let mut run = at_step(IoPolicy::Continue, "send v2: pin");
    let name = MigrationName::new("m1").unwrap();
    let migration = MigrationReading {
        vm: vm("v1"),
        phase: MigrationPhase::Scheduling,
        abort_requested: false,
        abort_status: None,
        post_copy: Some(false),
    };
    run.world.vms.migrations.insert(name.clone(), migration);
    run.until("send v1: abort migration m1");
    let step = run.pass();
    assert!(matches!(step.act, Act::Wait { .. }), "{step}");
    // It won the race: v1 is on w2 now, and that is what is recorded.
    run.world.vms.migrations.get_mut(&name).unwrap().phase = MigrationPhase::Succeeded;
    run.world.running_mut("v1").node = host("w2");
    run.world.running_mut("v1").pod_uid = "pod-2".to_owned();
    run.until("enter DisconnectDRBD");
    let placed = run.state.vm_originals[&vm("v1")].placement.clone();
    assert_eq!(placed, Some((host("w2"), "pod-2".to_owned())));
    // One that comes later is a breach.
    let later = MigrationReading {
        vm: vm("v1"),
        phase: MigrationPhase::Pending,
        abort_requested: false,
        abort_status: None,
        post_copy: None,
    };
    run.world.vms.migrations.insert(MigrationName::new("m2").unwrap(), later);
    run.pass();
    expect!["halt (pin gate: migration m2 of v1 is not over (Pending))"].assert_eq(&run.last_steps(1));
}

#[test]
fn h25_originals_survive_a_restart_between_two_pins_and_come_back_exactly() {
    let mut run = at_step(IoPolicy::Continue, "send v1: pin");
    run.restart();
    // The pin does not reach the running instance.
    for _ in 0..15 {
        run.world.running_mut("v1").effective = EvictionSetting::Set(EvictionStrategy::LiveMigrate);
        run.pass();
    }
    assert_eq!(run.state.phase, Phase::SuspendMigration);
    expect![[r#"
        retry (try 2 of 3)
        send v1: pin (running with LiveMigrate)
        wait (v1: pin: done, but running with LiveMigrate)
        halt (v1: pin: reported done, but running with LiveMigrate)
        dwell (v1: pin: reported done, but running with LiveMigrate)
        wait (letting things settle after: v1: pin: reported done, but running with LiveMigrate)"#]]
    .assert_eq(&run.last_steps(6));
    let mut run = at_step(IoPolicy::Continue, "send v1: pin");
    run.restart();
    run.finish();
    assert_eq!(run.state.phase, Phase::Complete);
    machines_are_as_before(&run);
}

#[test]
fn h27_flips_that_fail_every_time_end_after_three_tries_where_they_began() {
    let mut run = Run::new(IoPolicy::Continue);
    with_stubborn_w2(&mut run);
    let tries = run.deeds.iter().filter(|deed| *deed == "w2: set bond0 to balance-rr").count();
    assert_eq!(tries, 3);
    assert_eq!(run.state.recovery, Recovery::RevertedSafe);
    assert_eq!(run.world.lock, LockRecords::default());
    machines_are_as_before(&run);
    let from = run.steps.iter().position(|step| step.starts_with("roll back (")).unwrap();
    expect![[r#"
        roll back (all 3 tries are spent)
        send w1: set bond0 to active-backup (bond0 is in balance-rr)
        verify bond of w1: active-backup (read back)
        roll back: reconnect (both bonds are as before the plan)
        send w1: probe bond0 to w2 with 50 packets (the link was not probed)
        send w2: probe bond0 to w1 with 50 packets (the link was not probed)
        stamp gates (reconnect gate (fast forward) passed)
        send w1: connect r1 to w2 (r1 is apart on w1)
        send w2: connect r1 to w1 (r1 is apart on w2)
        send w1: connect r2 to w2 (r2 is apart on w1)
        send w2: connect r2 to w1 (r2 is apart on w2)
        send w1: undrain-satellite (no storage pod runs)
        send w2: undrain-satellite (no storage pod runs)
        roll back: restore (replication is back)
        send v1: restore LiveMigrate (declared None, was LiveMigrate)
        send v2: restore (not set) (declared None, was (not set))
        roll back: release (every machine has what it had)
        send lift hold (back where it began)
        note hold lifted (no hold is left)
        send release lease (back where it began)
        note lease released (no lease of ours is left)
        reverted safe (back where it began)
        over (RevertedSafe in FlipNode2)"#]]
    .assert_eq(&run.steps[from..].join("\n"));
}

#[test]
fn h27_tries_are_counted_across_restarts() {
    let mut run = Run::new(IoPolicy::Continue);
    for _ in 0..600 {
        let before = run.world.bonds[&host("w2")].clone();
        let step = run.pass();
        if step.to_string().starts_with("send w2: set bond0 to balance-rr") {
            run.world.bonds.insert(host("w2"), before);
        }
        if matches!(step.act, Act::Halt(_)) {
            run.restart();
        }
        if step.act == Act::Over {
            break;
        }
    }
    let tries = run.deeds.iter().filter(|deed| *deed == "w2: set bond0 to balance-rr").count();
    assert_eq!(tries, 3);
    assert_eq!(run.state.recovery, Recovery::RevertedSafe);
}

#[test]
fn h27_a_reconnect_that_never_comes_about_is_tried_a_few_times_and_then_asks_a_person() {
    let mut run = Run::new(IoPolicy::Continue);
    for _ in 0..600 {
        let before = run.world.bonds[&host("w2")].clone();
        let whole = run.world.storage.clone();
        let step = run.pass();
        let words = step.to_string();
        if words.starts_with("send w2: set bond0 to balance-rr") {
            run.world.bonds.insert(host("w2"), before);
        }
        if words.contains(": connect r") {
            // Both wait for one another and never meet.
            run.world.storage = whole;
            let Act::Dispatch(Effect::Host(operation)) = &step.act else { panic!("{step}") };
            let HostAction::ConnectResource { resource, .. } = &operation.action else { panic!("{step}") };
            let connection = run.world.connection_mut(operation.node.as_str(), resource.as_str());
            connection.state = ConnectionState::Connecting;
        }
        if run.state.recovery == Recovery::Escalated {
            break;
        }
    }
    let connects = run.deeds.iter().filter(|deed| *deed == "w1: connect r1 to w2").count();
    assert_eq!(connects, 3, "{}", run.all_steps());
    expect!["escalate #1 (not connected in time: r1, r2)"].assert_eq(&run.last_steps(1));
    let deeds = run.deeds.len();
    let state = run.state.clone();
    for _ in 0..60 {
        run.now += 60;
        run.pass();
    }
    assert_eq!((run.deeds.len(), &run.state), (deeds, &state));
}

#[test]
fn dwell_sends_nothing_for_its_whole_time() {
    let mut run = at_step(IoPolicy::Continue, "send w1: set bond0");
    run.world.bond_mut("w1").carrier = Some(false);
    run.until("dwell");
    let Recovery::Dwell { until, .. } = run.state.recovery.clone() else { panic!("no dwell") };
    let deeds = run.deeds.len();
    // A lease that is gone meanwhile is not even looked for.
    run.world.lock.lease = None;
    while at(run.now) < until {
        let step = run.decide();
        assert!(matches!(step.act, Act::Wait { .. }), "{step}");
        run.now += 1;
    }
    assert_eq!(run.deeds.len(), deeds);
}

#[test]
fn a_retry_that_works_goes_on_as_resumed() {
    let mut run = at_step(IoPolicy::Continue, "send w1: set bond0");
    run.world.bond_mut("w1").carrier = Some(false);
    run.until("retry");
    expect![[r#"
        dwell (w1: set bond0 to balance-rr: reported done, but w1: carrier is false, must be true)
        wait (letting things settle after: w1: set bond0 to balance-rr: reported done, but w1: carrier is false, must be true)
        retry (try 2 of 3)"#]].assert_eq(&run.last_steps(3));
    run.until("enter FlipNode2");
    assert_eq!(run.state.recovery, Recovery::Resumed);
    run.finish();
    assert_eq!(run.state.phase, Phase::Complete);
    assert_eq!(run.state.retries, 1);
}

#[test]
fn a_failing_probe_is_not_made_again_within_a_try() {
    let mut run = Run::new(IoPolicy::Continue);
    for _ in 0..600 {
        let step = run.pass();
        if step.to_string().starts_with("send w1: probe") {
            run.state.probes[0].received -= 1;
        }
        if step.act == Act::Over {
            break;
        }
    }
    // Three tries forward; on the way back one more, over bonds that are whole again, which fails as well.
    let forward = run.steps.iter().take_while(|step| !step.starts_with("roll back"));
    let probes = forward.filter(|step| step.starts_with("send w1: probe")).count();
    assert_eq!(probes, 3);
    assert_eq!(run.state.recovery, Recovery::Escalated);
    assert!(!run.deeds.iter().any(|deed| deed.contains(": connect r")));
}

#[test]
fn an_abort_goes_back_without_another_try() {
    for place in [
        "enter PreconditionsCheck",
        "enter AcquireLock",
        "note hold",
        "enter SuspendMigration",
        "send v1: pin",
        "enter DisconnectDRBD",
        "send w1: disconnect r1",
        "enter DrainSatellite",
        "enter FlipNode1",
        "enter FlipNode2",
        "enter ResumeDRBD",
        "send w1: connect r1",
        "send w1: undrain",
    ] {
        for io in [IoPolicy::Continue, quiesce()] {
            let mut run = at_step(io, place);
            run.fold(PlanObservation::AbortRequested(person("ann")));
            run.finish();
            assert_eq!(run.state.recovery, Recovery::RevertedSafe, "{place}\n{}", run.all_steps());
            assert_eq!(run.state.retries, 0);
            assert_eq!(run.world.lock, LockRecords::default(), "{place}");
            machines_are_as_before(&run);
            for node in ["w1", "w2"] {
                assert_eq!(run.world.bond_mut(node).mode, BondMode::ActiveBackup, "{place}");
                for name in ["r1", "r2"] {
                    assert_eq!(run.world.connection_mut(node, name).state, ConnectionState::Connected);
                    assert_eq!(run.world.resource_mut(node, name).suspended.user, Some(false));
                }
            }
        }
    }
}

/// Steps until the end, with a restart after step number `when`; the operation of that step may be lost.
fn with_a_crash(io: IoPolicy, when: usize, lost: bool, spoil: bool) -> Option<Run> {
    let mut run = Run::new(io);
    run.thorough = false;
    for number in 0..600 {
        let before = run.world.bonds[&host("w2")].clone();
        let step = run.decide();
        let crash = number == when;
        if crash && lost && matches!(step.act, Act::Dispatch(_)) {
            // Recorded, and never sent.
            apply(&run.plan, &mut run.state, &step, at(run.now)).unwrap();
            run.restart();
            run.now += 1;
            continue;
        }
        if let Act::Wait { until: Some(until) } = &step.act {
            run.now = run.now.max(until.duration_since(at(0)).unwrap().as_secs());
        }
        run.take(&step);
        if spoil && step.to_string().starts_with("send w2: set bond0 to balance-rr") {
            run.world.bonds.insert(host("w2"), before);
        }
        if crash {
            run.restart();
        }
        if step.act == Act::Over {
            return (number >= when).then_some(run);
        }
        assert_ne!(run.state.recovery, Recovery::Escalated, "crash at {when}:\n{}", run.all_steps());
    }
    panic!("no end after a crash at {when}:\n{}", run.all_steps());
}

#[test]
fn a_crash_at_every_step_of_the_path_and_of_the_way_back_ends_where_it_would_have() {
    let mut crashes = 0;
    for io in [IoPolicy::Continue, quiesce()] {
        // The way back is the same under either policy but for the suspension, which has tests of its own.
        let spoils: &[bool] = if io == IoPolicy::Continue { &[false, true] } else { &[false] };
        for spoil in spoils.iter().copied() {
            for lost in [false, true] {
                for when in 0.. {
                    let Some(run) = with_a_crash(io.clone(), when, lost, spoil) else { break };
                    crashes += 1;
                    if spoil {
                        assert_eq!(run.state.recovery, Recovery::RevertedSafe);
                    } else {
                        assert_eq!(run.state.phase, Phase::Complete);
                    }
                    assert_eq!(run.world.lock.hold, None);
                    machines_are_as_before(&run);
                }
            }
        }
    }
    assert!(crashes > 250, "only {crashes} crashes");
}

#[test]
fn an_outcome_that_stays_unknown_asks_a_person() {
    let mut run = at_step(IoPolicy::Continue, "enter FlipNode1");
    for _ in 0..200 {
        let step = run.decide();
        if let Act::Wait { until: Some(until) } = &step.act {
            run.now = run.now.max(until.duration_since(at(0)).unwrap().as_secs());
        }
        if let Ok(Applied::Send { effect, .. }) = apply(&run.plan, &mut run.state, &step, at(run.now)) {
            run.steps.push(step.to_string());
            run.fold(PlanObservation::Lost { id: effect.id() });
        }
        run.now += 1;
        if run.state.recovery == Recovery::Escalated {
            break;
        }
    }
    expect![[r#"
        send w1: set bond0 to balance-rr (bond0 is in active-backup)
        send settle op-14 (outcome of op-14 unknown)
        send settle op-14 (outcome of op-14 unknown)
        send settle op-14 (outcome of op-14 unknown)"#]]
    .assert_eq(&run.last_steps(4));
    let reason = run.state.escalation.as_ref().unwrap().reason.to_string();
    expect!["w1: set bond0 to balance-rr: what became of it cannot be found out"].assert_eq(&reason);
}

fn reply(run: &Run, answer: Answer) -> Reply {
    let fingerprint = run.state.escalation.as_ref().unwrap().fingerprint.clone();
    Reply { fingerprint, answer, who: "ann".to_owned() }
}

fn respond_now(run: &Run, reply: Reply) -> Result<Step, ReplyRefused> {
    let observed = run.observed();
    let look = Look { plan: &run.plan, state: &run.state, observed: &observed, now: at(run.now) };
    respond(look, reply)
}

/// A plan that asks a person, over copies that are sound.
fn asking() -> Run {
    let mut run = at_step(IoPolicy::Continue, "enter FlipNode1");
    let hold = run.world.lock.hold.take();
    run.until("escalate");
    run.world.lock.hold = hold;
    // The world moved: it is asked anew.
    run.until("escalate");
    run
}

#[test]
fn a_reply_quotes_this_question_and_no_other() {
    let run = asking();
    let refused = |reply: Reply| respond_now(&run, reply).unwrap_err();
    let stale = Reply { fingerprint: Fingerprint::of("escalation", &0), ..reply(&run, Answer::RetryStep) };
    assert!(matches!(refused(stale), ReplyRefused::OtherQuestion { .. }));
    let nobody = Reply { who: " ".to_owned(), ..reply(&run, Answer::RetryStep) };
    assert_eq!(refused(nobody), ReplyRefused::Nobody);
    assert!(respond_now(&run, reply(&run, Answer::RetryStep)).is_ok());
    let calm = at_step(IoPolicy::Continue, "enter FlipNode1");
    let unasked = respond_now(&calm, reply(&run, Answer::RetryStep)).unwrap_err();
    assert!(matches!(unasked, ReplyRefused::NothingAsked { .. }));
}

#[test]
fn a_reply_is_void_once_anything_has_moved() {
    let mut run = asking();
    let given = reply(&run, Answer::RetryStep);
    let moves: [fn(&mut World); 5] = [
        |world| world.running_mut("v1").node = host("w2"),
        |world| world.lock.lease.as_mut().unwrap().fence = FenceValue(99),
        |world| world.bond_mut("w1").mode = BondMode::BalanceRr,
        |world| world.write("w2", "r1", 4),
        |world| {
            world.satellites.get_mut(&host("w1")).unwrap().kept_away = Some(false);
        },
    ];
    for bend in moves {
        let whole = run.world.clone();
        bend(&mut run.world);
        let refused = respond_now(&run, given.clone()).unwrap_err();
        assert!(matches!(refused, ReplyRefused::Moved { .. }), "{refused}");
        // And it is asked anew, under a new number.
        let step = run.decide();
        assert!(
            matches!(&step.act, Act::Escalate(asked) if asked.sequence == run.state.escalations + 1),
            "{step}"
        );
        run.world = whole;
    }
    let mut observed = run.observed();
    observed.bonds.remove(&host("w2"));
    let look = Look { plan: &run.plan, state: &run.state, observed: &observed, now: at(run.now) };
    assert!(matches!(respond(look, given), Err(ReplyRefused::NotRead { .. })));
}

#[test]
fn a_reply_is_taken_once_is_recorded_and_skips_no_gate() {
    let mut run = asking();
    let given = reply(&run, Answer::RetryStep);
    let step = respond_now(&run, given.clone()).unwrap();
    run.take(&step);
    assert!(matches!(respond_now(&run, given), Err(ReplyRefused::NothingAsked { .. })));
    let recorded = run.state.replies[0].clone();
    assert_eq!((recorded.answer, recorded.by.who.as_str()), (Answer::RetryStep, "ann"));
    // Copies that cannot be proved by then are no less a question.
    let mut bent = run.clone();
    bent.world.write("w2", "r1", 4);
    bent.until("escalate");
    run.finish();
    assert_eq!(run.state.phase, Phase::Complete, "{}", run.all_steps());
}

#[test]
fn a_split_brain_offers_neither_forward_nor_back() {
    let mut run = at_step(IoPolicy::Continue, "enter ResumeDRBD");
    run.world.write("w2", "r1", 8);
    run.until("escalate");
    let offered: Vec<_> =
        run.state.escalation.as_ref().unwrap().answers.iter().map(ToString::to_string).collect();
    expect!["look-again, hand-over"].assert_eq(&offered.join(", "));
    let refused = respond_now(&run, reply(&run, Answer::RetryStep)).unwrap_err();
    expect!["retry-step is not offered for this question; offered: look-again, hand-over"]
        .assert_eq(&refused.to_string());
    // A person who takes over gets the cluster as it is.
    let step = respond_now(&run, reply(&run, Answer::HandOver)).unwrap();
    let deeds = run.deeds.len();
    run.take(&step);
    run.until("over");
    expect![[r#"
        lift hold
        release lease"#]]
    .assert_eq(&run.deeds[deeds..].join("\n"));
    assert_eq!(run.world.lock, LockRecords::default());
    assert_eq!(run.world.vms.vms[&vm("v1")].declared, EvictionSetting::PINNED);
}

#[test]
fn suspension_that_ended_by_itself_is_never_papered_over() {
    let mut run = at_step(quiesce(), "enter FlipNode2");
    run.now += Duration::from_mins(11).as_secs();
    // The agent let I/O go on; v1 wrote.
    run.world.resource_mut("w1", "r1").suspended.user = Some(false);
    run.world.write("w1", "r1", 4);
    run.until("escalate");
    expect![[r#"
        halt (I/O was suspended for longer than allowed)
        dwell (I/O was suspended for longer than allowed)
        wait (letting things settle after: I/O was suspended for longer than allowed)
        escalate #1 (neither forward nor back can be proved safe: w1: r1 volume 0 counts changes from an older generation; w1: r1 volume 0 is of another generation than the peer's copy; w1: r1 volume 0 out-of-sync KiB is 4, must be 0)"#]].assert_eq(&run.last_steps(4));
}

#[test]
fn a_lock_that_refuses_is_not_hammered() {
    let mut run = at_step(IoPolicy::Continue, "enter AcquireLock");
    for _ in 0..20 {
        let step = run.decide();
        if let Ok(Applied::Send { effect, .. }) = apply(&run.plan, &mut run.state, &step, at(run.now)) {
            run.deeds.push(effect.to_string());
            let failure = HostFailure { kind: HostErrorKind::Unavailable, message: "no answer".to_owned() };
            run.fold(PlanObservation::Ended { id: effect.id(), outcome: Err(failure) });
        }
        run.now += 1;
    }
    assert_eq!(run.deeds, ["acquire lease"]);
}
