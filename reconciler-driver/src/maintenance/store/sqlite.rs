//! A plan on disk: one SQLite file with the record, the timeline, and the requests of other processes with their answers.
//! Kept as the state of a cluster is: see [`File`].

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

use super::{LogLine, PlanRecord, PlanStore, PlanStoreError, Request, follows};
use crate::StoreError;
use crate::store::sqlite::{Change, File, Kind, Table, check_log, decode, encode, is_there, sums};

static PLAN: Kind = Kind {
    application_id: 0x7265_636d,
    tables: TABLES,
    migrations: &[sum],
    check: |file| record(file).map(drop),
};
const TABLES: &str = "
    CREATE TABLE record (seq INTEGER PRIMARY KEY, value TEXT NOT NULL, sum INTEGER NOT NULL) STRICT;
    CREATE TABLE log (seq INTEGER PRIMARY KEY, value TEXT NOT NULL, sum INTEGER NOT NULL) STRICT;
    CREATE TABLE requests (id INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT NOT NULL, sum INTEGER NOT NULL) STRICT;
    CREATE TABLE answers (id INTEGER PRIMARY KEY, value TEXT NOT NULL, sum INTEGER NOT NULL) STRICT;
";

/// The record, under the number of its write: one row.
const RECORD: Table = Table { name: "record", key: "seq" };
/// The timeline: one row for each write.
const LOG: Table = Table { name: "log", key: "seq" };
const REQUESTS: Table = Table { name: "requests", key: "id" };
/// Answers, under the numbers of their requests.
const ANSWERS: Table = Table { name: "answers", key: "id" };

/// From version 1, which had no sums and kept an answer in its request's row, to version 2.
fn sum(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "ALTER TABLE record RENAME TO record_1;
         CREATE TABLE record (seq INTEGER PRIMARY KEY, value TEXT NOT NULL) STRICT;
         INSERT INTO record SELECT seq, value FROM record_1;
         DROP TABLE record_1;
         CREATE TABLE answers (id INTEGER PRIMARY KEY, value TEXT NOT NULL) STRICT;
         INSERT INTO answers SELECT id, answer FROM requests WHERE answer IS NOT NULL;
         ALTER TABLE requests DROP COLUMN answer;
         ALTER TABLE requests RENAME COLUMN request TO value;",
    )?;
    sums::add(connection, &[RECORD, LOG, REQUESTS, ANSWERS])
}

/// A plan file. Clones share one opening of it, so that after a failed write none of them writes any more.
#[derive(Clone, Debug)]
pub struct SqlitePlanStore(Arc<Mutex<File>>);

impl SqlitePlanStore {
    /// Opens a plan file for the process that drives the plan; creates it if it is not there, whole from the beginning.
    pub fn open(path: &Path) -> Result<Self, PlanStoreError> {
        check_log(path)?;
        if !path.try_exists().map_err(|error| making(path, &error))? {
            create(path)?;
        }
        Ok(Self::of(File::open(&PLAN, path)?))
    }

    /// As [`open`](Self::open), over a connection that the caller opened and limited in its own way.
    pub fn over(path: &Path, connection: Connection) -> Result<Self, PlanStoreError> {
        Ok(Self::of(File::over(&PLAN, path, connection)?))
    }

    /// Opens a plan file to look at it, in nobody's way.
    pub fn open_read_only(path: &Path) -> Result<Self, PlanStoreError> {
        Ok(Self::of(File::open_read_only(&PLAN, path)?))
    }

    /// Whether anything of a plan file is there: the file, or a log that lost it, which is refused when it is opened.
    pub fn is_there(path: &Path) -> std::io::Result<bool> {
        is_there(path)
    }

    /// Opens a plan file to speak to the process that drives the plan. Leaves an older version to that process.
    pub fn open_beside(path: &Path) -> Result<Self, PlanStoreError> {
        let file = File::open_beside(&PLAN, path)?;
        file.map(Self::of).ok_or_else(|| PlanStoreError::Older { path: path.to_owned() })
    }

    fn of(file: File) -> Self {
        Self(Arc::new(Mutex::new(file)))
    }

    /// The timeline, oldest first.
    pub fn log(&self) -> Result<Vec<LogLine>, PlanStoreError> {
        let rows = self.file().rows(LOG)?;
        rows.iter().map(|(_, row)| Ok(decode("timeline", row)?)).collect()
    }

