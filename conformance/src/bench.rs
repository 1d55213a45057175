//! How a case makes calls: as the driver does, each under its own operation and deadline and dropped when that
//! has passed, and how it waits for levels.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use executor_api::{
    AttemptKey, BootstrapSessionId, CandidateIndex, CreateMode, CreateOutcome, Endpoint, EndpointLookup,
    Executor, ExecutorError, ExecutorErrorKind, GroupId, LeaseFacts, Listing, LogicalNodeId, LogicalNodeSpec,
    NodeAttemptId, NodeObservation, NodeTemplate, ObservationSink, OperationContext, OperationId, Reading,
    RunId, SlotGroup, StartOutcome, StartRequest, Timer, Visibility,
};

use crate::case::{CallEnd, CaseEnd, CaseResult, ensure};
use crate::harness::{CannotInject, Harness, Injection, Inventory, NodePlan};

/// A world with a case on it.
pub struct Bench {
    harness: Box<dyn AnyHarness>,
    executor: Executor,
    timer: Arc<dyn Timer>,
    run: RunId,
    sequence: AtomicU64,
}

/// A node that was brought as far as its session.
#[derive(Clone, Debug)]
pub struct Node {
    /// Whose it is.
    pub key: AttemptKey,
    /// Its lease.
    pub lease: LeaseFacts,
    /// Where it can be reached.
    pub endpoint: Endpoint,
    /// Its session.
    pub session: BootstrapSessionId,
}

impl Bench {
    /// A bench on this world.
    pub fn new<H: Harness>(harness: H) -> Self {
        let (executor, timer, run) = (harness.executor(), harness.timer(), harness.run());
        Self { harness: Box::new(harness), executor, timer, run, sequence: AtomicU64::new(0) }
    }

    // Who is meant.

    /// The run of the case.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// An attempt of a slot of the case's run.
    ///
    /// # Panics
    /// The group's name is not legal.
    pub fn key(&self, group: &str, index: u32, attempt: u64) -> AttemptKey {
        self.key_in(&self.run, group, index, attempt)
    }

    /// An attempt of a slot of another run.
    ///
    /// # Panics
    /// The group's name is not legal.
    pub fn key_in(&self, run: &RunId, group: &str, index: u32, attempt: u64) -> AttemptKey {
        #[expect(clippy::expect_used, reason = "cases write legal names")]
        let group = GroupId::new(group).expect("a case names a legal group");
        AttemptKey {
            run: run.clone(),
            node: LogicalNodeId::of(&group, index),
            attempt: NodeAttemptId(attempt),
        }
    }

    /// The instance under test.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// A new instance that remembers nothing: a restart.
    pub fn restarted(&self) -> Executor {
        self.harness.executor()
    }

    /// The context of a new operation.
    pub fn ctx(&self, key: &AttemptKey) -> OperationContext {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let deadline = self.timer.now() + self.harness.call_timeout();
        OperationContext {
            attempt: key.clone(),
            operation: OperationId { attempt: key.attempt, sequence },
            candidate: CandidateIndex(0),
            deadline,
            group: SlotGroup { group: key.node.group(), slots: Arc::new([key.node.clone()]) },
        }
    }

    /// What is wanted of the attempt's node.
    pub fn desired(&self, key: &AttemptKey, plan: NodePlan) -> LogicalNodeSpec {
        self.harness.desired(key, plan)
    }

    /// A template with a flaw, and where the flaw is.
    pub fn flawed(&self) -> Option<(NodeTemplate, String)> {
        self.harness.flawed()
    }

    /// A template whose labels use a reserved key, and where.
    pub fn reserved(&self) -> Option<(NodeTemplate, String)> {
        self.harness.reserved()
    }

    /// A spec whose node tells a secret, and the secret.
    pub fn secretive(&self, key: &AttemptKey) -> Option<(LogicalNodeSpec, String)> {
        self.harness.secretive(key)
    }

    // Calls.

    /// Runs a call as the driver does: until its deadline, then drops it.
    pub async fn call<T>(&self, call: impl Future<Output = Result<T, ExecutorError>>) -> Result<T, CallEnd> {
        self.call_for(self.harness.call_timeout(), call).await
    }

