//! One state of the searched world: the driver's state, the operations under way, and the ground truth.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::{
    BootSpec, Endpoint, EndpointAuth, GroupPolicy, JoinSpec, LeaseFacts, LeaseId, NodeRole, NodeTemplate,
    ProviderName, UpdatePolicy, Visibility,
};
use reconciler_core::{
    AttemptKey, BootstrapSessionId, ClusterShape, ClusterState, Expanded, GroupId, LogicalNodeId, NodeIntent,
    NodeManagerCommand, OperationId, RunId, RunNodeGroupSpec, check, is_converged,
};

use super::Search;

/// How long a read may not show what exists, and how long after it was stopped a call may still act.
pub(super) const VISIBILITY: Visibility =
    Visibility { listing_lag: Duration::from_secs(10), late_landing: Duration::from_secs(20) };

/// Something that exists, or did.
#[derive(Clone, Debug)]
pub(super) struct Thing {
    pub(super) slot: LogicalNodeId,
    pub(super) attempt: u64,
    pub(super) serial: u32,
    pub(super) born: SystemTime,
    pub(super) live: bool,
}

/// A create or start that was given up and may still act.
#[derive(Clone, Debug)]
pub(super) struct Limbo {
    pub(super) slot: LogicalNodeId,
    pub(super) attempt: u64,
    pub(super) is_lease: bool,
    pub(super) until: SystemTime,
}

/// An effect on its way.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) slot: LogicalNodeId,
    pub(super) operation: OperationId,
    pub(super) command: NodeManagerCommand,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) state: ClusterState,
    pub(super) desired: Arc<Expanded>,
    pub(super) now: SystemTime,
    pub(super) flights: Vec<Flight>,
    pub(super) leases: Vec<Thing>,
    pub(super) sessions: Vec<Thing>,
    pub(super) limbo: Vec<Limbo>,
    pub(super) serial: u32,
    pub(super) faults: u32,
    pub(super) edits: u32,
}

pub(super) fn expanded(run: &RunId, generation: u64, count: u32, spec: char) -> Arc<Expanded> {
    let group = RunNodeGroupSpec {
        run_id: run.clone(),
        group_id: group_id(),
        count,
        template: Arc::new(NodeTemplate {
            role: NodeRole::default(),
            provider: provider(),
            shape: serde_json::Value::String(spec.to_string()),
            boot: BootSpec::default(),
            join: JoinSpec::default(),
        }),
        policy: GroupPolicy::default(),
        update: UpdatePolicy::default(),
    };
    let shape = ClusterShape { run_id: run.clone(), generation, groups: vec![group] };
    #[expect(clippy::expect_used, reason = "one group of a few slots always expands")]
    Arc::new(Expanded::of(&shape).expect("one small group"))
}

#[expect(clippy::expect_used, reason = "a literal name")]
fn group_id() -> GroupId {
    GroupId::new("n").expect("a valid name")
}

#[expect(clippy::expect_used, reason = "a literal name")]
fn provider() -> ProviderName {
    ProviderName::new("model").expect("a valid name")
}

#[expect(clippy::expect_used, reason = "literal names")]
fn run() -> RunId {
    RunId::new("search", "u").expect("valid names")
}

