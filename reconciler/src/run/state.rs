//! A run's stored state as the commands see it: the driver's image, and this program's own notes beside it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use executor_api::RunId;
use reconciler_core::{ClusterShape, ClusterState};
use reconciler_driver::{Changeset, MetaChange, SqliteStore, StateImage, StateStore, StoreError};

use crate::cli::failure::Failure;
use crate::run::dir::RunDir;
use crate::run::intent::Notes;
use crate::run::uid;

/// The annotation that holds the notes.
pub(crate) const NOTES_KEY: &str = "command-line";

/// What is stored of a run.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// The driver's part.
    pub(crate) image: StateImage,
    /// This program's part.
    pub(crate) notes: Notes,
}

impl Stored {
    /// Reads without locking; for commands that only look. `None` if the run has no state.
    pub(crate) fn look(dir: &RunDir) -> Result<Option<Self>, Failure> {
        if !dir.has_store()? {
            return Ok(None);
        }
        let mut store = SqliteStore::open_read_only(&dir.store()).map_err(|error| failed(dir, &error))?;
        Self::load(dir, &mut store)
    }

    /// As [`look`](Self::look), where a run without state is a failure.
    pub(crate) fn expect(dir: &RunDir) -> Result<Self, Failure> {
        Self::look(dir)?.ok_or_else(|| missing(dir))
    }

    /// Reads from an open store.
    pub(crate) fn load(dir: &RunDir, store: &mut SqliteStore) -> Result<Option<Self>, Failure> {
        let Some(image) = store.load().map_err(|error| failed(dir, &error))? else { return Ok(None) };
        if image.run.name() != dir.run() {
            return Err(Failure::no_state(format!(
                "the state in {} belongs to run {}, not to {}; it was copied or renamed by hand",
                dir.path().display(),
                image.run.name(),
                dir.run()
            )));
        }
        let notes = match image.annotations.get(NOTES_KEY) {
            None => Notes::default(),
            Some(text) => serde_json::from_str(text).map_err(|error| {
                Failure::while_doing(format_args!("reading the notes in {}", dir.store().display()), &error)
            })?,
        };
        Ok(Some(Self { image, notes }))
    }
}

/// Opens the store for the holder of the lock.
pub(crate) fn open(dir: &RunDir) -> Result<SqliteStore, Failure> {
    SqliteStore::open(&dir.store()).map_err(|error| failed(dir, &error))
}

/// The notes as they are stored.
pub(crate) fn notes_text(notes: &Notes) -> Result<String, Failure> {
    serde_json::to_string(notes).map_err(|error| Failure::while_doing("writing the run's notes", &error))
}

/// Stores what has to be there before the driver starts, for the holder of the lock: for a new run its identity and
/// shape, and always the notes. Gives the store to drive with.
pub(crate) fn prepare(
    dir: &RunDir,
    stored: Option<&Stored>,
    shape: &ClusterShape,
    notes: &Notes,
) -> Result<SqliteStore, Failure> {
    if stored.is_none() {
        found(dir, shape, notes, &ClusterState::default())?;
    }
    let mut store = open(dir)?;
    // Taken over before anything is written: who drove until now, without a lock, stores nothing after this.
    let taken = store.load().map_err(|error| failed(dir, &error))?;
    if let (Some(_), Some(taken)) = (stored, taken) {
        let state = &taken.state;
        let changes = changes(
            state.observed_generation,
            state.next_attempt_id,
            MetaChange { annotations: annotations(notes)?, ..MetaChange::default() },
        );
        store.commit(&changes).map_err(|error| failed(dir, &error))?;
    }
    Ok(store)
}

/// Founds a run: its store appears under its name in one step and complete, so that whoever looks at the same moment
/// sees a whole state or none.
pub(crate) fn found(
    dir: &RunDir,
    shape: &ClusterShape,
    notes: &Notes,
    state: &ClusterState,
) -> Result<(), Failure> {
    let new = dir.path().join("state.db.new");
    let doing =
        |error: io::Error| Failure::while_doing(format_args!("making {}", dir.store().display()), &error);
    // A log never outlives its file here: one that does is somebody's newest state.
    for left in files_of(&new).into_iter().rev().chain(files_of(&dir.store()).into_iter().rev()) {
        remove_if_there(&left).map_err(doing)?;
    }
    let mut store = SqliteStore::open(&new).map_err(|error| failed(dir, &error))?;
    let meta = MetaChange {
        run: Some(shape.run_id.clone()),
        desired: Some(Arc::new(shape.clone())),
        annotations: annotations(notes)?,
        ..MetaChange::default()
    };
    let upserted = state.nodes.iter().map(|(slot, node)| (slot.clone(), node.clone())).collect();
    let first = Changeset { upserted, ..changes(0, state.next_attempt_id, meta) };
    store.commit(&first).map_err(|error| failed(dir, &error))?;
    // Closing moves everything into the one file.
    drop(store);
    let [_, beside @ ..] = files_of(&new);
    if let Some(left) = beside.iter().find(|path| path.exists()) {
        return Err(Failure::error(format!(
            "{} was not closed; is another program reading it?",
            left.display()
        )));
    }
    std::fs::rename(&new, dir.store()).map_err(doing)?;
    File::open(dir.path()).and_then(|dir| dir.sync_all()).map_err(doing)
}

/// A store's file, and those that SQLite keeps beside it.
pub(crate) fn files_of(store: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|suffix| {
        let mut name = store.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    })
}

/// Removes a file; one that is not there is as good.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn annotations(notes: &Notes) -> Result<BTreeMap<String, Option<String>>, Failure> {
    Ok([(NOTES_KEY.to_owned(), Some(notes_text(notes)?))].into())
}

/// A changeset without slots, of one who is not a driver.
pub(crate) fn changes(observed_generation: u64, next_attempt_id: u64, meta: MetaChange) -> Changeset {
    let meta = MetaChange { observed_generation, next_attempt_id, ..meta };
    Changeset { seq: 0, upserted: Vec::new(), removed: Vec::new(), meta }
}

/// A new run's identity: its name, and a uid that no other run has.
pub(crate) fn mint(run: &str) -> Result<RunId, Failure> {
    RunId::new(run, uid::mint()?).map_err(|error| Failure::error(error.to_string()))
}

/// A run without state.
pub(crate) fn missing(dir: &RunDir) -> Failure {
    Failure::no_state(format!(
        "run {} has no state in {}; `reconciler apply` makes it, --state-dir says where it is",
        dir.run(),
        dir.path().display()
    ))
}

fn failed(dir: &RunDir, error: &StoreError) -> Failure {
    let message = format!("using the state of run {}: {}", dir.run(), error.summary());
    let not_usable =
        error.is_damage() || matches!(error, StoreError::NotOurs { .. } | StoreError::Newer { .. });
    if not_usable { Failure::no_state(message) } else { Failure::error(message) }
}
