//! The one next step of a plan, with its reason. A wait is a step too.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use executor_api::host::{
    BondOriginal, BondReading, FenceValue, GateToken, HostAction, HostName, HostOperation, HostOperationId,
    InterfaceName, LeaseRecord, RecordVersion, ResourceName, VmName, VmOperation, VmOriginal,
};
use serde::{Deserialize, Serialize};

use crate::maintenance::escalation::{Answer, Escalation, Reply};
use crate::maintenance::state::{AgentName, Person, Phase, PreConnect, RollbackStage};
use crate::maintenance::verdict::{Finding, Proof};

/// What is done to the lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockAction {
    /// Take the lease, if its record still has this version.
    AcquireLease {
        /// The version that was watched; `None` where there is no lease.
        seen: Option<RecordVersion>,
    },
    /// Place the plan's hold.
    PlaceHold,
    /// Lift the plan's hold.
    LiftHold,
    /// Give the lease up.
    ReleaseLease,
}

/// What is sent. The driver renews the lease right before each one but lock actions, and sends nothing when that
/// fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// To a host.
    Host(HostOperation),
    /// To a virtual machine.
    Vm(VmOperation),
    /// Make the outcome of an earlier operation certain.
    Settle {
        /// The identity of this call.
        id: HostOperationId,
        /// The operation in question.
        operation: Box<Self>,
        /// The fence to settle under.
        fence: FenceValue,
    },
    /// To the lock.
    Lock {
        /// The identity of this call.
        id: HostOperationId,
        /// What to do.
        action: LockAction,
    },
}

impl Effect {
    /// Its identity.
    pub fn id(&self) -> HostOperationId {
        match self {
            Self::Host(operation) => operation.id,
            Self::Vm(operation) => operation.id,
            Self::Settle { id, .. } | Self::Lock { id, .. } => *id,
        }
    }

    /// Who carries it out, or settles it. The lock is nobody's.
    pub fn agent(&self) -> Option<AgentName> {
        match self {
            Self::Host(operation) => Some(AgentName::Host(operation.node.clone())),
            Self::Vm(_) => Some(AgentName::Machines),
            Self::Settle { operation, .. } => operation.agent(),
            Self::Lock { .. } => None,
        }
    }

    /// Whether it settles an operation that was never sent, only so that the agent meets the fence.
    pub fn raises_fence(&self) -> bool {
        matches!(self, Self::Settle { id, operation, .. } if operation.id() == *id)
    }

    /// Whether both would do the same, identities and fences aside.
    pub fn same_deed(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Host(one), Self::Host(two)) => one.node == two.node && same_host_action(one, two),
            (Self::Vm(one), Self::Vm(two)) => one.vm == two.vm && one.action == two.action,
            (Self::Lock { action: one, .. }, Self::Lock { action: two, .. }) => one == two,
            (Self::Settle { operation: one, .. }, Self::Settle { operation: two, .. }) => one.same_deed(two),
            (Self::Host(_) | Self::Vm(_) | Self::Settle { .. } | Self::Lock { .. }, _) => false,
        }
    }
}

/// Gates differ from round to round and are no part of the deed; the words leave them out. Neither is what is left of
/// the time for which I/O may stand still.
fn same_host_action(one: &HostOperation, two: &HostOperation) -> bool {
    match (&one.action, &two.action) {
        (HostAction::SuspendIo { resource: one, .. }, HostAction::SuspendIo { resource: two, .. }) => {
            one == two
        }
        (one, two) => one.to_string() == two.to_string(),
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(operation) => write!(f, "{}: {}", operation.node, operation.action),
            Self::Vm(operation) => write!(f, "{}: {}", operation.vm, operation.action),
            Self::Settle { operation, .. } if self.raises_fence() => match operation.agent() {
                Some(agent) => write!(f, "fence off {agent}"),
                None => f.write_str("fence off nobody"),
            },
            Self::Settle { operation, .. } => write!(f, "settle {}", operation.id()),
            Self::Lock { action: LockAction::AcquireLease { .. }, .. } => f.write_str("acquire lease"),
            Self::Lock { action: LockAction::PlaceHold, .. } => f.write_str("place hold"),
            Self::Lock { action: LockAction::LiftHold, .. } => f.write_str("lift hold"),
            Self::Lock { action: LockAction::ReleaseLease, .. } => f.write_str("release lease"),
        }
    }
}

