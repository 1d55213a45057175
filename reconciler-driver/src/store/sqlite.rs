//! The store on disk: one SQLite file in WAL mode with full synchronisation, one row per slot with a JSON
//! value, one transaction per changeset. One writer; readers open it read-only while nobody drives.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use executor_api::LogicalNodeId;
use reconciler_core::{ClusterState, ManagedNode};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Changeset, StateImage, StateStore, StoreError};

/// Marks the file as ours.
const APPLICATION_ID: i64 = 0x7265_636f;
/// Raised with every change of the tables or of the stored values.
const SCHEMA_VERSION: i64 = 1;
const TABLES: &str = "
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE slots (slot TEXT PRIMARY KEY, attempt INTEGER NOT NULL, value TEXT NOT NULL) STRICT;
    CREATE TABLE annotations (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
";

/// What brings a file of version 1, 2, ... to the next one: one step fewer than there are versions. See the rule in
/// [`store`](super).
const MIGRATIONS: &[&str] = &[];

/// A state file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    connection: Connection,
    /// A commit failed. Trying again on the same handle could call durable what never reached the disk: a
    /// kernel reports a failed write once, and then forgets it.
    given_up: bool,
}

impl SqliteStore {
    /// Opens a state file for its one writer; creates it if it is not there.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let connection =
            Connection::open(path).map_err(|source| StoreError::Open { path: path.to_owned(), source })?;
        Self::over(path, connection)
    }

    /// As [`open`](Self::open), over a connection that the caller opened and limited in its own way.
    pub fn over(path: &Path, connection: Connection) -> Result<Self, StoreError> {
        let mut store = Self { path: path.to_owned(), connection, given_up: false };
        let tables: i64 = store.query("look for tables", "SELECT count(*) FROM sqlite_master")?;
        let ours: i64 = store.query("read the file's mark", "PRAGMA application_id")?;
        if tables == 0 && ours == 0 {
            store.create()?;
        }
        let found = store.check_version()?;
        let sound: String = store.query("check the file", "PRAGMA quick_check(1)")?;
        if sound != "ok" {
            return Err(StoreError::Damaged { path: path.to_owned(), finding: sound });
        }
        let pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;";
        store.run("set durability", |connection| connection.execute_batch(pragmas))?;
        store.migrate(found)?;
        Ok(store)
    }

    /// Opens a state file to look at it.
    pub fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .map_err(|source| StoreError::Open { path: path.to_owned(), source })?;
        let store = Self { path: path.to_owned(), connection, given_up: false };
        store.check_version()?;
        Ok(store)
    }

    fn create(&mut self) -> Result<(), StoreError> {
        let statements = format!(
            "BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION_ID}; \
             PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        );
        self.run("create tables", |connection| connection.execute_batch(&statements))
    }

    /// Brings a file of an older version to this one: all steps and the new number, or none of them.
    fn migrate(&mut self, found: i64) -> Result<(), StoreError> {
        let done = usize::try_from(found - 1).unwrap_or_default();
        let steps: String = MIGRATIONS.iter().skip(done).copied().collect();
        if steps.is_empty() {
            return Ok(());
        }
        let steps = format!("BEGIN IMMEDIATE; {steps} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;");
        self.run("bring the file to this version", |connection| connection.execute_batch(&steps))
    }

    fn check_version(&self) -> Result<i64, StoreError> {
        let ours: i64 = self.query("read the file's mark", "PRAGMA application_id")?;
        if ours != APPLICATION_ID {
            return Err(StoreError::NotOurs { path: self.path.clone() });
        }
        let found: i64 = self.query("read the schema version", "PRAGMA user_version")?;
        if found > SCHEMA_VERSION {
            return Err(StoreError::Newer { path: self.path.clone(), found, known: SCHEMA_VERSION });
        }
        Ok(found)
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

    /// All rows of a table of two texts.
    fn pairs(&self, doing: &'static str, sql: &str) -> Result<Vec<(String, String)>, StoreError> {
        self.run(doing, |connection| {
            let mut statement = connection.prepare(sql)?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        })
    }

    fn meta<T: DeserializeOwned>(&self, key: &'static str) -> Result<Option<T>, StoreError> {
        let text: Option<String> = self.run("read the run", |connection| {
            connection.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0)).optional()
        })?;
        text.map(|text| decode(key, &text)).transpose()
    }
}

