//! Folds one observation into one node. Called by the driver, and by the simulator through it; emits no
//! effect and reads no clock.
//!
//! Deadlines are computed here, once, from the time and policy given, and stored; decisions only read them.
//! A fact that cannot be true of this attempt is dropped with a reason, and nothing changes.

use std::fmt;
use std::time::SystemTime;

use executor_api::{
    BootstrapFacts, BootstrapSessionId, EffectFailure, EffectSuccess, Endpoint, ExecutorErrorKind,
    LeaseFacts, LeaseId, MemberFacts, NodeObservation, OperationId, OperationKind, OperationReport,
};

use crate::cluster::policy::{RetryPolicy, later};
use crate::cluster::state::{ManagedNode, NodeIntent, NodeStage, PendingOperation};

mod deadlines;
mod failure;
mod session;

pub(in crate::cluster) use failure::mark;

/// What a fold did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Folded {
    /// The node changed.
    Applied(Fact),
    /// The fact was known already.
    Nothing,
    /// The fact cannot be true of this attempt; nothing changed.
    Dropped(Dropped),
}

/// What a node learnt, in the words of the event stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are their own description, and Display puts them in words")]
pub enum Fact {
    LeaseKnown { lease: LeaseId, endpoint: Option<String> },
    EndpointKnown { endpoint: String },
    NotReachableYet { reason: String },
    SessionStarted { session: BootstrapSessionId },
    SessionProgress { phase: String },
    SessionClosed { session: BootstrapSessionId },
    MemberJoined { member: String },
    Ready,
    LeaseGone,
    Finished { kind: OperationKind },
    ProvedAbsent { kind: OperationKind },
    NotFoundYet { kind: OperationKind },
    OperationFailed { kind: OperationKind, message: String },
    OutcomeUnknown { kind: OperationKind, message: String },
    AttemptFailed { reason: String },
    Suspected { reason: String },
    SeenAlive,
    Stable,
}

