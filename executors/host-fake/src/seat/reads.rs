//! Reads of hosts and storage, as the traits have them. What was looked at is remembered, whatever came of it.

use std::collections::BTreeSet;
use std::time::SystemTime;

use async_trait::async_trait;
use executor_api::host::{
    BondName, BondReading, HostError, HostErrorKind, HostFacts, HostName, HostProbe, ResourceName,
    SatelliteReading, StorageProbe, StorageReading,
};

use crate::faults::{CallKind, Fault};
use crate::seat::Seat;
use crate::world::{State, Subject};

impl Seat {
    /// One reading.
    pub(crate) async fn read<T>(
        &self,
        call: CallKind,
        node: Option<&HostName>,
        subjects: &[Subject],
        look: impl FnOnce(&State, Option<Fault>) -> Option<T> + Send,
    ) -> Result<T, HostError> {
        let fault = self.arrive(call, node, None);
        let pace = self.world.enter(|state| state.pace.read);
        self.spend(pace, fault).await;
        let seen = self.world.enter(|state| {
            for subject in subjects {
                state.knows(&self.name, subject.clone());
            }
            match fault {
                Some(Fault::Unreadable) => None,
                fault => look(state, fault),
            }
        });
        if let Some(fault) = fault
            && !matches!(fault, Fault::Slow { .. })
        {
            self.world.fire(fault);
        }
        seen.ok_or_else(|| {
            let at = node.map_or_else(|| "the cluster".to_owned(), ToString::to_string);
            HostError::new(HostErrorKind::Unavailable, format!("{call:?} on {at}: no answer; ask again"))
        })
    }
}

#[async_trait]
impl HostProbe for Seat {
    async fn host(&self, node: &HostName) -> Result<HostFacts, HostError> {
        self.read(CallKind::ReadHost, Some(node), &[], |state, _| state.read_host(node)).await
    }

    async fn bond(&self, node: &HostName, bond: &BondName) -> Result<BondReading, HostError> {
        let subjects = [Subject::Bond(node.clone())];
        self.read(CallKind::ReadBond, Some(node), &subjects, |state, fault| {
            state.hosts.get(node).filter(|host| host.bond.name == *bond)?;
            state.read_bond(node, fault)
        })
        .await
    }
}

#[async_trait]
impl StorageProbe for Seat {
    async fn storage(
        &self,
        node: &HostName,
        resources: &BTreeSet<ResourceName>,
        since: SystemTime,
    ) -> Result<StorageReading, HostError> {
        let subjects = [Subject::Storage(node.clone())];
        let look = |state: &State, fault| state.read_storage(node, resources, since, fault);
        self.read(CallKind::ReadStorage, Some(node), &subjects, look).await
    }

    async fn satellite(&self, node: &HostName) -> Result<SatelliteReading, HostError> {
        let subjects = [Subject::Pods(node.clone())];
        self.read(CallKind::ReadSatellite, Some(node), &subjects, |state, fault| {
            state.read_satellite(node, fault)
        })
        .await
    }
}
