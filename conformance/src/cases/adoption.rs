//! Adoption: what exists for the attempt is found and returned, whoever made it and however its answer was lost.
//! Adopt-only never makes anything.

use std::sync::Arc;

use executor_api::{CreateMode, CreateOutcome, ExecutorErrorKind, NodeObservation, StartOutcome};

use super::dedup::{one_lease, one_session};
use crate::bench::{Bench, leased, session_of};
use crate::case::{CallEnd, CaseResult, ensure};
use crate::harness::{Injection, NodePlan};

pub(crate) async fn a_lease_whose_answer_was_lost_is_adopted(b: Arc<Bench>) -> CaseResult {
    b.inject(Injection::LoseCreateAnswer).await?;
    let key = b.key("web", 0, 1);
    unanswered(&b, &key).await?;
    let made = b.inventory().await.leases_of(&key);
    ensure!(made.len() == 1, "the injected fault made {made:?}");
    b.absence_counts().await;
    let adopted = b.create(&key).await?;
    ensure!(adopted.lease_id == made[0], "{} was made and {} returned", made[0], adopted.lease_id);
    one_lease(&b, &key).await
}

pub(crate) async fn a_repeat_with_another_body_makes_no_second_lease(b: Arc<Bench>) -> CaseResult {
    b.inject(Injection::LoseCreateAnswer).await?;
    let key = b.key("web", 0, 1);
    let (ctx, asked) = (b.ctx(&key), b.desired(&key, NodePlan::Joins));
    let create = b.executor().leases().create(&ctx, &asked, CreateMode::CreateOrAdopt);
    // Long before what it made is sure to show.
    let lost = b.call_for(b.call_timeout() / 10, create).await;
    ensure!(lost.is_err(), "a create without an answer ended as {lost:?}");
    // Another version of the provider, or a start-up script with a time in it, asks for something else under the same
    // token. That somebody used it proves that there is a lease.
    let mut other = asked;
    Arc::make_mut(&mut other.template).role = executor_api::NodeRole("another".to_owned());
    let ctx = b.ctx(&key);
    let repeat = b.call(b.executor().leases().create(&ctx, &other, CreateMode::CreateOrAdopt)).await;
    let proves_nothing = |end: &CallEnd| end.kind() == ExecutorErrorKind::Ambiguous;
    ensure!(
        repeat.as_ref().err().is_none_or(proves_nothing),
        "a create was answered with {repeat:?} while an earlier one has made a lease"
    );
    let made = b.inventory().await.leases_of(&key);
    ensure!(made.len() == 1, "under one token there are {made:?}");
    b.absence_counts().await;
    leased(b.create_on(b.executor(), &key, CreateMode::AdoptOnly).await?)?;
    one_lease(&b, &key).await
}

pub(crate) async fn a_create_that_never_arrived_is_made_good(b: Arc<Bench>) -> CaseResult {
    b.inject(Injection::SwallowCreate).await?;
    let key = b.key("web", 0, 1);
    unanswered(&b, &key).await?;
    b.absence_counts().await;
    let outcome = b.create_on(b.executor(), &key, CreateMode::AdoptOnly).await?;
    ensure!(
        matches!(outcome, CreateOutcome::Absent { .. }),
        "nothing was made, and adopt-only found {outcome:?}"
    );
    b.create(&key).await?;
    one_lease(&b, &key).await
}

pub(crate) async fn a_lease_that_lands_late_is_adopted(b: Arc<Bench>) -> CaseResult {
    b.inject(Injection::LandCreateLate).await?;
    let key = b.key("web", 0, 1);
    unanswered(&b, &key).await?;
    b.absence_counts().await;
    let outcome = b.create_on(b.executor(), &key, CreateMode::AdoptOnly).await?;
    leased(outcome)?;
    one_lease(&b, &key).await
}

pub(crate) async fn of_two_leases_one_is_kept(b: Arc<Bench>) -> CaseResult {
    b.inject(Injection::MakeTwice).await?;
    let key = b.key("web", 0, 1);
    b.create(&key).await?;
    b.absence_counts().await;
    let kept = b.create(&key).await?;
    let left = b.inventory().await.leases_of(&key);
    ensure!(left == [kept.lease_id.clone()], "{} was kept and {left:?} exist", kept.lease_id);
    Ok(())
}

