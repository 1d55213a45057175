//! A plan on disk: one SQLite file in WAL mode with full synchronisation. Holds the record, the timeline, and the
//! requests of other processes with their answers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, params};

use super::{LogLine, PlanRecord, PlanStore, PlanStoreError, Request, follows};
use crate::store::Log;

/// Marks the file as ours.
const APPLICATION_ID: i64 = 0x7265_636d;
/// Raised with every change of the tables or of the stored values.
const SCHEMA_VERSION: i64 = 1;
const TABLES: &str = "
    CREATE TABLE record (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, value TEXT NOT NULL) STRICT;
    CREATE TABLE log (seq INTEGER PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE requests (id INTEGER PRIMARY KEY AUTOINCREMENT, request TEXT NOT NULL, answer TEXT) STRICT;
";
/// How long a writer waits for another.
const PATIENCE: Duration = Duration::from_secs(5);

/// A plan file.
#[derive(Debug)]
pub struct SqlitePlanStore {
    path: PathBuf,
    connection: Connection,
    log: Log,
}

impl SqlitePlanStore {
    /// Opens a plan file; creates it if it is not there.
    pub fn open(path: &Path) -> Result<Self, PlanStoreError> {
        let sql = |doing| move |source| PlanStoreError::Sql { doing, path: path.to_owned(), source };
        let mut connection = Connection::open(path).map_err(sql("open the file"))?;
        let log = Log::of(&mut connection).map_err(sql("bound the log"))?;
        connection.busy_timeout(PATIENCE).map_err(sql("set patience"))?;
        let mut store = Self { path: path.to_owned(), connection, log };
        store.create()?;
        store.check_mark()?;
        let pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;";
        store.run("set durability", |connection| connection.execute_batch(pragmas))?;
        Ok(store)
    }

    /// Opens a plan file to look at it, in nobody's way.
    pub fn open_read_only(path: &Path) -> Result<Self, PlanStoreError> {
        let sql = |doing| move |source| PlanStoreError::Sql { doing, path: path.to_owned(), source };
        let opened = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
        let mut connection = opened.map_err(sql("open the file"))?;
        let log = Log::of(&mut connection).map_err(sql("bound the log"))?;
        connection.busy_timeout(PATIENCE).map_err(sql("set patience"))?;
        let store = Self { path: path.to_owned(), connection, log };
        store.check_mark()?;
        Ok(store)
    }

    fn check_mark(&self) -> Result<(), PlanStoreError> {
        let mark: (i64, i64) = self.run("read the file's mark", |connection| {
            let pragma = |name| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0));
            Ok((pragma("application_id")?, pragma("user_version")?))
        })?;
        if mark == (APPLICATION_ID, SCHEMA_VERSION) {
            return Ok(());
        }
        Err(PlanStoreError::NotOurs { path: self.path.clone() })
    }

    fn create(&mut self) -> Result<(), PlanStoreError> {
        let path = self.path.clone();
        let failed = |source| PlanStoreError::Sql { doing: "create tables", path: path.clone(), source };
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let tables: i64 = transaction
            .query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))
            .map_err(failed)?;
        if tables == 0 {
            let mark = format!(
                "{TABLES} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
            );
            transaction.execute_batch(&mark).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    /// The timeline, oldest first.
    pub fn log(&self) -> Result<Vec<LogLine>, PlanStoreError> {
        let rows: Vec<String> = self.run("read the timeline", |connection| {
            let mut statement = connection.prepare("SELECT value FROM log ORDER BY seq")?;
            statement.query_map([], |row| row.get(0))?.collect()
        })?;
        rows.iter().map(|row| decode("timeline", row)).collect()
    }

    /// Asks the process that drives, and says under which number.
    pub fn ask(&self, request: &Request) -> Result<i64, PlanStoreError> {
        let text = encode("request", request)?;
        self.run("leave a request", |connection| {
            connection.execute("INSERT INTO requests (request) VALUES (?1)", [text])?;
            Ok(connection.last_insert_rowid())
        })
    }

    /// What was asked and not answered, oldest first.
    pub fn open_requests(&self) -> Result<Vec<(i64, Request)>, PlanStoreError> {
        let rows: Vec<(i64, String)> = self.run("read requests", |connection| {
            let sql = "SELECT id, request FROM requests WHERE answer IS NULL ORDER BY id";
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })?;
        rows.into_iter().map(|(id, text)| Ok((id, decode("request", &text)?))).collect()
    }

    /// Answers a request: what was done, or why not.
    pub fn answer(&self, id: i64, answer: &Result<String, String>) -> Result<(), PlanStoreError> {
        let text = encode("answer", answer)?;
        self.run("answer a request", |connection| {
            connection.execute("UPDATE requests SET answer = ?2 WHERE id = ?1", params![id, text]).map(drop)
        })
    }

    /// The answer to a request, once there is one.
    pub fn answer_to(&self, id: i64) -> Result<Option<Result<String, String>>, PlanStoreError> {
        let text: Option<Option<String>> = self.run("read an answer", |connection| {
            connection
                .query_row("SELECT answer FROM requests WHERE id = ?1", [id], |row| row.get(0))
                .optional()
        })?;
        text.flatten().map(|text| decode("answer", &text)).transpose()
    }

    /// Takes a request back that nobody has answered.
    pub fn withdraw(&self, id: i64) -> Result<(), PlanStoreError> {
        self.run("take a request back", |connection| {
            connection.execute("DELETE FROM requests WHERE id = ?1 AND answer IS NULL", [id]).map(drop)
        })
    }

    fn run<T>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, PlanStoreError> {
        work(&self.connection).map_err(|source| PlanStoreError::Sql {
            doing,
            path: self.path.clone(),
            source,
        })
    }
}

