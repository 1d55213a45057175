//! Everything that was read in one pass. Filled by the driver, read by [`advance`](crate::maintenance::advance()).
//! What is not there was not read, which is no more than "unknown".

use std::collections::BTreeMap;

use executor_api::host::{
    BondReading, Evidence, HostFacts, HostName, LeaseHolder, LockRecords, SatelliteReading, StorageReading,
    Takeover, VmPicture,
};
use serde::{Deserialize, Serialize};

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// Who reads: this start of this process.
    pub me: LeaseHolder,
    /// Whether this candidate may take the lease, by its own watch of the record.
    pub takeover: Takeover,
    /// The lock's records.
    pub lock: Option<Evidence<LockRecords>>,
    /// The hosts.
    pub hosts: BTreeMap<HostName, Evidence<HostFacts>>,
    /// Their bonds.
    pub bonds: BTreeMap<HostName, Evidence<BondReading>>,
    /// Their storage, each asked directly.
    pub storage: BTreeMap<HostName, Evidence<StorageReading>>,
    /// Their storage pods.
    pub satellites: BTreeMap<HostName, Evidence<SatelliteReading>>,
    /// The virtual machines.
    pub vms: Option<Evidence<VmPicture>>,
}

impl Observed {
    /// Nothing was read yet.
    pub fn nothing(me: LeaseHolder, takeover: Takeover) -> Self {
        Self {
            me,
            takeover,
            lock: None,
            hosts: BTreeMap::new(),
            bonds: BTreeMap::new(),
            storage: BTreeMap::new(),
            satellites: BTreeMap::new(),
            vms: None,
        }
    }
}
