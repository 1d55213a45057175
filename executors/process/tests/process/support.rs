//! A world of its own for each test: directories, a port range, an executor, and waits with a limit.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails the test")]

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use executor_api::{
    AttemptKey, BootSpec, BootstrapSessionId, Bootstrapper as _, CandidateIndex, CreateMode, CreateOutcome,
    Endpoint, ExecutorError, GroupId, JoinSpec, LeaseFacts, LeaseProvider as _, LogicalNodeId,
    LogicalNodeSpec, NodeAttemptId, NodeObservation, NodeRole, NodeTemplate, ObservationReport,
    ObservationSink, OperationContext, OperationId, ProviderName, RunId, SlotGroup, StartOutcome,
    StartRequest,
};
use executor_process::layout::NodePlace;
use executor_process::processes::{self, ProcessInfo};
use executor_process::{ProcessConfig, ProcessExecutor, SupervisorCommand, marker};
use serde_json::Value;

/// Longest wait for anything. Only a failing test waits that long.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Directories and a port range that no other test uses.
pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) range: RangeInclusive<u16>,
    pub(crate) executor: Arc<ProcessExecutor>,
    attempts: Mutex<Vec<AttemptKey>>,
}

/// One attempt as the driver would hold it.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) ctx: OperationContext,
    pub(crate) spec: LogicalNodeSpec,
    pub(crate) lease: Option<LeaseFacts>,
    pub(crate) endpoint: Option<Endpoint>,
    pub(crate) session: Option<BootstrapSessionId>,
}

impl World {
    /// `first_port` sets tests apart: each takes twenty ports from there.
    pub(crate) fn new(first_port: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let range = first_port..=first_port + 19;
        let executor = another_executor(dir.path(), range.clone());
        Self { dir, range, executor, attempts: Mutex::default() }
    }

    /// A new instance over the same directories, as after a restart of the driver.
    pub(crate) fn another(&self) -> Arc<ProcessExecutor> {
        another_executor(self.dir.path(), self.range.clone())
    }

    /// A uid of its own: marks of two tests must differ as those of two runs do.
    pub(crate) fn run(&self) -> RunId {
        RunId::new("demo", format!("u{}", self.range.start())).unwrap()
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("nodes")
    }

    pub(crate) fn node(&self, name: &str, attempt: u64, shape: Value, boot: Value) -> Node {
        self.node_in(&[name], name, attempt, shape, boot)
    }

    pub(crate) fn node_in(
        &self,
        group: &[&str],
        name: &str,
        attempt: u64,
        shape: Value,
        boot: Value,
    ) -> Node {
        let node = LogicalNodeId::parse(name).unwrap();
        let (group_name, index) = name.rsplit_once('-').unwrap();
        let group_id = GroupId::new(group_name).unwrap();
        let attempt = AttemptKey { run: self.run(), node: node.clone(), attempt: NodeAttemptId(attempt) };
        self.attempts.lock().unwrap().push(attempt.clone());
        Node {
            ctx: OperationContext {
                operation: OperationId { attempt: attempt.attempt, sequence: 0 },
                attempt,
                candidate: CandidateIndex(0),
                deadline: SystemTime::now() + LIMIT,
                group: SlotGroup {
                    group: group_id.clone(),
                    slots: group.iter().map(|slot| LogicalNodeId::parse(*slot).unwrap()).collect(),
                },
            },
            spec: LogicalNodeSpec {
                id: node,
                group: group_id,
                index: index.parse().unwrap(),
                template: Arc::new(NodeTemplate {
                    role: NodeRole::default(),
                    provider: ProviderName::new("process").unwrap(),
                    shape,
                    boot: BootSpec { via: None, settings: boot },
                    join: JoinSpec::default(),
                }),
            },
            lease: None,
            endpoint: None,
            session: None,
        }
    }

    pub(crate) async fn create(&self, node: &mut Node) -> Result<(), ExecutorError> {
        match self.executor.create(&node.ctx, &node.spec, CreateMode::CreateOrAdopt).await? {
            CreateOutcome::Leased { lease, endpoint } => {
                node.lease = Some(lease);
                node.endpoint = endpoint;
            }
            CreateOutcome::Absent { .. } => panic!("a create answered that there is nothing"),
        }
        Ok(())
    }

    pub(crate) async fn start(&self, node: &mut Node) -> Result<(), ExecutorError> {
        node.session = Some(start_with(&self.executor, node).await?);
        Ok(())
    }

    /// Creates and starts.
    pub(crate) async fn up(&self, node: &mut Node) {
        self.create(node).await.unwrap();
        self.start(node).await.unwrap();
    }

    pub(crate) async fn destroy(&self, node: &Node) -> Result<(), ExecutorError> {
        self.executor.destroy(&node.ctx, node.lease.as_ref().unwrap()).await
    }

    pub(crate) fn attach(&self, node: &Node) -> Watched {
        attach_with(&self.executor, node)
    }

    pub(crate) fn place(&self, node: &Node) -> NodePlace {
        NodePlace::of(&self.root(), &node.ctx.attempt)
    }

