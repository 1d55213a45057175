//! The store on disk: what comes back is what was committed, and nothing is guessed.

use std::path::Path;

use executor_api::NodeAttemptId;
use reconciler_driver::{
    Changeset, ClusterDriver, DriverInput, ExecutorTable, MemoryStore, MetaChange, Rules, Runner,
    SqliteStore, StateStore, StoreError,
};

use crate::support::{Stage, epoch, group, policy, secs, shape, slot};

fn raw(path: &Path, statement: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(statement).unwrap();
}

#[test]
fn a_run_can_be_read_back_after_every_change() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let stage = Stage::new(shape(1, vec![]));
    let executors = ExecutorTable::new().with_executor(stage.world.executor());
    let store = Box::new(SqliteStore::open(&path).unwrap());
    let first = shape(1, vec![group("web", 3, 1)]);
    let mut runner =
        Runner::open(store, first, policy(), executors, stage.timer.clone(), Rules::default()).unwrap();
    let shapes = [shape(2, vec![group("web", 5, 1)]), shape(3, vec![group("web", 1, 2)]), shape(4, vec![])];
    for next in shapes {
        runner.run_until_settled(secs(100)).unwrap();
        let mut reader = SqliteStore::open_read_only(&path).unwrap();
        let image = reader.load().unwrap().unwrap();
        assert_eq!(image.state, *runner.driver().state());
        assert_eq!(image.desired, **runner.driver().desired());
        runner.set_desired(next).unwrap();
    }
    runner.run_until_settled(secs(100)).unwrap();
    drop(runner);
    let image = SqliteStore::open(&path).unwrap().load().unwrap().unwrap();
    assert_eq!(image.state.nodes.len(), 0);
    assert_eq!(image.state.next_attempt_id, 7, "ids are never given out again");
}

#[test]
fn both_stores_hold_the_same_after_the_same_changes() {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = SqliteStore::open(&dir.path().join("state.db")).unwrap();
    let mut memory = MemoryStore::new();
    assert_eq!(disk.load().unwrap(), None);
    let mut driver = ClusterDriver::new(shape(1, vec![group("web", 2, 1)]), policy(), epoch()).unwrap();
    let annotate = |key: &str, value: Option<&str>| DriverInput::Annotate {
        key: key.to_owned(),
        value: value.map(str::to_owned),
    };
    driver.handle(annotate("file", Some("/etc/cluster.yaml")), epoch());
    driver.handle(annotate("scale/web", Some("2")), epoch());
    let mut commit = |driver: &mut ClusterDriver| {
        while driver.needs_pass() {
            if let Some(changes) = driver.pass(epoch()).unwrap().commit {
                disk.commit(&changes).unwrap();
                memory.commit(&changes).unwrap();
                driver.handle(DriverInput::Committed(changes.seq), epoch());
            }
        }
        assert_eq!(disk.load().unwrap(), memory.load().unwrap());
        disk.load().unwrap().unwrap()
    };
    assert_eq!(commit(&mut driver).annotations.len(), 2);
    driver.handle(annotate("scale/web", None), epoch());
    let image = commit(&mut driver);
    assert_eq!(image.annotations.into_keys().collect::<Vec<_>>(), ["file"]);
    assert_eq!(image.state, *driver.state());
}

#[test]
fn a_newer_file_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    drop(SqliteStore::open(&path).unwrap());
    raw(&path, "PRAGMA user_version = 99");
    for opened in [SqliteStore::open(&path), SqliteStore::open_read_only(&path)] {
        let error = opened.unwrap_err();
        assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
        assert!(error.to_string().contains("newer program"), "{error}");
    }
}

#[test]
fn a_file_of_another_program_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.db");
    raw(&path, "CREATE TABLE mine (x)");
    assert!(matches!(SqliteStore::open(&path), Err(StoreError::NotOurs { .. })));
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "not a database, but long enough to be looked at as one".repeat(100)).unwrap();
    assert!(SqliteStore::open(&text).is_err());
    assert!(matches!(
        SqliteStore::open_read_only(&dir.path().join("absent.db")),
        Err(StoreError::Open { .. })
    ));
}

