//! The lease half. A directory is made whole under a hidden name and renamed: of two renames to one name the second
//! fails, because the first directory is not empty.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use executor_api::spec::unknown_keys;
use executor_api::world::{LeaseWorld, Trouble};
use executor_api::{
    AttemptKey, Endpoint, LeaseFacts, LeaseId, LeaseOwner, Life, ListedLease, LogicalNodeSpec, NodeTemplate,
    OperationContext, ProviderName, RunId, SpecProblem, Visibility,
};

use crate::site::Directory;

static HIDDEN: AtomicU32 = AtomicU32::new(0);

#[async_trait]
impl LeaseWorld for Directory {
    fn name(&self) -> ProviderName {
        ProviderName::new(Self::NAME).unwrap()
    }

    fn visibility(&self) -> Visibility {
        Visibility::default()
    }

    fn shape_flaws(&self, template: &NodeTemplate) -> Vec<SpecProblem> {
        unknown_keys("/shape", &template.shape, &[])
    }

    async fn list(&self, run: &RunId) -> Result<Vec<ListedLease>, Trouble> {
        let mut leases = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            // Without an owner it was destroyed while we read.
            let Some(owner) = self.read(&entry.path().join("owner.json"))? else { continue };
            let owner: AttemptKey = serde_json::from_str(&owner)?;
            if owner.run.name() == run.name() {
                leases.extend(self.seen(&owner)?);
            }
        }
        Ok(leases)
    }

    // The name leads there: no need to read them all.
    async fn look(&self, attempt: &AttemptKey) -> Result<Vec<ListedLease>, Trouble> {
        Ok(self.seen(attempt)?.into_iter().collect())
    }

    // No await before the rename: a call that is dropped has made all of it or nothing.
    async fn make(&self, ctx: &OperationContext, _: &LogicalNodeSpec) -> Result<ListedLease, Trouble> {
        let (hidden, place) = (self.hidden(), self.place(&ctx.attempt));
        fs::create_dir(&hidden)?;
        fs::write(hidden.join("owner.json"), serde_json::to_vec(&ctx.attempt)?)?;
        if let Err(error) = fs::rename(&hidden, &place) {
            fs::remove_dir_all(&hidden)?;
            // Another call was quicker: its directory is ours to adopt.
            if !place.is_dir() {
                return Err(error.into());
            }
        }
        self.seen(&ctx.attempt)?.ok_or_else(|| Trouble::ambiguous("it was removed as soon as it was made"))
    }

    // Out of sight first, so that half a directory is never taken for a lease.
    async fn remove(&self, attempt: &AttemptKey, _: &ListedLease) -> Result<(), Trouble> {
        let hidden = self.hidden();
        match fs::rename(self.place(attempt), &hidden) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(fs::remove_dir_all(hidden)?),
        }
    }
}

impl Directory {
    fn hidden(&self) -> PathBuf {
        let number = HIDDEN.fetch_add(1, Ordering::Relaxed);
        self.root.join(format!(".{}-{number}", std::process::id()))
    }

    fn seen(&self, key: &AttemptKey) -> io::Result<Option<ListedLease>> {
        let place = self.place(key);
        let dead = place.join("dead").try_exists()?;
        // Read last: it may have been removed between the two looks.
        if self.read(&place.join("owner.json"))?.is_none() {
            return Ok(None);
        }
        Ok(Some(ListedLease {
            owner: LeaseOwner::Attempt(key.clone()),
            lease: LeaseFacts {
                lease_id: LeaseId(key.identity().resource_name),
                provider: self.name(),
                created_at: None,
                attributes: [("directory".to_owned(), place.display().to_string())].into(),
            },
            endpoint: Some(Endpoint::at("localhost", 0)),
            life: if dead { Life::Dead } else { Life::Live },
            reason: dead.then(|| "it is marked as dead".to_owned()),
        }))
    }
}
