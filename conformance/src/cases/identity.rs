//! Identity: what belongs to another run, slot or attempt is neither adopted nor touched, however alike the names.

use std::sync::Arc;

use executor_api::{
    CandidateIndex, CreateMode, CreateOutcome, ExecutorErrorKind, LeaseOwner, NodeObservation, RejectReason,
    RunId,
};

use super::dedup::{one_lease, one_session};
use super::errors::validate;
use crate::bench::{Bench, leased};
use crate::case::{CaseEnd, CaseResult, ensure};
use crate::harness::NodePlan;

pub(crate) async fn the_longest_names_are_kept_apart(b: Arc<Bench>) -> CaseResult {
    let long = "g".repeat(executor_api::identity::NAME_LIMIT);
    let (one, other) = (b.key(&long, u32::MAX, u64::MAX), b.key(&long, u32::MAX - 1, u64::MAX - 1));
    let first = b.create(&one).await?;
    b.absence_counts().await;
    let second = b.create(&other).await?;
    ensure!(first.lease_id != second.lease_id, "two slots share {}", first.lease_id);
    one_lease(&b, &one).await?;
    one_lease(&b, &other).await
}

pub(crate) async fn similar_slots_are_kept_apart(b: Arc<Bench>) -> CaseResult {
    let keys = [b.key("a", 11, 1), b.key("a-1", 1, 2), b.key("a", 1, 11), b.key("a-1-1", 1, 3)];
    for key in &keys {
        b.create(key).await?;
        b.absence_counts().await;
    }
    for key in &keys {
        one_lease(&b, key).await?;
    }
    Ok(())
}

pub(crate) async fn runs_of_one_name_are_kept_apart(b: Arc<Bench>) -> CaseResult {
    let ours = b.key("web", 0, 1);
    let theirs = b.key_in(&other_uid(b.run())?, "web", 0, 1);
    let mine = b.create(&ours).await?;
    // Only what is visible can be mistaken.
    b.absence_counts().await;
    let foreign = b.create(&theirs).await?;
    ensure!(mine.lease_id != foreign.lease_id, "two runs of one name share {}", mine.lease_id);
    b.absence_counts().await;
    b.destroy(&ours, &mine).await?;
    let left = b.inventory().await;
    ensure!(left.leases_of(&ours).is_empty(), "our own lease was left");
    ensure!(left.leases_of(&theirs) == [foreign.lease_id], "the other run's lease was touched");
    Ok(())
}

pub(crate) async fn a_lease_of_another_candidate_is_adopted(b: Arc<Bench>) -> CaseResult {
    // The token covers the candidate; whose a lease is does not depend on it.
    let key = b.key("web", 0, 1);
    let (first, desired) = (b.ctx(&key), b.desired(&key, NodePlan::Joins));
    let fallback = executor_api::OperationContext { candidate: CandidateIndex(1), ..b.ctx(&key) };
    let leases = b.executor().leases();
    let made = b.call(leases.create(&fallback, &desired, CreateMode::CreateOrAdopt)).await;
    let made = match made {
        Ok(outcome) => leased(outcome)?,
        Err(end) if matches!(end.kind(), ExecutorErrorKind::Rejected(RejectReason::Validation)) => {
            return Err(CaseEnd::Skipped("this provider's specs have no fallbacks".to_owned()));
        }
        Err(end) => return Err(end.into()),
    };
    b.absence_counts().await;
    let adopted = leased(b.call(leases.create(&first, &desired, CreateMode::CreateOrAdopt)).await?)?;
    ensure!(
        adopted.lease_id == made.lease_id,
        "{} of the fallback was passed over for {}",
        made.lease_id,
        adopted.lease_id
    );
    one_lease(&b, &key).await
}

pub(crate) async fn a_reserved_label_is_refused(b: Arc<Bench>) -> CaseResult {
    let Some((template, pointer)) = b.reserved() else {
        return Err(CaseEnd::Skipped("a user of this provider labels nothing".to_owned()));
    };
    let problems = validate(&b, template).await?;
    ensure!(problems.iter().any(|problem| problem.pointer == pointer), "{pointer} is not among {problems:?}");
    Ok(())
}

pub(crate) async fn a_lease_of_an_earlier_attempt_is_not_adopted(b: Arc<Bench>) -> CaseResult {
    let (before, after) = (b.key("web", 0, 1), b.key("web", 0, 2));
    let old = b.create(&before).await?;
    b.absence_counts().await;
    // Refusing to lease beside the earlier attempt is as good as leasing anew.
    if let Ok(outcome) = b.create_on(b.executor(), &after, CreateMode::CreateOrAdopt).await {
        let new = leased(outcome)?;
        ensure!(new.lease_id != old.lease_id, "{after} was given {} of {before}", old.lease_id);
    }
    if let Ok(CreateOutcome::Leased { lease, .. }) =
        b.create_on(b.executor(), &b.key("web", 0, 3), CreateMode::AdoptOnly).await
    {
        return Err(CaseEnd::Failed(format!("adopt-only gave {} to an attempt without any", lease.lease_id)));
    }
    one_lease(&b, &before).await
}

pub(crate) async fn a_destroy_touches_only_its_own_attempt(b: Arc<Bench>) -> CaseResult {
    let (ours, theirs) = (b.key("web", 0, 1), b.key("web", 1, 2));
    let lease = b.create(&theirs).await?;
    b.absence_counts().await;
    // Whether it is refused or called done is not promised; that it touches nothing is.
    let _ = b.destroy(&ours, &lease).await;
    b.rest(b.quiet()).await;
    one_lease(&b, &theirs).await
}

pub(crate) async fn a_cancel_touches_only_its_own_attempt(b: Arc<Bench>) -> CaseResult {
    let node = b.started(&b.key("web", 1, 2), NodePlan::NeverJoins).await?;
    let _ = b.cancel(&b.key("web", 0, 1), &node.session).await;
    one_session(&b, &node.key).await
}

pub(crate) async fn the_node_quotes_its_attempts_nonce(b: Arc<Bench>) -> CaseResult {
    let (node, watch) = b.joined(&b.key("web", 0, 1)).await?;
    let expected = b.ctx(&node.key).identity().nonce;
    let joined = b.told(&watch, "a join", |o| matches!(o, NodeObservation::MemberJoined { .. })).await?;
    if let NodeObservation::MemberJoined { session, member } = joined {
        ensure!(member.nonce == expected, "the node quoted {:?} instead of {expected:?}", member.nonce);
        ensure!(session == node.session, "the join quotes {session} instead of {}", node.session);
    }
    Ok(())
}

/// Another run of the same name.
pub(crate) fn other_uid(run: &RunId) -> Result<RunId, CaseEnd> {
    let uid = format!("{}x", run.uid());
    RunId::new(run.name(), uid).map_err(|error| CaseEnd::Failed(format!("the harness's run uid: {error}")))
}

/// Whose a listed lease is, if anybody's.
pub(crate) fn owned_by(owner: &LeaseOwner, run: &RunId) -> bool {
    matches!(owner, LeaseOwner::Attempt(key) if key.run == *run)
}
