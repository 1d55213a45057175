//! How far a plan is, and what was saved on the way. Plain data, durable as a whole; changed only by
//! [`apply`](crate::maintenance::apply()) and [`fold`](crate::maintenance::fold()).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::SystemTime;

use executor_api::host::{
    BondOriginal, BondReading, GateToken, HostFailure, HostName, HostOperationId, LeaseRecord, LinkProbe,
    PlanUid, ResourceName, VmName, VmOriginal,
};
use serde::{Deserialize, Serialize};

use crate::maintenance::escalation::{Answer, Escalation};
use crate::maintenance::step::{Effect, HaltReason, LinkFailures};
use crate::maintenance::verdict::Proof;

/// The forward path. A plan in recovery keeps the phase in which it stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Filed; not approved or not begun.
    Idle,
    /// Nothing is touched until the cluster can hold what is to come.
    PreconditionsCheck,
    /// Lease and hold are taken, the targets recorded.
    AcquireLock,
    /// Machines are pinned, migrations ended.
    SuspendMigration,
    /// Replication is taken apart.
    #[serde(rename = "DisconnectDRBD")]
    DisconnectDrbd,
    /// Storage pods leave both hosts.
    DrainSatellite,
    /// The first bond.
    FlipNode1,
    /// The second bond.
    FlipNode2,
    /// Replication is brought together, through the gates.
    #[serde(rename = "ResumeDRBD")]
    ResumeDrbd,
    /// Machines get back what they had.
    RestoreMigration,
    /// Hold and lease are given up.
    ReleaseLock,
    /// Done.
    Complete,
}

impl Phase {
    /// The name used everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::PreconditionsCheck => "PreconditionsCheck",
            Self::AcquireLock => "AcquireLock",
            Self::SuspendMigration => "SuspendMigration",
            Self::DisconnectDrbd => "DisconnectDRBD",
            Self::DrainSatellite => "DrainSatellite",
            Self::FlipNode1 => "FlipNode1",
            Self::FlipNode2 => "FlipNode2",
            Self::ResumeDrbd => "ResumeDRBD",
            Self::RestoreMigration => "RestoreMigration",
            Self::ReleaseLock => "ReleaseLock",
            Self::Complete => "Complete",
        }
    }

    /// All of them, in order.
    pub const ALL: [Self; 12] = [
        Self::Idle,
        Self::PreconditionsCheck,
        Self::AcquireLock,
        Self::SuspendMigration,
        Self::DisconnectDrbd,
        Self::DrainSatellite,
        Self::FlipNode1,
        Self::FlipNode2,
        Self::ResumeDrbd,
        Self::RestoreMigration,
        Self::ReleaseLock,
        Self::Complete,
    ];
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How far a rollback is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RollbackStage {
    /// Bonds return to the mode they had.
    Revert,
    /// Replication is brought together, through the same gates.
    Reconnect,
    /// Machines get back what they had.
    Restore,
    /// Hold and lease are given up.
    Release,
}

/// Whether the plan runs or recovers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recovery {
    /// On the forward path, and never off it.
    Forward,
    /// Stopped; nothing is touched.
    Halted(HaltReason),
    /// Stopped; things are left to settle.
    Dwell {
        /// Until then.
        until: SystemTime,
        /// Why it stopped.
        reason: HaltReason,
    },
    /// The phase is tried again.
    Retry,
    /// A retry succeeded; on the forward path again.
    Resumed,
    /// On the way back.
    Rollback(RollbackStage),
    /// Back where it began, proved. The end.
    RevertedSafe,
    /// Frozen until a person replies.
    Escalated,
}

impl Recovery {
    /// The name used everywhere; empty on the forward path.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Forward => "",
            Self::Halted(_) => "Halted",
            Self::Dwell { .. } => "Dwell",
            Self::Retry => "Retry",
            Self::Resumed => "Resumed",
            Self::Rollback(_) => "Rollback",
            Self::RevertedSafe => "RevertedSafe",
            Self::Escalated => "Escalated",
        }
    }
}

/// A person and a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// Who.
    pub who: String,
    /// When.
    pub at: SystemTime,
}

