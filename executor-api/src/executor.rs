//! The two traits an author implements, and the [`Executor`] they compose into for the driver.
//!
//! Trait docs are promises; each heading has conformance cases of the same name.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::command::{CreateMode, NodeManagerCommand};
use crate::error::ExecutorError;
use crate::facts::{BootstrapSessionId, Endpoint, LeaseFacts, Listing, Reading};
use crate::identity::{
    AttemptIdentity, AttemptKey, CandidateIndex, GroupId, LogicalNodeId, OperationId, ProviderName, RunId,
};
use crate::outcome::{EffectSuccess, ObservationReport};
use crate::spec::{LogicalNodeSpec, NodeTemplate, RunNodeGroupSpec, SpecProblem};

/// How late and how hidden an executor's effects may be. A statement about the outside world, made once by
/// the author and stamped onto every outcome by the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visibility {
    /// How long a read may not yet show something that exists.
    pub listing_lag: Duration,
    /// How long after a call was given up its effect may still happen. Zero if dropping the call's future
    /// stops it for certain.
    pub late_landing: Duration,
}

impl Visibility {
    /// From when on "absent" proves absence, for a call given up at `stopped_at`. Saturates.
    pub fn absent_counts_from(&self, stopped_at: SystemTime) -> SystemTime {
        let allowance = self.late_landing.saturating_add(self.listing_lag);
        stopped_at.checked_add(allowance).unwrap_or(stopped_at)
    }
}

/// The slots that share a node's group, as declared now. Context for an executor that reserves for the whole
/// group at once; never part of the compared spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotGroup {
    /// The group.
    pub group: GroupId,
    /// Its slots in order of index.
    pub slots: Arc<[LogicalNodeId]>,
}

/// On whose behalf a call is made, and until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationContext {
    /// The attempt: the identity that the outside world sees.
    pub attempt: AttemptKey,
    /// The operation. A provider need not look at it: the ledger above it does.
    pub operation: OperationId,
    /// Which fallback of the spec to try. Exactly this one.
    pub candidate: CandidateIndex,
    /// When the driver gives the call up. The call must have ended by then.
    pub deadline: SystemTime,
    /// The node's group as declared now.
    pub group: SlotGroup,
}

impl OperationContext {
    /// The derived identity: token, labels, name, nonce.
    pub fn identity(&self) -> AttemptIdentity {
        AttemptIdentity::derive(&self.attempt, self.candidate)
    }
}

/// How a create ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateOutcome {
    /// The attempt holds this lease, made or adopted.
    Leased {
        /// The lease.
        lease: LeaseFacts,
        /// Where it can be reached, if that is known already.
        endpoint: Option<Endpoint>,
    },
    /// Adopt-only found nothing.
    Absent {
        /// The time that this reading describes.
        as_of: SystemTime,
    },
}

/// How a start ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartOutcome {
    /// The attempt has this session, started or adopted.
    Started {
        /// The session.
        session: BootstrapSessionId,
    },
    /// Adopt-only found nothing.
    Absent {
        /// The time that this reading describes.
        as_of: SystemTime,
    },
}

/// How an endpoint lookup ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointLookup {
    /// Here it is.
    Found(Endpoint),
    /// Not yet; the reason for an operator.
    NotReady(String),
}

/// A lease found for an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLease {
    /// The lease.
    pub lease: LeaseFacts,
    /// Where it can be reached, if that is known.
    pub endpoint: Option<Endpoint>,
}

/// A session found for an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSession {
    /// The session.
    pub session: BootstrapSessionId,
}

/// What a bootstrapper needs to know of the node it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartRequest {
    /// What is wanted.
    pub desired: LogicalNodeSpec,
    /// The lease.
    pub lease: LeaseFacts,
    /// Where it can be reached.
    pub endpoint: Endpoint,
}

/// Where observations of a session go. Cheap to clone; never blocks.
#[derive(Clone)]
pub struct ObservationSink(Arc<dyn Fn(ObservationReport) + Send + Sync>);

impl ObservationSink {
    /// A sink that calls `deliver`, which must not block.
    pub fn new(deliver: impl Fn(ObservationReport) + Send + Sync + 'static) -> Self {
        Self(Arc::new(deliver))
    }

    /// Hands one observation over.
    pub fn send(&self, report: ObservationReport) {
        (self.0)(report);
    }
}

