//! Where state outlives the process: the trait, what goes in and out, and the store that forgets.
//!
//! A store has one writer. A commit is durable when it returns, and all or nothing; after a failed one the
//! driver sends nothing any more and the store is not used again. A file keeps the number of its writer, which whoever
//! loads it for writing raises: the writer before that one is refused, whatever became of the lock between them.
//!
//! # Versions
//!
//! A file carries one version number for its tables and for the values in them. The rule for changing either:
//! a field that older files lack gets `#[serde(default)]`, and no migration; anything else raises the version
//! and adds one step to the list in [`sqlite`](SqliteStore), which runs when the one writer opens the file,
//! in one transaction with the new number. A step is never edited after a release, a file of each version stays
//! in the tests, and a file of a newer version is refused as it is.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use executor_api::{LogicalNodeId, RunId};
use reconciler_core::{ClusterShape, ClusterState, Holds, ManagedNode};
use serde::{Deserialize, Serialize};

pub(crate) mod sqlite;

pub use sqlite::SqliteStore;

/// Everything that is stored of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateImage {
    /// The run, its uid included.
    pub run: RunId,
    /// The observed state.
    pub state: ClusterState,
    /// The last accepted shape.
    pub desired: ClusterShape,
    /// What others keep beside it; the driver carries it and never looks.
    pub annotations: BTreeMap<String, String>,
}

/// What changed since the last commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changeset {
    /// Counts the changesets of a driver, from one.
    pub seq: u64,
    /// The slots that changed, whole.
    pub upserted: Vec<(LogicalNodeId, ManagedNode)>,
    /// The slots that are gone.
    pub removed: Vec<LogicalNodeId>,
    /// What is not a slot.
    pub meta: MetaChange,
}

/// The part of a changeset that is not a slot. What did not change is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetaChange {
    /// The run; in the first changeset of a new state.
    pub run: Option<RunId>,
    /// Latest generation evaluated.
    pub observed_generation: u64,
    /// The next attempt id. Always present: an attempt is never visible before it.
    pub next_attempt_id: u64,
    /// The holds.
    pub holds: Option<Holds>,
    /// The last accepted shape.
    pub desired: Option<Arc<ClusterShape>>,
    /// Annotations set, or removed for `None`.
    pub annotations: BTreeMap<String, Option<String>>,
}

/// Why a store did not do as it was told.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened.
    #[error("cannot open the state file {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The file is not one of ours.
    #[error("{} is no state file of this program; choose another path", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a newer version.
    #[error(
        "{} has schema version {found}, this program knows {known}; use the newer program that wrote it",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version known here.
        known: i64,
    },
    /// A statement failed.
    #[error("cannot {doing} in the state file {}; {}", path.display(), remedy(source))]
    Sql {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A stored value does not read, or a value cannot be written.
    #[error("the stored {what} cannot be read or written; the file may be damaged")]
    Value {
        /// Which value.
        what: String,
        /// What the decoder said.
        source: serde_json::Error,
    },
    /// The file lacks something that every state has.
    #[error("the state file {} lacks {what}; it is damaged", path.display())]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
    },
    /// The file is damaged.
    #[error(
        "the state file {path} is damaged ({finding}); nothing was changed: move it away together with {path}-wal and \
         {path}-shm, which belong to no other, then put a copy of it back; or rebuild the state with --adopt, which \
         moves them aside",
        path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        finding: String,
    },
    /// The file is not there or is empty, and its log is left: the newest changes are in there, and count for nothing
    /// without the file.
    #[error(
        "the log {path}-wal is there and its state file {path} is missing or empty; nothing was changed: put that very \
         file back beside its log, or rebuild the state with --adopt, which moves the log aside",
        path = path.display()
    )]
    LogAlone {
        /// The file.
        path: PathBuf,
    },
    /// Another writer took the file over.
    #[error(
        "another process took over the state file {} (as its writer {found}; this one was {known}): the run is driven \
         twice, because its lock was removed or moved while this process held it",
        path.display()
    )]
    TakenOver {
        /// The file.
        path: PathBuf,
        /// The number of its writer now.
        found: u64,
        /// The number of this one.
        known: u64,
    },
    /// Another program reads the file and does not end: what it may lose cannot be told from what is on the disk.
    #[error("the state file {} is being read by another program; close that one, then start again", path.display())]
    Read {
        /// The file.
        path: PathBuf,
    },
    /// An earlier commit failed. What the disk holds is known only to one who opens the file anew.
    #[error("the state file {} was given up after a failed write; open it again", path.display())]
    GivenUp {
        /// The file.
        path: PathBuf,
    },
    /// A store that is not a file failed.
    #[error("{0}")]
    Other(String),
}

