//! The shared suite, on the world with late visibility, late landings and every fault that the front can make.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use conformance::{
    CASES, CannotInject, Harness, HeldLease, HeldSession, Injection, Inventory, NodePlan, TokioTimer,
    Verdict, run_suite,
};
use executor_api::{
    BootSpec, Executor, ExecutorErrorKind, LeaseId, LeaseOwner, NodeTemplate, RejectReason, Timer,
};
use executor_ec2::{Ec2Config, Ec2Provider, Target};
use serde_json::{Value, json};

use crate::bench::{CALL, config, shape, template};
use crate::joins::Sessions;
use crate::world::Region;

/// After how many seconds the provider gives a launch up by itself: the limit of one call in [`config`].
const GIVEN_UP: f64 = 3.0;

/// Cases that run side by side; each has a region of its own.
const SIDE_BY_SIDE: usize = 4;

struct Ec2Harness {
    region: Arc<Region>,
    sessions: Sessions,
    timer: TokioTimer,
}

impl Ec2Harness {
    fn new() -> Self {
        let region = Arc::new(Region::take().expect("there is a world, as was asked before"));
        region.config(&json!({ "lag_s": 0.3, "id_lag_s": 0.2, "pending_s": 0.1 }));
        let sessions = Sessions::new(Arc::clone(&region));
        Self { region, sessions, timer: TokioTimer::starting_at(SystemTime::now()) }
    }

    fn booted(&self, settings: Value) -> NodeTemplate {
        let boot = BootSpec { via: None, settings };
        NodeTemplate { boot, ..template(shape(&self.region, &json!({}))) }
    }

    fn fault(&self, rule: &Value) {
        self.region.faults(&json!([rule]));
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
        self.booted(settings)
    }

    fn flawed(&self) -> Option<(NodeTemplate, String)> {
        let shape = shape(&self.region, &json!({ "metadata": { "hop_limit": 0 } }));
        Some((template(shape), "/shape/metadata/hop_limit".to_owned()))
    }

    fn reserved(&self) -> Option<(NodeTemplate, String)> {
        let shape = shape(&self.region, &json!({ "tags": { "reconciler/run": "mine" } }));
        Some((template(shape), "/shape/tags/reconciler~1run".to_owned()))
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
            Injection::LoseCreateAnswer => {
                self.fault(&json!({ "action": "RunInstances", "when": "after", "kind": "drop" }));
            }
            Injection::SwallowCreate => self.fault(&json!({ "action": "RunInstances", "kind": "drop" })),
            Injection::LandCreateLate => {
                self.fault(&json!({ "action": "RunInstances", "kind": "delay", "s": GIVEN_UP + 0.3 }));
            }
            Injection::SlowCreate => self.fault(&json!({ "action": "RunInstances", "kind": "hang", "s": 9 })),
            Injection::MakeTwice => self.fault(&json!({ "action": "RunInstances", "kind": "twice" })),
            Injection::RefuseCreate(kind) => self.fault(&refusal(kind)?),
            Injection::LoseStartAnswer => {
                self.sessions.lose_next_answer();
            }
            Injection::FailReads => self.fault(&unreadable(0)),
            Injection::HalveListing => {
                self.region.config(&json!({ "page": 2 }));
                self.fault(&unreadable(1));
            }
            Injection::GarbleCreate => {
                self.fault(&json!({ "action": "RunInstances", "kind": "error", "code": "SomethingNew" }));
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
                self.region.config(&json!({ "page": 0 }));
                self.region.faults(&json!([]));
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
        self.region.steer(&json!({ "reset": true }));
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

/// Reads fail from the one after `skip` on.
fn unreadable(skip: u32) -> Value {
    json!({ "action": "DescribeInstances", "kind": "error", "status": 500, "code": "InternalError",
            "skip": skip, "times": -1 })
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

/// All cases in one test, and not one each through `conformance::suite!`: where there is no world, nothing is run and
/// nothing has failed, and they go side by side in regions of their own.
#[test]
fn the_shared_suite() {
    // Whether there is a world at all is settled before all of them find out.
    if Region::take().is_none() {
        return;
    }
    let next = AtomicUsize::new(0);
    let verdicts = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..SIDE_BY_SIDE)
            .map(|_| {
                scope.spawn(|| {
                    let mut done = Vec::new();
                    while let Some(case) = CASES.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let report =
                            run_suite(Ec2Harness::new, Some(case.name)).expect("the name is a case's");
                        done.extend(report.verdicts);
                    }
                    done
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(verdicts.len(), CASES.len());
    let told = |name: &str, verdict: &Verdict| match verdict {
        Verdict::Ok => None,
        Verdict::Failed(why) => Some(format!("FAILED {name}: {why}")),
        Verdict::Skipped(why) => Some(format!("skipped {name}: {why}")),
    };
    let mut not_ok: Vec<_> = verdicts.iter().filter_map(|(name, verdict)| told(name, verdict)).collect();
    not_ok.sort();
    // An instance is given no secret, and its address is EC2's to choose.
    let expected = [
        "skipped errors::no_text_tells_a_secret: nodes of this executor are given no secrets",
        "skipped lease_life::an_address_used_again_is_another_lease: the next lease has another address here",
    ];
    assert_eq!(not_ok, expected, "of {} cases", CASES.len());
}
