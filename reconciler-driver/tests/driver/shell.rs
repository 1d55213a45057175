//! The tokio shell against the fake world, with the clock paused: time passes when nothing else can.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use executor_fake::{CallKind, FakeBehaviour, FakeWorld, Fault, Rule, Silence};
use reconciler_core::{ClusterShape, HoldBy, RetryPolicy};
use reconciler_driver::{
    Changeset, DesiredRejected, DriverError, DriverHandle, ExecutorTable, MemoryStore, ShellConfig,
    StateImage, StateStore, StopReason, StoreError, TokioTimer, start,
};

use crate::support::{epoch, group, policy, secs, shape, slot};

struct Stage {
    world: FakeWorld,
    store: MemoryStore,
    clock: TokioTimer,
}

impl Stage {
    fn new(behaviour: FakeBehaviour) -> Self {
        let clock = TokioTimer::anchored_at(epoch());
        let world = FakeWorld::new(Arc::new(clock.clone()), behaviour);
        Self { world, store: MemoryStore::new(), clock }
    }

    async fn start(&self, desired: ClusterShape) -> DriverHandle {
        self.start_with(desired, policy(), Box::new(self.store.clone())).await.unwrap()
    }

    async fn start_with(
        &self,
        desired: ClusterShape,
        policy: RetryPolicy,
        store: Box<dyn StateStore>,
    ) -> Result<DriverHandle, DriverError> {
        let executors = ExecutorTable::new().with_executor(self.world.executor());
        let clock = self.clock.clone();
        start(ShellConfig { policy, clock, ..ShellConfig::new(desired, executors, store) }).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_declared_changed_and_removed() {
    let stage = Stage::new(FakeBehaviour::default());
    let driver = stage.start(shape(1, vec![group("web", 3, 1)])).await;
    driver.converged().await.unwrap();
    assert_eq!(driver.watch().borrow().ready, 3);

    driver.set_desired(shape(2, vec![group("web", 2, 2)])).await.unwrap();
    driver.converged().await.unwrap();
    assert_eq!(stage.world.existing_leases().len(), 2);
    let older = driver.set_desired(shape(1, vec![])).await.unwrap_err();
    assert!(matches!(older, DriverError::Desired(DesiredRejected::OlderGeneration { .. })), "{older}");
    let other = driver.set_desired(shape(2, vec![])).await.unwrap_err();
    assert!(matches!(other, DriverError::Desired(DesiredRejected::SameGeneration { .. })), "{other}");

    driver.set_desired(shape(3, vec![])).await.unwrap();
    driver.converged().await.unwrap();
    assert_eq!(stage.world.existing_leases(), []);
    assert_eq!(stage.world.breaches(), []);
    assert_eq!(driver.shutdown().await, StopReason::Requested);
    assert!(matches!(driver.snapshot().await, Err(DriverError::Stopped)));
}

#[tokio::test(start_paused = true)]
async fn a_second_driver_goes_on_with_the_nodes_of_the_first() {
    let stage = Stage::new(FakeBehaviour::default());
    let desired = shape(1, vec![group("web", 3, 1)]);
    let first = stage.start(desired.clone()).await;
    first.converged().await.unwrap();
    first.shutdown().await;
    let before = stage.store.image().unwrap().state;

    let second = stage.start(desired).await;
    second.converged().await.unwrap();
    let lease = second.snapshot().await.unwrap().nodes[1].lease_id.clone().unwrap();
    // The adopted session is listened to: its death is heard at once, not at the next listing.
    let killed_at = tokio::time::Instant::now();
    stage.world.kill(&lease, "killed");
    let mut summary = second.watch();
    summary.wait_for(|summary| summary.ready == 2).await.unwrap();
    assert!(killed_at.elapsed() < secs(1), "{:?}", killed_at.elapsed());
    second.converged().await.unwrap();
    let after = stage.store.image().unwrap().state;
    for name in ["web-0", "web-2"] {
        assert_eq!(before.nodes[&slot(name)].attempt, after.nodes[&slot(name)].attempt);
    }
    assert_ne!(before.nodes[&slot("web-1")].attempt, after.nodes[&slot("web-1")].attempt);
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_driver_leaves_no_operation_behind_that_the_next_one_waits_for() {
    let stage = Stage::new(FakeBehaviour::default());
    let desired = shape(1, vec![group("web", 3, 1)]);
    let first = stage.start(desired.clone()).await;
    tokio::time::sleep(secs(1)).await;
    first.shutdown().await;
    let stored = stage.store.image().unwrap().state;
    assert_eq!(stored.nodes.len(), 3);
    assert!(stored.nodes.values().all(|node| node.pending.is_none()));
    assert!(stored.nodes.values().all(|node| node.retry.ambiguous_operation.is_some()));
    let second = stage.start(desired).await;
    second.converged().await.unwrap();
    assert_eq!(stage.world.breaches(), []);
    assert_eq!(stage.world.existing_leases().len(), 3);
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_panicking_executor_fails_one_operation_and_nothing_else() {
    let stage = Stage::new(FakeBehaviour::default());
    let rules = [CallKind::Create, CallKind::List, CallKind::Start, CallKind::Complete, CallKind::Attach];
    for call in rules {
        stage.world.script(Rule::new(call, Fault::Panics)).unwrap();
    }
    let driver = stage.start(shape(1, vec![group("web", 3, 1)])).await;
    driver.converged().await.unwrap();
    tokio::time::sleep(secs(20)).await;
    let snapshot = driver.snapshot().await.unwrap();
    assert!(snapshot.converged);
    assert_eq!(snapshot.counters.panics, 5);
    driver.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn hung_operations_are_stopped_at_their_deadline_and_looked_up() {
    let stage = Stage::new(FakeBehaviour::default());
    stage.world.script(Rule::new(CallKind::Create, Fault::AnswerLost(Silence::Hangs)).times(3)).unwrap();
    let driver = stage.start(shape(1, vec![group("web", 3, 1)])).await;
    tokio::time::sleep(secs(29)).await;
    assert_eq!(driver.snapshot().await.unwrap().counters.timeouts, 0);
    driver.converged().await.unwrap();
    assert_eq!(driver.snapshot().await.unwrap().counters.timeouts, 3);
    assert_eq!(stage.world.creates_by_token().len(), 3);
    assert_eq!(stage.world.breaches(), []);
    driver.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_held_node_is_left_alone_until_its_release() {
    let stage = Stage::new(FakeBehaviour::default());
    let driver = stage.start(shape(1, vec![group("web", 2, 1)])).await;
    driver.converged().await.unwrap();
    driver.hold(Some(slot("web-0")), HoldBy::Operator, "looking into it").await.unwrap();
    let unknown = driver.hold(Some(slot("web-7")), HoldBy::Operator, "typo").await.unwrap_err();
    assert!(unknown.to_string().contains("web-7"));
    driver.set_desired(shape(2, vec![group("web", 2, 2)])).await.unwrap();
    tokio::time::sleep(secs(60)).await;
    let explained = driver.explain(slot("web-0")).await.unwrap().unwrap();
    assert_eq!(explained.status.why, "held by operator: looking into it");
    assert!(explained.status.ready);
    assert!(driver.release(Some(slot("web-0")), HoldBy::Operator).await.unwrap());
    driver.converged().await.unwrap();
    driver.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_a_plan_names_is_held_before_it_is_there() {
    let stage = Stage::new(FakeBehaviour::default());
    let driver = stage.start(shape(1, vec![group("web", 2, 1)])).await;
    driver.converged().await.unwrap();
    driver.hold(Some(slot("web-2")), HoldBy::Maintenance, "its host").await.unwrap();
    assert!(driver.snapshot().await.unwrap().converged, "a node that nobody wants is missed by nobody");
    driver.set_desired(shape(2, vec![group("web", 3, 1)])).await.unwrap();
    tokio::time::sleep(secs(60)).await;
    assert_eq!(
        driver.explain(slot("web-2")).await.unwrap().unwrap().status.why,
        "held by maintenance: its host"
    );
    assert_eq!(stage.world.existing_leases().len(), 2);
    assert!(driver.release(Some(slot("web-2")), HoldBy::Maintenance).await.unwrap());
    driver.converged().await.unwrap();
    assert_eq!(stage.world.existing_leases().len(), 3);
    driver.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_replaced_node_gets_one_fresh_attempt() {
    let stage = Stage::new(FakeBehaviour::default());
    let driver = stage.start(shape(1, vec![group("web", 2, 1)])).await;
    driver.converged().await.unwrap();
    let mut events = driver.events();
    driver.replace(slot("web-1")).await.unwrap();
    driver.watch().wait_for(|summary| !summary.converged).await.unwrap();
    driver.converged().await.unwrap();
    let mut restarts = 0;
    while let Ok(event) = events.try_recv() {
        restarts += usize::from(event.what.name() == "restart");
    }
    assert_eq!(restarts, 1);
    driver.shutdown().await;
}

/// Fails when told to, and counts nothing else.
#[derive(Debug)]
struct FailingStore(MemoryStore, Arc<AtomicBool>);

impl StateStore for FailingStore {
    fn load(&mut self) -> Result<Option<StateImage>, StoreError> {
        self.0.load()
    }

    fn commit(&mut self, changes: &Changeset) -> Result<(), StoreError> {
        if self.1.load(Ordering::Relaxed) {
            return Err(StoreError::Other("no space left on device".to_owned()));
        }
        self.0.commit(changes)
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_commit_nothing_is_sent_and_the_driver_says_so() {
    let stage = Stage::new(FakeBehaviour::default());
    let full = Arc::new(AtomicBool::new(false));
    let store = FailingStore(stage.store.clone(), Arc::clone(&full));
    let desired = shape(1, vec![group("web", 1, 1)]);
    let driver = stage.start_with(desired, policy(), Box::new(store)).await.unwrap();
    driver.converged().await.unwrap();
    let mutations = stage.world.mutations();
    full.store(true, Ordering::Relaxed);
    let order = driver.set_desired(shape(2, vec![group("web", 5, 1)])).await;
    assert!(matches!(order, Err(DriverError::Stopped)), "an order that was not stored is not confirmed");
    let reason = driver.stopped().await;
    assert_eq!(reason, StopReason::StoreFailed("no space left on device".to_owned()));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(stage.world.mutations(), mutations);
    assert_eq!(stage.store.image().unwrap().desired.generation, 1);
}

#[tokio::test(start_paused = true)]
async fn state_of_another_run_is_refused() {
    let stage = Stage::new(FakeBehaviour::default());
    let driver = stage.start(shape(1, vec![])).await;
    driver.converged().await.unwrap();
    driver.shutdown().await;
    let mut other = shape(1, vec![]);
    other.run_id = executor_api::RunId::new("demo", "u2").unwrap();
    let error = stage.start_with(other, policy(), Box::new(stage.store.clone())).await.unwrap_err();
    assert!(matches!(error, DriverError::ForeignState { .. }), "{error}");
}
