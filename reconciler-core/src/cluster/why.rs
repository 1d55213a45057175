//! The reason of every decision, in one type, so that plan, log, `explain` and story say the same thing.
//! Waiting is a value too, with its reason and its time.

use std::fmt;
use std::time::SystemTime;

use executor_api::{
    BootstrapSessionId, GroupId, LeaseId, LogicalNodeSpec, OperationId, OperationKind, ProviderName,
};
use serde::{Deserialize, Serialize};

use crate::cluster::hold::HoldBy;

/// A part of a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpecField {
    /// What the node is for.
    Role,
    /// Who leases it.
    Provider,
    /// What is leased.
    Shape,
    /// How it is bootstrapped.
    Boot,
    /// What it is told about joining.
    Join,
}

impl SpecField {
    /// The parts in which two specs of one slot differ.
    pub fn differing(old: &LogicalNodeSpec, new: &LogicalNodeSpec) -> Vec<Self> {
        let (old, new) = (&old.template, &new.template);
        [
            (old.role != new.role, Self::Role),
            (old.provider != new.provider, Self::Provider),
            (old.shape != new.shape, Self::Shape),
            (old.boot != new.boot, Self::Boot),
            (old.join != new.join, Self::Join),
        ]
        .into_iter()
        .filter_map(|(differs, field)| differs.then_some(field))
        .collect()
    }

    /// The name as the user wrote it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Role => "role",
            Self::Provider => "provider",
            Self::Shape => "shape",
            Self::Boot => "boot",
            Self::Join => "join",
        }
    }
}

/// Why a node takes its next step, or takes none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    // --- steps
    /// The slot is declared and nothing is there.
    Declared,
    /// The slot is no longer declared.
    Undeclared,
    /// The attempt implements another spec.
    SpecChanged {
        /// In what it differs.
        fields: Vec<SpecField>,
    },
    /// An operator asked for a fresh attempt.
    ReplaceRequested,
    /// The attempt is over.
    AttemptFailed {
        /// Why.
        reason: String,
    },
    /// The node has no lease.
    NoLease,
    /// The lease's endpoint is not known.
    NoEndpoint,
    /// The node has no bootstrap session.
    NoSession,
    /// The node joined.
    MemberJoined,
    /// The outcome of this operation is unknown: look for what it made before anything else.
    OutcomeUnknown {
        /// Which operation.
        kind: OperationKind,
    },
    /// A session is still there.
    SessionLeft {
        /// Which one.
        session: BootstrapSessionId,
    },
    /// A lease is still there.
    LeaseLeft {
        /// Which one.
        lease: LeaseId,
    },
    /// Nothing of the attempt is left.
    NothingLeft,
    /// The slot is declared and its last attempt is gone.
    ReadyToRestart,

    // --- waits
    /// An operation is under way.
    Pending {
        /// Which one.
        operation: OperationId,
        /// What it does.
        kind: OperationKind,
        /// When it is stopped.
        until: SystemTime,
    },
    /// An effect failed, or found nothing yet.
    Backoff {
        /// When it is tried again.
        until: SystemTime,
        /// Failures in a row.
        failures: u32,
        /// What is waited out.
        last_error: Option<String>,
    },
    /// The bootstrap runs; the node has not joined.
    AwaitingJoin {
        /// When the attempt is given up, if that is known.
        until: Option<SystemTime>,
    },
    /// The attempt failed; the next one waits.
    RestartDelay {
        /// When it starts.
        until: SystemTime,
        /// Failures in a row.
        failures: u32,
        /// The last failure.
        last_error: Option<String>,
    },
    /// What an unknown outcome may have made can still appear.
    MayStillAppear {
        /// Until then.
        until: SystemTime,
    },
    /// Somebody holds the slot.
    Held {
        /// Who.
        by: HoldBy,
        /// Why, in that one's words.
        reason: String,
    },
    /// Enough slots of the group are not ready already.
    UpdateLimit {
        /// The group.
        group: GroupId,
        /// How many may be unavailable.
        limit: u32,
        /// How many are.
        unavailable: u32,
    },
    /// The provider works on as much as it is given at once.
    ProviderBusy {
        /// The provider.
        provider: ProviderName,
        /// How many operations it works on.
        running: u32,
    },
    /// Nothing is decided before every provider in use was listed once, for the state might be old.
    ProviderUnlisted {
        /// The provider.
        provider: ProviderName,
        /// Why it could not be listed, if it was tried.
        error: Option<String>,
    },
    /// Ready, and nothing to do.
    Ready,
    /// Ready as far as is known, but it could not be seen for a while.
    Suspect {
        /// Since when.
        since: SystemTime,
        /// When silence ends the attempt, if it does.
        until: Option<SystemTime>,
    },
}

