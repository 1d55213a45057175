//! What an author provides: a fresh site, the five traits under test on it, the truth as the site itself tells it, and
//! the troubles that this site can suffer.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use executor_api::host::{
    BondMode, BondName, BondReading, EvictionSetting, HostName, HostOperation, InterfaceName, LockRecords,
    ResourceName, SatelliteReading, StorageReading, VmName, VmOperation, VmPicture,
};
use reconciler_driver::maintenance::Hands;

use crate::harness::CannotInject;

/// The site that every case plays on. Fresh: the bonds in active-backup with all their members, in both the kernel and
/// the configuration; the copies connected and in sync; storage pods running; nobody holds the lock.
#[derive(Clone, Debug)]
pub struct Site {
    /// Two hosts.
    pub nodes: [HostName; 2],
    /// The bond of either, with at least two members.
    pub bond: BondName,
    /// A resource with a copy on both hosts.
    pub resource: ResourceName,
    /// Another one.
    pub other: ResourceName,
    /// Runs on the first host, on [`Site::resource`] alone, with the setting `LiveMigrate`.
    pub set: VmName,
    /// Runs on the second host, on [`Site::other`] alone, with the setting left out.
    pub unset: VmName,
}

/// What is really there. Read from the site (kernel, module, cluster records, or a simulation's ground truth), never
/// through what is under test.
#[derive(Clone, Debug)]
pub struct HostTruth {
    /// The bonds.
    pub bonds: BTreeMap<HostName, BondReading>,
    /// Storage, as each host has it.
    pub storage: BTreeMap<HostName, StorageReading>,
    /// Storage pods.
    pub satellites: BTreeMap<HostName, SatelliteReading>,
    /// Machines on either resource.
    pub machines: VmPicture,
    /// The lock.
    pub lock: LockRecords,
}

/// Something that a case wants to go wrong. Where it names an operation, the next call of that kind on the same host or
/// machine suffers it. Where it names a read, reads of that kind suffer it until [`HostTrouble::Heal`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostTrouble {
    // Calls.
    /// It is carried out, and its answer is lost.
    LoseAnswer(HostOperation),
    /// It never arrives, and nobody can tell.
    LoseRequest(HostOperation),
    /// Nobody hears anything certain, and it arrives later: within a minute.
    LandLate(HostOperation),
    /// It is carried out, and arrives a second time later: within a minute.
    Repeat(HostOperation),
    /// It takes several times as long as usual, but less than half of a call's time.
    Slow(HostOperation),
    /// The agent dies in the middle of it and comes back.
    KillAgentDuring(HostOperation),
    /// As [`HostTrouble::LoseAnswer`].
    LoseVmAnswer(VmOperation),
    /// As [`HostTrouble::LoseRequest`].
    LoseVmRequest(VmOperation),
    /// The agent on the host is started anew, and answers again within a minute.
    RestartAgent(HostName),

    // Reads.
    /// The host, its bond, its storage and its pods cannot be read.
    FailReads(HostName),
    /// Machines cannot be read.
    FailMachines,
    /// The lock cannot be read.
    FailLock,
    /// Storage counters are not reported.
    HideCounters(HostName),
    /// Generation identifiers are not reported.
    HideIdentifiers(HostName),
    /// Whether there was a split brain cannot be told.
    HideEvents(HostName),
    /// Status changes while it is read.
    TearStatus(HostName),
    /// Storage states come as words that nobody knows.
    GarbleStorage(HostName),
    /// States of members come as words that nobody knows.
    GarbleBond(HostName),
    /// The list of members is cut short.
    CutMembers(HostName),
    /// The list of pods is not known to be whole.
    CutPods(HostName),
    /// The configuration of the bond cannot be read.
    HideConfiguration(HostName),
    /// Reads and calls are well again.
    Heal,

    // Hosts.
    /// A member loses carrier.
    LoseCarrier(HostName, InterfaceName),
    /// A member drops out of the bond.
    DropMember(HostName, InterfaceName),
    /// Somebody else brings the bond into a mode, in good order.
    SetBond(HostName, BondMode),
    /// Somebody else rewrites the configuration of the bond.
    SetConfiguration(HostName, BondMode),
    /// The bond's static routes go.
    DropRoutes(HostName),
    /// Every fifth packet on the first wire is lost.
    LosePackets,
    /// The host boots anew, and is back within five minutes.
    Reboot(HostName),

    // Storage; of [`Site::resource`].
    /// The host's map of what its peer lacks gains blocks; the peer's does not.
    MarkBlocks(HostName),
    /// The host announces a split brain.
    AnnounceSplitBrain(HostName),
    /// The host becomes primary beside the other and writes. To be used while they are apart.
    Diverge(HostName),
    /// A storage pod comes back to the host, kept away or not.
    ReturnPod(HostName),

    // Machines.
    /// Somebody asks for a migration of the machine to the host; it takes at least some seconds.
    Migrate(VmName, HostName),
    /// The same, and an abort of it comes too late.
    MigrateStubbornly(VmName, HostName),
    /// The machine is marked to be moved away from its host. No migration follows within a second.
    MarkForEvacuation(VmName),
    /// What applies to the running instance is something else than what is declared.
    ChangeEffective(VmName, EvictionSetting),
    /// The machine's pod is to be evicted, as a drain of its host asks.
    Evict(VmName),

    // The lock.
    /// The lease's record is deleted by hand.
    DeleteLease,
    /// The next renewal is written, and its answer is lost.
    LoseRenewalAnswer,
    /// The next acquisition never arrives, and nobody can tell.
    LoseAcquisition,
}

/// One fresh site with the implementations under test on it. Made anew for every case, inside a tokio runtime.
#[async_trait]
pub trait HostHarness: Send + Sync + fmt::Debug + 'static {
    /// As for [`Harness::VIRTUAL_TIME`](crate::Harness::VIRTUAL_TIME).
    const VIRTUAL_TIME: bool;

    /// The cases that this site cannot put to the test, by name. A `#[test]` of the suite fails when any other case is
    /// skipped, and when one of these is not. `None`: skips are printed and nothing more.
    const SKIPS: Option<&'static [&'static str]> = None;

    /// The implementations under test, and the time they live in. Each call gives new ones, as another start of the
    /// operator's process has them; agents on hosts are the same.
    fn hands(&self) -> Hands;

    /// The names of what is there.
    fn site(&self) -> Site;

    /// What is really there.
    async fn truth(&self) -> HostTruth;

    /// Makes something go wrong.
    ///
    /// # Errors
    /// This site cannot suffer it; why.
    async fn inject(&self, trouble: HostTrouble) -> Result<(), CannotInject>;

    /// Undoes everything that the case did, without the help of what is under test. Called after every case.
    async fn clean_up(&self) {}

    /// How long one call may take.
    fn call_timeout(&self) -> Duration {
        Duration::from_mins(1)
    }

    /// How long a case waits for a level before it fails.
    fn patience(&self) -> Duration {
        Duration::from_mins(5)
    }

    /// Time between two looks at a level.
    fn pace(&self) -> Duration {
        Duration::from_millis(200)
    }
}
