//! The suite's harness of this provider, and the test world that it needs: EC2's API on loopback, with late visibility,
//! late landings and every fault that its front can make. Only the bootstrapper is played; see [`sessions`].

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a suite whose world cannot be asked has nothing to say"
)]

pub mod sessions;
pub mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use conformance::{
    CannotInject, Harness, HeldLease, HeldSession, Injection, Inventory, NodePlan, SecretFile, TokioTimer,
};
use executor_api::{
    AttemptKey, BootSpec, Executor, ExecutorErrorKind, JoinSpec, LeaseId, LeaseOwner, LogicalNodeSpec,
    NodeRole, NodeTemplate, ProviderName, RejectReason, Timer, Visibility,
};
use serde_json::{Value, json};

use crate::{Credentials, Ec2Config, Ec2Provider, Target, Timeouts};
use sessions::Sessions;
use world::Region;

/// What the suite and the tests declare of their world.
pub const VISIBILITY: Visibility =
    Visibility { listing_lag: Duration::from_millis(600), late_landing: Duration::from_millis(1500) };

/// How long a call may take.
pub const CALL: Duration = Duration::from_secs(2);

/// The provider's own settings, scaled to hundreds of milliseconds.
pub fn config() -> Ec2Config {
    Ec2Config {
        visibility: VISIBILITY,
        timeouts: Timeouts {
            connect: Duration::from_millis(500),
            read: Duration::from_secs(2),
            attempt: Duration::from_secs(2),
            operation: Duration::from_secs(3),
        },
        credentials: Credentials::Fixed {
            access_key_id: "AKIATEST".to_owned(),
            secret_access_key: "hunter2-secret".to_owned(),
        },
        ..Ec2Config::default()
    }
}

/// The smallest shape for a region, with changes.
pub fn shape(region: &Region, changes: &Value) -> Value {
    let mut shape = json!({
        "region": region.name,
        "endpoint_url": region.url(),
        "image": "ami-0abcdef1234567890",
        "instance_types": ["t3.small"],
    });
    for (key, change) in changes.as_object().unwrap() {
        shape[key] = change.clone();
    }
    shape
}

/// What a group of this shape asks for.
pub fn template(shape: Value) -> NodeTemplate {
    NodeTemplate {
        role: NodeRole("worker".into()),
        provider: ProviderName::new(Ec2Provider::NAME).unwrap(),
        shape,
        boot: BootSpec::default(),
        join: JoinSpec::default(),
    }
}

/// After how many seconds the provider gives a launch up by itself: the limit of one call in [`config`].
const GIVEN_UP: f64 = 3.0;

/// How an answer comes that cannot be read: none, half of one, one that seems to end there, none of its text, broken
/// text, and the error page of something in between.
const UNREADABLE: [&str; 6] = ["drop", "cut", "short", "empty", "garbage", "page"];

/// A region of the world with the provider under test on it.
pub struct Ec2Harness {
    region: Arc<Region>,
    sessions: Sessions,
    timer: TokioTimer,
    secret: SecretFile,
    /// In which of its ways each fault happens.
    way: usize,
    ways: Arc<AtomicUsize>,
}

impl Ec2Harness {
    /// A region to itself. Whether there is a world has to be asked before, see [`world::ready`].
    ///
    /// # Panics
    /// There is no world.
    pub fn new() -> Self {
        Self::in_way(0, &Arc::default())
    }

    /// The same, where each fault that can happen in several ways (no answer, half of one, a broken one) happens in
    /// this one of them, counted from 0. The most ways that any fault asked for has are told to `ways`.
    ///
    /// # Panics
    /// There is no world.
    pub fn in_way(way: usize, ways: &Arc<AtomicUsize>) -> Self {
        let region = Arc::new(Region::take().expect("there is a world, as was asked before"));
        Self::calm(&region);
        let sessions = Sessions::new(Arc::clone(&region));
        let timer = TokioTimer::starting_at(SystemTime::now());
        Self { region, sessions, timer, secret: SecretFile::new(), way, ways: Arc::clone(ways) }
    }

    /// How EC2 is on a good day: nothing is there at once, and addresses are used again.
    fn calm(region: &Region) {
        region.config(
            &json!({ "lag_s": 0.3, "id_lag_s": 0.2, "pending_s": 0.1, "page": 0, "addresses": "10.9.8." }),
        );
    }

