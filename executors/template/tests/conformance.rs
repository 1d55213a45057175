//! The template passes the suite. This file is the other half of what an author copies: a harness says how to
//! make a fresh world, what is in it, and how it can go wrong.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use conformance::{
    CannotInject, Harness, HeldLease, HeldSession, Injection, Inventory, Losses, NodePlan, TokioTimer,
};
use executor_api::{
    AttemptKey, BootSpec, BootstrapSessionId, Executor, ExecutorErrorKind, GroupId, JoinSpec, LeaseId,
    LeaseOwner, LogicalNodeSpec, NodeRole, NodeTemplate, ProviderName, Timer,
};
use executor_template::{Cloud, Session, Template};
use serde_json::{Value, json};

#[derive(Debug)]
struct TemplateHarness {
    cloud: Arc<Cloud>,
    losses: Arc<Losses>,
    timer: Arc<dyn Timer>,
}

impl TemplateHarness {
    fn new() -> Self {
        let epoch = SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 365);
        Self {
            cloud: Arc::default(),
            losses: Arc::default(),
            timer: Arc::new(TokioTimer::starting_at(epoch)),
        }
    }

    fn kill(&self, lease: &LeaseId) {
        let _ = self.cloud.request(|machines| {
            machines
                .values_mut()
                .filter(|machine| machine.id == *lease)
                .for_each(|machine| machine.alive = false);
        });
    }
}

#[async_trait]
impl Harness for TemplateHarness {
    // The executor waits through the harness's timer alone, so that an hour of waiting costs nothing.
    const VIRTUAL_TIME: bool = true;

    // A skip is only as good as its reason. Listed here, none can come in unseen.
    const SKIPS: Option<&'static [&'static str]> = Some(&[
        "adoption::a_lease_that_lands_late_is_adopted",
        "adoption::of_two_leases_one_is_kept",
        "lease_life::a_moved_lease_is_listed_where_it_is",
        "lease_life::an_endpoint_that_does_not_come_is_waited_for",
        "identity::a_reserved_label_is_refused",
        "absent::expired_credentials_prove_no_absence",
        "errors::an_invalid_request_is_told",
        "errors::a_used_up_quota_is_told",
        "errors::a_missing_right_is_told",
        "errors::a_lack_of_capacity_is_told",
        "errors::expired_credentials_are_a_refusal",
        "errors::an_answer_that_nobody_understands_is_ambiguous",
        "errors::no_text_tells_a_secret",
        "listing::every_page_is_read",
        "listing::pages_that_shift_hide_nothing",
        "errors::a_throttle_says_how_long",
        "errors::a_refused_create_made_nothing",
        "cancellation::a_call_ends_by_its_deadline",
        "listing::an_incomplete_listing_says_so",
    ]);

    // A new instance each time, on the same world: a restart of the driver.
    fn executor(&self) -> Executor {
        self.losses.before(Template::executor(Arc::clone(&self.cloud), Arc::clone(&self.timer)))
    }

    fn timer(&self) -> Arc<dyn Timer> {
        Arc::clone(&self.timer)
    }

    // What the cases call a node that joins, hangs or exits, in this provider's own words.
    fn desired(&self, key: &AttemptKey, plan: NodePlan) -> LogicalNodeSpec {
        let boot = match plan {
            NodePlan::Joins => json!({ "joins": true }),
            NodePlan::NeverJoins => Value::Null,
            NodePlan::Exits(status) => json!({ "exits": status }),
        };
        let (group, index) = key.node.as_str().rsplit_once('-').unwrap();
        LogicalNodeSpec {
            id: key.node.clone(),
            group: GroupId::new(group).unwrap(),
            index: index.parse().unwrap(),
            template: Arc::new(template(json!({ "size": "small" }), boot)),
        }
    }

    fn flawed(&self) -> Option<(NodeTemplate, String)> {
        Some((template(json!({ "siez": "small" }), Value::Null), "/shape/siez".to_owned()))
    }

    // Asked of the world, not of the executor: a provider that forgets a machine must not be able to hide it.
    async fn inventory(&self) -> Inventory {
        let machines = self.cloud.request(|machines| machines.clone()).unwrap_or_default();
        let runs = |session: &Session| matches!(session, Session::Running | Session::Joined(_));
        Inventory {
            leases: machines
                .iter()
                .filter(|(_, machine)| machine.alive)
                .map(|(key, machine)| HeldLease {
                    id: machine.id.clone(),
                    owner: LeaseOwner::Attempt(key.clone()),
                })
                .collect(),
            sessions: machines
                .iter()
                .filter(|(_, machine)| machine.alive && runs(&machine.session))
                .map(|(key, machine)| HeldSession {
                    id: BootstrapSessionId(format!("{}/session", machine.id)),
                    owner: key.clone(),
                })
                .collect(),
        }
    }

    // What can go wrong here. What cannot says why not, and the cases that need it are skipped with these words.
    async fn inject(&self, fault: Injection) -> Result<(), CannotInject> {
        match fault {
            // Requests and answers that get lost on the way come for nothing.
            fault if self.losses.cause(&fault) => {}
            Injection::FailReads | Injection::RefuseCreate(ExecutorErrorKind::Unavailable) => {
                self.cloud.set_down(true);
            }
            Injection::Heal => self.cloud.set_down(false),
            Injection::Kill(lease) => self.kill(&lease),
            Injection::RemoveByHand(lease) => {
                let _ = self.cloud.request(|machines| machines.retain(|_, machine| machine.id != lease));
            }
            other => return Err(CannotInject::because(format!("a map in memory cannot suffer {other:?}"))),
        }
        Ok(())
    }

    async fn clean_up(&self) {
        self.cloud.set_down(false);
        let _ = self.cloud.request(std::collections::BTreeMap::clear);
    }
}

fn template(shape: Value, settings: Value) -> NodeTemplate {
    NodeTemplate {
        role: NodeRole::default(),
        provider: ProviderName::new("template").unwrap(),
        shape,
        boot: BootSpec { via: None, settings },
        join: JoinSpec::default(),
    }
}

conformance::suite!(TemplateHarness::new);
