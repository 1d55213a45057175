//! Ending the lease of an attempt, and with it whatever else carries the attempt's identity. It is over when EC2's
//! answer says that each instance is terminated or irrevocably on its way there.

use std::time::Duration;

use executor_api::{
    ExecutorError, ExecutorErrorKind, LeaseFacts, OperationContext, OperationKind, RejectReason,
};

use crate::api::{CallError, Ec2Api};
use crate::error::{Purpose, Telling, failed, telling};
use crate::map;
use crate::provider::{Ec2Provider, Sight, belongs, no_time, not_ours};

const EFFECT: OperationKind = OperationKind::DestroyLease;

/// Ends the lease and its duplicates.
pub(crate) async fn end(
    provider: &Ec2Provider,
    ctx: &OperationContext,
    lease: &LeaseFacts,
) -> Result<(), ExecutorError> {
    let id = &lease.lease_id.0;
    let identity = ctx.identity();
    let budget = provider.budget(ctx);
    let looking = format!("looking up what is left of {}", ctx.attempt);
    let within = || budget.next(provider.now()).ok_or_else(|| no_time(EFFECT, &looking));
    let read = |error: CallError| failed(Purpose::Read, EFFECT, &looking, error);

    let api = provider.api(&provider.targets.of_lease(lease), EFFECT, &looking).await?;
    let described = api.describe(&map::of_attempt(&identity), within()?).await.map_err(read)?;
    let mut instances = described.instances;
    let young = provider.too_young(lease);
    let mut unseen = false;
    if !instances.iter().any(|instance| instance.id == *id) {
        match provider.sight(api.as_ref(), lease, within()?).await.map_err(read)? {
            Sight::There(instance) if belongs(&instance, &identity, &ctx.attempt) => {
                instances.push(*instance);
            }
            Sight::There(instance) => return Err(not_ours(EFFECT, &ctx.attempt, &instance)),
            Sight::TooYoung => unseen = true,
            Sight::Absent => {}
        }
    }
    // "Not found" proves nothing of one that is young: EC2 may show it before it can end it.
    let mut hidden = Vec::new();
    for instance in instances.iter().filter(|instance| map::needs_ending(instance.state)) {
        let ended = terminate(api.as_ref(), ctx, &instance.id, within()?).await?;
        if matches!(ended, Ended::NotFound) && (young || provider.half_seen(instance)) {
            hidden.push(instance.id.as_str());
        }
    }
    // And EC2 may be able to end it before it shows it.
    if unseen && matches!(terminate(api.as_ref(), ctx, id, within()?).await?, Ended::NotFound) {
        hidden.push(id);
    }
    if !hidden.is_empty() {
        let ids = hidden.join(", ");
        let text =
            format!("{ids} of {} may only be too young to be found; ended at the next try", ctx.attempt);
        return Err(ExecutorError::ambiguous(EFFECT, text));
    }
    if !described.complete {
        let text = format!("{looking}: not every page could be read; looked again at the next try");
        return Err(ExecutorError::ambiguous(EFFECT, text));
    }
    Ok(())
}

/// What came of telling EC2 to end an instance.
enum Ended {
    /// It is over, or irrevocably on its way there.
    Yes,
    /// EC2 knows none of this id. What that means depends on its age.
    NotFound,
}

