//! Errors: each of its kind, because the driver branches on it; a flaw is found before anything is made.

use std::sync::Arc;
use std::time::Duration;

use executor_api::{
    CreateMode, ExecutorErrorKind, GroupId, GroupPolicy, LogicalNodeSpec, NodeObservation, NodeTemplate,
    RejectReason, RunNodeGroupSpec, SpecProblem, StartRequest, UpdatePolicy,
};

use crate::bench::{Bench, Node, session_of};
use crate::case::{CaseEnd, CaseResult, ensure};
use crate::harness::{Injection, NodePlan};

pub(crate) async fn an_invalid_request_is_told(b: Arc<Bench>) -> CaseResult {
    refused(&b, ExecutorErrorKind::Rejected(RejectReason::Validation)).await
}

pub(crate) async fn a_used_up_quota_is_told(b: Arc<Bench>) -> CaseResult {
    refused(&b, ExecutorErrorKind::Rejected(RejectReason::Quota)).await
}

pub(crate) async fn a_missing_right_is_told(b: Arc<Bench>) -> CaseResult {
    refused(&b, ExecutorErrorKind::Rejected(RejectReason::Authorisation)).await
}

pub(crate) async fn a_lack_of_capacity_is_told(b: Arc<Bench>) -> CaseResult {
    refused(&b, ExecutorErrorKind::Rejected(RejectReason::Capacity)).await
}

pub(crate) async fn an_unreachable_provider_is_told(b: Arc<Bench>) -> CaseResult {
    refused(&b, ExecutorErrorKind::Unavailable).await
}

pub(crate) async fn a_throttle_says_how_long(b: Arc<Bench>) -> CaseResult {
    refused(&b, ExecutorErrorKind::Throttled { retry_after: Some(Duration::from_secs(7)) }).await
}

pub(crate) async fn expired_credentials_are_a_refusal(b: Arc<Bench>) -> CaseResult {
    b.inject(Injection::ExpireCredentials).await?;
    let ended = b.create_on(b.executor(), &b.key("web", 0, 1), CreateMode::CreateOrAdopt).await;
    b.inject(Injection::Heal).await?;
    // Refused there, or not even sent: either proves that nothing was made.
    let kinds = [ExecutorErrorKind::Rejected(RejectReason::Authorisation), ExecutorErrorKind::Unavailable];
    let as_told = ended.as_ref().is_err_and(|end| kinds.contains(&end.kind()));
    ensure!(as_told, "with expired credentials the create ended as {ended:?}");
    b.absence_counts().await;
    ensure!(b.inventory().await.is_empty(), "with expired credentials something was made");
    Ok(())
}

pub(crate) async fn an_answer_that_nobody_understands_is_ambiguous(b: Arc<Bench>) -> CaseResult {
    b.inject(Injection::GarbleCreate).await?;
    let ended = b.create_on(b.executor(), &b.key("web", 0, 1), CreateMode::CreateOrAdopt).await;
    let ambiguous = ended.as_ref().is_err_and(|end| end.kind() == ExecutorErrorKind::Ambiguous);
    ensure!(ambiguous, "an answer that proves nothing ended the create as {ended:?}");
    Ok(())
}

pub(crate) async fn a_refused_create_made_nothing(b: Arc<Bench>) -> CaseResult {
    refused(&b, ExecutorErrorKind::Rejected(RejectReason::Capacity)).await?;
    b.absence_counts().await;
    let left = b.inventory().await;
    ensure!(left.is_empty(), "a refused create made {left:?}");
    Ok(())
}

pub(crate) async fn a_flawed_spec_is_refused_at_its_flaw(b: Arc<Bench>) -> CaseResult {
    let Some((template, pointer)) = b.flawed() else {
        return Err(CaseEnd::Skipped("no spec is flawed in this provider's eyes".to_owned()));
    };
    let problems = validate(&b, template).await?;
    ensure!(problems.iter().any(|problem| problem.pointer == pointer), "{pointer} is not among {problems:?}");
    ensure!(
        problems.iter().all(|problem| !problem.message.is_empty()),
        "a problem says nothing: {problems:?}"
    );
    ensure!(b.inventory().await.is_empty(), "validation made something");
    Ok(())
}

