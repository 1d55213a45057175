//! What a world answers when it does not do what it was asked: what is proved, and why. Whoever called adds what was
//! being done, and for whom.

use std::error::Error;
use std::time::Duration;

use crate::command::OperationKind;
use crate::error::{ExecutorError, ExecutorErrorKind, RejectReason};

/// Why a world did not do what it was asked.
///
/// `?` on any error makes one that proves nothing, which is always safe. The constructors are for what *can* be
/// proved.
#[derive(Debug)]
pub struct Trouble {
    kind: ExecutorErrorKind,
    why: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Trouble {
    /// Nothing is proved: it may have happened, or may still.
    pub fn ambiguous(why: impl Into<String>) -> Self {
        Self::of(ExecutorErrorKind::Ambiguous, why)
    }

    /// The call never got there, so that it did nothing.
    pub fn unreachable(why: impl Into<String>) -> Self {
        Self::of(ExecutorErrorKind::Unavailable, why)
    }

    /// The world refused this very call, and did nothing.
    pub fn refused(reason: RejectReason, why: impl Into<String>) -> Self {
        Self::of(ExecutorErrorKind::Rejected(reason), why)
    }

    /// The world did nothing, and wants to be left alone for a while.
    pub fn throttled(retry_after: Option<Duration>, why: impl Into<String>) -> Self {
        Self::of(ExecutorErrorKind::Throttled { retry_after }, why)
    }

    /// What the attempt had is dead; it gets nothing else.
    pub fn gone(why: impl Into<String>) -> Self {
        Self::of(ExecutorErrorKind::Gone, why)
    }

    /// Of any kind.
    pub fn of(kind: ExecutorErrorKind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into(), source: None }
    }

    /// Adds what lies beneath.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The reason in one line, for a reading that says nothing.
    pub(super) fn reason(self) -> String {
        match self.source {
            Some(source) => format!("{}: {source}", self.why),
            None => self.why,
        }
    }

    /// As the error of a call.
    pub(super) fn during(self, effect: OperationKind, who: &str) -> ExecutorError {
        let Self { kind, why, source } = self;
        ExecutorError { kind, effect, context: format!("{who}: {why}"), source }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::ambiguous("it is not known what came of it").with_source(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_any_kind_proves_nothing() {
        fn fails() -> Result<(), Trouble> {
            Err(std::io::Error::other("the disk is full"))?;
            Ok(())
        }
        let error = fails().unwrap_err().during(OperationKind::CreateLease, "shelf: demo/web-1 a1");
        assert_eq!(error.kind, ExecutorErrorKind::Ambiguous);
        assert_eq!(
            error.summary(),
            "create-lease: shelf: demo/web-1 a1: it is not known what came of it (outcome unknown): the disk is full"
        );
    }
}
