//! Something between a caller and an executor that passes calls on. Every call has its default here, so that
//! whoever stands in between writes only what it does differently. Does nothing of its own.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use executor_api::{
    AttemptKey, BootstrapSessionId, Bootstrapper, CreateMode, CreateOutcome, EndpointLookup, Executor,
    ExecutorError, FoundLease, FoundSession, LeaseFacts, LeaseProvider, Listing, LogicalNodeId,
    LogicalNodeSpec, NodeTemplate, ObservationSink, OperationContext, ProviderName, Reading, RunId,
    RunNodeGroupSpec, SpecProblem, StartOutcome, StartRequest, Visibility,
};

/// Stands before [`inner`](Self::inner); what is not overridden is passed on as it is.
#[async_trait]
pub trait Between: fmt::Debug + Send + Sync + 'static {
    /// What it stands before.
    fn inner(&self) -> &Executor;

    /// What the lease provider says about how late its effects are.
    fn visibility(&self) -> Visibility {
        self.inner().leases().visibility()
    }

    /// [`LeaseProvider::create`].
    async fn create(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, ExecutorError> {
        self.inner().leases().create(ctx, desired, mode).await
    }

    /// [`LeaseProvider::lookup_endpoint`].
    async fn lookup_endpoint(
        &self,
        ctx: &OperationContext,
        lease: &LeaseFacts,
    ) -> Result<EndpointLookup, ExecutorError> {
        self.inner().leases().lookup_endpoint(ctx, lease).await
    }

    /// [`LeaseProvider::destroy`].
    async fn destroy(&self, ctx: &OperationContext, lease: &LeaseFacts) -> Result<(), ExecutorError> {
        self.inner().leases().destroy(ctx, lease).await
    }

    /// [`LeaseProvider::list`].
    async fn list(&self, run: &RunId) -> Result<Listing, ExecutorError> {
        self.inner().leases().list(run).await
    }

    /// [`Bootstrapper::start`].
    async fn start(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError> {
        self.inner().bootstrap().start(ctx, request, mode).await
    }

    /// [`Bootstrapper::complete`].
    async fn complete(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        self.inner().bootstrap().complete(ctx, session).await
    }

    /// [`Bootstrapper::cancel`].
    async fn cancel(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        self.inner().bootstrap().cancel(ctx, session).await
    }
}

/// The executor that callers see: `between`, and what it stands before.
pub fn in_front(between: impl Between) -> Executor {
    let front = Arc::new(Front(between));
    Executor::new(Arc::clone(&front) as _, front)
}

#[derive(Debug)]
struct Front<T>(T);

#[async_trait]
impl<T: Between> LeaseProvider for Front<T> {
    fn name(&self) -> ProviderName {
        self.0.inner().leases().name()
    }

    fn visibility(&self) -> Visibility {
        self.0.visibility()
    }

    fn acquaint(&self, template: &NodeTemplate) {
        self.0.inner().leases().acquaint(template);
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        self.0.inner().leases().validate(group).await
    }

    async fn create(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, ExecutorError> {
        self.0.create(ctx, desired, mode).await
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundLease> {
        self.0.inner().leases().find(attempt).await
    }

    async fn lookup_endpoint(
        &self,
        ctx: &OperationContext,
        lease: &LeaseFacts,
    ) -> Result<EndpointLookup, ExecutorError> {
        self.0.lookup_endpoint(ctx, lease).await
    }

    async fn destroy(&self, ctx: &OperationContext, lease: &LeaseFacts) -> Result<(), ExecutorError> {
        self.0.destroy(ctx, lease).await
    }

    async fn list(&self, run: &RunId) -> Result<Listing, ExecutorError> {
        self.0.list(run).await
    }

    async fn retain_slots(&self, run: &RunId, slots: &[LogicalNodeId]) -> Result<(), ExecutorError> {
        self.0.inner().leases().retain_slots(run, slots).await
    }
}

#[async_trait]
impl<T: Between> Bootstrapper for Front<T> {
    fn name(&self) -> ProviderName {
        self.0.inner().bootstrap().name()
    }

    fn visibility(&self) -> Visibility {
        self.0.inner().bootstrap().visibility()
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        self.0.inner().bootstrap().validate(group).await
    }

    async fn start(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError> {
        self.0.start(ctx, request, mode).await
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundSession> {
        self.0.inner().bootstrap().find(attempt).await
    }

    async fn complete(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        self.0.complete(ctx, session).await
    }

    async fn cancel(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        self.0.cancel(ctx, session).await
    }

    async fn attach(
        &self,
        attempt: &AttemptKey,
        session: &BootstrapSessionId,
        sink: ObservationSink,
    ) -> Result<(), ExecutorError> {
        self.0.inner().bootstrap().attach(attempt, session, sink).await
    }
}
