//! How a well-behaved world acts: how long things take, what is honoured, what is visible when.
//! Plain data, handed to the world once; misbehaviour is in `faults`.

use std::collections::BTreeMap;
use std::time::Duration;

use executor_api::{LogicalNodeId, Visibility};

/// When a lease can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointTiming {
    /// The create's own answer says where.
    AtOnce,
    /// A lookup says so once this has passed since the lease was made.
    After(Duration),
    /// No lookup ever finds one.
    Never,
}

/// What becomes of a bootstrap session left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joining {
    /// Its node joins this long after the start.
    After(Duration),
    /// It runs on and its node never joins.
    Never,
    /// Its program exits before joining.
    Exits {
        /// This long after the start.
        after: Duration,
        /// With this status; zero is a failure too.
        status: i32,
    },
}

/// How one slot's resources behave. A spec's `shape` and `boot` may override each field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeBehaviour {
    /// From a create's lookup to the lease.
    pub create: Duration,
    /// When the lease can be reached.
    pub endpoint: EndpointTiming,
    /// From the destroy to nothing being left.
    pub destroy: Duration,
    /// From a start's lookup to the session.
    pub start: Duration,
    /// What becomes of the session.
    pub join: Joining,
    /// How long completing a session takes.
    pub complete: Duration,
    /// From the cancel to nothing running.
    pub cancel: Duration,
    /// The lease dies by itself this long after it was made.
    pub dies_after: Option<Duration>,
}

impl Default for NodeBehaviour {
    fn default() -> Self {
        Self {
            create: Duration::from_secs(2),
            endpoint: EndpointTiming::After(Duration::from_secs(1)),
            destroy: Duration::from_secs(1),
            start: Duration::from_millis(500),
            join: Joining::After(Duration::from_secs(3)),
            complete: Duration::from_millis(100),
            cancel: Duration::from_millis(500),
            dies_after: None,
        }
    }
}

/// What the world does with a create's or start's idempotency token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tokens {
    /// A repeat of a token returns what the first made.
    #[default]
    Honoured,
    /// Every request that arrives makes something.
    Ignored,
}

/// How the whole world behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeBehaviour {
    /// Every slot that is not in `slots`.
    pub node: NodeBehaviour,
    /// Slots that differ.
    pub slots: BTreeMap<LogicalNodeId, NodeBehaviour>,
    /// Both declared and true: a lease shows in listings and lookups `listing_lag` after it was made; a
    /// create or start whose call was given up still happens, at most `late_landing` later. With zero late
    /// landing, giving a call up stops what has not happened yet.
    pub visibility: Visibility,
    /// A request that names a lease by its id is told "no such lease" for this long. At most the listing lag.
    pub direct_lag: Duration,
    /// What repeats of a token make.
    pub tokens: Tokens,
    /// How long a lookup or listing takes.
    pub read: Duration,
    /// How long a dead lease is still listed as dead.
    pub dead_shown_for: Duration,
}

impl Default for FakeBehaviour {
    fn default() -> Self {
        Self {
            node: NodeBehaviour::default(),
            slots: BTreeMap::new(),
            visibility: Visibility::default(),
            direct_lag: Duration::ZERO,
            tokens: Tokens::default(),
            read: Duration::from_millis(100),
            dead_shown_for: Duration::from_hours(1),
        }
    }
}

impl FakeBehaviour {
    /// A world in which nothing takes any time and every endpoint is known at once.
    pub fn instant() -> Self {
        let node = NodeBehaviour {
            create: Duration::ZERO,
            endpoint: EndpointTiming::AtOnce,
            destroy: Duration::ZERO,
            start: Duration::ZERO,
            join: Joining::After(Duration::ZERO),
            complete: Duration::ZERO,
            cancel: Duration::ZERO,
            dies_after: None,
        };
        Self { node, read: Duration::ZERO, ..Self::default() }
    }

    /// The behaviour of one slot, before its spec has its say.
    pub(crate) fn of(&self, node: &LogicalNodeId) -> NodeBehaviour {
        self.slots.get(node).unwrap_or(&self.node).clone()
    }
}
