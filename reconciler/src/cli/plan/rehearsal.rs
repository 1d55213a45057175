//! Rehearses an intent: the real driver, from the stored state, in virtual time, in an imaginary world that plays
//! every provider. What exists already is put into that world first.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use executor_api::{
    AttemptKey, BootSpec, BootstrapSessionId, Bootstrapper, CreateMode, CreateOutcome, EndpointLookup,
    Executor, ExecutorError, FoundLease, FoundSession, JoinSpec, LeaseFacts, LeaseProvider, Listing,
    LogicalNodeSpec, NodeTemplate, ObservationSink, OperationContext, ProviderName, Reading, RunId,
    RunNodeGroupSpec, SpecProblem, StartOutcome, StartRequest, Visibility,
};
use executor_fake::{FakeBehaviour, FakeProvider, FakeWorld};
use reconciler_driver::runner::Settled;
use reconciler_driver::{
    Changeset, ExecutorTable, MemoryStore, MetaChange, Rules, Runner, StateImage, StateStore, VirtualTimer,
};
use serde_json::Value;

use super::Changes;
use crate::cli::failure::Failure;

/// How long a rehearsal may take, in its own time.
pub(super) const LIMIT: Duration = Duration::from_mins(30);

/// How the rehearsal ended, and every step of it.
pub(super) fn rehearse(changes: &Changes) -> Result<(Settled, Vec<String>), Failure> {
    let failed = |error: &dyn std::error::Error| Failure::while_doing("rehearsing the plan", error);
    let timer = VirtualTimer::new(SystemTime::now());
    let world = FakeWorld::new(Arc::new(timer.clone()), FakeBehaviour::default());
    let mut store = MemoryStore::new();
    let mut old = BTreeSet::new();
    if let Some(stored) = &changes.stored {
        let mut image = stored.image.clone();
        old = furnish(&world, &mut image);
        store.commit(&whole(image)).map_err(|error| failed(&error))?;
    }
    let mut policy = changes.intent.notes.policy.clone();
    // Nothing is lost in a rehearsal, so nothing need be looked for.
    policy.extra.observe_every = LIMIT * 2;
    let table = cast(changes, &world, &Arc::new(old));
    let desired = changes.intent.shape.clone();
    let mut runner = Runner::open(Box::new(store), desired, policy, table, timer, Rules::default())
        .map_err(|error| failed(&error))?;
    let settled = runner.run_until_settled(LIMIT).map_err(|error| failed(&error))?;
    Ok((settled, runner.trace()))
}

/// Puts what exists into the world, and the world's names for it into the image. Gives the sessions that were
/// there before.
fn furnish(world: &FakeWorld, image: &mut StateImage) -> BTreeSet<BootstrapSessionId> {
    let mut sessions = BTreeSet::new();
    for (slot, node) in &mut image.state.nodes {
        let key = AttemptKey { run: image.run.clone(), node: slot.clone(), attempt: node.attempt };
        if let Some(lease) = &mut node.record.lease {
            lease.lease_id = world.plant(&key);
        }
        sessions.extend(node.record.bootstrap.as_ref().map(|bootstrap| bootstrap.session.clone()));
    }
    sessions
}

/// A changeset that holds a whole image.
fn whole(image: StateImage) -> Changeset {
    Changeset {
        seq: 0,
        upserted: image.state.nodes.into_iter().collect(),
        removed: Vec::new(),
        meta: MetaChange {
            run: Some(image.run),
            observed_generation: image.state.observed_generation,
            next_attempt_id: image.state.next_attempt_id,
            holds: Some(image.state.holds),
            desired: Some(Arc::new(image.desired)),
            annotations: image.annotations.into_iter().map(|(key, value)| (key, Some(value))).collect(),
        },
    }
}

