//! A provider by what its world can do. An author says how to look, how to make one thing and how to remove it; the
//! promises that are the same for everybody (look before making, adopt-only, what is dead is gone, too young to be
//! seen, telling levels) are kept here, once.
//!
//! ```text
//!   LeaseWorld    list (look), make, remove       ──► LeaseProvider
//!   SessionWorld  session, start, stop            ──► Bootstrapper
//! ```
//!
//! [`executor`] makes an executor of a world that has both halves, [`lease_provider`] a lease provider of one that
//! has the first. A world that does not fit (it pushes instead of being asked, it reports progress, its listing is
//! worth having with pages missing) implements [`LeaseProvider`] and [`Bootstrapper`] itself: nothing else
//! in the house knows of this module.

mod leases;
mod sessions;
mod trouble;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::command::OperationKind;
use crate::error::ExecutorError;
use crate::executor::{Bootstrapper, Executor, LeaseProvider, OperationContext, StartRequest, Visibility};
use crate::facts::{BootstrapSessionId, LeaseFacts, LeaseOwner, ListedLease, MemberFacts};
use crate::identity::{AttemptKey, ProviderName, RunId};
use crate::spec::{LogicalNodeSpec, NodeTemplate, SpecProblem};
use crate::timer::Timer;

pub use trouble::Trouble;

/// A world that leases can be made in. It remembers nothing that is not written down in the world itself: after a
/// restart of the driver a new value must know as much as the old one.
#[async_trait]
pub trait LeaseWorld: Send + Sync + fmt::Debug + 'static {
    /// The name under which specs ask for it.
    fn name(&self) -> ProviderName;

    /// How long a read may miss what exists, and how long a call that was given up may still be carried out. Zero is a
    /// strong claim: no read is ever stale, and dropping a call's future stops it.
    fn visibility(&self) -> Visibility;

    /// Everything that can be known to be wrong with `template.shape` before anything is made, each problem at its
    /// place. Unknown keys are problems, see [`unknown_keys`](crate::spec::unknown_keys).
    fn shape_flaws(&self, template: &NodeTemplate) -> Vec<SpecProblem>;

    /// Learns of a template that is in force or still has nodes, see [`LeaseProvider::acquaint`]. A world of one place
    /// has nothing to learn.
    fn acquaint(&self, template: &NodeTemplate) {
        let _ = template;
    }

    /// Everything that carries the run's *name*, those of other uids and the dead that still show included.
    ///
    /// # Errors
    /// All of it could not be read. Whatever the reason, it is never an empty list.
    async fn list(&self, run: &RunId) -> Result<Vec<ListedLease>, Trouble>;

    /// Everything that carries this very attempt: none, one, or more where the world may have made it twice.
    ///
    /// # Errors
    /// As for [`list`](Self::list), from which this picks unless the world has a shorter way.
    async fn look(&self, attempt: &AttemptKey) -> Result<Vec<ListedLease>, Trouble> {
        let owner = LeaseOwner::Attempt(attempt.clone());
        let mut listed = self.list(&attempt.run).await?;
        listed.retain(|lease| lease.owner == owner);
        Ok(listed)
    }

    /// Makes a lease that carries the attempt (`ctx.identity()`), and says what is there now. Called after a look that
    /// found nothing, by several at once perhaps: it must be one step of the world, which of two lets one win (a
    /// token, an exclusive create, a name that only one can have). Who loses returns what the winner made.
    ///
    /// # Errors
    /// The kind says what is proved; see [`Trouble`].
    async fn make(&self, ctx: &OperationContext, desired: &LogicalNodeSpec) -> Result<ListedLease, Trouble>;

    /// Removes this lease of the attempt, dead or alive, and returns when it *is* gone. Not there is success.
    ///
    /// # Errors
    /// It is not gone for certain.
    async fn remove(&self, attempt: &AttemptKey, lease: &ListedLease) -> Result<(), Trouble>;
}

/// A world whose leases run sessions, one each in their life.
#[async_trait]
pub trait SessionWorld: LeaseWorld {
    /// Everything that can be known to be wrong with `template.boot` and `template.join`.
    fn boot_flaws(&self, template: &NodeTemplate) -> Vec<SpecProblem>;

    /// The attempt's session, if one was ever started.
    ///
    /// # Errors
    /// It cannot be seen.
    async fn session(&self, attempt: &AttemptKey) -> Result<Option<Session>, Trouble>;

    /// Starts the attempt's session on its lease, and says what is there now. As [`LeaseWorld::make`]: after a look
    /// that found none, by several at once perhaps, of which one may win. The node is handed
    /// `ctx.identity().nonce`.
    ///
    /// # Errors
    /// The kind says what is proved; see [`Trouble`].
    async fn start(&self, ctx: &OperationContext, request: &StartRequest) -> Result<Session, Trouble>;

