//! What the driver's tests share: a fake world, a shape in one line, and a runner over both.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::{
    BootSpec, GroupId, GroupPolicy, JoinSpec, LogicalNodeId, NodeRole, NodeTemplate, ProviderName, RunId,
    RunNodeGroupSpec, UpdatePolicy,
};
use executor_fake::{CallKind, FakeBehaviour, FakeWorld, Rule};
use reconciler_core::{ClusterShape, PolicyExtra, RetryPolicy, check, is_converged};
use reconciler_driver::runner::Settled;
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

    /// Asks for another shape.
    pub(crate) fn ask(&mut self, desired: ClusterShape) {
        self.runner.set_desired(desired).unwrap();
    }

    pub(crate) fn script(&self, rule: Rule) {
        self.world.script(rule).unwrap();
    }

    /// Everything is as declared, and so it is in the world.
    pub(crate) fn assert_converged(&self) {
        let driver = self.runner.driver();
        assert!(driver.is_converged(), "not converged:\n{}", self.why());
        assert!(is_converged(driver.state(), driver.expanded()), "the counters are wrong");
        assert_eq!(self.world.existing_leases().len(), driver.expanded().specs.len(), "leases in the world");
        assert_eq!(self.world.breaches(), []);
        assert_eq!(check::violations(driver.state()), []);
    }

    pub(crate) fn settle(&mut self, limit: u64) {
        assert_eq!(self.runner.run_until_settled(secs(limit)).unwrap(), Settled::Converged, "{}", self.why());
        self.assert_converged();
    }

    /// How often the trace has a step of this name.
    pub(crate) fn steps(&self, name: &str) -> usize {
        self.runner.events().iter().filter(|event| event.what.name() == name).count()
    }

    pub(crate) fn calls(&self, kind: CallKind) -> u64 {
        self.world.calls().get(&kind).copied().unwrap_or_default()
    }

    pub(crate) fn attempt(&self, name: &str) -> u64 {
        self.runner.driver().state().nodes[&slot(name)].attempt.0
    }

    fn why(&self) -> String {
        let nodes = self.runner.driver().snapshot().nodes;
        let lines = nodes.iter().map(|node| format!("{} {}: {}", node.id, node.stage, node.why));
        lines.chain([self.trace()]).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn trace(&self) -> String {
        self.runner.trace().join("\n")
    }
}
