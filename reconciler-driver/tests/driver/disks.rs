//! The store on a disk that fails: every write and every sync of a commit, once each; every byte of the file and of
//! its log, changed or cut off. What is read afterwards was stored, or nothing is read.

use std::path::Path;

use faulty_disk::{Call, Disk, Fault, Kind, Part};
use reconciler_driver::{
    Changeset, ClusterDriver, DriverInput, SqliteStore, StateImage, StateStore, StoreError,
};

use crate::support::{epoch, group, policy, shape};

/// The changesets of a driver whose nodes are declared, scaled and declared anew: several, each of several rows.
fn history() -> Vec<Changeset> {
    let mut driver = ClusterDriver::new(shape(1, vec![group("web", 3, 1)]), policy(), epoch()).unwrap();
    let mut changes = Vec::new();
    for round in 0..4_u64 {
        if round > 0 {
            let count = u32::try_from(3 + round).unwrap();
            driver.set_desired(shape(1 + round, vec![group("web", count, 1 + round)])).unwrap();
        }
        while driver.needs_pass() {
            if let Some(changeset) = driver.pass(epoch()).unwrap().commit {
                driver.handle(DriverInput::Committed(changeset.seq), epoch());
                changes.push(changeset);
            }
        }
    }
    assert!(changes.len() >= 4, "{}", changes.len());
    changes
}

fn load(path: &Path) -> Result<Option<StateImage>, StoreError> {
    SqliteStore::open(path)?.load()
}

/// A store with all of the history but its last changeset, and what it holds before and after that one.
fn prepared(path: &Path) -> (Changeset, Option<StateImage>, Option<StateImage>) {
    let mut history = history();
    let last = history.pop().unwrap();
    let mut store = SqliteStore::open(path).unwrap();
    for changes in &history {
        store.commit(changes).unwrap();
    }
    let before = store.load().unwrap();
    drop(store);
    let copy = path.with_extension("copy");
    std::fs::copy(path, &copy).unwrap();
    SqliteStore::open(&copy).unwrap().commit(&last).unwrap();
    let after = load(&copy).unwrap();
    assert_ne!(before, after);
    (last, before, after)
}

#[test]
fn after_a_failed_sync_the_handle_is_done_with_and_the_next_one_writes_everything_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let (last, before, after) = prepared(&path);
    let disk = Disk::under(&path);
    let mut store = SqliteStore::over(&path, disk.open().unwrap()).unwrap();
    disk.take_calls();
    // The first sync is that of the log's own beginning, the second that of the commit.
    disk.fail(Fault::SyncFails, 1);
    let error = store.commit(&last).unwrap_err().summary();
    assert!(error.contains("state.db") && error.contains("look at the disk"), "{error}");
    let calls = disk.take_calls();
    assert_eq!(calls.last(), Some(&Call { kind: Kind::Sync, part: Part::Log, failed: true }));
    // The kernel tells a lost write once. A second sync would succeed and prove nothing.
    assert!(matches!(store.commit(&last).unwrap_err(), StoreError::GivenUp { .. }));
    drop(store);
    assert_eq!(disk.take_calls(), [], "neither the next commit nor closing touches the file");
    // What the log still shows is believed only after it was written to the file itself, and that was synchronised.
    let mut store = SqliteStore::over(&path, disk.open().unwrap()).unwrap();
    let image = store.load().unwrap();
    assert!(image == before || image == after);
    let calls = disk.take_calls();
    let done = |kind, part| calls.iter().position(|call| *call == Call { kind, part, failed: false });
    assert!(done(Kind::Write, Part::Main) < done(Kind::Sync, Part::Main), "{calls:?}");
    assert!(done(Kind::Write, Part::Main).is_some(), "{calls:?}");
    store.commit(&last).unwrap();
    assert_eq!(store.load().unwrap(), after);
}

#[test]
fn a_sync_that_fails_while_the_log_moves_into_the_file_fails_the_commit_that_filled_it() {
    let declared = |round| shape(round, vec![group("web", 200, round)]);
    let mut driver = ClusterDriver::new(declared(1), policy(), epoch()).unwrap();
    let mut round = 1;
    let mut next = || loop {
        if !driver.needs_pass() {
            round += 1;
            driver.set_desired(declared(round)).unwrap();
        }
        if let Some(changes) = driver.pass(epoch()).unwrap().commit {
            driver.handle(DriverInput::Committed(changes.seq), epoch());
            return changes;
        }
    };
    let open = |path: &Path| {
        drop(SqliteStore::open(path).unwrap());
        let disk = Disk::under(path);
        (disk, SqliteStore::over(path, disk.open().unwrap()).unwrap())
    };
    // As it goes while the disk is well.
    let dir = tempfile::tempdir().unwrap();
    let (disk, mut store) = open(&dir.path().join("well.db"));
    disk.take_calls();
    let mut history = Vec::new();
    let syncs = loop {
        assert!(history.len() < 100, "the log never moved");
        history.push(next());
        store.commit(history.last().unwrap()).unwrap();
        let calls = disk.take_calls();
        if calls.iter().any(|call| call.part == Part::Main) {
            break calls.iter().filter(|call| call.kind == Kind::Sync).count() as u64;
        }
    };
    let (last, before) = history.split_last().unwrap();
    assert!(syncs >= 3, "of the commit, of the log before it moves, of the file: {syncs}");
    for spared in 0..syncs {
        let path = dir.path().join(format!("{spared}.db"));
        let (disk, mut store) = open(&path);
        for changes in before {
            store.commit(changes).unwrap();
        }
        disk.take_calls();
        disk.fail(Fault::SyncFails, spared);
        let error = store.commit(last).unwrap_err();
        assert!(!error.is_damage() && error.to_string().contains("look at the disk"), "{error}");
        assert!(disk.take_calls().last().unwrap().failed, "nothing is written after it");
        assert!(matches!(store.commit(last).unwrap_err(), StoreError::GivenUp { .. }));
        drop(store);
        assert_eq!(disk.take_calls(), [], "neither the next commit nor closing touches the file");
        assert!(load(&path).unwrap().is_some());
    }
}

