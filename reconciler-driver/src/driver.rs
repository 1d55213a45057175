//! The driver without its I/O: sole owner of `ClusterState`, of the work queue, of the stored deadlines and
//! of the accepted shape. Takes time as an argument; asks for effects, commits and stops by value.
//!
//! A pass looks only at slots that are *dirty*: folded, applied, due, changed in the shape, or given a place
//! at their provider. What it finds is what a full reconcile would find for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::{
    BootstrapSessionId, GroupId, LogicalNodeId, NodeAttemptId, NodeManagerCommand, NodeTemplate,
    OperationContext, OperationId, OperationKind, ProviderName, RunId, Visibility,
};
use reconciler_core::{ClusterShape, ClusterState, Expanded, RetryPolicy};
use serde::{Deserialize, Serialize};

use crate::error::{DesiredRejected, DriverError};
use crate::event::{Counters, Event, Happening};
use crate::executors::ExecutorTable;
use crate::rules::Rules;
use crate::store::{Changeset, StateImage};

mod admission;
mod checkpoint;
mod desired;
mod guard;
mod index;
mod inputs;
mod listing;
mod pass;
mod restore;
mod sweep;
mod tape;

pub use checkpoint::Checkpoint;
pub use desired::DesiredChange;
pub use guard::{Distrust, Distrusted};
pub use inputs::{DriverInput, UnknownSlot};
pub use sweep::Sweep;
pub use tape::{Asked, Difference, Playback, TapeBegin, TapeEntry, replay};

use admission::Admission;
use desired::Accepted;
use guard::Guard;
use index::Index;
use listing::Sightings;
use sweep::Sweeps;

/// Which executors serve a node: names, to be looked up in an [`ExecutorTable`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Route {
    /// The lease provider.
    pub provider: ProviderName,
    /// The bootstrapper, where it is not the provider's own.
    pub via: Option<ProviderName>,
}

impl Route {
    /// The route that a spec asks for.
    pub fn of(template: &NodeTemplate) -> Self {
        Self { provider: template.provider.clone(), via: template.boot.via.clone() }
    }

    /// Who works on operations of this kind: the lease provider or the bootstrapper.
    pub fn worker(&self, kind: OperationKind) -> &ProviderName {
        match kind {
            OperationKind::CreateLease | OperationKind::LookupEndpoint | OperationKind::DestroyLease => {
                &self.provider
            }
            OperationKind::StartBootstrap
            | OperationKind::BootstrapConvergenceObserved
            | OperationKind::CancelBootstrap => self.via.as_ref().unwrap_or(&self.provider),
        }
    }
}

/// An effect whose record is durable: to be submitted now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectCall {
    /// The slot.
    pub node: LogicalNodeId,
    /// What to do.
    pub command: NodeManagerCommand,
    /// Who serves the node.
    pub route: Route,
    /// On whose behalf, and until when.
    pub context: OperationContext,
}

/// A session to be listened to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The slot.
    pub node: LogicalNodeId,
    /// The attempt.
    pub attempt: NodeAttemptId,
    /// Its session.
    pub session: BootstrapSessionId,
    /// Who serves the node.
    pub route: Route,
}

/// What one pass asks for. Its parts are carried out in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassReport {
    /// Operations to stop, before anything else of their attempt is submitted.
    pub stops: Vec<OperationId>,
    /// Attempts that are over: forget them.
    pub retired: Vec<NodeAttemptId>,
    /// Attempts whose session is no longer listened to.
    pub detach: Vec<NodeAttemptId>,
    /// Sessions to listen to from now on.
    pub attach: Vec<Attachment>,
    /// Effects whose commit was confirmed; submit them now. Those recorded in this pass are not among them.
    pub effects: Vec<EffectCall>,
    /// Leases of attempts that are over, to be ended.
    pub sweeps: Vec<Sweep>,
    /// Slots were reaped: what belonged to them may be freed.
    pub reaped: bool,
    /// What to make durable, then to confirm by [`DriverInput::Committed`].
    pub commit: Option<Changeset>,
    /// What happened since the last pass.
    pub events: Vec<Event>,
    /// When to pass again without an input.
    pub requeue_at: Option<SystemTime>,
}

/// How many events are kept for `explain`.
const HISTORY: usize = 4096;

