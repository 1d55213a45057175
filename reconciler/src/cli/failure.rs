//! How a command ends: the exit codes that `--help` documents, and the one message that goes with a failure.

use std::fmt;
use std::process::ExitCode;

use reconciler::file::{FileError, Problems};
use serde::{Deserialize, Serialize};

/// Exit codes, as printed below `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done, or converged
  1  error
  2  not converged in time, or changes are pending
  3  refused: another process drives this run, another file owns it, or a confirmation is missing
  4  the run has no state, or one that belongs to something else, is damaged, or is older than its nodes";

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    /// Done, or converged.
    Done,
    /// Error.
    Error,
    /// Not converged in time, or changes are pending.
    Pending,
    /// Refused.
    Refused,
    /// No state, or a foreign one.
    NoState,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(match code {
            Code::Done => 0,
            Code::Error => 1,
            Code::Pending => 2,
            Code::Refused => 3,
            Code::NoState => 4,
        })
    }
}

/// Why a command ended before its work was done: its code and words for its user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// How the process exits.
    pub(crate) code: Code,
    /// What was being done, to what, and what to do next.
    pub(crate) message: String,
}

impl Failure {
    /// An error.
    pub(crate) fn error(message: impl Into<String>) -> Self {
        Self { code: Code::Error, message: message.into() }
    }

    /// A refusal.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { code: Code::Refused, message: message.into() }
    }

    /// Missing or foreign state.
    pub(crate) fn no_state(message: impl Into<String>) -> Self {
        Self { code: Code::NoState, message: message.into() }
    }

    /// An error with what was being done in front, and its whole chain behind.
    pub(crate) fn while_doing(doing: impl fmt::Display, error: &dyn std::error::Error) -> Self {
        let mut message = format!("{doing}: {error}");
        let mut source = error.source();
        while let Some(cause) = source {
            message.extend([": ", &cause.to_string()]);
            source = cause.source();
        }
        Self::error(message)
    }
}

/// What to do about a failed access to a file, where that is plain; to be put behind what was being done.
pub(crate) fn remedy(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => " (free some space there, then start again)",
        ErrorKind::ReadOnlyFilesystem => " (make the directory writable, then start again)",
        ErrorKind::PermissionDenied => " (make it readable and writable for this user, or be another one)",
        _ => "",
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::error(error.to_string())
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Self::error(problems.to_string())
    }
}