/// Ends one instance.
async fn terminate(
    api: &dyn Ec2Api,
    ctx: &OperationContext,
    id: &str,
    within: Duration,
) -> Result<Ended, ExecutorError> {
    let doing = format!("terminating {id} of {}", ctx.attempt);
    match api.terminate(id, within).await {
        Ok(Some(state)) if !map::needs_ending(state) => Ok(Ended::Yes),
        Ok(state) => Err(ExecutorError::ambiguous(
            EFFECT,
            format!("{doing}: EC2 accepted it and left it {}; asked again", state.map_or("untold", crate::api::State::as_str)),
        )),
        Err(error) => match telling(&error) {
            Some(Telling::NoSuchInstance | Telling::Malformed) => Ok(Ended::NotFound),
            Some(Telling::Protected) => Err(ExecutorError::new(
                ExecutorErrorKind::Rejected(RejectReason::Authorisation),
                EFFECT,
                format!(
                    "{doing}: somebody turned its termination protection on, and that is respected; turn it off with \
                     `aws ec2 modify-instance-attribute --instance-id {id} --no-disable-api-termination`"
                ),
            )
            .with_source(error)),
            _ => Err(failed(Purpose::End, EFFECT, &doing, error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use executor_api::{LeaseProvider as _, Reading};

    use super::*;
    use crate::api::{Instance, Reached, State};
    use crate::map::tests::instance;
    use crate::testing::{Scripted, context, lease, newborn, not_found, owned, provider};

    async fn destroy(script: Scripted) -> (Result<(), ExecutorErrorKind>, Vec<String>) {
        let api = Arc::new(script);
        let ended = provider(&[("eu-west-1", &api)]).destroy(&context("web-0", 0), &lease("i-1")).await;
        (ended.map_err(|error| error.kind), api.asked())
    }

    fn ours(id: &str, state: State) -> Instance {
        owned(&context("web-0", 0), id, state)
    }

    #[tokio::test]
    async fn it_is_over_when_the_answer_says_so() {
        let running = || Scripted::default().shows(vec![ours("i-1", State::Running)]);
        assert_eq!(destroy(running().ends(Ok(Some(State::ShuttingDown)))).await.0, Ok(()));
        for answer in [Some(State::Running), None] {
            assert_eq!(destroy(running().ends(Ok(answer))).await.0, Err(ExecutorErrorKind::Ambiguous));
        }
    }

    #[tokio::test]
    async fn what_is_already_ending_is_not_told_again() {
        let (ended, asked) = destroy(Scripted::default().shows(vec![ours("i-1", State::ShuttingDown)])).await;
        assert_eq!((ended, asked.len()), (Ok(()), 1));
    }

    #[tokio::test]
    async fn a_lease_of_somebody_else_is_refused_before_anything_is_ended() {
        let strange = instance("i-1", State::Running);
        let (ended, asked) = destroy(Scripted::default().shows(vec![]).shows(vec![strange])).await;
        assert_eq!(ended, Err(ExecutorErrorKind::Rejected(RejectReason::Validation)));
        assert_eq!(asked, ["describe by 4 tags", "describe i-1"]);
    }

    #[tokio::test]
    async fn what_a_listing_just_showed_and_an_end_cannot_find_is_not_gone() {
        let young = || newborn(&context("web-0", 0), "i-1", State::Running);
        let (ended, asked) = destroy(Scripted::default().shows(vec![young()]).ends(Err(not_found()))).await;
        assert_eq!(ended, Err(ExecutorErrorKind::Ambiguous));
        assert_eq!(asked, ["describe by 4 tags", "terminate i-1"]);
        // Shown by its id alone, or of no age that anybody knows: the same.
        let by_id = Scripted::default().shows(vec![]).shows(vec![young()]).ends(Err(not_found()));
        assert_eq!(destroy(by_id).await.0, Err(ExecutorErrorKind::Ambiguous));
        let ageless = Instance { launched_at: None, ..young() };
        let ageless = Scripted::default().shows(vec![ageless]).ends(Err(not_found()));
        assert_eq!(destroy(ageless).await.0, Err(ExecutorErrorKind::Ambiguous));
    }

    #[tokio::test]
    async fn one_that_cannot_be_found_yet_keeps_none_of_the_others_alive() {
        let ctx = context("web-0", 0);
        let both = vec![newborn(&ctx, "i-2", State::Running), ours("i-1", State::Running)];
        let script = Scripted::default().shows(both).ends(Err(not_found()));
        let (ended, asked) = destroy(script.ends(Ok(Some(State::ShuttingDown)))).await;
        assert_eq!(
            ended,
            Err(ExecutorErrorKind::Ambiguous),
            "the duplicate is young, however old the lease is"
        );
        assert_eq!(asked[1..], ["terminate i-2", "terminate i-1"]);
    }

    #[tokio::test]
    async fn a_lease_that_is_young_by_our_clock_is_young_whatever_ec2s_clock_says() {
        let api =
            Arc::new(Scripted::default().shows(vec![ours("i-1", State::Pending)]).ends(Err(not_found())));
        let lease = LeaseFacts { created_at: Some(SystemTime::now()), ..lease("i-1") };
        let ended = provider(&[("eu-west-1", &api)]).destroy(&context("web-0", 0), &lease).await;
        assert_eq!(ended.unwrap_err().kind, ExecutorErrorKind::Ambiguous);
    }

    #[tokio::test]
    async fn what_is_old_and_cannot_be_found_is_gone_whatever_a_listing_still_shows() {
        let script = Scripted::default().shows(vec![ours("i-1", State::Running)]).ends(Err(not_found()));
        assert_eq!(destroy(script).await.0, Ok(()));
        let dead = newborn(&context("web-0", 0), "i-1", State::Terminated);
        let (ended, asked) = destroy(Scripted::default().shows(vec![dead])).await;
        assert_eq!((ended, asked.len()), (Ok(()), 1), "one that is listed as over is over at any age");
    }

    #[tokio::test]
    async fn half_a_listing_is_no_proof_that_nothing_is_left() {
        let script = Scripted::default().shows_a_part(vec![ours("i-1", State::Running)]);
        let (ended, _) = destroy(script.ends(Ok(Some(State::ShuttingDown)))).await;
        assert_eq!(ended, Err(ExecutorErrorKind::Ambiguous));
    }

    #[tokio::test]
    async fn a_dead_instance_in_one_region_says_nothing_where_another_cannot_be_read() {
        let attempt = context("web-0", 0).attempt;
        let here = Arc::new(Scripted::default().shows(vec![ours("i-1", State::Terminated)]));
        let there = Arc::new(Scripted::default().hides(CallError::new(Reached::NoAnswer)));
        let reading = provider(&[("eu-west-1", &here), ("eu-west-2", &there)]).find(&attempt).await;
        assert!(matches!(reading, Reading::Unknown { .. }), "{reading:?}");
    }
}