    /// Everything below the nodes directory.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut open = vec![self.root()];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    open.push(entry.path());
                }
                found.push(entry.path());
            }
        }
        found
    }

    /// Destroys the node, gives its slot up, and checks that nothing is left of either.
    pub(crate) async fn leave_nothing(&self, nodes: &[&Node]) {
        for node in nodes {
            self.destroy(node).await.unwrap();
            assert_eq!(processes_of(node), [], "processes are left");
        }
        self.executor.retain_slots(&nodes[0].ctx.attempt.run, &[]).await.unwrap();
        assert_eq!(self.files(), Vec::<PathBuf>::new());
        let claims = fs::read_dir(self.dir.path().join("ports")).into_iter().flatten().flatten();
        let claims: Vec<_> = claims.map(|claim| claim.file_name()).filter(|name| name != ".lock").collect();
        assert_eq!(claims, Vec::<std::ffi::OsString>::new());
    }
}

impl Drop for World {
    /// A failed test leaves no process behind.
    fn drop(&mut self) {
        for key in self.attempts.get_mut().unwrap() {
            for info in processes::carriers(&marker::nonce(key)).unwrap() {
                let _ = processes::kill(info.id);
            }
        }
    }
}

fn another_executor(dir: &Path, range: RangeInclusive<u16>) -> Arc<ProcessExecutor> {
    Arc::new(ProcessExecutor::new(ProcessConfig {
        root: dir.join("nodes"),
        port_registry: dir.join("ports"),
        port_range: range,
        supervisor: SupervisorCommand {
            program: env!("CARGO_BIN_EXE_executor-process-supervisor").into(),
            args: Vec::new(),
        },
        self_program: "/bin/sh".into(),
    }))
}

pub(crate) async fn start_with(
    executor: &ProcessExecutor,
    node: &Node,
) -> Result<BootstrapSessionId, ExecutorError> {
    let request = StartRequest {
        desired: node.spec.clone(),
        lease: node.lease.clone().unwrap(),
        endpoint: node.endpoint.clone().unwrap(),
    };
    match executor.start(&node.ctx, &request, CreateMode::CreateOrAdopt).await? {
        StartOutcome::Started { session } => Ok(session),
        StartOutcome::Absent { .. } => panic!("a start answered that there is nothing"),
    }
}

/// A session that is being listened to.
pub(crate) struct Watched {
    seen: Arc<Mutex<Vec<(Instant, ObservationReport)>>>,
    task: tokio::task::JoinHandle<Result<(), ExecutorError>>,
}

pub(crate) fn attach_with(executor: &Arc<ProcessExecutor>, node: &Node) -> Watched {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (executor, node, into) = (Arc::clone(executor), node.clone(), Arc::clone(&seen));
    let task = tokio::spawn(async move {
        let sink = ObservationSink::new(move |report| into.lock().unwrap().push((Instant::now(), report)));
        executor.attach(&node.ctx.attempt, node.session.as_ref().unwrap(), sink).await
    });
    Watched { seen, task }
}

impl Watched {
    pub(crate) fn all(&self) -> Vec<NodeObservation> {
        self.seen.lock().unwrap().iter().map(|(_, report)| report.observation.clone()).collect()
    }

    /// Waits for an observation that `pick` takes; when it came, and what it took.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        pick: impl Fn(&NodeObservation) -> Option<T>,
    ) -> (Instant, T) {
        eventually(what, || {
            let seen = self.seen.lock().unwrap();
            seen.iter().find_map(|(at, report)| pick(&report.observation).map(|picked| (*at, picked)))
        })
        .await
    }

    pub(crate) async fn until_joined(&self) -> Instant {
        self.until("the node to join", |seen| {
            matches!(seen, NodeObservation::MemberJoined { .. }).then_some(())
        })
        .await
        .0
    }

    pub(crate) async fn until_lost(&self) -> (Instant, String) {
        self.until("the loss", |seen| match seen {
            NodeObservation::LeaseLost { reason, .. } => Some(reason.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn until_failed(&self) -> (Instant, String) {
        self.until("the failure", |seen| match seen {
            NodeObservation::BootstrapFailed { reason, .. } => Some(reason.clone()),
            _ => None,
        })
        .await
    }

    /// Waits for the stream to end by itself.
    pub(crate) async fn end(self) -> Vec<NodeObservation> {
        let seen = Arc::clone(&self.seen);
        tokio::time::timeout(LIMIT, self.task).await.expect("the stream did not end").unwrap().unwrap();
        let seen = seen.lock().unwrap();
        seen.iter().map(|(_, report)| report.observation.clone()).collect()
    }

    pub(crate) fn drop_it(self) {
        self.task.abort();
    }
}

/// Waits, within the limit, until `look` finds something.
pub(crate) async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The processes that carry a node's marker, and what descends from them.
pub(crate) fn processes_of(node: &Node) -> Vec<ProcessInfo> {
    processes::carriers(&marker::nonce(&node.ctx.attempt)).unwrap()
}

/// A shell as the node's program.
pub(crate) fn shell(script: &str) -> Value {
    serde_json::json!({ "command": ["sh", "-c", script], "stop": { "grace": "2s" } })
}
