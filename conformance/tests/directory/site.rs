//! What is on disk: `ROOT/NAME/` with `owner.json`, perhaps `session`, perhaps `dead`. NAME is the attempt's resource
//! name, so that nothing has to be remembered.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use executor_api::{AttemptKey, Executor, Timer, world};

/// Directories below a root that exists. Were it made on demand, a root that is not mounted would read as "nothing
/// there".
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    pub(crate) root: PathBuf,
}

impl Directory {
    pub(crate) const NAME: &'static str = "directory";

    pub(crate) fn executor(root: &Path, timer: Arc<dyn Timer>) -> Executor {
        world::executor(Self { root: root.to_owned() }, timer)
    }

    pub(crate) fn place(&self, key: &AttemptKey) -> PathBuf {
        self.root.join(key.identity().resource_name)
    }

    /// What a file holds; `None` if there is none. "Not there" counts only below a root that is there.
    pub(crate) fn read(&self, path: &Path) -> io::Result<Option<String>> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => self.root.metadata().map(|_| None),
            Err(error) => Err(error),
        }
    }
}
