//! The store on disk: one SQLite file in WAL mode with full synchronisation, one row per slot with a JSON
//! value and a sum over it, one transaction per changeset. One writer; readers open it read-only while nobody
//! drives. What is no matter of clusters is [`File`]'s, which keeps plans of maintenance too.
//!
//! SQLite proves the structure of its file, and its log carries checksums; the sums prove the values, so that a bit
//! that flips on the disk is never taken for another attempt.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use executor_api::LogicalNodeId;
use reconciler_core::{ClusterState, ManagedNode};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Params, Transaction, TransactionBehavior, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use log::Log;

use super::{Changeset, StateImage, StateStore, StoreError};

pub(crate) mod log;
pub(crate) mod sums;

/// What a kind of file is known by. Each of its tables has a key, a `value` and a `sum`, which versions before the second
/// may lack.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Marks the file as ours.
    pub(crate) application_id: i64,
    /// Makes the tables of a new file.
    pub(crate) tables: &'static str,
    /// What brings a file of version 1, 2, ... to the next one: one step fewer than there are versions. See the rule in
    /// [`store`](super).
    pub(crate) migrations: &'static [fn(&Connection) -> rusqlite::Result<()>],
    /// Reads what is stored, to see that it can be.
    pub(crate) check: fn(&File) -> Result<(), StoreError>,
}

impl Kind {
    /// The newest version: raised with every change of the tables or of the stored values.
    fn version(&self) -> i64 {
        i64::try_from(self.migrations.len()).unwrap_or(i64::MAX).saturating_add(1)
    }
}

static CLUSTER: Kind = Kind {
    application_id: 0x7265_636f,
    tables: TABLES,
    migrations: &[|connection| sums::add(connection, &[META, SLOTS, ANNOTATIONS])],
    check: |file| read(file).map(drop),
};
const TABLES: &str = "
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, sum INTEGER NOT NULL) STRICT;
    CREATE TABLE slots (slot TEXT PRIMARY KEY, attempt INTEGER NOT NULL, value TEXT NOT NULL, sum INTEGER NOT NULL)
        STRICT;
    CREATE TABLE annotations (key TEXT PRIMARY KEY, value TEXT NOT NULL, sum INTEGER NOT NULL) STRICT;
";

/// The key in `meta` of the number of the file's writer.
const WRITER: &str = "writer";

/// A table, and the name of its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) key: &'static str,
}

const META: Table = Table { name: "meta", key: "key" };
const SLOTS: Table = Table { name: "slots", key: "slot" };
const ANNOTATIONS: Table = Table { name: "annotations", key: "key" };

/// A state file.
#[derive(Debug)]
pub struct SqliteStore {
    file: File,
    /// The number under which this store writes, from its first load or commit on.
    writer: Option<u64>,
}

impl SqliteStore {
    /// Opens a state file for its one writer; creates it if it is not there.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self { file: File::open(&CLUSTER, path)?, writer: None })
    }

    /// As [`open`](Self::open), over a connection that the caller opened and limited in its own way.
    pub fn over(path: &Path, connection: Connection) -> Result<Self, StoreError> {
        Ok(Self { file: File::over(&CLUSTER, path, connection)?, writer: None })
    }

    /// Opens a state file to look at it.
    pub fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        Ok(Self { file: File::open_read_only(&CLUSTER, path)?, writer: None })
    }

    /// Whether anything of a state file is there: the file, or a log that lost it, which is refused when it is opened.
    pub fn is_there(path: &Path) -> io::Result<bool> {
        is_there(path)
    }
}

/// A file of one kind: opened only where it is whole, believed only once it is on the disk, given up after a write that
/// failed, every row held against its sum.
#[derive(Debug)]
pub(crate) struct File {
    kind: &'static Kind,
    path: PathBuf,
    connection: Connection,
    /// The version of the file.
    version: i64,
    /// Its log, unless this is to look only.
    log: Option<Log>,
    /// A commit failed, or the move of the log into the file that came with it. Trying again on the same handle could
    /// call durable what never reached the disk: a kernel reports a failed write once, and then forgets it.
    given_up: bool,
}

impl File {
    /// Opens a file to write to it; creates it if it is not there.
    pub(crate) fn open(kind: &'static Kind, path: &Path) -> Result<Self, StoreError> {
        // Opening makes the file, and SQLite removes the log of an empty one.
        check_log(path)?;
        let connection =
            Connection::open(path).map_err(|source| StoreError::Open { path: path.to_owned(), source })?;
        Self::over(kind, path, connection)
    }

