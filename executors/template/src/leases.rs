//! The lease half: machines seen, made and removed.

use async_trait::async_trait;
use executor_api::spec::unknown_keys;
use executor_api::world::{LeaseWorld, Trouble};
use executor_api::{
    AttemptKey, Endpoint, LeaseFacts, LeaseId, LeaseOwner, Life, ListedLease, LogicalNodeSpec, NodeTemplate,
    OperationContext, ProviderName, RunId, SpecProblem, Visibility,
};

use crate::{Machine, Template};

#[async_trait]
impl LeaseWorld for Template {
    fn name(&self) -> ProviderName {
        #[expect(clippy::expect_used, reason = "a lowercase word is a provider name")]
        ProviderName::new(Self::NAME).expect("a lowercase word is a provider name")
    }

    // How long a read may miss something that exists, and how long a request that was given up may still be
    // carried out. Zero is a strong claim: it is true here because a request is one turn at a lock. Ask your
    // provider's documentation, then add some.
    fn visibility(&self) -> Visibility {
        Visibility::default()
    }

    // Everything that can be known to be wrong before anything is made, each problem at its place in the user's
    // file. Unknown keys are problems: a misspelt one would otherwise be silently without effect.
    fn shape_flaws(&self, template: &NodeTemplate) -> Vec<SpecProblem> {
        unknown_keys("/shape", &template.shape, &["size"])
    }

    // By the run's *name*: machines of another uid of the run are shown, so that an operator can see them. An error
    // is an error, and never, never an empty list: on "nothing there" the driver makes another one.
    async fn list(&self, run: &RunId) -> Result<Vec<ListedLease>, Trouble> {
        self.cloud.request(|machines| {
            let named = machines.iter().filter(|(owner, _)| owner.run.name() == run.name());
            named.map(|(owner, machine)| self.seen(owner, machine)).collect()
        })
    }

    // One step of the world. Two that look at once both see nothing and both come here; the second is given what the
    // first one made. The name comes from the identity alone: with a clock or a counter in it, a repeat after a
    // restart would make a second machine.
    async fn make(&self, ctx: &OperationContext, _: &LogicalNodeSpec) -> Result<ListedLease, Trouble> {
        let id = LeaseId(ctx.identity().resource_name);
        let fresh = Machine { id, made: self.timer.now(), alive: true, session: None };
        self.cloud.request(|machines| {
            let machine = machines.entry(ctx.attempt.clone()).or_insert(fresh);
            self.seen(&ctx.attempt, machine)
        })
    }

    // Return when it *is* gone, not when the removal was accepted: the driver starts the next attempt upon it.
    async fn remove(&self, attempt: &AttemptKey, _: &ListedLease) -> Result<(), Trouble> {
        self.cloud.request(|machines| drop(machines.remove(attempt)))
    }
}

impl Template {
    /// A machine as the driver knows it. What is stored of it (`attributes`) is never a secret; the address is where
    /// it can be reached, never who it is, for it may be somebody else's tomorrow, and `None` while there is none.
    fn seen(&self, owner: &AttemptKey, machine: &Machine) -> ListedLease {
        ListedLease {
            owner: LeaseOwner::Attempt(owner.clone()),
            lease: LeaseFacts {
                lease_id: machine.id.clone(),
                provider: self.name(),
                created_at: Some(machine.made),
                attributes: [].into(),
            },
            endpoint: Some(Endpoint::at("127.0.0.1", 22)),
            life: if machine.alive { Life::Live } else { Life::Dead },
            reason: (!machine.alive).then(|| "it died".to_owned()),
        }
    }
}
