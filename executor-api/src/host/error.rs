//! What went wrong on a host, at the lock or among virtual machines, in the kinds that a plan branches on.

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host::identity::FenceValue;

/// What a plan branches on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostErrorKind {
    /// The fence is below the highest that was durably seen: somebody else holds the lock. Nothing was done.
    StaleFence {
        /// The highest seen.
        highest: FenceValue,
    },
    /// Proved refusal: nothing was done.
    Refused,
    /// It was begun and is over, and did not succeed: what it left must be read.
    Failed,
    /// Proved that the request never arrived.
    Unavailable,
    /// Anything not proved otherwise: it may have been done, and may still be.
    Ambiguous,
}

impl fmt::Display for HostErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StaleFence { highest } => write!(f, "refused: {highest} was seen"),
            Self::Refused => f.write_str("refused"),
            Self::Failed => f.write_str("failed"),
            Self::Unavailable => f.write_str("unavailable"),
            Self::Ambiguous => f.write_str("outcome unknown"),
        }
    }
}

/// One failed call.
#[derive(Debug)]
pub struct HostError {
    /// What a plan branches on.
    pub kind: HostErrorKind,
    /// What was being done, to what, and what to do next, in words for an operator.
    pub context: String,
    /// What lies beneath.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl HostError {
    /// A failure without anything beneath it.
    pub fn new(kind: HostErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    /// Adds what lies beneath.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The failure as it is folded: the kind and the whole chain in one line.
    pub fn failure(&self) -> HostFailure {
        use fmt::Write as _;
        let mut message = self.context.clone();
        let mut source = self.source.as_deref().map(|s| s as &dyn Error);
        while let Some(cause) = source {
            // Writing to a String cannot fail.
            let _ = write!(message, ": {cause}");
            source = cause.source();
        }
        HostFailure { kind: self.kind.clone(), message }
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.context, self.kind)
    }
}

impl Error for HostError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|s| s as &(dyn Error + 'static))
    }
}

/// A failed operation as it is folded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFailure {
    /// What a plan branches on.
    pub kind: HostErrorKind,
    /// The whole error chain in one line.
    pub message: String,
}

/// Why the lock did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockError {
    /// The record is not the one that the caller knows: somebody else wrote it. Nothing was written.
    #[error("{doing}: the lock's record has changed; read it again")]
    Moved {
        /// What was being done.
        doing: String,
    },
    /// The cluster is held for another plan. Nothing was written.
    #[error("{doing}: the cluster is held for another plan; finish or answer that one first")]
    OtherPlan {
        /// What was being done.
        doing: String,
    },
    /// Proved that nothing was written.
    #[error("{doing}: the lock cannot be reached: {reason}")]
    Unavailable {
        /// What was being done.
        doing: String,
        /// Why.
        reason: String,
    },
    /// It may have been written.
    #[error("{doing}: outcome unknown: {reason}")]
    Ambiguous {
        /// What was being done.
        doing: String,
        /// Why.
        reason: String,
    },
}
