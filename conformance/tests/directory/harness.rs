//! The harness: a temporary directory for each case, read and spoilt with plain file operations.

use std::fs;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use conformance::{
    CannotInject, Harness, HeldLease, HeldSession, Injection, Inventory, Losses, NodePlan, TokioTimer,
    template,
};
use executor_api::{AttemptKey, BootstrapSessionId, Executor, LeaseId, LeaseOwner, NodeTemplate, Timer};
use serde_json::{Value, json};

use crate::site::Directory;

#[derive(Debug)]
pub(crate) struct DirectoryHarness {
    dir: tempfile::TempDir,
    losses: Arc<Losses>,
    timer: Arc<dyn Timer>,
}

impl DirectoryHarness {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sites")).unwrap();
        Self { dir, losses: Arc::default(), timer: Arc::new(TokioTimer::starting_at(SystemTime::now())) }
    }

    fn root(&self) -> std::path::PathBuf {
        self.dir.path().join("sites")
    }
}

#[async_trait]
impl Harness for DirectoryHarness {
    const VIRTUAL_TIME: bool = true;

    const SKIPS: Option<&'static [&'static str]> = Some(&[
        "absent::expired_credentials_prove_no_absence",
        "adoption::a_lease_that_lands_late_is_adopted",
        "adoption::of_two_leases_one_is_kept",
        "cancellation::a_call_ends_by_its_deadline",
        "errors::a_lack_of_capacity_is_told",
        "errors::a_missing_right_is_told",
        "errors::a_refused_create_made_nothing",
        "errors::a_throttle_says_how_long",
        "errors::a_used_up_quota_is_told",
        "errors::an_answer_that_nobody_understands_is_ambiguous",
        "errors::an_invalid_request_is_told",
        "errors::an_unreachable_provider_is_told",
        "errors::expired_credentials_are_a_refusal",
        "errors::no_text_tells_a_secret",
        "identity::a_reserved_label_is_refused",
        "lease_life::a_moved_lease_is_listed_where_it_is",
        "lease_life::an_endpoint_that_does_not_come_is_waited_for",
        "listing::an_incomplete_listing_says_so",
        "absent::a_throttled_read_proves_no_absence",
        "listing::every_page_is_read",
        "listing::a_page_with_nothing_on_it_is_not_the_last",
        "listing::pages_that_shift_hide_nothing",
    ]);

    fn executor(&self) -> Executor {
        self.losses.before(Directory::executor(&self.root(), Arc::clone(&self.timer)))
    }

    fn timer(&self) -> Arc<dyn Timer> {
        Arc::clone(&self.timer)
    }

    fn template(&self, plan: NodePlan) -> NodeTemplate {
        let state = match plan {
            NodePlan::Joins => "joined".to_owned(),
            NodePlan::NeverJoins => "running".to_owned(),
            NodePlan::Exits(status) => format!("exited {status}"),
        };
        template(Directory::NAME, Value::Null, Value::String(state))
    }

    fn flawed(&self) -> Option<(NodeTemplate, String)> {
        let flawed = template(Directory::NAME, json!({ "size": 3 }), json!("running"));
        Some((flawed, "/shape/size".to_owned()))
    }

    async fn inventory(&self) -> Inventory {
        let mut found = Inventory::default();
        for entry in fs::read_dir(self.root()).into_iter().flatten().flatten() {
            let (id, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
            let Some(owner) =
                fs::read(path.join("owner.json")).ok().and_then(|text| serde_json::from_slice(&text).ok())
            else {
                found.leases.push(HeldLease { id: LeaseId(id), owner: LeaseOwner::Incomplete });
                continue;
            };
            if path.join("dead").exists() {
                continue;
            }
            if fs::read_to_string(path.join("session"))
                .is_ok_and(|state| state == "joined" || state == "running")
            {
                let id = BootstrapSessionId(format!("{id}/session"));
                found.sessions.push(HeldSession { id, owner: AttemptKey::clone(&owner) });
            }
            found.leases.push(HeldLease { id: LeaseId(id), owner: LeaseOwner::Attempt(owner) });
        }
        found
    }

    async fn inject(&self, fault: Injection) -> Result<(), CannotInject> {
        let away = self.dir.path().join("away");
        let done = match fault {
            fault if self.losses.cause(&fault) => Ok(()),
            // As if it were not mounted.
            Injection::FailReads => fs::rename(self.root(), away),
            Injection::Heal => fs::rename(away, self.root()),
            Injection::Kill(lease) => fs::write(self.root().join(lease.0).join("dead"), ""),
            Injection::RemoveByHand(lease) => fs::remove_dir_all(self.root().join(lease.0)),
            other => return Err(CannotInject::because(format!("files cannot suffer {other:?}"))),
        };
        done.map_err(|error| CannotInject::because(error.to_string()))
    }

    async fn clean_up(&self) {
        // The temporary directory goes with the harness.
    }
}