    /// Ends the attempt's session and all that it started, and returns when nothing of it runs.
    ///
    /// # Errors
    /// Something may still run.
    async fn stop(&self, attempt: &AttemptKey) -> Result<(), Trouble>;

    /// The node joined: puts away what only the bootstrap needed. The node lives on.
    ///
    /// # Errors
    /// It is to be asked for again.
    async fn complete(&self, attempt: &AttemptKey) -> Result<(), Trouble> {
        let _ = attempt;
        Ok(())
    }

    /// Time between two looks at a session that is followed.
    fn pace(&self) -> Duration {
        Duration::from_millis(100)
    }
}

/// What the world says of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its id. Derived from the attempt where it can be, so that nothing has to be remembered.
    pub id: BootstrapSessionId,
    /// How it is.
    pub state: SessionState,
}

/// How a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// It runs and has not joined.
    Running,
    /// It has joined. The nonce is the one that the *node* quotes.
    Joined(MemberFacts),
    /// It ended before it joined, whatever its status; why.
    Failed(String),
    /// It was ended on request.
    Stopped,
}

impl SessionState {
    /// Whether nothing of it runs any more.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Stopped)
    }
}

/// The executor of a world that has both halves. The world waits for nothing; following a session waits by this timer.
pub fn executor<W: SessionWorld>(world: W, timer: Arc<dyn Timer>) -> Executor {
    let both = Arc::new(OfWorld::new(world, timer));
    let leases: Arc<dyn LeaseProvider> = Arc::clone(&both) as _;
    Executor::new(leases, both as Arc<dyn Bootstrapper>)
}

/// The lease provider of a world without sessions of its own, to be paired with any bootstrapper.
pub fn lease_provider<W: LeaseWorld>(world: W, timer: Arc<dyn Timer>) -> Arc<dyn LeaseProvider> {
    Arc::new(OfWorld::new(world, timer))
}

/// A world, called as the driver calls.
#[derive(Debug)]
struct OfWorld<W> {
    world: W,
    timer: Arc<dyn Timer>,
    /// When this instance began: what an earlier one started is no younger.
    began: SystemTime,
    /// When this one last asked for a session, by attempt; as long as it may be hidden.
    starts: Mutex<BTreeMap<AttemptKey, SystemTime>>,
}

impl<W: LeaseWorld> OfWorld<W> {
    fn new(world: W, timer: Arc<dyn Timer>) -> Self {
        Self { world, began: timer.now(), timer, starts: Mutex::default() }
    }

    /// The attempt's lease: the one that lives, the same one every time it is asked, or else one that is over.
    async fn lease(&self, attempt: &AttemptKey) -> Result<Option<ListedLease>, Trouble> {
        Ok(in_order(self.world.look(attempt).await?).into_iter().next())
    }

    /// Whether something made then (or nobody knows when) may exist although a look at `as_of` found nothing.
    fn may_be_hidden(&self, lease: &LeaseFacts, as_of: SystemTime) -> bool {
        let lag = self.world.visibility().listing_lag;
        let seen_by = lease.created_at.map(|made| made.checked_add(lag).unwrap_or(made));
        !lag.is_zero() && seen_by.is_none_or(|seen_by| as_of < seen_by)
    }

    /// Remembers that the attempt may have a session from now on.
    fn starting(&self, attempt: &AttemptKey) {
        let (now, lag) = (self.timer.now(), self.world.visibility().listing_lag);
        if lag.is_zero() {
            return;
        }
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        starts.retain(|_, at| at.checked_add(lag).is_some_and(|shows| now < shows));
        starts.insert(attempt.clone(), now);
    }

    /// Whether the attempt may have a session although a look at `as_of` found none.
    fn session_may_be_hidden(&self, attempt: &AttemptKey, as_of: SystemTime) -> bool {
        let lag = self.world.visibility().listing_lag;
        let starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        let started = starts.get(attempt).map_or(self.began, |at| self.began.max(*at));
        !lag.is_zero() && started.checked_add(lag).is_none_or(|shows| as_of < shows)
    }

    fn error(&self, effect: OperationKind, attempt: &AttemptKey) -> impl Fn(Trouble) -> ExecutorError {
        let who = format!("{}: {attempt}", self.world.name());
        move |trouble| trouble.during(effect, &who)
    }
}

/// The living before the rest, and among equals a fixed order: everybody who looks keeps the same one.
fn in_order(mut leases: Vec<ListedLease>) -> Vec<ListedLease> {
    let rank = |l: &ListedLease| (is_over(l), l.lease.created_at, l.lease.lease_id.clone());
    leases.sort_by_key(rank);
    leases
}

fn is_over(lease: &ListedLease) -> bool {
    use crate::facts::Life;
    match lease.life {
        Life::Pending | Life::Live => false,
        Life::Ending | Life::Dead => true,
    }
}
