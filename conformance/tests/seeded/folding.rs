//! Bugs in the fold.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use executor_api::{
    EffectFailure, EffectSuccess, ExecutorErrorKind, MemberFacts, NodeObservation, OperationKind,
    OperationReport, RejectReason, Visibility,
};
use reconciler_core::{NodeIntent, NodeStage};

use crate::plant::{Bug, Play, bug, folded_more, misheard};

/// Failed outcomes, changed.
fn failure(told: NodeObservation, change: impl Fn(&mut OperationReport)) -> NodeObservation {
    match told {
        NodeObservation::Completed(mut report) if report.outcome.is_err() => {
            change(&mut report);
            NodeObservation::Completed(report)
        }
        told => told,
    }
}

fn fails_with(report: &OperationReport, kind: ExecutorErrorKind) -> bool {
    matches!(&report.outcome, Err(failure) if failure.kind == kind)
}

pub(crate) fn bugs() -> Vec<Bug> {
    let mut bugs = operations();
    bugs.extend(facts());
    bugs
}

fn operations() -> Vec<Bug> {
    vec![
        bug("folds a stale result", "S8", || {
            misheard(|node, told| match (told, &node.pending) {
                (NodeObservation::Completed(mut report), Some(pending)) => {
                    report.operation = pending.id;
                    NodeObservation::Completed(report)
                }
                (told, _) => told,
            })
        }),
        bug("a stale result clears the wait", "S8", || {
            folded_more(|before, told, node, _, _| {
                if let NodeObservation::Completed(report) = told
                    && before.pending.as_ref().map(|p| p.id) != Some(report.operation)
                {
                    node.retry.next_effect_at = None;
                    node.retry.consecutive_failures = 0;
                }
            })
        }),
        bug("a timed-out create made nothing", "P4", || {
            misheard(|_, told| match told {
                NodeObservation::TimedOut { operation, visibility } => {
                    let failure = EffectFailure {
                        kind: ExecutorErrorKind::Unavailable,
                        message: "timed out".to_owned(),
                    };
                    NodeObservation::Completed(OperationReport {
                        operation,
                        outcome: Err(failure),
                        visibility,
                    })
                }
                told => told,
            })
        }),
        bug("an unknown outcome is a refusal", "P4", || {
            misheard(|_, told| {
                failure(told, |report| {
                    if let Err(failure) = &mut report.outcome
                        && failure.kind == ExecutorErrorKind::Ambiguous
                    {
                        failure.kind = ExecutorErrorKind::Rejected(RejectReason::Validation);
                    }
                })
            })
        }),
        bug("a refusal settles the unknown outcome before it", "P4", || {
            folded_more(|_, told, node, _, _| {
                if let NodeObservation::Completed(report) = told
                    && matches!(&report.outcome, Err(f) if matches!(f.kind, ExecutorErrorKind::Rejected(_)))
                {
                    node.retry.ambiguous_operation = None;
                    node.retry.extra.absent_counts_from = None;
                }
            })
        }),
        bug("the first empty lookup proves absence", "P4", || {
            misheard(|node, told| match told {
                NodeObservation::Completed(mut report) => {
                    if let (Ok(EffectSuccess::NothingToAdopt { as_of }), Some(from)) =
                        (&mut report.outcome, node.retry.extra.absent_counts_from)
                    {
                        *as_of = from;
                    }
                    NodeObservation::Completed(report)
                }
                told => told,
            })
        }),
        bug("does not wait for what may land late", "P4", || {
            misheard(|_, told| match told {
                NodeObservation::TimedOut { operation, .. } => {
                    NodeObservation::TimedOut { operation, visibility: Visibility::default() }
                }
                told => told,
            })
        }),
        bug("an unavailable provider means that everything is gone", "P4", || {
            misheard(|_, told| {
                failure(told, |report| {
                    if fails_with(report, ExecutorErrorKind::Unavailable) {
                        let message = "gone".to_owned();
                        report.outcome = Err(EffectFailure { kind: ExecutorErrorKind::Gone, message });
                    }
                })
            })
        }),
        bug("a refused destroy is a destroy", "P2", || {
            misheard(|node, told| {
                let destroying = node.pending.as_ref().is_some_and(|p| p.kind == OperationKind::DestroyLease);
                failure(told, |report| {
                    if destroying {
                        report.outcome = Ok(EffectSuccess::LeaseDestroyed);
                    }
                })
            })
        }),
        bug("a failure leaves no wait", "P10", || {
            folded_more(|before, _, node, _, _| {
                if before.pending.is_some() && node.pending.is_none() {
                    node.retry.next_effect_at = None;
                }
            })
        }),
        bug("the restart delay is forgotten", "P10", || {
            folded_more(|_, _, node, _, _| node.retry.restart_at = None)
        }),
        bug("a success brings a deleted attempt back", "S5", || {
            folded_more(|_, told, node, _, _| {
                let succeeded = matches!(told, NodeObservation::Completed(report) if report.outcome.is_ok());
                if succeeded && node.record.lease.is_some() {
                    node.intent = NodeIntent::Active;
                }
            })
        }),
        bug("waits a day after the third failure", "L1", || {
            folded_more(|before, _, node, now, _| {
                let failures = node.retry.consecutive_failures;
                if failures > before.retry.consecutive_failures && failures > 2 {
                    let day = now.checked_add(Duration::from_hours(24));
                    node.retry.next_effect_at = node.retry.next_effect_at.and(day);
                    node.retry.restart_at = node.retry.restart_at.and(day);
                }
            })
        }),
        bug("every other failure costs a second more", "S1", || {
            let failures = AtomicU32::new(0);
            folded_more(move |before, _, node, _, _| {
                let failed = node.retry.consecutive_failures > before.retry.consecutive_failures;
                if failed && failures.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
                    let later = |at: SystemTime| at.checked_add(Duration::from_secs(1));
                    node.retry.next_effect_at = node.retry.next_effect_at.and_then(later);
                    node.retry.restart_at = node.retry.restart_at.and_then(later);
                }
            })
        }),
        bug("rests for an hour after every failure", "L5", || {
            folded_more(|before, _, node, now, _| {
                if node.retry.consecutive_failures > before.retry.consecutive_failures {
                    let hour = now.checked_add(Duration::from_hours(1));
                    node.retry.next_effect_at = node.retry.next_effect_at.and(hour);
                    node.retry.restart_at = node.retry.restart_at.and(hour);
                }
            })
        })
        .in_play(Play::Trouble),
        bug("leaves retrying to the tick", "L2", || {
            folded_more(|before, _, node, now, policy| {
                if node.retry.consecutive_failures > before.retry.consecutive_failures {
                    let tick = now.checked_add(policy.extra.tick_every);
                    node.retry.next_effect_at = node.retry.next_effect_at.and(tick);
                }
            })
        }),
    ]
}