pub(crate) async fn a_new_instance_adopts_the_lease(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let made = b.create(&key).await?;
    let adopted = leased(b.create_on(&b.restarted(), &key, CreateMode::CreateOrAdopt).await?)?;
    ensure!(adopted.lease_id == made.lease_id, "a restart gave {} for {}", adopted.lease_id, made.lease_id);
    one_lease(&b, &key).await
}

pub(crate) async fn a_session_whose_answer_was_lost_is_adopted(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let request = b.leased(&key, NodePlan::NeverJoins).await?;
    b.inject(Injection::LoseStartAnswer).await?;
    let lost = b.start_on(b.executor(), &request, &key, CreateMode::CreateOrAdopt).await;
    let ambiguous = lost.as_ref().is_err_and(|end| end.kind() == ExecutorErrorKind::Ambiguous);
    ensure!(ambiguous, "a start without an answer ended as {lost:?}");
    let started = b.inventory().await.sessions_of(&key);
    ensure!(started.len() == 1, "the injected fault started {started:?}");
    b.absence_counts().await;
    let adopted = session_of(b.start_on(b.executor(), &request, &key, CreateMode::CreateOrAdopt).await?)?;
    ensure!(adopted == started[0], "{} was started and {adopted} returned", started[0]);
    one_session(&b, &key).await
}

pub(crate) async fn a_new_instance_adopts_the_session(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let request = b.leased(&key, NodePlan::NeverJoins).await?;
    let first = b.start_on(b.executor(), &request, &key, CreateMode::CreateOrAdopt).await?;
    let again = b.start_on(&b.restarted(), &request, &key, CreateMode::CreateOrAdopt).await?;
    let (first, again) = (session_of(first)?, session_of(again)?);
    ensure!(first == again, "a restart gave {again} for {first}");
    one_session(&b, &key).await
}

pub(crate) async fn a_new_instance_is_told_of_the_join_at_once(b: Arc<Bench>) -> CaseResult {
    let (node, first) = b.joined(&b.key("web", 0, 1)).await?;
    drop(first);
    let watch = b.watch(&b.restarted(), &node);
    b.told(&watch, "that the node had joined", |o| matches!(o, NodeObservation::MemberJoined { .. })).await?;
    Ok(())
}

pub(crate) async fn adopt_only_finds_the_lease(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let made = b.create(&key).await?;
    b.rest(b.visibility().listing_lag).await;
    let found = leased(b.create_on(&b.restarted(), &key, CreateMode::AdoptOnly).await?)?;
    ensure!(found.lease_id == made.lease_id, "adopt-only gave {} for {}", found.lease_id, made.lease_id);
    Ok(())
}

pub(crate) async fn adopt_only_makes_no_lease(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let outcome = b.create_on(b.executor(), &key, CreateMode::AdoptOnly).await?;
    ensure!(matches!(outcome, CreateOutcome::Absent { .. }), "adopt-only in an empty world gave {outcome:?}");
    b.absence_counts().await;
    ensure!(b.inventory().await.is_empty(), "adopt-only made something: {:?}", b.inventory().await);
    Ok(())
}

pub(crate) async fn adopt_only_finds_the_session(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let request = b.leased(&key, NodePlan::NeverJoins).await?;
    let first = session_of(b.start_on(b.executor(), &request, &key, CreateMode::CreateOrAdopt).await?)?;
    b.rest(b.executor().bootstrap().visibility().listing_lag).await;
    let found = session_of(b.start_on(&b.restarted(), &request, &key, CreateMode::AdoptOnly).await?)?;
    ensure!(found == first, "adopt-only gave {found} for {first}");
    Ok(())
}

pub(crate) async fn adopt_only_starts_no_session(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let request = b.leased(&key, NodePlan::NeverJoins).await?;
    let outcome = b.start_on(b.executor(), &request, &key, CreateMode::AdoptOnly).await?;
    ensure!(
        matches!(outcome, StartOutcome::Absent { .. }),
        "adopt-only found {outcome:?} where nothing runs"
    );
    b.absence_counts().await;
    let sessions = b.inventory().await.sessions_of(&key);
    ensure!(sessions.is_empty(), "adopt-only started {sessions:?}");
    Ok(())
}

/// A create whose answer does not come.
async fn unanswered(b: &Bench, key: &executor_api::AttemptKey) -> CaseResult {
    let ended = b.create_on(b.executor(), key, CreateMode::CreateOrAdopt).await;
    let ambiguous = ended.as_ref().is_err_and(|end| end.kind() == ExecutorErrorKind::Ambiguous);
    ensure!(ambiguous, "a create without an answer ended as {ended:?}");
    Ok(())
}
