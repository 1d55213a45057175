//! A line between a case and any executor that loses requests and answers. A harness that puts its executor behind
//! one has three of the faults for nothing, and they are faithful: a request is lost before anything has been done,
//! an answer after everything has.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use executor_api::{
    AttemptKey, BootstrapSessionId, Bootstrapper, CreateMode, CreateOutcome, EndpointLookup, Executor,
    ExecutorError, FoundLease, FoundSession, LeaseFacts, LeaseProvider, Listing, LogicalNodeId,
    LogicalNodeSpec, NodeTemplate, ObservationSink, OperationContext, ProviderName, Reading, RunId,
    RunNodeGroupSpec, SpecProblem, StartOutcome, StartRequest, Visibility,
};

use crate::harness::Injection;

/// What the next calls of one world lose; shared by all instances of the executor on it.
#[derive(Debug, Default)]
pub struct Losses {
    creates: Mutex<VecDeque<Loss>>,
    starts: Mutex<VecDeque<Loss>>,
}

/// What of a call is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Request,
    Answer,
}

impl Losses {
    /// The executor behind this line.
    pub fn before(self: &Arc<Self>, executor: Executor) -> Executor {
        let lossy = Arc::new(Lossy { inner: executor, losses: Arc::clone(self) });
        Executor::new(Arc::clone(&lossy) as _, lossy)
    }

    /// Causes the fault if it is one of the line's: [`Injection::LoseCreateAnswer`], [`Injection::SwallowCreate`]
    /// and [`Injection::LoseStartAnswer`]. Whether it was.
    pub fn cause(&self, fault: &Injection) -> bool {
        let (queue, loss) = match fault {
            Injection::LoseCreateAnswer => (&self.creates, Loss::Answer),
            Injection::SwallowCreate => (&self.creates, Loss::Request),
            Injection::LoseStartAnswer => (&self.starts, Loss::Answer),
            _ => return false,
        };
        Self::lock(queue).push_back(loss);
        true
    }

    /// Nothing more is lost.
    pub fn heal(&self) {
        Self::lock(&self.creates).clear();
        Self::lock(&self.starts).clear();
    }

    fn lock(queue: &Mutex<VecDeque<Loss>>) -> MutexGuard<'_, VecDeque<Loss>> {
        queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An executor behind the line.
#[derive(Debug)]
struct Lossy {
    inner: Executor,
    losses: Arc<Losses>,
}

async fn suffer<T>(loss: Option<Loss>, call: impl Future<Output = T> + Send) -> T {
    match loss {
        None => call.await,
        Some(Loss::Request) => std::future::pending().await,
        Some(Loss::Answer) => {
            let _ = call.await;
            std::future::pending().await
        }
    }
}

#[async_trait]
impl LeaseProvider for Lossy {
    fn name(&self) -> ProviderName {
        self.inner.leases().name()
    }

    fn visibility(&self) -> Visibility {
        self.inner.leases().visibility()
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        self.inner.leases().validate(group).await
    }

    fn acquaint(&self, template: &NodeTemplate) {
        self.inner.leases().acquaint(template);
    }

    async fn create(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, ExecutorError> {
        let loss = Losses::lock(&self.losses.creates).pop_front();
        suffer(loss, self.inner.leases().create(ctx, desired, mode)).await
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundLease> {
        self.inner.leases().find(attempt).await
    }

    async fn lookup_endpoint(
        &self,
        ctx: &OperationContext,
        lease: &LeaseFacts,
    ) -> Result<EndpointLookup, ExecutorError> {
        self.inner.leases().lookup_endpoint(ctx, lease).await
    }

    async fn destroy(&self, ctx: &OperationContext, lease: &LeaseFacts) -> Result<(), ExecutorError> {
        self.inner.leases().destroy(ctx, lease).await
    }

    async fn list(&self, run: &RunId) -> Result<Listing, ExecutorError> {
        self.inner.leases().list(run).await
    }

    async fn retain_slots(&self, run: &RunId, slots: &[LogicalNodeId]) -> Result<(), ExecutorError> {
        self.inner.leases().retain_slots(run, slots).await
    }
}

#[async_trait]
impl Bootstrapper for Lossy {
    fn name(&self) -> ProviderName {
        self.inner.bootstrap().name()
    }

    fn visibility(&self) -> Visibility {
        self.inner.bootstrap().visibility()
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        self.inner.bootstrap().validate(group).await
    }

    async fn start(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError> {
        let loss = Losses::lock(&self.losses.starts).pop_front();
        suffer(loss, self.inner.bootstrap().start(ctx, request, mode)).await
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundSession> {
        self.inner.bootstrap().find(attempt).await
    }

    async fn complete(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        self.inner.bootstrap().complete(ctx, session).await
    }

    async fn cancel(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        self.inner.bootstrap().cancel(ctx, session).await
    }

    async fn attach(
        &self,
        attempt: &AttemptKey,
        session: &BootstrapSessionId,
        sink: ObservationSink,
    ) -> Result<(), ExecutorError> {
        self.inner.bootstrap().attach(attempt, session, sink).await
    }
}