pub(crate) async fn a_flawed_spec_is_not_leased(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let template = match b.flawed() {
        Some((template, pointer)) if pointer.starts_with("/shape") => template,
        _ => return Err(CaseEnd::Skipped("no shape is flawed in this provider's eyes".to_owned())),
    };
    // Validation may have been of an older version, or skipped: a create looks for itself.
    let desired = LogicalNodeSpec { template: Arc::new(template), ..b.desired(&key, NodePlan::Joins) };
    let ctx = b.ctx(&key);
    let ended = b.call(b.executor().leases().create(&ctx, &desired, CreateMode::CreateOrAdopt)).await;
    let kind = ExecutorErrorKind::Rejected(RejectReason::Validation);
    let refused = ended.as_ref().is_err_and(|end| end.kind() == kind);
    ensure!(refused, "a create of a flawed spec ended as {ended:?}");
    b.absence_counts().await;
    ensure!(b.inventory().await.is_empty(), "a flawed spec was leased");
    Ok(())
}

pub(crate) async fn a_sound_spec_is_accepted(b: Arc<Bench>) -> CaseResult {
    for plan in [NodePlan::Joins, NodePlan::NeverJoins, NodePlan::Exits(0)] {
        let template = b.desired(&b.key("web", 0, 1), plan).template;
        let problems = validate(&b, NodeTemplate::clone(&template)).await?;
        ensure!(problems.is_empty(), "a sound spec ({plan:?}) has the problems {problems:?}");
    }
    ensure!(b.inventory().await.is_empty(), "validation made something");
    Ok(())
}

pub(crate) async fn no_text_tells_a_secret(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let Some((desired, secret)) = b.secretive(&key) else {
        return Err(CaseEnd::Skipped("nodes of this executor are given no secrets".to_owned()));
    };
    let mut texts = Vec::new();
    let request = b.leased_as(&key, desired).await?;
    let started = b.start_on(b.executor(), &request, &key, CreateMode::CreateOrAdopt).await?;
    let session = session_of(started)?;
    let StartRequest { lease, endpoint, .. } = request.clone();
    texts.push(format!("{lease:?} {endpoint:?} {session:?}"));
    let node = Node { key: key.clone(), lease, endpoint, session };
    let watch = b.watch(b.executor(), &node);
    b.settles("the session's end", |world| world.sessions_of(&key).is_empty()).await?;
    b.told(&watch, "that the session failed", |o| {
        matches!(o, NodeObservation::BootstrapFailed { .. } | NodeObservation::LeaseLost { .. })
    })
    .await?;
    texts.push(format!("{:?}", watch.so_far()));
    // What is over is told of by every call in its own words.
    let again = b.start_on(b.executor(), &request, &key, CreateMode::CreateOrAdopt).await;
    texts.push(format!("{again:?}"));
    texts.push(format!("{:?}", b.find_visible(&key).await));
    texts.push(format!("{:?}", b.executor().bootstrap().find(&key).await));
    texts.push(format!("{:?}", b.list(b.run()).await));
    texts.push(format!("{:?}", b.create_on(b.executor(), &key, CreateMode::CreateOrAdopt).await));
    texts.push(format!("{:?}", b.destroy(&key, &node.lease).await));
    let telling = texts.iter().find(|text| text.contains(&secret));
    ensure!(telling.is_none(), "a secret is told: {}", telling.cloned().unwrap_or_default());
    Ok(())
}

async fn refused(b: &Bench, kind: ExecutorErrorKind) -> CaseResult {
    b.inject(Injection::RefuseCreate(kind)).await?;
    let ended = b.create_on(b.executor(), &b.key("web", 0, 1), CreateMode::CreateOrAdopt).await;
    let as_told = ended.as_ref().is_err_and(|end| end.kind() == kind);
    ensure!(as_told, "the provider said {kind} and the create ended as {ended:?}");
    Ok(())
}

/// What both halves of the executor find wrong with a group of this template.
pub(crate) async fn validate(b: &Bench, template: NodeTemplate) -> Result<Vec<SpecProblem>, CaseEnd> {
    let group_id = GroupId::new("web").map_err(|error| CaseEnd::Failed(error.to_string()))?;
    let group = RunNodeGroupSpec {
        run_id: b.run().clone(),
        group_id,
        count: 1,
        template: Arc::new(template),
        policy: GroupPolicy::default(),
        update: UpdatePolicy::default(),
    };
    let (leases, bootstrap) = (b.executor().leases(), b.executor().bootstrap());
    let mut problems = leases.validate(&group).await.err().unwrap_or_default();
    problems.extend(bootstrap.validate(&group).await.err().unwrap_or_default());
    Ok(problems)
}
