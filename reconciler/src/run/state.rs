//! A run's stored state as the commands see it: the driver's image, and this program's own notes beside it.

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
        if !dir.store().exists() {
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

/// Stores what has to be there before the driver starts: for a new run its identity and shape, and the notes.
pub(crate) fn prepare(
    dir: &RunDir,
    store: &mut SqliteStore,
    stored: Option<&Stored>,
    shape: &ClusterShape,
    notes: &Notes,
) -> Result<(), Failure> {
    let fresh = ClusterState::default();
    let state = stored.map_or(&fresh, |stored| &stored.image.state);
    let new = stored.is_none();
    let changes = Changeset {
        seq: 0,
        upserted: Vec::new(),
        removed: Vec::new(),
        meta: MetaChange {
            run: new.then(|| shape.run_id.clone()),
            observed_generation: state.observed_generation,
            next_attempt_id: state.next_attempt_id,
            holds: None,
            desired: new.then(|| std::sync::Arc::new(shape.clone())),
            annotations: [(NOTES_KEY.to_owned(), Some(notes_text(notes)?))].into(),
        },
    };
    store.commit(&changes).map_err(|error| failed(dir, &error))
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
    match error {
        StoreError::NotOurs { .. } | StoreError::Newer { .. } | StoreError::Incomplete { .. } => {
            Failure::no_state(message)
        }
        StoreError::Open { .. }
        | StoreError::Sql { .. }
        | StoreError::Value { .. }
        | StoreError::Other(_) => Failure::error(message),
    }
}