    fn booted(&self, changes: &Value, settings: Value) -> NodeTemplate {
        let boot = BootSpec { via: None, settings };
        NodeTemplate { boot, ..template(shape(&self.region, changes)) }
    }

    fn fault(&self, rule: &Value) {
        self.region.faults(&json!([rule]));
    }

    /// A fault in one of its ways.
    fn one_of(&self, rules: &[Value]) {
        self.ways.fetch_max(rules.len(), Ordering::Relaxed);
        self.fault(&rules[self.way % rules.len()]);
    }
}

impl Default for Ec2Harness {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Ec2Harness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ec2Harness")
    }
}

#[async_trait]
impl Harness for Ec2Harness {
    const VIRTUAL_TIME: bool = false;
    const SKIPS: Option<&'static [&'static str]> = Some(&[]);

    fn executor(&self) -> Executor {
        let target =
            Target { region: Some(self.region.name.to_owned()), endpoint_url: Some(self.region.url()) };
        let leases = Ec2Provider::new(Ec2Config { targets: vec![target], ..config() });
        Executor::new(Arc::new(leases), Arc::new(self.sessions.clone()))
    }

    fn timer(&self) -> Arc<dyn Timer> {
        Arc::new(self.timer)
    }

    fn template(&self, plan: NodePlan) -> NodeTemplate {
        let settings = match plan {
            NodePlan::Joins => json!({}),
            NodePlan::NeverJoins => json!({ "never": true }),
            NodePlan::Exits(status) => json!({ "exits": status }),
        };
        self.booted(&json!({}), settings)
    }

    fn flawed(&self) -> Option<(NodeTemplate, String)> {
        let shape = shape(&self.region, &json!({ "metadata": { "hop_limit": 0 } }));
        Some((template(shape), "/shape/metadata/hop_limit".to_owned()))
    }

    fn reserved(&self) -> Option<(NodeTemplate, String)> {
        let shape = shape(&self.region, &json!({ "tags": { "reconciler/run": "mine" } }));
        Some((template(shape), "/shape/tags/reconciler~1run".to_owned()))
    }

    fn secretive(&self, key: &AttemptKey) -> Option<(LogicalNodeSpec, String)> {
        // The one secret that an instance has to do with: the key to log in with. Its tags carry the reference.
        let login = json!({ "user": "admin", "key": self.secret.reference() });
        let changes = json!({ "endpoint": { "login": login } });
        let template = Arc::new(self.booted(&changes, json!({ "exits": 1 })));
        Some((LogicalNodeSpec::of(key.node.clone(), template), self.secret.value().to_owned()))
    }

    async fn inventory(&self) -> Inventory {
        let leases = self.region.living().into_iter().map(|one| HeldLease {
            id: LeaseId(one.id),
            owner: one.owner.map_or(LeaseOwner::Incomplete, LeaseOwner::Attempt),
        });
        let sessions = self.sessions.running().into_iter();
        Inventory {
            leases: leases.collect(),
            sessions: sessions.map(|(id, owner)| HeldSession { id, owner }).collect(),
        }
    }

    async fn inject(&self, fault: Injection) -> Result<(), CannotInject> {
        match fault {
            Injection::LoseCreateAnswer => self.one_of(&launches(&UNREADABLE, "after")),
            // Whatever stands before EC2 may have words of its own.
            Injection::SwallowCreate => self.one_of(&launches(&["drop", "empty", "page"], "before")),
            Injection::LandCreateLate => {
                self.fault(&json!({ "action": "RunInstances", "kind": "delay", "s": GIVEN_UP + 0.3 }));
            }
            Injection::SlowCreate => self.fault(&json!({ "action": "RunInstances", "kind": "hang", "s": 9 })),
            Injection::MakeTwice => self.fault(&json!({ "action": "RunInstances", "kind": "twice" })),
            Injection::RefuseCreate(kind) => self.fault(&refusal(kind)?),
            Injection::LoseStartAnswer => {
                self.sessions.lose_next_answer();
            }
            Injection::FailReads => self.one_of(&reads(0)),
            Injection::ThrottleReads => self.fault(&throttled()),
            Injection::EmptyPage => self.fault(&json!({ "action": "DescribeInstances", "kind": "blank" })),
            Injection::HalveListing => {
                self.region.config(&json!({ "page": 2 }));
                self.one_of(&reads(1));
            }
            Injection::GarbleCreate => {
                let mut rules = launches(&["error", "garbage", "empty"], "before");
                rules[0]["code"] = json!("SomethingNew");
                self.one_of(&rules);
            }
            Injection::WithholdEndpoint => self.region.config(&json!({ "pending_s": 3600.0 })),
            Injection::ExpireCredentials => {
                self.fault(&json!({ "action": "*", "kind": "error", "code": "RequestExpired", "times": -1 }));
            }
            Injection::SmallPages => self.region.config(&json!({ "page": 2 })),
            Injection::ShiftPages => {
                self.region.config(&json!({ "page": 2 }));
                self.fault(&json!({ "action": "DescribeInstances", "kind": "forget-first", "skip": 1 }));
            }
            Injection::Heal => {
                self.region.faults(&json!([]));
                Self::calm(&self.region);
            }
            Injection::RemoveByHand(lease) => {
                self.region.steer(&json!({ "forget": lease.0 }));
            }
            Injection::Kill(lease) => {
                let end = json!({ "instance_id": lease.0, "code": "Server.InternalError", "message": "" });
                self.region.steer(&json!({ "end": end }));
            }
            Injection::Move(lease) => {
                self.region.steer(&json!({ "move": lease.0 }));
            }
            other => return Err(CannotInject::because(format!("this world knows no {other:?}"))),
        }
        Ok(())
    }

    async fn clean_up(&self) {
        self.region.reset();
    }

    fn call_timeout(&self) -> Duration {
        CALL * 2
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(4)
    }

    fn pace(&self) -> Duration {
        Duration::from_millis(50)
    }
}

