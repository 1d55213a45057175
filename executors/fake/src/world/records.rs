//! What the world keeps: leases, sessions, what happened to them, and the breaches it witnessed.
//! Data only; `state` changes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::SystemTime;

use executor_api::{
    AttemptKey, BootstrapSessionId, Endpoint, EndpointAuth, LeaseFacts, LeaseId, LeaseOwner, Life,
    LogicalNodeId, LogicalNodeSpec, MemberFacts, ProviderName,
};

use crate::behaviour::NodeBehaviour;

/// The truth about one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseTruth {
    /// Its id.
    pub id: LeaseId,
    /// Whose it is, as its labels say.
    pub owner: LeaseOwner,
    /// The token of the request that made it.
    pub token: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its readable name.
    pub name: String,
    /// When it was made.
    pub created_at: SystemTime,
    /// From when on lookups and listings can show it.
    pub visible_from: SystemTime,
    /// Where it is in its life.
    pub life: Life,
    /// Where it can be reached, once it can be.
    pub endpoint: Option<Endpoint>,
    /// Why it is ending or dead.
    pub ended: Option<String>,
    /// It disappeared and is not even listed as dead.
    pub vanished: bool,
}

impl LeaseTruth {
    /// Whether anything of it is left.
    pub fn exists(&self) -> bool {
        self.life != Life::Dead
    }

    /// Whether it belongs to this attempt.
    pub fn belongs_to(&self, key: &AttemptKey) -> bool {
        matches!(&self.owner, LeaseOwner::Attempt(owner) if owner == key)
    }
}

/// Where a session is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionPhase {
    /// Its program runs; its node has not joined.
    Running,
    /// Its node has joined.
    Joined,
    /// It ended in good order; its node lives on.
    Completed,
    /// Its program ended before joining.
    Failed(String),
    /// It was ended on request, or with its lease.
    Ended(String),
}

/// The truth about one bootstrap session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionTruth {
    /// Its id.
    pub id: BootstrapSessionId,
    /// Whose it is.
    pub owner: AttemptKey,
    /// The lease that it runs on.
    pub lease: LeaseId,
    /// When it started.
    pub started_at: SystemTime,
    /// Where it is in its life.
    pub phase: SessionPhase,
    /// Who joined.
    pub member: Option<MemberFacts>,
}

impl SessionTruth {
    /// Whether the session itself still runs.
    pub fn runs(&self) -> bool {
        matches!(self.phase, SessionPhase::Running | SessionPhase::Joined)
    }
}

/// Something that really happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldEvent {
    /// When.
    pub at: SystemTime,
    /// To which slot; `None` for something without a complete identity.
    pub node: Option<LogicalNodeId>,
    /// What.
    pub what: Happened,
}

/// What really happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A lease came into being.
    LeaseMade(LeaseId),
    /// A lease became usable.
    LeaseLive(LeaseId),
    /// A lease is being ended.
    LeaseEnding(LeaseId),
    /// A lease is no more; why.
    LeaseDead(LeaseId, String),
    /// A lease changed its address.
    LeaseMoved(LeaseId),
    /// A session started.
    SessionStarted(BootstrapSessionId),
    /// A session's node joined.
    SessionJoined(BootstrapSessionId),
    /// A session is over; how.
    SessionOver(BootstrapSessionId, String),
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeaseMade(id) => write!(f, "{id} made"),
            Self::LeaseLive(id) => write!(f, "{id} live"),
            Self::LeaseEnding(id) => write!(f, "{id} ending"),
            Self::LeaseDead(id, why) => write!(f, "{id} dead: {why}"),
            Self::LeaseMoved(id) => write!(f, "{id} moved"),
            Self::SessionStarted(id) => write!(f, "{id} started"),
            Self::SessionJoined(id) => write!(f, "{id} joined"),
            Self::SessionOver(id, how) => write!(f, "{id} over: {how}"),
        }
    }
}

/// What a reconciler must never bring about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BreachKind {
    /// Two leases exist for one attempt.
    TwoLeasesForAttempt,
    /// Two leases exist for one slot.
    TwoLeasesForSlot,
    /// Two sessions run for one attempt.
    TwoSessionsForAttempt,
    /// Two sessions run for one slot.
    TwoSessionsForSlot,
    /// A destroy or cancel hit what belongs to another attempt.
    WrongKill,
}

/// One breach, as the world witnessed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// When.
    pub at: SystemTime,
    /// Of what.
    pub kind: BreachKind,
    /// Who and what, in words.
    pub detail: String,
    /// The world's own fault made it (a duplicate creation), not the caller.
    pub excused: bool,
}

/// Something scripted to befall a slot's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incident {
    /// The lease dies and is listed as dead; why.
    Dies(String),
    /// The lease disappears without a trace.
    Vanishes,
    /// The lease changes its address.
    Moves,
    /// The program of the slot's session exits with this status.
    Exits(i32),
}

/// A lease with what only the world needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) truth: LeaseTruth,
    /// `None` for aliens.
    pub(crate) body: Option<LogicalNodeSpec>,
    pub(crate) behaviour: NodeBehaviour,
    /// Every change of life, oldest first, for readings of an earlier moment.
    pub(crate) history: Vec<(SystemTime, Life)>,
    /// Which address of the pool it holds.
    pub(crate) address: Option<u32>,
    /// It was ended on request.
    pub(crate) by_request: bool,
    /// When its ending is over.
    pub(crate) ends_at: Option<SystemTime>,
    /// Moments at which something is due that those who watch the attempt must see.
    pub(crate) agenda: BTreeSet<SystemTime>,
}

impl Lease {
    pub(crate) fn life_at(&self, at: SystemTime) -> Option<Life> {
        self.history.iter().rev().find(|(since, _)| *since <= at).map(|(_, life)| *life)
    }

    pub(crate) fn died_at(&self) -> Option<SystemTime> {
        self.history.iter().find(|(_, life)| *life == Life::Dead).map(|(at, _)| *at)
    }

    pub(crate) fn facts(&self, provider: &ProviderName) -> LeaseFacts {
        LeaseFacts {
            lease_id: self.truth.id.clone(),
            provider: provider.clone(),
            created_at: Some(self.truth.created_at),
            attributes: BTreeMap::from([("name".to_owned(), self.truth.name.clone())]),
        }
    }
}

/// A session with what only the world needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) truth: SessionTruth,
    /// The nonce it hands to its node.
    pub(crate) nonce: String,
    pub(crate) behaviour: NodeBehaviour,
}

/// The address with this number in the pool.
pub(crate) fn endpoint(number: u32) -> Endpoint {
    let [_, a, b, c] = number.wrapping_add(1).to_be_bytes();
    Endpoint { host: format!("10.{a}.{b}.{c}"), port: 7000, auth: EndpointAuth::None, ports: BTreeMap::new() }
}