    /// Runs a call for at most `limit`, then drops it.
    pub async fn call_for<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, ExecutorError>>,
    ) -> Result<T, CallEnd> {
        within(limit, "a call", call).await
    }

    /// Runs the call of this method until its deadline.
    async fn method<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, ExecutorError>>,
    ) -> Result<T, CallEnd> {
        within(self.harness.call_timeout(), name, call).await
    }

    /// A create on this instance, in this mode.
    pub async fn create_on(
        &self,
        executor: &Executor,
        key: &AttemptKey,
        mode: CreateMode,
    ) -> Result<CreateOutcome, CallEnd> {
        let (ctx, desired) = (self.ctx(key), self.desired(key, NodePlan::Joins));
        self.method("create", executor.leases().create(&ctx, &desired, mode)).await
    }

    /// A create that must end with a lease.
    pub async fn create(&self, key: &AttemptKey) -> Result<LeaseFacts, CaseEnd> {
        leased(self.create_on(&self.executor, key, CreateMode::CreateOrAdopt).await?)
    }

    /// What exists for an attempt, once it must be visible.
    pub async fn find_visible(&self, key: &AttemptKey) -> Reading<executor_api::FoundLease> {
        self.rest(self.visibility().listing_lag).await;
        self.executor.leases().find(key).await
    }

    /// Looks the endpoint up until it is found.
    pub async fn endpoint(&self, key: &AttemptKey, lease: &LeaseFacts) -> Result<Endpoint, CaseEnd> {
        let end = self.timer.now() + self.harness.patience();
        loop {
            let ctx = self.ctx(key);
            match self.method("lookup_endpoint", self.executor.leases().lookup_endpoint(&ctx, lease)).await? {
                EndpointLookup::Found(endpoint) => return Ok(endpoint),
                EndpointLookup::NotReady(why) => {
                    ensure!(self.timer.now() < end, "no endpoint of {key} was found in time: {why}");
                }
            }
            self.rest(self.harness.pace()).await;
        }
    }

    /// A start on this instance, in this mode.
    pub async fn start_on(
        &self,
        executor: &Executor,
        node: &StartRequest,
        key: &AttemptKey,
        mode: CreateMode,
    ) -> Result<StartOutcome, CallEnd> {
        let ctx = self.ctx(key);
        self.method("start", executor.bootstrap().start(&ctx, node, mode)).await
    }

    /// A lease with its endpoint: everything that a start needs.
    pub async fn leased(&self, key: &AttemptKey, plan: NodePlan) -> Result<StartRequest, CaseEnd> {
        self.leased_as(key, self.desired(key, plan)).await
    }

    /// The same for a spec of one's own.
    pub async fn leased_as(
        &self,
        key: &AttemptKey,
        desired: LogicalNodeSpec,
    ) -> Result<StartRequest, CaseEnd> {
        let ctx = self.ctx(key);
        let create = self.executor.leases().create(&ctx, &desired, CreateMode::CreateOrAdopt);
        let lease = leased(self.method("create", create).await?)?;
        let endpoint = self.endpoint(key, &lease).await?;
        Ok(StartRequest { desired, lease, endpoint })
    }

    /// A node whose session was started.
    pub async fn started(&self, key: &AttemptKey, plan: NodePlan) -> Result<Node, CaseEnd> {
        let request = self.leased(key, plan).await?;
        let outcome = self.start_on(&self.executor, &request, key, CreateMode::CreateOrAdopt).await?;
        let session = session_of(outcome)?;
        let StartRequest { lease, endpoint, .. } = request;
        Ok(Node { key: key.clone(), lease, endpoint, session })
    }

    /// A node that has joined, with the one who watched it.
    pub async fn joined(&self, key: &AttemptKey) -> Result<(Node, Watch), CaseEnd> {
        let node = self.started(key, NodePlan::Joins).await?;
        let watch = self.watch(&self.executor, &node);
        self.told(&watch, "that the node joined", |o| matches!(o, NodeObservation::MemberJoined { .. }))
            .await?;
        Ok((node, watch))
    }

    /// Completes a session.
    pub async fn complete(&self, node: &Node) -> CaseResult {
        let ctx = self.ctx(&node.key);
        self.once_it_shows(|| {
            self.method("complete", self.executor.bootstrap().complete(&ctx, &node.session))
        })
        .await?;
        Ok(())
    }

    /// Cancels a session on behalf of an attempt; one that may be too young to be seen is cancelled once it shows.
    pub async fn cancel(&self, key: &AttemptKey, session: &BootstrapSessionId) -> Result<(), CallEnd> {
        let ctx = self.ctx(key);
        self.once_it_shows(|| self.method("cancel", self.executor.bootstrap().cancel(&ctx, session))).await
    }

    /// A call about something that may be too young to be seen: made again once it must show, where it says so.
    async fn once_it_shows<T, F: Future<Output = Result<T, CallEnd>>>(
        &self,
        call: impl Fn() -> F,
    ) -> Result<T, CallEnd> {
        match call().await {
            Err(CallEnd::Error(error)) if error.kind == ExecutorErrorKind::Ambiguous => {
                self.absence_counts().await;
            }
            ended => return ended,
        }
        call().await
    }

    /// Destroys a lease on behalf of an attempt.
    pub async fn destroy(&self, key: &AttemptKey, lease: &LeaseFacts) -> Result<(), CallEnd> {
        let ctx = self.ctx(key);
        self.method("destroy", self.executor.leases().destroy(&ctx, lease)).await
    }

    /// Ends a node in good order: cancel, then destroy.
    pub async fn end(&self, node: &Node) -> CaseResult {
        self.cancel(&node.key, &node.session).await?;
        Ok(self.destroy(&node.key, &node.lease).await?)
    }

    /// A listing of a run.
    pub async fn list(&self, run: &RunId) -> Result<Listing, CallEnd> {
        self.method("list", self.executor.leases().list(run)).await
    }

    /// Follows a node's session on an instance.
    pub fn watch(&self, executor: &Executor, node: &Node) -> Watch {
        let told = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&told);
        let sink = ObservationSink::new(move |report| {
            into.lock().unwrap_or_else(PoisonError::into_inner).push(report.observation);
        });
        let (executor, key, session) = (executor.clone(), node.key.clone(), node.session.clone());
        let task = tokio::spawn(async move {
            // How following ends is not promised; what was told before is.
            let _ = executor.bootstrap().attach(&key, &session, sink).await;
        });
        Watch { told, task }
    }

    // The world.

    /// What exists.
    pub async fn inventory(&self) -> Inventory {
        self.harness.inventory().await
    }

    /// Makes something go wrong.
    ///
    /// # Errors
    /// This world cannot suffer it; with `?` the case is skipped.
    pub async fn inject(&self, fault: Injection) -> Result<(), CannotInject> {
        self.harness.inject(fault).await
    }

    pub(crate) async fn clean_up(&self) {
        self.harness.clean_up().await;
    }

    /// The allowance of the lease provider.
    pub fn visibility(&self) -> Visibility {
        self.executor.leases().visibility()
    }

    /// The present time.
    pub fn now(&self) -> SystemTime {
        self.timer.now()
    }

    /// How long one call may take.
    pub fn call_timeout(&self) -> Duration {
        self.harness.call_timeout()
    }

    /// How long a level may take.
    pub fn patience(&self) -> Duration {
        self.harness.patience()
    }

    /// How long to watch to see that nothing happens.
    pub fn quiet(&self) -> Duration {
        self.harness.quiet()
    }

    // Waiting.

    /// Lets time pass.
    pub async fn rest(&self, time: Duration) {
        if !time.is_zero() {
            self.timer.sleep_until(self.timer.now() + time).await;
        }
    }

    /// Waits until a call given up now can have no more effects, and until those it had are visible.
    pub async fn absence_counts(&self) {
        let (lease, session) = (self.visibility(), self.executor.bootstrap().visibility());
        let late = lease.late_landing.max(session.late_landing);
        self.rest(late + lease.listing_lag.max(session.listing_lag)).await;
    }

    /// Waits until the world looks like that.
    pub async fn settles(&self, what: &str, holds: impl Fn(&Inventory) -> bool + Send) -> CaseResult {
        let end = self.timer.now() + self.harness.patience();
        loop {
            let inventory = self.inventory().await;
            if holds(&inventory) {
                return Ok(());
            }
            ensure!(self.timer.now() < end, "the world never came to {what}; it holds {inventory:?}");
            self.rest(self.harness.pace()).await;
        }
    }

    /// Waits until the watcher was told something.
    pub async fn told(
        &self,
        watch: &Watch,
        what: &str,
        is_it: impl Fn(&NodeObservation) -> bool + Send,
    ) -> Result<NodeObservation, CaseEnd> {
        let end = self.timer.now() + self.harness.patience();
        loop {
            if let Some(found) = watch.so_far().into_iter().find(|o| is_it(o)) {
                return Ok(found);
            }
            ensure!(self.timer.now() < end, "nobody told {what}; told was {:?}", watch.so_far());
            self.rest(self.harness.pace()).await;
        }
    }
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench").field("run", &self.run).finish_non_exhaustive()
    }
}

