//! The store on disk: one SQLite file in WAL mode with full synchronisation, one row per slot with a JSON
//! value and a sum over it, one transaction per changeset. One writer; readers open it read-only while nobody
//! drives.
//!
//! SQLite proves the structure of its file, and its log carries checksums; the sums prove the values, so that a bit
//! that flips on the disk is never taken for another attempt.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use executor_api::LogicalNodeId;
use reconciler_core::{ClusterState, ManagedNode};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use log::Log;

use super::{Changeset, StateImage, StateStore, StoreError};

pub(crate) mod log;
mod sums;

/// Marks the file as ours.
const APPLICATION_ID: i64 = 0x7265_636f;
/// Raised with every change of the tables or of the stored values.
const SCHEMA_VERSION: i64 = 2;
const TABLES: &str = "
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, sum INTEGER NOT NULL) STRICT;
    CREATE TABLE slots (slot TEXT PRIMARY KEY, attempt INTEGER NOT NULL, value TEXT NOT NULL, sum INTEGER NOT NULL)
        STRICT;
    CREATE TABLE annotations (key TEXT PRIMARY KEY, value TEXT NOT NULL, sum INTEGER NOT NULL) STRICT;
";

/// What brings a file of version 1, 2, ... to the next one: one step fewer than there are versions. See the rule in
/// [`store`](super).
const MIGRATIONS: &[fn(&Connection) -> rusqlite::Result<()>] = &[sums::add];

/// The key in `meta` of the number of the file's writer.
const WRITER: &str = "writer";

/// A table, and the name of its key.
#[derive(Clone, Copy, Debug)]
struct Table {
    name: &'static str,
    key: &'static str,
}

const META: Table = Table { name: "meta", key: "key" };
const SLOTS: Table = Table { name: "slots", key: "slot" };
const ANNOTATIONS: Table = Table { name: "annotations", key: "key" };

/// A state file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    connection: Connection,
    /// The version of the file.
    version: i64,
    /// Its log, unless this is to look only.
    log: Option<Log>,
    /// The number under which this store writes, from its first load or commit on.
    writer: Option<u64>,
    /// A commit failed, or the move of the log into the file that came with it. Trying again on the same handle could call durable what never reached the disk: a
    /// kernel reports a failed write once, and then forgets it.
    given_up: bool,
}