#[test]
fn what_cannot_be_made_durable_at_opening_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let (last, before, after) = prepared(&path);
    let disk = Disk::under(&path);
    let mut store = SqliteStore::over(&path, disk.open().unwrap()).unwrap();
    disk.fail_for_good(Fault::SyncFails, 1);
    store.commit(&last).unwrap_err();
    drop(store);
    for _ in 0..2 {
        let error = SqliteStore::over(&path, disk.open().unwrap()).unwrap_err();
        assert!(error.to_string().contains("look at the disk"), "{error}");
    }
    disk.heal();
    let image = load(&path).unwrap();
    assert!(image == before || image == after);
}

#[test]
fn a_commit_that_fails_at_any_write_or_sync_left_all_of_it_or_nothing() {
    for fault in [Fault::NoSpace, Fault::Torn, Fault::SyncFails] {
        let mut failures = 0;
        for spared in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("state.db");
            let (last, before, after) = prepared(&path);
            let disk = Disk::under(&path);
            let mut store = SqliteStore::over(&path, disk.open().unwrap()).unwrap();
            disk.fail(fault, spared);
            let committed = store.commit(&last);
            drop(store);
            disk.heal();
            let image = load(&path).unwrap();
            if committed.is_ok() {
                assert_eq!(image, after, "{fault:?} after {spared}: a commit that was confirmed is there");
                break;
            }
            failures += 1;
            assert!(image == before || image == after, "{fault:?} after {spared}");
            // And the next driver goes on from there.
            let mut store = SqliteStore::open(&path).unwrap();
            store.commit(&last).unwrap();
            assert_eq!(store.load().unwrap(), after);
        }
        let least = if fault == Fault::SyncFails { 1 } else { 4 };
        assert!(failures >= least, "{fault:?} hit {failures} calls");
    }
}

#[test]
fn a_bit_that_flips_in_the_file_is_told_or_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let mut store = SqliteStore::open(&path).unwrap();
    for changes in history().into_iter().take(2) {
        store.commit(&changes).unwrap();
    }
    let image = store.load().unwrap();
    drop(store);
    let whole = std::fs::read(&path).unwrap();
    let flipped = dir.path().join("flipped.db");
    let (mut told, mut harmless) = (0, 0);
    // The whole header, and from there on a step that meets every page in every place sooner or later.
    for offset in (0..200).chain((200..whole.len()).step_by(31)) {
        let mut bytes = whole.clone();
        bytes[offset] ^= 1 << (offset % 8);
        std::fs::write(&flipped, &bytes).unwrap();
        match load(&flipped) {
            Ok(read) => {
                assert_eq!(read, image, "byte {offset} changed what is read");
                harmless += 1;
            }
            Err(error) => {
                let known = matches!(error, StoreError::NotOurs { .. } | StoreError::Newer { .. });
                assert!(error.is_damage() || known, "byte {offset}: {}", error.summary());
                told += 1;
            }
        }
        for beside in ["flipped.db-wal", "flipped.db-shm"] {
            let _ = std::fs::remove_file(dir.path().join(beside));
        }
    }
    println!("{} bytes: {told} flips told, {harmless} in places that hold nothing", whole.len());
    assert!(told > 150, "{told} told, {harmless} harmless");
}

#[test]
fn a_log_that_is_torn_or_changed_anywhere_yields_what_was_stored_up_to_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let mut store = SqliteStore::open(&path).unwrap();
    let mut stored = vec![store.load().unwrap()];
    for changes in history() {
        store.commit(&changes).unwrap();
        stored.push(store.load().unwrap());
    }
    // As the process leaves it that dies here.
    let file = std::fs::read(&path).unwrap();
    let log = std::fs::read(dir.path().join("state.db-wal")).unwrap();
    let torn = dir.path().join("torn.db");
    let mut found = std::collections::BTreeSet::new();
    let mut try_log = |bytes: &[u8]| {
        std::fs::write(&torn, &file).unwrap();
        std::fs::write(dir.path().join("torn.db-wal"), bytes).unwrap();
        let _ = std::fs::remove_file(dir.path().join("torn.db-shm"));
        match load(&torn) {
            Ok(image) => found.insert(stored.iter().position(|stored| *stored == image).unwrap()),
            // The very first commit of the file itself is in the log: without it, it is nobody's.
            Err(error) => panic!("{}", error.summary()),
        };
    };
    for length in (0..log.len()).step_by(1021) {
        try_log(&log[..length]);
    }
    for offset in (0..log.len()).step_by(641) {
        let mut bytes = log.clone();
        bytes[offset] ^= 1 << (offset % 8);
        try_log(&bytes);
    }
    try_log(&log);
    assert!(found.len() > 3 && found.contains(&(stored.len() - 1)), "{found:?}");
}

#[test]
fn a_file_in_a_place_that_may_not_be_written_can_be_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state of #1?.db");
    let (last, before, _) = prepared(&path);
    assert_eq!(SqliteStore::open_read_only(&path).unwrap().load().unwrap(), before);
    // A reader never takes part in what a writer is doing.
    let mut writer = SqliteStore::open(&path).unwrap();
    let mut reader = SqliteStore::open_read_only(&path).unwrap();
    assert_eq!(reader.load().unwrap(), before);
    writer.commit(&last).unwrap();
    assert_ne!(reader.load().unwrap(), before);
}
