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
