//! The lease provider: which call follows which. It decides by what [`map`](crate::map) and
//! [`error`](crate::error) say; creating, ending and rehearsing have files of their own.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use executor_api::{
    AttemptIdentity, AttemptKey, CandidateIndex, CreateMode, CreateOutcome, EndpointLookup, ExecutorError,
    ExecutorErrorKind, FoundLease, LeaseFacts, LeaseOwner, LeaseProvider, Life, Listing, LogicalNodeSpec,
    NodeTemplate, OperationContext, OperationKind, ProviderName, Reading, RejectReason, RunId,
    RunNodeGroupSpec, SpecProblem, Visibility,
};

use crate::api::{CallError, Described, Ec2Api, Instance, Query};
use crate::budget::Budget;
use crate::config::Ec2Config;
use crate::create::Creation;
use crate::destroy;
use crate::error::{Purpose, Telling, failed, telling};
use crate::settings::{self, EndpointAfter};
use crate::spacing::Spacing;
use crate::targets::{Connect, Target, Targets};
use crate::{endpoint, map, preflight, validate};

/// EC2 instances as leases. Cheap to share; one serves all regions.
#[derive(Debug)]
pub struct Ec2Provider {
    pub(crate) name: ProviderName,
    pub(crate) config: Ec2Config,
    pub(crate) targets: Targets,
    pub(crate) spacing: Spacing,
}

impl Ec2Provider {
    /// The name under which specs ask for it.
    pub const NAME: &'static str = "ec2";

    /// A provider through the AWS SDK. Calls nobody yet.
    #[cfg(feature = "sdk")]
    pub fn new(config: Ec2Config) -> Self {
        let connect = Arc::new(crate::sdk::SdkConnect::new(&config));
        Self::with_connect(config, connect)
    }

    pub(crate) fn with_connect(config: Ec2Config, connect: Arc<dyn Connect>) -> Self {
        #[expect(clippy::expect_used, reason = "NAME is a lowercase word")]
        let name = ProviderName::new(Self::NAME).expect("NAME is a provider name");
        let targets = Targets::new(connect, config.targets.clone());
        let spacing = Spacing::new(config.timer.now());
        Self { name, config, targets, spacing }
    }

    /// The driver's time.
    pub(crate) fn now(&self) -> SystemTime {
        self.config.timer.now()
    }

    /// What is left for the calls of an operation.
    pub(crate) fn budget(&self, ctx: &OperationContext) -> Budget {
        Budget::until(ctx.deadline, self.config.timeouts.operation, self.now())
    }

    /// The client for a target, as an operation's step.
    pub(crate) async fn api(
        &self,
        target: &Target,
        effect: OperationKind,
        doing: &str,
    ) -> Result<Arc<dyn Ec2Api>, ExecutorError> {
        let connected = self.targets.api(target).await;
        connected.map_err(|error| failed(Purpose::Read, effect, doing, error))
    }

    /// One instance by its id: there, not there, or too young to say.
    pub(crate) async fn sight(
        &self,
        api: &dyn Ec2Api,
        lease: &LeaseFacts,
        within: Duration,
    ) -> Result<Sight, CallError> {
        let query = Query::Id(lease.lease_id.0.clone());
        let found = match api.describe(&query, within).await {
            Ok(Described { instances, .. }) => instances.into_iter().next(),
            Err(error) => match telling(&error) {
                Some(Telling::NoSuchInstance) => None,
                Some(Telling::Malformed) => return Ok(Sight::Absent),
                _ => return Err(error),
            },
        };
        Ok(match found {
            Some(instance) => Sight::There(Box::new(instance)),
            None if self.too_young(lease) => Sight::TooYoung,
            None => Sight::Absent,
        })
    }

    /// Whether a lease may merely not be visible yet.
    pub(crate) fn too_young(&self, lease: &LeaseFacts) -> bool {
        lease.created_at.is_some_and(|at| self.may_hide(at))
    }

    /// Whether an instance that one call shows may merely not be visible to another yet: EC2 does not come to know an
    /// instance everywhere at once. By EC2's own word on its launch, and so for any age where there is none.
    pub(crate) fn half_seen(&self, instance: &Instance) -> bool {
        // EC2 tells whole seconds, cut off.
        let latest = |at: SystemTime| at.checked_add(Duration::from_secs(1)).unwrap_or(at);
        instance.launched_at.is_none_or(|at| self.may_hide(latest(at)))
    }

    /// Whether what was made then need not be visible by now.
    fn may_hide(&self, made: SystemTime) -> bool {
        let visible_from = made.checked_add(self.config.visibility.listing_lag);
        visible_from.is_some_and(|at| at > self.now())
    }
}

/// What asking for one instance by its id showed.
pub(crate) enum Sight {
    There(Box<Instance>),
    TooYoung,
    Absent,
}

/// An operation ran out of time before its next call.
pub(crate) fn no_time(effect: OperationKind, doing: &str) -> ExecutorError {
    ExecutorError::new(
        ExecutorErrorKind::Unavailable,
        effect,
        format!("no time was left for {doing}; raise operation_timeout if this repeats"),
    )
}

