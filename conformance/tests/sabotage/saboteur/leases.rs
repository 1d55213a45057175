//! How leases are spoilt.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use executor_api::{
    AttemptKey, CreateMode, CreateOutcome, EndpointLookup, ExecutorError, ExecutorErrorKind, FoundLease,
    LeaseFacts, LeaseOwner, LeaseProvider, Life, Listing, LogicalNodeSpec, OperationContext, OperationKind,
    ProviderName, Reading, RejectReason, RunId, RunNodeGroupSpec, SpecProblem, Visibility,
};

use super::Saboteur;
use crate::how::How;

#[async_trait]
impl LeaseProvider for Saboteur {
    fn name(&self) -> ProviderName {
        LeaseProvider::name(&self.inner)
    }

    fn visibility(&self) -> Visibility {
        if self.is(How::DeclaresNoDelay) {
            return Visibility::default();
        }
        LeaseProvider::visibility(&self.inner)
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        if self.is(How::AcceptsAnySpec) {
            return Ok(());
        }
        if self.is(How::RefusesAnySpec) {
            return Err(vec![SpecProblem::new("/shape/creaet", "there is something wrong with everything")]);
        }
        let mut checked = LeaseProvider::validate(&self.inner, group).await;
        if let (Err(problems), true) = (&mut checked, self.is(How::TakesReservedLabels)) {
            problems.retain(|problem| !problem.pointer.starts_with("/shape/labels"));
        }
        checked
    }

