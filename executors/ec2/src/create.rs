//! A create: look the attempt up, adopt what lives, and launch only what is proved or allowed to be absent.
//! Exactly one launch goes out, for exactly the candidate of the call.

use std::sync::Arc;
use std::time::Duration;

use executor_api::{
    AttemptIdentity, CreateMode, CreateOutcome, ExecutorError, ExecutorErrorKind, LogicalNodeSpec,
    OperationContext, OperationKind, RejectReason,
};

use crate::api::{Ec2Api, Instance, Launch, Query};
use crate::budget::Budget;
use crate::candidate::candidate;
use crate::config::Tokens;
use crate::error::{Purpose, Telling, failed, telling};
use crate::provider::{Ec2Provider, belongs, no_time};
use crate::targets::Target;
use crate::{endpoint, map, validate};

const EFFECT: OperationKind = OperationKind::CreateLease;

/// One create, under way.
pub(crate) struct Creation<'a> {
    provider: &'a Ec2Provider,
    ctx: &'a OperationContext,
    identity: AttemptIdentity,
    target: Target,
    launch: Launch,
    api: Arc<dyn Ec2Api>,
    budget: Budget,
}

impl<'a> Creation<'a> {
    /// Reads the spec and finds the API. Nothing has been asked yet.
    pub(crate) async fn begin(
        provider: &'a Ec2Provider,
        ctx: &'a OperationContext,
        desired: &LogicalNodeSpec,
    ) -> Result<Self, ExecutorError> {
        let budget = provider.budget(ctx);
        let invalid = |text: String| {
            ExecutorError::new(ExecutorErrorKind::Rejected(RejectReason::Validation), EFFECT, text)
        };
        let shape = validate::shape(&desired.template.shape).map_err(|problems| {
            let told = problems.iter().map(|problem| format!("{}: {}", problem.pointer, problem.message));
            let told: Vec<_> = told.collect();
            invalid(format!("{}; correct the spec of {}", told.join("; "), desired.id))
        })?;
        let candidate = candidate(&shape, ctx.candidate)
            .ok_or_else(|| invalid(format!("/shape/instance_types of {} is empty; name one", desired.id)))?;
        let identity = ctx.identity();
        let launch = map::launch(&shape, &candidate, &ctx.attempt, &identity);
        let target = Target::of_shape(&shape);
        let api = provider.api(&target, EFFECT, &format!("reaching EC2 for {}", ctx.attempt)).await?;
        Ok(Self { provider, ctx, identity, target, launch, api, budget })
    }

    /// Adopts or launches.
    pub(crate) async fn run(&self, mode: CreateMode) -> Result<CreateOutcome, ExecutorError> {
        let as_of = self.provider.now();
        let found = self.look(&map::of_attempt(&self.identity)).await?;
        if let Some(outcome) = self.settle(&found).await? {
            return Ok(outcome);
        }
        match (mode, self.provider.config.tokens) {
            (CreateMode::AdoptOnly, _) => Ok(CreateOutcome::Absent { as_of }),
            (CreateMode::CreateOrAdopt, Tokens::Honoured) => self.launch().await,
            (CreateMode::CreateOrAdopt, Tokens::Ignored) => self.launch_in_turn().await,
        }
    }

    /// What is there already: adopted, over, or nothing (`None`). Of several, all but one are ended; while that is not
    /// proved of each, there is no outcome.
    async fn settle(&self, found: &[Instance]) -> Result<Option<CreateOutcome>, ExecutorError> {
        let Some(kept) = map::keep(found) else {
            return match found.first() {
                Some(dead) => Err(self.gone(&map::reason(dead))),
                None => Ok(None),
            };
        };
        // Whatever went wrong with one, there are two: the attempt is looked up again until there is one.
        let mut left = None;
        for other in found.iter().filter(|other| other.id != kept.id && map::needs_ending(other.state)) {
            tracing::warn!(attempt = %self.ctx.attempt, kept = kept.id, ended = other.id, "two instances of one attempt");
            left = self.end_duplicate(other, &kept.id).await.err().or(left);
        }
        left.map_or_else(|| Ok(Some(self.leased(kept))), Err)
    }

