//! What listings and sessions may claim, and what is believed of it.

use std::collections::BTreeMap;

use executor_api::{
    AttemptKey, MemberFacts, NodeAttemptId, NodeObservation, ObservationReport, RunId, labels,
};
use executor_fake::{CallKind, FakeBehaviour, Fault, Incident, Rule};
use reconciler_core::{Hold, HoldBy};
use reconciler_driver::DriverInput;

use crate::support::{Stage, at, epoch, group, policy, run, secs, shape, slot};

fn ready(count: u32) -> Stage {
    let mut stage = Stage::with(shape(1, vec![group("n", count, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    stage
}

fn told(stage: &Stage, name: &str) -> Vec<String> {
    let events = stage.runner.events().iter().filter(|event| event.what.name() == name);
    events.map(|event| event.what.to_string()).collect()
}

#[test]
fn leases_of_another_uid_are_told_once_and_left_alone() {
    let mut stage = ready(1);
    let other =
        AttemptKey { run: RunId::new("demo", "u2").unwrap(), node: slot("n-0"), attempt: NodeAttemptId(1) };
    stage.world.plant(&other);
    stage.world.plant_alien(BTreeMap::from([(labels::RUN.to_owned(), "demo".to_owned())]));
    stage.run_to(100);
    assert_eq!(told(&stage, "foreign-lease").len(), 2);
    stage.ask(shape(2, vec![]));
    stage.runner.run_until_settled(secs(60)).unwrap();
    assert_eq!(stage.world.existing_leases().len(), 2);
}

#[test]
fn a_lease_of_an_attempt_that_is_over_is_told_and_left_alone() {
    let mut stage = ready(1);
    stage.world.plant(&AttemptKey { run: run(), node: slot("n-0"), attempt: NodeAttemptId(77) });
    stage.run_to(60);
    let orphans = told(&stage, "orphan");
    assert_eq!(orphans.len(), 1, "{orphans:?}");
    assert!(orphans[0].contains("n-0 a77"), "{orphans:?}");
}

#[test]
fn two_live_leases_of_one_attempt_hold_the_slot() {
    let mut stage = ready(2);
    stage.world.plant(&AttemptKey { run: run(), node: slot("n-0"), attempt: NodeAttemptId(1) });
    stage.run_to(60);
    assert_eq!(told(&stage, "breach").len(), 1);
    stage.ask(shape(2, vec![group("n", 2, 2)]));
    stage.run_to(120);
    assert_eq!((stage.attempt("n-0"), stage.attempt("n-1")), (1, 3));
    let why = stage.runner.driver().status_of(&slot("n-0")).unwrap().why;
    assert!(why.starts_with("held by breach: attempt a1 has 2 live leases"), "{why}");
    // Cleaning up ends both.
    stage.runner.tell(DriverInput::Release { slot: Some(slot("n-0")), by: HoldBy::Breach });
    stage.settle(60);
}

#[test]
fn a_dead_lease_is_found_by_the_next_listing_if_nobody_tells() {
    let mut stage = ready(2);
    stage.script(Rule::new(CallKind::Attach, Fault::Panics).always());
    stage.runner.crash().unwrap();
    stage.world.befall(&slot("n-1"), &Incident::Dies("reclaimed".to_owned()));
    stage.run_to(11);
    assert_eq!(stage.attempt("n-1"), 3);
}

#[test]
fn a_vanished_lease_is_only_suspect_until_the_loss_timeout() {
    let mut policy = policy();
    policy.extra.loss_timeout = Some(secs(60));
    let mut stage = Stage::with(shape(1, vec![group("n", 2, 1)]), policy, FakeBehaviour::instant());
    stage.settle(60);
    stage.run_to(5);
    stage.script(Rule::new(CallKind::Attach, Fault::Panics).always());
    stage.runner.crash().unwrap();
    stage.world.befall(&slot("n-1"), &Incident::Vanishes);
    stage.run_to(60);
    assert_eq!(stage.attempt("n-1"), 2);
    let why = stage.runner.driver().status_of(&slot("n-1")).unwrap().why;
    assert_eq!(why, "could not be seen lately");
    stage.run_to(80);
    assert_eq!(stage.attempt("n-1"), 3);
}

#[test]
fn a_loss_during_a_hold_is_acted_on_after_it() {
    let mut stage = ready(1);
    let hold = Hold { by: HoldBy::Maintenance, reason: "bond".to_owned(), since: epoch() };
    stage.runner.tell(DriverInput::Hold { slot: None, hold });
    stage.world.befall(&slot("n-0"), &Incident::Dies("rebooted".to_owned()));
    stage.run_to(60);
    assert_eq!(stage.steps("begin-delete"), 0);
    stage.runner.tell(DriverInput::Release { slot: None, by: HoldBy::Maintenance });
    stage.run_to(75);
    assert_eq!(stage.attempt("n-0"), 2);
}

#[test]
fn a_join_deadline_that_passes_during_a_hold_is_settled_at_its_release() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), FakeBehaviour::instant());
    stage.script(Rule::new(CallKind::Start, Fault::NeverJoins));
    stage.run_to(50);
    let hold = Hold { by: HoldBy::Operator, reason: "debugging".to_owned(), since: at(50) };
    stage.runner.tell(DriverInput::Hold { slot: Some(slot("n-0")), hold });
    stage.run_to(100);
    assert_eq!(stage.steps("begin-delete"), 0);
    stage.runner.tell(DriverInput::Release { slot: Some(slot("n-0")), by: HoldBy::Operator });
    stage.settle(30);
    assert_eq!(stage.attempt("n-0"), 2);
}

#[test]
fn a_join_with_another_attempts_nonce_is_not_believed() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), FakeBehaviour::instant());
    stage.script(Rule::new(CallKind::Start, Fault::NeverJoins));
    stage.run_to(10);
    let session = stage.runner.driver().state().nodes[&slot("n-0")].active_bootstrap.clone().unwrap();
    let member =
        MemberFacts { member_id: "stranger".to_owned(), nonce: "guess".to_owned(), joined_at: at(10) };
    let observation = NodeObservation::MemberJoined { session, member };
    let report = ObservationReport { node: slot("n-0"), attempt: NodeAttemptId(1), observation };
    stage.runner.tell(DriverInput::Observation(report));
    stage.run_to(20);
    assert_eq!(stage.runner.driver().ready(), 0);
    assert_eq!(stage.runner.driver().counters().foreign_members, 1);
}