impl Why {
    /// When a wait ends by itself.
    pub fn until(&self) -> Option<SystemTime> {
        match self {
            Self::Pending { until, .. }
            | Self::Backoff { until, .. }
            | Self::RestartDelay { until, .. }
            | Self::MayStillAppear { until } => Some(*until),
            Self::AwaitingJoin { until } | Self::Suspect { until, .. } => *until,
            Self::Declared
            | Self::Undeclared
            | Self::SpecChanged { .. }
            | Self::ReplaceRequested
            | Self::AttemptFailed { .. }
            | Self::NoLease
            | Self::NoEndpoint
            | Self::NoSession
            | Self::MemberJoined
            | Self::OutcomeUnknown { .. }
            | Self::SessionLeft { .. }
            | Self::LeaseLeft { .. }
            | Self::NothingLeft
            | Self::ReadyToRestart
            | Self::Held { .. }
            | Self::UpdateLimit { .. }
            | Self::ProviderBusy { .. }
            | Self::ProviderUnlisted { .. }
            | Self::Ready => None,
        }
    }
}

/// The reason in words, without its times: those are printed by whoever knows the clock.
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declared => f.write_str("declared"),
            Self::Undeclared => f.write_str("absent from desired"),
            Self::SpecChanged { fields } => {
                let names: Vec<_> = fields.iter().map(|field| field.as_str()).collect();
                write!(f, "spec changed: {}", names.join(", "))
            }
            Self::ReplaceRequested => f.write_str("replacement requested"),
            Self::AttemptFailed { reason } => write!(f, "attempt failed: {reason}"),
            Self::NoLease => f.write_str("no lease"),
            Self::NoEndpoint => f.write_str("endpoint not known"),
            Self::NoSession => f.write_str("no bootstrap session"),
            Self::MemberJoined => f.write_str("member joined"),
            Self::OutcomeUnknown { kind } => {
                write!(f, "outcome of {kind} unknown: adopt or prove absent")
            }
            Self::SessionLeft { session } => write!(f, "session {session} active"),
            Self::LeaseLeft { lease } => write!(f, "lease {lease} held"),
            Self::NothingLeft => f.write_str("nothing left to clean"),
            Self::ReadyToRestart => f.write_str("slot free"),
            Self::Pending { operation, kind, .. } => write!(f, "{kind} {operation} pending"),
            Self::Backoff { failures: 0, .. } => f.write_str("waiting to look again"),
            Self::Backoff { failures, last_error, .. } => {
                write!(f, "backing off after {failures} failure(s)")?;
                last_error.iter().try_for_each(|error| write!(f, ": {error}"))
            }
            Self::AwaitingJoin { .. } => f.write_str("bootstrap runs, not joined yet"),
            Self::RestartDelay { failures, last_error, .. } => {
                write!(f, "restart delayed after {failures} failure(s)")?;
                last_error.iter().try_for_each(|error| write!(f, ": {error}"))
            }
            Self::MayStillAppear { .. } => f.write_str("an unknown outcome may still appear"),
            Self::Held { by, reason } => {
                let by = match by {
                    HoldBy::Operator => "operator",
                    HoldBy::Maintenance => "maintenance",
                    HoldBy::Breach => "breach",
                };
                write!(f, "held by {by}: {reason}")
            }
            Self::UpdateLimit { group, limit, unavailable } => {
                write!(f, "{unavailable} of group {group} unavailable, limit {limit}")
            }
            Self::ProviderBusy { provider, running } => {
                write!(f, "provider {provider} works on {running} operations already")
            }
            Self::ProviderUnlisted { provider, error } => {
                write!(f, "nothing is decided before {provider} was listed")?;
                error.iter().try_for_each(|error| write!(f, ": {error}"))
            }
            Self::Ready => f.write_str("ready"),
            Self::Suspect { .. } => f.write_str("could not be seen lately"),
        }
    }
}
