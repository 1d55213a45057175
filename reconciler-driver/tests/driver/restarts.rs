//! A driver that goes on from what another one stored: ids, waits, sessions, and what was under way.

use std::collections::BTreeMap;

use executor_api::{LeaseOwner, LogicalNodeId, NodeAttemptId, OperationKind};
use executor_fake::{FakeBehaviour, Joining, NodeBehaviour};
use reconciler_core::{NodeStage, PolicyExtra, RetryPolicy};
use reconciler_driver::runner::{CrashPoint, Hooks};
use reconciler_driver::{ClusterDriver, ExecutorTable, StateImage};

use crate::support::{Stage, at, epoch, group, policy, run, secs, shape, slot};

fn image(stage: &Stage) -> StateImage {
    let driver = stage.runner.driver();
    StateImage {
        run: run(),
        state: driver.state().clone(),
        desired: driver.desired().as_ref().clone(),
        annotations: BTreeMap::new(),
    }
}

/// Dies once, at one point of one commit.
struct Once {
    point: CrashPoint,
    commit: u64,
    seen: u64,
}

impl Hooks for Once {
    fn crashes(&mut self, point: CrashPoint, _seq: u64) -> bool {
        if point != self.point {
            return false;
        }
        self.seen += 1;
        self.seen == self.commit
    }
}

#[test]
fn attempt_ids_never_repeat_whenever_the_driver_dies() {
    let points = [
        CrashPoint::BeforeCommit,
        CrashPoint::AfterCommit,
        CrashPoint::BeforeDispatch,
        CrashPoint::AfterDispatch,
    ];
    for point in points {
        let mut crashes = 0;
        for commit in 1.. {
            let mut stage = Stage::with(shape(1, vec![group("n", 2, 1)]), policy(), FakeBehaviour::instant());
            stage.runner = std::mem::replace(&mut stage.runner, spare()).with_hooks(Box::new(Once {
                point,
                commit,
                seen: 0,
            }));
            stage.settle(600);
            stage.ask(shape(2, vec![group("n", 3, 2)]));
            stage.settle(600);
            stage.ask(shape(3, vec![]));
            stage.settle(600);
            let mut given: BTreeMap<NodeAttemptId, LogicalNodeId> = BTreeMap::new();
            for lease in stage.world.leases() {
                let LeaseOwner::Attempt(key) = lease.owner else { panic!("a lease of nobody") };
                let first = given.insert(key.attempt, key.node);
                assert_eq!(first, None, "{point:?} {commit}: {} was given out twice", key.attempt);
            }
            assert_eq!(given.len(), 5, "{point:?} {commit}");
            if stage.runner.crashes() == 0 {
                break;
            }
            crashes += 1;
        }
        assert!(crashes > 10, "{point:?}: {crashes} crashes");
    }
}

/// Something to leave in a stage for the moment.
fn spare() -> reconciler_driver::Runner {
    Stage::new(shape(1, vec![])).runner
}

#[test]
fn stored_waits_are_no_longer_than_configured_from_now_on() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    let mut image = image(&stage);
    // As a clock that ran a year ahead has stored them.
    let year = epoch() + secs(365 * 24 * 3600);
    let node = image.state.nodes.get_mut(&slot("n-0")).unwrap();
    node.retry.next_effect_at = Some(year);
    node.retry.restart_at = Some(year);
    node.extra.join_deadline = Some(year);
    node.extra.stable_at = Some(year);
    node.extra.loss_deadline = Some(year);
    node.extra.ready_at = Some(year);
    node.extra.suspect_since = Some(year);
    let policy = RetryPolicy {
        extra: PolicyExtra {
            loss_timeout: Some(secs(300)),
            stable_after: secs(10),
            join_within: secs(60),
            ..PolicyExtra::default()
        },
        ..policy()
    };
    let desired = image.desired.clone();
    let driver = ClusterDriver::restore(image, desired, policy, at(0)).unwrap();
    let node = &driver.state().nodes[&slot("n-0")];
    assert_eq!(node.retry.next_effect_at, Some(at(60)), "the longest backoff");
    assert_eq!(node.retry.restart_at, Some(at(60)), "the longest backoff");
    assert_eq!(node.extra.join_deadline, Some(at(60)));
    assert_eq!(node.extra.stable_at, Some(at(10)));
    assert_eq!(node.extra.loss_deadline, Some(at(300)), "silence has its whole time again");
    assert_eq!(
        (node.extra.ready_at, node.extra.suspect_since),
        (Some(at(0)), Some(at(0))),
        "not in the future"
    );
}

/// A node that joins this long after its session was started.
fn joining_after(seconds: u64) -> FakeBehaviour {
    let node = NodeBehaviour { join: Joining::After(secs(seconds)), ..FakeBehaviour::instant().node };
    FakeBehaviour { node, ..FakeBehaviour::instant() }
}

#[test]
fn a_running_session_is_listened_to_again_and_its_join_is_heard() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), joining_after(20));
    stage.run_to(5);
    assert_eq!(stage.runner.driver().state().nodes[&slot("n-0")].record.stage, NodeStage::BootstrapRunning);
    let desired = shape(1, vec![group("n", 1, 1)]);
    let mut driver = ClusterDriver::restore(image(&stage), desired, policy(), at(5)).unwrap();
    let heard: Vec<_> = driver.take_attachments().into_iter().map(|a| (a.node, a.attempt)).collect();
    assert_eq!(heard, [(slot("n-0"), NodeAttemptId(1))], "before the first pass");
    stage.runner.crash().unwrap();
    stage.settle(60);
    assert_eq!((stage.attempt("n-0"), stage.steps("start-bootstrap")), (1, 1), "{}", stage.trace());
}

#[test]
fn what_was_under_way_is_looked_up_at_once_and_counts_as_no_failure() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), FakeBehaviour::instant());
    stage.world.set_behaviour(|behaviour| behaviour.node.create = secs(10));
    stage.run_to(5);
    let before = image(&stage);
    assert_eq!(before.state.nodes[&slot("n-0")].pending.as_ref().unwrap().kind, OperationKind::CreateLease);
    let executors = ExecutorTable::new().with_executor(stage.world.executor());
    let desired = shape(1, vec![group("n", 1, 1)]);
    let mut driver =
        ClusterDriver::restore(before, desired, policy(), at(5)).unwrap().with_executors(executors);
    let node = &driver.state().nodes[&slot("n-0")];
    assert_eq!((&node.pending, node.retry.consecutive_failures), (&None, 0));
    assert_eq!(node.retry.ambiguous_operation, Some(OperationKind::CreateLease));
    // Nothing may be made before it is proved that the dead driver made nothing.
    let report = driver.pass(at(5)).unwrap();
    let stored = report.commit.unwrap().upserted.remove(0).1;
    assert!(stored.pending.unwrap().extra.adopt_only);
    stage.runner.crash().unwrap();
    stage.settle(30);
    assert_eq!((stage.attempt("n-0"), stage.world.leases().len()), (1, 1), "{}", stage.trace());
}

#[test]
fn what_a_dead_driver_asked_for_and_comes_late_is_adopted() {
    for create in [2, 4, 8] {
        let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), FakeBehaviour::instant());
        stage.world.set_behaviour(|behaviour| {
            behaviour.node.create = secs(create);
            behaviour.visibility.late_landing = secs(10);
            behaviour.visibility.listing_lag = secs(3);
        });
        stage.run_to(1);
        stage.runner.crash().unwrap();
        stage.settle(120);
        assert_eq!(stage.world.leases().len(), 1, "create of {create} s:\n{}", stage.trace());
    }
}
