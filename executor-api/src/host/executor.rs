//! The traits behind which hosts, storage, virtual machines and the lock stand.
//!
//! Trait docs are promises; each heading has cases in `conformance::hosts`. Reads return plain
//! values: the caller stamps source and time, so that no implementation can be wrong about them.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::host::bond::{BondReading, HostFacts};
use crate::host::error::{HostError, LockError};
use crate::host::identity::{BondName, FenceValue, HostName, LeaseHolder, PlanUid, ResourceName};
use crate::host::lock::{LeaseRecord, LockRecords, PlanHold, RecordVersion};
use crate::host::operation::{HostOperation, HostReport, Settled, VmOperation};
use crate::host::storage::{SatelliteReading, StorageReading};
use crate::host::vm::VmPicture;

/// Changes hosts. One per cluster; it speaks to an agent on each host.
///
/// # Behaviour
/// Every call ends by its deadline. An operation that reaches its agent after that is refused and nothing is done: what
/// was decided so long ago is decided anew. An agent works on one operation at a time. Success is returned only once
/// the operation is over.
///
/// # Dedup
/// An operation is known by plan and id. The same one twice acts once, also across restarts of the agent: the
/// second call waits for the first or returns its outcome. The same id with another content is refused.
///
/// # Fencing
/// An agent remembers the highest fence it has met, durably and before it acts, whichever plan it came from. A
/// lower one is refused as [`StaleFence`](crate::host::HostErrorKind::StaleFence), and nothing is done. The check
/// and the act are one: what was let through is over before a higher fence is let in.
///
/// # Settling
/// `settle` answers what became of an operation whose outcome was lost. Afterwards that operation never acts
/// again. It raises the agent's fence to the one given and changes nothing else.
///
/// # Bounds
/// `suspend-io` ends by itself after its limit. `drain-satellite` touches storage pods and no others. `connect`
/// never discards data. No operation does more than its action says.
#[async_trait]
pub trait HostExecutor: Send + Sync + fmt::Debug {
    /// Carries one operation out, or returns what an earlier call of the same id achieved.
    async fn apply(&self, operation: &HostOperation, deadline: SystemTime) -> Result<HostReport, HostError>;

    /// Makes the outcome of an operation certain, on behalf of the holder with this fence.
    async fn settle(
        &self,
        operation: &HostOperation,
        fence: FenceValue,
        deadline: SystemTime,
    ) -> Result<Settled, HostError>;
}

/// Reads hosts and their bonds.
///
/// # Behaviour
/// Reads come from the host's kernel and configuration at the time of the call, never from a cache and never
/// from what was last asked for. What cannot be read is an error; what is not understood is kept as it was read.
#[async_trait]
pub trait HostProbe: Send + Sync + fmt::Debug {
    /// Whether the host may be worked on.
    async fn host(&self, node: &HostName) -> Result<HostFacts, HostError>;

    /// The bond as the kernel and the host's configuration show it.
    async fn bond(&self, node: &HostName, bond: &BondName) -> Result<BondReading, HostError>;
}

/// Reads replicated storage from one node at a time.
///
/// # Behaviour
/// As for [`HostProbe`]. Status, identifiers and status again are read; differing status is reported as not
/// stable. A counter that is not reported is absent, not zero.
#[async_trait]
pub trait StorageProbe: Send + Sync + fmt::Debug {
    /// What this node says about these resources. `since` is when the plan began: events are remembered from
    /// then on.
    async fn storage(
        &self,
        node: &HostName,
        resources: &BTreeSet<ResourceName>,
        since: SystemTime,
    ) -> Result<StorageReading, HostError>;

    /// The storage pods of this node.
    async fn satellite(&self, node: &HostName) -> Result<SatelliteReading, HostError>;
}

/// Reads and pins virtual machines.
///
/// # Behaviour
/// The picture is read in one piece, from the authoritative records rather than a cache. It holds every machine
/// with a volume on one of the resources and every migration of those, whoever asked for it.
///
/// # Dedup
/// As for [`HostExecutor`].
///
/// # Fencing
/// As for [`HostExecutor`].
///
/// # Settling
/// As for [`HostExecutor`].
///
/// # Exactness
/// `restore` leaves the declared setting exactly as saved, a field that was left out included. No pod is evicted
/// or deleted.
#[async_trait]
pub trait VirtualMachines: Send + Sync + fmt::Debug {
    /// All machines on these resources.
    async fn picture(&self, resources: &BTreeSet<ResourceName>) -> Result<VmPicture, HostError>;

    /// Carries one operation out, or returns what an earlier call of the same id achieved.
    async fn apply(&self, operation: &VmOperation, deadline: SystemTime) -> Result<HostReport, HostError>;

    /// Makes the outcome of an operation certain, on behalf of the holder with this fence.
    async fn settle(
        &self,
        operation: &VmOperation,
        fence: FenceValue,
        deadline: SystemTime,
    ) -> Result<Settled, HostError>;
}

/// The cluster's lock: a lease and a hold.
///
/// # Behaviour
/// Every write is conditional on the version that the caller has seen; nothing is written when it moved. Reads
/// are linearisable. The lock judges no expiry: candidates do, with a [`LeaseWatch`](crate::host::LeaseWatch).
///
/// # Fencing
/// Each acquisition has a higher fence than every earlier one, also by the same holder, and also after the
/// record was deleted and made anew.
///
/// # Hold
/// A hold has no duration. It is placed and lifted by the holder of the lease only. While it names a plan, no
/// hold for another can be placed.
#[async_trait]
pub trait ClusterLock: Send + Sync + fmt::Debug {
    /// Both records.
    async fn read(&self) -> Result<LockRecords, LockError>;

    /// Takes the lease if its record still has the version `seen` (`None`: if there is none).
    async fn acquire(
        &self,
        holder: &LeaseHolder,
        ttl: Duration,
        seen: Option<&RecordVersion>,
    ) -> Result<LeaseRecord, LockError>;

    /// Renews the lease, or fails. The fence stays.
    async fn renew(&self, lease: &LeaseRecord) -> Result<LeaseRecord, LockError>;

    /// Gives the lease up. The hold stays as it is.
    async fn release(&self, lease: &LeaseRecord) -> Result<(), LockError>;

    /// Places the hold, or finds that it stands for this plan already. Needs the lease, renews nothing.
    async fn place_hold(&self, lease: &LeaseRecord, hold: &PlanHold) -> Result<(), LockError>;

    /// Lifts this plan's hold, or finds that there is none. Needs the lease.
    async fn lift_hold(&self, lease: &LeaseRecord, plan: &PlanUid) -> Result<(), LockError>;
}
