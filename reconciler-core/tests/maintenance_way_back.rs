//! The way back: once on it, no phase is tried again, whatever halts it and whatever a person answers; and it ends
//! also where there is nothing to give back.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test: a panic is a failed test"
)]

mod maintenance_support;

use executor_api::host::*;
use expect_test::expect;
use maintenance_support::*;
use reconciler_core::maintenance::check::violations;
use reconciler_core::maintenance::gate::Look;
use reconciler_core::maintenance::*;

fn give(run: &mut Run, answer: Answer) {
    let fingerprint = run.state.escalation.as_ref().unwrap().fingerprint.clone();
    let observed = run.observed();
    let look = Look { plan: &run.plan, state: &run.state, observed: &observed, now: at(run.now) };
    let step = respond(look, Reply { fingerprint, answer, who: "ann".to_owned() }).unwrap();
    run.take(&step);
}

fn offered(run: &Run) -> String {
    let answers = run.state.escalation.as_ref().unwrap().answers.iter().map(|answer| answer.as_str());
    answers.collect::<Vec<_>>().join(", ")
}

/// A person is asked before the second flip.
fn asked() -> Run {
    let mut run = Run::new(IoPolicy::Continue);
    run.until("enter FlipNode2");
    let hold = run.world.lock.hold.take();
    run.until("escalate");
    run.world.lock.hold = hold;
    run.until("escalate");
    run
}

/// They said that it shall go back; w1 is back, w2 was never touched, and one renewal fails.
fn interrupted() -> Run {
    let mut run = asked();
    assert_eq!(offered(&run), "look-again, retry-step, roll-back, hand-over");
    give(&mut run, Answer::RollBack);
    run.until("verify bond of w1: active-backup");
    run.state.lease_lost = Some("no answer in time".to_owned());
    run.until("escalate");
    run
}

/// No further step may be one of the way forward.
fn goes_back(run: &mut Run) {
    let from = run.deeds.len();
    for _ in 0..400 {
        let step = run.pass();
        assert_eq!(violations(&run.plan, &run.state), Vec::<&str>::new(), "{step}");
        if step.act == Act::Over {
            assert_eq!(run.state.recovery, Recovery::RevertedSafe, "{}", run.all_steps());
            let forward = run.deeds[from..].iter().find(|deed| deed.contains("set bond0 to balance-rr"));
            assert_eq!(forward, None);
            let back = |node: &str| run.world.bonds[&host(node)].mode == BondMode::ActiveBackup;
            assert!(back("w1") && back("w2"));
            assert_eq!(run.world.lock, LockRecords::default());
            return;
        }
    }
    panic!("no end:\n{}", run.all_steps());
}

#[test]
fn look_again_on_the_way_back_goes_on_with_the_way_back() {
    let mut run = interrupted();
    assert_eq!(offered(&run), "look-again, roll-back, hand-over");
    give(&mut run, Answer::LookAgain);
    goes_back(&mut run);
}

#[test]
fn a_question_of_the_way_back_that_is_asked_anew_offers_no_other_try() {
    let mut run = interrupted();
    for pod in ["another", "and another"] {
        run.world.running_mut("v1").pod_uid = pod.to_owned();
        run.until("escalate");
        assert_eq!(offered(&run), "look-again, roll-back, hand-over");
    }
    run.world.running_mut("v1").pod_uid = "pod-of-r1".to_owned();
    run.until("escalate");
    give(&mut run, Answer::LookAgain);
    goes_back(&mut run);
}

#[test]
fn who_said_roll_back_is_not_overruled_by_a_lease_lost_before_the_first_step_back() {
    let mut run = asked();
    give(&mut run, Answer::RollBack);
    run.until("adopt lease");
    // Before anything went back the lease is lost once more: that halt would be worth another try.
    run.world.lock.lease = None;
    run.until("halt (lease lost");
    goes_back(&mut run);
}

