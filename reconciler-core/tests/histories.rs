//! Random histories of one small cluster, driven by core alone: facts in any order, lost, repeated, late;
//! shapes edited at any time; attempts held and released. After every step the invariants; after the last
//! fault the cluster becomes what was declared, and then stays still.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    reason = "a test: a panic is a failed test, and arguments are built where they are used"
)]

mod support;

use std::collections::BTreeMap;
use std::time::SystemTime;

use executor_api::{EffectSuccess, ExecutorErrorKind, LeaseId, NodeDeadline, RejectReason};
use proptest::prelude::*;
use reconciler_core::*;
use support::*;

/// One thing that happens. Numbers choose among what is there.
#[derive(Clone, Debug)]
enum Event {
    Pass,
    Wait(u64),
    Shape { count: u32, size: u8 },
    Succeed(usize),
    Fail(usize, u8),
    TimeOut(usize),
    StaleResult(usize),
    Lost(usize),
    Joined(usize),
    SessionFailed(usize),
    Closed(usize),
    Silent(usize),
    Seen(usize),
    Deadlines,
    Hold(usize),
    Release,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => Just(Event::Pass),
        3 => (0u64..40).prop_map(Event::Wait),
        1 => (0u32..4, 0u8..2).prop_map(|(count, size)| Event::Shape { count, size }),
        6 => any::<usize>().prop_map(Event::Succeed),
        3 => (any::<usize>(), 0u8..6).prop_map(|(node, kind)| Event::Fail(node, kind)),
        1 => any::<usize>().prop_map(Event::TimeOut),
        1 => any::<usize>().prop_map(Event::StaleResult),
        1 => any::<usize>().prop_map(Event::Lost),
        4 => any::<usize>().prop_map(Event::Joined),
        1 => any::<usize>().prop_map(Event::SessionFailed),
        1 => any::<usize>().prop_map(Event::Closed),
        1 => any::<usize>().prop_map(Event::Silent),
        1 => any::<usize>().prop_map(Event::Seen),
        2 => Just(Event::Deadlines),
        1 => any::<usize>().prop_map(Event::Hold),
        1 => Just(Event::Release),
    ]
}

struct World {
    state: ClusterState,
    desired: ClusterShape,
    policy: RetryPolicy,
    now: SystemTime,
    leases: u64,
    given_out: BTreeMap<NodeAttemptId, LogicalNodeId>,
}

impl World {
    fn new() -> Self {
        let mut policy = RetryPolicy::default();
        policy.extra.loss_timeout = Some(secs(20));
        policy.extra.stable_after = secs(5);
        Self {
            state: ClusterState::default(),
            desired: web(1, 2, "a"),
            policy,
            now: at(0),
            leases: 0,
            given_out: BTreeMap::new(),
        }
    }

    /// One pass; says whether anything was done.
    fn pass(&mut self) -> bool {
        let plan = reconcile(&self.state, &self.desired, self.now).unwrap();
        assert_eq!(plan, reconcile(&self.state, &self.desired, self.now).unwrap(), "not deterministic");
        for action in &plan.actions {
            if let NodeAction::Insert { attempt, desired } = action {
                assert_eq!(self.given_out.insert(*attempt, desired.id.clone()), None, "attempt id reused");
            }
            if let NodeAction::Restart { new_attempt, node, .. } = action {
                assert_eq!(self.given_out.insert(*new_attempt, node.clone()), None, "attempt id reused");
            }
            apply(&mut self.state, action, self.now, &self.policy).expect("a fresh plan is never stale");
        }
        self.state.observed_generation = plan.observed_generation;
        !plan.actions.is_empty()
    }

    fn nth(&self, number: usize) -> Option<LogicalNodeId> {
        let count = self.state.nodes.len();
        (count > 0).then(|| self.state.nodes.keys().nth(number % count).unwrap().clone())
    }

    fn fold(&mut self, slot: &LogicalNodeId, observation: NodeObservation) {
        let observation = self.state.holds.soften(slot, observation);
        let node = self.state.nodes.get_mut(slot).unwrap();
        let before = node.clone();
        match fold(node, observation, self.now, &self.policy) {
            Folded::Applied(_) => assert_ne!(*node, before),
            Folded::Nothing | Folded::Dropped(_) => assert_eq!(*node, before),
        }
    }

