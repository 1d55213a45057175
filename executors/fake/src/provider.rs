//! The lease provider of the fake: a faithful executor on an unfaithful world. It adopts before it makes,
//! and proves before it says absent; what goes wrong, the world does.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use executor_api::{
    AttemptKey, CreateMode, CreateOutcome, EndpointLookup, Executor, ExecutorError, ExecutorErrorKind,
    FoundLease, LeaseFacts, LeaseId, LeaseProvider, Life, Listing, LogicalNodeSpec, OperationContext,
    OperationKind, ProviderName, Reading, RejectReason, RunId, RunNodeGroupSpec, SpecProblem, Visibility,
};

use crate::behaviour::NodeBehaviour;
use crate::call::Call;
use crate::faults::{CallKind, Fault};
use crate::settings;
use crate::world::FakeWorld;
use crate::world::state::{Act, Answer, CreateAct, State, later};

/// The fake executor: both traits on one [`FakeWorld`]. Holds nothing but the handle.
#[derive(Clone, Debug)]
pub struct FakeProvider {
    pub(crate) world: FakeWorld,
    pub(crate) name: ProviderName,
}

impl FakeProvider {
    /// The name under which specs ask for it.
    pub const NAME: &'static str = "fake";

    /// A provider on this world.
    #[expect(clippy::missing_panics_doc, reason = "the name is a constant")]
    pub fn new(world: FakeWorld) -> Self {
        #[expect(clippy::expect_used, reason = "NAME is a legal provider name")]
        let name = ProviderName::new(Self::NAME).expect("NAME is legal");
        Self { world, name }
    }

    /// Under another name, for clusters with several providers.
    #[must_use]
    pub fn named(mut self, name: ProviderName) -> Self {
        self.name = name;
        self
    }

    /// As the driver calls it.
    pub fn executor(&self) -> Executor {
        Executor::new(Arc::new(self.clone()), Arc::new(self.clone()))
    }

    /// What lookups show of an attempt: the leases that live, else one that is ending or dead.
    fn read(&self, attempt: &AttemptKey) -> Reading<FoundLease> {
        let fault = self.world.arrive(CallKind::FindLease, Some(attempt));
        if let Some(fault) = fault {
            self.world.fire(fault);
        }
        self.world.enter(|state| {
            let as_of = match fault {
                Some(Fault::Unknown) => {
                    let reason = "the provider's lookup cannot be read at present".to_owned();
                    return Reading::Unknown { reason, as_of: state.now };
                }
                Some(Fault::Expired) => {
                    let reason = "the credentials have expired".to_owned();
                    return Reading::Unknown { reason, as_of: state.now };
                }
                Some(Fault::Stale { by }) => earlier(state.now, by),
                _ => state.now,
            };
            let shown =
                state.leases_of(attempt).filter_map(|lease| Some((lease, state.shown(lease, as_of)?)));
            // Live before ending before dead; of equals the oldest.
            match shown.min_by_key(|(_, life)| *life) {
                Some((lease, life)) => {
                    let endpoint = lease.truth.endpoint.clone();
                    let facts = FoundLease { lease: lease.facts(&self.name), endpoint };
                    Reading::Present { facts, life, as_of }
                }
                None => Reading::Absent { as_of },
            }
        })
    }

    /// Destroys these leases and waits until nothing of them is left.
    async fn destroy_all(
        &self,
        call: &Call<'_>,
        attempt: &AttemptKey,
        ids: Vec<LeaseId>,
    ) -> Result<Vec<Answer>, ExecutorError> {
        let mut answers = Vec::new();
        for id in &ids {
            let takes = self.world.enter(|state| {
                let behaviour = state.lease(id).map(|lease| lease.behaviour.destroy);
                behaviour.unwrap_or(state.behaviour.node.destroy)
            });
            let takes = call.slowed(takes);
            let act = Act::Destroy { attempt: attempt.clone(), lease: id.clone(), takes };
            answers.push(call.act(std::time::Duration::ZERO, act).await?);
        }
        let over = self.world.enter(|state| ids.iter().filter_map(|id| state.lease(id)?.ends_at).max());
        if let Some(over) = over {
            call.pause_until(over).await?;
        }
        Ok(answers)
    }

    fn behaviour(&self, desired: &LogicalNodeSpec) -> Result<NodeBehaviour, Vec<SpecProblem>> {
        let base = self.world.enter(|state| state.behaviour.of(&desired.id));
        settings::overlay(base, &desired.template)
    }
}

