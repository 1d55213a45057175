//! What happened to which attempt, and why: the event stream's vocabulary, and the counters beside it.
//! Emitted by the driver only.

use std::borrow::Cow;
use std::fmt;
use std::time::SystemTime;

use executor_api::{LeaseId, LogicalNodeId, NodeAttemptId, OperationId, OperationKind, ProviderName};
use reconciler_core::{HoldBy, Why};
use serde::{Deserialize, Serialize};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, by the driver's clock.
    pub at: SystemTime,
    /// To which slot, if to one.
    pub node: Option<LogicalNodeId>,
    /// To which attempt, if to one.
    pub attempt: Option<NodeAttemptId>,
    /// What.
    pub what: Happening,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Happening {
    /// A slot took a step.
    Step {
        /// The step, as [`NodeAction::name`](reconciler_core::NodeAction::name) says it.
        action: Cow<'static, str>,
        /// The operation, for an effect.
        operation: Option<OperationId>,
        /// Why.
        why: Why,
    },
    /// An attempt learnt something.
    Fact {
        /// In words.
        text: String,
    },
    /// A fact could not be true of its attempt, and nothing changed.
    Dropped {
        /// In words.
        reason: String,
    },
    /// The result of an operation that nobody waits for any more; nothing changed.
    StaleResult {
        /// Which operation.
        operation: OperationId,
    },
    /// A planned action no longer fitted and was discarded.
    StaleAction {
        /// The action.
        action: Cow<'static, str>,
        /// Why it did not fit.
        reason: String,
    },
    /// An operation passed its deadline and was stopped; what it did is unknown.
    TimedOut {
        /// Which operation.
        operation: OperationId,
        /// What it was doing.
        kind: OperationKind,
    },
    /// An operation was under way when the driver before this one ended. What it made is looked up.
    Interrupted {
        /// Which operation.
        operation: OperationId,
        /// What it was doing.
        kind: OperationKind,
    },
    /// Somebody joined with a nonce that is not this attempt's.
    ForeignMember {
        /// Who.
        member: String,
    },
    /// A hold began, or has another reason from now on.
    Held {
        /// By whose word.
        by: HoldBy,
        /// Why.
        reason: String,
    },
    /// A hold ended.
    Released {
        /// By whose word.
        by: HoldBy,
    },
    /// An operator asked for a fresh attempt.
    ReplaceRequested,
    /// A lease of another run of the same name was seen. It is left alone.
    ForeignLease {
        /// Who leases it.
        provider: ProviderName,
        /// Which one.
        lease: LeaseId,
        /// Whose it says it is.
        owner: String,
    },
    /// A lease of this run was seen whose attempt is over or unknown. It is reported and left alone.
    Orphan {
        /// Who leases it.
        provider: ProviderName,
        /// Which one.
        lease: LeaseId,
        /// Whose it says it is.
        owner: String,
    },
    /// An orphan was ended, as the run allows.
    OrphanDestroyed {
        /// Who leased it.
        provider: ProviderName,
        /// Which one.
        lease: LeaseId,
    },
    /// An orphan could not be ended; the next sweep tries again.
    OrphanLeft {
        /// Who leases it.
        provider: ProviderName,
        /// Which one.
        lease: LeaseId,
        /// What the provider said.
        reason: String,
    },
    /// Two live leases were seen for one attempt: that must not happen, and the slot is held.
    Breach {
        /// Which ones.
        leases: Vec<LeaseId>,
    },
    /// A provider could not be listed. Nothing follows from that.
    ListingFailed {
        /// Which provider.
        provider: ProviderName,
        /// What it said.
        reason: String,
    },
    /// A provider can be listed again.
    ListingRecovered {
        /// Which provider.
        provider: ProviderName,
    },
    /// The state could not be stored. Nothing is sent any more.
    StoreFailed {
        /// What the store said.
        reason: String,
    },
}

