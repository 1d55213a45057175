//! The suite's harness of this provider. It is the other half of what an author copies: how to make a fresh world,
//! what is in it, and how it can go wrong.

use std::sync::Arc;

use async_trait::async_trait;
use conformance::{
    CannotInject, Harness, HeldLease, HeldSession, Injection, Inventory, Losses, NodePlan, TokioTimer,
    template,
};
use executor_api::{BootstrapSessionId, Executor, ExecutorErrorKind, LeaseOwner, NodeTemplate, Timer};
use serde_json::{Value, json};

use crate::{Cloud, Machine, Template};

/// A fresh world, and the provider on it.
#[derive(Debug)]
pub struct TemplateHarness {
    cloud: Arc<Cloud>,
    losses: Arc<Losses>,
    timer: Arc<dyn Timer>,
}

impl TemplateHarness {
    /// A world without any machine.
    #[expect(clippy::new_without_default, reason = "a harness is made by name, anew for every case")]
    pub fn new() -> Self {
        Self { cloud: Arc::default(), losses: Arc::default(), timer: Arc::new(TokioTimer::fixed()) }
    }

    fn machines(&self, each: impl FnMut(&mut Machine)) {
        let _ = self.cloud.request(|machines| machines.values_mut().for_each(each));
    }
}

#[async_trait]
impl Harness for TemplateHarness {
    // The provider waits through the harness's timer alone, so that an hour of waiting costs nothing.
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
        "absent::a_throttled_read_proves_no_absence",
        "listing::every_page_is_read",
        "listing::a_page_with_nothing_on_it_is_not_the_last",
        "listing::pages_that_shift_hide_nothing",
        "errors::a_throttle_says_how_long",
        "errors::a_refused_create_made_nothing",
        "cancellation::a_call_ends_by_its_deadline",
        "listing::an_incomplete_listing_says_so",
    ]);

    // A new instance each time, on the same world: a restart of the driver. `Losses` loses requests and answers on
    // the way, which is three faults for nothing.
    fn executor(&self) -> Executor {
        self.losses.before(Template::executor(Arc::clone(&self.cloud), Arc::clone(&self.timer)))
    }

    fn timer(&self) -> Arc<dyn Timer> {
        Arc::clone(&self.timer)
    }

    // What the cases call a node that joins, hangs or exits, in this provider's own words.
    fn template(&self, plan: NodePlan) -> NodeTemplate {
        let boot = match plan {
            NodePlan::Joins => json!({ "joins": true }),
            NodePlan::NeverJoins => Value::Null,
            NodePlan::Exits(status) => json!({ "exits": status }),
        };
        template(Template::NAME, json!({ "size": "small" }), boot)
    }

    fn flawed(&self) -> Option<(NodeTemplate, String)> {
        let flawed = template(Template::NAME, json!({ "siez": "small" }), Value::Null);
        Some((flawed, "/shape/siez".to_owned()))
    }

    // Asked of the world, not of the provider: one that forgets a machine must not be able to hide it.
    async fn inventory(&self) -> Inventory {
        let mut found = Inventory::default();
        let machines = self.cloud.request(|machines| machines.clone()).unwrap_or_default();
        for (owner, machine) in machines.into_iter().filter(|(_, machine)| machine.alive) {
            if machine.session.is_some_and(|session| !session.is_over()) {
                let id = BootstrapSessionId(format!("{}/session", machine.id));
                found.sessions.push(HeldSession { id, owner: owner.clone() });
            }
            found.leases.push(HeldLease { id: machine.id, owner: LeaseOwner::Attempt(owner) });
        }
        found
    }

    // What can go wrong here. What cannot says why not, and the cases that need it are skipped with these words.
    async fn inject(&self, fault: Injection) -> Result<(), CannotInject> {
        match fault {
            fault if self.losses.cause(&fault) => {}
            Injection::FailReads | Injection::RefuseCreate(ExecutorErrorKind::Unavailable) => {
                self.cloud.set_down(true);
            }
            Injection::Heal => self.cloud.set_down(false),
            Injection::Kill(lease) => self.machines(|machine| machine.alive &= machine.id != lease),
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