impl StateStore for SqliteStore {
    fn load(&mut self) -> Result<Option<StateImage>, StoreError> {
        let Some(run) = self.meta("run")? else {
            return Ok(None);
        };
        let missing = |what| StoreError::Incomplete { path: self.path.clone(), what };
        let mut nodes = BTreeMap::new();
        for (slot, value) in self.pairs("read slots", "SELECT slot, value FROM slots")? {
            let node: ManagedNode = decode(&slot, &value)?;
            let slot = LogicalNodeId::parse(slot).map_err(|_| missing("a readable slot id"))?;
            nodes.insert(slot, node);
        }
        let next_attempt_id: u64 =
            self.meta("next_attempt_id")?.ok_or_else(|| missing("the next attempt id"))?;
        if nodes.values().any(|node: &ManagedNode| node.attempt.0 >= next_attempt_id) {
            let finding = "an attempt is there that was never given out".to_owned();
            return Err(StoreError::Damaged { path: self.path.clone(), finding });
        }
        let state = ClusterState {
            observed_generation: self
                .meta("observed_generation")?
                .ok_or_else(|| missing("the observed generation"))?,
            next_attempt_id,
            nodes,
            holds: self.meta("holds")?.unwrap_or_default(),
        };
        let desired = self.meta("desired")?.ok_or_else(|| missing("the accepted shape"))?;
        let annotations = self.pairs("read annotations", "SELECT key, value FROM annotations")?;
        Ok(Some(StateImage { run, state, desired, annotations: annotations.into_iter().collect() }))
    }

    fn commit(&mut self, changes: &Changeset) -> Result<(), StoreError> {
        if self.given_up {
            return Err(StoreError::GivenUp { path: self.path.clone() });
        }
        let stored = self.store(changes);
        if stored.is_err() {
            self.given_up = true;
            // Closing would move the log into the file and synchronise it once more. Whoever opens the file
            // next reads the log as the disk has it, and takes only what is whole.
            let _ = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
        stored
    }
}

impl SqliteStore {
    fn store(&mut self, changes: &Changeset) -> Result<(), StoreError> {
        let path = self.path.clone();
        let failed = move |source| StoreError::Sql { doing: "store a change", path: path.clone(), source };
        let transaction = self.connection.transaction().map_err(&failed)?;
        {
            let mut upsert = transaction
                .prepare_cached("INSERT OR REPLACE INTO slots (slot, attempt, value) VALUES (?1, ?2, ?3)")
                .map_err(&failed)?;
            for (slot, node) in &changes.upserted {
                let value = encode(slot.as_str(), node)?;
                // The column is for people who look into the file; the value is what counts.
                let attempt = i64::try_from(node.attempt.0).unwrap_or(i64::MAX);
                upsert.execute(params![slot.as_str(), attempt, value]).map_err(&failed)?;
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
                    let sql = "INSERT OR REPLACE INTO annotations (key, value) VALUES (?1, ?2)";
                    transaction.execute(sql, [key, value]).map_err(&failed)?
                }
                None => {
                    transaction.execute("DELETE FROM annotations WHERE key = ?1", [key]).map_err(&failed)?
                }
            };
        }
        transaction.commit().map_err(&failed)
    }
}

fn put<T: Serialize>(
    transaction: &Transaction<'_>,
    key: &str,
    value: &T,
    failed: &impl Fn(rusqlite::Error) -> StoreError,
) -> Result<(), StoreError> {
    let text = encode(key, value)?;
    let sql = "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)";
    transaction.execute(sql, [key, &text]).map(drop).map_err(failed)
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
