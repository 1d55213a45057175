//! What a failure changes: which ones are retried within the attempt and which ones end it (spec 11).

use std::time::SystemTime;

use executor_api::{EffectFailure, ExecutorErrorKind, OperationKind, RejectReason, Visibility};

use super::{Fact, Folded, later, lease_gone, session, settle};
use crate::cluster::policy::RetryPolicy;
use crate::cluster::state::{ManagedNode, NodeIntent, NodeStage, PendingOperation};

/// A failed operation.
pub(super) fn failed(
    node: &mut ManagedNode,
    pending: &PendingOperation,
    error: EffectFailure,
    visibility: Visibility,
    now: SystemTime,
    retry: &RetryPolicy,
) -> Folded {
    let kind = pending.kind;
    match error.kind {
        ExecutorErrorKind::Gone => return gone(node, kind, &error.message, now, retry),
        ExecutorErrorKind::Throttled { retry_after } => {
            // A throttle belongs to the provider: it slows the node down and is not its failure, and it
            // ends no attempt.
            let throttles = node.retry.extra.throttles.saturating_add(1);
            node.retry.extra.throttles = throttles;
            let own = retry.backoff(&node.record.desired.id, node.attempt, throttles);
            let delay = retry_after.map_or(own, |asked| asked.max(own));
            node.retry.next_effect_at = Some(later(now, delay));
            node.retry.last_error = Some(error.message.clone());
            return Folded::Applied(Fact::OperationFailed { kind, message: error.message });
        }
        ExecutorErrorKind::Ambiguous if kind.is_creating() && !pending.extra.adopt_only => {
            mark(node, kind, visibility, now);
        }
        // The candidate that was tried is proved to have nothing: the next call tries the next one. Not while
        // an earlier outcome is unknown, which may have been another candidate's.
        ExecutorErrorKind::Rejected(RejectReason::Capacity | RejectReason::Quota)
            if kind == OperationKind::CreateLease
                && !pending.extra.adopt_only
                && node.retry.ambiguous_operation.is_none() =>
        {
            node.extra.candidate.0 = node.extra.candidate.0.saturating_add(1);
        }
        // A refusal proves that its own call made nothing; a mark left by an earlier one stands.
        ExecutorErrorKind::Rejected(_) | ExecutorErrorKind::Unavailable | ExecutorErrorKind::Ambiguous => {}
    }
    let unknown = node.retry.ambiguous_operation == Some(kind);
    if kind == OperationKind::StartBootstrap && node.intent == NodeIntent::Active {
        return end_attempt(node, &error.message, now, retry);
    }
    node.retry.last_error = Some(error.message.clone());
    node.retry.consecutive_failures = node.retry.consecutive_failures.saturating_add(1);
    if node.intent == NodeIntent::Active || kind.is_cleanup() || pending.extra.adopt_only {
        let delay = retry.backoff(&node.record.desired.id, node.attempt, node.retry.consecutive_failures);
        node.retry.next_effect_at = Some(later(now, delay));
    }
    // Otherwise it was sent before the attempt was given up, and its backoff would only delay the cleanup.
    if unknown {
        return Folded::Applied(Fact::OutcomeUnknown { kind, message: error.message });
    }
    Folded::Applied(Fact::OperationFailed { kind, message: error.message })
}

/// From now on only adoption or proved absence counts.
pub(in crate::cluster) fn mark(
    node: &mut ManagedNode,
    kind: OperationKind,
    visibility: Visibility,
    now: SystemTime,
) {
    let from = visibility.absent_counts_from(now);
    node.retry.ambiguous_operation = Some(kind);
    node.retry.extra.absent_counts_from = node.retry.extra.absent_counts_from.max(Some(from));
}

/// The attempt's resource existed and is dead: over while living, absent while deleting.
fn gone(
    node: &mut ManagedNode,
    kind: OperationKind,
    reason: &str,
    now: SystemTime,
    retry: &RetryPolicy,
) -> Folded {
    node.retry.next_effect_at = None;
    settle(node, kind);
    match node.intent {
        NodeIntent::Active => lost(node, reason, now, retry),
        NodeIntent::Deleting => match kind {
            OperationKind::CancelBootstrap
            | OperationKind::StartBootstrap
            | OperationKind::BootstrapConvergenceObserved => session::cancelled(node),
            OperationKind::CreateLease | OperationKind::LookupEndpoint | OperationKind::DestroyLease => {
                lease_gone(node)
            }
        },
    }
}

/// The attempt lost its lease. After a stable time of ready that is no failure of the node.
pub(super) fn lost(node: &mut ManagedNode, reason: &str, now: SystemTime, retry: &RetryPolicy) -> Folded {
    if node.intent == NodeIntent::Deleting || node.record.stage == NodeStage::Failed {
        return Folded::Nothing;
    }
    let ready_for = node.extra.ready_at.and_then(|at| now.duration_since(at).ok());
    let stable = node.is_ready() && ready_for.is_some_and(|time| time >= retry.extra.stable_after);
    if !stable {
        return end_attempt(node, reason, now, retry);
    }
    end(node, reason, now);
    node.retry.consecutive_failures = 0;
    node.retry.restart_at = None;
    Folded::Applied(Fact::AttemptFailed { reason: reason.to_owned() })
}

/// The attempt is over and its successor waits.
pub(super) fn end_attempt(
    node: &mut ManagedNode,
    reason: &str,
    now: SystemTime,
    retry: &RetryPolicy,
) -> Folded {
    end(node, reason, now);
    node.retry.consecutive_failures = node.retry.consecutive_failures.saturating_add(1);
    let delay = retry.backoff(&node.record.desired.id, node.attempt, node.retry.consecutive_failures);
    node.retry.restart_at = Some(later(now, delay));
    Folded::Applied(Fact::AttemptFailed { reason: reason.to_owned() })
}

fn end(node: &mut ManagedNode, reason: &str, now: SystemTime) {
    node.record.stage = NodeStage::Failed;
    node.record.failed_reason = Some(reason.to_owned());
    node.record.failed_at = Some(now);
    node.retry.last_error = Some(reason.to_owned());
    node.extra.join_deadline = None;
    node.extra.stable_at = None;
    node.extra.suspect_since = None;
    node.extra.loss_deadline = None;
}
