//! The lease half: machines made, found, listed and given back.

use async_trait::async_trait;
use executor_api::{
    AttemptKey, CreateMode, CreateOutcome, Endpoint, EndpointAuth, EndpointLookup, ExecutorError,
    ExecutorErrorKind, FoundLease, LeaseFacts, LeaseOwner, LeaseProvider, Life, ListedLease, Listing,
    LogicalNodeSpec, NodeTemplate, OperationContext, OperationKind, ProviderName, Reading, RejectReason,
    RunId, RunNodeGroupSpec, SpecProblem, Visibility, labels,
};

use crate::cloud::{Machine, Session};
use crate::{Template, failed, unreachable};

#[async_trait]
impl LeaseProvider for Template {
    fn name(&self) -> ProviderName {
        #[expect(clippy::expect_used, reason = "a lowercase word is a provider name")]
        ProviderName::new("template").expect("`template` is a provider name")
    }

    // How long a read may miss something that exists, and how long a request that was given up may still be
    // carried out. Zero is a strong claim: it is true here because a request is one turn at a lock. Ask your
    // provider's documentation, then add some.
    fn visibility(&self) -> Visibility {
        Visibility::default()
    }

    // Everything that can be known to be wrong before anything is made, each problem at its place in the user's
    // file. Unknown keys are problems: a misspelt one would otherwise be silently without effect.
    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        let found = problems(&group.template);
        if found.is_empty() { Ok(()) } else { Err(found) }
    }

    // Look first, whatever the mode: the attempt may hold a machine whose answer was lost, made by an instance of
    // this provider that is no more. Two creates at once must not both make one; see `Cloud::request`.
    async fn create(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, ExecutorError> {
        let effect = OperationKind::CreateLease;
        // Who validated this, and which version of the provider did, is not known here.
        if let Some(problem) = problems(&desired.template).pop() {
            let kind = ExecutorErrorKind::Rejected(RejectReason::Validation);
            return Err(failed(kind, effect, ctx, &format!("{}: {}", problem.pointer, problem.message)));
        }
        let as_of = self.timer.now();
        let answer = self.cloud.request(|machines| match machines.get(&ctx.attempt) {
            Some(machine) => Some(machine.clone()),
            // Adopt-only never makes anything: the driver asks so when it wants to clean up.
            None if mode == CreateMode::AdoptOnly => None,
            None => {
                // Names and tokens come from the identity alone. With a clock or a counter in them, a repeat
                // after a restart would make a second machine.
                let id = executor_api::LeaseId(ctx.identity().resource_name);
                let fresh = Machine { id, made: as_of, alive: true, session: Session::None };
                Some(machines.entry(ctx.attempt.clone()).or_insert(fresh).clone())
            }
        });
        match answer.map_err(unreachable(effect, ctx))? {
            None => Ok(CreateOutcome::Absent { as_of }),
            // A dead lease is never returned and never replaced: the next attempt has a token of its own.
            Some(dead) if !dead.alive => {
                Err(failed(ExecutorErrorKind::Gone, effect, ctx, "its machine is dead"))
            }
            Some(machine) => {
                Ok(CreateOutcome::Leased { lease: self.facts(&machine), endpoint: Some(endpoint()) })
            }
        }
    }

    // Three answers. "I could not read" is `Unknown`, and never, never `Absent`: on `Absent` the driver makes
    // another one.
    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundLease> {
        let as_of = self.timer.now();
        match self.cloud.request(|machines| machines.get(attempt).cloned()) {
            Err(_) => Reading::Unknown { reason: "the cloud cannot be reached".to_owned(), as_of },
            Ok(None) => Reading::Absent { as_of },
            Ok(Some(machine)) => {
                let facts = FoundLease { lease: self.facts(&machine), endpoint: Some(endpoint()) };
                Reading::Present { facts, life: life(&machine), as_of }
            }
        }
    }

    // `NotReady` while it boots; `Gone` once it is dead, so that nobody waits for an address of the dead.
    async fn lookup_endpoint(
        &self,
        ctx: &OperationContext,
        lease: &LeaseFacts,
    ) -> Result<EndpointLookup, ExecutorError> {
        let effect = OperationKind::LookupEndpoint;
        let found = self.cloud.request(|machines| machines.get(&ctx.attempt).cloned());
        match found.map_err(unreachable(effect, ctx))? {
            Some(machine) if machine.alive && machine.id == lease.lease_id => {
                Ok(EndpointLookup::Found(endpoint()))
            }
            _ => Err(failed(ExecutorErrorKind::Gone, effect, ctx, "its machine is gone")),
        }
    }

    // Only what is this attempt's own, whatever id was handed in. Already gone is success. Return when it *is*
    // gone, not when the removal was accepted: the driver starts the next attempt upon it.
    async fn destroy(&self, ctx: &OperationContext, lease: &LeaseFacts) -> Result<(), ExecutorError> {
        let destroyed = self.cloud.request(|machines| {
            if machines.get(&ctx.attempt).is_some_and(|machine| machine.id == lease.lease_id) {
                machines.remove(&ctx.attempt);
            }
        });
        destroyed.map_err(unreachable(OperationKind::DestroyLease, ctx))
    }

    // By the run's *name*: leases of another uid of the run are shown, so that an operator can see them.
    // `complete` says that every page was read; with a page missing it must be false.
    async fn list(&self, run: &RunId) -> Result<Listing, ExecutorError> {
        let listed = |(key, machine): (&AttemptKey, &Machine)| ListedLease {
            owner: LeaseOwner::Attempt(key.clone()),
            lease: self.facts(machine),
            endpoint: Some(endpoint()),
            life: life(machine),
            reason: (!machine.alive).then(|| "it died".to_owned()),
        };
        let leases = self.cloud.request(|machines| {
            machines.iter().filter(|(key, _)| key.run.name() == run.name()).map(listed).collect()
        });
        let leases = leases.map_err(|_| {
            let context = format!("cannot list {}={}", labels::RUN, run.name());
            ExecutorError::new(ExecutorErrorKind::Unavailable, OperationKind::LookupEndpoint, context)
        })?;
        Ok(Listing { as_of: self.timer.now(), complete: true, leases })
    }
}

impl Template {
    /// What the driver stores of a machine. Never a secret.
    fn facts(&self, machine: &Machine) -> LeaseFacts {
        LeaseFacts {
            lease_id: machine.id.clone(),
            provider: LeaseProvider::name(self),
            created_at: Some(machine.made),
            attributes: [].into(),
        }
    }
}

fn problems(template: &NodeTemplate) -> Vec<SpecProblem> {
    let keys = template.shape.as_object().into_iter().flat_map(|shape| shape.keys());
    let unknown = keys.filter(|key| *key != "size");
    unknown.map(|key| SpecProblem::new(format!("/shape/{key}"), "there is only `size` to choose")).collect()
}

fn life(machine: &Machine) -> Life {
    if machine.alive { Life::Live } else { Life::Dead }
}

/// An address is where a node can be reached, never who it is: it may be somebody else's tomorrow.
fn endpoint() -> Endpoint {
    Endpoint { host: "127.0.0.1".to_owned(), port: 22, auth: EndpointAuth::None, ports: [].into() }
}
