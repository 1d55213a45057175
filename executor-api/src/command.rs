//! What the decider asks an executor to do for one node. A command is data: it can be compared, stored and
//! replayed, and it carries no secret.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::facts::{BootstrapSessionId, Endpoint, LeaseFacts};
use crate::spec::LogicalNodeSpec;

/// Whether a create or a start may make something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CreateMode {
    /// Adopt what exists for the attempt; make it if it is proved absent.
    CreateOrAdopt,
    /// Adopt what exists for the attempt; never make anything.
    AdoptOnly,
}

/// One effect for one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeManagerCommand {
    /// Lease what the spec asks for.
    CreateLease {
        /// What is wanted.
        desired: LogicalNodeSpec,
        /// Whether anything may be made.
        mode: CreateMode,
    },
    /// Ask where a lease can be reached.
    LookupEndpoint {
        /// The lease.
        lease: LeaseFacts,
    },
    /// Start the bootstrap session.
    StartBootstrap {
        /// What is wanted.
        desired: LogicalNodeSpec,
        /// The lease to bootstrap.
        lease: LeaseFacts,
        /// Where it can be reached.
        endpoint: Endpoint,
        /// Whether anything may be started.
        mode: CreateMode,
    },
    /// The node joined: let the session end in good order.
    BootstrapConvergenceObserved {
        /// The session.
        session: BootstrapSessionId,
    },
    /// End the session.
    CancelBootstrap {
        /// The session.
        session: BootstrapSessionId,
    },
    /// Give the lease back.
    DestroyLease {
        /// The lease.
        lease: LeaseFacts,
    },
}

/// The kind of a command, without its payload. Kept in the pending operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// [`NodeManagerCommand::CreateLease`]
    CreateLease,
    /// [`NodeManagerCommand::LookupEndpoint`]
    LookupEndpoint,
    /// [`NodeManagerCommand::StartBootstrap`]
    StartBootstrap,
    /// [`NodeManagerCommand::BootstrapConvergenceObserved`]
    BootstrapConvergenceObserved,
    /// [`NodeManagerCommand::CancelBootstrap`]
    CancelBootstrap,
    /// [`NodeManagerCommand::DestroyLease`]
    DestroyLease,
}

impl NodeManagerCommand {
    /// The kind of this command.
    pub fn kind(&self) -> OperationKind {
        match self {
            Self::CreateLease { .. } => OperationKind::CreateLease,
            Self::LookupEndpoint { .. } => OperationKind::LookupEndpoint,
            Self::StartBootstrap { .. } => OperationKind::StartBootstrap,
            Self::BootstrapConvergenceObserved { .. } => OperationKind::BootstrapConvergenceObserved,
            Self::CancelBootstrap { .. } => OperationKind::CancelBootstrap,
            Self::DestroyLease { .. } => OperationKind::DestroyLease,
        }
    }

    /// Whether this command may bring something into being.
    pub fn may_create(&self) -> bool {
        match self {
            Self::CreateLease { mode, .. } | Self::StartBootstrap { mode, .. } => {
                *mode == CreateMode::CreateOrAdopt
            }
            Self::LookupEndpoint { .. }
            | Self::BootstrapConvergenceObserved { .. }
            | Self::CancelBootstrap { .. }
            | Self::DestroyLease { .. } => false,
        }
    }
}

impl OperationKind {
    /// Whether this kind takes part of the provider's share for cleanup rather than for creation.
    pub fn is_cleanup(self) -> bool {
        match self {
            Self::CancelBootstrap | Self::DestroyLease => true,
            Self::CreateLease
            | Self::LookupEndpoint
            | Self::StartBootstrap
            | Self::BootstrapConvergenceObserved => false,
        }
    }

    /// Whether this kind creates or starts something, so that a lost answer leaves an ambiguity.
    pub fn is_creating(self) -> bool {
        match self {
            Self::CreateLease | Self::StartBootstrap => true,
            Self::LookupEndpoint
            | Self::BootstrapConvergenceObserved
            | Self::CancelBootstrap
            | Self::DestroyLease => false,
        }
    }

    /// The name used in plans, logs and stories.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreateLease => "create-lease",
            Self::LookupEndpoint => "lookup-endpoint",
            Self::StartBootstrap => "start-bootstrap",
            Self::BootstrapConvergenceObserved => "complete-bootstrap",
            Self::CancelBootstrap => "cancel-bootstrap",
            Self::DestroyLease => "destroy-lease",
        }
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
