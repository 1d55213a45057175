//! What may be done to a host or a virtual machine, and what came of it. Every operation carries its identity,
//! its plan and its fence, so that it acts at most once and never on behalf of a former holder of the lock.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::host::bond::{BondMode, BondOriginal, LinkProbe, LinkProbeSpec};
use crate::host::identity::{
    BondName, FenceValue, Fingerprint, HostName, HostOperationId, MigrationName, PlanUid, ResourceName,
    VmName,
};
use crate::host::vm::EvictionSetting;

/// The stamp of passed resume gates. Names what it vouches for; void once any of it changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateToken {
    /// The plan whose gates passed.
    pub plan: PlanUid,
    /// The lease under which they passed.
    pub fence: FenceValue,
    /// When they passed.
    pub resume_gates_passed_at: SystemTime,
    /// The sync evidence of both nodes.
    pub evidence: Fingerprint,
    /// Both bonds as they were read back.
    pub bonds: Fingerprint,
}

/// What is to be done to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostAction {
    /// Stops I/O on a resource. Ends by itself after `limit`, counted by the agent on its own clock, whatever
    /// becomes of the controller.
    SuspendIo {
        /// The resource.
        resource: ResourceName,
        /// At most this long.
        limit: Duration,
    },
    /// Lets I/O on a resource go on.
    ResumeIo {
        /// The resource.
        resource: ResourceName,
    },
    /// Takes this node's side of a resource's replication down, so that it does not reconnect by itself.
    DisconnectResource {
        /// The resource.
        resource: ResourceName,
        /// The other node.
        peer: HostName,
    },
    /// Brings this node's side of a resource's replication up. Never discards data.
    ConnectResource {
        /// The resource.
        resource: ResourceName,
        /// The other node.
        peer: HostName,
        /// The gates that allow it.
        gates: GateToken,
    },
    /// Moves storage pods off the node and keeps them away. Touches no other pod.
    DrainSatellite,
    /// Lets storage pods come back. They may reconnect replication, therefore the gates.
    UndrainSatellite {
        /// The gates that allow it.
        gates: GateToken,
    },
    /// Brings a bond into a mode: down, members out, mode, members in, up, addresses and routes as in
    /// `original`; the host's configuration is written first, so that a reboot comes up in the new mode.
    SetBondMode {
        /// The bond.
        bond: BondName,
        /// The mode to reach.
        mode: BondMode,
        /// What the bond was before the plan: members, addresses and routes to put back.
        original: BondOriginal,
    },
    /// Sends packets to a peer over the bond and counts what arrives. Changes nothing.
    ProbeLink {
        /// The bond.
        bond: BondName,
        /// The other node.
        peer: HostName,
        /// How many, how large.
        spec: LinkProbeSpec,
    },
}

impl HostAction {
    /// Whether the host, its storage or its pods are changed.
    pub fn mutates(&self) -> bool {
        match self {
            Self::ProbeLink { .. } => false,
            Self::SuspendIo { .. }
            | Self::ResumeIo { .. }
            | Self::DisconnectResource { .. }
            | Self::ConnectResource { .. }
            | Self::DrainSatellite
            | Self::UndrainSatellite { .. }
            | Self::SetBondMode { .. } => true,
        }
    }

    /// The gates that the action carries, if it needs any.
    pub fn gates(&self) -> Option<&GateToken> {
        match self {
            Self::ConnectResource { gates, .. } | Self::UndrainSatellite { gates } => Some(gates),
            Self::SuspendIo { .. }
            | Self::ResumeIo { .. }
            | Self::DisconnectResource { .. }
            | Self::DrainSatellite
            | Self::SetBondMode { .. }
            | Self::ProbeLink { .. } => None,
        }
    }
}

impl fmt::Display for HostAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SuspendIo { resource, limit } => write!(f, "suspend-io {resource} for {limit:?}"),
            Self::ResumeIo { resource } => write!(f, "resume-io {resource}"),
            Self::DisconnectResource { resource, peer } => write!(f, "disconnect {resource} from {peer}"),
            Self::ConnectResource { resource, peer, .. } => write!(f, "connect {resource} to {peer}"),
            Self::DrainSatellite => f.write_str("drain-satellite"),
            Self::UndrainSatellite { .. } => f.write_str("undrain-satellite"),
            Self::SetBondMode { bond, mode, .. } => write!(f, "set {bond} to {mode}"),
            Self::ProbeLink { bond, peer, spec } => {
                write!(f, "probe {bond} to {peer} with {} packets", spec.packets)
            }
        }
    }
}

/// One operation on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostOperation {
    /// Its identity within the plan.
    pub id: HostOperationId,
    /// The plan.
    pub plan: PlanUid,
    /// The host.
    pub node: HostName,
    /// The lease on whose behalf it acts.
    pub fence: FenceValue,
    /// What is to be done.
    pub action: HostAction,
}

/// What is to be done to a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VmAction {
    /// Declares `None`, makes it effective on the running instance, and raises the shield.
    Pin,
    /// Declares what was saved (leaves the field out if it was left out), makes it effective on the running
    /// instance, and lowers the shield.
    Restore {
        /// What was saved.
        original: EvictionSetting,
    },
    /// Asks for the end of a migration. Success means that the request was taken, not that the migration is
    /// over.
    AbortMigration {
        /// Which one.
        migration: MigrationName,
    },
}

impl fmt::Display for VmAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pin => f.write_str("pin"),
            Self::Restore { original } => write!(f, "restore {original}"),
            Self::AbortMigration { migration } => write!(f, "abort migration {migration}"),
        }
    }
}

/// One operation on one virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmOperation {
    /// Its identity within the plan.
    pub id: HostOperationId,
    /// The plan.
    pub plan: PlanUid,
    /// The machine.
    pub vm: VmName,
    /// The lease on whose behalf it acts.
    pub fence: FenceValue,
    /// What is to be done.
    pub action: VmAction,
}

/// On what an operation acts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationTarget {
    /// A host.
    Host(HostName),
    /// A virtual machine.
    Vm(VmName),
}

/// What an agent says after an operation. The controller reads the world itself and believes that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostReport {
    /// The operation was carried out, by this call or by an earlier one of the same id.
    Done,
    /// What a probe found.
    Probed(LinkProbe),
}

/// What is certain about an operation whose outcome was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    /// It was carried out and is over.
    Done(HostReport),
    /// It ended with this failure and is over.
    Failed(String),
    /// It was never begun, and is refused from now on.
    NeverBegun,
}
