//! Stands where the driver calls its executor, and compares each call with what is durable and with what was
//! called before. Passes everything on untouched.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use executor_api::{
    BootstrapSessionId, CreateMode, CreateOutcome, EndpointLookup, Executor, ExecutorError, LeaseFacts,
    LogicalNodeSpec, OperationContext, StartOutcome, StartRequest,
};
use executor_fake::FakeWorld;

use super::oracle::{Oracle, Watch};
use crate::between::{Between, in_front};

/// No slot may be sent more effects than this within [`WINDOW`], whatever goes wrong.
const MOST_EFFECTS: usize = 60;
const WINDOW: Duration = Duration::from_secs(10);

/// An executor that is watched.
#[derive(Clone, Debug)]
pub(super) struct Spy {
    inner: Executor,
    world: FakeWorld,
    watch: Watch,
}

impl Spy {
    pub(super) fn executor(inner: Executor, world: &FakeWorld, watch: &Watch) -> Executor {
        in_front(Self { inner, world: world.clone(), watch: watch.clone() })
    }

    fn enter(&self, ctx: &OperationContext, spec: Option<&LogicalNodeSpec>) {
        let now = self.world.now();
        self.watch.with(|oracle| oracle.enter(ctx, spec, now));
    }
}

impl Oracle {
    fn enter(&mut self, ctx: &OperationContext, spec: Option<&LogicalNodeSpec>, now: SystemTime) {
        let (slot, operation) = (&ctx.attempt.node, ctx.operation);
        self.entries += 1;
        if self.astray.is_some() {
            return self.goes_on_astray("something was sent");
        }
        self.demand(self.asked || !self.guarded, "P8", Some(slot), || {
            format!("{operation} was sent before anybody was asked what there is")
        });
        let durable = self.durable.get(slot) == Some(&operation);
        let rule = if self.store_failed { "P7" } else { "S7" };
        self.demand(durable, rule, Some(slot), || format!("{operation} was sent without being durable"));
        let first = self.entered.insert(operation);
        self.demand(first, "P5", Some(slot), || format!("{operation} reached the executor twice"));
        let ours = operation.attempt == ctx.attempt.attempt;
        self.demand(ours, "S11", Some(slot), || format!("{operation} for {}", ctx.attempt.attempt));
        let version = spec.map(|spec| spec.template.role.0.clone()).unwrap_or_default();
        let skipped = self.skipped.contains(&version);
        self.demand(!skipped, "S3", Some(slot), || format!("{version} was acted on and never in force"));
        let owner =
            self.owners.entry(operation.attempt).or_insert_with(|| (slot.clone(), version.clone())).clone();
        self.demand(owner.0 == *slot, "S11", Some(slot), || {
            format!("{} belonged to {} before", operation.attempt, owner.0)
        });
        if !version.is_empty() && !owner.1.is_empty() {
            self.demand(owner.1 == version, "S3", Some(slot), || {
                format!("{} went from {} to {version}", operation.attempt, owner.1)
            });
        }
        let recent = self.recent.entry(slot.clone()).or_default();
        recent.push_back(now);
        while recent.front().is_some_and(|at| now.duration_since(*at).unwrap_or_default() > WINDOW) {
            recent.pop_front();
        }
        let sent = recent.len();
        self.demand(sent <= MOST_EFFECTS, "P10", Some(slot), || format!("{sent} effects within {WINDOW:?}"));
    }
}

#[async_trait]
impl Between for Spy {
    fn inner(&self) -> &Executor {
        &self.inner
    }

    async fn create(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, ExecutorError> {
        self.enter(ctx, Some(desired));
        self.inner.leases().create(ctx, desired, mode).await
    }

    async fn lookup_endpoint(
        &self,
        ctx: &OperationContext,
        lease: &LeaseFacts,
    ) -> Result<EndpointLookup, ExecutorError> {
        self.enter(ctx, None);
        self.inner.leases().lookup_endpoint(ctx, lease).await
    }

    async fn destroy(&self, ctx: &OperationContext, lease: &LeaseFacts) -> Result<(), ExecutorError> {
        self.enter(ctx, None);
        self.inner.leases().destroy(ctx, lease).await
    }

    async fn start(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError> {
        self.enter(ctx, Some(&request.desired));
        self.inner.bootstrap().start(ctx, request, mode).await
    }

    async fn complete(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        self.enter(ctx, None);
        self.inner.bootstrap().complete(ctx, session).await
    }

    async fn cancel(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        self.enter(ctx, None);
        self.inner.bootstrap().cancel(ctx, session).await
    }
}
