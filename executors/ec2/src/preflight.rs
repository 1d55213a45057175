//! The rehearsal before anything is created: whether each launch of a group would be allowed. Only what is proved
//! wrong is a problem; an API that cannot be reached at present is not the spec's fault.

use executor_api::{
    AttemptIdentity, AttemptKey, ExecutorErrorKind, LogicalNodeId, NodeAttemptId, RejectReason,
    RunNodeGroupSpec, SpecProblem,
};

use crate::api::{CallError, Reached};
use crate::candidate::candidates;
use crate::error::{Purpose, advice, classify, speaks_of_region};
use crate::map;
use crate::provider::Ec2Provider;
use crate::regions;
use crate::settings::Ec2Shape;
use crate::targets::Target;

/// Most candidates that are rehearsed; a longer list is trusted beyond.
const REHEARSED: usize = 12;

/// Rehearses the launches of a group.
pub(crate) async fn check(
    provider: &Ec2Provider,
    group: &RunNodeGroupSpec,
    shape: &Ec2Shape,
) -> Result<(), Vec<SpecProblem>> {
    let target = Target::of_shape(shape);
    let within = provider.config.timeouts.operation;
    let api = match provider.targets.client(&target).await {
        Ok(api) => api,
        Err(error) => return judge(shape, 0, &target, &error).map_or(Ok(()), |problem| Err(vec![problem])),
    };
    // The first attempt of the first slot stands for all: they differ in token and tags only.
    let attempt = AttemptKey {
        run: group.run_id.clone(),
        node: LogicalNodeId::of(&group.group_id, 0),
        attempt: NodeAttemptId(0),
    };
    let mut problems: Vec<SpecProblem> = Vec::new();
    for (index, candidate) in candidates(shape).iter().enumerate().take(REHEARSED) {
        let identity = AttemptIdentity::derive(&attempt, executor_api::CandidateIndex(0));
        let launch = map::launch(shape, candidate, &attempt, &identity);
        if let Err(error) = api.rehearse(&launch, within).await {
            let about_it = matches!(
                classify(Purpose::Read, &error),
                ExecutorErrorKind::Rejected(RejectReason::Validation)
            );
            match judge(shape, index, &target, &error) {
                Some(problem) if !problems.contains(&problem) => problems.push(problem),
                Some(_) => {}
                // Out of reach: nothing else could be found out, either.
                None => return if problems.is_empty() { Ok(()) } else { Err(problems) },
            }
            // What is not about this candidate is the same for the others.
            if !about_it {
                break;
            }
        }
    }
    // A run is listed by its name as well; whoever may launch and not look would lose sight of everything.
    if problems.is_empty()
        && let Err(error) = api.describe(&map::of_run(&group.run_id), within).await
    {
        problems.extend(judge(shape, 0, &target, &error));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// The problem that a failed rehearsal proves, if it proves one.
fn judge(shape: &Ec2Shape, index: usize, target: &Target, error: &CallError) -> Option<SpecProblem> {
    if let (Reached::NotSent, Some(region), None) = (error.reached, &shape.region, &shape.endpoint_url)
        && let Some(misspelt) = regions::unheard_of(region)
    {
        return Some(SpecProblem::new("/shape/region", misspelt));
    }
    let kind = classify(Purpose::Read, error);
    if !matches!(kind, ExecutorErrorKind::Rejected(RejectReason::Authorisation | RejectReason::Validation)) {
        tracing::warn!(%target, %error, "the rehearsal of a launch could not be finished; going on without it");
        return None;
    }
    let pointer = pointer(shape, index, error);
    let next = advice(error).map_or_else(String::new, |advice| format!("; {advice}"));
    Some(SpecProblem::new(pointer, format!("would be refused in {target}: {error}{next}")))
}

/// Which setting an error is about.
fn pointer(shape: &Ec2Shape, index: usize, error: &CallError) -> String {
    let places = shape.subnets.len().max(shape.zones.len()).max(1);
    match error.code.as_deref().unwrap_or_default() {
        code if code.starts_with("InvalidAMI") => "/shape/image".to_owned(),
        code if code.starts_with("InvalidInstanceType") => {
            format!("/shape/instance_types/{}", index / places)
        }
        code if code.starts_with("InvalidSubnet") => format!("/shape/subnets/{}", index % places),
        code if code.starts_with("InvalidGroup") || code.starts_with("InvalidSecurityGroup") => {
            "/shape/security_groups".to_owned()
        }
        code if code.starts_with("InvalidKeyPair") => "/shape/key_pair".to_owned(),
        code if code.contains("IamInstanceProfile") => "/shape/instance_profile".to_owned(),
        _ if speaks_of_region(error) && shape.region.is_some() => "/shape/region".to_owned(),
        _ => "/shape".to_owned(),
    }
}
