//! Where a run keeps what it knows: `<root>/<run>/` with the store, the lock, the control socket and the nodes of
//! the process provider. Owns paths only; nothing here reads the files.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use reconciler_driver::SqliteStore;

use crate::cli::failure::{Failure, remedy};

/// Overrides where ports are reserved, for tests that must not meet each other or the user's own runs.
pub(crate) const PORTS_VARIABLE: &str = "RECONCILER_PORTS_DIR";

/// Says where runs are kept, unless `--state-dir` does.
pub(crate) const STATE_VARIABLE: &str = "RECONCILER_STATE_DIR";

/// One run's directory. It may not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunDir {
    path: PathBuf,
    run: String,
}

impl RunDir {
    /// The directory of a run below a root.
    pub(crate) fn of(root: &Path, run: &str) -> Self {
        Self { path: root.join(run), run: run.to_owned() }
    }

    /// Makes the directory, readable by its owner only.
    pub(crate) fn create(&self) -> Result<(), Failure> {
        make_private(&self.path)
    }

    /// The run's name.
    pub(crate) fn run(&self) -> &str {
        &self.run
    }

    /// The directory itself.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The store.
    pub(crate) fn store(&self) -> PathBuf {
        self.path.join("state.db")
    }

    /// Whether there is a store, or what is left of one. One that cannot be looked for is not taken for none.
    pub(crate) fn has_store(&self) -> Result<bool, Failure> {
        SqliteStore::is_there(&self.store()).map_err(|error| {
            let doing = format!("looking for the state {}{}", self.store().display(), remedy(&error));
            Failure::while_doing(doing, &error)
        })
    }

    /// The lock of the one who drives.
    pub(crate) fn lock(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// The socket of the one who drives.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path.join("control.sock")
    }

    /// The nodes of the process provider.
    pub(crate) fn nodes(&self) -> PathBuf {
        self.path.join("nodes")
    }

    /// The records of bootstrappers.
    pub(crate) fn sessions(&self) -> PathBuf {
        self.path.join("sessions")
    }
}

/// Where runs are kept: the one given, or that of the environment, or the user's state home.
pub(crate) fn state_root(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let root = match (given, std::env::var_os(STATE_VARIABLE).filter(|value| !value.is_empty())) {
        (Some(path), _) => path.to_owned(),
        (None, Some(path)) => path.into(),
        (None, None) => state_home()?,
    };
    std::path::absolute(&root).map_err(|error| {
        Failure::while_doing(format_args!("finding the state directory {}", root.display()), &error)
    })
}

/// Where ports are reserved: one place for all runs of this user, whatever their state directories, so that two
/// runs never pick the same port.
pub(crate) fn port_registry() -> Result<PathBuf, Failure> {
    match std::env::var_os(PORTS_VARIABLE) {
        Some(path) if !path.is_empty() => Ok(path.into()),
        _ => Ok(state_home()?.join("ports")),
    }
}

/// Makes a directory and what is missing above it, readable by its owner only.
pub(crate) fn make_private(path: &Path) -> Result<(), Failure> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| {
        let doing = format!("making the directory {} (choose another with --state-dir)", path.display());
        Failure::while_doing(doing, &error)
    })
}

fn state_home() -> Result<PathBuf, Failure> {
    let set = |key| std::env::var_os(key).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(home) = set("XDG_STATE_HOME").filter(|path| path.is_absolute()) {
        return Ok(home.join("reconciler"));
    }
    set("HOME").map(|home| home.join(".local/state/reconciler")).ok_or_else(|| {
        Failure::error(
            "neither HOME nor XDG_STATE_HOME is set, so there is no place for state; give --state-dir DIR",
        )
    })
}
