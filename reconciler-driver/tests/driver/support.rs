//! What the driver's tests share: a fake world, a shape in one line, and a runner over both.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::{
    BootSpec, GroupId, GroupPolicy, JoinSpec, LogicalNodeId, NodeRole, NodeTemplate, ProviderName, RunId,
    RunNodeGroupSpec, UpdatePolicy,
};
use executor_fake::{FakeBehaviour, FakeWorld};
use reconciler_core::{ClusterShape, PolicyExtra, RetryPolicy};
use reconciler_driver::{ExecutorTable, Runner, VirtualTimer};

/// Where test time begins.
pub(crate) fn epoch() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn at(seconds: u64) -> SystemTime {
    epoch() + secs(seconds)
}

pub(crate) fn run() -> RunId {
    RunId::new("demo", "u1").unwrap()
}

pub(crate) fn slot(name: &str) -> LogicalNodeId {
    LogicalNodeId::parse(name).unwrap()
}

/// One declared group. The version is part of its spec.
pub(crate) fn group(name: &str, count: u32, version: u64) -> RunNodeGroupSpec {
    RunNodeGroupSpec {
        run_id: run(),
        group_id: GroupId::new(name).unwrap(),
        count,
        template: Arc::new(NodeTemplate {
            role: NodeRole(format!("v{version}")),
            provider: ProviderName::new("fake").unwrap(),
            shape: serde_json::Value::Null,
            boot: BootSpec::default(),
            join: JoinSpec::default(),
        }),
        policy: GroupPolicy::default(),
        update: UpdatePolicy::default(),
    }
}

pub(crate) fn shape(generation: u64, groups: Vec<RunNodeGroupSpec>) -> ClusterShape {
    ClusterShape { run_id: run(), generation, groups }
}

/// The timing of the scenarios: 1 s doubling to 60 s, operations 30 s, probes 5 s, tick 10 s.
pub(crate) fn policy() -> RetryPolicy {
    RetryPolicy {
        extra: PolicyExtra { join_within: secs(60), ..PolicyExtra::default() },
        ..RetryPolicy::default()
    }
}

/// A world, its clock, and a runner that drives it.
pub(crate) struct Stage {
    pub(crate) timer: VirtualTimer,
    pub(crate) world: FakeWorld,
    pub(crate) runner: Runner,
}

impl Stage {
    pub(crate) fn new(desired: ClusterShape) -> Self {
        Self::with(desired, policy(), FakeBehaviour::default())
    }

    pub(crate) fn with(desired: ClusterShape, policy: RetryPolicy, behaviour: FakeBehaviour) -> Self {
        let timer = VirtualTimer::new(epoch());
        let world = FakeWorld::new(Arc::new(timer.clone()), behaviour);
        let executors = ExecutorTable::new().with_executor(world.executor());
        let runner = Runner::new(desired, policy, executors, timer.clone()).unwrap();
        Self { timer, world, runner }
    }

    /// Goes on until `seconds` after the start.
    pub(crate) fn run_to(&mut self, seconds: u64) {
        let now = executor_api::Timer::now(&self.timer);
        let left = at(seconds).duration_since(now).unwrap_or_default();
        self.runner.run_for(left).unwrap();
    }

    pub(crate) fn trace(&self) -> String {
        self.runner.trace().join("\n")
    }
}