    /// What an honest executor would answer to the pending operation.
    fn honest(&mut self, slot: &LogicalNodeId) -> Option<NodeObservation> {
        let node = &self.state.nodes[slot];
        let pending = node.pending.clone()?;
        let success = match pending.kind {
            OperationKind::CreateLease | OperationKind::StartBootstrap if pending.extra.adopt_only => {
                EffectSuccess::NothingToAdopt { as_of: self.now }
            }
            OperationKind::CreateLease => {
                self.leases += 1;
                let lease_id = LeaseId(format!("l-{}", self.leases));
                let endpoint = self.leases.is_multiple_of(2).then(endpoint);
                EffectSuccess::LeaseCreated {
                    lease: executor_api::LeaseFacts { lease_id, ..lease() },
                    endpoint,
                }
            }
            OperationKind::LookupEndpoint => EffectSuccess::EndpointFound { endpoint: endpoint() },
            OperationKind::StartBootstrap => {
                self.leases += 1;
                let session = BootstrapSessionId(format!("bs-{}", self.leases));
                EffectSuccess::BootstrapStarted { session }
            }
            OperationKind::BootstrapConvergenceObserved => EffectSuccess::BootstrapCompleted,
            OperationKind::CancelBootstrap => EffectSuccess::BootstrapCancelled,
            OperationKind::DestroyLease => EffectSuccess::LeaseDestroyed,
        };
        let mut answer = ok(0, success);
        if let NodeObservation::Completed(report) = &mut answer {
            report.operation = pending.id;
        }
        Some(answer)
    }

    fn session_of(&self, slot: &LogicalNodeId) -> Option<BootstrapSessionId> {
        self.state.nodes[slot].record.bootstrap.as_ref().map(|facts| facts.session.clone())
    }

    fn deadlines(&mut self) {
        for slot in self.state.nodes.keys().cloned().collect::<Vec<_>>() {
            let pending = self.state.nodes[&slot].pending.clone();
            if let Some(pending) = pending.filter(|p| p.deadline <= self.now) {
                let NodeObservation::TimedOut { visibility, .. } = timed_out(0) else { unreachable!() };
                self.fold(&slot, NodeObservation::TimedOut { operation: pending.id, visibility });
            }
            for which in [NodeDeadline::Join, NodeDeadline::Loss, NodeDeadline::Stable] {
                self.fold(&slot, NodeObservation::DeadlinePassed(which));
            }
        }
    }

    fn happen(&mut self, event: &Event) {
        let target = match event {
            Event::Succeed(n)
            | Event::Fail(n, _)
            | Event::TimeOut(n)
            | Event::StaleResult(n)
            | Event::Lost(n)
            | Event::Joined(n)
            | Event::SessionFailed(n)
            | Event::Closed(n)
            | Event::Silent(n)
            | Event::Seen(n)
            | Event::Hold(n) => self.nth(*n),
            Event::Pass | Event::Wait(_) | Event::Shape { .. } | Event::Deadlines | Event::Release => None,
        };
        match (event, target) {
            (Event::Pass, _) => {
                self.pass();
            }
            (Event::Wait(seconds), _) => self.now += secs(*seconds),
            (Event::Shape { count, size }, _) => {
                let size = if *size == 0 { "a" } else { "b" };
                self.desired = web(self.desired.generation + 1, *count, size);
            }
            (Event::Deadlines, _) => self.deadlines(),
            (Event::Release, _) => self.state.holds = Holds::default(),
            (Event::Hold(_), Some(slot)) => {
                let hold = Hold { by: HoldBy::Operator, reason: "test".into(), since: self.now };
                self.state.holds.hold(Some(slot), hold);
            }
            (Event::Succeed(_), Some(slot)) => {
                if let Some(answer) = self.honest(&slot) {
                    self.fold(&slot, answer);
                }
            }
            (Event::Fail(_, kind), Some(slot)) => {
                let kind = match kind {
                    0 => ExecutorErrorKind::Rejected(RejectReason::Capacity),
                    1 => ExecutorErrorKind::Throttled { retry_after: Some(secs(3)) },
                    2 => ExecutorErrorKind::Unavailable,
                    3 => ExecutorErrorKind::Gone,
                    _ => ExecutorErrorKind::Ambiguous,
                };
                if let Some(pending) = self.state.nodes[&slot].pending.clone() {
                    self.fold(&slot, err(pending.id.sequence, kind).with_operation(pending.id));
                }
            }
            (Event::TimeOut(_), Some(slot)) => {
                if let Some(pending) = self.state.nodes[&slot].pending.clone() {
                    self.fold(&slot, timed_out(0).with_operation(pending.id));
                }
            }
            (Event::StaleResult(_), Some(slot)) => {
                let node = &self.state.nodes[&slot];
                let old = OperationId { attempt: node.attempt, sequence: node.next_operation_sequence + 7 };
                let answer = ok(0, EffectSuccess::LeaseDestroyed).with_operation(old);
                let before = self.state.clone();
                self.fold(&slot, answer);
                assert_eq!(self.state, before, "a stale result changed the state");
            }
            (Event::Lost(_), Some(slot)) => {
                if let Some(lease) = self.state.nodes[&slot].record.lease.clone() {
                    let lost = NodeObservation::LeaseLost { lease: lease.lease_id, reason: "died".into() };
                    self.fold(&slot, lost);
                }
            }
            (Event::Joined(_), Some(slot)) => {
                if let Some(session) = self.session_of(&slot) {
                    self.fold(&slot, NodeObservation::MemberJoined { session, member: member() });
                }
            }
            (Event::SessionFailed(_), Some(slot)) => {
                if let Some(session) = self.session_of(&slot) {
                    self.fold(&slot, NodeObservation::BootstrapFailed { session, reason: "exit 1".into() });
                }
            }
            (Event::Closed(_), Some(slot)) => {
                if let Some(session) = self.session_of(&slot) {
                    self.fold(&slot, NodeObservation::BootstrapConverged { session });
                }
            }
            (Event::Silent(_), Some(slot)) => {
                self.fold(&slot, NodeObservation::Suspected { reason: "not listed".into() });
            }
            (Event::Seen(_), Some(slot)) => self.fold(&slot, NodeObservation::SeenAlive),
            (_, None) => {}
        }
    }