impl Model {
    pub(super) fn new(search: &Search) -> Self {
        Self {
            state: ClusterState::default(),
            desired: expanded(&run(), 1, search.nodes, 'a'),
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000),
            flights: Vec::new(),
            leases: Vec::new(),
            sessions: Vec::new(),
            limbo: Vec::new(),
            serial: 0,
            faults: search.faults,
            edits: 0,
        }
    }

    pub(super) fn lease_facts(serial: u32) -> LeaseFacts {
        LeaseFacts {
            lease_id: LeaseId(format!("l-{serial}")),
            provider: provider(),
            created_at: None,
            attributes: BTreeMap::new(),
        }
    }

    pub(super) fn session_id(serial: u32) -> BootstrapSessionId {
        BootstrapSessionId(format!("s-{serial}"))
    }

    pub(super) fn endpoint() -> Endpoint {
        Endpoint { host: "node".into(), port: 1, auth: EndpointAuth::None, ports: BTreeMap::new() }
    }

    pub(super) fn attempt_key(&self, slot: &LogicalNodeId, operation: OperationId) -> AttemptKey {
        AttemptKey { run: self.desired.run_id.clone(), node: slot.clone(), attempt: operation.attempt }
    }

    /// Makes something, and says whether that broke the one-per-attempt rule.
    pub(super) fn make(&mut self, slot: &LogicalNodeId, attempt: u64, is_lease: bool) -> u32 {
        self.serial += 1;
        let thing = Thing { slot: slot.clone(), attempt, serial: self.serial, born: self.now, live: true };
        if is_lease {
            self.leases.push(thing);
        } else {
            self.sessions.push(thing);
        }
        self.serial
    }

    /// What must hold in every state.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(violation) = check::violations(&self.state).first() {
            return Err(format!("state: {violation}"));
        }
        for (what, things) in [("leases", &self.leases), ("sessions", &self.sessions)] {
            let mut owners: Vec<_> = things.iter().filter(|t| t.live).map(|t| &t.slot).collect();
            let all = owners.len();
            owners.sort();
            owners.dedup();
            if owners.len() != all {
                return Err(format!("P1: two live {what} for one slot"));
            }
        }
        for node in self.state.nodes.values().filter(|node| node.is_ready()) {
            let slot = &node.record.desired.id;
            let lease = node.record.lease.as_ref().map(|l| &l.lease_id);
            let real = self
                .leases
                .iter()
                .any(|t| t.live && t.slot == *slot && Some(&Self::lease_facts(t.serial).lease_id) == lease);
            if !real {
                return Err(format!("{slot} is ready on a lease that does not live"));
            }
        }
        Ok(())
    }

    /// What must hold when an attempt is given up for good: nothing of it lives or can still come.
    pub(super) fn check_retired(&self, slot: &LogicalNodeId, attempt: u64) -> Result<(), String> {
        let mine = |t: &&Thing| t.live && t.slot == *slot && t.attempt == attempt;
        if self.leases.iter().any(|t| mine(&t)) {
            return Err(format!("S10: {slot} a{attempt} retired while its lease lives"));
        }
        if self.sessions.iter().any(|t| mine(&t)) {
            return Err(format!("S10: {slot} a{attempt} retired while its session lives"));
        }
        let coming = self.limbo.iter().any(|l| l.slot == *slot && l.attempt == attempt && l.until > self.now)
            || self.flights.iter().any(|f| f.slot == *slot && f.operation.attempt.0 == attempt);
        if coming {
            return Err(format!("S10: {slot} a{attempt} retired while an effect of it may still land"));
        }
        Ok(())
    }

    /// What must hold when nothing more can happen.
    pub(super) fn check_end(&self) -> Result<(), String> {
        if !is_converged(&self.state, &self.desired) {
            return Err(format!("L1: at rest and not converged: {}", self.describe()));
        }
        let live = self.leases.iter().filter(|t| t.live).count();
        if live != self.desired.specs.len() {
            return Err(format!("P2: at rest with {live} leases for {} slots", self.desired.specs.len()));
        }
        if let Some(t) = self
            .sessions
            .iter()
            .find(|t| t.live && self.state.nodes.get(&t.slot).is_none_or(|n| n.attempt.0 != t.attempt))
        {
            return Err(format!("P2: at rest with a session of {} a{}", t.slot, t.attempt));
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let nodes: Vec<_> = self
            .state
            .nodes
            .iter()
            .map(|(slot, node)| {
                let intent = if node.intent == NodeIntent::Active { "active" } else { "deleting" };
                format!("{slot} {} {intent} {}", node.attempt, node.record.stage)
            })
            .collect();
        nodes.join(", ")
    }
}