#[test]
fn a_damaged_row_is_an_error_and_not_an_empty_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let mut store = SqliteStore::open(&path).unwrap();
    let mut driver = ClusterDriver::new(shape(1, vec![group("web", 2, 1)]), policy(), epoch()).unwrap();
    let mut changes: Option<Changeset> = None;
    while changes.is_none() {
        changes = driver.pass(epoch()).unwrap().commit;
    }
    store.commit(&changes.unwrap()).unwrap();
    drop(store);
    raw(&path, "UPDATE slots SET value = '{' WHERE slot = 'web-1'");
    let error = SqliteStore::open(&path).and_then(|mut store| store.load()).unwrap_err();
    assert!(error.to_string().contains(slot("web-1").as_str()), "{error}");
}

#[test]
fn effects_are_released_by_their_commit_and_by_nothing_else() {
    let mut driver = ClusterDriver::new(shape(1, vec![group("web", 2, 1)]), policy(), epoch()).unwrap();
    let mut seq = None;
    for _ in 0..5 {
        let report = driver.pass(epoch()).unwrap();
        assert_eq!(report.effects, []);
        seq = report.commit.map(|changes| changes.seq).or(seq);
    }
    driver.handle(DriverInput::Committed(seq.unwrap()), epoch());
    assert!(driver.needs_pass());
    assert_eq!(driver.pass(epoch()).unwrap().effects.len(), 2);
    assert_eq!(driver.pass(epoch()).unwrap().effects, []);

    let mut driver = ClusterDriver::new(shape(1, vec![group("web", 2, 1)]), policy(), epoch()).unwrap();
    driver.pass(epoch()).unwrap();
    driver.pass(epoch()).unwrap();
    driver.handle(DriverInput::CommitFailed("disk full".to_owned()), epoch());
    let error = driver.pass(epoch()).unwrap_err();
    assert!(error.to_string().contains("nothing is sent any more"), "{error}");
    assert!(!driver.needs_pass() && driver.next_deadline().is_none());
}

#[test]
fn an_effect_that_waits_for_its_commit_past_its_deadline_is_never_sent() {
    let mut driver = ClusterDriver::new(shape(1, vec![group("web", 1, 1)]), policy(), epoch()).unwrap();
    driver.pass(epoch()).unwrap();
    let seq = driver.pass(epoch()).unwrap().commit.unwrap().seq;
    let late = epoch() + secs(30);
    let report = driver.pass(late).unwrap();
    assert_eq!((report.effects.len(), report.stops.len()), (0, 0));
    driver.handle(DriverInput::Committed(seq), late);
    assert_eq!(driver.pass(late).unwrap().effects, []);
    let node = &driver.state().nodes[&slot("web-0")];
    assert_eq!(node.retry.ambiguous_operation, None, "nothing was sent: nothing is unknown");
}

#[test]
fn a_file_of_version_1_is_read_as_it_was_meant() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    raw(&path, include_str!("fixtures/state-v1.sql"));
    let image = SqliteStore::open(&path).unwrap().load().unwrap().unwrap();
    assert_eq!((image.run.name(), image.run.uid()), ("fixture", "135af587207f2648"));
    assert_eq!((image.state.observed_generation, image.state.next_attempt_id), (1, 4));
    let attempts: Vec<_> = image.state.nodes.values().map(|node| node.attempt.0).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert!(image.state.nodes[&slot("web-1")].is_ready());
    let pending = image.state.nodes[&slot("web-2")].pending.clone().unwrap();
    assert_eq!(pending.id.to_string(), "a3.0");
    assert!(image.state.holds.on(&slot("web-0")).is_some());
    assert_eq!(image.annotations.keys().collect::<Vec<_>>(), ["command-line"]);
    // And it can be gone on with.
    let now = pending.deadline;
    let mut driver = ClusterDriver::restore(image.clone(), image.desired, policy(), now).unwrap();
    let changes = driver.pass(now).unwrap().commit;
    SqliteStore::open(&path).unwrap().commit(&changes.unwrap()).unwrap();
}

/// A driver's first changes, each too large for a page.
fn first_changes(count: u32) -> Changeset {
    let mut driver = ClusterDriver::new(shape(1, vec![group("web", count, 1)]), policy(), epoch()).unwrap();
    loop {
        if let Some(changes) = driver.pass(epoch()).unwrap().commit {
            return changes;
        }
    }
}