/// The sans-IO driver.
///
/// Its serialised form is for a [`Checkpoint`] of a tape, and lacks what was given to it: a driver goes on from a
/// [`StateImage`], never from this.
#[derive(Debug, Serialize, Deserialize)]
pub struct ClusterDriver {
    #[serde(skip)]
    rules: Rules,
    #[serde(skip)]
    executors: ExecutorTable,
    state: ClusterState,
    accepted: Accepted,
    policy: RetryPolicy,
    #[serde(skip)]
    group_policies: BTreeMap<GroupId, RetryPolicy>,
    /// Highest time ever given. Time never goes back here.
    now: SystemTime,

    dirty: BTreeSet<LogicalNodeId>,
    index: Index,
    /// Slots whose deadlines were settled in the pass under way.
    settled: BTreeSet<LogicalNodeId>,
    admission: Admission,
    sightings: Sightings,
    sweeps: Sweeps,
    guard: Guard,
    /// When the safety tick is due, and the last slot it looked at.
    next_tick: Option<SystemTime>,
    tick_cursor: Option<LogicalNodeId>,
    shape_pending: bool,

    /// Slots that differ from the stored image.
    changed: BTreeSet<LogicalNodeId>,
    meta: MetaDirty,
    last_seq: u64,
    /// Effects recorded for the next changeset.
    recorded: Vec<EffectCall>,
    /// Effects of changesets that are being committed.
    held: VecDeque<(u64, Vec<EffectCall>)>,
    released: Vec<EffectCall>,
    failed: Option<String>,

    stops: Vec<OperationId>,
    attached: BTreeMap<LogicalNodeId, (NodeAttemptId, BootstrapSessionId)>,
    attach: Vec<Attachment>,
    detach: Vec<NodeAttemptId>,
    retired: Vec<NodeAttemptId>,
    reaped: bool,
    events: Vec<Event>,
    #[serde(skip)]
    history: VecDeque<Event>,
    /// Rises with every event.
    revision: u64,
    counters: Counters,
    #[serde(skip)]
    tape: Option<Vec<TapeEntry>>,
}

/// Which parts of the image beside the slots differ.
#[derive(Debug, Default, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "one mark for each part of the image")]
struct MetaDirty {
    any: bool,
    run: bool,
    holds: bool,
    desired: bool,
    annotations: BTreeMap<String, Option<String>>,
}

impl ClusterDriver {
    /// A driver for a run without any state.
    pub fn new(desired: ClusterShape, policy: RetryPolicy, now: SystemTime) -> Result<Self, DriverError> {
        let accepted = Accepted::try_from(desired).map_err(DesiredRejected::Shape)?;
        let mut driver = Self::over(ClusterState::default(), accepted, policy, now);
        driver.meta = MetaDirty { any: true, run: true, desired: true, ..MetaDirty::default() };
        Ok(driver)
    }

    /// A driver that goes on from stored state. `desired` must be the stored shape or a newer one.
    ///
    /// The driver before this one must be gone, and with it every call it made. Stored deadlines are clamped to what
    /// the policy allows from now on; absences get their whole time again. What was pending is settled by
    /// [`with_executors`](Self::with_executors), which knows how late and how hidden it may be.
    pub fn restore(
        image: StateImage,
        desired: ClusterShape,
        policy: RetryPolicy,
        now: SystemTime,
    ) -> Result<Self, DriverError> {
        if image.run != desired.run_id {
            return Err(DriverError::ForeignState { stored: image.run, given: desired.run_id });
        }
        let accepted = Accepted::try_from(image.desired).map_err(DesiredRejected::Shape)?;
        let mut driver = Self::over(image.state, accepted, policy, now);
        driver.set_desired(desired)?;
        driver.resume();
        Ok(driver)
    }