/// What to do about a failed statement.
fn remedy(error: &rusqlite::Error) -> &'static str {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "free some space there, then start again",
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            "make the file and its directory writable, then start again"
        }
        Some(ErrorCode::CannotOpen) => {
            "make sure that its directory can be read and written, then start again"
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown) | None => {
            "it is damaged: move it away together with its -wal and its -shm, which belong to no other, then put a copy \
             back; or rebuild the state with --adopt, which moves them aside"
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another program has it open; close that one, then start again"
        }
        Some(ErrorCode::SystemIoFailure) => {
            "look at the disk: its space, its quota, its health; then start again"
        }
        _ => "see below what SQLite says",
    }
}

impl StoreError {
    /// Whether the content is at fault rather than the way to it: trying again does not help.
    pub fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode;
        match self {
            Self::Damaged { .. } | Self::Incomplete { .. } | Self::Value { .. } | Self::LogAlone { .. } => {
                true
            }
            Self::Open { source, .. } | Self::Sql { source, .. } => match source.sqlite_error_code() {
                // Without a code a value is not of the kind that is stored there.
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) | None => true,
                // A table or a column is not there: no file was ever made like that.
                Some(ErrorCode::Unknown) => {
                    source.sqlite_error().is_some_and(|error| error.extended_code == 1)
                }
                Some(_) => false,
            },
            Self::NotOurs { .. }
            | Self::Newer { .. }
            | Self::Read { .. }
            | Self::TakenOver { .. }
            | Self::GivenUp { .. }
            | Self::Other(_) => false,
        }
    }

    /// Whether nothing can be written beside the file.
    fn prevents_writing(&self) -> bool {
        use rusqlite::ErrorCode;
        matches!(
            self,
            Self::Open { source, .. } | Self::Sql { source, .. } if matches!(
                source.sqlite_error_code(),
                Some(
                    ErrorCode::CannotOpen
                        | ErrorCode::ReadOnly
                        | ErrorCode::PermissionDenied
                        | ErrorCode::DiskFull
                        | ErrorCode::SystemIoFailure
                )
            )
        )
    }

    /// The whole chain in one line.
    pub fn summary(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    }
}

/// Keeps one run's state.
pub trait StateStore: Send + fmt::Debug {
    /// What is stored, or `None` for a store that never was written to.
    fn load(&mut self) -> Result<Option<StateImage>, StoreError>;

    /// Makes a changeset durable. When this returns, the change survives a crash; on an error nothing of it
    /// may be relied on.
    fn commit(&mut self, changes: &Changeset) -> Result<(), StoreError>;
}

impl StateImage {
    /// The image after a changeset, for stores that keep it whole.
    fn apply(image: &mut Option<Self>, changes: &Changeset) -> Result<(), StoreError> {
        let meta = &changes.meta;
        let image = match (image.as_mut(), &meta.run, &meta.desired) {
            (Some(image), _, _) => image,
            (None, Some(run), Some(desired)) => image.insert(Self {
                run: run.clone(),
                state: ClusterState::default(),
                desired: ClusterShape::clone(desired),
                annotations: BTreeMap::new(),
            }),
            (None, _, _) => {
                return Err(StoreError::Other("the first changeset names no run and no shape".to_owned()));
            }
        };
        if let Some(desired) = &meta.desired {
            image.desired = ClusterShape::clone(desired);
        }
        image.state.observed_generation = meta.observed_generation;
        image.state.next_attempt_id = meta.next_attempt_id;
        if let Some(holds) = &meta.holds {
            image.state.holds = holds.clone();
        }
        for (key, value) in &meta.annotations {
            match value {
                Some(value) => image.annotations.insert(key.clone(), value.clone()),
                None => image.annotations.remove(key),
            };
        }
        image.state.nodes.extend(changes.upserted.iter().cloned());
        for slot in &changes.removed {
            image.state.nodes.remove(slot);
        }
        Ok(())
    }
}

/// A store in memory, for simulations and for runs that need not outlive their process. Clones share what
/// they hold, as two openings of one file would.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<Mutex<Option<StateImage>>>);

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A store that holds this.
    pub fn holding(image: StateImage) -> Self {
        Self(Arc::new(Mutex::new(Some(image))))
    }

    /// What it holds.
    pub fn image(&self) -> Option<StateImage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl StateStore for MemoryStore {
    fn load(&mut self) -> Result<Option<StateImage>, StoreError> {
        Ok(self.image())
    }

    fn commit(&mut self, changes: &Changeset) -> Result<(), StoreError> {
        StateImage::apply(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), changes)
    }
}
