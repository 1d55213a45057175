//! Builders and a renderer for core's tests. Time starts at a fixed epoch; everything is on `web`.
#![allow(
    dead_code,
    unreachable_pub,
    missing_debug_implementations,
    clippy::allow_attributes,
    clippy::unwrap_used,
    reason = "test support: each test file uses its own part, and a panic is a failed test"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::{
    BootSpec, BootstrapFacts, EffectFailure, EffectOutcome, EffectSuccess, Endpoint, EndpointAuth,
    ExecutorErrorKind, GroupPolicy, JoinSpec, LeaseFacts, LeaseId, MemberFacts, NodeRole, NodeTemplate,
    OperationReport, ProviderName, UpdatePolicy, Visibility,
};
use reconciler_core::*;

pub const EPOCH: u64 = 1_000_000;

pub fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(EPOCH + seconds)
}

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn run_id() -> RunId {
    RunId::new("demo", "u1").unwrap()
}

pub fn slot(text: &str) -> LogicalNodeId {
    LogicalNodeId::parse(text).unwrap()
}

pub fn group(name: &str, count: u32, shape: &str) -> RunNodeGroupSpec {
    RunNodeGroupSpec {
        run_id: run_id(),
        group_id: GroupId::new(name).unwrap(),
        count,
        template: Arc::new(NodeTemplate {
            role: NodeRole("worker".into()),
            provider: ProviderName::new("fake").unwrap(),
            shape: serde_json::json!({ "size": shape }),
            boot: BootSpec::default(),
            join: JoinSpec::default(),
        }),
        policy: GroupPolicy::default(),
        update: UpdatePolicy::default(),
    }
}

pub fn shape(generation: u64, groups: Vec<RunNodeGroupSpec>) -> ClusterShape {
    ClusterShape { run_id: run_id(), generation, groups }
}

/// `web` with `count` slots of spec `size`.
pub fn web(generation: u64, count: u32, size: &str) -> ClusterShape {
    shape(generation, vec![group("web", count, size)])
}

pub fn spec(size: &str) -> LogicalNodeSpec {
    expand_node_group(&group("web", 1, size)).next().unwrap()
}

pub fn lease() -> LeaseFacts {
    LeaseFacts {
        lease_id: LeaseId("l-1".into()),
        provider: ProviderName::new("fake").unwrap(),
        created_at: None,
        attributes: BTreeMap::new(),
    }
}

pub fn endpoint() -> Endpoint {
    Endpoint { host: "127.0.0.1".into(), port: 80, auth: EndpointAuth::None, ports: BTreeMap::new() }
}

pub fn session() -> BootstrapSessionId {
    BootstrapSessionId("bs-1".into())
}

pub fn member() -> MemberFacts {
    MemberFacts { member_id: "web-0".into(), nonce: "n".into(), joined_at: at(0) }
}

pub fn op(sequence: u64) -> OperationId {
    OperationId { attempt: NodeAttemptId(1), sequence }
}

/// A node built up fact by fact.
#[derive(Clone)]
pub struct Build(pub ManagedNode);

pub fn node() -> Build {
    Build(ManagedNode::new(NodeAttemptId(1), spec("a"), at(0)))
}

impl Build {
    pub fn stage(mut self, stage: NodeStage) -> Self {
        self.0.record.stage = stage;
        self
    }
    pub fn leased(mut self) -> Self {
        self.0.record.lease = Some(lease());
        self.0.record.stage = NodeStage::LeaseCreated;
        self
    }
    pub fn reachable(self) -> Self {
        let mut b = self.leased();
        b.0.record.connection = Some(endpoint());
        b.0.record.stage = NodeStage::EndpointKnown;
        b
    }
    pub fn booting(self) -> Self {
        let mut b = self.reachable();
        b.0.active_bootstrap = Some(session());
        b.0.record.bootstrap = Some(BootstrapFacts {
            session: session(),
            started_at: at(0),
            last_sequence: 0,
            phase: None,
            ended: None,
        });
        b.0.record.stage = NodeStage::BootstrapRunning;
        b.0.extra.join_deadline = Some(at(600));
        b
    }
    pub fn joined(self) -> Self {
        let mut b = self.booting();
        b.0.record.member = Some(member());
        b.0.record.stage = NodeStage::Joined;
        b.0.extra.join_deadline = None;
        b
    }
    pub fn ready(self) -> Self {
        let mut b = self.joined();
        b.0.active_bootstrap = None;
        b.0.record.handoff_complete = true;
        b.0.record.stage = NodeStage::Dormant;
        b.0.extra.ready_at = Some(at(0));
        b
    }
    pub fn failed(mut self, reason: &str) -> Self {
        self.0.record.stage = NodeStage::Failed;
        self.0.record.failed_reason = Some(reason.into());
        self.0.record.failed_at = Some(at(0));
        self
    }
    pub fn deleting(mut self) -> Self {
        self.0.intent = NodeIntent::Deleting;
        self
    }
    pub fn destroyed(self) -> Self {
        let mut b = self.deleting();
        b.0.record.stage = NodeStage::Destroyed;
        b.0.record.destroyed_at = Some(at(0));
        b
    }
    pub fn pending(mut self, kind: OperationKind) -> Self {
        let sequence = self.0.next_operation_sequence;
        self.0.next_operation_sequence += 1;
        self.0.pending = Some(PendingOperation {
            id: op(sequence),
            kind,
            deadline: at(30),
            extra: PendingExtra::default(),
        });
        self
    }
    pub fn adopt_only(mut self) -> Self {
        self.0.pending.as_mut().unwrap().extra.adopt_only = true;
        self
    }
    pub fn unknown(mut self, kind: OperationKind, counts_from: u64) -> Self {
        self.0.retry.ambiguous_operation = Some(kind);
        self.0.retry.extra.absent_counts_from = Some(at(counts_from));
        self
    }
    pub fn backoff(mut self, until: u64) -> Self {
        self.0.retry.next_effect_at = Some(at(until));
        self.0.retry.consecutive_failures = 1;
        self
    }
    pub fn restart_at(mut self, until: u64) -> Self {
        self.0.retry.restart_at = Some(at(until));
        self
    }
    pub fn with(mut self, change: impl FnOnce(&mut ManagedNode)) -> Self {
        change(&mut self.0);
        self
    }
}