impl Happening {
    /// The name in the second column of a trace.
    pub fn name(&self) -> &str {
        match self {
            Self::Step { action, .. } => action,
            Self::Fact { .. } => "fact",
            Self::Dropped { .. } => "dropped",
            Self::StaleResult { .. } => "stale-result",
            Self::StaleAction { .. } => "stale-action",
            Self::TimedOut { .. } => "timed-out",
            Self::Interrupted { .. } => "interrupted",
            Self::ForeignMember { .. } => "foreign-member",
            Self::Held { .. } => "held",
            Self::Released { .. } => "released",
            Self::ReplaceRequested => "replace-requested",
            Self::ForeignLease { .. } => "foreign-lease",
            Self::Orphan { .. } => "orphan",
            Self::OrphanDestroyed { .. } => "orphan-destroyed",
            Self::OrphanLeft { .. } => "orphan-left",
            Self::Breach { .. } => "breach",
            Self::ListingFailed { .. } => "listing-failed",
            Self::ListingRecovered { .. } => "listing-recovered",
            Self::StoreFailed { .. } => "store-failed",
        }
    }
}

/// The rest of the line, after the name.
impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step { why, .. } => write!(f, "{why}"),
            Self::Fact { text } => f.write_str(text),
            Self::Dropped { reason } | Self::StoreFailed { reason } => f.write_str(reason),
            Self::StaleResult { operation } => write!(f, "result of {operation}, which nobody waits for"),
            Self::StaleAction { action, reason } => write!(f, "{action}: {reason}"),
            Self::TimedOut { operation, kind } => write!(f, "{kind} {operation} stopped at its deadline"),
            Self::Interrupted { operation, kind } => {
                write!(f, "{kind} {operation} was under way as its driver ended")
            }
            Self::ForeignMember { member } => write!(f, "{member} quotes another attempt's nonce"),
            Self::Held { by, reason } => write!(f, "by {}: {reason}", holder(*by)),
            Self::Released { by } => write!(f, "by {}", holder(*by)),
            Self::ReplaceRequested => f.write_str("by operator"),
            Self::ForeignLease { provider, lease, owner } | Self::Orphan { provider, lease, owner } => {
                write!(f, "lease {lease} of {provider} belongs to {owner}")
            }
            Self::OrphanDestroyed { provider, lease } => write!(f, "lease {lease} of {provider} is gone"),
            Self::OrphanLeft { provider, lease, reason } => {
                write!(f, "lease {lease} of {provider} is still there: {reason}")
            }
            Self::Breach { leases } => {
                write!(f, "{} live leases for one attempt:", leases.len())?;
                leases.iter().try_for_each(|lease| write!(f, " {lease}"))
            }
            Self::ListingFailed { provider, reason } => write!(f, "{provider}: {reason}"),
            Self::ListingRecovered { provider } => write!(f, "{provider}"),
        }
    }
}

fn holder(by: HoldBy) -> &'static str {
    match by {
        HoldBy::Operator => "operator",
        HoldBy::Maintenance => "maintenance",
        HoldBy::Breach => "breach",
    }
}

/// How often things happened since the driver started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Passes that looked at something.
    pub passes: u64,
    /// Slots looked at, over all passes.
    pub slots_looked_at: u64,
    /// Effects recorded for dispatch.
    pub dispatched: u64,
    /// Results of operations that nobody waited for any more, or of attempts that are over.
    pub stale_results: u64,
    /// Facts that could not be true of their attempt.
    pub dropped_facts: u64,
    /// Planned actions that no longer fitted.
    pub stale_actions: u64,
    /// Operations stopped at their deadline.
    pub timeouts: u64,
    /// Effects that could not be submitted.
    pub submit_failures: u64,
    /// Joins that quoted another attempt's nonce.
    pub foreign_members: u64,
    /// Panics of executors, each contained.
    pub panics: u64,
    /// Listings that could not be read.
    pub listing_failures: u64,
    /// Steps that only the safety tick found: each is a lost mark, and a bug.
    pub found_by_tick: u64,
}
