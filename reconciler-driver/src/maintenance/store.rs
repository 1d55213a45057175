//! Where a plan's record outlives the process: one record, whole, with a number that only its one writer raises. Who
//! writes over a record that moved is refused, so that of two operators with one store the late one stops.
//!
//! A file has one version number, and the rule for raising it is that of [`store`](crate::store).

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use reconciler_core::maintenance::{Answer, BondFlipPlan, PlanState};
use serde::{Deserialize, Serialize};

use crate::StoreError;

mod sqlite;

pub use sqlite::SqlitePlanStore;

/// A plan and how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRecord {
    /// Counts the writes, from one.
    pub seq: u64,
    /// The plan.
    pub plan: BondFlipPlan,
    /// How far it is.
    pub state: PlanState,
}

/// What a write was about, for the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When.
    pub at: SystemTime,
    /// How far the plan was then.
    pub phase: String,
    /// What happened.
    pub what: String,
}

/// What others ask of the process that drives a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Who asks.
    pub who: String,
    /// For what.
    pub kind: RequestKind,
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestKind {
    /// Take a reply to the open question.
    Respond {
        /// The question's fingerprint, whole or its beginning.
        fingerprint: String,
        /// The answer.
        answer: Answer,
    },
    /// Go back.
    Abort,
}

/// Why a store did not do as it was told.
#[derive(Debug, thiserror::Error)]
pub enum PlanStoreError {
    /// Somebody else wrote the record.
    #[error("the record is at write {found}, this process knew {known}: another process drives the plan")]
    Moved {
        /// Where it is.
        found: u64,
        /// The write that this process made last.
        known: u64,
    },
    /// The file is not one of ours.
    #[error("{} is no plan file of this program; choose another path", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a newer version.
    #[error(
        "the plan file {} has schema version {found}, this program knows {known}; use the newer program that wrote it",
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
    /// The file is of an older version, and so is the process that drives its plan.
    #[error("the plan file {} is of an older version; speak to the plan with the program that drives it", path.display())]
    Older {
        /// The file.
        path: PathBuf,
    },
    /// The content is at fault: trying again does not help.
    #[error(
        "the plan's file is damaged ({finding}); nothing was changed: move it and its log away (-wal and -shm, which belong \
         to no other file), which gives the plan up, or then put a copy of it back"
    )]
    Damaged {
        /// What was found, and where.
        finding: String,
    },
    /// The way to the content is at fault.
    #[error(transparent)]
    File(Box<StoreError>),
    /// A store that is not a file failed.
    #[error("{0}")]
    Other(String),
}

impl PlanStoreError {
    /// Whether the file is of no use to this program, now and later.
    pub fn is_unusable(&self) -> bool {
        match self {
            Self::NotOurs { .. } | Self::Newer { .. } | Self::Damaged { .. } => true,
            Self::Moved { .. } | Self::Older { .. } | Self::File(_) | Self::Other(_) => false,
        }
    }
}

impl From<StoreError> for PlanStoreError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotOurs { path } => Self::NotOurs { path },
            StoreError::Newer { path, found, known } => Self::Newer { path, found, known },
            error if error.is_damage() => Self::Damaged { finding: finding(&error) },
            error => Self::File(Box::new(error)),
        }
    }
}

/// What is wrong with a file, without what can be done about the state of a cluster.
fn finding(error: &StoreError) -> String {
    match error {
        StoreError::Damaged { path, finding } => format!("{}: {finding}", path.display()),
        StoreError::Sql { doing, path, source } => format!("{}: cannot {doing}: {source}", path.display()),
        StoreError::LogAlone { path } => {
            format!("{} is missing or empty, and its log is there", path.display())
        }
        StoreError::Value { what, source } => format!("the stored {what}: {source}"),
        error => error.summary(),
    }
}

/// Keeps one plan.
pub trait PlanStore: Send + fmt::Debug {
    /// What is stored, or `None` for a store that was never written to.
    fn load(&mut self) -> Result<Option<PlanRecord>, PlanStoreError>;

    /// Makes a record durable, if it is the next one after the stored one. When this returns, it survives a crash.
    fn commit(&mut self, record: &PlanRecord, line: &LogLine) -> Result<(), PlanStoreError>;
}

/// Refuses a record that is not the next one.
fn follows(stored: u64, next: u64) -> Result<(), PlanStoreError> {
    if stored.checked_add(1) == Some(next) {
        return Ok(());
    }
    Err(PlanStoreError::Moved { found: stored, known: next.saturating_sub(1) })
}

/// A store in memory. Clones share what they hold, as two openings of one file would.
#[derive(Clone, Debug, Default)]
pub struct MemoryPlanStore(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    record: Option<PlanRecord>,
    log: Vec<LogLine>,
}

impl MemoryPlanStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A store that holds this.
    pub fn holding(record: PlanRecord) -> Self {
        Self(Arc::new(Mutex::new(Kept { record: Some(record), log: Vec::new() })))
    }

    /// What it holds.
    pub fn record(&self) -> Option<PlanRecord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).record.clone()
    }

    /// What happened so far.
    pub fn log(&self) -> Vec<LogLine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).log.clone()
    }
}

impl PlanStore for MemoryPlanStore {
    fn load(&mut self) -> Result<Option<PlanRecord>, PlanStoreError> {
        Ok(self.record())
    }

    fn commit(&mut self, record: &PlanRecord, line: &LogLine) -> Result<(), PlanStoreError> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        follows(kept.record.as_ref().map_or(0, |record| record.seq), record.seq)?;
        kept.record = Some(record.clone());
        kept.log.push(line.clone());
        Ok(())
    }
}