#[test]
fn a_limited_group_is_replaced_one_at_a_time() {
    let limited = |generation, version| {
        let mut group = group("n", 4, version);
        group.update.max_unavailable = Some(1);
        shape(generation, vec![group])
    };
    let mut stage = Stage::with(limited(1, 1), policy(), FakeBehaviour::default());
    stage.settle(60);
    stage.ask(limited(2, 2));
    let mut fewest = 4;
    while !stage.runner.driver().is_converged() {
        stage.runner.step().unwrap();
        fewest = fewest.min(stage.runner.driver().ready());
    }
    assert_eq!(fewest, 3);
    stage.settle(10);
}

#[test]
fn slots_that_leave_a_limited_group_use_up_nothing_of_its_allowance() {
    let limited = |generation, count, version| {
        let mut group = group("n", count, version);
        group.update.max_unavailable = Some(1);
        shape(generation, vec![group])
    };
    // Without the safety tick: nothing else may find what was forgotten.
    let mut no_tick = policy();
    no_tick.extra.tick_every = secs(1_000_000_000);
    let mut stage = Stage::with(limited(1, 1, 1), no_tick, FakeBehaviour::default());
    stage.settle(60);
    stage.ask(limited(2, 3, 2));
    stage.runner.step().unwrap();
    stage.ask(limited(3, 1, 2));
    stage.settle(120);
}
