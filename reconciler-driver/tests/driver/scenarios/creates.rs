//! Creates whose answer says less than happened: listings that are blind at first, tokens that lead to the dead or to
//! another request, and errors behind which there is a lease.

use std::time::Duration;

use executor_api::{RejectReason, Visibility};
use executor_fake::{CallKind, FakeBehaviour, Fault, Rule, Silence, Tokens};

use crate::support::{Stage, at, group, policy, secs, shape};

fn one(behaviour: FakeBehaviour) -> Stage {
    Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), behaviour)
}

/// How many create requests reached the world.
fn creates(stage: &Stage) -> u64 {
    stage.world.creates_by_token().values().sum()
}

#[test]
fn h01_a_listing_that_is_blind_after_a_lost_create_is_waited_for() {
    for tokens in [Tokens::Honoured, Tokens::Ignored] {
        let mut behaviour = FakeBehaviour::instant();
        behaviour.visibility = Visibility { listing_lag: secs(40), late_landing: Duration::ZERO };
        behaviour.tokens = tokens;
        let mut stage = one(behaviour);
        stage.script(Rule::new(CallKind::Create, Fault::AnswerLost(Silence::Hangs)));
        stage.run_to(39);
        assert_eq!(
            (creates(&stage), stage.runner.driver().ready()),
            (1, 0),
            "nothing to be seen is not nothing"
        );
        stage.settle(60);
        assert_eq!((creates(&stage), stage.attempt("n-0")), (1, 1), "{tokens:?}");
    }
}

#[test]
fn h02a_a_create_is_repeated_with_the_body_it_had_whatever_is_declared_by_then() {
    let mut stage = one(FakeBehaviour::instant());
    // The first never arrives. Had the second another body, the world would take it for another request.
    stage.script(Rule::new(CallKind::Create, Fault::NotActed(Silence::Hangs)));
    stage.script(Rule::new(CallKind::Create, Fault::AnswerLost(Silence::Ambiguous)));
    stage.run_to(5);
    let mut retimed = group("n", 1, 1);
    retimed.policy.cap = Some(secs(5));
    stage.ask(shape(2, vec![retimed]));
    stage.settle(120);
    assert_eq!(stage.world.creates_by_token().len(), 1, "one token for one attempt");
    assert_eq!(stage.attempt("n-0"), 1);
}

#[test]
fn h02b_another_spec_is_another_attempt_with_a_token_of_its_own() {
    let mut stage = one(FakeBehaviour::instant());
    let empty = Fault::Rejected(RejectReason::Capacity);
    stage.script(Rule::new(CallKind::Create, empty).always().until(at(10)));
    stage.run_to(10);
    stage.ask(shape(2, vec![group("n", 1, 2)]));
    stage.settle(60);
    // What is refused reaches nothing; the second attempt's token is fresh.
    assert_eq!((creates(&stage), stage.attempt("n-0")), (1, 2));
}

#[test]
fn h03a_a_token_that_leads_to_a_dead_lease_ends_the_attempt() {
    let mut stage = one(FakeBehaviour::instant());
    stage.script(Rule::new(CallKind::Create, Fault::AnswerLost(Silence::Hangs)));
    stage.run_to(10);
    stage.world.kill(&stage.world.existing_leases()[0].id, "reclaimed");
    stage.settle(120);
    assert_eq!(stage.attempt("n-0"), 2);
    let each: Vec<u64> = stage.world.creates_by_token().into_values().collect();
    assert_eq!(each, [1, 1], "the dead one's token was tried again and again");
    assert_eq!(stage.steps("start-bootstrap"), 1, "no session for a dead lease");
}

#[test]
fn h03b_a_dead_lease_of_an_earlier_attempt_is_not_adopted() {
    let mut stage = one(FakeBehaviour::instant());
    stage.settle(60);
    let dead = stage.world.existing_leases()[0].id.clone();
    stage.run_to(20);
    stage.world.kill(&dead, "reclaimed");
    stage.settle(60);
    let living = stage.world.existing_leases();
    assert_ne!(living[0].id, dead);
    assert_eq!((stage.attempt("n-0"), creates(&stage)), (2, 2));
}

#[test]
fn h04a_an_error_behind_which_there_is_a_lease_leads_to_its_adoption() {
    let mut behaviour = FakeBehaviour::instant();
    behaviour.tokens = Tokens::Ignored;
    let mut stage = one(behaviour);
    stage.script(Rule::new(CallKind::Create, Fault::AnswerLost(Silence::Ambiguous)).times(3));
    stage.settle(60);
    assert_eq!((creates(&stage), stage.attempt("n-0")), (1, 1));
    stage.ask(shape(2, vec![]));
    stage.settle(60);
    assert_eq!(stage.world.existing_leases(), []);
}

#[test]
fn h04b_what_a_failed_create_made_is_cleaned_up_when_the_slot_goes_meanwhile() {
    let mut stage = one(FakeBehaviour::default());
    stage.script(Rule::new(CallKind::Create, Fault::AnswerLost(Silence::Ambiguous)));
    stage.run_to(1);
    stage.ask(shape(2, vec![]));
    stage.settle(60);
    assert_eq!((creates(&stage), stage.world.existing_leases().len()), (1, 0));
    assert_eq!(stage.steps("destroy-lease"), 1, "what was made is found and destroyed");
}