    /// Ends one of several. Every error is ambiguous.
    async fn end_duplicate(&self, other: &Instance, kept: &str) -> Result<(), ExecutorError> {
        let doing = format!("ending {}, a duplicate of {kept} under {}", other.id, self.ctx.attempt);
        let Some(within) = self.budget.next(self.provider.now()) else {
            return Err(ExecutorError::ambiguous(EFFECT, format!("no time was left for {doing}")));
        };
        match self.api.terminate(&other.id, within).await {
            Ok(Some(state)) if !map::needs_ending(state) => Ok(()),
            Ok(_) => {
                Err(ExecutorError::ambiguous(EFFECT, format!("{doing}: EC2 accepted it and left it alive")))
            }
            Err(error)
                if telling(&error) == Some(Telling::NoSuchInstance) && !self.provider.half_seen(other) =>
            {
                Ok(())
            }
            // One that cannot be found yet may only be too young.
            Err(error) => Err(ExecutorError::ambiguous(EFFECT, doing).with_source(error)),
        }
    }

    /// Launches once. The token makes a repeat harmless.
    async fn launch(&self) -> Result<CreateOutcome, ExecutorError> {
        let doing = format!("launching {} for {}", self.launch.instance_type, self.ctx.attempt);
        let within = self.within(&doing)?;
        let sent_at = self.provider.now();
        match self.api.run(&self.launch, within).await {
            Ok(mut made) => {
                // In the driver's time, and not in EC2's, which tells whole seconds of another clock. How old a
                // lease is decides what "not found" means; one that the token found is held for younger than it is.
                for instance in &mut made {
                    instance.launched_at = Some(sent_at);
                }
                self.made(&made).await
            }
            Err(error) => match telling(&error) {
                Some(Telling::TokenMismatch) => self.adopt_after_mismatch(error.to_string()).await,
                Some(Telling::TokenSpent) => Err(self.gone("its token belongs to a terminated instance")),
                _ => Err(failed(Purpose::Launch, EFFECT, &doing, error)),
            },
        }
    }

    /// Launches only when an earlier launch of this attempt must have become visible.
    async fn launch_in_turn(&self) -> Result<CreateOutcome, ExecutorError> {
        let (spacing, now) = (&self.provider.spacing, self.provider.now());
        if let Err(free) = spacing.claim(self.ctx, self.provider.config.visibility, now) {
            let wait = free.duration_since(now).unwrap_or_default();
            return Err(ExecutorError::ambiguous(
                EFFECT,
                format!(
                    "an earlier launch for {} may still become visible; looked up again, and launched after {wait:?}",
                    self.ctx.attempt
                ),
            ));
        }
        let outcome = self.launch().await;
        match &outcome {
            Err(error) if !matches!(error.kind, ExecutorErrorKind::Ambiguous | ExecutorErrorKind::Gone) => {
                spacing.give_back(&self.ctx.attempt);
            }
            Ok(_) | Err(_) => spacing.ended(&self.ctx.attempt, self.provider.now()),
        }
        outcome
    }

    /// What a successful answer holds.
    async fn made(&self, made: &[Instance]) -> Result<CreateOutcome, ExecutorError> {
        if made.is_empty() || made.iter().any(|instance| instance.id.is_empty()) {
            return Err(ExecutorError::ambiguous(
                EFFECT,
                format!("EC2 accepted the launch for {} and named no instance; look it up", self.ctx.attempt),
            ));
        }
        match self.settle(made).await? {
            Some(outcome) => Ok(outcome),
            None => Err(ExecutorError::ambiguous(EFFECT, "EC2 named an instance and then did not")),
        }
    }

    /// Another request was accepted under this token: its instance is the attempt's.
    async fn adopt_after_mismatch(&self, told: String) -> Result<CreateOutcome, ExecutorError> {
        let mut found = self.look(&map::of_attempt(&self.identity)).await?;
        if map::keep(&found).is_none() {
            let by_token = self.look(&Query::Token(self.identity.token.clone())).await?;
            found.extend(by_token.into_iter().filter(|one| belongs(one, &self.identity, &self.ctx.attempt)));
        }
        match self.settle(&found).await? {
            Some(outcome) => Ok(outcome),
            None => Err(ExecutorError::ambiguous(
                EFFECT,
                format!(
                    "an earlier launch for {} was accepted with other parameters and is not visible yet; look it up \
                     again ({told})",
                    self.ctx.attempt
                ),
            )),
        }
    }

