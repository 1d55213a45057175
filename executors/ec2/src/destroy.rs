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
    let mut too_young = false;
    if !instances.iter().any(|instance| instance.id == *id) {
        match provider.sight(api.as_ref(), lease, within()?).await.map_err(read)? {
            Sight::There(instance) if belongs(&instance, &identity, &ctx.attempt) => {
                instances.push(*instance);
            }
            Sight::There(instance) => return Err(not_ours(EFFECT, &ctx.attempt, &instance)),
            Sight::TooYoung => too_young = true,
            Sight::Absent => {}
        }
    }
    for instance in instances.iter().filter(|instance| map::needs_ending(instance.state)) {
        terminate(api.as_ref(), ctx, &instance.id, within()?).await?;
    }
    if too_young {
        // EC2 may know it by its id before it shows it.
        return match terminate(api.as_ref(), ctx, id, within()?).await? {
            Ended::Yes => Ok(()),
            Ended::NotFound => Err(ExecutorError::ambiguous(
                EFFECT,
                format!("{id} of {} may only be too young to be seen; ended at the next try", ctx.attempt),
            )),
        };
    }
    if !described.complete {
        let text = format!("{looking}: not every page could be read; looked again at the next try");
        return Err(ExecutorError::ambiguous(EFFECT, text));
    }
    Ok(())
}

enum Ended {
    Yes,
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