/// The next launch comes to this: before it is acted upon, or after.
fn launches(kinds: &[&str], when: &str) -> Vec<Value> {
    let rules = kinds.iter().map(|kind| json!({ "action": "RunInstances", "when": when, "kind": kind }));
    rules.collect()
}

/// The ways in which reads fail from the one after `skip` on.
fn reads(skip: u32) -> Vec<Value> {
    let broken = UNREADABLE.iter().map(|kind| {
        json!({ "action": "DescribeInstances", "when": "after", "kind": kind, "skip": skip, "times": -1 })
    });
    std::iter::once(unreadable(skip)).chain(broken).collect()
}

/// Reads fail from the one after `skip` on, and EC2 says so.
fn unreadable(skip: u32) -> Value {
    json!({ "action": "DescribeInstances", "kind": "error", "status": 500, "code": "InternalError",
            "skip": skip, "times": -1 })
}

/// Reads are refused for coming too often.
fn throttled() -> Value {
    json!({ "action": "DescribeInstances", "kind": "error", "status": 503, "code": "RequestLimitExceeded",
            "times": -1 })
}

/// How EC2 says it.
fn refusal(kind: ExecutorErrorKind) -> Result<Value, CannotInject> {
    let launch =
        |code: &str| json!({ "action": "RunInstances", "kind": "error", "status": 400, "code": code });
    Ok(match kind {
        ExecutorErrorKind::Rejected(RejectReason::Validation) => launch("InvalidAMIID.NotFound"),
        ExecutorErrorKind::Rejected(RejectReason::Quota) => launch("VcpuLimitExceeded"),
        ExecutorErrorKind::Rejected(RejectReason::Authorisation) => launch("UnauthorizedOperation"),
        ExecutorErrorKind::Rejected(RejectReason::Capacity) => launch("InsufficientInstanceCapacity"),
        ExecutorErrorKind::Throttled { retry_after } => {
            let mut rule = launch("RequestLimitExceeded");
            if let Some(after) = retry_after {
                rule["retry_after"] = json!(after.as_secs());
            }
            rule
        }
        // The lookup before the launch fails, so that nothing is launched.
        ExecutorErrorKind::Unavailable => unreadable(0),
        ExecutorErrorKind::Gone | ExecutorErrorKind::Ambiguous => {
            return Err(CannotInject::because(format!("{kind} is no refusal")));
        }
    })
}
