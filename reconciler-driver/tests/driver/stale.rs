//! Plans and results that come too late: discarded, counted, told, and looked at again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use executor_api::{EffectSuccess, NodeAttemptId, OperationId, OperationReport, Visibility};
use executor_fake::FakeBehaviour;
use reconciler_core::{NodeAction, reconcile_slots};
use reconciler_driver::{DriverInput, ExecutorTable, MemoryStore, Rules, Runner};

use crate::support::{Stage, group, policy, secs, shape, slot};

#[test]
fn an_attempt_id_that_is_not_the_next_one_voids_the_later_ones_of_its_plan() {
    let stage = Stage::with(shape(1, vec![]), policy(), FakeBehaviour::instant());
    let once = Arc::new(AtomicBool::new(true));
    let rules = Rules {
        reconcile: Arc::new(move |state, desired, slots, now| {
            let mut plan = reconcile_slots(state, desired, slots, now)?;
            if let Some(NodeAction::Insert { attempt, .. }) = plan.actions.get_mut(1)
                && once.swap(false, Ordering::Relaxed)
            {
                attempt.0 += 10;
            }
            Ok(plan)
        }),
        ..Rules::default()
    };
    let executors = ExecutorTable::new().with_executor(stage.world.executor());
    let desired = shape(1, vec![group("n", 4, 1)]);
    let store = Box::new(MemoryStore::new());
    let mut runner = Runner::open(store, desired, policy(), executors, stage.timer.clone(), rules).unwrap();
    runner.run_until_settled(secs(60)).unwrap();
    assert!(runner.driver().is_converged());
    assert_eq!(runner.driver().counters().stale_actions, 3);
    let attempts: Vec<_> = runner.driver().state().nodes.values().map(|node| node.attempt.0).collect();
    assert_eq!(attempts, [1, 2, 3, 4], "no id is skipped or given out twice");
}

#[test]
fn late_result_of_an_old_attempt_changes_nothing() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    stage.ask(shape(2, vec![group("n", 1, 2)]));
    stage.settle(60);
    let before = stage.runner.driver().state().clone();
    for (attempt, sequence) in [(1, 0), (2, 0), (2, 99), (7, 0)] {
        let attempt = NodeAttemptId(attempt);
        let report = OperationReport {
            operation: OperationId { attempt, sequence },
            outcome: Ok(EffectSuccess::LeaseDestroyed),
            visibility: Visibility::default(),
        };
        stage.runner.tell(DriverInput::Outcome { node: slot("n-0"), attempt, report });
    }
    assert!(!stage.runner.driver().needs_pass(), "a stale result is no reason to look");
    assert_eq!(*stage.runner.driver().state(), before);
    assert_eq!(stage.runner.driver().counters().stale_results, 4);
}

#[test]
fn equal_shapes_are_accepted_again_and_start_nothing() {
    let mut stage = Stage::with(shape(1, vec![group("n", 2, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    assert!(stage.runner.set_desired(shape(1, vec![group("n", 2, 1)])).unwrap().is_empty());
    assert!(!stage.runner.driver().needs_pass());
    // A newer generation of the same content is evaluated, and nothing else.
    let events = stage.runner.events().len();
    assert!(stage.runner.set_desired(shape(5, vec![group("n", 2, 1)])).unwrap().is_empty());
    assert!(!stage.runner.driver().is_converged());
    stage.settle(60);
    assert_eq!(stage.runner.driver().state().observed_generation, 5);
    assert_eq!(stage.runner.events().len(), events);
}