    /// As [`open`](Self::open), over a connection that the caller opened and limited in its own way.
    pub(crate) fn over(
        kind: &'static Kind,
        path: &Path,
        mut connection: Connection,
    ) -> Result<Self, StoreError> {
        check_log(path)?;
        check_format(path)?;
        let log =
            Log::of(&mut connection).map_err(|source| StoreError::Open { path: path.to_owned(), source })?;
        let mut store = Self::of(kind, path, connection);
        store.log = Some(log);
        store.leave_the_log(true)?;
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
        store.at_once(kind.check)?;
        let pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;";
        store.run("set durability", |connection| connection.execute_batch(pragmas))?;
        store.make_durable()?;
        store.migrate()?;
        store.leave_the_log(false)?;
        Ok(store)
    }

    /// Opens a file to look at it.
    pub(crate) fn open_read_only(kind: &'static Kind, path: &Path) -> Result<Self, StoreError> {
        check_log(path)?;
        let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let opened = Self::looking(kind, path, Connection::open_with_flags(path, read_only));
        match opened {
            // SQLite writes beside a file even to read it. Where it may not, or there is no room, and nobody left a
            // log, the file is all there is, and nothing changes it.
            Err(error) if error.prevents_writing() && !has_log(path) => {
                let uri = format!("file:{}?immutable=1", escaped(path));
                let flags = read_only | OpenFlags::SQLITE_OPEN_URI;
                Self::looking(kind, path, Connection::open_with_flags(uri, flags))
            }
            opened => opened,
        }
    }

    /// Opens a file of the newest version that another process has opened to write to it. `None` for an older version,
    /// which that process goes by.
    pub(crate) fn open_beside(kind: &'static Kind, path: &Path) -> Result<Option<Self>, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        check_log(path)?;
        let mut store = Self::looking(kind, path, Connection::open_with_flags(path, flags))?;
        let log = Log::of(&mut store.connection);
        store.log = Some(log.map_err(|source| StoreError::Open { path: path.to_owned(), source })?);
        store.run("set durability", |connection| connection.execute_batch("PRAGMA synchronous = FULL"))?;
        Ok(Some(store).filter(|store| store.version == kind.version()))
    }

    fn looking(
        kind: &'static Kind,
        path: &Path,
        connection: rusqlite::Result<Connection>,
    ) -> Result<Self, StoreError> {
        let connection = connection.map_err(|source| StoreError::Open { path: path.to_owned(), source })?;
        let mut store = Self::of(kind, path, connection);
        store.leave_the_log(true)?;
        store.check_version()?;
        Ok(store)
    }

    fn of(kind: &'static Kind, path: &Path, connection: Connection) -> Self {
        Self { kind, path: path.to_owned(), connection, version: kind.version(), log: None, given_up: false }
    }

    /// Whether closing leaves the log beside the file. It is moved into the file, and then removed, only by one who found
    /// both whole: the file may be a copy that the log does not belong to, and a log may hold what a damaged file lacks.
    fn leave_the_log(&self, leave: bool) -> Result<(), StoreError> {
        let how = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        self.run("say what becomes of the log", |connection| connection.set_db_config(how, leave)).map(drop)
    }

