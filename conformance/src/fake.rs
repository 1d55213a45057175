//! The harness of the fake executor: virtual time, ground truth, and every fault that a case can ask for.
//! Also what a sabotaged executor is tried on, which proves that the suite bites.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use executor_api::{
    AttemptKey, Executor, ExecutorErrorKind, LogicalNodeSpec, NodeTemplate, Timer, Visibility,
};
use executor_fake::{CallKind, FakeBehaviour, FakeProvider, FakeWorld, Fault, Rule, Silence};
use serde_json::json;

use crate::harness::{
    CannotInject, Harness, HeldLease, HeldSession, Injection, Inventory, NodePlan, template,
};
use crate::secret::SecretFile;
use crate::time::TokioTimer;

type Wrap = Arc<dyn Fn(&FakeWorld) -> Executor + Send + Sync>;

/// A fresh fake world for one case.
pub struct FakeHarness {
    world: FakeWorld,
    timer: Arc<dyn Timer>,
    wrap: Wrap,
    secret: SecretFile,
}

impl FakeHarness {
    /// A world that shows everything at once, and in which a call that was given up has no effect.
    pub fn crisp() -> Self {
        Self::with(FakeBehaviour::default(), Arc::new(FakeWorld::executor))
    }

    /// A world whose listings lag, whose ids are unknown at first, and in which calls land late.
    pub fn hazy() -> Self {
        Self::with(hazy(), Arc::new(FakeWorld::executor))
    }

    /// An executor of one's own making on a hazy world.
    pub fn sabotaged(wrap: impl Fn(&FakeWorld) -> Executor + Send + Sync + 'static) -> Self {
        Self::with(hazy(), Arc::new(wrap))
    }

    fn with(behaviour: FakeBehaviour, wrap: Wrap) -> Self {
        let timer: Arc<dyn Timer> = Arc::new(TokioTimer::fixed());
        Self { world: FakeWorld::new(Arc::clone(&timer), behaviour), timer, wrap, secret: SecretFile::new() }
    }

    fn script(&self, call: CallKind, fault: Fault) -> Result<(), CannotInject> {
        self.rule(Rule::new(call, fault))
    }

    fn rule(&self, rule: Rule) -> Result<(), CannotInject> {
        self.world.script(rule).map_err(|unsuited| CannotInject::because(unsuited.to_string()))
    }
}

fn hazy() -> FakeBehaviour {
    FakeBehaviour {
        visibility: Visibility { listing_lag: Duration::from_secs(10), late_landing: Duration::from_secs(8) },
        direct_lag: Duration::from_secs(4),
        ..FakeBehaviour::default()
    }
}

impl fmt::Debug for FakeHarness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeHarness")
    }
}

#[async_trait]
impl Harness for FakeHarness {
    const VIRTUAL_TIME: bool = true;

    fn executor(&self) -> Executor {
        (self.wrap)(&self.world)
    }

    fn timer(&self) -> Arc<dyn Timer> {
        Arc::clone(&self.timer)
    }

    fn template(&self, plan: NodePlan) -> NodeTemplate {
        let settings = match plan {
            NodePlan::Joins => json!({ "join": "3s" }),
            NodePlan::NeverJoins => json!({ "join": "never" }),
            NodePlan::Exits(status) => json!({ "exit": { "after": "1s", "status": status } }),
        };
        template(FakeProvider::NAME, json!({ "create": "2s", "endpoint": "1s" }), settings)
    }

    fn flawed(&self) -> Option<(NodeTemplate, String)> {
        Some((template(FakeProvider::NAME, json!({ "creaet": "2s" }), json!({})), "/shape/creaet".to_owned()))
    }

    fn reserved(&self) -> Option<(NodeTemplate, String)> {
        let shape = json!({ "labels": { executor_api::labels::RUN: "mine" } });
        Some((template(FakeProvider::NAME, shape, json!({})), "/shape/labels/reconciler~1run".to_owned()))
    }

