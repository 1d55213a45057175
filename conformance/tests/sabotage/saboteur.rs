//! An executor with one deliberate fault: it wraps the fake, and what it does not spoil is the fake's own.

mod bootstrap;
mod leases;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use executor_api::{
    AttemptKey, CreateOutcome, EndpointLookup, Executor, ExecutorError, ExecutorErrorKind, LeaseFacts,
    LeaseId, LeaseOwner, LeaseProvider, OperationKind,
};
use executor_fake::{FakeProvider, FakeWorld};

use crate::how::How;

#[derive(Clone, Debug)]
pub(crate) struct Saboteur {
    pub(super) inner: FakeProvider,
    pub(super) world: FakeWorld,
    pub(super) how: How,
    /// What this instance has seen; forgotten at a restart.
    pub(super) memory: Arc<Mutex<Vec<AttemptKey>>>,
    pub(super) endpoints: Arc<Mutex<BTreeMap<String, EndpointLookup>>>,
    /// The last secret that a node was given.
    pub(super) secret: Arc<Mutex<String>>,
}

impl Saboteur {
    pub(crate) fn executor(world: &FakeWorld, how: How) -> Executor {
        let (inner, world) = (world.provider(), world.clone());
        let this = Arc::new(Self {
            inner,
            world,
            how,
            memory: Arc::default(),
            endpoints: Arc::default(),
            secret: Arc::default(),
        });
        Executor::new(Arc::clone(&this) as Arc<dyn LeaseProvider>, this)
    }

    pub(super) fn is(&self, how: How) -> bool {
        self.how == how
    }

    pub(super) fn is_new(&self, key: &AttemptKey) -> bool {
        let mut memory = self.memory.lock().unwrap();
        let new = !memory.contains(key);
        memory.push(key.clone());
        new
    }

    /// Makes a lease without asking anybody.
    pub(super) async fn make(&self, key: &AttemptKey) -> CreateOutcome {
        let id = self.world.plant(key);
        tokio::time::sleep(Duration::from_secs(2)).await;
        CreateOutcome::Leased { lease: self.facts(id), endpoint: None }
    }

    pub(super) fn facts(&self, lease_id: LeaseId) -> LeaseFacts {
        LeaseFacts {
            lease_id,
            provider: LeaseProvider::name(&self.inner),
            created_at: Some(self.world.now()),
            attributes: BTreeMap::new(),
        }
    }

    /// The lease of this id, whoever owns it.
    pub(super) fn owner_of(&self, lease: &LeaseFacts) -> Option<AttemptKey> {
        let found = self.world.leases().into_iter().find(|truth| truth.id == lease.lease_id)?;
        if let LeaseOwner::Attempt(key) = found.owner { Some(key) } else { None }
    }

    pub(super) fn gone(effect: OperationKind) -> ExecutorError {
        ExecutorError::new(ExecutorErrorKind::Gone, effect, "there is no such thing")
    }
}