fn facts() -> Vec<Bug> {
    vec![
        bug("started is ready", "S14", || {
            folded_more(|_, told, node, now, _| {
                let started = matches!(
                    told,
                    NodeObservation::Completed(OperationReport {
                        outcome: Ok(EffectSuccess::BootstrapStarted { .. }),
                        ..
                    })
                );
                if started && node.intent == NodeIntent::Active && node.record.stage != NodeStage::Failed {
                    node.record.stage = NodeStage::Dormant;
                    node.record.handoff_complete = true;
                    node.active_bootstrap = None;
                    node.extra.ready_at = Some(now);
                    let (member_id, nonce) = ("nobody".to_owned(), String::new());
                    node.record.member = Some(MemberFacts { member_id, nonce, joined_at: now });
                }
            })
        }),
        bug("silence is death", "P3", || {
            misheard(|node, told| match (told, &node.record.lease) {
                (NodeObservation::Suspected { reason }, Some(lease)) => {
                    NodeObservation::LeaseLost { lease: lease.lease_id.clone(), reason }
                }
                (told, _) => told,
            })
        }),
        bug("a session that ends takes a ready node with it", "P3", || {
            folded_more(|before, told, node, now, _| {
                if before.is_ready() && matches!(told, NodeObservation::BootstrapFailed { .. }) {
                    node.record.stage = NodeStage::Failed;
                    node.record.failed_reason = Some("session over".to_owned());
                    node.retry.restart_at = Some(now);
                }
            })
        }),
        bug("a bootstrap without a deadline", "L4", || {
            folded_more(|_, _, node, _, _| node.extra.join_deadline = None)
        }),
        bug("progress ends the operation", "P4", || {
            folded_more(|_, told, node, _, _| {
                if matches!(
                    told,
                    NodeObservation::BootstrapProgress { .. } | NodeObservation::MemberJoined { .. }
                ) {
                    node.pending = None;
                }
            })
        }),
        bug("an old report puts the stage back", "S5", || {
            folded_more(|_, told, node, _, _| {
                if matches!(told, NodeObservation::EndpointChanged { .. })
                    && node.record.stage < NodeStage::Failed
                {
                    node.record.stage = NodeStage::EndpointKnown;
                }
            })
        }),
        bug("forgets the session of a failed bootstrap", "P2", || {
            folded_more(|_, _, node, _, _| {
                if node.record.stage == NodeStage::Failed {
                    node.active_bootstrap = None;
                    node.record.bootstrap = None;
                }
            })
        }),
    ]
}