#[test]
fn the_second_bond_is_never_turned_alone() {
    // However a record came to be so: forward, in the phase of the second flip, and the first bond as it was.
    let mut run = interrupted();
    run.state.going_back = false;
    run.state.recovery = Recovery::Retry;
    run.state.lease_lost = None;
    run.state.escalation = None;
    let told = violations(&run.plan, &run.state);
    assert_eq!(told, ["the second flip before the first is verified"]);
    let deeds = run.deeds.len();
    let mut halted = run.clone();
    halted.until("halt");
    expect!["halt (bond gate: w1: 1 member(s) carry, must be 2; w1: mode at the next boot is active-backup, must be balance-rr; w1: mode is active-backup, must be balance-rr; w1: mode number is 1, must be 0)"].assert_eq(&halted.last_steps(1));
    assert_eq!(halted.deeds.len(), deeds);
    // Nothing comes of trying again, so it goes back.
    run.finish();
    assert_eq!(run.state.recovery, Recovery::RevertedSafe, "{}", run.all_steps());
    assert!(!run.deeds[deeds..].iter().any(|deed| deed.contains("balance-rr")));
}

#[test]
fn a_record_of_before_the_way_back_was_noted_is_read_by_what_shows_it() {
    let older = |run: &Run| {
        let mut stored = serde_json::to_value(&run.state).unwrap();
        stored.as_object_mut().unwrap().remove("going_back").unwrap();
        let mut state: PlanState = serde_json::from_value(stored).unwrap();
        assert!(!state.going_back);
        restarted(&run.plan, &mut state, at(run.now));
        state.going_back
    };
    let asked_there = interrupted();
    assert!(older(&asked_there));
    let mut on_it = asked_there.clone();
    give(&mut on_it, Answer::LookAgain);
    on_it.until("roll back (");
    assert!(older(&on_it));
    assert!(!older(&asked()));
}

/// On the way back one resource is together and busy, so that its sync gate defers; the other is to be connected.
fn busy_on_the_way_back() -> Run {
    let mut run = Run::new(IoPolicy::Continue);
    run.until("send w2: disconnect r1");
    run.fold(PlanObservation::AbortRequested(person("ann")));
    run.until("roll back: reconnect");
    run
}

#[test]
fn what_is_waited_for_comes_before_the_probes() {
    let mut run = busy_on_the_way_back();
    run.world.peer_volume_mut("w1", "r2").pending = Some(5);
    for _ in 0..20 {
        run.now += 3600;
        let step = run.pass();
        assert!(matches!(step.act, Act::Wait { .. }), "{step}");
    }
    assert!(run.state.probes.is_empty());
    run.world.peer_volume_mut("w1", "r2").pending = Some(0);
    goes_back(&mut run);
}

#[test]
fn no_probe_vouches_for_longer_than_a_gate() {
    let mut run = busy_on_the_way_back();
    run.until("send w2: probe");
    let most = run.plan.pace.gate_max_age.as_secs();
    let mut fresh = run.clone();
    fresh.now += most - 3;
    fresh.until("stamp gates");
    // After both probes it cannot be decided for a while.
    run.world.peer_volume_mut("w1", "r2").pending = Some(5);
    for _ in 0..5 {
        run.now += 20;
        run.pass();
    }
    run.world.peer_volume_mut("w1", "r2").pending = Some(0);
    run.pass();
    expect!["reconnect later (the link was probed 107 s ago, which is too long)"]
        .assert_eq(&run.last_steps(1));
    let steps = run.steps.len();
    run.until("stamp gates");
    assert_eq!(run.steps[steps..].iter().filter(|step| step.contains("probe")).count(), 2);
    goes_back(&mut run);

    // Forward a resume probes once: a probe that grew old is a halt, and a try.
    let mut run = Run::new(IoPolicy::Continue);
    run.until("send w2: probe");
    run.now += most;
    run.until("halt");
    expect!["halt (connectivity gate: the link was probed 32 s ago, which is too long)"]
        .assert_eq(&run.last_steps(1));
    run.finish();
    assert_eq!((run.state.phase, run.state.retries), (Phase::Complete, 1));
}

#[test]
fn a_probe_whose_answer_was_lost_counts_from_when_it_was_sent() {
    let mut run = Run::new(IoPolicy::Continue);
    run.until("stamp gates");
    let probe = run.state.probes[1].clone();
    let mut run = Run::new(IoPolicy::Continue);
    run.until("send w1: probe");
    let step = run.decide();
    let Ok(Applied::Send { effect, .. }) = apply(&run.plan, &mut run.state, &step, at(run.now)) else {
        panic!("nothing was sent: {step}");
    };
    run.now += 120;
    run.fold(PlanObservation::Lost { id: effect.id() });
    let step = run.decide();
    let Ok(Applied::Send { effect, .. }) = apply(&run.plan, &mut run.state, &step, at(run.now)) else {
        panic!("nothing was sent: {step}");
    };
    let done = EffectDone::Settled(Settled::Done(HostReport::Probed(probe)));
    run.fold(PlanObservation::Ended { id: effect.id(), outcome: Ok(done) });
    run.pass();
    expect!["halt (connectivity gate: the link was probed 121 s ago, which is too long)"]
        .assert_eq(&run.last_steps(1));
}

