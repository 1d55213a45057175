//! A person takes the cluster over: the plan bars what it sent and lost sight of, gives the lock up, and drives nothing
//! any more, whatever happens on the way.
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

fn hand_over(run: &mut Run) {
    let fingerprint = run.state.escalation.as_ref().unwrap().fingerprint.clone();
    let observed = run.observed();
    let look = Look { plan: &run.plan, state: &run.state, observed: &observed, now: at(run.now) };
    let reply = Reply { fingerprint, answer: Answer::HandOver, who: "ann".to_owned() };
    let step = respond(look, reply).unwrap();
    run.take(&step);
}

/// Records the next effect and lets nobody hear of it.
fn lose_the_next(run: &mut Run) -> String {
    let step = run.decide();
    let Ok(Applied::Send { effect, .. }) = apply(&run.plan, &mut run.state, &step, at(run.now)) else {
        panic!("nothing was sent: {step}");
    };
    run.steps.push(step.to_string());
    run.fold(PlanObservation::Lost { id: effect.id() });
    run.now += 1;
    effect.to_string()
}

/// The first flip was sent and nobody heard of it; the copies have diverged, and a person is asked.
fn lost_sight() -> Run {
    let mut run = Run::new(IoPolicy::Continue);
    run.until("enter FlipNode1");
    assert_eq!(lose_the_next(&mut run), "w1: set bond0 to balance-rr");
    run.world.write("w2", "r1", 8);
    run.until("escalate");
    run
}

/// To the end; no state on the way is one that must not be.
fn to_the_end(run: &mut Run, mut each: impl FnMut(&mut Run)) {
    for _ in 0..400 {
        each(run);
        let step = run.pass();
        assert_eq!(violations(&run.plan, &run.state), Vec::<&str>::new(), "{step}");
        if step.act == Act::Over {
            return;
        }
    }
    panic!("no end:\n{}", run.all_steps());
}

#[test]
fn an_operation_that_may_yet_act_is_told_of_in_the_question_and_barred_before_the_hold_is_lifted() {
    let mut run = lost_sight();
    let world = &run.state.escalation.as_ref().unwrap().world;
    expect!["what became of op-14 (w1: set bond0 to balance-rr) is not known, and it may yet act"]
        .assert_eq(&world["last operation"]);
    hand_over(&mut run);
    let (deeds, steps) = (run.deeds.len(), run.steps.len());
    to_the_end(&mut run, |_| {});
    expect![[r#"
        settle op-14
        lift hold
        release lease"#]]
    .assert_eq(&run.deeds[deeds..].join("\n"));
    assert!(run.state.unsettled.is_none() && run.world.lock == LockRecords::default());
    assert!(!run.steps[steps..].iter().any(|step| step.contains("not known, and it may yet act")));
}

#[test]
fn what_cannot_be_barred_is_said_where_the_hold_is_lifted_and_at_the_end() {
    let mut run = lost_sight();
    hand_over(&mut run);
    let mut settles = 0;
    for _ in 0..400 {
        let step = run.decide();
        if step.to_string().starts_with("send settle") {
            lose_the_next(&mut run);
            settles += 1;
        } else if run.pass().act == Act::Over {
            break;
        }
    }
    assert_eq!(settles, run.plan.pace.connect_attempts);
    let open = "what became of op-14 (w1: set bond0 to balance-rr) is not known, and it may yet act";
    let told: Vec<_> = run.steps.iter().filter(|step| step.contains(open)).cloned().collect();
    assert!(told.iter().any(|step| step.starts_with("send lift hold (a person took over; ")), "{told:#?}");
    assert!(told.last().unwrap().starts_with("over ("), "{told:#?}");
    assert_eq!(run.world.lock, LockRecords::default());
}

#[test]
fn nothing_that_goes_wrong_while_the_lock_is_given_up_sets_the_plan_going_again() {
    let asked = || {
        let mut run = Run::new(IoPolicy::Continue);
        run.until("enter FlipNode2");
        run.world.lock.hold.take();
        run.until("escalate");
        run.world.lock.hold = Some(PlanHold { plan: run.plan.uid.clone(), since: at(0) });
        run.until("escalate");
        hand_over(&mut run);
        run
    };
    let only_the_lock = |run: &Run, deeds: usize| {
        let others = ["acquire lease", "lift hold", "release lease"];
        assert!(run.deeds[deeds..].iter().all(|deed| others.contains(&deed.as_str())), "{}", run.all_steps());
        assert_eq!(
            (&run.state.recovery, run.world.lock.clone()),
            (&Recovery::Escalated, LockRecords::default())
        );
    };
    // The lease is taken away once it was ours again.
    let mut run = asked();
    let deeds = run.deeds.len();
    run.until("adopt lease");
    run.world.lock.lease = None;
    run.until("halt (lease lost");
    to_the_end(&mut run, |_| {});
    only_the_lock(&run, deeds);

    // The lock cannot be read for a while.
    let mut run = asked();
    let deeds = run.deeds.len();
    for _ in 0..5 {
        let mut observed = run.observed();
        observed.lock = Some(Evidence::unknown(Source::Cluster, at(run.now), "no answer"));
        let step = run.decide_on(&observed);
        run.take(&step);
        assert_eq!(violations(&run.plan, &run.state), Vec::<&str>::new(), "{step}");
    }
    to_the_end(&mut run, |_| {});
    only_the_lock(&run, deeds);
}