#[test]
fn a_full_disk_is_said_nothing_of_the_change_is_kept_and_space_cures_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    drop(SqliteStore::open(&path).unwrap());
    let connection = rusqlite::Connection::open(&path).unwrap();
    let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    connection.pragma_update(None, "max_page_count", pages + 2).unwrap();
    let mut store = SqliteStore::over(&path, connection).unwrap();
    let changes = first_changes(100);
    let error = store.commit(&changes).unwrap_err().summary();
    assert!(error.contains("state.db") && error.contains("free some space"), "{error}");
    // The handle is done with: whether a second try is durable, nobody could say.
    let again = store.commit(&changes).unwrap_err();
    assert!(matches!(again, StoreError::GivenUp { .. }), "{again}");
    drop(store);
    let mut store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.load().unwrap(), None, "all or nothing");
    store.commit(&changes).unwrap();
    assert_eq!(store.load().unwrap().unwrap().state.nodes.len(), 100);
}

#[test]
fn a_file_that_cannot_be_written_says_what_to_make_writable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    drop(SqliteStore::open(&path).unwrap());
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = rusqlite::Connection::open_with_flags(&path, flags).unwrap();
    let error = match SqliteStore::over(&path, connection) {
        Err(error) => error,
        Ok(mut store) => store.commit(&first_changes(1)).unwrap_err(),
    };
    assert!(error.to_string().contains("writable"), "{error}");
    assert!(!error.is_damage());
}

#[test]
fn a_torn_file_is_damaged_and_not_an_empty_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let mut store = SqliteStore::open(&path).unwrap();
    store.commit(&first_changes(200)).unwrap();
    drop(store);
    let whole = std::fs::read(&path).unwrap();
    let torn = [&whole[..whole.len() / 2], &vec![0xa5; 4096], &whole[whole.len() / 2 + 4096..]].concat();
    for bytes in [&torn[..], &whole[..whole.len() / 2], &whole[..4096], &whole[..300], &whole[..1]] {
        std::fs::write(&path, bytes).unwrap();
        let error = SqliteStore::open(&path).and_then(|mut store| store.load()).unwrap_err();
        assert!(error.is_damage(), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "a damaged file is left for its owner to look at");
    }
    std::fs::write(&path, whole).unwrap();
    assert_eq!(SqliteStore::open(&path).unwrap().load().unwrap().unwrap().state.nodes.len(), 200);
}

#[test]
fn attempts_beyond_the_allocator_are_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    // A file of the version that had no sums.
    raw(&path, include_str!("fixtures/state-v1.sql"));
    raw(&path, "UPDATE meta SET value = '2' WHERE key = 'next_attempt_id'");
    let error = SqliteStore::open(&path).and_then(|mut store| store.load()).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("never given out"), "{error}");
}

#[test]
fn a_log_that_lost_its_file_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let mut store = SqliteStore::open(&path).unwrap();
    store.commit(&first_changes(3)).unwrap();
    // As the process leaves it that dies here.
    let (file, log) =
        (std::fs::read(&path).unwrap(), std::fs::read(dir.path().join("state.db-wal")).unwrap());
    let left = tempfile::tempdir().unwrap();
    let path = left.path().join("state.db");
    let beside = left.path().join("state.db-wal");
    std::fs::write(&beside, &log).unwrap();
    for empty in [false, true] {
        if empty {
            std::fs::write(&path, "").unwrap();
        }
        assert!(SqliteStore::is_there(&path).unwrap());
        for opened in [SqliteStore::open(&path), SqliteStore::open_read_only(&path)] {
            let error = opened.unwrap_err();
            assert!(matches!(error, StoreError::LogAlone { .. }) && error.is_damage(), "{error}");
            assert!(
                error.to_string().contains("state.db-wal") && error.to_string().contains("--adopt"),
                "{error}"
            );
        }
        assert_eq!(std::fs::read(&beside).unwrap(), log);
        assert_eq!(path.exists(), empty, "nothing was made");
    }
    std::fs::write(&path, file).unwrap();
    assert_eq!(SqliteStore::open(&path).unwrap().load().unwrap().unwrap().state.nodes.len(), 3);
}

/// What is in a state file, and in its log.
fn bytes(path: &Path) -> [Vec<u8>; 2] {
    [path.to_owned(), path.with_extension("db-wal")].map(|path| std::fs::read(path).unwrap())
}

/// Puts a file and a log into a directory of their own, and has everybody open them who may.
fn is_refused_and_left(file: &[u8], log: &[u8], why: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    std::fs::write(&path, file).unwrap();
    std::fs::write(dir.path().join("state.db-wal"), log).unwrap();
    for _ in 0..2 {
        for open in [SqliteStore::open, SqliteStore::open_read_only] {
            let error = open(&path).and_then(|mut store| store.load()).unwrap_err();
            assert!(error.is_damage(), "{why}: {error}");
            assert!(error.to_string().contains("-wal"), "{why}: the log is to go with the file: {error}");
            assert_eq!(bytes(&path), [file, log], "{why}");
        }
    }
}