    async fn create(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, ExecutorError> {
        let key = &ctx.attempt;
        match self.how {
            How::NeverLooksFirst if mode == CreateMode::CreateOrAdopt => return Ok(self.make(key).await),
            How::TokenFromTheClock if mode == CreateMode::CreateOrAdopt => {
                let found = LeaseProvider::find(&self.inner, key).await;
                if matches!(found, Reading::Absent { .. }) {
                    return Ok(self.make(key).await);
                }
            }
            How::AdoptsByNameOnly => {
                let listing = self.inner.list(&key.run).await?;
                let mine = |owner: &LeaseOwner| matches!(owner, LeaseOwner::Attempt(o) if o.node == key.node);
                let found = listing.leases.into_iter().find(|l| l.life < Life::Ending && mine(&l.owner));
                if let Some(found) = found {
                    return Ok(CreateOutcome::Leased { lease: found.lease, endpoint: found.endpoint });
                }
            }
            How::SharesOneLease | How::AdoptsTheDeadOfTheSlot => {
                let all = self.world.leases().into_iter();
                let mut fits = all.filter(|truth| match &truth.owner {
                    LeaseOwner::Attempt(owner) => self.is(How::SharesOneLease) || owner.node == key.node,
                    LeaseOwner::Incomplete => false,
                });
                if let Some(first) = fits.next() {
                    return Ok(CreateOutcome::Leased { lease: self.facts(first.id), endpoint: None });
                }
            }
            How::AdoptsOnlyItsCandidate if mode == CreateMode::CreateOrAdopt => {
                let mut mine = self.world.leases_of(key).into_iter().filter(|lease| !lease.token.is_empty());
                if mine.any(|lease| lease.token != ctx.identity().token) {
                    return Ok(self.make(key).await);
                }
            }
            How::MakesTwo if mode == CreateMode::CreateOrAdopt => {
                self.world.plant(key);
            }
            How::RemembersOnlyInMemory if self.is_new(key) => return Ok(self.make(key).await),
            _ => {}
        }
        let mut ctx = ctx.clone();
        if self.is(How::IgnoresItsDeadline) {
            ctx.deadline += Duration::from_hours(1);
        }
        let mode = if self.is(How::CreatesUnderAdoptOnly) { CreateMode::CreateOrAdopt } else { mode };
        let mut desired = desired.clone();
        if self.is(How::LeasesAnySpec) {
            Arc::make_mut(&mut desired.template).shape = serde_json::Value::Null;
        }
        let call = self.inner.create(&ctx, &desired, mode);
        // A client library that gives up first and calls that a refusal.
        let patience = if self.is(How::LostAnswersAreRefusals) { 20 } else { 100_000 };
        let Ok(result) = tokio::time::timeout(Duration::from_secs(patience), call).await else {
            let kind = ExecutorErrorKind::Rejected(RejectReason::Capacity);
            return Err(ExecutorError::new(
                kind,
                OperationKind::CreateLease,
                "no answer, so surely no lease",
            ));
        };
        let unclear = |error: &ExecutorError| error.kind == ExecutorErrorKind::Ambiguous;
        if self.is(How::TakesAnotherToken) && result.as_ref().is_err_and(unclear) {
            return Ok(self.make(key).await);
        }
        result.or_else(|error| match error.kind {
            ExecutorErrorKind::Gone if self.is(How::ReturnsDeadLeases) => {
                let dead = self.world.leases().into_iter().find(|truth| truth.belongs_to(&ctx.attempt));
                let lease = self.facts(dead.ok_or(error)?.id);
                Ok(CreateOutcome::Leased { lease, endpoint: None })
            }
            ExecutorErrorKind::Ambiguous if self.is(How::GarbledIsRefused) => {
                let kind = ExecutorErrorKind::Rejected(RejectReason::Validation);
                Err(ExecutorError::new(kind, OperationKind::CreateLease, "it did not say yes"))
            }
            ExecutorErrorKind::Rejected(RejectReason::Authorisation) if self.is(How::ExpiredIsAmbiguous) => {
                Err(ExecutorError::ambiguous(OperationKind::CreateLease, "something went wrong"))
            }
            ExecutorErrorKind::Throttled { .. } if self.is(How::ThrottlesAreAmbiguous) => {
                Err(ExecutorError::ambiguous(OperationKind::CreateLease, "something went wrong"))
            }
            _ => Err(error),
        })
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundLease> {
        match LeaseProvider::find(&self.inner, attempt).await {
            Reading::Unknown { as_of, .. } if self.is(How::UnknownIsAbsent) => Reading::Absent { as_of },
            Reading::Present { facts, as_of, .. } if self.is(How::DeadReadsAsAlive) => {
                Reading::Present { facts, life: Life::Live, as_of }
            }
            reading => reading,
        }
    }

    async fn lookup_endpoint(
        &self,
        ctx: &OperationContext,
        lease: &LeaseFacts,
    ) -> Result<EndpointLookup, ExecutorError> {
        if self.is(How::NeverFindsAnEndpoint) {
            return Ok(EndpointLookup::NotReady("soon".to_owned()));
        }
        let known = self.endpoints.lock().unwrap().get(&lease.lease_id.0).cloned();
        if let (Some(known), true) = (known, self.is(How::RemembersEndpoints)) {
            return Ok(known);
        }
        let lookup = self.inner.lookup_endpoint(ctx, lease).await?;
        let patience = Duration::from_secs(10);
        let waited = lease.created_at.is_some_and(|made| made + patience < self.world.now());
        if matches!(lookup, EndpointLookup::NotReady(_)) && waited && self.is(How::GivesUpOnEndpoints) {
            return Err(Self::gone(OperationKind::LookupEndpoint));
        }
        if matches!(lookup, EndpointLookup::Found(_)) {
            self.endpoints.lock().unwrap().insert(lease.lease_id.0.clone(), lookup.clone());
        }
        Ok(lookup)
    }

    async fn destroy(&self, ctx: &OperationContext, lease: &LeaseFacts) -> Result<(), ExecutorError> {
        let exists = self.world.existing_leases().iter().any(|truth| truth.id == lease.lease_id);
        match self.how {
            How::AbsentIsAnError if !exists => Err(Self::gone(OperationKind::DestroyLease)),
            How::DestroysForAnybody => {
                let mut ctx = ctx.clone();
                ctx.attempt = self.owner_of(lease).unwrap_or(ctx.attempt);
                self.inner.destroy(&ctx, lease).await
            }
            How::KillsByAddress if !exists => {
                let known = self.endpoints.lock().unwrap().get(&lease.lease_id.0).cloned();
                let Some(EndpointLookup::Found(known)) = known else { return Ok(()) };
                let there = self.world.existing_leases();
                if let Some(there) = there.into_iter().find(|truth| truth.endpoint.as_ref() == Some(&known)) {
                    self.world.kill(&there.id, "destroyed by its address");
                }
                Ok(())
            }
            How::ExpiredIsDone => self.inner.destroy(ctx, lease).await.or_else(|error| match error.kind {
                ExecutorErrorKind::Rejected(_) => Ok(()),
                _ => Err(error),
            }),
            How::DestroyReturnsEarly => {
                let (inner, ctx, lease) = (self.inner.clone(), ctx.clone(), lease.clone());
                tokio::spawn(async move { inner.destroy(&ctx, &lease).await });
                Ok(())
            }
            How::DestroyForgetsTheYoung => self.inner.destroy(ctx, lease).await.or_else(|error| {
                if error.kind == ExecutorErrorKind::Ambiguous { Ok(()) } else { Err(error) }
            }),
            _ => self.inner.destroy(ctx, lease).await,
        }
    }

    async fn list(&self, run: &RunId) -> Result<Listing, ExecutorError> {
        if self.is(How::ReadsOnePage) {
            let page = self.inner.page(run, 0).await;
            return Ok(Listing { as_of: page.as_of, complete: true, leases: page.leases });
        }
        // Neither looks whether the pages still are those of the first.
        if self.is(How::TrustsShiftingPages) || self.is(How::StopsAtAnEmptyPage) {
            let (mut leases, mut next, mut as_of) = (Vec::new(), Some(0), self.world.now());
            while let Some(from) = next {
                let page = self.inner.page(run, from).await;
                let ends = self.is(How::StopsAtAnEmptyPage) && page.leases.is_empty();
                (next, as_of) = (page.next.filter(|_| !ends), page.as_of);
                leases.extend(page.leases);
            }
            return Ok(Listing { as_of, complete: true, leases });
        }
        match (self.inner.list(run).await, self.how) {
            (Err(_), How::UnknownIsAbsent) => {
                Ok(Listing { as_of: self.world.now(), complete: true, leases: Vec::new() })
            }
            (Ok(listing), How::HalfAListingIsWhole) => Ok(Listing { complete: true, ..listing }),
            (Ok(mut listing), How::ListsOnlyItsOwnUid) => {
                listing.leases.retain(|l| matches!(&l.owner, LeaseOwner::Attempt(key) if key.run == *run));
                Ok(listing)
            }
            (Ok(mut listing), How::DeadReadsAsAlive) => {
                listing.leases.iter_mut().for_each(|lease| lease.life = Life::Live);
                Ok(listing)
            }
            (Ok(listing), How::ListsNothing) => Ok(Listing { leases: Vec::new(), ..listing }),
            (Ok(mut listing), How::ListsByPrefix) => {
                if let Ok(longer) = RunId::new(format!("{}x", run.name()), run.uid()) {
                    listing.leases.extend(self.inner.list(&longer).await?.leases);
                }
                Ok(listing)
            }
            (result, _) => result,
        }
    }
}
