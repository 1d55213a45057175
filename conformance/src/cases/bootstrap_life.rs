//! The life of a session: it joins, or fails and says so; it can be cancelled; its node outlives it, and its
//! node's death is told.

use std::sync::Arc;

use executor_api::{BootstrapSessionId, CreateMode, NodeObservation, StartOutcome};

use super::dedup::one_session;
use crate::bench::{Bench, Node};
use crate::case::{CaseEnd, CaseResult, ensure};
use crate::harness::{Injection, NodePlan};

pub(crate) async fn a_node_joins(b: Arc<Bench>) -> CaseResult {
    b.joined(&b.key("web", 0, 1)).await.map(|_| ())
}

pub(crate) async fn an_exit_with_an_error_before_the_join_is_a_failure(b: Arc<Bench>) -> CaseResult {
    failed(&b, 1).await
}

pub(crate) async fn an_exit_with_success_before_the_join_is_a_failure(b: Arc<Bench>) -> CaseResult {
    failed(&b, 0).await
}

pub(crate) async fn a_session_that_failed_is_not_adopted(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let request = b.leased(&key, NodePlan::Exits(1)).await?;
    let first = b.start_on(b.executor(), &request, &key, CreateMode::CreateOrAdopt).await?;
    b.settles("the session's end", |world| world.sessions_of(&key).is_empty()).await?;
    if let Ok(StartOutcome::Started { session }) =
        b.start_on(b.executor(), &request, &key, CreateMode::CreateOrAdopt).await
        && first == (StartOutcome::Started { session: session.clone() })
    {
        return Err(CaseEnd::Failed(format!("{session} is over and was returned as started")));
    }
    Ok(())
}

pub(crate) async fn a_cancelled_session_runs_no_more(b: Arc<Bench>) -> CaseResult {
    let node = b.started(&b.key("web", 0, 1), NodePlan::NeverJoins).await?;
    b.cancel(&node.key, &node.session).await?;
    let left = b.inventory().await.sessions_of(&node.key);
    ensure!(left.is_empty(), "after the cancel succeeded there is {left:?}");
    Ok(())
}

pub(crate) async fn a_cancel_leaves_the_lease(b: Arc<Bench>) -> CaseResult {
    // First the session, then what it runs on: only so is it known that nothing of it runs any more.
    let node = b.started(&b.key("web", 0, 1), NodePlan::NeverJoins).await?;
    b.absence_counts().await;
    b.cancel(&node.key, &node.session).await?;
    let left = b.inventory().await.leases_of(&node.key);
    ensure!(left.len() == 1, "after the cancel of its session the node holds {left:?}");
    Ok(())
}

pub(crate) async fn a_session_that_never_was_tells_nothing(b: Arc<Bench>) -> CaseResult {
    let (node, _watch) = b.joined(&b.key("web", 0, 1)).await?;
    let stale = Node { session: BootstrapSessionId("no-such-session-1".to_owned()), ..node };
    let watch = b.watch(b.executor(), &stale);
    b.rest(b.quiet()).await;
    let told = watch.so_far().into_iter().find(|o| match o {
        NodeObservation::MemberJoined { session, .. } => *session == stale.session,
        _ => false,
    });
    ensure!(told.is_none(), "of a session that never was it is told {told:?}");
    Ok(())
}

pub(crate) async fn cancelling_a_session_that_never_was_leaves_the_one_that_runs(
    b: Arc<Bench>,
) -> CaseResult {
    let node = b.started(&b.key("web", 0, 1), NodePlan::NeverJoins).await?;
    b.cancel(&node.key, &BootstrapSessionId("no-such-session-1".to_owned())).await?;
    one_session(&b, &node.key).await
}

pub(crate) async fn a_completed_node_lives_on(b: Arc<Bench>) -> CaseResult {
    let (node, watch) = b.joined(&b.key("web", 0, 1)).await?;
    b.complete(&node).await?;
    b.rest(b.quiet()).await;
    let held = b.inventory().await.leases_of(&node.key);
    ensure!(held == [node.lease.lease_id.clone()], "after completion the node holds {held:?}");
    let lost = watch.so_far().into_iter().find(is_end);
    ensure!(lost.is_none(), "completion was told as {lost:?}");
    Ok(())
}

pub(crate) async fn a_death_during_the_boot_is_told(b: Arc<Bench>) -> CaseResult {
    let node = b.started(&b.key("web", 0, 1), NodePlan::NeverJoins).await?;
    let watch = b.watch(b.executor(), &node);
    b.inject(Injection::Kill(node.lease.lease_id.clone())).await?;
    b.told(&watch, "that the node died while it booted", is_end).await?;
    Ok(())
}

pub(crate) async fn a_death_after_the_join_is_told(b: Arc<Bench>) -> CaseResult {
    let (node, watch) = b.joined(&b.key("web", 0, 1)).await?;
    b.inject(Injection::Kill(node.lease.lease_id.clone())).await?;
    b.told(&watch, "that the lease is lost", |o| matches!(o, NodeObservation::LeaseLost { .. })).await?;
    Ok(())
}

pub(crate) async fn a_death_after_completion_is_told(b: Arc<Bench>) -> CaseResult {
    let (node, watch) = b.joined(&b.key("web", 0, 1)).await?;
    b.complete(&node).await?;
    b.inject(Injection::Kill(node.lease.lease_id.clone())).await?;
    b.told(&watch, "that the lease is lost", |o| matches!(o, NodeObservation::LeaseLost { .. })).await?;
    Ok(())
}

pub(crate) async fn reports_are_numbered_upwards(b: Arc<Bench>) -> CaseResult {
    let (_node, watch) = b.joined(&b.key("web", 0, 1)).await?;
    let numbers: Vec<u64> = watch
        .so_far()
        .into_iter()
        .filter_map(|o| match o {
            NodeObservation::BootstrapProgress { sequence, .. } => Some(sequence),
            _ => None,
        })
        .collect();
    ensure!(numbers.is_sorted_by(|a, b| a < b), "a session's reports are numbered {numbers:?}");
    Ok(())
}

async fn failed(b: &Bench, status: i32) -> CaseResult {
    let node = b.started(&b.key("web", 0, 1), NodePlan::Exits(status)).await?;
    let watch = b.watch(b.executor(), &node);
    b.told(&watch, "that the session failed", is_end).await?;
    let joined = watch.so_far().into_iter().find(|o| matches!(o, NodeObservation::MemberJoined { .. }));
    ensure!(joined.is_none(), "a node that exited before joining was told as {joined:?}");
    Ok(())
}

fn is_end(observation: &NodeObservation) -> bool {
    matches!(observation, NodeObservation::BootstrapFailed { .. } | NodeObservation::LeaseLost { .. })
}
