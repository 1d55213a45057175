//! What the tests of every transport share: a world to play in, calls as the driver makes them, and the processes
//! of a session as the machine itself knows them. The promises themselves are in [`promises`].

#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    unreachable_pub,
    reason = "test code, of which each test crate uses its own part"
)]

pub mod promises;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bootstrap_hosted::SessionName;
use executor_api::{
    AttemptKey, BootSpec, BootstrapSessionId, Bootstrapper, CandidateIndex, CreateMode, Endpoint,
    ExecutorError, GroupId, JoinSpec, LeaseFacts, LeaseId, LogicalNodeId, LogicalNodeSpec, NodeAttemptId,
    NodeObservation, NodeRole, NodeTemplate, ObservationSink, OperationContext, OperationId, ProviderName,
    RunId, SlotGroup, StartOutcome, StartRequest,
};
use serde_json::Value;

/// How long a test waits for a level before it fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A host and a way to it.
pub trait World: Send + Sync + 'static {
    /// A new instance over the same records: what a restart of the driver looks like.
    fn instance(&self) -> Arc<dyn Bootstrapper>;

    /// Where the host is.
    fn endpoint(&self) -> Endpoint;

    /// Settings as this transport needs them: `connect` is added.
    fn settings(&self, boot: Value) -> Value;
}

/// An attempt that no other test has.
pub fn attempt() -> AttemptKey {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let stamp = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    AttemptKey {
        run: RunId::new("test", format!("u{}-{stamp:x}-{n}", std::process::id())).unwrap(),
        node: LogicalNodeId::parse("web-0").unwrap(),
        attempt: NodeAttemptId(1),
    }
}

/// A call's context, for the n-th operation.
pub fn context(key: &AttemptKey, sequence: u64) -> OperationContext {
    OperationContext {
        attempt: key.clone(),
        operation: OperationId { attempt: key.attempt, sequence },
        candidate: CandidateIndex(0),
        deadline: SystemTime::now() + PATIENCE,
        group: SlotGroup { group: GroupId::new("web").unwrap(), slots: Arc::from([key.node.clone()]) },
    }
}

/// What a start is asked for.
pub fn request(world: &impl World, key: &AttemptKey, boot: Value) -> StartRequest {
    StartRequest {
        desired: LogicalNodeSpec {
            id: key.node.clone(),
            group: GroupId::new("web").unwrap(),
            index: 0,
            template: Arc::new(NodeTemplate {
                role: NodeRole("worker".into()),
                provider: ProviderName::new("static").unwrap(),
                shape: Value::Null,
                boot: BootSpec { via: None, settings: world.settings(boot) },
                join: JoinSpec::default(),
            }),
        },
        lease: LeaseFacts {
            lease_id: LeaseId("lease-1".into()),
            provider: ProviderName::new("static").unwrap(),
            created_at: None,
            attributes: [].into(),
        },
        endpoint: world.endpoint(),
    }
}

pub async fn start(
    boot: &Arc<dyn Bootstrapper>,
    world: &impl World,
    key: &AttemptKey,
    settings: &Value,
) -> Result<BootstrapSessionId, ExecutorError> {
    let request = request(world, key, settings.clone());
    match boot.start(&context(key, 0), &request, CreateMode::CreateOrAdopt).await? {
        StartOutcome::Started { session } => Ok(session),
        StartOutcome::Absent { .. } => panic!("a start that may create answered `absent`"),
    }
}

pub async fn cancel(boot: &Arc<dyn Bootstrapper>, key: &AttemptKey) -> Result<(), ExecutorError> {
    boot.cancel(&context(key, 9), &session(key)).await
}

pub fn session(key: &AttemptKey) -> BootstrapSessionId {
    BootstrapSessionId(SessionName::of(key).to_string())
}

/// What a session tells.
#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<Vec<NodeObservation>>>);

impl Heard {
    pub fn all(&self) -> Vec<NodeObservation> {
        self.0.lock().unwrap().clone()
    }

    /// Waits until something is told, and returns it.
    pub async fn wait(&self, what: &str, found: impl Fn(&NodeObservation) -> bool) -> NodeObservation {
        self.wait_for(PATIENCE, what, found).await
    }

    /// The same with a bound of its own.
    pub async fn wait_for(
        &self,
        bound: Duration,
        what: &str,
        found: impl Fn(&NodeObservation) -> bool,
    ) -> NodeObservation {
        let level = within(bound, || self.all().into_iter().find(&found));
        level.await.unwrap_or_else(|| panic!("never told: {what}; told so far: {:#?}", self.all()))
    }

    pub async fn joined(&self) {
        self.wait("that it joined", |o| matches!(o, NodeObservation::MemberJoined { .. })).await;
    }

    pub async fn failed(&self) -> String {
        match self.wait("that it failed", |o| matches!(o, NodeObservation::BootstrapFailed { .. })).await {
            NodeObservation::BootstrapFailed { reason, .. } => reason,
            _ => unreachable!(),
        }
    }
}

/// A session that is followed; dropping it ends the following.
pub struct Attached {
    pub heard: Heard,
    task: tokio::task::JoinHandle<()>,
}

impl Attached {
    pub fn to(boot: &Arc<dyn Bootstrapper>, key: &AttemptKey) -> Self {
        let heard = Heard::default();
        let sink = {
            let heard = heard.clone();
            ObservationSink::new(move |report| heard.0.lock().unwrap().push(report.observation))
        };
        let (boot, key) = (Arc::clone(boot), key.clone());
        let task = tokio::spawn(async move {
            let _ = boot.attach(&key, &session(&key), sink).await;
        });
        Self { heard, task }
    }

    /// Ends the following; what was heard stays.
    pub fn stop(&self) {
        self.task.abort();
    }

    pub async fn over(&self) -> bool {
        until(|| self.task.is_finished().then_some(())).await.is_some()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits for a level, within bounds.
pub async fn until<T>(level: impl FnMut() -> Option<T>) -> Option<T> {
    within(PATIENCE, level).await
}

/// Waits for a level, within this bound.
pub async fn within<T>(bound: Duration, mut level: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + bound;
    loop {
        if let Some(found) = level() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The processes of an attempt's session as the machine knows them: number and command line.
pub fn processes(key: &AttemptKey) -> Vec<(u32, String)> {
    processes_with(&format!("RECONCILER_SESSION={}", SessionName::of(key)))
}

/// The processes with this text in their environment or among their arguments.
pub fn processes_with(mark: &str) -> Vec<(u32, String)> {
    let holds = |bytes: &[u8]| bytes.windows(mark.len()).any(|part| part == mark.as_bytes());
    let read = |pid: u32, file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != std::process::id())
        .filter(|pid| holds(&read(*pid, "environ")) || holds(&read(*pid, "cmdline")))
        .map(|pid| (pid, String::from_utf8_lossy(&read(pid, "cmdline")).replace('\0', " ")))
        .collect()
}

/// How many runners of an attempt's session live.
pub fn runners(key: &AttemptKey) -> usize {
    let programs: Vec<_> = processes(key).into_iter().filter(|(_, line)| line.contains("sleep 4")).collect();
    programs.len()
}

/// Makes these look as if nobody had touched them for nine days.
pub fn long_ago(paths: &[std::path::PathBuf]) {
    let dated = std::process::Command::new("touch").args(["-d", "9 days ago"]).args(paths).status();
    assert!(dated.unwrap().success());
}

/// A shell line as a step.
pub fn sh(line: &str) -> Value {
    serde_json::json!(["/bin/sh", "-c", line])
}
