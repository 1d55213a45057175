//! What an author provides: a fresh world, the executor under test on it, an inventory that asks the world
//! itself, and the faults that this world can suffer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use executor_api::{
    AttemptKey, BootSpec, BootstrapSessionId, Executor, ExecutorErrorKind, JoinSpec, LeaseId, LeaseOwner,
    LogicalNodeSpec, NodeRole, NodeTemplate, ProviderName, RunId, Timer,
};
use serde_json::Value;

/// How the node of a case is to behave, in words that the harness translates into its own specs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePlan {
    /// It joins and lives on.
    Joins,
    /// It runs and never joins.
    NeverJoins,
    /// Its program ends with this status before it joins.
    Exits(i32),
}

/// Something that a case wants to go wrong. "Next" means the next such call for any attempt. Where a fault does
/// not pass by itself (a full disk), it may last until [`Injection::Heal`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Injection {
    /// The next create makes its lease, and its answer never comes.
    LoseCreateAnswer,
    /// The next create never arrives, and no answer comes.
    SwallowCreate,
    /// The next create makes its lease only after it was given up, within the declared late landing.
    LandCreateLate,
    /// The next create takes far longer than any deadline.
    SlowCreate,
    /// The next create makes two leases.
    MakeTwice,
    /// The next create is refused for this reason.
    RefuseCreate(ExecutorErrorKind),
    /// The next create is answered with something that the provider's documentation does not know.
    GarbleCreate,
    /// The next create makes a lease that gets no endpoint for as long as the case lasts.
    WithholdEndpoint,
    /// The next start starts its session, and its answer never comes.
    LoseStartAnswer,
    /// Lookups and listings cannot be read until [`Injection::Heal`].
    FailReads,
    /// Lookups and listings are refused for coming too often, until [`Injection::Heal`].
    ThrottleReads,
    /// The credentials have expired: no call is let through until [`Injection::Heal`].
    ExpireCredentials,
    /// The next listing lacks part of its pages.
    HalveListing,
    /// Listings come in pages of two from now on.
    SmallPages,
    /// One page of the next listing has nothing on it, and others behind it.
    EmptyPage,
    /// While the pages of the next listing are read, the first lease shown is removed by hand, so that everything
    /// behind it moves up by one.
    ShiftPages,
    /// Everything is well again.
    Heal,
    /// The lease is removed by hand, without a trace.
    RemoveByHand(LeaseId),
    /// The lease dies by itself.
    Kill(LeaseId),
    /// The lease gets another address.
    Move(LeaseId),
}

/// Why a fault cannot be caused in this world. The case that wants it is skipped with this reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotInject(
    /// The reason, in words.
    pub String,
);

impl CannotInject {
    /// A reason.
    pub fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// A lease that exists, as the world says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLease {
    /// Its id.
    pub id: LeaseId,
    /// Whose it is, as its labels say.
    pub owner: LeaseOwner,
}

/// A session that runs, as the world says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSession {
    /// Its id.
    pub id: BootstrapSessionId,
    /// Whose it is.
    pub owner: AttemptKey,
}

/// What exists, and for whom. Read from the world (files, processes, the provider's ground truth), never from
/// the executor under test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Leases that are not dead.
    pub leases: Vec<HeldLease>,
    /// Sessions that run. A session that was completed is over, although its node lives.
    pub sessions: Vec<HeldSession>,
}

impl Inventory {
    /// The leases of one attempt.
    pub fn leases_of(&self, key: &AttemptKey) -> Vec<LeaseId> {
        let owned = self.leases.iter().filter(|lease| lease.owner == LeaseOwner::Attempt(key.clone()));
        owned.map(|lease| lease.id.clone()).collect()
    }

    /// The sessions of one attempt.
    pub fn sessions_of(&self, key: &AttemptKey) -> Vec<BootstrapSessionId> {
        let owned = self.sessions.iter().filter(|session| session.owner == *key);
        owned.map(|session| session.id.clone()).collect()
    }

    /// Whether nothing exists.
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.sessions.is_empty()
    }
}

