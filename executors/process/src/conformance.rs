//! The suite's harness of this executor: a directory of its own for each case, real supervisors and programs in
//! it, and an inventory that is read off the disk and the process table. Only what is lost on the
//! way between driver and executor is played; everything else really happens.

mod faults;
mod inventory;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use conformance::{CannotInject, Harness, Injection, Inventory, Losses, NodePlan, SecretFile, TokioTimer};
use executor_api::{AttemptKey, Executor, LogicalNodeSpec, NodeTemplate, RunId, Timer};
use serde_json::{Value, json};

use crate::executor::{ProcessConfig, ProcessExecutor, SupervisorCommand, provider_name};
use faults::Disturbed;

/// Few ports, so that they can be used up. The nodes of the suite listen on none of theirs.
const PORTS: std::ops::RangeInclusive<u16> = 27_000..=27_031;

/// What a node of the suite prints once it is up.
const READY: &str = "the node is up";

/// Sets the runs of one process apart, which share the process table.
static WORLDS: AtomicU32 = AtomicU32::new(0);

/// A fresh directory with the executor under test on it.
#[derive(Debug)]
pub struct ProcessHarness {
    dir: tempfile::TempDir,
    config: ProcessConfig,
    uid: String,
    losses: Arc<Losses>,
    disturbed: Mutex<Disturbed>,
    timer: Arc<dyn Timer>,
    secret: SecretFile,
}

impl ProcessHarness {
    /// A fresh world whose nodes are supervised by this command.
    ///
    /// # Panics
    /// No temporary directory can be made.
    pub fn new(supervisor: SupervisorCommand) -> Self {
        #[expect(clippy::expect_used, reason = "a suite without a directory has nothing to say")]
        let dir = tempfile::tempdir().expect("the suite needs a temporary directory");
        let config = ProcessConfig {
            root: dir.path().join("nodes"),
            port_registry: dir.path().join("ports"),
            port_range: PORTS,
            supervisor,
            self_program: PathBuf::from("/bin/sh"),
        };
        let world = WORLDS.fetch_add(1, Ordering::Relaxed);
        Self {
            dir,
            config,
            uid: format!("p{}-{world:06}", std::process::id()),
            losses: Arc::default(),
            disturbed: Mutex::default(),
            timer: Arc::new(TokioTimer::starting_at(SystemTime::now())),
            secret: SecretFile::new(),
        }
    }
}

#[async_trait]
impl Harness for ProcessHarness {
    const VIRTUAL_TIME: bool = false;

    const SKIPS: Option<&'static [&'static str]> = Some(&[
        "adoption::a_lease_that_lands_late_is_adopted",
        "adoption::of_two_leases_one_is_kept",
        "lease_life::a_moved_lease_is_listed_where_it_is",
        "identity::a_reserved_label_is_refused",
        "lease_life::an_endpoint_that_does_not_come_is_waited_for",
        "absent::expired_credentials_prove_no_absence",
        "errors::an_invalid_request_is_told",
        "errors::a_used_up_quota_is_told",
        "errors::a_throttle_says_how_long",
        "errors::expired_credentials_are_a_refusal",
        "errors::an_answer_that_nobody_understands_is_ambiguous",
        "listing::an_incomplete_listing_says_so",
        "absent::a_throttled_read_proves_no_absence",
        "listing::every_page_is_read",
        "listing::a_page_with_nothing_on_it_is_not_the_last",
        "listing::pages_that_shift_hide_nothing",
    ]);

    const MAY_SKIP: &'static [&'static str] = &["errors::a_missing_right_is_told"];

    fn executor(&self) -> Executor {
        self.losses.before(Arc::new(ProcessExecutor::new(self.config.clone())).executor())
    }

    fn timer(&self) -> Arc<dyn Timer> {
        Arc::clone(&self.timer)
    }

    fn run(&self) -> RunId {
        #[expect(clippy::expect_used, reason = "a process id and a number make a legal uid")]
        RunId::new("suite", self.uid.clone()).expect("the uid is legal")
    }

    fn template(&self, plan: NodePlan) -> NodeTemplate {
        let script = match plan {
            NodePlan::Joins => format!("echo {READY}; exec sleep 600"),
            NodePlan::NeverJoins => "exec sleep 600".to_owned(),
            NodePlan::Exits(status) => format!("exit {status}"),
        };
        template(json!({ "ports": ["main"] }), &script)
    }

    fn flawed(&self) -> Option<(NodeTemplate, String)> {
        let shape = json!({ "ports": ["main", "Not A Name"] });
        Some((template(shape, "exec sleep 600"), "/shape/ports/1".to_owned()))
    }

    /// Prints its secret and ends: the last output of a node is told, and must not tell this.
    fn secretive(&self, key: &AttemptKey) -> Option<(LogicalNodeSpec, String)> {
        let mut desired = self.desired(key, NodePlan::Exits(1));
        let template = Arc::make_mut(&mut desired.template);
        template.boot.settings["command"] = json!(["sh", "-c", "echo the token is $TOKEN; exit 1"]);
        template.boot.settings["env"] = json!({ "TOKEN": self.secret.reference() });
        Some((desired, self.secret.value().to_owned()))
    }

    async fn inventory(&self) -> Inventory {
        inventory::take(&self.config.root, &self.uid)
    }

    async fn inject(&self, fault: Injection) -> Result<(), CannotInject> {
        self.cause(fault).await
    }

    async fn clean_up(&self) {
        self.heal();
        inventory::kill_everything(self.dir.path(), &self.uid);
    }

    /// Longer than a busy machine needs for any call, and what each case with a lost answer waits.
    fn call_timeout(&self) -> Duration {
        Duration::from_secs(8)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(20)
    }

    fn quiet(&self) -> Duration {
        Duration::from_secs(1)
    }
}

fn template(shape: Value, script: &str) -> NodeTemplate {
    let boot = json!({
        "command": ["sh", "-c", script],
        "ready": { "log": READY, "every": "50ms" },
        "stop": { "grace": "2s" },
    });
    conformance::template(provider_name().as_str(), shape, boot)
}
