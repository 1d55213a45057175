//! What went wrong, in the kinds that the driver branches on. The kind is chosen where the provider's own
//! error is seen; whatever is not proved otherwise is ambiguous.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::command::OperationKind;

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectReason {
    /// The request is wrong and stays wrong until the spec changes.
    Validation,
    /// A quota is used up.
    Quota,
    /// The caller may not do this.
    Authorisation,
    /// The provider has none left at present.
    Capacity,
}

/// What the driver branches on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutorErrorKind {
    /// Proved refusal of this very call: it made nothing. Says nothing about an earlier call.
    Rejected(RejectReason),
    /// Proved that nothing was made; the provider asks for patience.
    Throttled {
        /// How long it asks to wait, if it says.
        retry_after: Option<Duration>,
    },
    /// Proved that nothing was made: the call never reached the provider.
    Unavailable,
    /// The attempt's resource existed and is dead: the attempt is over.
    Gone,
    /// Anything not proved otherwise: the effect may have happened, or may still happen.
    Ambiguous,
}

impl fmt::Display for ExecutorErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(RejectReason::Validation) => f.write_str("rejected as invalid"),
            Self::Rejected(RejectReason::Quota) => f.write_str("rejected: quota used up"),
            Self::Rejected(RejectReason::Authorisation) => f.write_str("rejected: not authorised"),
            Self::Rejected(RejectReason::Capacity) => f.write_str("rejected: no capacity"),
            Self::Throttled { retry_after: Some(after) } => {
                write!(f, "throttled, retry after {after:?}")
            }
            Self::Throttled { retry_after: None } => f.write_str("throttled"),
            Self::Unavailable => f.write_str("unavailable"),
            Self::Gone => f.write_str("gone"),
            Self::Ambiguous => f.write_str("outcome unknown"),
        }
    }
}

/// One failed executor call.
#[derive(Debug)]
pub struct ExecutorError {
    /// What the driver branches on.
    pub kind: ExecutorErrorKind,
    /// What was being done.
    pub effect: OperationKind,
    /// To what, and what to do next, in words for an operator. Never a secret.
    pub context: String,
    /// What lies beneath.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl ExecutorError {
    /// A failure without anything beneath it.
    pub fn new(kind: ExecutorErrorKind, effect: OperationKind, context: impl Into<String>) -> Self {
        Self { kind, effect, context: context.into(), source: None }
    }

    /// A failure whose effect may have happened.
    pub fn ambiguous(effect: OperationKind, context: impl Into<String>) -> Self {
        Self::new(ExecutorErrorKind::Ambiguous, effect, context)
    }

    /// Adds what lies beneath.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The whole chain in one line, for state, logs and `explain`.
    pub fn summary(&self) -> String {
        use fmt::Write as _;
        let mut text = self.to_string();
        let mut source = self.source.as_deref().map(|s| s as &dyn Error);
        while let Some(cause) = source {
            // Writing to a String cannot fail.
            let _ = write!(text, ": {cause}");
            source = cause.source();
        }
        text
    }
}

impl fmt::Display for ExecutorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.effect, self.context, self.kind)
    }
}

impl Error for ExecutorError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|s| s as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_tells_the_whole_chain_once() {
        let error = ExecutorError::ambiguous(OperationKind::CreateLease, "the answer for web-1 was lost")
            .with_source(std::io::Error::other("connection reset"));
        assert_eq!(
            error.summary(),
            "create-lease: the answer for web-1 was lost (outcome unknown): connection reset"
        );
    }
}
