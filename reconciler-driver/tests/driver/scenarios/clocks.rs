//! Wake-ups that are late, and clocks that jump.

use std::time::SystemTime;

use executor_api::{
    AttemptIdentity, CandidateIndex, EffectSuccess, LeaseFacts, LeaseId, OperationReport, ProviderName,
    Visibility,
};
use executor_fake::{CallKind, FakeBehaviour, Fault, Rule, Silence};
use reconciler_core::RetryPolicy;
use reconciler_driver::{ClusterDriver, DriverInput, EffectCall, StateImage};

use crate::support::{Stage, at, epoch, group, policy, run, secs, shape, slot};

/// Passes until nothing is left to do at this moment; every commit succeeds. Returns what was sent.
fn settle(driver: &mut ClusterDriver, now: SystemTime) -> Vec<EffectCall> {
    let mut sent = Vec::new();
    loop {
        let report = driver.pass(now).unwrap();
        sent.extend(report.effects);
        if let Some(changes) = report.commit {
            driver.handle(DriverInput::Committed(changes.seq), now);
        }
        if !driver.needs_pass() {
            return sent;
        }
    }
}

fn answer(call: &EffectCall, success: EffectSuccess) -> DriverInput {
    let operation = call.context.operation;
    DriverInput::Outcome {
        node: call.node.clone(),
        attempt: operation.attempt,
        report: OperationReport { operation, outcome: Ok(success), visibility: Visibility::default() },
    }
}

fn leased(call: &EffectCall) -> DriverInput {
    let name = AttemptIdentity::derive(&call.context.attempt, CandidateIndex(0)).resource_name;
    let lease = LeaseFacts {
        lease_id: LeaseId(name),
        provider: ProviderName::new("fake").unwrap(),
        created_at: None,
        attributes: std::collections::BTreeMap::new(),
    };
    answer(call, EffectSuccess::LeaseCreated { lease, endpoint: None })
}

fn without_tick() -> RetryPolicy {
    let mut policy = policy();
    policy.extra.tick_every = secs(3600);
    policy
}

#[test]
fn h11_a_wake_up_time_that_has_passed_means_now() {
    let mut driver = ClusterDriver::new(shape(1, vec![group("n", 2, 1)]), without_tick(), epoch()).unwrap();
    let creates = settle(&mut driver, epoch());
    assert_eq!(creates.len(), 2);
    driver.handle(leased(&creates[0]), epoch());
    let lookup = settle(&mut driver, epoch());
    let not_ready = EffectSuccess::EndpointNotReady { reason: "starting".to_owned() };
    driver.handle(answer(&lookup[0], not_ready), epoch());
    assert!(settle(&mut driver, epoch()).is_empty());
    assert_eq!(driver.next_wakeup(), Some(at(5)));

    // The driver was busy until t=9.
    assert_eq!(settle(&mut driver, at(9)).len(), 1);
    assert_eq!(driver.next_wakeup(), Some(at(30)));
    // Equality counts as due.
    settle(&mut driver, at(30));
    assert_eq!(driver.counters().timeouts, 1);
    assert!(driver.next_wakeup().is_some_and(|next| next > at(30)), "a busy loop");
}

#[test]
fn h12a_a_clock_that_goes_back_moves_nothing() {
    let mut driver = ClusterDriver::new(shape(1, vec![group("n", 1, 1)]), without_tick(), at(7200)).unwrap();
    let creates = settle(&mut driver, at(7200));
    let state = driver.state().clone();
    assert!(settle(&mut driver, at(3600)).is_empty());
    assert_eq!(*driver.state(), state);
    driver.handle(leased(&creates[0]), at(3601));
    assert_eq!(driver.now(), at(7200));
    assert_eq!(settle(&mut driver, at(3602)).len(), 1);
}

#[test]
fn h12a_a_restart_on_a_clock_that_went_back_waits_at_most_its_own_maximum() {
    let mut stage = Stage::with(shape(1, vec![group("n", 3, 1)]), policy(), FakeBehaviour::default());
    stage.script(Rule::new(CallKind::Create, Fault::Unavailable).node(&slot("n-0")).always());
    stage.run_to(40);
    let stored = stage.runner.driver().state().clone();
    let desired = stage.runner.driver().desired().as_ref().clone();
    let image = StateImage {
        run: run(),
        state: stored,
        desired: desired.clone(),
        annotations: std::collections::BTreeMap::new(),
    };
    let an_hour_ago = epoch() - secs(3600);
    let mut driver = ClusterDriver::restore(image, desired, policy(), an_hour_ago).unwrap();
    settle(&mut driver, an_hour_ago);
    for node in driver.state().nodes.values() {
        let next = node.retry.next_effect_at.unwrap_or(an_hour_ago);
        assert!(next <= an_hour_ago + policy().cap);
    }
    assert!(driver.next_wakeup().is_some_and(|next| next <= an_hour_ago + policy().cap));
}

#[test]
fn h12b_a_clock_that_leaps_ahead_makes_nothing_twice() {
    let mut stage = Stage::with(shape(1, vec![group("n", 3, 1)]), policy(), FakeBehaviour::default());
    stage.script(Rule::new(CallKind::Create, Fault::AnswerLost(Silence::Hangs)).times(2));
    stage.run_to(1);
    stage.timer.advance_to(at(3601));
    stage.settle(300);
    assert_eq!(stage.world.creates_by_token().len(), 3);
    assert_eq!(stage.runner.driver().counters().timeouts, 2);
    assert_eq!(stage.steps("restart"), 0);
}