impl SqliteStore {
    /// Opens a state file for its one writer; creates it if it is not there.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        // Opening makes the file, and SQLite removes the log of an empty one.
        check_log(path)?;
        let connection =
            Connection::open(path).map_err(|source| StoreError::Open { path: path.to_owned(), source })?;
        Self::over(path, connection)
    }

    /// As [`open`](Self::open), over a connection that the caller opened and limited in its own way.
    pub fn over(path: &Path, mut connection: Connection) -> Result<Self, StoreError> {
        check_log(path)?;
        check_format(path)?;
        let log =
            Log::of(&mut connection).map_err(|source| StoreError::Open { path: path.to_owned(), source })?;
        let mut store = Self::new(path, connection, Some(log));
        let tables: i64 = store.query("look for tables", "SELECT count(*) FROM sqlite_master")?;
        let ours: i64 = store.query("read the file's mark", "PRAGMA application_id")?;
        if tables == 0 && ours == 0 {
            store.create()?;
        }
        store.check_version()?;
        let sound: String = store.query("check the file", "PRAGMA integrity_check(1)")?;
        if sound != "ok" {
            return Err(store.damaged(sound));
        }
        let pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;";
        store.run("set durability", |connection| connection.execute_batch(pragmas))?;
        store.make_durable()?;
        store.migrate()?;
        Ok(store)
    }

    /// Opens a state file to look at it.
    pub fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        check_log(path)?;
        let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let opened = Self::looking(path, Connection::open_with_flags(path, read_only));
        match opened {
            // SQLite writes beside a file even to read it. Where it may not, or there is no room, and nobody left a
            // log, the file is all there is, and nothing changes it.
            Err(error) if error.prevents_writing() && !has_log(path) => {
                let uri = format!("file:{}?immutable=1", escaped(path));
                let flags = read_only | OpenFlags::SQLITE_OPEN_URI;
                Self::looking(path, Connection::open_with_flags(uri, flags))
            }
            opened => opened,
        }
    }

    /// Whether anything of a state file is there: the file, or a log that lost it, which is refused when it is opened.
    pub fn is_there(path: &Path) -> io::Result<bool> {
        Ok(path.try_exists()? || has_log(path))
    }

    fn looking(path: &Path, connection: rusqlite::Result<Connection>) -> Result<Self, StoreError> {
        let connection = connection.map_err(|source| StoreError::Open { path: path.to_owned(), source })?;
        let mut store = Self::new(path, connection, None);
        store.check_version()?;
        Ok(store)
    }

    fn new(path: &Path, connection: Connection, log: Option<Log>) -> Self {
        let path = path.to_owned();
        Self { path, connection, version: SCHEMA_VERSION, log, writer: None, given_up: false }
    }

    fn create(&mut self) -> Result<(), StoreError> {
        let statements = format!(
            "BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION_ID}; \
             PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        );
        self.run("create tables", |connection| connection.execute_batch(&statements))
    }

    /// Moves what an earlier process left in the log into the file, and synchronises that: after a failed write the
    /// log may read well and yet not be on the disk, and nothing that is read here may be lost later.
    fn make_durable(&mut self) -> Result<(), StoreError> {
        // Changing the journal mode leaves SQLite in a transaction that the next read ends.
        let _: i64 = self.query("look for tables", "SELECT count(*) FROM sqlite_master")?;
        let (there, moved): (i64, i64) = self.run("take over the log", |connection| {
            connection.query_row("PRAGMA wal_checkpoint(FULL)", [], |row| Ok((row.get(1)?, row.get(2)?)))
        })?;
        // Readers of the newest content are in nobody's way; one of older content is waited for, but not for ever.
        if there != moved {
            return Err(StoreError::Read { path: self.path.clone() });
        }
        Ok(())
    }

    /// Brings a file of an older version to this one: all steps and the new number, or none of them.
    fn migrate(&mut self) -> Result<(), StoreError> {
        let done = usize::try_from(self.version - 1).unwrap_or_default();
        let steps = MIGRATIONS.get(done..).unwrap_or_default();
        if steps.is_empty() {
            return Ok(());
        }
        self.run("bring the file to this version", |connection| {
            let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
            steps.iter().try_for_each(|step| step(&transaction))?;
            transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
            transaction.commit()
        })?;
        self.version = SCHEMA_VERSION;
        Ok(())
    }

    fn check_version(&mut self) -> Result<(), StoreError> {
        let ours: i64 = self.query("read the file's mark", "PRAGMA application_id")?;
        if ours != APPLICATION_ID {
            return Err(StoreError::NotOurs { path: self.path.clone() });
        }
        let found: i64 = self.query("read the schema version", "PRAGMA user_version")?;
        if found > SCHEMA_VERSION {
            return Err(StoreError::Newer { path: self.path.clone(), found, known: SCHEMA_VERSION });
        }
        if found < 1 {
            return Err(self.damaged(format!("it has schema version {found}, which never was")));
        }
        self.version = found;
        Ok(())
    }

    fn damaged(&self, finding: String) -> StoreError {
        StoreError::Damaged { path: self.path.clone(), finding }
    }

    fn query<T: rusqlite::types::FromSql>(&self, doing: &'static str, sql: &str) -> Result<T, StoreError> {
        self.run(doing, |connection| connection.query_row(sql, [], |row| row.get(0)))
    }

    fn run<T>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        work(&self.connection).map_err(|source| StoreError::Sql { doing, path: self.path.clone(), source })
    }

    /// All rows of a table: its key and its value, which are what was stored.
    fn rows(&self, table: Table) -> Result<Vec<(String, String)>, StoreError> {
        // Version 1 had no sums; its readers take the values as they are.
        let sum = if self.version < 2 { "0" } else { "sum" };
        let Table { name, key } = table;
        let rows: Vec<(String, String, i64)> = self.run("read what is stored", |connection| {
            let mut statement = connection.prepare(&format!("SELECT {key}, value, {sum} FROM {name}"))?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            rows.collect()
        })?;
        let checked = rows.into_iter().map(|(key, value, sum)| {
            if self.version >= 2 && sum != sums::of(name, &key, &value) {
                return Err(self.damaged(format!("the {name} row of {key} is not what was stored")));
            }
            Ok((key, value))
        });
        checked.collect()
    }
}