/// By host and member, how often a link has failed, as its bond counts.
pub type LinkFailures = BTreeMap<HostName, BTreeMap<InterfaceName, Option<u32>>>;

/// A change of the plan's own record that touches nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Move {
    /// The next phase of the forward path.
    Enter {
        /// Which one.
        phase: Phase,
        /// The gate that let it through, where one is kept.
        proof: Option<Proof>,
    },
    /// The lock's record shows the lease as ours.
    AdoptLease(LeaseRecord),
    /// The lock's record shows the hold in place.
    NoteHold,
    /// The lock's record shows no hold of ours any more.
    NoteHoldLifted,
    /// No I/O that this plan stopped stands still any more.
    NoteIoResumed,
    /// The second sync gate before the end.
    KeepReleaseProof(Proof),
    /// The lock's record shows no lease of ours any more.
    NoteLeaseReleased,
    /// The targets and their bonds, before anything was changed.
    SaveTargets {
        /// The hosts, in order.
        targets: [HostName; 2],
        /// Their bonds, to return to.
        originals: BTreeMap<HostName, BondOriginal>,
        /// Their bonds, as read.
        readings: BTreeMap<HostName, BondReading>,
    },
    /// What machines have before they are pinned. Entries that exist stay.
    SaveVms(BTreeMap<VmName, VmOriginal>),
    /// Where the machines run, now that nothing moves them any more.
    SavePlacements(BTreeMap<VmName, Option<(HostName, String)>>),
    /// A bond was read back and is right.
    VerifyBond {
        /// The host.
        node: HostName,
        /// The reading.
        reading: BondReading,
    },
    /// The resume gates passed.
    StampGates {
        /// The stamp.
        token: GateToken,
        /// What is known of each resource that is to be reconnected.
        pre_connect: BTreeMap<ResourceName, PreConnect>,
    },
    /// Let things settle.
    Dwell {
        /// Until then.
        until: SystemTime,
        /// How often each link has failed so far. One that fails no more meanwhile has settled.
        #[serde(default)]
        links: LinkFailures,
    },
    /// Try the phase again.
    Retry,
    /// Go back.
    RollBack(RollbackStage),
    /// Another round of reconnecting, after a pause.
    ReconnectLater {
        /// Not before then.
        at: SystemTime,
    },
    /// Back where it began, proved.
    RevertedSafe,
    /// A person replied.
    TakeReply {
        /// The reply.
        reply: Reply,
        /// By whom and when.
        by: Person,
    },
}

/// Why a plan stops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HaltReason {
    /// A gate said no.
    Gate {
        /// Which gate.
        gate: String,
        /// Why.
        findings: Vec<Finding>,
    },
    /// The lease is not ours any more.
    LeaseLost(String),
    /// An operation failed.
    OperationFailed {
        /// What was to be done.
        deed: String,
        /// How it failed.
        message: String,
    },
    /// An operation was reported as done and its effect is not there.
    NotSeen {
        /// What was to be done.
        deed: String,
        /// What is there.
        observed: String,
    },
    /// I/O was suspended for longer than allowed.
    SuspensionExceeded,
    /// A resource is not connected by its deadline.
    NotConnected(String),
    /// An operator asked for the way back.
    Aborted {
        /// Who.
        who: String,
    },
    /// The plan is not to be carried out as it is written.
    Refused(String),
    /// What became of an operation could not be found out.
    OutcomeUnknown {
        /// What was to be done.
        deed: String,
    },
    /// A person replied to an escalation.
    Replied(Answer),
    /// Neither direction can be proved safe.
    NothingProvable(Vec<Finding>),
    /// A person has to look first.
    World(Vec<Finding>),
}

impl fmt::Display for HaltReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gate { gate, findings } => write!(f, "{gate}: {}", join(findings)),
            Self::LeaseLost(reason) => write!(f, "lease lost: {reason}"),
            Self::OperationFailed { deed, message } => write!(f, "{deed}: failed: {message}"),
            Self::NotSeen { deed, observed } => write!(f, "{deed}: reported done, but {observed}"),
            Self::SuspensionExceeded => f.write_str("I/O was suspended for longer than allowed"),
            Self::NotConnected(what) => write!(f, "not connected in time: {what}"),
            Self::Aborted { who } => write!(f, "{who} asked for the way back"),
            Self::Refused(what) => write!(f, "plan refused: {what}"),
            Self::OutcomeUnknown { deed } => write!(f, "{deed}: what became of it cannot be found out"),
            Self::Replied(answer) => write!(f, "a person replied {answer}"),
            Self::NothingProvable(findings) => {
                write!(f, "neither forward nor back can be proved safe: {}", join(findings))
            }
            Self::World(findings) => f.write_str(&join(findings)),
        }
    }
}