    fn over(state: ClusterState, accepted: Accepted, policy: RetryPolicy, now: SystemTime) -> Self {
        let mut driver = Self {
            rules: Rules::default(),
            executors: ExecutorTable::default(),
            state,
            accepted,
            group_policies: BTreeMap::new(),
            next_tick: now.checked_add(policy.extra.tick_every),
            policy,
            now,
            dirty: BTreeSet::new(),
            index: Index::default(),
            settled: BTreeSet::new(),
            admission: Admission::default(),
            sightings: Sightings::default(),
            sweeps: Sweeps::default(),
            guard: Guard::default(),
            tick_cursor: None,
            shape_pending: true,
            changed: BTreeSet::new(),
            meta: MetaDirty::default(),
            last_seq: 0,
            recorded: Vec::new(),
            held: VecDeque::new(),
            released: Vec::new(),
            failed: None,
            stops: Vec::new(),
            attached: BTreeMap::new(),
            attach: Vec::new(),
            detach: Vec::new(),
            retired: Vec::new(),
            reaped: false,
            events: Vec::new(),
            history: VecDeque::new(),
            revision: 0,
            counters: Counters::default(),
            tape: None,
        };
        driver.rebuild_group_policies();
        driver.mark_all();
        driver
    }

    /// Replaces the core's own rules. For test crates that plant bugs.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Tells the driver how late and how hidden each executor's effects may be, for operations that it stops
    /// itself, and for those of the driver before this one: they are settled now, and looked up. Absence windows of
    /// restored state are counted anew with it.
    #[must_use]
    pub fn with_executors(mut self, executors: ExecutorTable) -> Self {
        self.executors = executors;
        self.settle_interrupted();
        self.restart_absence_windows();
        self
    }

    /// The observed state.
    pub fn state(&self) -> &ClusterState {
        &self.state
    }

    /// The accepted shape.
    pub fn desired(&self) -> &Arc<ClusterShape> {
        &self.accepted.shape
    }

    /// The accepted shape, expanded.
    pub fn expanded(&self) -> &Arc<Expanded> {
        &self.accepted.expanded
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        &self.accepted.shape.run_id
    }

    /// The timing in force.
    pub fn policy(&self) -> &RetryPolicy {
        &self.policy
    }

    /// The driver's time: the highest it was ever given.
    pub fn now(&self) -> SystemTime {
        self.now
    }

    /// How often things happened.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Rises with everything that happens; equal revisions of one driver are one state.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// How many nodes do their work.
    pub fn ready(&self) -> usize {
        self.index.ready()
    }

    /// The lease providers that hold or are to hold something, or whose word the state still waits for.
    pub fn providers_in_use(&self) -> BTreeSet<ProviderName> {
        let declared = self.accepted.shape.groups.iter().filter(|group| group.count > 0);
        let declared = declared.map(|group| &group.template.provider);
        declared.chain(self.index.providers()).chain(self.guard.waiting()).cloned().collect()
    }

    /// All slots that are declared or still there.
    pub fn slots(&self) -> BTreeSet<LogicalNodeId> {
        self.state.nodes.keys().chain(self.accepted.expanded.specs.keys()).cloned().collect()
    }

    /// Whether everything is as declared, as of the accepted generation. Never of a state that is not trusted
    /// yet: an old copy may say so of nodes that are gone.
    pub fn is_converged(&self) -> bool {
        !self.guard.waits()
            && self.state.observed_generation == self.accepted.shape.generation
            && self.state.nodes.len() == self.accepted.expanded.specs.len()
            && self.index.converged() == self.accepted.expanded.specs.len()
    }

    /// Whether a pass has something to do now.
    pub fn needs_pass(&self) -> bool {
        if self.guard.waits() {
            return self.guard.alarm().is_some() || !self.events.is_empty();
        }
        self.failed.is_none()
            && (!self.dirty.is_empty()
                || self.shape_pending
                || !self.released.is_empty()
                || !self.stops.is_empty()
                || !self.sweeps.wanted.is_empty()
                || (self.has_changes() && self.held.is_empty()))
    }

    /// The changeset with which everything accepted so far becomes durable; `None` if it is already.
    pub fn durable_with(&self) -> Option<u64> {
        if self.has_changes() {
            return self.last_seq.checked_add(1);
        }
        self.held.back().map(|(seq, _)| *seq)
    }

    /// When a pass is due without an input. At or before now means now.
    pub fn next_wakeup(&self) -> Option<SystemTime> {
        if self.guard.waits() {
            return None;
        }
        [self.next_deadline(), self.next_tick].into_iter().flatten().min()
    }

    /// When a stored deadline or retry time is due; the safety tick is not counted.
    pub fn next_deadline(&self) -> Option<SystemTime> {
        if self.failed.is_some() || self.guard.waits() { None } else { self.index.first() }
    }