#[test]
fn a_probe_that_a_former_process_lost_sight_of_is_made_again() {
    let mut run = Run::new(IoPolicy::Continue);
    run.until("stamp gates");
    let probe = run.state.probes[0].clone();
    let mut run = Run::new(IoPolicy::Continue);
    run.until("enter ResumeDRBD");
    let step = run.decide();
    assert!(step.to_string().starts_with("send w1: probe"), "{step}");
    let Ok(Applied::Send { .. }) = apply(&run.plan, &mut run.state, &step, at(run.now)) else {
        panic!("nothing was sent: {step}");
    };
    run.now += 40;
    run.restart();
    run.until("adopt lease");
    let step = run.decide();
    let Ok(Applied::Send { effect, .. }) = apply(&run.plan, &mut run.state, &step, at(run.now)) else {
        panic!("nothing was sent: {step}");
    };
    assert!(step.to_string().starts_with("send settle"), "{step}");
    let done = EffectDone::Settled(Settled::Done(HostReport::Probed(probe)));
    run.fold(PlanObservation::Ended { id: effect.id(), outcome: Ok(done) });
    assert!(run.state.probes.is_empty());
    run.until("send w1: probe");
    run.finish();
    assert_eq!((run.state.phase, run.state.retries), (Phase::Complete, 0), "{}", run.all_steps());
}

#[test]
fn an_abort_behind_another_plan_ends_and_leaves_that_plans_lock_alone() {
    let theirs = |run: &mut Run| {
        run.world.lock.hold = Some(PlanHold { plan: PlanUid::new("p-other").unwrap(), since: at(0) });
        run.world.lock.lease = Some(LeaseRecord {
            holder: LeaseHolder::new("somebody").unwrap(),
            ttl: std::time::Duration::from_mins(1),
            fence: FenceValue(70),
            version: RecordVersion("v70".to_owned()),
        });
    };
    // Before the lease was ours, and after it was and was lost to the other plan.
    for place in ["enter AcquireLock", "adopt lease"] {
        let mut run = Run::new(IoPolicy::Continue);
        run.until(place);
        theirs(&mut run);
        let lock = run.world.lock.clone();
        for _ in 0..5 {
            let step = run.pass();
            assert!(matches!(step.act, Act::Wait { .. }), "{place}: {step}");
        }
        let deeds = run.deeds.len();
        run.fold(PlanObservation::AbortRequested(person("ann")));
        run.finish();
        assert_eq!(run.state.recovery, Recovery::RevertedSafe, "{place}:\n{}", run.all_steps());
        assert_eq!((run.deeds.len(), &run.world.lock), (deeds, &lock), "{place}");
    }
    // A lease of ours under their hold is given back, and no more.
    let mut run = Run::new(IoPolicy::Continue);
    run.until("adopt lease");
    run.world.lock.hold = Some(PlanHold { plan: PlanUid::new("p-other").unwrap(), since: at(0) });
    let deeds = run.deeds.len();
    run.fold(PlanObservation::AbortRequested(person("ann")));
    run.finish();
    assert_eq!(run.state.recovery, Recovery::RevertedSafe, "{}", run.all_steps());
    assert_eq!(run.deeds[deeds..], ["release lease"]);
    assert!(run.world.lock.hold.is_some());
}

#[test]
fn an_abort_lifts_a_hold_whose_placing_was_never_confirmed() {
    let mut run = Run::new(IoPolicy::Continue);
    run.until("send place hold");
    assert!(!run.state.hold_placed && run.world.lock.hold.is_some());
    run.fold(PlanObservation::AbortRequested(person("ann")));
    run.finish();
    assert_eq!(run.state.recovery, Recovery::RevertedSafe, "{}", run.all_steps());
    assert_eq!(run.world.lock, LockRecords::default());
}
