//! The lease half of a world, with the promises of [`LeaseProvider`] kept.

use std::time::SystemTime;

use async_trait::async_trait;

use super::{LeaseWorld, OfWorld, Trouble, in_order, is_over};
use crate::command::{CreateMode, OperationKind};
use crate::error::{ExecutorError, RejectReason};
use crate::executor::{
    CreateOutcome, EndpointLookup, FoundLease, LeaseProvider, OperationContext, Visibility,
};
use crate::facts::{LeaseFacts, ListedLease, Listing, Reading};
use crate::identity::{AttemptKey, ProviderName, RunId};
use crate::spec::{LogicalNodeSpec, NodeTemplate, RunNodeGroupSpec, SpecProblem};

#[async_trait]
impl<W: LeaseWorld> LeaseProvider for OfWorld<W> {
    fn name(&self) -> ProviderName {
        self.world.name()
    }

    fn visibility(&self) -> Visibility {
        self.world.visibility()
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        let flaws = self.world.shape_flaws(&group.template);
        if flaws.is_empty() { Ok(()) } else { Err(flaws) }
    }

    fn acquaint(&self, template: &NodeTemplate) {
        self.world.acquaint(template);
    }

    async fn create(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, ExecutorError> {
        self.create_or_adopt(ctx, desired, mode)
            .await
            .map_err(self.error(OperationKind::CreateLease, &ctx.attempt))
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundLease> {
        let as_of = self.timer.now();
        match self.lease(attempt).await {
            Ok(Some(ListedLease { lease, endpoint, life, .. })) => {
                Reading::Present { facts: FoundLease { lease, endpoint }, life, as_of }
            }
            Ok(None) => Reading::Absent { as_of },
            Err(trouble) => Reading::Unknown { reason: trouble.reason(), as_of },
        }
    }

    async fn lookup_endpoint(
        &self,
        ctx: &OperationContext,
        lease: &LeaseFacts,
    ) -> Result<EndpointLookup, ExecutorError> {
        let (as_of, error) = (self.timer.now(), self.error(OperationKind::LookupEndpoint, &ctx.attempt));
        let mut seen = self.world.look(&ctx.attempt).await.map_err(&error)?.into_iter();
        match seen.find(|seen| seen.lease.lease_id == lease.lease_id) {
            Some(dead) if is_over(&dead) => Err(error(gone(&dead))),
            Some(ListedLease { endpoint: Some(endpoint), .. }) => Ok(EndpointLookup::Found(endpoint)),
            Some(_) => Ok(EndpointLookup::NotReady("it has no address yet".to_owned())),
            None if self.may_be_hidden(lease, as_of) => {
                Ok(EndpointLookup::NotReady("it cannot be seen yet".to_owned()))
            }
            None => Err(error(Trouble::gone(format!("{} is not there any more", lease.lease_id)))),
        }
    }

    async fn destroy(&self, ctx: &OperationContext, lease: &LeaseFacts) -> Result<(), ExecutorError> {
        self.remove_all(&ctx.attempt, lease)
            .await
            .map_err(self.error(OperationKind::DestroyLease, &ctx.attempt))
    }

    async fn list(&self, run: &RunId) -> Result<Listing, ExecutorError> {
        let as_of = self.timer.now();
        let who = format!("{}: the leases of run {run}", self.world.name());
        let listed = self.world.list(run).await;
        let leases = listed.map_err(|trouble| trouble.during(OperationKind::LookupEndpoint, &who))?;
        Ok(Listing { as_of, complete: true, leases })
    }
}

impl<W: LeaseWorld> OfWorld<W> {
    async fn create_or_adopt(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, Trouble> {
        // Who validated this, and which version of the world did, is not known here.
        if let Some(flaw) = self.world.shape_flaws(&desired.template).pop() {
            return Err(flawed(&flaw));
        }
        let as_of = self.timer.now();
        let held = match self.adopted(&ctx.attempt).await? {
            Some(held) => held,
            None if mode == CreateMode::AdoptOnly => return Ok(CreateOutcome::Absent { as_of }),
            None => self.world.make(ctx, desired).await?,
        };
        // A dead lease is never returned and never replaced: the next attempt has a name of its own.
        if is_over(&held) {
            return Err(gone(&held));
        }
        Ok(CreateOutcome::Leased { lease: held.lease, endpoint: held.endpoint })
    }

    /// The attempt's lease; of several that live one is kept.
    async fn adopted(&self, attempt: &AttemptKey) -> Result<Option<ListedLease>, Trouble> {
        let mut all = in_order(self.world.look(attempt).await?).into_iter();
        let kept = all.next();
        for other in all.filter(|other| !is_over(other)) {
            self.world.remove(attempt, &other).await?;
        }
        Ok(kept)
    }

    /// Everything that the attempt holds goes, whatever id was handed in.
    async fn remove_all(&self, attempt: &AttemptKey, lease: &LeaseFacts) -> Result<(), Trouble> {
        let as_of: SystemTime = self.timer.now();
        let all = self.world.look(attempt).await?;
        let seen = all.iter().any(|seen| seen.lease.lease_id == lease.lease_id);
        for held in all {
            self.world.remove(attempt, &held).await?;
        }
        if !seen && self.may_be_hidden(lease, as_of) {
            return Err(Trouble::ambiguous(format!("{} is too young to be seen; try again", lease.lease_id)));
        }
        Ok(())
    }
}

pub(super) fn flawed(flaw: &SpecProblem) -> Trouble {
    Trouble::refused(RejectReason::Validation, format!("{}: {}", flaw.pointer, flaw.message))
}

pub(super) fn gone(lease: &ListedLease) -> Trouble {
    let why = lease.reason.as_deref().unwrap_or("it is dead");
    Trouble::gone(format!("{}: {why}", lease.lease.lease_id))
}