/// Who carries operations out and refuses an older fence than it has met.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentName {
    /// The agent on a host.
    Host(HostName),
    /// The one that pins and restores machines.
    Machines,
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(node) => write!(f, "the agent on {node}"),
            Self::Machines => f.write_str("the agent of the machines"),
        }
    }
}

/// The operation that was recorded and has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingOperation {
    /// What was sent.
    pub effect: Effect,
    /// When it is given up.
    pub deadline: SystemTime,
}

/// An operation that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedOperation {
    /// What was sent.
    pub effect: Effect,
    /// When its end was folded.
    pub at: SystemTime,
    /// How it failed, if it failed. A success says nothing about the world.
    pub failure: Option<HostFailure>,
}

/// What was known of a resource right before it was reconnected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreConnect {
    /// Which verdict allowed it.
    pub proof: Proof,
    /// What both sides together knew to be out of sync, in KiB.
    pub out_of_sync_kib: u64,
    /// By volume, how many resyncs each host had seen end.
    pub resyncs_finished: BTreeMap<HostName, BTreeMap<u16, u64>>,
}

/// A reply that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The escalation it answered.
    pub sequence: u64,
    /// The answer.
    pub answer: Answer,
    /// By whom and when.
    pub by: Person,
}

/// Everything about one plan that must survive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own; together they are no state machine"
)]
pub struct PlanState {
    /// The plan.
    pub plan: PlanUid,
    /// When the state was created. Storage events count from then on.
    pub created_at: SystemTime,
    /// Who let it run, on the command line. Needed besides the plan's own approval.
    pub approval: Option<Person>,
    /// The phase; in recovery the one in which it stopped.
    pub phase: Phase,
    /// Whether it runs or recovers.
    pub recovery: Recovery,
    /// The lease under which it was last driven.
    pub lease: Option<LeaseRecord>,
    /// The lease was lost, or an agent refused its fence: why.
    pub lease_lost: Option<String>,
    /// The agents that have met the fence of the lease in hand, and refuse whoever held it before.
    #[serde(default)]
    pub fenced: BTreeSet<AgentName>,
    /// The hold was seen in place.
    pub hold_placed: bool,
    /// The hold was lifted.
    pub hold_lifted: bool,
    /// The two hosts, as recorded under the lock. Never changes afterwards.
    pub targets: Option<[HostName; 2]>,
    /// Bonds before the first change.
    pub bond_originals: BTreeMap<HostName, BondOriginal>,
    /// Bonds as they were last read back and found right.
    pub verified_bonds: BTreeMap<HostName, BondReading>,
    /// How often each link had failed when the dwell began.
    #[serde(default)]
    pub link_failures: LinkFailures,
    /// Hosts whose bond was sent a change.
    pub touched_bonds: BTreeSet<HostName>,
    /// Machines before the first change. An entry is never overwritten.
    pub vm_originals: BTreeMap<VmName, VmOriginal>,
    /// Where the machines run was recorded.
    pub placed: bool,
    /// Resources that were sent a disconnect on either side, or that the plan found apart and took over as such:
    /// somebody else may have left one standing alone.
    pub disconnected: BTreeSet<ResourceName>,
    /// Of those, the ones that were sent a connect since.
    pub reconnected: BTreeSet<ResourceName>,
    /// Hosts that were sent a drain and no undrain since.
    pub drained: BTreeSet<HostName>,
    /// I/O was suspended, at most until then.
    pub io_suspended_until: Option<SystemTime>,
    /// Probes of this round, in the order they were made.
    pub probes: Vec<LinkProbe>,
    /// When the first of them ended. `None`, with probes there, is too long ago.
    #[serde(default)]
    pub probed_at: Option<SystemTime>,
    /// The stamp of the resume gates, while it holds.
    pub token: Option<GateToken>,
    /// What was known of each resource before it was reconnected.
    pub pre_connect: BTreeMap<ResourceName, PreConnect>,
    /// By when everything that was sent a connect must be connected.
    pub connect_deadline: Option<SystemTime>,
    /// Rounds of reconnecting in a rollback, the first included.
    pub connect_rounds: u32,
    /// Nothing is sent before then.
    pub not_before: Option<SystemTime>,
    /// The sync gate before the machines were let go.
    pub restore_proof: Option<Proof>,
    /// The sync gate before the lock was let go.
    pub release_proof: Option<Proof>,
    /// Retries taken, over the whole life of the plan.
    pub retries: u32,
    /// Retries that a person added.
    pub retries_granted: u32,
    /// The next operation's number.
    pub next_operation: u64,
    /// The one operation under way.
    pub pending: Option<PendingOperation>,
    /// An operation whose outcome was lost. Nothing else is sent until it is settled.
    pub unsettled: Option<Effect>,
    /// When that one was recorded, at the latest: it did nothing before.
    #[serde(default)]
    pub unsettled_from: Option<SystemTime>,
    /// How often an outcome had to be settled in this try of this phase.
    pub settles: u32,
    /// The operations that ended in this try of this phase. None of them is sent again in the same try.
    pub ended: Vec<EndedOperation>,
    /// Evidence must be at least this new: nothing read before the last change counts.
    pub fresh_from: SystemTime,
    /// By when the last operation's effect must be seen.
    pub settle_until: SystemTime,
    /// Escalations so far.
    pub escalations: u64,
    /// The open question to a person.
    pub escalation: Option<Escalation>,
    /// Replies that were taken.
    pub replies: Vec<Recorded>,
    /// Somebody asked for the way back.
    pub abort: Option<Person>,
    /// On the way back, whatever halts it: no phase is tried again.
    #[serde(default)]
    pub going_back: bool,
    /// A person took the cluster over: only the lock is left to give up.
    pub handed_over: bool,
}

