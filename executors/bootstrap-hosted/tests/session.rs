//! Sessions on this very machine: the script, the bootstrapper and the following, with a transport that can be told
//! to fail.

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bootstrap_hosted::host::local::LocalRunner;
use bootstrap_hosted::host::script::{Ran, Runner, ScriptHost};
use bootstrap_hosted::{Connection, Content, HostError, HostedBootstrapper, HostedConfig, Transport};
use executor_api::{
    Bootstrapper, CreateMode, Endpoint, EndpointAuth, ExecutorErrorKind, NodeObservation, ProviderName,
    Reading, SpecProblem,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use support::{Attached, World, attempt, cancel, context, processes, request, start, until};

/// What goes wrong on the way to the host.
#[derive(Debug, Default)]
struct Faults {
    unreachable: AtomicBool,
    denied: AtomicBool,
    wrong_host: AtomicBool,
    /// So many answers are lost after the act.
    lose_answers: AtomicU32,
}

#[derive(Debug)]
struct Local {
    root: PathBuf,
    faults: Arc<Faults>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Debug)]
struct Faulty {
    runner: LocalRunner,
    faults: Arc<Faults>,
}

#[async_trait]
impl Runner for Faulty {
    async fn run(&self, command: &str, input: Content, limit: usize) -> Result<Ran, HostError> {
        let ran = self.runner.run(command, input, limit).await;
        let lost = |left: u32| left.checked_sub(1);
        if self.faults.lose_answers.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lost).is_ok() {
            return Err(HostError::Broken("the answer was lost".into()));
        }
        ran
    }
}

#[async_trait]
impl Transport for Local {
    type Settings = Nothing;

    fn name(&self) -> ProviderName {
        ProviderName::new("local").unwrap()
    }

    fn check(&self, _: &Nothing) -> Vec<SpecProblem> {
        Vec::new()
    }

    async fn connect(&self, _: &Endpoint, _: &Nothing, _: Option<&str>) -> Result<Connection, HostError> {
        if self.faults.unreachable.load(Ordering::SeqCst) {
            return Err(HostError::Unreachable("nobody answers".into()));
        }
        if self.faults.denied.load(Ordering::SeqCst) {
            return Err(HostError::Denied("the key is refused".into()));
        }
        if self.faults.wrong_host.load(Ordering::SeqCst) {
            return Err(HostError::WrongHost("another host answers".into()));
        }
        let runner = Faulty { runner: LocalRunner::new(self.root.clone()), faults: Arc::clone(&self.faults) };
        Ok(Connection { host: Box::new(ScriptHost::install(runner).await?), pin: None })
    }
}

struct LocalWorld {
    dir: tempfile::TempDir,
    faults: Arc<Faults>,
}

impl LocalWorld {
    #[expect(clippy::unused_async, reason = "worlds are made asynchronously")]
    async fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("host")).unwrap();
        Some(Self { dir, faults: Arc::default() })
    }

    fn with(&self, records: &str, denied_for: Duration) -> Arc<dyn Bootstrapper> {
        let transport = Local { root: self.dir.path().join("host"), faults: Arc::clone(&self.faults) };
        let config = HostedConfig {
            poll: Duration::from_millis(50),
            watch: Duration::from_millis(200),
            denied_for,
            ..HostedConfig::new(self.dir.path().join(records))
        };
        Arc::new(HostedBootstrapper::new(transport, config))
    }
}

impl World for LocalWorld {
    fn instance(&self) -> Arc<dyn Bootstrapper> {
        self.with("records", Duration::from_secs(90))
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint { host: "localhost".into(), port: 22, auth: EndpointAuth::None, ports: [].into() }
    }

    fn settings(&self, boot: Value) -> Value {
        boot
    }
}

promises!(LocalWorld::new);

fn lives() -> Value {
    json!({ "start": ["sleep", "4321"], "stop": { "grace": "1s", "unreachable_for": "300ms" } })
}

#[tokio::test]
async fn secrets_touch_no_disk() {
    let world = LocalWorld::new().await.unwrap();
    let dirs = [world.dir.path().join("host"), world.dir.path().join("records")];
    support::promises::a_secret_is_in_the_environment_and_on_no_disk(world, &dirs).await;
}

#[tokio::test]
async fn instances_with_records_of_their_own_share_one_session() {
    let world = LocalWorld::new().await.unwrap();
    let key = attempt();
    for records in ["a", "b", "c"] {
        start(&world.with(records, Duration::ZERO), &world, &key, &lives()).await.unwrap();
    }
    until(|| (support::runners(&key) == 1).then_some(())).await.expect("the program never ran");
    assert_eq!(support::runners(&key), 1);
    cancel(&world.with("a", Duration::ZERO), &key).await.unwrap();
    assert_eq!(processes(&key), []);
    let error = start(&world.with("d", Duration::ZERO), &world, &key, &lives()).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Gone, "the host itself remembers: {error}");
}

