//! Where a plan's record outlives the process: one record, whole, with a number that only its one writer raises. Who
//! writes over a record that moved is refused, so that of two operators with one store the late one stops.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use reconciler_core::maintenance::{Answer, BondFlipPlan, PlanState};
use serde::{Deserialize, Serialize};

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
    /// The file failed.
    #[error("cannot {doing} in the plan file {}", path.display())]
    Sql {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The file is not one of ours, or a newer version's.
    #[error("{} is no plan file that this program can read; choose another path", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// A value does not read.
    #[error("the stored {what} cannot be read or written; the file may be damaged")]
    Value {
        /// Which.
        what: &'static str,
        /// What the decoder said.
        source: serde_json::Error,
    },
    /// A store that is not a file failed.
    #[error("{0}")]
    Other(String),
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