    /// A lookup as a step of the create. It makes nothing, so its failure is not ambiguous.
    async fn look(&self, query: &Query) -> Result<Vec<Instance>, ExecutorError> {
        let doing = format!("looking {} up before launching anything", self.ctx.attempt);
        let within = self.within(&doing)?;
        let described = self.api.describe(query, within).await;
        let described = described.map_err(|error| failed(Purpose::Read, EFFECT, &doing, error))?;
        if described.complete {
            Ok(described.instances)
        } else {
            let text = format!("{doing}: not every page could be read");
            Err(ExecutorError::new(ExecutorErrorKind::Unavailable, EFFECT, text))
        }
    }

    fn within(&self, doing: &str) -> Result<Duration, ExecutorError> {
        self.budget.next(self.provider.now()).ok_or_else(|| no_time(EFFECT, doing))
    }

    fn leased(&self, instance: &Instance) -> CreateOutcome {
        let mut lease = map::lease_facts(&self.provider.name, &self.target, instance);
        // Never left open, and never in the future: what was adopted has been seen.
        let now = self.provider.now();
        lease.created_at = Some(lease.created_at.map_or(now, |at| at.min(now)));
        CreateOutcome::Leased { lease, endpoint: endpoint::of(instance).ok() }
    }

    fn gone(&self, reason: &str) -> ExecutorError {
        ExecutorError::new(
            ExecutorErrorKind::Gone,
            EFFECT,
            format!("the instance of {} is over: {reason}", self.ctx.attempt),
        )
    }
}

#[cfg(test)]
mod tests {
    use executor_api::LeaseProvider as _;

    use super::*;
    use crate::api::{CallError, Reached, State};
    use crate::map::tests::instance;
    use crate::testing::{Scripted, answered, context, newborn, not_found, owned, provider, wanted};

    async fn create(api: &Arc<Scripted>, mode: CreateMode) -> Result<CreateOutcome, ExecutorError> {
        provider(&[("eu-west-1", api)]).create(&context("web-0", 0), &wanted(), mode).await
    }

    /// How a create that may make something failed, and what it asked.
    async fn failure(script: Scripted) -> (ExecutorErrorKind, Vec<String>) {
        let api = Arc::new(script);
        let error = create(&api, CreateMode::CreateOrAdopt).await.expect_err("it should not have succeeded");
        (error.kind, api.asked())
    }

    #[tokio::test]
    async fn the_lookup_comes_before_the_launch() {
        let made = instance("i-1", State::Pending);
        let api = Arc::new(Scripted::default().shows(vec![]).launches(Ok(vec![made])));
        let outcome = create(&api, CreateMode::CreateOrAdopt).await.unwrap();
        assert!(matches!(outcome, CreateOutcome::Leased { lease, .. } if lease.lease_id.0 == "i-1"));
        assert_eq!(api.asked(), ["describe by 4 tags", "run t3.small"]);
    }

    #[tokio::test]
    async fn what_cannot_be_looked_up_is_not_launched() {
        let (kind, asked) = failure(Scripted::default().hides(CallError::new(Reached::NoAnswer))).await;
        assert_eq!(kind, ExecutorErrorKind::Unavailable, "nothing was made, and that is proved");
        assert_eq!(asked, ["describe by 4 tags"]);
        let (kind, asked) = failure(Scripted::default().shows_a_part(vec![])).await;
        assert_eq!((kind, asked.len()), (ExecutorErrorKind::Unavailable, 1));
    }

    #[tokio::test]
    async fn a_success_that_names_no_instance_is_ambiguous() {
        for answer in [vec![], vec![instance("", State::Pending)]] {
            let (kind, _) = failure(Scripted::default().shows(vec![]).launches(Ok(answer))).await;
            assert_eq!(kind, ExecutorErrorKind::Ambiguous);
        }
    }

