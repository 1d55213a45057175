//! What is on disk: `ROOT/NAME/` with `owner.json`, perhaps `session`, perhaps `dead`. NAME is the attempt's resource
//! name, so that nothing has to be remembered.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use executor_api::{
    AttemptIdentity, AttemptKey, CandidateIndex, Executor, ExecutorError, ExecutorErrorKind, LeaseFacts,
    LeaseId, OperationKind, ProviderName, Timer,
};

/// Both halves of the executor.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    pub(crate) root: PathBuf,
    pub(crate) timer: Arc<dyn Timer>,
}

/// What `ROOT/NAME` says of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Nothing,
    Alive,
    Dead,
}

impl Directory {
    /// An executor below a directory that exists. Were it made on demand, a root that is not mounted would read as
    /// "nothing there".
    pub(crate) fn executor(root: &Path, timer: Arc<dyn Timer>) -> Executor {
        let both = Arc::new(Self { root: root.to_owned(), timer });
        Executor::new(Arc::clone(&both) as _, both)
    }

    pub(crate) fn place(&self, key: &AttemptKey) -> PathBuf {
        self.root.join(identity(key).resource_name)
    }

    /// Looks. "Not there" counts only below a root that is there.
    pub(crate) fn look(&self, key: &AttemptKey) -> io::Result<Seen> {
        let place = self.place(key);
        if place.try_exists()? {
            let dead = place.join("dead").try_exists()?;
            // Read once more: it may have been removed between the two looks.
            return Ok(match (place.try_exists()?, dead) {
                (false, _) => Seen::Nothing,
                (true, false) => Seen::Alive,
                (true, true) => Seen::Dead,
            });
        }
        self.root.metadata().map(|_| Seen::Nothing)
    }

    /// The session's file; `None` if there is none.
    pub(crate) fn session(&self, key: &AttemptKey) -> io::Result<Option<String>> {
        match fs::read_to_string(self.place(key).join("session")) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => self.root.metadata().map(|_| None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn facts(&self, key: &AttemptKey) -> LeaseFacts {
        LeaseFacts {
            lease_id: LeaseId(identity(key).resource_name),
            provider: provider(),
            created_at: None,
            attributes: [("directory".to_owned(), self.place(key).display().to_string())].into(),
        }
    }
}

pub(crate) fn identity(key: &AttemptKey) -> AttemptIdentity {
    AttemptIdentity::derive(key, CandidateIndex(0))
}

pub(crate) fn provider() -> ProviderName {
    ProviderName::new("directory").unwrap()
}

/// The error of a file operation of which it is not known whether it happened.
pub(crate) fn doubtful(
    effect: OperationKind,
    key: &AttemptKey,
) -> impl FnOnce(io::Error) -> ExecutorError + use<> {
    let context = format!("{key}: its directory cannot be read or written; mend it");
    move |error| ExecutorError::ambiguous(effect, context).with_source(error)
}

pub(crate) fn gone(effect: OperationKind, key: &AttemptKey, why: &str) -> ExecutorError {
    ExecutorError::new(ExecutorErrorKind::Gone, effect, format!("{key}: {why}"))
}