impl fmt::Debug for ObservationSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ObservationSink")
    }
}

/// Rents out what a node runs on.
///
/// # Behaviour
/// Every call ends by `ctx.deadline`. Calls for different attempts never wait for one another. Labels, token
/// and name come from [`OperationContext::identity`] and from nowhere else.
///
/// # Dedup
/// At most one live lease exists for an [`AttemptKey`], whatever the operation ids, however often and
/// concurrently `create` is called, and across new instances of the provider.
///
/// # Adoption
/// `create` looks the attempt up first and returns what lives. Of several it keeps one by a fixed rule and
/// destroys the others. [`CreateMode::AdoptOnly`] never makes anything. A dead lease is never returned: it is
/// [`Gone`](crate::ExecutorErrorKind::Gone).
///
/// # Already absent
/// `destroy` of something that is not there is success, once "not there" is proved.
///
/// # Cancellation
/// Dropping a call's future is the stop. The world is then adoptable or absent, and whatever may still land
/// lands within [`Visibility::late_landing`].
#[async_trait]
pub trait LeaseProvider: Send + Sync + fmt::Debug {
    /// The name under which specs ask for this provider.
    fn name(&self) -> ProviderName;

    /// How late and how hidden this provider's effects may be.
    fn visibility(&self) -> Visibility;

    /// Checks what a group asks for, as far as that can be known without making anything. Pointers are into
    /// the group: `/shape/...`.
    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>>;

    /// Learns of a template that is in force or still has nodes. Who has more than one place to look (regions,
    /// accounts) looks there as well from now on: a listing that knows of too few places reads like one of too few
    /// leases. Called before anything is listed, and for every new shape; asks nobody, and repeats are harmless.
    fn acquaint(&self, template: &NodeTemplate) {
        let _ = template;
    }

    /// Leases what the spec asks for, or adopts what exists for the attempt.
    async fn create(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, ExecutorError>;

    /// What exists for an attempt. Never makes anything.
    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundLease>;

    /// Where the lease can be reached.
    async fn lookup_endpoint(
        &self,
        ctx: &OperationContext,
        lease: &LeaseFacts,
    ) -> Result<EndpointLookup, ExecutorError>;

    /// Ends the lease of this attempt. Success means that nothing of it is left.
    async fn destroy(&self, ctx: &OperationContext, lease: &LeaseFacts) -> Result<(), ExecutorError>;

    /// Everything that carries the run's name, other uids included. One call, not one per node. An error is
    /// "unknown", never "nothing".
    async fn list(&self, run: &RunId) -> Result<Listing, ExecutorError>;

    /// Frees what belongs to slots rather than to attempts (reserved ports) for every slot that is not in
    /// `slots` and has no live lease. Called at start and after slots were reaped; repeats are harmless.
    async fn retain_slots(&self, run: &RunId, slots: &[LogicalNodeId]) -> Result<(), ExecutorError> {
        let _ = (run, slots);
        Ok(())
    }
}

/// Turns a lease into a node.
///
/// # Behaviour
/// As for [`LeaseProvider`]: every call ends by its deadline, and nodes do not wait for one another.
///
/// # Dedup
/// At most one live session exists for an [`AttemptKey`], whatever the operation ids and across instances.
///
/// # Adoption
/// `start` finds the attempt's session first. [`CreateMode::AdoptOnly`] never starts anything.
///
/// # Already absent
/// `complete` and `cancel` of a session that is over are success.
///
/// # Cancellation
/// As for [`LeaseProvider`].
#[async_trait]
pub trait Bootstrapper: Send + Sync + fmt::Debug {
    /// The name under which specs ask for this bootstrapper.
    fn name(&self) -> ProviderName;

    /// How late and how hidden this bootstrapper's effects may be.
    fn visibility(&self) -> Visibility;

    /// Checks what a group asks for. Pointers are into the group: `/boot/...`, `/join/...`.
    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>>;

