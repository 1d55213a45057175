//! The shared suite's harness for a bootstrapper: leases of the fake executor in real time, each of them played by
//! the host of a [`World`], on which the sessions really run. The cases that are about leases alone are left out:
//! the fake executor passes them on its own.

#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    reason = "test code"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bootstrap_hosted::SessionName;
use conformance::{
    CannotInject, Harness, HeldLease, HeldSession, Injection, Inventory, Losses, NodePlan, SecretFile,
    TokioTimer, template,
};
use executor_api::{
    AttemptKey, BootstrapSessionId, CreateMode, CreateOutcome, Endpoint, EndpointLookup, Executor,
    ExecutorError, FoundLease, LeaseFacts, LeaseId, LeaseProvider, Listing, LogicalNodeSpec, NodeTemplate,
    OperationContext, ProviderName, Reading, RunId, RunNodeGroupSpec, SpecProblem, Timer, Visibility,
};
use executor_fake::{FakeBehaviour, FakeWorld};
use serde_json::{Value, json};

use crate::support::{World, attempt, processes};

/// The cases in which a session plays a part.
const CASES: &[&str] = &[
    "dedup::a_session_is_started_once_however_often",
    "dedup::starts_at_once_make_one_session",
    "dedup::starts_of_two_instances_at_once_make_one_session",
    "adoption::a_session_whose_answer_was_lost_is_adopted",
    "adoption::a_new_instance_adopts_the_session",
    "adoption::a_new_instance_is_told_of_the_join_at_once",
    "adoption::adopt_only_finds_the_session",
    "adoption::adopt_only_starts_no_session",
    "absent::cancelling_twice_is_success",
    "absent::cancelling_what_never_was_is_success",
    "absent::completing_twice_is_success",
    "identity::a_cancel_touches_only_its_own_attempt",
    "identity::the_node_quotes_its_attempts_nonce",
    "errors::a_flawed_spec_is_refused_at_its_flaw",
    "errors::a_sound_spec_is_accepted",
    "errors::no_text_tells_a_secret",
    "cancellation::a_dropped_start_leaves_one_session_or_none",
    "conservation::ten_lives_leave_nothing",
    "conservation::five_slots_at_once_leave_nothing",
];

/// Runs the cases in which a session plays a part, several at once.
///
/// # Panics
/// A case failed, or was skipped.
pub fn run<W: World>(make: impl Fn() -> W + Sync) {
    let known: Vec<&str> = conformance::CASES.iter().map(|case| case.name).collect();
    let unknown: Vec<_> = CASES.iter().filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "the suite has renamed {unknown:?}");
    let life = known.iter().copied().filter(|name| name.starts_with("bootstrap_life::"));
    let names = Mutex::new(CASES.iter().copied().chain(life).collect::<Vec<_>>());
    let lines = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(name) = names.lock().unwrap().pop() else { return };
                    let report = conformance::run_suite(|| HostedHarness::new(make()), Some(name)).unwrap();
                    for (name, verdict) in &report.verdicts {
                        println!("{}", verdict.line(name));
                        if *verdict != conformance::Verdict::Ok {
                            lines.lock().unwrap().push(verdict.line(name));
                        }
                    }
                }
            });
        }
    });
    assert_eq!(*lines.lock().unwrap(), [""; 0]);
}

/// A world with leases.
struct HostedHarness<W: World> {
    world: W,
    fake: FakeWorld,
    timer: Arc<dyn Timer>,
    losses: Arc<Losses>,
    run: RunId,
    /// Every attempt a case has spoken of.
    attempts: Arc<Mutex<Vec<AttemptKey>>>,
    secret: SecretFile,
}

impl<W: World> fmt::Debug for HostedHarness<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostedHarness")
    }
}

impl<W: World> HostedHarness<W> {
    fn new(world: W) -> Self {
        let timer: Arc<dyn Timer> = Arc::new(TokioTimer::starting_at(SystemTime::now()));
        Self {
            fake: FakeWorld::new(Arc::clone(&timer), FakeBehaviour::default()),
            timer,
            losses: Arc::default(),
            run: attempt().run,
            attempts: Arc::default(),
            secret: SecretFile::new(),
            world,
        }
    }

    fn booted(&self, boot: Value) -> NodeTemplate {
        let provider = self.fake.executor().leases().name();
        let shape = json!({ "create": "20ms", "endpoint": "10ms", "destroy": "10ms" });
        template(provider.as_str(), shape, self.world.settings(boot))
    }
}

#[async_trait]
impl<W: World> Harness for HostedHarness<W> {
    const VIRTUAL_TIME: bool = false;

    fn executor(&self) -> Executor {
        let leases = Machines {
            fake: self.fake.executor(),
            endpoint: self.world.endpoint(),
            attempts: Arc::clone(&self.attempts),
        };
        self.losses.before(Executor::new(Arc::new(leases), self.world.instance()))
    }

    fn timer(&self) -> Arc<dyn Timer> {
        Arc::clone(&self.timer)
    }

    fn run(&self) -> RunId {
        self.run.clone()
    }

    fn template(&self, plan: NodePlan) -> NodeTemplate {
        let script = match plan {
            NodePlan::Joins => "echo the node is up; exec sleep 4321".to_owned(),
            NodePlan::NeverJoins => "exec sleep 4321".to_owned(),
            NodePlan::Exits(status) => format!("exit {status}"),
        };
        self.booted(json!({
            "start": ["/bin/sh", "-c", script],
            "ready": { "log": "the node is up" },
            "stop": { "grace": "1s" },
        }))
    }