#[async_trait]
impl LeaseProvider for FakeProvider {
    fn name(&self) -> ProviderName {
        self.name.clone()
    }

    fn visibility(&self) -> Visibility {
        self.world.enter(|state| state.behaviour.visibility)
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        let problems = settings::shape(&mut NodeBehaviour::default(), &group.template.shape);
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    async fn create(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, ExecutorError> {
        let call = Call::arrive(&self.world, ctx, CallKind::Create, OperationKind::CreateLease).await?;
        let behaviour = self.behaviour(desired).map_err(|problems| invalid(&call, &problems))?;
        call.pause(self.world.enter(|state| state.behaviour.read)).await?;
        let lease = match self.read(&ctx.attempt) {
            Reading::Present { facts, life: Life::Pending | Life::Live, .. } => {
                let kept = facts.lease.lease_id.clone();
                let others = self.world.enter(|state| existing(state, &ctx.attempt));
                let others = others.into_iter().filter(|id| *id != kept).collect::<Vec<_>>();
                if !others.is_empty() {
                    self.destroy_all(&call, &ctx.attempt, others).await?;
                }
                kept
            }
            Reading::Present { life: Life::Ending | Life::Dead, .. } => {
                return Err(call.error(ExecutorErrorKind::Gone, "found its lease dead"));
            }
            Reading::Unknown { .. } => {
                return Err(call.error(
                    ExecutorErrorKind::Unavailable,
                    "could not look the attempt up first, so it made nothing",
                ));
            }
            Reading::Absent { as_of } if mode == CreateMode::AdoptOnly => {
                return call.tell(CreateOutcome::Absent { as_of }).await;
            }
            Reading::Absent { .. } => {
                let takes = behaviour.create;
                let mut identity = ctx.identity();
                // A user's labels come beside the identity's, never in their place.
                for (key, value) in settings::user_labels(&desired.template.shape) {
                    identity.labels.entry(key).or_insert(value);
                }
                let act = Act::Create(Box::new(CreateAct {
                    attempt: ctx.attempt.clone(),
                    identity,
                    body: desired.clone(),
                    behaviour,
                    fault: call.fault,
                }));
                match call.act(takes, act).await? {
                    Answer::Lease(id) => id,
                    Answer::TokenSpent(_) => {
                        return Err(call.error(ExecutorErrorKind::Gone, "quoted a token whose lease is dead"));
                    }
                    Answer::TokenMismatch => {
                        // An earlier request was accepted: its lease is found by the next lookup.
                        return Err(call.error(
                            ExecutorErrorKind::Ambiguous,
                            "quoted a token that was used with another request; look the attempt up again",
                        ));
                    }
                    other => return Err(unexpected(&call, &other)),
                }
            }
        };
        let mut leased = self.world.enter(|state| {
            let lease = state.lease(&lease)?;
            let endpoint = lease.truth.endpoint.clone();
            Some((lease.facts(&self.name), endpoint))
        });
        if let (Some((facts, _)), Some(Fault::WithoutId)) = (&mut leased, call.fault) {
            facts.lease_id.0.clear();
            call.fire();
        }
        match leased {
            Some((lease, endpoint)) => call.tell(CreateOutcome::Leased { lease, endpoint }).await,
            None => Err(call.error(ExecutorErrorKind::Ambiguous, "lost sight of its lease")),
        }
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundLease> {
        wait(&self.world, 1).await;
        self.read(attempt)
    }

    async fn lookup_endpoint(
        &self,
        ctx: &OperationContext,
        lease: &LeaseFacts,
    ) -> Result<EndpointLookup, ExecutorError> {
        let call = Call::arrive(&self.world, ctx, CallKind::Lookup, OperationKind::LookupEndpoint).await?;
        call.pause(self.world.enter(|state| state.behaviour.read)).await?;
        self.world.enter(|state| {
            let Some(found) = state.lease(&lease.lease_id).filter(|found| state.reachable_by_id(found))
            else {
                return if too_young(state, lease) {
                    Ok(EndpointLookup::NotReady(format!("{} is not visible yet", lease.lease_id)))
                } else {
                    Err(call.error(ExecutorErrorKind::Gone, "found its lease removed"))
                };
            };
            if !found.truth.belongs_to(&ctx.attempt) {
                let kind = ExecutorErrorKind::Rejected(RejectReason::Validation);
                return Err(call.error(kind, "names a lease of somebody else"));
            }
            match (found.truth.life, &found.truth.endpoint) {
                (Life::Ending | Life::Dead, _) => {
                    Err(call.error(ExecutorErrorKind::Gone, "found its lease dead"))
                }
                (Life::Pending | Life::Live, Some(endpoint)) => Ok(EndpointLookup::Found(endpoint.clone())),
                (Life::Pending | Life::Live, None) => {
                    Ok(EndpointLookup::NotReady(format!("{} is still starting", lease.lease_id)))
                }
            }
        })
    }

    async fn destroy(&self, ctx: &OperationContext, lease: &LeaseFacts) -> Result<(), ExecutorError> {
        let call = Call::arrive(&self.world, ctx, CallKind::Destroy, OperationKind::DestroyLease).await?;
        // Duplicates under the attempt's labels end too: success means that nothing of the attempt is left.
        let mut ids = vec![lease.lease_id.clone()];
        let all = self.world.enter(|state| existing(state, &ctx.attempt));
        ids.extend(all.into_iter().filter(|id| *id != lease.lease_id));
        let answers = self.destroy_all(&call, &ctx.attempt, ids).await?;
        match answers.first() {
            Some(Answer::NotYours) => {
                let kind = ExecutorErrorKind::Rejected(RejectReason::Validation);
                Err(call.error(kind, "names a lease of somebody else; nothing of it was touched"))
            }
            Some(Answer::NotFound) if self.world.enter(|state| too_young(state, lease)) => Err(call.error(
                ExecutorErrorKind::Ambiguous,
                "names a lease that may only be too young to be seen; try again",
            )),
            _ => call.tell(()).await,
        }
    }

    async fn list(&self, run: &RunId) -> Result<Listing, ExecutorError> {
        let fault = self.world.arrive(CallKind::List, None);
        if let Some(fault) = fault {
            self.world.fire(fault);
        }
        let failed = |kind, why: &str| {
            Err(ExecutorError::new(
                kind,
                OperationKind::LookupEndpoint,
                format!("cannot list the leases of run {run}: {why}; nothing may be concluded from it"),
            ))
        };
        match fault {
            Some(Fault::Panics) => panic!("the fake executor was told to panic in a listing"),
            Some(Fault::Unknown) => {
                wait(&self.world, 1).await;
                return failed(ExecutorErrorKind::Unavailable, "no answer");
            }
            Some(Fault::Expired) => {
                let kind = ExecutorErrorKind::Rejected(RejectReason::Authorisation);
                return failed(kind, "the credentials have expired");
            }
            _ => {}
        }
        let mut listing = self.whole(run, fault).await;
        match fault {
            Some(Fault::Incomplete) => {
                listing.leases.truncate(listing.leases.len() / 2);
                listing.complete = false;
            }
            Some(Fault::Empty) => listing.leases.clear(),
            _ => {}
        }
        Ok(listing)
    }
}

/// What exists for an attempt as far as lookups show it.
fn existing(state: &State, attempt: &AttemptKey) -> Vec<LeaseId> {
    let shown = state.leases_of(attempt).filter(|lease| state.shown(lease, state.now).is_some());
    shown.filter(|lease| lease.truth.exists()).map(|lease| lease.truth.id.clone()).collect()
}

/// Whether "not found" may only mean "not yet".
fn too_young(state: &State, lease: &LeaseFacts) -> bool {
    lease.created_at.is_some_and(|made| state.now < later(made, state.behaviour.direct_lag))
}

pub(crate) async fn wait(world: &FakeWorld, times: u32) {
    let until = world.enter(|state| later(state.now, state.behaviour.read.saturating_mul(times)));
    if until > world.now() {
        world.timer().sleep_until(until).await;
    }
}

pub(crate) fn earlier(now: SystemTime, by: std::time::Duration) -> SystemTime {
    now.checked_sub(by).unwrap_or(SystemTime::UNIX_EPOCH)
}

pub(crate) fn invalid(call: &Call<'_>, problems: &[SpecProblem]) -> ExecutorError {
    let words: Vec<_> = problems.iter().map(|p| format!("{}: {}", p.pointer, p.message)).collect();
    let kind = ExecutorErrorKind::Rejected(RejectReason::Validation);
    call.error(kind, &format!("has an invalid spec: {}", words.join("; ")))
}

pub(crate) fn unexpected(call: &Call<'_>, answer: &Answer) -> ExecutorError {
    call.error(ExecutorErrorKind::Ambiguous, &format!("got an answer to another question: {answer:?}"))
}