/// Why a fact was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are their own description, and Display puts them in words")]
pub enum Dropped {
    StaleOperation { reported: OperationId, pending: Option<OperationId> },
    OutcomeOfAnotherKind { kind: OperationKind },
    ForeignSession { session: BootstrapSessionId },
    ForeignLease { lease: LeaseId },
    OldReport { sequence: u64, last: u64 },
    NotInThisStage { stage: NodeStage, what: &'static str },
    NotDue { what: &'static str },
}

/// Folds one observation, and says what it changed or why it was dropped.
pub fn fold(
    node: &mut ManagedNode,
    observation: NodeObservation,
    now: SystemTime,
    retry: &RetryPolicy,
) -> Folded {
    match observation {
        NodeObservation::Completed(report) => completed(node, report, now, retry),
        NodeObservation::TimedOut { operation, visibility } => {
            let failure = EffectFailure {
                kind: ExecutorErrorKind::Ambiguous,
                message: format!("operation {operation} passed its deadline and was stopped"),
            };
            completed(node, OperationReport { operation, outcome: Err(failure), visibility }, now, retry)
        }
        NodeObservation::BootstrapProgress { session, sequence, phase } => {
            session::progress(node, &session, sequence, phase)
        }
        NodeObservation::MemberJoined { session, member } => {
            session::joined(node, &session, member, now, retry)
        }
        NodeObservation::BootstrapConverged { session } => session::converged(node, &session, now, retry),
        NodeObservation::BootstrapFailed { session, reason } => {
            session::failed(node, &session, &reason, now, retry)
        }
        NodeObservation::LeaseLost { lease, reason } => lost(node, lease, &reason, now, retry),
        NodeObservation::EndpointChanged { lease, endpoint } => moved(node, lease, endpoint),
        NodeObservation::Suspected { reason } => deadlines::suspected(node, reason, now, retry),
        NodeObservation::SeenAlive => deadlines::seen_alive(node),
        NodeObservation::DeadlinePassed(which) => deadlines::passed(node, which, now, retry),
    }
}

/// Folds one observation for a caller that does not count.
pub fn observe(node: &mut ManagedNode, observation: NodeObservation, now: SystemTime, retry: &RetryPolicy) {
    let _ = fold(node, observation, now, retry);
}

/// The end of an operation: only of the one that is pending.
fn completed(
    node: &mut ManagedNode,
    report: OperationReport,
    now: SystemTime,
    retry: &RetryPolicy,
) -> Folded {
    let Some(pending) = node.pending.take_if(|pending| pending.id == report.operation) else {
        let pending = node.pending.as_ref().map(|pending| pending.id);
        return Folded::Dropped(Dropped::StaleOperation { reported: report.operation, pending });
    };
    let fail =
        |node: &mut ManagedNode, error| failure::failed(node, &pending, error, report.visibility, now, retry);
    let folded = match report.outcome {
        Ok(success) => succeeded(node, &pending, success, now, retry),
        Err(error) => fail(node, error),
    };
    match folded {
        Folded::Applied(_) => folded,
        // The operation is no longer pending, whatever else it changed.
        Folded::Nothing => Folded::Applied(Fact::Finished { kind: pending.kind }),
        // An answer to another question proves nothing about this one.
        Folded::Dropped(dropped) => {
            let message = format!("{}: the executor answered something else ({dropped})", pending.kind);
            fail(node, EffectFailure { kind: ExecutorErrorKind::Ambiguous, message })
        }
    }
}

fn succeeded(
    node: &mut ManagedNode,
    pending: &PendingOperation,
    success: EffectSuccess,
    now: SystemTime,
    retry: &RetryPolicy,
) -> Folded {
    let kind = pending.kind;
    match (kind, success) {
        (OperationKind::CreateLease, EffectSuccess::LeaseCreated { lease, endpoint })
            if !lease.lease_id.0.is_empty() =>
        {
            clear_waits(node);
            settle(node, kind);
            lease_known(node, lease, endpoint)
        }
        (
            OperationKind::CreateLease | OperationKind::StartBootstrap,
            EffectSuccess::NothingToAdopt { as_of },
        ) if pending.extra.adopt_only => {
            clear_waits(node);
            nothing_to_adopt(node, kind, as_of, now, retry)
        }
        (OperationKind::LookupEndpoint, EffectSuccess::EndpointFound { endpoint }) => {
            clear_waits(node);
            let text = endpoint.to_string();
            node.record.connection = Some(endpoint);
            advance(node, NodeStage::EndpointKnown);
            Folded::Applied(Fact::EndpointKnown { endpoint: text })
        }
        (OperationKind::LookupEndpoint, EffectSuccess::EndpointNotReady { reason }) => {
            clear_waits(node);
            if node.intent == NodeIntent::Active {
                node.retry.next_effect_at = Some(later(now, retry.endpoint_probe_interval));
            }
            Folded::Applied(Fact::NotReachableYet { reason })
        }
        (OperationKind::StartBootstrap, EffectSuccess::BootstrapStarted { session }) => {
            clear_waits(node);
            settle(node, kind);
            session::started(node, session, now, retry)
        }
        (OperationKind::BootstrapConvergenceObserved, EffectSuccess::BootstrapCompleted) => {
            clear_waits(node);
            session::closed(node, now, retry)
        }
        (OperationKind::CancelBootstrap, EffectSuccess::BootstrapCancelled) => {
            clear_waits(node);
            session::cancelled(node)
        }
        (OperationKind::DestroyLease, EffectSuccess::LeaseDestroyed) => {
            clear_waits(node);
            lease_gone(node)
        }
        (
            OperationKind::CreateLease
            | OperationKind::LookupEndpoint
            | OperationKind::StartBootstrap
            | OperationKind::BootstrapConvergenceObserved
            | OperationKind::CancelBootstrap
            | OperationKind::DestroyLease,
            _,
        ) => Folded::Dropped(Dropped::OutcomeOfAnotherKind { kind }),
    }
}

/// Success clears the retry time (spec 11).
fn clear_waits(node: &mut ManagedNode) {
    node.retry.next_effect_at = None;
    node.retry.extra.throttles = 0;
}

/// The unknown outcome of `kind` is known now: what it made is in hand.
fn settle(node: &mut ManagedNode, kind: OperationKind) {
    if node.retry.ambiguous_operation == Some(kind) {
        node.retry.ambiguous_operation = None;
        node.retry.extra.absent_counts_from = None;
    }
}

/// A later stage, for an attempt that is to live and is not over.
fn advance(node: &mut ManagedNode, stage: NodeStage) {
    if node.intent == NodeIntent::Active
        && node.record.stage != NodeStage::Failed
        && node.record.stage < stage
    {
        node.record.stage = stage;
    }
}

fn lease_known(node: &mut ManagedNode, lease: LeaseFacts, endpoint: Option<Endpoint>) -> Folded {
    let id = lease.lease_id.clone();
    node.record.lease = Some(lease);
    advance(node, NodeStage::LeaseCreated);
    let text = endpoint.as_ref().map(ToString::to_string);
    if endpoint.is_some() {
        node.record.connection = endpoint;
        advance(node, NodeStage::EndpointKnown);
    }
    Folded::Applied(Fact::LeaseKnown { lease: id, endpoint: text })
}

fn lease_gone(node: &mut ManagedNode) -> Folded {
    node.record.lease = None;
    node.record.connection = None;
    Folded::Applied(Fact::LeaseGone)
}

/// A lookup found nothing: proof only if it describes a time at which everything would have shown.
fn nothing_to_adopt(
    node: &mut ManagedNode,
    kind: OperationKind,
    as_of: SystemTime,
    now: SystemTime,
    retry: &RetryPolicy,
) -> Folded {
    let counts_from = node.retry.extra.absent_counts_from;
    if counts_from.is_none_or(|from| from <= as_of) {
        node.retry.ambiguous_operation = None;
        node.retry.extra.absent_counts_from = None;
        return Folded::Applied(Fact::ProvedAbsent { kind });
    }
    // Look again at the probe interval, and once more right when the answer starts to count.
    let probe = later(now, retry.endpoint_probe_interval);
    let again = counts_from.filter(|from| *from > now).map_or(probe, |from| from.min(probe));
    node.retry.next_effect_at = Some(again);
    Folded::Applied(Fact::NotFoundYet { kind })
}

/// Proved: the lease is dead.
fn lost(
    node: &mut ManagedNode,
    lease: LeaseId,
    reason: &str,
    now: SystemTime,
    retry: &RetryPolicy,
) -> Folded {
    match &node.record.lease {
        Some(held) if held.lease_id == lease => failure::lost(node, reason, now, retry),
        Some(_) | None => Folded::Dropped(Dropped::ForeignLease { lease }),
    }
}

/// An address is never an identity: a new one changes nothing but where to look.
fn moved(node: &mut ManagedNode, lease: LeaseId, endpoint: Endpoint) -> Folded {
    match &node.record.lease {
        Some(held) if held.lease_id == lease => {}
        Some(_) | None => return Folded::Dropped(Dropped::ForeignLease { lease }),
    }
    if node.record.connection.as_ref() == Some(&endpoint) {
        return Folded::Nothing;
    }
    let text = endpoint.to_string();
    node.record.connection = Some(endpoint);
    if node.record.stage == NodeStage::LeaseCreated {
        advance(node, NodeStage::EndpointKnown);
    }
    Folded::Applied(Fact::EndpointKnown { endpoint: text })
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeaseKnown { lease, endpoint: Some(endpoint) } => {
                write!(f, "lease {lease} at {endpoint}")
            }
            Self::LeaseKnown { lease, endpoint: None } => write!(f, "lease {lease}"),
            Self::EndpointKnown { endpoint } => write!(f, "endpoint {endpoint}"),
            Self::NotReachableYet { reason } => write!(f, "not reachable yet: {reason}"),
            Self::SessionStarted { session } => write!(f, "session {session} started"),
            Self::SessionProgress { phase } => write!(f, "bootstrap: {phase}"),
            Self::SessionClosed { session } => write!(f, "session {session} closed"),
            Self::MemberJoined { member } => write!(f, "{member} joined"),
            Self::Ready => f.write_str("ready"),
            Self::LeaseGone => f.write_str("lease gone"),
            Self::Finished { kind } => write!(f, "{kind} finished"),
            Self::ProvedAbsent { kind } => write!(f, "{kind} proved to have made nothing"),
            Self::NotFoundYet { kind } => write!(f, "nothing of {kind} found yet"),
            Self::OperationFailed { kind, message } => write!(f, "{kind} failed: {message}"),
            Self::OutcomeUnknown { kind, message } => write!(f, "outcome of {kind} unknown: {message}"),
            Self::AttemptFailed { reason } => write!(f, "attempt failed: {reason}"),
            Self::Suspected { reason } => write!(f, "suspect: {reason}"),
            Self::SeenAlive => f.write_str("seen alive again"),
            Self::Stable => f.write_str("stable; failures forgotten"),
        }
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StaleOperation { reported, pending: Some(pending) } => {
                write!(f, "result of {reported}, while {pending} is pending")
            }
            Self::StaleOperation { reported, pending: None } => {
                write!(f, "result of {reported}, while nothing is pending")
            }
            Self::OutcomeOfAnotherKind { kind } => write!(f, "not an outcome of {kind}"),
            Self::ForeignSession { session } => write!(f, "session {session} is not this attempt's"),
            Self::ForeignLease { lease } => write!(f, "lease {lease} is not this attempt's"),
            Self::OldReport { sequence, last } => write!(f, "report {sequence} after report {last}"),
            Self::NotInThisStage { stage, what } => write!(f, "{what} cannot be in stage {stage}"),
            Self::NotDue { what } => write!(f, "{what} is not due"),
        }
    }
}