/// A state that holds one node at `web-0`.
pub fn state(node: Build) -> ClusterState {
    let mut state = ClusterState { next_attempt_id: node.0.attempt.0 + 1, ..ClusterState::default() };
    state.nodes.insert(slot("web-0"), node.0);
    state
}

pub fn done(sequence: u64, outcome: EffectOutcome) -> NodeObservation {
    let visibility = Visibility { listing_lag: secs(60), late_landing: secs(0) };
    NodeObservation::Completed(OperationReport { operation: op(sequence), outcome, visibility })
}

pub fn ok(sequence: u64, success: EffectSuccess) -> NodeObservation {
    done(sequence, Ok(success))
}

pub fn err(sequence: u64, kind: ExecutorErrorKind) -> NodeObservation {
    done(sequence, Err(EffectFailure { kind, message: "it broke".into() }))
}

pub fn timed_out(sequence: u64) -> NodeObservation {
    let visibility = Visibility { listing_lag: secs(60), late_landing: secs(0) };
    NodeObservation::TimedOut { operation: op(sequence), visibility }
}

fn plus(time: SystemTime) -> String {
    format!("+{}s", time.duration_since(at(0)).unwrap().as_secs())
}

/// One decision in one line.
pub fn decision(decision: &NodeDecision) -> String {
    let step = match &decision.step {
        NodeStep::None => "steady".to_owned(),
        NodeStep::Wait => "wait".to_owned(),
        NodeStep::BeginDelete => "begin-delete".to_owned(),
        NodeStep::MarkDestroyed => "mark-destroyed".to_owned(),
        NodeStep::Restart => "restart".to_owned(),
        NodeStep::Reap => "reap".to_owned(),
        NodeStep::Dispatch(command) => match command {
            NodeManagerCommand::CreateLease { mode: CreateMode::AdoptOnly, .. }
            | NodeManagerCommand::StartBootstrap { mode: CreateMode::AdoptOnly, .. } => {
                format!("{} (adopt only)", command.kind())
            }
            _ => command.kind().to_string(),
        },
    };
    let until = decision.why.until().map_or(String::new(), |time| format!(" until {}", plus(time)));
    format!("{step}: {}{until}", decision.why)
}

/// The parts of a node that a fold may change, in one line.
pub fn facts(node: &ManagedNode) -> String {
    let mut text = format!("{}", node.record.stage);
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            use std::fmt::Write as _;
            write!(text, " {name}={value}").unwrap();
        }
    };
    put("lease", node.record.lease.as_ref().map(|l| l.lease_id.to_string()));
    put("endpoint", node.record.connection.as_ref().map(ToString::to_string));
    put("session", node.active_bootstrap.as_ref().map(ToString::to_string));
    put("member", node.record.member.as_ref().map(|m| m.member_id.clone()));
    put("pending", node.pending.as_ref().map(|p| p.kind.to_string()));
    put("unknown", node.retry.ambiguous_operation.map(|k| k.to_string()));
    put("absent-counts", node.retry.extra.absent_counts_from.map(plus));
    let failures = node.retry.consecutive_failures;
    put("failures", (failures > 0).then(|| failures.to_string()));
    put("next", node.retry.next_effect_at.map(plus));
    put("restart", node.retry.restart_at.map(plus));
    put("join-by", node.extra.join_deadline.map(plus));
    put("stable-at", node.extra.stable_at.map(plus));
    put("suspect", node.extra.suspect_since.map(plus));
    put("loss-at", node.extra.loss_deadline.map(plus));
    put("reason", node.record.failed_reason.clone());
    text
}

/// Folds and renders: what came of it, and the node after it.
pub fn folded(node: Build, observation: NodeObservation, now: u64, policy: &RetryPolicy) -> String {
    let before = node.0.clone();
    let mut node = node.0;
    let folded = fold(&mut node, observation, at(now), policy);
    match folded {
        Folded::Applied(fact) => {
            assert_ne!(node, before, "said to have changed the node, and did not: {fact}");
            format!("{fact}\n  {}", facts(&node))
        }
        Folded::Nothing => {
            assert_eq!(node, before, "said to change nothing, and did");
            "nothing".to_owned()
        }
        Folded::Dropped(dropped) => {
            assert_eq!(node, before, "dropped a fact and changed the node");
            format!("dropped: {dropped}")
        }
    }
}