    fn desired(&self, key: &AttemptKey, plan: NodePlan) -> LogicalNodeSpec {
        self.attempts.lock().unwrap().push(key.clone());
        LogicalNodeSpec::of(key.node.clone(), Arc::new(self.template(plan)))
    }

    fn flawed(&self) -> Option<(NodeTemplate, String)> {
        Some((self.booted(json!({ "start": ["{nobody}"] })), "/boot/start/0".to_owned()))
    }

    fn secretive(&self, key: &AttemptKey) -> Option<(LogicalNodeSpec, String)> {
        let mut desired = self.desired(key, NodePlan::Exits(1));
        let template = Arc::make_mut(&mut desired.template);
        template.boot.settings["start"] = json!(["/bin/sh", "-c", "echo the token is $TOKEN; exit 1"]);
        template.boot.settings["env"] = json!({ "TOKEN": self.secret.reference() });
        Some((desired, self.secret.value().to_owned()))
    }

    async fn inventory(&self) -> Inventory {
        let leases = self.fake.existing_leases().into_iter();
        let attempts = self.attempts.lock().unwrap().clone();
        let by_name: BTreeMap<String, AttemptKey> =
            attempts.into_iter().map(|key| (SessionName::of(&key).to_string(), key)).collect();
        let sessions = by_name.into_iter().flat_map(|(name, key)| {
            let held = HeldSession { id: BootstrapSessionId(name), owner: key.clone() };
            vec![held; runners_of(&key)]
        });
        Inventory {
            leases: leases.map(|lease| HeldLease { id: lease.id, owner: lease.owner }).collect(),
            sessions: sessions.collect(),
        }
    }

    async fn inject(&self, fault: Injection) -> Result<(), CannotInject> {
        if self.losses.cause(&fault) {
            return Ok(());
        }
        match fault {
            Injection::Kill(lease) => {
                let owner = self.attempts.lock().unwrap().clone();
                let owner = owner
                    .into_iter()
                    .find(|key| self.fake.leases_of(key).iter().any(|truth| truth.id == lease));
                end_processes(&owner.expect("a case kills a lease of its own"));
                Ok(())
            }
            Injection::Heal => {
                self.losses.heal();
                Ok(())
            }
            other => {
                Err(CannotInject::because(format!("{other:?} is about leases, which are not on trial here")))
            }
        }
    }

    async fn clean_up(&self) {
        for key in &*self.attempts.lock().unwrap() {
            end_processes(key);
        }
    }

    fn call_timeout(&self) -> Duration {
        Duration::from_secs(15)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn quiet(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// How many runners of an attempt live: each leads a session of its own.
fn runners_of(key: &AttemptKey) -> usize {
    let leads = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        fields.get(3).is_some_and(|session| *session == pid.to_string()) && fields[0] != "Z"
    };
    processes(key).iter().filter(|(pid, line)| line.contains(" runner ") && leads(*pid)).count()
}

/// The machine dies, with everything on it that belongs to this attempt.
fn end_processes(key: &AttemptKey) {
    for _ in 0..50 {
        let left = processes(key);
        if left.is_empty() {
            return;
        }
        let pids = left.iter().map(|(pid, _)| pid.to_string());
        let _ = Command::new("kill").arg("-KILL").args(pids).stderr(std::process::Stdio::null()).status();
    }
}

/// Leases that are all played by one host.
#[derive(Debug)]
struct Machines {
    fake: Executor,
    endpoint: Endpoint,
    attempts: Arc<Mutex<Vec<AttemptKey>>>,
}

#[async_trait]
impl LeaseProvider for Machines {
    fn name(&self) -> ProviderName {
        self.fake.leases().name()
    }

    fn visibility(&self) -> Visibility {
        self.fake.leases().visibility()
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        let _ = group;
        Ok(())
    }

    async fn create(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, ExecutorError> {
        self.attempts.lock().unwrap().push(ctx.attempt.clone());
        // The fake would take the boot settings for its own.
        let mut desired = desired.clone();
        Arc::make_mut(&mut desired.template).boot = executor_api::BootSpec::default();
        let outcome = self.fake.leases().create(ctx, &desired, mode).await?;
        Ok(match outcome {
            CreateOutcome::Leased { lease, .. } => {
                CreateOutcome::Leased { lease, endpoint: Some(self.endpoint.clone()) }
            }
            absent @ CreateOutcome::Absent { .. } => absent,
        })
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundLease> {
        self.fake.leases().find(attempt).await
    }

    async fn lookup_endpoint(
        &self,
        ctx: &OperationContext,
        lease: &LeaseFacts,
    ) -> Result<EndpointLookup, ExecutorError> {
        let found = self.fake.leases().lookup_endpoint(ctx, lease).await?;
        Ok(match found {
            EndpointLookup::Found(_) => EndpointLookup::Found(self.endpoint.clone()),
            not_yet @ EndpointLookup::NotReady(_) => not_yet,
        })
    }

    async fn destroy(&self, ctx: &OperationContext, lease: &LeaseFacts) -> Result<(), ExecutorError> {
        self.fake.leases().destroy(ctx, lease).await?;
        if !lease.lease_id.0.is_empty() && lease.lease_id != LeaseId("no-such-lease-1".into()) {
            end_processes(&ctx.attempt);
        }
        Ok(())
    }

    async fn list(&self, run: &RunId) -> Result<Listing, ExecutorError> {
        self.fake.leases().list(run).await
    }
}
