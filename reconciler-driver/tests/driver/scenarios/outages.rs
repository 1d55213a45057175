//! Losses, timeouts and providers that have nothing left, many at once.

use executor_api::{NodeObservation, ObservationReport, RejectReason, Visibility};
use executor_fake::{CallKind, FakeBehaviour, Fault, Rule, Silence};
use reconciler_core::RetryPolicy;
use reconciler_driver::DriverInput;

use crate::support::{Stage, at, group, policy, secs, shape, slot};

#[test]
fn h09_a_burst_of_reports_of_one_loss_replaces_one_node_once() {
    let mut stage = Stage::with(shape(1, vec![group("n", 3, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    stage.run_to(20);
    let before = stage.runner.driver().counters().passes;
    let node = &stage.runner.driver().state().nodes[&slot("n-1")];
    let (attempt, lease) = (node.attempt, node.record.lease.clone().unwrap().lease_id);
    stage.world.kill(&lease, "reclaimed");
    for source in 0..40 {
        let observation =
            NodeObservation::LeaseLost { lease: lease.clone(), reason: format!("source {source}") };
        stage.runner.tell(DriverInput::Observation(ObservationReport {
            node: slot("n-1"),
            attempt,
            observation,
        }));
    }
    stage.settle(60);
    let counts = ["begin-delete", "destroy-lease", "restart", "mark-destroyed"].map(|name| stage.steps(name));
    assert_eq!(counts, [1, 1, 1, 1]);
    assert_eq!((stage.attempt("n-0"), stage.attempt("n-1"), stage.attempt("n-2")), (1, 4, 3));
    let passes = stage.runner.driver().counters().passes - before;
    assert!(passes < 20, "{passes} passes for one loss");
}

#[test]
fn h10_a_group_that_runs_into_the_timeout_is_adopted_and_keeps_its_attempts() {
    let mut behaviour = FakeBehaviour::instant();
    behaviour.visibility = Visibility { listing_lag: secs(20), late_landing: secs(20) };
    let mut stage = Stage::with(shape(1, vec![group("n", 10, 1)]), policy(), behaviour);
    // Stopped at t=30, each lease appears at t=45 all the same, and can be seen from t=50.
    let late = Fault::LandsLate { after: secs(15), silence: Silence::Hangs };
    stage.script(Rule::new(CallKind::Create, late).times(10));
    stage.run_to(31);
    assert_eq!(stage.runner.driver().counters().timeouts, 10);
    stage.settle(200);
    assert_eq!(stage.world.creates_by_token().len(), 10);
    let attempts: Vec<_> = stage.runner.driver().state().nodes.values().map(|node| node.attempt.0).collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(stage.steps("restart"), 0);
}

#[test]
fn h13_an_idle_cluster_is_looked_at_and_left_alone() {
    let mut stage = Stage::with(shape(1, vec![group("n", 5, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    stage.run_to(60);
    let (idle, counters) = (stage.runner.driver().state().clone(), stage.runner.driver().counters());
    let (mutations, events) = (stage.world.mutations(), stage.runner.events().len());
    stage.run_to(660);
    let after = stage.runner.driver().counters();
    assert_eq!(*stage.runner.driver().state(), idle);
    assert_eq!(after.passes - counters.passes, 60);
    assert_eq!((after.dispatched, after.found_by_tick), (counters.dispatched, 0));
    assert_eq!(stage.world.mutations(), mutations);
    assert_eq!(stage.runner.events().len(), events);
}

#[test]
fn h14_a_capacity_outage_is_waited_out_within_one_attempt() {
    let mut stage = Stage::with(shape(1, vec![group("n", 4, 1)]), policy(), FakeBehaviour::instant());
    let empty = Fault::Rejected(RejectReason::Capacity);
    stage.script(Rule::new(CallKind::Create, empty).node(&slot("n-2")).always().until(at(2700)));
    stage.run_to(5);
    assert_eq!(stage.runner.driver().ready(), 3);
    stage.run_to(2699);
    let calls = stage.calls(CallKind::Create) - 3;
    assert!((45..55).contains(&calls), "{calls} calls in 45 min");
    let status = stage.runner.driver().status_of(&slot("n-2")).unwrap();
    assert!(status.why.contains("no capacity"), "{}", status.why);
    stage.run_to(2761);
    stage.assert_converged();
    let node = &stage.runner.driver().state().nodes[&slot("n-2")];
    assert_eq!((node.attempt.0, node.retry.consecutive_failures), (3, 0));
}

#[test]
fn h15_hung_deletions_delay_neither_creates_nor_status() {
    let mut policy: RetryPolicy = policy();
    policy.extra.cleanup_share = 2;
    policy.extra.create_share = 3;
    let mut stage = Stage::with(shape(1, vec![group("old", 5, 1)]), policy, FakeBehaviour::instant());
    stage.settle(60);
    stage.run_to(10);
    stage.script(Rule::new(CallKind::Destroy, Fault::NotActed(Silence::Hangs)).always().until(at(300)));
    stage.ask(shape(2, vec![]));
    stage.run_to(11);
    let waiting = stage.runner.driver().status_of(&slot("old-4")).unwrap();
    assert_eq!(waiting.why, "provider fake works on 2 operations already");
    stage.ask(shape(3, vec![group("new", 3, 1)]));
    stage.run_to(12);
    assert_eq!(stage.runner.driver().ready(), 3);
    stage.run_to(150);
    let tried: std::collections::BTreeSet<_> = stage
        .runner
        .events()
        .iter()
        .filter(|event| event.what.name() == "destroy-lease")
        .filter_map(|event| event.node.clone())
        .collect();
    assert_eq!(tried.len(), 5, "a place is given to each in turn, however many hang");
    stage.settle(600);
}

#[test]
fn h17_a_node_that_cannot_be_ended_holds_up_nobody_else() {
    let mut stage = Stage::with(shape(1, vec![group("n", 10, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    let stuck = Fault::NotActed(Silence::Ambiguous);
    stage.script(Rule::new(CallKind::Destroy, stuck).node(&slot("n-3")).always().until(at(300)));
    stage.ask(shape(2, vec![group("n", 10, 2)]));
    stage.run_to(30);
    assert_eq!(stage.runner.driver().ready(), 9, "all but the one that stays");
    let status = stage.runner.driver().status_of(&slot("n-3")).unwrap();
    assert!(!status.why.is_empty() && stage.steps("mark-destroyed") == 9, "{}", status.why);
    stage.run_to(361);
    stage.assert_converged();
}

#[test]
fn h19_a_program_that_exits_at_once_is_restarted_ever_more_slowly() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), FakeBehaviour::instant());
    let exits = Fault::Exits { after: secs(0), status: 0 };
    stage.script(Rule::new(CallKind::Start, exits).always().until(at(600)));
    stage.run_to(599);
    let attempts = stage.attempt("n-0");
    assert!((13..=17).contains(&attempts), "{attempts} attempts in 10 min");
    stage.run_to(661);
    stage.assert_converged();
    let node = &stage.runner.driver().state().nodes[&slot("n-0")];
    assert_eq!(node.retry.consecutive_failures, 0);
}