    fn create(&mut self) -> Result<(), StoreError> {
        let statements = format!(
            "BEGIN IMMEDIATE; {} PRAGMA application_id = {}; PRAGMA user_version = {}; COMMIT;",
            self.kind.tables,
            self.kind.application_id,
            self.kind.version()
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
        let steps = self.kind.migrations.get(done..).unwrap_or_default();
        if steps.is_empty() {
            return Ok(());
        }
        let newest = self.kind.version();
        self.run("bring the file to this version", |connection| {
            let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
            steps.iter().try_for_each(|step| step(&transaction))?;
            transaction.pragma_update(None, "user_version", newest)?;
            transaction.commit()
        })?;
        self.version = newest;
        Ok(())
    }

    fn check_version(&mut self) -> Result<(), StoreError> {
        let ours: i64 = self.query("read the file's mark", "PRAGMA application_id")?;
        if ours != self.kind.application_id {
            return Err(StoreError::NotOurs { path: self.path.clone() });
        }
        let found: i64 = self.query("read the schema version", "PRAGMA user_version")?;
        let known = self.kind.version();
        if found > known {
            return Err(StoreError::Newer { path: self.path.clone(), found, known });
        }
        if found < 1 {
            return Err(self.damaged(format!("it has schema version {found}, which never was")));
        }
        self.version = found;
        Ok(())
    }

    pub(crate) fn damaged(&self, finding: String) -> StoreError {
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

    /// All rows of a table in the order of their keys: key and value, which are what was stored.
    pub(crate) fn rows(&self, table: Table) -> Result<Vec<(String, String)>, StoreError> {
        self.rows_where(table, "TRUE")
    }

    /// As [`rows`](Self::rows), of those for which this is true.
    pub(crate) fn rows_where(&self, table: Table, which: &str) -> Result<Vec<(String, String)>, StoreError> {
        // Version 1 had no sums; its readers take the values as they are.
        let sum = if self.version < 2 { "0" } else { "sum" };
        let Table { name, key } = table;
        let rows: Vec<(String, String, i64)> = self.run("read what is stored", |connection| {
            let columns = format!("CAST({key} AS TEXT), value, {sum}");
            let sql = format!("SELECT {columns} FROM {name} WHERE {which} ORDER BY {name}.{key}");
            let mut statement = connection.prepare(&sql)?;
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

    /// Reads with no commit of another process in between.
    pub(crate) fn at_once<T>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let failed = |source| StoreError::Sql { doing: "begin to read", path: self.path.clone(), source };
        let _until_read = self.connection.unchecked_transaction().map_err(failed)?;
        work(self)
    }

    /// Whether a change may be made here.
    fn is_writable(&self) -> bool {
        self.log.is_some() && !self.given_up
    }

    /// Makes a change durable, all of it or nothing. After a failure the file is given up.
    pub(crate) fn commit<T, E: From<StoreError>>(
        &mut self,
        doing: &'static str,
        work: impl FnOnce(&Change<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        if self.given_up {
            return Err(StoreError::GivenUp { path: self.path.clone() }.into());
        }
        let stored = self.store(doing, work);
        if stored.is_err() {
            self.given_up = true;
            // Closing would move the log into the file and synchronise it once more. Whoever opens the file
            // next reads the log as the disk has it, and takes only what is whole.
            let _ = self.leave_the_log(true);
        }
        stored
    }

    fn store<T, E: From<StoreError>>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Change<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let failed = |source| StoreError::Sql { doing, path: self.path.clone(), source };
        let begun = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate);
        let change = Change { file: self, transaction: begun.map_err(failed)?, doing };
        let done = work(&change)?;
        change.transaction.commit().map_err(failed)?;
        if let Some(log) = &self.log {
            self.run("move the log into the file", |connection| log.move_if_full(connection))?;
        }
        Ok(done)
    }
}

/// A change that is being made: it counts once the whole of it is on the disk.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    file: &'a File,
    transaction: Transaction<'a>,
    doing: &'static str,
}

impl Change<'_> {
    /// Stores a value under a key, with its sum, in place of what was there.
    pub(crate) fn put(&self, table: Table, key: &str, value: &str) -> Result<(), StoreError> {
        let Table { name, key: column } = table;
        let sql = format!("INSERT OR REPLACE INTO {name} ({column}, value, sum) VALUES (?1, ?2, ?3)");
        self.execute(&sql, params![key, value, sums::of(name, key, value)]).map(drop)
    }

    /// As [`File::rows`], with what was changed so far.
    pub(crate) fn rows(&self, table: Table) -> Result<Vec<(String, String)>, StoreError> {
        self.file.rows(table)
    }

    /// The number of the row that was added last.
    pub(crate) fn last_id(&self) -> i64 {
        self.file.connection.last_insert_rowid()
    }

    /// Carries a statement out, and says how many rows it changed.
    pub(crate) fn execute(&self, sql: &str, params: impl Params) -> Result<usize, StoreError> {
        let run = || self.transaction.prepare_cached(sql)?.execute(params);
        run().map_err(|source| StoreError::Sql { doing: self.doing, path: self.file.path.clone(), source })
    }
}

impl StateStore for SqliteStore {
    fn load(&mut self) -> Result<Option<StateImage>, StoreError> {
        if !self.file.is_writable() || self.writer.is_some() {
            return self.file.at_once(read);
        }
        // What is read and who writes from then on are one step: nobody's commit falls in between.
        let (image, writer) = self.file.commit("take the file over", |change| {
            Ok::<_, StoreError>((read(change.file)?, claim(change)?))
        })?;
        self.writer = Some(writer);
        Ok(image)
    }

