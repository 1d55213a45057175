//! What `executor_api::world` promises for everybody, put to the test where it is hard: on a world that shows late,
//! lands late, makes two and fails to answer. The template and the directory show the easy ones.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use conformance::fake::FakeHarness;
use conformance::run_suite;
use executor_api::world::{LeaseWorld, Trouble, lease_provider};
use executor_api::{
    AttemptKey, CandidateIndex, CreateMode, CreateOutcome, Executor, ExecutorError, LeaseOwner,
    LeaseProvider, Life, ListedLease, LogicalNodeSpec, NodeTemplate, OperationContext, OperationId,
    ProviderName, RunId, RunNodeGroupSpec, SlotGroup, SpecProblem, Timer, Visibility,
};
use executor_fake::FakeWorld;

/// The fake's leases with nothing but the steps of a world: one listing, one make, one remove.
#[derive(Debug)]
struct Steps {
    world: FakeWorld,
    leases: Arc<dyn LeaseProvider>,
    timer: Arc<dyn Timer>,
}

/// The fake with its lease half taken apart and put together again.
fn executor(world: &FakeWorld) -> Executor {
    let (fake, timer) = (world.executor(), Arc::clone(world.timer()));
    let (world, leases) = (world.clone(), Arc::clone(fake.leases()));
    let steps = Steps { world, leases, timer: Arc::clone(&timer) };
    Executor::new(lease_provider(steps, timer), Arc::clone(fake.bootstrap()))
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
        let group = RunNodeGroupSpec {
            run_id: RunId::new("suite", "u1").unwrap(),
            group_id: executor_api::GroupId::new("web").unwrap(),
            count: 1,
            template: Arc::new(template.clone()),
            policy: executor_api::GroupPolicy::default(),
            update: executor_api::UpdatePolicy::default(),
        };
        match pin!(self.leases.validate(&group)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(checked) => checked.err().unwrap_or_default(),
            Poll::Pending => panic!("the fake checks a spec without waiting"),
        }
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
        let ctx = OperationContext {
            attempt: attempt.clone(),
            operation: OperationId { attempt: attempt.attempt, sequence: 0 },
            candidate: CandidateIndex::default(),
            deadline: self.timer.now() + std::time::Duration::from_secs(30),
            group: SlotGroup { group: attempt.node.group(), slots: Arc::new([attempt.node.clone()]) },
        };
        self.leases.destroy(&ctx, &held.lease).await.map_err(trouble)
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