fn join(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Nothing now.
    Wait {
        /// When to look again at the latest, where that is known.
        until: Option<SystemTime>,
    },
    /// Change the record.
    Move(Move),
    /// Record, then send.
    Dispatch(Effect),
    /// Stop.
    Halt(HaltReason),
    /// Freeze, and ask a person.
    Escalate(Escalation),
    /// Over: nothing will be done any more.
    Over,
}

/// Why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// In these words.
    Plain(String),
    /// A gate passed.
    Proved(Proof),
    /// A gate said no, or evidence is missing.
    Unproved {
        /// Which gate.
        gate: String,
        /// Why not.
        findings: Vec<Finding>,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(words) => f.write_str(words),
            Self::Proved(proof) => write!(f, "{} passed", proof.gate),
            Self::Unproved { gate, findings } => write!(f, "{gate}: {}", join(findings)),
        }
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What to do.
    pub act: Act,
    /// Why.
    pub why: Why,
}

impl Step {
    pub(crate) fn wait(until: Option<SystemTime>, why: impl Into<String>) -> Self {
        Self { act: Act::Wait { until }, why: Why::Plain(why.into()) }
    }

    pub(crate) fn go(step: Move, why: impl Into<String>) -> Self {
        Self { act: Act::Move(step), why: Why::Plain(why.into()) }
    }

    pub(crate) fn proved(step: Move, proof: Proof) -> Self {
        Self { act: Act::Move(step), why: Why::Proved(proof) }
    }

    pub(crate) fn send(effect: Effect, why: impl Into<String>) -> Self {
        Self { act: Act::Dispatch(effect), why: Why::Plain(why.into()) }
    }

    pub(crate) fn halt(reason: HaltReason) -> Self {
        let why = Why::Plain(reason.to_string());
        Self { act: Act::Halt(reason), why }
    }
}

/// `act: why`, as a story or a log prints it. Times are left to whoever knows the clock.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.act {
            Act::Wait { .. } => f.write_str("wait")?,
            Act::Move(step) => step.fmt(f)?,
            Act::Dispatch(effect) => write!(f, "send {effect}")?,
            Act::Halt(_) => f.write_str("halt")?,
            Act::Escalate(escalation) => write!(f, "escalate #{}", escalation.sequence)?,
            Act::Over => f.write_str("over")?,
        }
        write!(f, " ({})", self.why)
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enter { phase, .. } => write!(f, "enter {phase}"),
            Self::AdoptLease(lease) => write!(f, "adopt lease, {}", lease.fence),
            Self::NoteHold => f.write_str("note hold"),
            Self::NoteHoldLifted => f.write_str("note hold lifted"),
            Self::NoteIoResumed => f.write_str("note I/O resumed"),
            Self::KeepReleaseProof(_) => f.write_str("keep the second proof"),
            Self::NoteLeaseReleased => f.write_str("note lease released"),
            Self::SaveTargets { .. } => f.write_str("save targets"),
            Self::SaveVms(vms) => {
                let names: Vec<_> = vms.iter().map(|(name, vm)| format!("{name} {}", vm.declared)).collect();
                write!(f, "save {}", names.join(", "))
            }
            Self::SavePlacements(_) => f.write_str("save placements"),
            Self::VerifyBond { node, reading } => write!(f, "verify bond of {node}: {}", reading.mode),
            Self::StampGates { .. } => f.write_str("stamp gates"),
            Self::Dwell { .. } => f.write_str("dwell"),
            Self::Retry => f.write_str("retry"),
            Self::RollBack(RollbackStage::Revert) => f.write_str("roll back"),
            Self::RollBack(RollbackStage::Reconnect) => f.write_str("roll back: reconnect"),
            Self::RollBack(RollbackStage::Restore) => f.write_str("roll back: restore"),
            Self::RollBack(RollbackStage::Release) => f.write_str("roll back: release"),
            Self::ReconnectLater { .. } => f.write_str("reconnect later"),
            Self::RevertedSafe => f.write_str("reverted safe"),
            Self::TakeReply { reply, by } => write!(f, "take reply {} of {}", reply.answer, by.who),
        }
    }
}