#[test]
fn a_damaged_file_with_a_log_is_refused_and_both_are_left_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let first = first_changes(400);
    let replaced = |slot_name: &str, attempt: u64| {
        let mut node = first.upserted.iter().find(|(id, _)| *id == slot(slot_name)).unwrap().1.clone();
        node.attempt = NodeAttemptId(attempt);
        let meta =
            MetaChange { observed_generation: 1, next_attempt_id: attempt + 1, ..MetaChange::default() };
        Changeset { seq: 0, upserted: vec![(slot(slot_name), node)], removed: Vec::new(), meta }
    };
    let store = |changes: &Changeset| {
        let mut store = SqliteStore::open(&path).unwrap();
        store.load().unwrap();
        store.commit(changes).unwrap();
        store
    };
    drop(store(&first));
    let copy = std::fs::read(&path).unwrap();
    drop(store(&replaced("web-1", 401)));
    // As the process leaves it that dies here.
    let _open = store(&replaced("web-399", 402));
    let [file, log] = bytes(&path);
    is_refused_and_left(&copy, &log, "an older copy beside the log of a newer file");
    let mut rotten = file.clone();
    let half = rotten.len() / 2;
    rotten[half..half + 4096].fill(0xa5);
    is_refused_and_left(&rotten, &log, "a page of the file is rotten");
    // One letter within a value, which is of no concern to SQLite.
    let mut flipped = file.clone();
    let at = file.windows(9).position(|text| text == b"\"web-200\"").unwrap();
    flipped[at + 1] = b'W';
    is_refused_and_left(&flipped, &log, "a value is not what was stored");
    // The very file that the log belongs to.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    std::fs::write(&path, &file).unwrap();
    std::fs::write(dir.path().join("state.db-wal"), &log).unwrap();
    assert_eq!(SqliteStore::open(&path).unwrap().load().unwrap().unwrap().state.next_attempt_id, 403);
    assert!(!dir.path().join("state.db-wal").exists(), "it was moved into its file");
}

#[test]
fn a_writer_that_was_taken_over_stores_nothing_more_and_is_told_why() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let mut first = SqliteStore::open(&path).unwrap();
    assert_eq!(first.load().unwrap(), None);
    first.commit(&first_changes(3)).unwrap();
    // Who only looks takes nothing over, and neither does one who opened the file and did nothing yet.
    SqliteStore::open_read_only(&path).unwrap().load().unwrap();
    let mut second = SqliteStore::open(&path).unwrap();
    first.commit(&first_changes(4)).unwrap();
    let loaded = second.load().unwrap().unwrap();
    assert_eq!(loaded.state.nodes.len(), 4);
    let error = first.commit(&first_changes(5)).unwrap_err();
    assert!(matches!(error, StoreError::TakenOver { known: 1, found: 2, .. }), "{error}");
    assert!(error.to_string().contains("its lock was removed") && !error.is_damage(), "{error}");
    assert!(matches!(first.commit(&first_changes(5)).unwrap_err(), StoreError::GivenUp { .. }));
    drop(first);
    assert_eq!(second.load().unwrap().unwrap(), loaded);
    second.commit(&first_changes(6)).unwrap();
    assert_eq!(second.load().unwrap().unwrap().state.nodes.len(), 6);
}

#[test]
fn a_driver_that_was_taken_over_sends_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let stage = Stage::new(shape(1, vec![]));
    let open = || {
        let executors = ExecutorTable::new().with_executor(stage.world.executor());
        let store = Box::new(SqliteStore::open(&path).unwrap());
        let desired = shape(1, vec![group("web", 2, 1)]);
        Runner::open(store, desired, policy(), executors, stage.timer.clone(), Rules::default()).unwrap()
    };
    let mut first = open();
    first.run_until_settled(secs(100)).unwrap();
    let mut second = open();
    let before = stage.world.existing_leases().len();
    first.set_desired(shape(2, vec![group("web", 5, 1)])).unwrap();
    let error = loop {
        match first.step() {
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("driven twice") && error.contains("nothing is sent any more"), "{error}");
    assert_eq!(stage.world.existing_leases().len(), before, "nothing of it was made");
    second.run_until_settled(secs(100)).unwrap();
    assert!(second.driver().is_converged());
}