impl StateStore for SqliteStore {
    fn load(&mut self) -> Result<Option<StateImage>, StoreError> {
        if self.log.is_none() || self.given_up || self.writer.is_some() {
            return self.read();
        }
        // What is read and who writes from then on are one step: nobody's commit falls in between.
        self.run("take the file over", |connection| connection.execute_batch("BEGIN IMMEDIATE"))?;
        let taken = self.read().and_then(|image| {
            let writer = self.claim(&self.connection)?;
            self.run("take the file over", |connection| connection.execute_batch("COMMIT"))?;
            Ok((image, writer))
        });
        match taken {
            Ok((image, writer)) => {
                self.writer = Some(writer);
                Ok(image)
            }
            Err(error) => {
                // A commit that failed is over already, and the handle with it.
                if self.connection.is_autocommit() || self.connection.execute_batch("ROLLBACK").is_err() {
                    self.give_up();
                }
                Err(error)
            }
        }
    }

    fn commit(&mut self, changes: &Changeset) -> Result<(), StoreError> {
        if self.given_up {
            return Err(StoreError::GivenUp { path: self.path.clone() });
        }
        let stored = self.store(changes);
        if stored.is_err() {
            self.give_up();
        }
        stored
    }
}

impl SqliteStore {
    fn give_up(&mut self) {
        self.given_up = true;
        // Closing would move the log into the file and synchronise it once more. Whoever opens the file next reads the
        // log as the disk has it, and takes only what is whole.
        let _ = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    }

    /// Makes this the writer of the file, in the transaction under way. Under which number.
    fn claim(&self, connection: &Connection) -> Result<u64, StoreError> {
        let writer = self.writer_of(connection)?.saturating_add(1);
        let failed =
            |source| StoreError::Sql { doing: "take the file over", path: self.path.clone(), source };
        put(connection, WRITER, &writer, &failed)?;
        Ok(writer)
    }

    /// The number of the file's writer; 0 before the first.
    fn writer_of(&self, connection: &Connection) -> Result<u64, StoreError> {
        let text: Option<String> = connection
            .query_row("SELECT value FROM meta WHERE key = ?1", [WRITER], |row| row.get(0))
            .optional()
            .map_err(|source| StoreError::Sql {
                doing: "read who writes",
                path: self.path.clone(),
                source,
            })?;
        text.map_or(Ok(0), |text| decode(WRITER, &text))
    }

    /// Everything that is stored.
    fn read(&self) -> Result<Option<StateImage>, StoreError> {
        let mut meta: BTreeMap<String, String> = self.rows(META)?.into_iter().collect();
        // It is of the file, not of the state.
        meta.remove(WRITER);
        let rows = self.rows(SLOTS)?;
        if meta.is_empty() && rows.is_empty() {
            return Ok(None);
        }
        let missing = |what| StoreError::Incomplete { path: self.path.clone(), what };
        let run = value(&meta, "run")?.ok_or_else(|| missing("the run"))?;
        let mut nodes = BTreeMap::new();
        for (slot, value) in rows {
            let node: ManagedNode = decode(&slot, &value)?;
            let slot = LogicalNodeId::parse(slot).map_err(|_| missing("a readable slot id"))?;
            nodes.insert(slot, node);
        }
        let next_attempt_id: u64 =
            value(&meta, "next_attempt_id")?.ok_or_else(|| missing("the next attempt id"))?;
        if nodes.values().any(|node: &ManagedNode| node.attempt.0 >= next_attempt_id) {
            return Err(self.damaged("an attempt is there that was never given out".to_owned()));
        }
        let state = ClusterState {
            observed_generation: value(&meta, "observed_generation")?
                .ok_or_else(|| missing("the observed generation"))?,
            next_attempt_id,
            nodes,
            holds: value(&meta, "holds")?.unwrap_or_default(),
        };
        let desired = value(&meta, "desired")?.ok_or_else(|| missing("the accepted shape"))?;
        let annotations = self.rows(ANNOTATIONS)?.into_iter().collect();
        Ok(Some(StateImage { run, state, desired, annotations }))
    }

