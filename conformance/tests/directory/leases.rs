//! The lease half. A directory is made whole under a hidden name and renamed: of two renames to one name the second
//! fails, because the first directory is not empty.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use executor_api::{
    AttemptKey, CreateMode, CreateOutcome, Endpoint, EndpointAuth, EndpointLookup, ExecutorError,
    ExecutorErrorKind, FoundLease, LeaseFacts, LeaseOwner, LeaseProvider, Life, ListedLease, Listing,
    LogicalNodeSpec, NodeTemplate, OperationContext, OperationKind, ProviderName, Reading, RejectReason,
    RunId, RunNodeGroupSpec, SpecProblem, Visibility,
};

use crate::site::{Directory, Seen, doubtful, gone, provider};

static HIDDEN: AtomicU32 = AtomicU32::new(0);

#[async_trait]
impl LeaseProvider for Directory {
    fn name(&self) -> ProviderName {
        provider()
    }

    fn visibility(&self) -> Visibility {
        Visibility::default()
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        flaw(&group.template).map_or(Ok(()), |problem| Err(vec![problem]))
    }

    async fn create(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, ExecutorError> {
        let (key, effect) = (&ctx.attempt, OperationKind::CreateLease);
        if let Some(problem) = flaw(&desired.template) {
            let kind = ExecutorErrorKind::Rejected(RejectReason::Validation);
            return Err(ExecutorError::new(kind, effect, format!("{key}: {}", problem.message)));
        }
        match self.look(key).map_err(doubtful(effect, key))? {
            Seen::Dead => return Err(gone(effect, key, "its directory is marked as dead")),
            Seen::Alive => {}
            Seen::Nothing if mode == CreateMode::AdoptOnly => {
                return Ok(CreateOutcome::Absent { as_of: self.timer.now() });
            }
            // No await from here to the rename: a call that is dropped has made all of it or nothing.
            Seen::Nothing => self.make(key).map_err(doubtful(effect, key))?,
        }
        Ok(CreateOutcome::Leased { lease: self.facts(key), endpoint: Some(endpoint()) })
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundLease> {
        let as_of = self.timer.now();
        let life = match self.look(attempt) {
            Err(error) => return Reading::Unknown { reason: error.to_string(), as_of },
            Ok(Seen::Nothing) => return Reading::Absent { as_of },
            Ok(Seen::Alive) => Life::Live,
            Ok(Seen::Dead) => Life::Dead,
        };
        let facts = FoundLease { lease: self.facts(attempt), endpoint: Some(endpoint()) };
        Reading::Present { facts, life, as_of }
    }

    async fn lookup_endpoint(
        &self,
        ctx: &OperationContext,
        _: &LeaseFacts,
    ) -> Result<EndpointLookup, ExecutorError> {
        let effect = OperationKind::LookupEndpoint;
        match self.look(&ctx.attempt).map_err(doubtful(effect, &ctx.attempt))? {
            Seen::Alive => Ok(EndpointLookup::Found(endpoint())),
            Seen::Nothing | Seen::Dead => Err(gone(effect, &ctx.attempt, "its directory is gone")),
        }
    }

    async fn destroy(&self, ctx: &OperationContext, lease: &LeaseFacts) -> Result<(), ExecutorError> {
        let (key, effect) = (&ctx.attempt, OperationKind::DestroyLease);
        if lease.lease_id != self.facts(key).lease_id
            || self.look(key).map_err(doubtful(effect, key))? == Seen::Nothing
        {
            return Ok(());
        }
        // Out of sight first, so that half a directory is never taken for a lease.
        let hidden = self.hidden();
        let removed = match fs::rename(self.place(key), &hidden) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => fs::remove_dir_all(hidden),
        };
        removed.map_err(doubtful(effect, key))
    }

    async fn list(&self, run: &RunId) -> Result<Listing, ExecutorError> {
        let leases = self.all(run).map_err(|error| {
            let context = format!("cannot list the directories of {run}");
            let effect = OperationKind::LookupEndpoint;
            ExecutorError::new(ExecutorErrorKind::Unavailable, effect, context).with_source(error)
        })?;
        Ok(Listing { as_of: self.timer.now(), complete: true, leases })
    }
}

impl Directory {
    fn hidden(&self) -> std::path::PathBuf {
        let number = HIDDEN.fetch_add(1, Ordering::Relaxed);
        self.root.join(format!(".{}-{number}", std::process::id()))
    }

    fn make(&self, key: &AttemptKey) -> io::Result<()> {
        let (hidden, place) = (self.hidden(), self.place(key));
        fs::create_dir(&hidden)?;
        fs::write(hidden.join("owner.json"), serde_json::to_vec(key)?)?;
        let renamed = fs::rename(&hidden, &place);
        match renamed {
            Ok(()) => Ok(()),
            Err(error) => {
                fs::remove_dir_all(&hidden)?;
                // Another call was quicker: its directory is ours to adopt.
                if place.is_dir() { Ok(()) } else { Err(error) }
            }
        }
    }

    fn all(&self, run: &RunId) -> io::Result<Vec<ListedLease>> {
        let mut leases = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            let owner = match fs::read(entry.path().join("owner.json")) {
                Ok(text) => serde_json::from_slice::<AttemptKey>(&text)?,
                // Destroyed while we read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if owner.run.name() != run.name() {
                continue;
            }
            let life = match self.look(&owner)? {
                Seen::Nothing => continue,
                Seen::Alive => Life::Live,
                Seen::Dead => Life::Dead,
            };
            leases.push(ListedLease {
                lease: self.facts(&owner),
                owner: LeaseOwner::Attempt(owner),
                endpoint: Some(endpoint()),
                life,
                reason: None,
            });
        }
        Ok(leases)
    }
}

fn flaw(template: &NodeTemplate) -> Option<SpecProblem> {
    let key = template.shape.as_object()?.keys().next()?;
    Some(SpecProblem::new(format!("/shape/{key}"), "a directory has no settings; remove this"))
}

fn endpoint() -> Endpoint {
    Endpoint { host: "localhost".to_owned(), port: 0, auth: EndpointAuth::None, ports: [].into() }
}