async fn within<T>(
    limit: Duration,
    name: &'static str,
    call: impl Future<Output = Result<T, ExecutorError>>,
) -> Result<T, CallEnd> {
    match tokio::time::timeout(limit, call).await {
        Ok(result) => result.map_err(CallEnd::Error),
        Err(_) => Err(CallEnd::GivenUp { call: name, limit }),
    }
}

/// The lease of a create that must end with one.
pub fn leased(outcome: CreateOutcome) -> Result<LeaseFacts, CaseEnd> {
    match outcome {
        CreateOutcome::Leased { lease, .. } => {
            ensure!(!lease.lease_id.0.is_empty(), "a create reported success without a lease id");
            Ok(lease)
        }
        CreateOutcome::Absent { .. } => {
            Err(CaseEnd::Failed("a create that may make a lease reported that there is none".to_owned()))
        }
    }
}

/// The session of a start that must end with one.
pub fn session_of(outcome: StartOutcome) -> Result<BootstrapSessionId, CaseEnd> {
    match outcome {
        StartOutcome::Started { session } => {
            ensure!(!session.0.is_empty(), "a start reported success without a session id");
            Ok(session)
        }
        StartOutcome::Absent { .. } => {
            Err(CaseEnd::Failed("a start that may start a session reported that there is none".to_owned()))
        }
    }
}