    /// Sessions to listen to that no pass has reported yet. Taken at start, before the first pass.
    ///
    /// None while the state is not trusted yet, for what they would tell changes it; the first pass reports them
    /// then.
    pub fn take_attachments(&mut self) -> Vec<Attachment> {
        if self.guard.waits() {
            return Vec::new();
        }
        std::mem::take(&mut self.attach)
    }

    /// What happened since the last pass; for a driver that makes no further one.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The latest events of one slot, oldest first.
    pub fn history<'a>(&'a self, slot: &'a LogicalNodeId) -> impl Iterator<Item = &'a Event> {
        self.history.iter().filter(move |event| event.node.as_ref() == Some(slot))
    }

    /// How many operations of this worker run for a slot that is refused a place, if it is.
    pub(crate) fn refused(&self, slot: &LogicalNodeId) -> Option<(ProviderName, u32)> {
        let lane = self.admission.refused(slot)?;
        Some((lane.worker.clone(), self.index.running(lane)))
    }

    /// Time only goes forward here.
    fn advance(&mut self, now: SystemTime) -> SystemTime {
        self.now = self.now.max(now);
        self.now
    }

    fn policy_of(&self, slot: &LogicalNodeId) -> &RetryPolicy {
        let group = self.accepted.expanded.specs.get(slot).map(|spec| &spec.group);
        let own = self.state.nodes.get(slot).map(|node| &node.record.desired.group);
        group.or(own).and_then(|group| self.group_policies.get(group)).unwrap_or(&self.policy)
    }

    /// The allowance of whoever works on operations of this kind for a slot.
    fn visibility_of(&self, slot: &LogicalNodeId, kind: OperationKind) -> Visibility {
        let Some(node) = self.state.nodes.get(slot) else {
            return Visibility::default();
        };
        let route = Route::of(&node.record.desired.template);
        let bootstrap = matches!(
            kind,
            OperationKind::StartBootstrap
                | OperationKind::BootstrapConvergenceObserved
                | OperationKind::CancelBootstrap
        );
        self.executors.visibility(route.worker(kind), bootstrap)
    }

    fn mark(&mut self, slot: &LogicalNodeId) {
        if !self.dirty.contains(slot) {
            self.dirty.insert(slot.clone());
        }
    }

    fn mark_all(&mut self) {
        self.dirty = self.slots();
    }

    fn has_changes(&self) -> bool {
        !self.changed.is_empty() || self.meta.any
    }

    fn note(&mut self, node: Option<(&LogicalNodeId, NodeAttemptId)>, what: Happening) {
        self.revision = self.revision.saturating_add(1);
        let (node, attempt) = node.map(|(node, attempt)| (node.clone(), attempt)).unzip();
        let event = Event { at: self.now, node, attempt, what };
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(event.clone());
        self.events.push(event);
    }

    /// Brings everything derived from a slot up to date after it changed.
    fn refresh(&mut self, slot: &LogicalNodeId, retry_at: Option<SystemTime>) {
        let settled = self.settled.contains(slot).then_some(self.now);
        let freed = self.index.refresh(&self.state, &self.accepted.expanded, slot, retry_at, settled);
        if let Some(lane) = freed {
            self.wake(&lane);
        }
        self.refresh_attachment(slot);
    }

    /// Listening follows the state: to the session of every attempt that is to live and has started one.
    fn refresh_attachment(&mut self, slot: &LogicalNodeId) {
        let wanted = self.state.nodes.get(slot).and_then(index::session_to_hear);
        let current = self.attached.get(slot);
        if wanted == current.map(|(attempt, session)| (*attempt, session)) {
            return;
        }
        let wanted = wanted.map(|(attempt, session)| (attempt, session.clone()));
        if let Some((attempt, _)) = self.attached.remove(slot) {
            self.detach.push(attempt);
            self.attach.retain(|attachment| attachment.attempt != attempt);
        }
        if let (Some((attempt, session)), Some(node)) = (wanted, self.state.nodes.get(slot)) {
            let route = Route::of(&node.record.desired.template);
            self.attached.insert(slot.clone(), (attempt, session.clone()));
            self.attach.push(Attachment { node: slot.clone(), attempt, session, route });
        }
    }
}

/// `at + delay`, or the time itself where the calendar ends.
pub(crate) fn later(at: SystemTime, delay: Duration) -> SystemTime {
    at.checked_add(delay).unwrap_or(at)
}
