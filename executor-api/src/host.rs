//! The vocabulary of gated maintenance on hosts that already exist, and the traits behind which they stand.
//!
//! ```text
//!   identity ──► operation (what may be done, by id and fence) ──► HostExecutor / VirtualMachines
//!      │
//!      └──► evidence ◄── bond, storage + generation, vm, lock ◄── HostProbe / StorageProbe / …
//! ```
//!
//! Read in this order: [`identity`] (who is meant), [`evidence`] (what a reading is), [`bond`], [`storage`],
//! [`generation`] and [`vm`] (what is read), [`lock`] (who may act), [`operation`] (what may be done), [`error`]
//! (what went wrong), [`executor`] (the traits). Deliberately absent: the storage manager's own summary. Both
//! nodes are asked directly, and a summary that says "Ok" proves nothing.

pub mod bond;
pub mod error;
pub mod evidence;
pub mod executor;
pub mod generation;
pub mod identity;
pub mod lock;
pub mod operation;
pub mod storage;
pub mod vm;
mod words;

pub use bond::{
    BondMode, BondOriginal, BondReading, HostFacts, LinkProbe, LinkProbeSpec, MemberCounters, MemberReading,
    MemberState, MiiStatus, PersistedBond,
};
pub use error::{HostError, HostErrorKind, HostFailure, LockError};
pub use evidence::{Evidence, Read, Source};
pub use executor::{ClusterLock, HostExecutor, HostProbe, StorageProbe, VirtualMachines};
pub use generation::{Generation, GenerationIds};
pub use identity::{
    BondName, FenceValue, Fingerprint, HostIdError, HostName, HostOperationId, InterfaceName, LeaseHolder,
    MigrationName, PlanUid, ResourceName, VmName,
};
pub use lock::{LeaseRecord, LeaseWatch, LockRecords, PlanHold, RecordVersion, Takeover};
pub use operation::{
    GateToken, HostAction, HostOperation, HostReport, OperationTarget, Settled, VmAction, VmOperation,
};
pub use storage::{
    AfterSplitBrain, ConnectionReading, ConnectionState, DiskState, ModuleVersion, NetOptions,
    PeerVolumeReading, Protocol, ReplicationState, ResourceReading, ResyncSuspended, Role, SatelliteReading,
    StorageReading, Suspensions, VolumeReading,
};
pub use vm::{
    AbortStatus, EvictionSetting, EvictionStrategy, MigrationPhase, MigrationReading, PinShield, RunningVm,
    VmOriginal, VmPicture, VmReading,
};