    fn store(&mut self, changes: &Changeset) -> Result<(), StoreError> {
        let path = self.path.clone();
        let failed = move |source| StoreError::Sql { doing: "store a change", path: path.clone(), source };
        let transaction =
            Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate).map_err(&failed)?;
        let writer = match self.writer {
            None => self.claim(&transaction)?,
            Some(known) => match self.writer_of(&transaction)? {
                found if found == known => known,
                found => return Err(StoreError::TakenOver { path: self.path.clone(), found, known }),
            },
        };
        {
            let mut upsert = transaction
                .prepare_cached(
                    "INSERT OR REPLACE INTO slots (slot, attempt, value, sum) VALUES (?1, ?2, ?3, ?4)",
                )
                .map_err(&failed)?;
            for (slot, node) in &changes.upserted {
                let value = encode(slot.as_str(), node)?;
                // The column is for people who look into the file; the value is what counts.
                let attempt = i64::try_from(node.attempt.0).unwrap_or(i64::MAX);
                let sum = sums::of(SLOTS.name, slot.as_str(), &value);
                upsert.execute(params![slot.as_str(), attempt, value, sum]).map_err(&failed)?;
            }
            let mut remove =
                transaction.prepare_cached("DELETE FROM slots WHERE slot = ?1").map_err(&failed)?;
            for slot in &changes.removed {
                remove.execute([slot.as_str()]).map_err(&failed)?;
            }
        }
        let meta = &changes.meta;
        if let Some(run) = &meta.run {
            put(&transaction, "run", run, &failed)?;
        }
        if let Some(holds) = &meta.holds {
            put(&transaction, "holds", holds, &failed)?;
        }
        if let Some(desired) = &meta.desired {
            put(&transaction, "desired", desired.as_ref(), &failed)?;
        }
        put(&transaction, "observed_generation", &meta.observed_generation, &failed)?;
        put(&transaction, "next_attempt_id", &meta.next_attempt_id, &failed)?;
        for (key, value) in &meta.annotations {
            match value {
                Some(value) => {
                    let sql = "INSERT OR REPLACE INTO annotations (key, value, sum) VALUES (?1, ?2, ?3)";
                    let sum = sums::of(ANNOTATIONS.name, key, value);
                    transaction.execute(sql, params![key, value, sum]).map_err(&failed)?
                }
                None => {
                    transaction.execute("DELETE FROM annotations WHERE key = ?1", [key]).map_err(&failed)?
                }
            };
        }
        transaction.commit().map_err(&failed)?;
        self.writer = Some(writer);
        self.log.as_ref().map_or(Ok(()), |log| {
            self.run("move the log into the file", |connection| log.move_if_full(connection))
        })
    }
}

/// A value of the table of single values.
fn value<T: DeserializeOwned>(meta: &BTreeMap<String, String>, key: &str) -> Result<Option<T>, StoreError> {
    meta.get(key).map(|text| decode(key, text)).transpose()
}

/// Whether an earlier writer left a log that the file alone lacks.
fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).is_ok_and(|log| log.len() > 0)
}

/// The newest changes may be in the log alone. Without its file it is of no use to SQLite, which would remove it.
fn check_log(path: &Path) -> Result<(), StoreError> {
    let empty = match std::fs::metadata(path) {
        Ok(file) => file.len() == 0,
        // What cannot be looked at otherwise is told by SQLite.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if empty && has_log(path) { Err(StoreError::LogAlone { path: path.to_owned() }) } else { Ok(()) }
}

/// SQLite opens a file of an unknown format as one that may not be written, which is not what is wrong with it.
fn check_format(path: &Path) -> Result<(), StoreError> {
    let mut head = [0; 20];
    // What cannot be read here is told by SQLite, and a file that is shorter has no format yet.
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut head));
    let [.., writes, reads] = head;
    if read.is_ok() && head.starts_with(b"SQLite format 3\0") && (writes > 2 || reads > 2) {
        let finding = format!("its format is {writes}.{reads}, which never was");
        return Err(StoreError::Damaged { path: path.to_owned(), finding });
    }
    Ok(())
}

/// A path as it is written in a URI.
fn escaped(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/.-_".contains(&byte);
    let bytes = path.as_os_str().as_encoded_bytes().iter();
    bytes
        .map(|byte| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02x}") })
        .collect()
}

fn put<T: Serialize>(
    transaction: &Connection,
    key: &str,
    value: &T,
    failed: &impl Fn(rusqlite::Error) -> StoreError,
) -> Result<(), StoreError> {
    let text = encode(key, value)?;
    let sum = sums::of(META.name, key, &text);
    let mut statement = transaction
        .prepare_cached("INSERT OR REPLACE INTO meta (key, value, sum) VALUES (?1, ?2, ?3)")
        .map_err(failed)?;
    statement.execute(params![key, text, sum]).map(drop).map_err(failed)
}

fn encode<T: Serialize>(what: &str, value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|source| StoreError::Value { what: what.to_owned(), source })
}

fn decode<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|source| StoreError::Value { what: what.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_but_the_first_has_a_step_that_leads_to_it() {
        assert_eq!(MIGRATIONS.len() + 1, usize::try_from(SCHEMA_VERSION).unwrap());
    }
}