    /// No more faults: every operation succeeds, every session joins, time passes.
    fn settle(&mut self) {
        self.state.holds = Holds::default();
        for _ in 0..400 {
            let busy = self.pass();
            self.check();
            for slot in self.state.nodes.keys().cloned().collect::<Vec<_>>() {
                if let Some(answer) = self.honest(&slot) {
                    self.fold(&slot, answer);
                }
                if let Some(session) = self.session_of(&slot) {
                    self.fold(&slot, NodeObservation::MemberJoined { session, member: member() });
                }
                self.fold(&slot, NodeObservation::SeenAlive);
            }
            self.check();
            let expanded = Expanded::of(&self.desired).unwrap();
            if !busy && is_converged(&self.state, &expanded) {
                return;
            }
            if !busy {
                self.now += secs(5);
                self.deadlines();
            }
        }
        panic!("did not converge: {:#?}", self.state);
    }

    fn check(&self) {
        assert_eq!(check::violations(&self.state), []);
        // Conservation: every attempt given out is the current one of its slot, or gone for good.
        for (slot, node) in &self.state.nodes {
            assert_eq!(self.given_out.get(&node.attempt), Some(slot));
        }
    }
}

trait WithOperation {
    fn with_operation(self, id: OperationId) -> Self;
}

impl WithOperation for NodeObservation {
    fn with_operation(mut self, id: OperationId) -> Self {
        match &mut self {
            Self::Completed(report) => report.operation = id,
            Self::TimedOut { operation, .. } => *operation = id,
            _ => {}
        }
        self
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_the_invariants_and_converges(events in prop::collection::vec(event(), 0..120)) {
        let mut world = World::new();
        for event in &events {
            world.happen(event);
            world.check();
        }
        world.settle();
        let settled = world.state.clone();
        // Stability: nothing moves any more, however often it is looked at.
        for _ in 0..3 {
            world.now += secs(10);
            world.deadlines();
            assert!(!world.pass(), "a converged cluster moved");
        }
        prop_assert_eq!(settled.nodes.len(), world.state.nodes.len());
        prop_assert_eq!(settled.next_attempt_id, world.state.next_attempt_id);
    }

    #[test]
    fn the_way_to_a_state_does_not_matter(events in prop::collection::vec(event(), 0..60)) {
        // Level-based: a state that went through its serialised form decides the same.
        let mut world = World::new();
        for event in &events {
            world.happen(event);
        }
        let copy: ClusterState = serde_json::from_str(&serde_json::to_string(&world.state).unwrap()).unwrap();
        prop_assert_eq!(
            reconcile(&world.state, &world.desired, world.now).unwrap(),
            reconcile(&copy, &world.desired, world.now).unwrap()
        );
    }
}