    /// Asks the process that drives, and says under which number.
    pub fn ask(&self, request: &Request) -> Result<i64, PlanStoreError> {
        let text = encode("request", request)?;
        self.file().commit("leave a request", |change| {
            change.execute("INSERT INTO requests (value, sum) VALUES (?1, 0)", [&text])?;
            let id = change.last_id();
            change.put(REQUESTS, &id.to_string(), &text)?;
            Ok(id)
        })
    }

    /// What was asked and not answered, oldest first.
    pub fn open_requests(&self) -> Result<Vec<(i64, Request)>, PlanStoreError> {
        let rows = self.file().rows_where(REQUESTS, "id NOT IN (SELECT id FROM answers)")?;
        rows.iter().map(|(id, text)| Ok((number(id), decode("request", text)?))).collect()
    }

    /// Answers a request: what was done, or why not.
    pub fn answer(&self, id: i64, answer: &Result<String, String>) -> Result<(), PlanStoreError> {
        let text = encode("answer", answer)?;
        self.file().commit("answer a request", |change| Ok(change.put(ANSWERS, &id.to_string(), &text)?))
    }

    /// The answer to a request, once there is one.
    pub fn answer_to(&self, id: i64) -> Result<Option<Result<String, String>>, PlanStoreError> {
        let rows = self.file().rows_where(ANSWERS, &format!("id = {id}"))?;
        Ok(rows.first().map(|(_, text)| decode("answer", text)).transpose()?)
    }

    /// Takes a request back that nobody has answered.
    pub fn withdraw(&self, id: i64) -> Result<(), PlanStoreError> {
        self.file().commit("take a request back", |change| {
            let sql = "DELETE FROM requests WHERE id = ?1 AND id NOT IN (SELECT id FROM answers)";
            Ok(change.execute(sql, [id]).map(drop)?)
        })
    }

    fn file(&self) -> MutexGuard<'_, File> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlanStore for SqlitePlanStore {
    fn load(&mut self) -> Result<Option<PlanRecord>, PlanStoreError> {
        Ok(self.file().at_once(record)?)
    }

    fn commit(&mut self, record: &PlanRecord, line: &LogLine) -> Result<(), PlanStoreError> {
        let (value, line) = (encode("record", record)?, encode("timeline", line)?);
        self.file().commit("store the record", |change| store(change, record.seq, &value, &line))
    }
}

fn record(file: &File) -> Result<Option<PlanRecord>, StoreError> {
    let rows = file.rows(RECORD)?;
    let [(seq, text)] = rows.as_slice() else {
        let begun = !rows.is_empty() || !file.rows(LOG)?.is_empty();
        let lost = || file.damaged("it has a timeline, and not one record".to_owned());
        return if begun { Err(lost()) } else { Ok(None) };
    };
    let record: PlanRecord = decode("record", text)?;
    if record.seq.to_string() != *seq {
        return Err(file.damaged(format!("the record of write {} is under {seq}", record.seq)));
    }
    Ok(Some(record))
}

fn store(change: &Change<'_>, seq: u64, value: &str, line: &str) -> Result<(), PlanStoreError> {
    let stored = change.rows(RECORD)?.pop();
    follows(stored.and_then(|(seq, _)| seq.parse().ok()).unwrap_or_default(), seq)?;
    change.execute("DELETE FROM record", [])?;
    change.put(RECORD, &seq.to_string(), value)?;
    Ok(change.put(LOG, &seq.to_string(), line)?)
}

/// Makes an empty file: it appears under its name in one step, so that nobody who looks takes half of it for damage.
fn create(path: &Path) -> Result<(), StoreError> {
    let new = path.with_extension("db.new");
    let named = |suffix: &str| {
        let mut name = new.as_os_str().to_owned();
        name.push(suffix);
        name
    };
    for left in ["", "-wal", "-shm"].map(named) {
        match std::fs::remove_file(&left) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(making(path, &error)),
            _ => {}
        }
    }
    drop(File::open(&PLAN, &new)?);
    let placed = std::fs::rename(&new, path).and_then(|()| match path.parent() {
        Some(parent) => std::fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    });
    placed.map_err(|error| making(path, &error))
}

fn making(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Other(format!("cannot make the plan file {}: {error}", path.display()))
}

/// A number that SQLite wrote as a text.
fn number(text: &str) -> i64 {
    text.parse().unwrap_or_default()
}
