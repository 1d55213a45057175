//! What `executor_api::world` promises for everybody, put to the test where it is hard: on a world that shows late,
//! lands late, makes two and fails to answer. The template and the directory show the easy ones.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use conformance::fake::FakeHarness;
use conformance::run_suite;
use executor_api::world::{self, LeaseWorld, Session, SessionState, SessionWorld, Trouble};
use executor_api::{
    AttemptKey, BootstrapSessionId, Bootstrapper, CandidateIndex, CreateMode, CreateOutcome, Executor,
    ExecutorError, LeaseOwner, LeaseProvider, Life, ListedLease, LogicalNodeSpec, NodeTemplate,
    OperationContext, OperationId, ProviderName, Reading, RunId, RunNodeGroupSpec, SlotGroup, SpecProblem,
    StartOutcome, StartRequest, Timer, Visibility,
};
use executor_fake::{FakeWorld, SessionPhase};

/// The fake with nothing but the steps of a world: one listing, one make, one remove; one look, one start, one stop.
#[derive(Debug)]
struct Steps {
    world: FakeWorld,
    leases: Arc<dyn LeaseProvider>,
    bootstrap: Arc<dyn Bootstrapper>,
    timer: Arc<dyn Timer>,
}

/// The fake, taken apart and put together again.
fn executor(world: &FakeWorld) -> Executor {
    let (fake, timer) = (world.executor(), Arc::clone(world.timer()));
    let (leases, bootstrap) = (Arc::clone(fake.leases()), Arc::clone(fake.bootstrap()));
    world::executor(Steps { world: world.clone(), leases, bootstrap, timer: Arc::clone(&timer) }, timer)
}

#[async_trait]
impl LeaseWorld for Steps {
    fn name(&self) -> ProviderName {
        self.leases.name()
    }

    fn visibility(&self) -> Visibility {
        self.leases.visibility()
    }

    fn shape_flaws(&self, template: &NodeTemplate) -> Vec<SpecProblem> {
        checked(self.leases.validate(&group(template)))
    }

    async fn list(&self, run: &RunId) -> Result<Vec<ListedLease>, Trouble> {
        let listing = self.leases.list(run).await.map_err(trouble)?;
        if listing.complete { Ok(listing.leases) } else { Err(Trouble::ambiguous("a page is missing")) }
    }

    async fn make(&self, ctx: &OperationContext, desired: &LogicalNodeSpec) -> Result<ListedLease, Trouble> {
        match self.leases.create(ctx, desired, CreateMode::CreateOrAdopt).await.map_err(trouble)? {
            CreateOutcome::Leased { lease, endpoint } => {
                let owner = LeaseOwner::Attempt(ctx.attempt.clone());
                Ok(ListedLease { owner, lease, endpoint, life: Life::Live, reason: None })
            }
            CreateOutcome::Absent { .. } => Err(Trouble::ambiguous("it says that nothing is there")),
        }
    }

    async fn remove(&self, attempt: &AttemptKey, held: &ListedLease) -> Result<(), Trouble> {
        // The fake's own destroy ends all that an attempt holds.
        if self.world.leases_of(attempt).len() > 1 {
            self.world.vanish(&held.lease.lease_id);
            return Ok(());
        }
        let ctx = self.ctx(attempt);
        self.leases.destroy(&ctx, &held.lease).await.map_err(trouble)
    }
}

#[async_trait]
impl SessionWorld for Steps {
    fn boot_flaws(&self, template: &NodeTemplate) -> Vec<SpecProblem> {
        checked(self.bootstrap.validate(&group(template)))
    }

    async fn session(&self, attempt: &AttemptKey) -> Result<Option<Session>, Trouble> {
        match self.bootstrap.find(attempt).await {
            Reading::Present { facts, .. } => Ok(Some(self.truth(facts.session))),
            Reading::Absent { .. } => Ok(None),
            Reading::Unknown { reason, .. } => Err(Trouble::ambiguous(reason)),
        }
    }

    async fn start(&self, ctx: &OperationContext, request: &StartRequest) -> Result<Session, Trouble> {
        match self.bootstrap.start(ctx, request, CreateMode::CreateOrAdopt).await.map_err(trouble)? {
            StartOutcome::Started { session } => Ok(self.truth(session)),
            StartOutcome::Absent { .. } => Err(Trouble::ambiguous("it says that nothing runs")),
        }
    }

    async fn stop(&self, attempt: &AttemptKey) -> Result<(), Trouble> {
        let Some(session) = self.session(attempt).await? else { return Ok(()) };
        self.bootstrap.cancel(&self.ctx(attempt), &session.id).await.map_err(trouble)
    }

    async fn complete(&self, attempt: &AttemptKey) -> Result<(), Trouble> {
        let Some(session) = self.session(attempt).await? else { return Ok(()) };
        self.bootstrap.complete(&self.ctx(attempt), &session.id).await.map_err(trouble)
    }
}

impl Steps {
    fn ctx(&self, attempt: &AttemptKey) -> OperationContext {
        OperationContext {
            attempt: attempt.clone(),
            operation: OperationId { attempt: attempt.attempt, sequence: 0 },
            candidate: CandidateIndex::default(),
            deadline: self.timer.now() + std::time::Duration::from_secs(30),
            group: SlotGroup { group: attempt.node.group(), slots: Arc::new([attempt.node.clone()]) },
        }
    }

    /// How a session is that can be seen.
    fn truth(&self, id: BootstrapSessionId) -> Session {
        let truth = self.world.sessions().into_iter().find(|truth| truth.id == id).unwrap();
        let state = match (truth.phase, truth.member) {
            (SessionPhase::Failed(why), _) => SessionState::Failed(why),
            (SessionPhase::Ended(_), _) => SessionState::Stopped,
            (_, Some(member)) => SessionState::Joined(member),
            (_, None) => SessionState::Running,
        };
        Session { id, state }
    }
}

fn group(template: &NodeTemplate) -> RunNodeGroupSpec {
    RunNodeGroupSpec {
        run_id: RunId::new("suite", "u1").unwrap(),
        group_id: executor_api::GroupId::new("web").unwrap(),
        count: 1,
        template: Arc::new(template.clone()),
        policy: executor_api::GroupPolicy::default(),
        update: executor_api::UpdatePolicy::default(),
    }
}

/// The fake checks a spec without waiting.
fn checked(check: impl Future<Output = Result<(), Vec<SpecProblem>>>) -> Vec<SpecProblem> {
    match pin!(check).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(checked) => checked.err().unwrap_or_default(),
        Poll::Pending => panic!("the fake checks a spec without waiting"),
    }
}

fn trouble(error: ExecutorError) -> Trouble {
    Trouble::of(error.kind, error.context)
}

conformance::suite!(|| FakeHarness::sabotaged(executor));

#[test]
fn nothing_is_skipped_on_a_world_that_suffers_everything() {
    let report = run_suite(|| FakeHarness::sabotaged(executor), None).unwrap();
    assert_eq!(report.skipped(), Vec::<&str>::new(), "{report}");
}