    /// Starts the session of this attempt, or adopts the one that runs.
    async fn start(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError>;

    /// What session exists for an attempt. Never starts anything.
    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundSession>;

    /// The node joined: lets the session end in good order. The node lives on.
    async fn complete(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError>;

    /// Ends the session and whatever it started. Success means that nothing of it runs.
    async fn cancel(&self, ctx: &OperationContext, session: &BootstrapSessionId)
    -> Result<(), ExecutorError>;

    /// Streams what a session does into `sink`, from its present state on (a session that has already joined
    /// says so at once), until the attempt is over or the future is dropped. Goes on after `complete`: a node
    /// that dies later is reported as lost.
    async fn attach(
        &self,
        attempt: &AttemptKey,
        session: &BootstrapSessionId,
        sink: ObservationSink,
    ) -> Result<(), ExecutorError>;
}

/// A lease provider and a bootstrapper, as the driver calls them.
#[derive(Clone, Debug)]
pub struct Executor {
    leases: Arc<dyn LeaseProvider>,
    bootstrap: Arc<dyn Bootstrapper>,
}

impl Executor {
    /// Pairs a lease provider with a bootstrapper.
    pub fn new(leases: Arc<dyn LeaseProvider>, bootstrap: Arc<dyn Bootstrapper>) -> Self {
        Self { leases, bootstrap }
    }

    /// The lease provider.
    pub fn leases(&self) -> &Arc<dyn LeaseProvider> {
        &self.leases
    }

    /// The bootstrapper.
    pub fn bootstrap(&self) -> &Arc<dyn Bootstrapper> {
        &self.bootstrap
    }

    /// The allowance of whoever runs this command.
    pub fn visibility(&self, command: &NodeManagerCommand) -> Visibility {
        match command {
            NodeManagerCommand::CreateLease { .. }
            | NodeManagerCommand::LookupEndpoint { .. }
            | NodeManagerCommand::DestroyLease { .. } => self.leases.visibility(),
            NodeManagerCommand::StartBootstrap { .. }
            | NodeManagerCommand::BootstrapConvergenceObserved { .. }
            | NodeManagerCommand::CancelBootstrap { .. } => self.bootstrap.visibility(),
        }
    }

    /// Runs one command to its end.
    pub async fn execute(
        &self,
        ctx: &OperationContext,
        command: &NodeManagerCommand,
    ) -> Result<EffectSuccess, ExecutorError> {
        match command {
            NodeManagerCommand::CreateLease { desired, mode } => {
                Ok(match self.leases.create(ctx, desired, *mode).await? {
                    CreateOutcome::Leased { lease, endpoint } => {
                        if lease.lease_id.0.is_empty() {
                            // A success that names nothing proves nothing.
                            return Err(ExecutorError::ambiguous(
                                command.kind(),
                                format!("the provider reported a lease for {} without an id", ctx.attempt),
                            ));
                        }
                        EffectSuccess::LeaseCreated { lease, endpoint }
                    }
                    CreateOutcome::Absent { as_of } => EffectSuccess::NothingToAdopt { as_of },
                })
            }
            NodeManagerCommand::LookupEndpoint { lease } => {
                Ok(match self.leases.lookup_endpoint(ctx, lease).await? {
                    EndpointLookup::Found(endpoint) => EffectSuccess::EndpointFound { endpoint },
                    EndpointLookup::NotReady(reason) => EffectSuccess::EndpointNotReady { reason },
                })
            }
            NodeManagerCommand::StartBootstrap { desired, lease, endpoint, mode } => {
                let request = StartRequest {
                    desired: desired.clone(),
                    lease: lease.clone(),
                    endpoint: endpoint.clone(),
                };
                Ok(match self.bootstrap.start(ctx, &request, *mode).await? {
                    StartOutcome::Started { session } if session.0.is_empty() => {
                        return Err(ExecutorError::ambiguous(
                            command.kind(),
                            format!("the bootstrapper reported a session for {} without an id", ctx.attempt),
                        ));
                    }
                    StartOutcome::Started { session } => EffectSuccess::BootstrapStarted { session },
                    StartOutcome::Absent { as_of } => EffectSuccess::NothingToAdopt { as_of },
                })
            }
            NodeManagerCommand::BootstrapConvergenceObserved { session } => {
                self.bootstrap.complete(ctx, session).await?;
                Ok(EffectSuccess::BootstrapCompleted)
            }
            NodeManagerCommand::CancelBootstrap { session } => {
                self.bootstrap.cancel(ctx, session).await?;
                Ok(EffectSuccess::BootstrapCancelled)
            }
            NodeManagerCommand::DestroyLease { lease } => {
                self.leases.destroy(ctx, lease).await?;
                Ok(EffectSuccess::LeaseDestroyed)
            }
        }
    }
}
