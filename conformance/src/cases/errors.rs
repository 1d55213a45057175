//! Errors: each of its kind, because the driver branches on it; a flaw is found before anything is made.

use std::sync::Arc;
use std::time::Duration;

use executor_api::{
    CreateMode, ExecutorErrorKind, GroupId, GroupPolicy, NodeTemplate, RejectReason, RunNodeGroupSpec,
    SpecProblem, UpdatePolicy,
};

use crate::bench::Bench;
use crate::case::{CaseEnd, CaseResult, ensure};
use crate::harness::{Injection, NodePlan};

pub(crate) async fn refusals_are_told_apart(b: Arc<Bench>) -> CaseResult {
    let kinds = [
        ExecutorErrorKind::Rejected(RejectReason::Validation),
        ExecutorErrorKind::Rejected(RejectReason::Quota),
        ExecutorErrorKind::Rejected(RejectReason::Authorisation),
        ExecutorErrorKind::Rejected(RejectReason::Capacity),
        ExecutorErrorKind::Unavailable,
    ];
    for kind in kinds {
        refused(&b, kind).await?;
    }
    Ok(())
}

pub(crate) async fn a_throttle_says_how_long(b: Arc<Bench>) -> CaseResult {
    refused(&b, ExecutorErrorKind::Throttled { retry_after: Some(Duration::from_secs(7)) }).await
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

pub(crate) async fn a_sound_spec_is_accepted(b: Arc<Bench>) -> CaseResult {
    for plan in [NodePlan::Joins, NodePlan::NeverJoins, NodePlan::Exits(0)] {
        let template = b.desired(&b.key("web", 0, 1), plan).template;
        let problems = validate(&b, NodeTemplate::clone(&template)).await?;
        ensure!(problems.is_empty(), "a sound spec ({plan:?}) has the problems {problems:?}");
    }
    ensure!(b.inventory().await.is_empty(), "validation made something");
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
async fn validate(b: &Bench, template: NodeTemplate) -> Result<Vec<SpecProblem>, CaseEnd> {
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
