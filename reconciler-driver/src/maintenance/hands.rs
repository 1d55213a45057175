//! What a plan reaches the world through: the five traits in one bundle, and the time they live in.

use std::sync::Arc;

use executor_api::Timer;
use executor_api::host::{ClusterLock, HostExecutor, HostProbe, StorageProbe, VirtualMachines};

/// Everything that is asked and told. Clones reach the same world.
#[derive(Clone, Debug)]
pub struct Hands {
    /// Changes hosts.
    pub hosts: Arc<dyn HostExecutor>,
    /// Reads hosts and bonds.
    pub probe: Arc<dyn HostProbe>,
    /// Reads replicated storage.
    pub storage: Arc<dyn StorageProbe>,
    /// Reads and pins virtual machines.
    pub vms: Arc<dyn VirtualMachines>,
    /// The lease and the hold.
    pub lock: Arc<dyn ClusterLock>,
    /// Time.
    pub timer: Arc<dyn Timer>,
}

impl Hands {
    /// One thing that is all five.
    pub fn of<T>(all: &Arc<T>, timer: Arc<dyn Timer>) -> Self
    where
        T: HostExecutor + HostProbe + StorageProbe + VirtualMachines + ClusterLock + 'static,
    {
        Self {
            hosts: Arc::<T>::clone(all),
            probe: Arc::<T>::clone(all),
            storage: Arc::<T>::clone(all),
            vms: Arc::<T>::clone(all),
            lock: Arc::<T>::clone(all),
            timer,
        }
    }
}