/// One fresh world with the executor under test on it. Made anew for every case, inside a tokio runtime.
#[async_trait]
pub trait Harness: Send + Sync + fmt::Debug + 'static {
    /// Whether time is virtual: the runtime's clock is paused and jumps whenever everybody waits. Only for
    /// executors that wait through [`Harness::timer`] alone.
    const VIRTUAL_TIME: bool;

    /// The cases that this world cannot put to the test, by name. A `#[test]` of the suite fails when any other case
    /// is skipped, and when one of these is not; see also [`Harness::MAY_SKIP`]. `None`: skips are printed and nothing more.
    const SKIPS: Option<&'static [&'static str]> = None;

    /// Cases of which it depends on the machine or on who runs the suite (root may do everything) whether they can be
    /// put to the test. Not to be listed in [`Harness::SKIPS`] as well.
    const MAY_SKIP: &'static [&'static str] = &[];

    /// The executor under test; each call gives a new instance, which knows nothing of the earlier ones. This is
    /// what a restart of the driver looks like.
    fn executor(&self) -> Executor;

    /// The time in which the executor lives.
    fn timer(&self) -> Arc<dyn Timer>;

    /// The run that the case plays in. Unique where cases run side by side in one real world.
    fn run(&self) -> RunId {
        #[expect(clippy::expect_used, reason = "both are legal names")]
        RunId::new("suite", "u1").expect("both are legal names")
    }

    /// A template whose nodes behave like that. A pure function of its argument. See [`template`].
    fn template(&self, plan: NodePlan) -> NodeTemplate;

    /// The spec of an attempt's slot, of that template.
    fn desired(&self, key: &AttemptKey, plan: NodePlan) -> LogicalNodeSpec {
        LogicalNodeSpec::of(key.node.clone(), Arc::new(self.template(plan)))
    }

    /// A template that `validate` must refuse, and the JSON pointer of its flaw.
    fn flawed(&self) -> Option<(NodeTemplate, String)>;

    /// A template whose labels try to use a reserved key, and the JSON pointer of that key. `None` where users cannot
    /// label anything.
    fn reserved(&self) -> Option<(NodeTemplate, String)> {
        None
    }

    /// A spec whose node is given a secret by reference, prints it and exits with an error before it joins; and the
    /// secret. `None` where nodes are given none. See [`SecretFile`](crate::SecretFile).
    fn secretive(&self, key: &AttemptKey) -> Option<(LogicalNodeSpec, String)> {
        let _ = key;
        None
    }

    /// What exists, as the world itself says.
    async fn inventory(&self) -> Inventory;

    /// Makes something go wrong. It has gone wrong when this returns: what was killed is dead, and shows as dead.
    ///
    /// # Errors
    /// This world cannot suffer it; why.
    async fn inject(&self, fault: Injection) -> Result<(), CannotInject>;

    /// Removes everything that the case made, without the executor's help. Called after every case, failed and
    /// panicked ones included.
    async fn clean_up(&self);

    /// How long one call may take.
    fn call_timeout(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// How long a case waits for a level (an endpoint, a join, a loss) before it fails.
    fn patience(&self) -> Duration {
        Duration::from_mins(1)
    }

    /// How long a case watches to see that nothing happens.
    fn quiet(&self) -> Duration {
        self.patience() / 4
    }

    /// Time between two looks at a level.
    fn pace(&self) -> Duration {
        Duration::from_millis(20)
    }
}

/// A template with this `shape` and these `boot` settings, and nothing else.
///
/// # Panics
/// The provider's name is not legal.
pub fn template(provider: &str, shape: Value, boot: Value) -> NodeTemplate {
    #[expect(clippy::expect_used, reason = "a suite without its provider has nothing to say")]
    let provider = ProviderName::new(provider).expect("the harness names its provider");
    NodeTemplate {
        role: NodeRole::default(),
        provider,
        shape,
        boot: BootSpec { via: None, settings: boot },
        join: JoinSpec::default(),
    }
}
