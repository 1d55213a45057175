//! The promises of the probe bootstrapper, with a port of this machine as the node.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bootstrap_probe::ProbeBootstrapper;
use executor_api::{
    AttemptKey, BootSpec, BootstrapSessionId, Bootstrapper, CandidateIndex, CreateMode, Endpoint,
    EndpointAuth, ExecutorErrorKind, GroupId, JoinSpec, LeaseFacts, LeaseId, Life, LogicalNodeId,
    LogicalNodeSpec, NodeAttemptId, NodeObservation, NodeRole, NodeTemplate, ObservationSink,
    OperationContext, OperationId, ProviderName, Reading, RunId, SlotGroup, StartOutcome, StartRequest,
};
use serde_json::{Value, json};

#[test]
fn the_same_attempt_has_the_same_session_whoever_asks() {
    block_on(async {
        let world = World::new();
        let first = world.start(&world.instance()).await;
        assert_eq!(world.start(&world.instance()).await, first);
        let found = world.instance().find(&world.key).await;
        assert!(matches!(&found, Reading::Present { facts, life: Life::Live, .. } if facts.session == first));
    });
}

#[test]
fn adopt_only_makes_nothing() {
    block_on(async {
        let world = World::new();
        let boot = world.instance();
        let answer = boot.start(&world.context(), &world.request(), CreateMode::AdoptOnly).await.unwrap();
        assert!(matches!(answer, StartOutcome::Absent { .. }));
        assert!(matches!(boot.find(&world.key).await, Reading::Absent { .. }));
    });
}

#[test]
fn the_join_is_told_when_the_port_opens_and_at_once_in_a_later_life() {
    block_on(async {
        let world = World::new();
        let boot = world.instance();
        let session = world.start(&boot).await;
        let first = world.attach(&boot, &session);
        until(|| !first.told.lock().unwrap().is_empty()).await;
        assert_eq!(first.joins(), 0, "nobody listens yet");
        let _node = std::net::TcpListener::bind(("127.0.0.1", world.port)).unwrap();
        until(|| first.joins() == 1).await;
        let nonce = world.context().identity().nonce;
        let told = first.told.lock().unwrap().clone();
        assert!(
            told.iter()
                .any(|o| matches!(o, NodeObservation::MemberJoined { member, .. } if member.nonce == nonce))
        );
        let later = world.instance();
        let second = world.attach(&later, &session);
        until(|| second.joins() == 1).await;
    });
}

#[test]
fn a_cancel_ends_the_following_and_the_attempt() {
    block_on(async {
        let world = World::new();
        let boot = world.instance();
        let session = world.start(&boot).await;
        let attached = world.attach(&boot, &session);
        for _ in 0..2 {
            world.instance().cancel(&world.context(), &session).await.unwrap();
        }
        until(|| attached.task.is_finished()).await;
        let error =
            boot.start(&world.context(), &world.request(), CreateMode::CreateOrAdopt).await.unwrap_err();
        assert_eq!(error.kind, ExecutorErrorKind::Gone);
    });
}

#[test]
fn a_session_of_somebody_else_is_not_touched() {
    block_on(async {
        let world = World::new();
        let boot = world.instance();
        let session = world.start(&boot).await;
        let foreign = BootstrapSessionId("foreign".into());
        boot.cancel(&world.context(), &foreign).await.unwrap();
        assert_eq!(world.start(&boot).await, session);
    });
}

struct World {
    dir: tempfile::TempDir,
    key: AttemptKey,
    port: u16,
}

struct Attached {
    told: Arc<Mutex<Vec<NodeObservation>>>,
    task: tokio::task::JoinHandle<()>,
}

#[expect(clippy::unwrap_used, reason = "a test: a panic is a failed test")]
impl World {
    fn new() -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let key = AttemptKey {
            run: RunId::new("demo", "u1").unwrap(),
            node: LogicalNodeId::parse("web-0").unwrap(),
            attempt: NodeAttemptId(1),
        };
        Self { dir: tempfile::tempdir().unwrap(), key, port: free.local_addr().unwrap().port() }
    }

    fn instance(&self) -> Arc<ProbeBootstrapper> {
        Arc::new(ProbeBootstrapper::new(self.dir.path().join("records")))
    }

    fn context(&self) -> OperationContext {
        OperationContext {
            attempt: self.key.clone(),
            operation: OperationId { attempt: self.key.attempt, sequence: 0 },
            candidate: CandidateIndex(0),
            deadline: SystemTime::now() + Duration::from_secs(30),
            group: SlotGroup {
                group: GroupId::new("web").unwrap(),
                slots: Arc::from([self.key.node.clone()]),
            },
        }
    }

    fn request(&self) -> StartRequest {
        let settings = json!({ "ready": { "tcp": "{host}:{port}", "every": "20ms" } });
        StartRequest {
            desired: LogicalNodeSpec {
                id: self.key.node.clone(),
                group: GroupId::new("web").unwrap(),
                index: 0,
                template: Arc::new(NodeTemplate {
                    role: NodeRole::default(),
                    provider: ProviderName::new("static").unwrap(),
                    shape: Value::Null,
                    boot: BootSpec { via: None, settings },
                    join: JoinSpec::default(),
                }),
            },
            lease: LeaseFacts {
                lease_id: LeaseId("l-1".into()),
                provider: ProviderName::new("static").unwrap(),
                created_at: None,
                attributes: [].into(),
            },
            endpoint: Endpoint {
                host: "127.0.0.1".into(),
                port: self.port,
                auth: EndpointAuth::None,
                ports: [].into(),
            },
        }
    }

    async fn start(&self, boot: &ProbeBootstrapper) -> BootstrapSessionId {
        match boot.start(&self.context(), &self.request(), CreateMode::CreateOrAdopt).await.unwrap() {
            StartOutcome::Started { session } => session,
            StartOutcome::Absent { .. } => panic!("a start that may create answered `absent`"),
        }
    }

    fn attach(&self, boot: &Arc<ProbeBootstrapper>, session: &BootstrapSessionId) -> Attached {
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = {
            let told = Arc::clone(&told);
            ObservationSink::new(move |report| told.lock().unwrap().push(report.observation))
        };
        let (boot, key, session) = (Arc::clone(boot), self.key.clone(), session.clone());
        let task = tokio::spawn(async move {
            let _ = boot.attach(&key, &session, sink).await;
        });
        Attached { told, task }
    }
}

#[expect(clippy::unwrap_used, reason = "a test: a panic is a failed test")]
impl Attached {
    fn joins(&self) -> usize {
        let told = self.told.lock().unwrap();
        told.iter().filter(|o| matches!(o, NodeObservation::MemberJoined { .. })).count()
    }
}

#[expect(clippy::unwrap_used, reason = "a test: a panic is a failed test")]
fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

async fn until(mut level: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !level() {
        assert!(Instant::now() < end, "it never came to pass");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