impl PlanState {
    /// A plan that was just filed.
    pub fn new(plan: PlanUid, approval: Option<Person>, now: SystemTime) -> Self {
        Self {
            plan,
            created_at: now,
            approval,
            phase: Phase::Idle,
            recovery: Recovery::Forward,
            lease: None,
            lease_lost: None,
            fenced: BTreeSet::new(),
            hold_placed: false,
            hold_lifted: false,
            targets: None,
            bond_originals: BTreeMap::new(),
            verified_bonds: BTreeMap::new(),
            link_failures: BTreeMap::new(),
            touched_bonds: BTreeSet::new(),
            vm_originals: BTreeMap::new(),
            placed: false,
            disconnected: BTreeSet::new(),
            reconnected: BTreeSet::new(),
            drained: BTreeSet::new(),
            io_suspended_until: None,
            probes: Vec::new(),
            probed_at: None,
            token: None,
            pre_connect: BTreeMap::new(),
            connect_deadline: None,
            connect_rounds: 0,
            not_before: None,
            restore_proof: None,
            release_proof: None,
            retries: 0,
            retries_granted: 0,
            next_operation: 1,
            pending: None,
            unsettled: None,
            unsettled_from: None,
            settles: 0,
            ended: Vec::new(),
            fresh_from: now,
            settle_until: now,
            escalations: 0,
            escalation: None,
            replies: Vec::new(),
            abort: None,
            going_back: false,
            handed_over: false,
        }
    }

    /// The identity of the next operation.
    pub fn next_id(&self) -> HostOperationId {
        HostOperationId(self.next_operation)
    }

    /// Phase and recovery in one word or two, as status shows them.
    pub fn label(&self) -> String {
        match self.recovery.as_str() {
            "" => self.phase.to_string(),
            recovery => format!("{recovery} in {}", self.phase),
        }
    }

    /// Whether the lease is to be kept alive: always while it is ours, except under an open question, when nothing
    /// is written at all.
    pub fn keeps_lease(&self) -> bool {
        self.lease.is_some() && (self.recovery != Recovery::Escalated || self.handed_over) && !self.is_over()
    }

    /// Nothing will be done any more.
    pub fn is_over(&self) -> bool {
        match self.recovery {
            Recovery::RevertedSafe => true,
            Recovery::Escalated => self.handed_over && self.hold_lifted && self.lease.is_none(),
            Recovery::Forward
            | Recovery::Halted(_)
            | Recovery::Dwell { .. }
            | Recovery::Retry
            | Recovery::Resumed
            | Recovery::Rollback(_) => self.phase == Phase::Complete,
        }
    }
}