/// Whether an instance is one of this attempt, however little of its identity it carries.
pub(crate) fn belongs(instance: &Instance, identity: &AttemptIdentity, attempt: &AttemptKey) -> bool {
    match map::owner(instance) {
        LeaseOwner::Attempt(key) => key == *attempt,
        LeaseOwner::Incomplete => instance.client_token.as_deref() == Some(identity.token.as_str()),
    }
}

/// A lease that turned out to be somebody else's.
pub(crate) fn not_ours(effect: OperationKind, attempt: &AttemptKey, instance: &Instance) -> ExecutorError {
    ExecutorError::new(
        ExecutorErrorKind::Rejected(RejectReason::Validation),
        effect,
        format!("{} does not carry the identity of {attempt}; nothing of it was touched", instance.id),
    )
}

#[async_trait]
impl LeaseProvider for Ec2Provider {
    fn name(&self) -> ProviderName {
        self.name.clone()
    }

    fn visibility(&self) -> Visibility {
        self.config.visibility
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        if let Some(flaw) = &self.config.flaw {
            return Err(vec![SpecProblem::new("/provider", flaw.clone())]);
        }
        let shape = validate::shape(&group.template.shape)?;
        // Nothing is learned here: what is refused never comes into force, and a region that nobody answers for would
        // leave every listing from now on without an answer.
        if self.config.preflight {
            preflight::check(self, group, &shape).await?;
        }
        Ok(())
    }

    fn acquaint(&self, template: &NodeTemplate) {
        // A flawed shape was never launched anywhere.
        if let Ok(shape) = settings::read(&template.shape) {
            self.targets.learn(&Target::of_shape(&shape));
        }
    }