    fn secretive(&self, key: &AttemptKey) -> Option<(LogicalNodeSpec, String)> {
        let mut desired = self.desired(key, NodePlan::Exits(1));
        let template = Arc::make_mut(&mut desired.template);
        template.boot.settings["secret"] = serde_json::to_value(self.secret.reference()).ok()?;
        Some((desired, self.secret.value().to_owned()))
    }

    async fn inventory(&self) -> Inventory {
        let leases = self.world.existing_leases().into_iter();
        let sessions = self.world.sessions().into_iter().filter(executor_fake::SessionTruth::runs);
        Inventory {
            leases: leases.map(|lease| HeldLease { id: lease.id, owner: lease.owner }).collect(),
            sessions: sessions.map(|s| HeldSession { id: s.id, owner: s.owner }).collect(),
        }
    }

    async fn inject(&self, fault: Injection) -> Result<(), CannotInject> {
        let late = self.world.executor().leases().visibility().late_landing;
        match fault {
            Injection::LoseCreateAnswer => self.script(CallKind::Create, Fault::AnswerLost(Silence::Hangs)),
            Injection::SwallowCreate => self.script(CallKind::Create, Fault::NotActed(Silence::Hangs)),
            Injection::LandCreateLate if late.is_zero() => {
                Err(CannotInject::because("in this world nothing lands late"))
            }
            Injection::LandCreateLate => {
                let fault = Fault::LandsLate { after: late / 2, silence: Silence::Hangs };
                self.script(CallKind::Create, fault)
            }
            Injection::SlowCreate => self.script(CallKind::Create, Fault::Slow(1000)),
            Injection::MakeTwice => self.script(CallKind::Create, Fault::MadeTwice),
            Injection::RefuseCreate(kind) => self.script(CallKind::Create, refusal(kind)?),
            Injection::LoseStartAnswer => self.script(CallKind::Start, Fault::AnswerLost(Silence::Hangs)),
            // Why a read tells nothing makes no difference here.
            Injection::FailReads | Injection::ThrottleReads => {
                self.rule(Rule::new(CallKind::FindLease, Fault::Unknown).always())?;
                self.rule(Rule::new(CallKind::List, Fault::Unknown).always())
            }
            Injection::GarbleCreate => self.script(CallKind::Create, Fault::AnswerLost(Silence::Ambiguous)),
            Injection::WithholdEndpoint => self.script(CallKind::Create, Fault::NoEndpoint),
            Injection::ExpireCredentials => {
                use CallKind::{
                    Cancel, Complete, Create, Destroy, FindLease, FindSession, List, Lookup, Start,
                };
                let calls = [Cancel, Complete, Create, Destroy, FindLease, FindSession, List, Lookup, Start];
                calls.into_iter().try_for_each(|call| self.rule(Rule::new(call, Fault::Expired).always()))
            }
            Injection::SmallPages => {
                self.world.set_page(Some(2));
                Ok(())
            }
            Injection::EmptyPage => {
                self.world.empty_page();
                Ok(())
            }
            Injection::ShiftPages => {
                self.world.shift_pages();
                Ok(())
            }
            Injection::HalveListing => self.script(CallKind::List, Fault::Incomplete),
            Injection::Heal => {
                self.world.clear_faults();
                Ok(())
            }
            Injection::RemoveByHand(lease) => {
                self.world.vanish(&lease);
                Ok(())
            }
            Injection::Kill(lease) => {
                self.world.kill(&lease, "died by itself");
                Ok(())
            }
            Injection::Move(lease) => {
                self.world.move_lease(&lease);
                Ok(())
            }
        }
    }

    async fn clean_up(&self) {
        for lease in self.world.existing_leases() {
            self.world.vanish(&lease.id);
        }
    }
}

fn refusal(kind: ExecutorErrorKind) -> Result<Fault, CannotInject> {
    match kind {
        ExecutorErrorKind::Rejected(reason) => Ok(Fault::Rejected(reason)),
        ExecutorErrorKind::Throttled { retry_after } => Ok(Fault::Throttled { retry_after }),
        ExecutorErrorKind::Unavailable => Ok(Fault::Unavailable),
        ExecutorErrorKind::Gone | ExecutorErrorKind::Ambiguous => {
            Err(CannotInject::because(format!("{kind} is no refusal")))
        }
    }
}