impl PlanStore for SqlitePlanStore {
    fn load(&mut self) -> Result<Option<PlanRecord>, PlanStoreError> {
        let text: Option<String> = self.run("read the record", |connection| {
            connection.query_row("SELECT value FROM record", [], |row| row.get(0)).optional()
        })?;
        text.map(|text| decode("record", &text)).transpose()
    }

    fn commit(&mut self, record: &PlanRecord, line: &LogLine) -> Result<(), PlanStoreError> {
        let stored = self.store(record, line);
        if matches!(stored, Err(PlanStoreError::Sql { .. })) {
            // Closing would synchronise once more what may be lost already; see `SqliteStore`.
            let _ = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
        stored
    }
}

impl SqlitePlanStore {
    fn store(&mut self, record: &PlanRecord, line: &LogLine) -> Result<(), PlanStoreError> {
        let (value, line) = (encode("record", record)?, encode("timeline", line)?);
        let path = self.path.clone();
        let failed = |source| PlanStoreError::Sql { doing: "store the record", path: path.clone(), source };
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let stored: Option<i64> = transaction
            .query_row("SELECT seq FROM record", [], |row| row.get(0))
            .optional()
            .map_err(failed)?;
        follows(stored.map_or(0, |seq| u64::try_from(seq).unwrap_or(u64::MAX)), record.seq)?;
        let seq = i64::try_from(record.seq).unwrap_or(i64::MAX);
        let sql = "INSERT OR REPLACE INTO record (one, seq, value) VALUES (1, ?1, ?2)";
        transaction.execute(sql, params![seq, value]).map_err(failed)?;
        let sql = "INSERT INTO log (seq, value) VALUES (?1, ?2)";
        transaction.execute(sql, params![seq, line]).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        self.run("move the log into the file", |connection| self.log.move_if_full(connection))
    }
}

fn encode<T: serde::Serialize>(what: &'static str, value: &T) -> Result<String, PlanStoreError> {
    serde_json::to_string(value).map_err(|source| PlanStoreError::Value { what, source })
}

fn decode<T: serde::de::DeserializeOwned>(what: &'static str, text: &str) -> Result<T, PlanStoreError> {
    serde_json::from_str(text).map_err(|source| PlanStoreError::Value { what, source })
}