    async fn create(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, ExecutorError> {
        Creation::begin(self, ctx, desired).await?.run(mode).await
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundLease> {
        let as_of = self.now();
        let identity = AttemptIdentity::derive(attempt, CandidateIndex(0));
        let query = map::of_attempt(&identity);
        let mut found: Option<(Target, Instance)> = None;
        let mut unread = None;
        for target in self.targets.all() {
            match self.describe(&target, &query).await {
                Ok(described) => {
                    if !described.complete {
                        unread = Some(format!("the listing of {target} is incomplete"));
                    }
                    // Dead ones are told only if nothing lives.
                    let kept = map::keep(&described.instances);
                    if let Some(instance) = kept.or_else(|| described.instances.first()) {
                        let better = found.as_ref().is_none_or(|(_, known)| !map::needs_ending(known.state));
                        if better {
                            found = Some((target, instance.clone()));
                        }
                    }
                }
                Err(error) => unread = Some(format!("cannot look for {attempt} in {target}: {error}")),
            }
        }
        match (found, unread) {
            // A dead one here says nothing about a living one where nobody could look.
            (Some((target, instance)), unread) if unread.is_none() || map::needs_ending(instance.state) => {
                Reading::Present {
                    life: map::life(instance.state),
                    facts: FoundLease {
                        lease: map::lease_facts(&self.name, &target, &instance),
                        endpoint: endpoint::of(&instance).ok(),
                    },
                    as_of,
                }
            }
            (_, Some(reason)) => Reading::Unknown { reason, as_of },
            (_, None) => Reading::Absent { as_of },
        }
    }

    async fn lookup_endpoint(
        &self,
        ctx: &OperationContext,
        lease: &LeaseFacts,
    ) -> Result<EndpointLookup, ExecutorError> {
        let effect = OperationKind::LookupEndpoint;
        let id = &lease.lease_id;
        let doing = format!("asking where {id} of {} can be reached", ctx.attempt);
        let gone = |reason: String| ExecutorError::new(ExecutorErrorKind::Gone, effect, reason);
        let budget = self.budget(ctx);
        let api = self.api(&self.targets.of_lease(lease), effect, &doing).await?;
        let within = budget.next(self.now()).ok_or_else(|| no_time(effect, &doing))?;
        let sight = self.sight(api.as_ref(), lease, within).await;
        let instance = match sight.map_err(|error| failed(Purpose::Read, effect, &doing, error))? {
            Sight::There(instance) => instance,
            Sight::TooYoung => return Ok(EndpointLookup::NotReady(format!("{id} is not visible yet"))),
            Sight::Absent => return Err(gone(format!("{id} of {} does not exist any more", ctx.attempt))),
        };
        if !belongs(&instance, &ctx.identity(), &ctx.attempt) {
            return Err(not_ours(effect, &ctx.attempt, &instance));
        }
        if matches!(map::life(instance.state), Life::Ending | Life::Dead) {
            return Err(gone(map::reason(&instance)));
        }
        let endpoint = match endpoint::of(&instance) {
            Ok(endpoint) => endpoint,
            Err(reason) => return Ok(EndpointLookup::NotReady(reason)),
        };
        if endpoint::decode(&instance).after == EndpointAfter::StatusChecks {
            let within = budget.next(self.now()).ok_or_else(|| no_time(effect, &doing))?;
            let checks = match api.status(&id.0, within).await {
                // It was seen a moment ago: its status merely is not visible yet.
                Err(error) if telling(&error) == Some(Telling::NoSuchInstance) => None,
                told => told.map_err(|error| failed(Purpose::Read, effect, &doing, error))?,
            };
            match checks {
                Some(checks) if checks.system == "ok" && checks.instance == "ok" => {}
                Some(checks) => {
                    return Ok(EndpointLookup::NotReady(format!(
                        "{id} runs; status checks: system {}, instance {}",
                        checks.system, checks.instance
                    )));
                }
                None => return Ok(EndpointLookup::NotReady(format!("{id} has no status checks yet"))),
            }
        }
        Ok(EndpointLookup::Found(endpoint))
    }

    async fn destroy(&self, ctx: &OperationContext, lease: &LeaseFacts) -> Result<(), ExecutorError> {
        destroy::end(self, ctx, lease).await
    }

    async fn list(&self, run: &RunId) -> Result<Listing, ExecutorError> {
        let as_of = self.now();
        let query = map::of_run(run);
        let mut listing = Listing { as_of, complete: true, leases: Vec::new() };
        for target in self.targets.all() {
            let described = self.describe(&target, &query).await.map_err(|error| {
                let doing = format!("listing the instances of run {} in {target}", run.name());
                failed(Purpose::Read, OperationKind::LookupEndpoint, &doing, error)
            })?;
            listing.complete &= described.complete;
            for instance in &described.instances {
                // Two names of one region show the same instances.
                if !listing.leases.iter().any(|listed| listed.lease.lease_id.0 == instance.id) {
                    listing.leases.push(map::listed(&self.name, &target, instance));
                }
            }
        }
        Ok(listing)
    }
}

impl Ec2Provider {
    /// One reading of a target, outside of any operation.
    async fn describe(&self, target: &Target, query: &Query) -> Result<Described, CallError> {
        let budget = Budget::single(self.config.timeouts.operation, self.now());
        let api = self.targets.api(target).await?;
        let within = budget.next(self.now()).unwrap_or_default();
        api.describe(query, within).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Reached;
    use crate::testing::{Scripted, group, provider_that_knows, wanted};

    /// A group in this region.
    fn in_region(name: &str) -> RunNodeGroupSpec {
        group(serde_json::json!({ "region": name, "image": "ami-1", "instance_types": ["t3.small"] }))
    }

    #[tokio::test]
    async fn a_listing_covers_the_regions_of_whatever_it_was_told_of() {
        let here = Arc::new(Scripted::default().shows(vec![]));
        let there = Arc::new(Scripted::default().shows(vec![]));
        let provider = provider_that_knows(&[], &[("eu-west-1", &here), ("eu-west-2", &there)]);
        provider.acquaint(&wanted().template);
        provider.acquaint(
            &group(serde_json::json!({ "region": "eu-west-2", "image": "ami-1", "instance_types": [] }))
                .template,
        );
        provider.acquaint(&group(serde_json::json!("no shape")).template);
        let listing = provider.list(&group(serde_json::Value::Null).run_id).await.unwrap();
        assert!(listing.complete && listing.leases.is_empty());
        assert_eq!(
            (here.asked(), there.asked()),
            (vec!["describe by 1 tags".to_owned()], vec!["describe by 1 tags".to_owned()])
        );
    }

    #[tokio::test]
    async fn a_refused_region_blinds_no_listing() {
        let here = Arc::new(Scripted::default().shows(vec![]));
        let nowhere = Arc::new(Scripted::default().rehearses(Err(CallError::new(Reached::NotSent))));
        let regions = [("eu-west-1", &here), ("eu-cental-1", &nowhere)];
        let provider = provider_that_knows(&["eu-west-1"], &regions);
        let problems = provider.validate(&in_region("eu-cental-1")).await.unwrap_err();
        assert_eq!(problems[0].pointer, "/shape/region");
        assert!(provider.list(&in_region("eu-west-1").run_id).await.unwrap().complete);
        assert_eq!(nowhere.asked(), ["rehearse t3.small"]);
    }

    #[tokio::test]
    async fn an_accepted_region_is_looked_into_once_it_is_in_force() {
        let here = Arc::new(Scripted::default().shows(vec![]).shows(vec![]));
        let there = Arc::new(Scripted::default().shows(vec![]).shows(vec![]));
        let regions = [("eu-west-1", &here), ("eu-west-2", &there)];
        let provider = provider_that_knows(&["eu-west-1"], &regions);
        let group = in_region("eu-west-2");
        provider.validate(&group).await.unwrap();
        provider.list(&group.run_id).await.unwrap();
        assert_eq!(
            there.asked(),
            ["rehearse t3.small", "describe by 1 tags"],
            "the rehearsal, and no listing"
        );
        provider.acquaint(&group.template);
        provider.list(&group.run_id).await.unwrap();
        assert_eq!((here.asked().len(), there.asked().len()), (2, 3));
    }
}