/// Somebody who follows a session. Dropping it ends the following.
#[derive(Debug)]
pub struct Watch {
    told: Arc<Mutex<Vec<NodeObservation>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Watch {
    /// What was told so far.
    pub fn so_far(&self) -> Vec<NodeObservation> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// [`Harness`] without its constant, so that a bench need not be generic.
#[async_trait::async_trait]
trait AnyHarness: Send + Sync {
    fn executor(&self) -> Executor;
    fn desired(&self, key: &AttemptKey, plan: NodePlan) -> LogicalNodeSpec;
    fn flawed(&self) -> Option<(NodeTemplate, String)>;
    fn reserved(&self) -> Option<(NodeTemplate, String)>;
    fn secretive(&self, key: &AttemptKey) -> Option<(LogicalNodeSpec, String)>;
    async fn inventory(&self) -> Inventory;
    async fn inject(&self, fault: Injection) -> Result<(), CannotInject>;
    async fn clean_up(&self);
    fn call_timeout(&self) -> Duration;
    fn patience(&self) -> Duration;
    fn quiet(&self) -> Duration;
    fn pace(&self) -> Duration;
}

#[async_trait::async_trait]
impl<H: Harness> AnyHarness for H {
    fn executor(&self) -> Executor {
        Harness::executor(self)
    }
    fn desired(&self, key: &AttemptKey, plan: NodePlan) -> LogicalNodeSpec {
        Harness::desired(self, key, plan)
    }
    fn flawed(&self) -> Option<(NodeTemplate, String)> {
        Harness::flawed(self)
    }
    fn reserved(&self) -> Option<(NodeTemplate, String)> {
        Harness::reserved(self)
    }
    fn secretive(&self, key: &AttemptKey) -> Option<(LogicalNodeSpec, String)> {
        Harness::secretive(self, key)
    }
    async fn inventory(&self) -> Inventory {
        Harness::inventory(self).await
    }
    async fn inject(&self, fault: Injection) -> Result<(), CannotInject> {
        Harness::inject(self, fault).await
    }
    async fn clean_up(&self) {
        Harness::clean_up(self).await;
    }
    fn call_timeout(&self) -> Duration {
        Harness::call_timeout(self)
    }
    fn patience(&self) -> Duration {
        Harness::patience(self)
    }
    fn quiet(&self) -> Duration {
        Harness::quiet(self)
    }
    fn pace(&self) -> Duration {
        Harness::pace(self)
    }
}