    #[tokio::test]
    async fn a_dead_instance_behind_the_token_ends_the_attempt() {
        let dead = instance("i-1", State::Terminated);
        let (kind, _) = failure(Scripted::default().shows(vec![]).launches(Ok(vec![dead]))).await;
        assert_eq!(kind, ExecutorErrorKind::Gone);
    }

    #[tokio::test]
    async fn a_mismatch_is_looked_up_by_tags_and_then_by_token() {
        let ctx = context("web-0", 0);
        let token = Some(ctx.identity().token);
        let untagged = Instance { client_token: token, ..instance("i-1", State::Running) };
        let strange = instance("i-0", State::Running);
        let mismatch = Err(answered("IdempotentParameterMismatch"));
        let script = Scripted::default().shows(vec![]).launches(mismatch).shows(vec![]);
        let api = Arc::new(script.shows(vec![strange, untagged]));
        let outcome = create(&api, CreateMode::CreateOrAdopt).await.unwrap();
        assert!(matches!(outcome, CreateOutcome::Leased { lease, .. } if lease.lease_id.0 == "i-1"));
        assert_eq!(api.asked()[2..], ["describe by 4 tags", "describe by token"]);
    }

    #[tokio::test]
    async fn a_duplicate_that_cannot_be_ended_leaves_the_create_open() {
        let ctx = context("web-0", 0);
        let both = vec![owned(&ctx, "i-1", State::Running), owned(&ctx, "i-2", State::Running)];
        let refused = Err(answered("OperationNotPermitted"));
        let (kind, asked) = failure(Scripted::default().shows(both).ends(refused)).await;
        assert_eq!(kind, ExecutorErrorKind::Ambiguous);
        assert_eq!(asked[1], "terminate i-2");
    }

    #[tokio::test]
    async fn a_duplicate_that_cannot_be_found_yet_leaves_the_create_open() {
        let ctx = context("web-0", 0);
        let all = vec![
            owned(&ctx, "i-1", State::Running),
            newborn(&ctx, "i-2", State::Running),
            newborn(&ctx, "i-3", State::Running),
        ];
        let script = Scripted::default().shows(all).ends(Err(not_found()));
        let (kind, asked) = failure(script.ends(Ok(Some(State::ShuttingDown)))).await;
        assert_eq!(kind, ExecutorErrorKind::Ambiguous);
        assert_eq!(asked[1..], ["terminate i-2", "terminate i-3"], "it keeps no other alive");
    }

    #[tokio::test]
    async fn a_duplicate_that_was_told_to_end_and_lives_on_leaves_the_create_open() {
        let ctx = context("web-0", 0);
        for answer in [Some(State::Running), None] {
            let both = vec![owned(&ctx, "i-1", State::Running), owned(&ctx, "i-2", State::Running)];
            let (kind, _) = failure(Scripted::default().shows(both).ends(Ok(answer))).await;
            assert_eq!(kind, ExecutorErrorKind::Ambiguous);
        }
    }

    #[tokio::test]
    async fn a_duplicate_that_is_old_and_cannot_be_found_is_gone() {
        let ctx = context("web-0", 0);
        let both = vec![owned(&ctx, "i-1", State::Running), owned(&ctx, "i-2", State::Running)];
        let api = Arc::new(Scripted::default().shows(both).ends(Err(not_found())));
        let outcome = create(&api, CreateMode::CreateOrAdopt).await.unwrap();
        assert!(matches!(outcome, CreateOutcome::Leased { lease, .. } if lease.lease_id.0 == "i-1"));
    }

    #[tokio::test]
    async fn without_time_nothing_is_asked() {
        let api = Arc::new(Scripted::default());
        let ctx = OperationContext { deadline: std::time::SystemTime::UNIX_EPOCH, ..context("web-0", 0) };
        let ended = provider(&[("eu-west-1", &api)]).create(&ctx, &wanted(), CreateMode::CreateOrAdopt).await;
        assert_eq!(ended.unwrap_err().kind, ExecutorErrorKind::Unavailable);
        assert_eq!(api.asked(), [""; 0]);
    }
}
