//! The vocabulary and the traits that an executor author needs, and nothing that runs.
//!
//! ```text
//!   identity ──► spec ──► facts ──► command ──► outcome / observation
//!      │                                             ▲
//!      └── derive: token, labels, name     error ────┘
//!
//!   LeaseProvider + Bootstrapper  =  Executor  ── called by the driver, behind the ledger
//!   host: HostExecutor, StorageProbe, VirtualMachines, ClusterLock  ── gated maintenance of hosts
//! ```
//!
//! Read in this order: [`identity`] (who is meant), [`spec`] (what is wanted), [`facts`] (what exists),
//! [`command`] (what is asked), [`outcome`] (what came back), [`error`] (what went wrong), then the two
//! traits [`LeaseProvider`] and [`Bootstrapper`]. An author whose world can be looked at, made in and removed from
//! writes the shorter traits of [`world`] instead, which keep the common promises. What gated maintenance needs is a house of its own in [`host`].
//! Everything here is plain data or a trait: no runtime,
//! no clock, no global state.

pub mod command;
pub mod error;
pub mod executor;
pub mod facts;
pub mod host;
pub mod identity;
pub mod ledger;
pub mod outcome;
pub mod secret;
pub mod spec;
pub mod timer;
pub mod world;

pub use command::{CreateMode, NodeManagerCommand, OperationKind};
pub use error::{ExecutorError, ExecutorErrorKind, RejectReason};
pub use executor::{
    Bootstrapper, CreateOutcome, EndpointLookup, Executor, FoundLease, FoundSession, LeaseProvider,
    ObservationSink, OperationContext, SlotGroup, StartOutcome, StartRequest, Visibility,
};
pub use facts::{
    BootstrapFacts, BootstrapSessionId, Endpoint, EndpointAuth, LeaseFacts, LeaseId, LeaseOwner, Life,
    ListedLease, Listing, MemberFacts, Reading,
};
pub use identity::{
    AttemptIdentity, AttemptKey, CandidateIndex, GroupId, IdError, LogicalNodeId, NodeAttemptId, OperationId,
    ProviderName, RunId, labels,
};
pub use ledger::{Begin, Ledger};
pub use outcome::{
    EffectFailure, EffectOutcome, EffectSuccess, NodeDeadline, NodeObservation, ObservationReport,
    OperationReport,
};
pub use secret::{Secret, SecretError, SecretRef};
pub use spec::{
    BootSpec, GroupPolicy, JoinSpec, LogicalNodeSpec, NodeRole, NodeTemplate, RunNodeGroupSpec, SpecProblem,
    UpdatePolicy, expand_node_group,
};
pub use timer::Timer;