/// One actor for each provider and bootstrapper that is named anywhere.
fn cast(changes: &Changes, world: &FakeWorld, old: &Arc<BTreeSet<BootstrapSessionId>>) -> ExecutorTable {
    let declared = changes.intent.shape.groups.iter().map(|group| &group.template);
    let there = changes.stored.iter().flat_map(|stored| stored.image.state.nodes.values());
    let templates: Vec<_> = declared.chain(there.map(|node| &node.record.desired.template)).collect();
    let actor = |name: &ProviderName| {
        Arc::new(Actor { fake: world.provider().named(name.clone()), old: Arc::clone(old) })
    };
    let providers: BTreeSet<_> = templates.iter().map(|template| &template.provider).collect();
    let vias: BTreeSet<_> = templates.iter().filter_map(|template| template.boot.via.as_ref()).collect();
    let table = providers.into_iter().fold(ExecutorTable::new(), |table, name| {
        let actor = actor(name);
        table.with_executor(Executor::new(Arc::<Actor>::clone(&actor), actor))
    });
    vias.into_iter().fold(table, |table, name| table.with_bootstrapper(actor(name)))
}

/// Plays a provider: the imaginary one under its name, which does not mind settings that are not its own and knows
/// of sessions that were there before.
#[derive(Debug)]
struct Actor {
    fake: FakeProvider,
    old: Arc<BTreeSet<BootstrapSessionId>>,
}

impl Actor {
    /// A spec without the settings of the provider that is played.
    fn plain(desired: &LogicalNodeSpec) -> LogicalNodeSpec {
        if desired.template.provider.as_str() == FakeProvider::NAME {
            return desired.clone();
        }
        let template = NodeTemplate {
            shape: Value::Null,
            boot: BootSpec { via: desired.template.boot.via.clone(), settings: Value::Null },
            join: JoinSpec::default(),
            ..NodeTemplate::clone(&desired.template)
        };
        LogicalNodeSpec { template: Arc::new(template), ..desired.clone() }
    }
}

#[async_trait]
impl LeaseProvider for Actor {
    fn name(&self) -> ProviderName {
        LeaseProvider::name(&self.fake)
    }

    fn visibility(&self) -> Visibility {
        LeaseProvider::visibility(&self.fake)
    }

    async fn validate(&self, _: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        Ok(())
    }

    async fn create(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, ExecutorError> {
        self.fake.create(ctx, &Self::plain(desired), mode).await
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundLease> {
        LeaseProvider::find(&self.fake, attempt).await
    }

    async fn lookup_endpoint(
        &self,
        ctx: &OperationContext,
        lease: &LeaseFacts,
    ) -> Result<EndpointLookup, ExecutorError> {
        self.fake.lookup_endpoint(ctx, lease).await
    }

    async fn destroy(&self, ctx: &OperationContext, lease: &LeaseFacts) -> Result<(), ExecutorError> {
        self.fake.destroy(ctx, lease).await
    }

    async fn list(&self, run: &RunId) -> Result<Listing, ExecutorError> {
        self.fake.list(run).await
    }
}

#[async_trait]
impl Bootstrapper for Actor {
    fn name(&self) -> ProviderName {
        Bootstrapper::name(&self.fake)
    }

    fn visibility(&self) -> Visibility {
        Bootstrapper::visibility(&self.fake)
    }

    async fn validate(&self, _: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        Ok(())
    }

    async fn start(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError> {
        let request = StartRequest { desired: Self::plain(&request.desired), ..request.clone() };
        self.fake.start(ctx, &request, mode).await
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundSession> {
        Bootstrapper::find(&self.fake, attempt).await
    }

    async fn complete(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        if self.old.contains(session) { Ok(()) } else { self.fake.complete(ctx, session).await }
    }

    async fn cancel(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        if self.old.contains(session) { Ok(()) } else { self.fake.cancel(ctx, session).await }
    }

    async fn attach(
        &self,
        attempt: &AttemptKey,
        session: &BootstrapSessionId,
        sink: ObservationSink,
    ) -> Result<(), ExecutorError> {
        if self.old.contains(session) {
            // It was there before and stays as it is.
            return std::future::pending().await;
        }
        self.fake.attach(attempt, session, sink).await
    }
}