#[tokio::test]
async fn a_host_that_is_not_up_yet_is_waited_for() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.instance(), attempt());
    world.faults.unreachable.store(true, Ordering::SeqCst);
    start(&boot, &world, &key, &lives()).await.unwrap();
    let attached = Attached::to(&boot, &key);
    let trying = |o: &NodeObservation| matches!(o, NodeObservation::BootstrapProgress { phase, .. } if phase.contains("trying to reach"));
    attached.heard.wait("that it tries", trying).await;
    assert_eq!(processes(&key), []);
    world.faults.unreachable.store(false, Ordering::SeqCst);
    attached.heard.joined().await;
    assert_eq!(support::runners(&key), 1);
    cancel(&boot, &key).await.unwrap();
}

#[tokio::test]
async fn a_refused_key_is_given_time_and_then_named() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.with("records", Duration::from_millis(500)), attempt());
    world.faults.denied.store(true, Ordering::SeqCst);
    start(&boot, &world, &key, &lives()).await.unwrap();
    let reason = Attached::to(&boot, &key).heard.failed().await;
    assert!(reason.contains("the key is refused"), "{reason}");
}

#[tokio::test]
async fn somebody_else_at_the_address_is_refused_at_once() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.instance(), attempt());
    world.faults.wrong_host.store(true, Ordering::SeqCst);
    let error = start(&boot, &world, &key, &lives()).await.unwrap_err();
    assert!(matches!(error.kind, ExecutorErrorKind::Rejected(_)), "{error}");
    assert!(error.summary().contains("another host answers"), "{}", error.summary());
}

#[tokio::test]
async fn a_session_that_never_reached_its_host_is_cancelled_at_once() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.instance(), attempt());
    world.faults.unreachable.store(true, Ordering::SeqCst);
    start(&boot, &world, &key, &lives()).await.unwrap();
    cancel(&boot, &key).await.unwrap();
    world.faults.unreachable.store(false, Ordering::SeqCst);
    let error = start(&boot, &world, &key, &lives()).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Gone);
}

#[tokio::test]
async fn an_unreachable_host_holds_a_cancel_up_for_a_while_and_not_for_ever() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &lives()).await.unwrap();
    world.faults.unreachable.store(true, Ordering::SeqCst);
    let error = cancel(&boot, &key).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Unavailable, "{error}");
    let began = Instant::now();
    while cancel(&boot, &key).await.is_err() {
        assert!(began.elapsed() < support::PATIENCE, "it is never given up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // What the host still runs belongs to a lease that is destroyed next. Here that is done by an instance with
    // records of its own, which adopts the session before it cancels it.
    world.faults.unreachable.store(false, Ordering::SeqCst);
    let other = world.with("others", Duration::ZERO);
    start(&other, &world, &key, &lives()).await.unwrap();
    cancel(&other, &key).await.unwrap();
    assert_eq!(processes(&key), []);
}

#[tokio::test]
async fn a_lost_answer_of_any_call_leaves_one_session() {
    for lost in 1..=4 {
        let world = LocalWorld::new().await.unwrap();
        let (boot, key) = (world.instance(), attempt());
        // The answers to the script, the look, the plan and the launch, in turn.
        world.faults.lose_answers.store(lost, Ordering::SeqCst);
        let mut started = start(&boot, &world, &key, &lives()).await;
        let mut tries = 0;
        while started.is_err() && tries < 10 {
            let kind = started.unwrap_err().kind;
            assert_eq!(kind, ExecutorErrorKind::Ambiguous);
            started = start(&boot, &world, &key, &lives()).await;
            tries += 1;
        }
        started.unwrap();
        until(|| (support::runners(&key) == 1).then_some(())).await.expect("the program never ran");
        cancel(&boot, &key).await.unwrap();
        assert_eq!(processes(&key), []);
    }
}

#[tokio::test]
async fn an_unreachable_host_says_nothing_about_its_sessions() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &lives()).await.unwrap();
    world.faults.unreachable.store(true, Ordering::SeqCst);
    assert!(matches!(boot.find(&key).await, Reading::Unknown { .. }));
    let ask = request(&world, &key, lives());
    let error = boot.start(&context(&key, 3), &ask, CreateMode::AdoptOnly).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Unavailable);
    world.faults.unreachable.store(false, Ordering::SeqCst);
    cancel(&boot, &key).await.unwrap();
}

#[tokio::test]
async fn silence_after_the_join_is_suspicion_and_its_end_is_told() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &lives()).await.unwrap();
    let attached = Attached::to(&boot, &key);
    attached.heard.joined().await;
    world.faults.lose_answers.store(3, Ordering::SeqCst);
    attached.heard.wait("suspicion", |o| matches!(o, NodeObservation::Suspected { .. })).await;
    attached.heard.wait("its end", |o| matches!(o, NodeObservation::SeenAlive)).await;
    let ends = attached.heard.all().into_iter().filter(|o| matches!(o, NodeObservation::LeaseLost { .. }));
    assert_eq!(ends.count(), 0);
    cancel(&boot, &key).await.unwrap();
}
