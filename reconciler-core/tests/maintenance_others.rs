//! Other hands on the cluster: who left a copy standing alone, who brought it back, and who held the lock before.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test: a panic is a failed test"
)]

mod maintenance_support;

use executor_api::host::Read;
use expect_test::expect;
use maintenance_support::*;
use reconciler_core::maintenance::*;

fn at_step(io: IoPolicy, step: &str) -> Run {
    let mut run = Run::new(io);
    run.until(step);
    run
}

/// To the end, with the record looked at after every pass.
fn finish_soundly(run: &mut Run) {
    for _ in 0..400 {
        let step = run.pass();
        assert_eq!(check::violations(&run.plan, &run.state), Vec::<&str>::new(), "{}", run.all_steps());
        if step.act == Act::Over || run.state.recovery == Recovery::Escalated {
            return;
        }
    }
    panic!("no end:\n{}", run.all_steps());
}

fn leaves_alone(run: &mut Run, name: &str) {
    for node in ["w1", "w2"] {
        run.world.disconnect(node, name);
    }
}

#[test]
fn a_resource_that_somebody_else_took_apart_is_the_plans_to_bring_together() {
    let mut run = at_step(IoPolicy::Continue, "send w2: disconnect r1");
    leaves_alone(&mut run, "r2");
    finish_soundly(&mut run);
    assert_eq!(run.state.phase, Phase::Complete, "{}", run.all_steps());
    assert!(run.deeds.iter().any(|deed| deed == "w1: connect r2 to w2"));
    assert!(!run.deeds.iter().any(|deed| deed.contains("disconnect r2")));
}

#[test]
fn a_resource_that_somebody_else_took_apart_and_brought_back_was_through_no_gate() {
    let mut run = at_step(IoPolicy::Continue, "send w2: disconnect r1");
    leaves_alone(&mut run, "r2");
    run.until("enter ResumeDRBD");
    run.world.connect("w1", "r2");
    run.world.connect("w2", "r2");
    run.pass();
    expect!["halt (disconnected gate: r2 was reconnected by somebody else, through no gate)"]
        .assert_eq(&run.last_steps(1));
}

#[test]
fn the_way_back_brings_together_what_somebody_else_took_apart() {
    let mut run = at_step(IoPolicy::Continue, "send w1: disconnect r1");
    leaves_alone(&mut run, "r2");
    run.fold(PlanObservation::AbortRequested(person("ann")));
    finish_soundly(&mut run);
    assert_eq!(run.state.recovery, Recovery::RevertedSafe, "{}", run.all_steps());
}

#[test]
fn pins_are_given_back_on_the_way_back_only_over_copies_in_sync_though_nothing_was_taken_apart() {
    let mut run = at_step(IoPolicy::Continue, "send v2: pin");
    run.fold(PlanObservation::AbortRequested(person("ann")));
    run.world.peer_volume_mut("w2", "r1").out_of_sync_kib = Some(12);
    for _ in 0..40 {
        run.pass();
    }
    expect!["wait (sync gate: w2: r1 volume 0 out-of-sync KiB is 12, must be 0)"]
        .assert_eq(&run.last_steps(1));
    assert!(!run.deeds.iter().any(|deed| deed.contains("restore")), "{}", run.all_steps());
    run.world.peer_volume_mut("w2", "r1").out_of_sync_kib = Some(0);
    finish_soundly(&mut run);
    assert_eq!(run.state.recovery, Recovery::RevertedSafe, "{}", run.all_steps());
}

#[test]
fn a_torn_reading_that_may_hide_a_split_brain_lets_no_second_connect_out() {
    let mut run = at_step(IoPolicy::Continue, "send w1: connect r1");
    let mut observed = run.observed();
    for storage in observed.storage.values_mut() {
        let Read::Seen(reading) = &mut storage.read else { panic!("it was read") };
        reading.stable = false;
    }
    let step = run.decide_on(&observed);
    expect!["wait (divergence watch: w1: storage status changed while it was read; w2: storage status changed while it was read)"]
        .assert_eq(&step.to_string());
    assert_eq!(run.pass().to_string(), "send w2: connect r1 to w1 (r1 is apart on w2)", "whole, it decides");
}

#[test]
fn a_new_holder_fences_every_agent_off_before_its_first_operation() {
    let mut run = at_step(IoPolicy::Continue, "enter FlipNode1");
    let before = run.deeds.len();
    run.restart();
    run.world.lock.lease = None;
    run.until("send w1: set bond0");
    expect![[r#"
        acquire lease
        fence off the agent on w1
        fence off the agent on w2
        fence off the agent of the machines
        w1: set bond0 to balance-rr"#]]
    .assert_eq(&run.deeds[before..].join("\n"));
}

#[test]
fn an_agent_that_does_not_answer_to_the_new_fence_holds_everything_up() {
    let mut run = at_step(IoPolicy::Continue, "enter SuspendMigration");
    for _ in 0..run.plan.pace.connect_attempts {
        let step = run.decide();
        let Act::Dispatch(effect) = &step.act else { panic!("{step}") };
        assert!(effect.raises_fence(), "{step}");
        apply(&run.plan, &mut run.state, &step, at(run.now)).unwrap();
        run.fold(PlanObservation::Lost { id: effect.id() });
        run.now += 60;
    }
    run.pass();
    expect![
        "halt (fence off the agent on w1: failed: it never answered; see that it runs and can be reached)"
    ]
    .assert_eq(&run.last_steps(1));
}

#[test]
fn no_operation_is_recorded_for_an_agent_that_may_obey_a_former_holder() {
    let mut run = at_step(IoPolicy::Continue, "enter FlipNode1");
    let step = run.decide();
    run.state.fenced.remove(&AgentName::Host(host("w1")));
    let refused = apply(&run.plan, &mut run.state, &step, at(run.now)).unwrap_err();
    expect!["op-14 is for the agent on w1, which has not met the fence of the lease in hand"]
        .assert_eq(&refused.to_string());
}