    fn commit(&mut self, changes: &Changeset) -> Result<(), StoreError> {
        let known = self.writer;
        let writer = self.file.commit("store a change", |change| {
            let writer = match known {
                None => claim(change)?,
                Some(known) => still(change, known)?,
            };
            store(change, changes)?;
            Ok::<_, StoreError>(writer)
        })?;
        self.writer = Some(writer);
        Ok(())
    }
}

/// Makes this the writer of the file. Under which number.
fn claim(change: &Change<'_>) -> Result<u64, StoreError> {
    let writer = writer_of(change)?.saturating_add(1);
    put(change, WRITER, &writer)?;
    Ok(writer)
}

/// Nobody took the file over from the writer of this number.
fn still(change: &Change<'_>, known: u64) -> Result<u64, StoreError> {
    match writer_of(change)? {
        found if found == known => Ok(known),
        found => Err(StoreError::TakenOver { path: change.file.path.clone(), found, known }),
    }
}

/// The number of the file's writer; 0 before the first.
fn writer_of(change: &Change<'_>) -> Result<u64, StoreError> {
    let rows = change.file.rows_where(META, &format!("key = '{WRITER}'"))?;
    rows.first().map_or(Ok(0), |(_, text)| decode(WRITER, text))
}

/// Everything that is stored.
fn read(file: &File) -> Result<Option<StateImage>, StoreError> {
    let mut meta: BTreeMap<String, String> = file.rows(META)?.into_iter().collect();
    // It is of the file, not of the state.
    meta.remove(WRITER);
    let rows = file.rows(SLOTS)?;
    if meta.is_empty() && rows.is_empty() {
        return Ok(None);
    }
    let missing = |what| StoreError::Incomplete { path: file.path.clone(), what };
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
        return Err(file.damaged("an attempt is there that was never given out".to_owned()));
    }
    let state = ClusterState {
        observed_generation: value(&meta, "observed_generation")?
            .ok_or_else(|| missing("the observed generation"))?,
        next_attempt_id,
        nodes,
        holds: value(&meta, "holds")?.unwrap_or_default(),
    };
    let desired = value(&meta, "desired")?.ok_or_else(|| missing("the accepted shape"))?;
    let annotations = file.rows(ANNOTATIONS)?.into_iter().collect();
    Ok(Some(StateImage { run, state, desired, annotations }))
}

fn store(change: &Change<'_>, changes: &Changeset) -> Result<(), StoreError> {
    for (slot, node) in &changes.upserted {
        let value = encode(slot.as_str(), node)?;
        // The column is for people who look into the file; the value is what counts.
        let attempt = i64::try_from(node.attempt.0).unwrap_or(i64::MAX);
        let sum = sums::of(SLOTS.name, slot.as_str(), &value);
        let sql = "INSERT OR REPLACE INTO slots (slot, attempt, value, sum) VALUES (?1, ?2, ?3, ?4)";
        change.execute(sql, params![slot.as_str(), attempt, value, sum])?;
    }
    for slot in &changes.removed {
        change.execute("DELETE FROM slots WHERE slot = ?1", [slot.as_str()])?;
    }
    let meta = &changes.meta;
    if let Some(run) = &meta.run {
        put(change, "run", run)?;
    }
    if let Some(holds) = &meta.holds {
        put(change, "holds", holds)?;
    }
    if let Some(desired) = &meta.desired {
        put(change, "desired", desired.as_ref())?;
    }
    put(change, "observed_generation", &meta.observed_generation)?;
    put(change, "next_attempt_id", &meta.next_attempt_id)?;
    for (key, value) in &meta.annotations {
        match value {
            Some(value) => change.put(ANNOTATIONS, key, value)?,
            None => drop(change.execute("DELETE FROM annotations WHERE key = ?1", [key])?),
        }
    }
    Ok(())
}

/// A value of the table of single values.
fn value<T: DeserializeOwned>(meta: &BTreeMap<String, String>, key: &str) -> Result<Option<T>, StoreError> {
    meta.get(key).map(|text| decode(key, text)).transpose()
}

/// No page is smaller than this, and a file that is not empty has one.
const SMALLEST: u64 = 512;

/// Whether an earlier writer left a log that the file alone lacks.
fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).is_ok_and(|log| log.len() > 0)
}

/// Whether anything of a file is there: the file, or a log that lost it, which is refused when it is opened.
pub(crate) fn is_there(path: &Path) -> io::Result<bool> {
    Ok(path.try_exists()? || has_log(path))
}

/// The newest changes may be in the log alone. Without its file it is of no use to SQLite, which would remove it.
pub(crate) fn check_log(path: &Path) -> Result<(), StoreError> {
    let empty = match std::fs::metadata(path) {
        Ok(file) => file.len() == 0,
        // What cannot be looked at otherwise is told by SQLite.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if empty && has_log(path) { Err(StoreError::LogAlone { path: path.to_owned() }) } else { Ok(()) }
}

/// SQLite opens a file of an unknown format as one that may not be written, which is not what is wrong with it, and takes
/// the stump of a file for an empty one.
fn check_format(path: &Path) -> Result<(), StoreError> {
    let stump = std::fs::metadata(path).map_or(0, |file| file.len());
    if (1..SMALLEST).contains(&stump) {
        let finding = format!("it is cut off after {stump} bytes");
        return Err(StoreError::Damaged { path: path.to_owned(), finding });
    }
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

fn put<T: Serialize>(change: &Change<'_>, key: &str, value: &T) -> Result<(), StoreError> {
    change.put(META, key, &encode(key, value)?)
}

pub(crate) fn encode<T: Serialize>(what: &str, value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|source| StoreError::Value { what: what.to_owned(), source })
}

pub(crate) fn decode<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|source| StoreError::Value { what: what.to_owned(), source })
}
