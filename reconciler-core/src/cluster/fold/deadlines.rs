//! Silence, and stored deadlines that have passed.

use std::time::SystemTime;

use executor_api::NodeDeadline;

use super::{Dropped, Fact, Folded, failure, later};
use crate::cluster::policy::RetryPolicy;
use crate::cluster::state::ManagedNode;

/// The node could not be seen. Not proof: it only starts the loss timeout, where there is one.
pub(super) fn suspected(
    node: &mut ManagedNode,
    reason: String,
    now: SystemTime,
    retry: &RetryPolicy,
) -> Folded {
    // A node that is not ready has deadlines of its own.
    if !node.is_ready() || node.extra.suspect_since.is_some() {
        return Folded::Nothing;
    }
    node.extra.suspect_since = Some(now);
    node.extra.loss_deadline = retry.extra.loss_timeout.map(|timeout| later(now, timeout));
    Folded::Applied(Fact::Suspected { reason })
}

/// The node was seen.
pub(super) fn seen_alive(node: &mut ManagedNode) -> Folded {
    if node.extra.suspect_since.take().is_none() {
        return Folded::Nothing;
    }
    node.extra.loss_deadline = None;
    Folded::Applied(Fact::SeenAlive)
}

/// A stored deadline has passed; equality counts.
pub(super) fn passed(
    node: &mut ManagedNode,
    which: NodeDeadline,
    now: SystemTime,
    retry: &RetryPolicy,
) -> Folded {
    let (stored, what) = match which {
        NodeDeadline::Join => (node.extra.join_deadline, "the join deadline"),
        NodeDeadline::Loss => (node.extra.loss_deadline, "the loss deadline"),
        NodeDeadline::Stable => (node.extra.stable_at, "the stable time"),
    };
    if stored.is_none_or(|at| now < at) {
        return Folded::Dropped(Dropped::NotDue { what });
    }
    match which {
        NodeDeadline::Join => {
            let limit = retry.extra.join_within;
            failure::end_attempt(node, &format!("did not join within {limit:?}"), now, retry)
        }
        NodeDeadline::Loss => {
            let since = node.extra.suspect_since.and_then(|at| now.duration_since(at).ok());
            let silence = since.unwrap_or_default();
            failure::lost(node, &format!("could not be seen for {silence:?}"), now, retry)
        }
        NodeDeadline::Stable => {
            node.extra.stable_at = None;
            node.retry.consecutive_failures = 0;
            node.retry.last_error = None;
            Folded::Applied(Fact::Stable)
        }
    }
}
