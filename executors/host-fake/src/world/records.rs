//! What the world tells about itself: events, breaches, and writes that are gone. Data only.

use std::fmt;
use std::time::SystemTime;

use executor_api::host::{FenceValue, HostName, HostOperationId, PlanUid, ResourceName, VmName};

/// Something that really happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldEvent {
    /// When.
    pub at: SystemTime,
    /// To what.
    pub place: Place,
    /// What, in words.
    pub what: String,
}

/// What an event or a breach is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A host.
    Host(HostName),
    /// A resource.
    Resource(ResourceName),
    /// A machine.
    Vm(VmName),
    /// The lock.
    Lock,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => name.fmt(f),
            Self::Resource(name) => name.fmt(f),
            Self::Vm(name) => name.fmt(f),
            Self::Lock => f.write_str("the lock"),
        }
    }
}

/// Something that must never happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// When.
    pub at: SystemTime,
    /// Which rule was broken.
    pub kind: BreachKind,
    /// Where.
    pub place: Place,
    /// The particulars.
    pub what: String,
    /// The world brought it about by itself, or changed after the caller's last look: no caller could have known.
    pub excused: bool,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}: {}", self.place, self.kind, self.what)
    }
}

/// Which rule was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BreachKind {
    /// A bond was begun while another host's was in transition or not whole. (I1)
    TwoBondsInTransition,
    /// Two operations that change something were under way at once, anywhere in the cluster. (I1)
    OperationsOverlap,
    /// A bond was begun while a resource on its host was connected, or would connect by itself.
    FlippedWhileConnected,
    /// A bond was begun while a storage pod was on its host, or might come.
    FlippedUndrained,
    /// Replication was allowed over a link that loses packets. (I2)
    ReconnectOverMarginalLink,
    /// Replication was allowed with gates of another plan or lease. (I2)
    ReconnectWithoutGates,
    /// Replication was allowed, or came about through it, between copies that have diverged. (I6)
    ReconnectDiverged,
    /// Replication was allowed between copies that differ and would not be made equal. (I6)
    ReconnectUnproved,
    /// A host was changed while a machine on its resources was not pinned, or was being moved. (I3)
    UnpinnedDuringHostChange,
    /// A machine's setting was given back while its copies were not all whole and connected. (I5)
    RestoredTooEarly,
    /// A pinned machine's pod was evicted, its shield being down: never a caller's doing, always worth knowing. (I3)
    PinnedVmEvicted,
    /// A machine came to run on a copy that lacks acknowledged writes. (I6)
    VmOnUnverifiedCopy,
    /// The last copy that held an acknowledged write was overwritten. (M0)
    DataDestroyed,
    /// Something was changed under a fence that no lease ever had. (I4)
    FenceNeverGranted,
    /// Something was changed for a former holder after a later one had changed something. (I4)
    HoldersInterleave,
    /// Something was changed while the cluster was not held for that plan. (I4)
    WithoutHold,
    /// The lease was taken from a holder whose last renewal still counted. (I4)
    TakenWhileAlive,
}

/// An acknowledged write that is not where it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MissingWrite {
    /// The resource.
    pub resource: ResourceName,
    /// The volume.
    pub volume: u16,
    /// The block.
    pub block: u32,
    /// The number of the write.
    pub write: u64,
}

/// An operation that reached an agent and was let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// When it began.
    pub at: SystemTime,
    /// Whose.
    pub plan: PlanUid,
    /// Its identity.
    pub id: HostOperationId,
    /// Under which fence.
    pub fence: FenceValue,
    /// On what.
    pub place: Place,
    /// What, in words.
    pub what: String,
    /// Whether it changes anything.
    pub mutates: bool,
}
