//! A plan on disk: what comes back is what was stored, or nothing is read.

use std::path::Path;

use faulty_disk::{Disk, Fault};

use reconciler_core::maintenance::{Answer, IoPolicy, Phase};
use reconciler_driver::maintenance::{
    LogLine, PlanRecord, PlanStore, PlanStoreError, Request, RequestKind, SqlitePlanStore,
};

use crate::bench::{Bench, HOUR, busy};

#[test]
fn a_plan_on_disk_is_the_plan_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.db");
    let mut bench = Bench::new(&busy(), IoPolicy::Continue);
    let mut driver = bench.start_on(Box::new(SqlitePlanStore::open(&file).unwrap()));
    bench.drive(&mut driver, HOUR, |_, _| {});
    assert_eq!(driver.state().phase, Phase::Complete);
    let mut store = SqlitePlanStore::open(&file).unwrap();
    let stored = store.load().unwrap().unwrap();
    assert_eq!((&stored.state, &stored.plan), (driver.state(), driver.plan()));
    let log = store.log().unwrap();
    assert_eq!(log.len() as u64, stored.seq);
    assert!(log.iter().any(|line| line.what.starts_with("send")), "{log:#?}");
}

#[test]
fn of_two_writers_the_late_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.db");
    let mut bench = Bench::new(&busy(), IoPolicy::Continue);
    let driver = bench.start_on(Box::new(SqlitePlanStore::open(&file).unwrap()));
    let mut late = SqlitePlanStore::open(&file).unwrap();
    let record = late.load().unwrap().unwrap();
    let line = LogLine { at: driver.state().created_at, phase: String::new(), what: "again".to_owned() };
    let refused = late.commit(&record, &line).unwrap_err();
    assert!(matches!(refused, PlanStoreError::Moved { found: 1, known: 0 }), "{refused}");
    assert_eq!(late.log().unwrap().len(), 1, "nothing of it was written");
}

#[test]
fn a_reader_waits_for_no_writer_and_makes_none_wait() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.db");
    let mut bench = Bench::new(&busy(), IoPolicy::Continue);
    let driver = bench.start_on(Box::new(SqlitePlanStore::open(&file).unwrap()));
    let writer = rusqlite::Connection::open(&file).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut reader = SqlitePlanStore::open_read_only(&file).unwrap();
    assert_eq!(&reader.load().unwrap().unwrap().state, driver.state());
    writer.execute_batch("COMMIT").unwrap();
    let absent = SqlitePlanStore::open_read_only(&dir.path().join("absent.db"));
    assert!(absent.is_err() && !dir.path().join("absent.db").exists(), "nothing is made");
}

#[test]
fn requests_wait_for_their_answer() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqlitePlanStore::open(&dir.path().join("plan.db")).unwrap();
    let kind = RequestKind::Respond { fingerprint: "ab".to_owned(), answer: Answer::LookAgain };
    let request = Request { who: "ann".to_owned(), kind };
    let id = store.ask(&request).unwrap();
    let second = store.ask(&Request { who: "bob".to_owned(), kind: RequestKind::Abort }).unwrap();
    assert_eq!(store.open_requests().unwrap()[0], (id, request));
    assert_eq!(store.answer_to(id).unwrap(), None);
    store.answer(id, &Err("not offered".to_owned())).unwrap();
    store.withdraw(second).unwrap();
    assert_eq!(store.answer_to(id).unwrap(), Some(Err("not offered".to_owned())));
    assert!(store.open_requests().unwrap().is_empty());
}

#[test]
fn a_file_of_something_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.db");
    rusqlite::Connection::open(&file).unwrap().execute_batch("CREATE TABLE other (a TEXT)").unwrap();
    for opened in both(&file) {
        let refused = opened.unwrap_err();
        assert!(matches!(refused, PlanStoreError::NotOurs { .. }), "{refused}");
        assert!(refused.is_unusable());
    }
}

/// The file opened by who drives, and by who looks.
fn both(file: &Path) -> [Result<SqlitePlanStore, PlanStoreError>; 2] {
    [SqlitePlanStore::open(file), SqlitePlanStore::open_read_only(file)]
}

/// What is read of a file, the timeline included.
fn read(
    opened: Result<SqlitePlanStore, PlanStoreError>,
) -> Result<(Option<PlanRecord>, Vec<LogLine>), PlanStoreError> {
    let mut store = opened?;
    Ok((store.load()?, store.log()?))
}

/// The file of a plan that is over, closed.
fn finished(file: &Path) {
    let mut bench = Bench::new(&busy(), IoPolicy::Continue);
    let mut driver = bench.start_on(Box::new(SqlitePlanStore::open(file).unwrap()));
    bench.drive(&mut driver, HOUR, |_, _| {});
}

#[test]
fn a_newer_file_is_refused_as_such_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.db");
    drop(SqlitePlanStore::open(&file).unwrap());
    rusqlite::Connection::open(&file).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    for opened in both(&file) {
        let refused = opened.unwrap_err();
        assert!(matches!(refused, PlanStoreError::Newer { found: 99, .. }), "{refused}");
        assert!(refused.is_unusable() && refused.to_string().contains("newer program"), "{refused}");
    }
}

#[test]
fn a_changed_digit_is_damage_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.db");
    for change in [
        "UPDATE record SET value = replace(value, '\"retries\":0', '\"retries\":7')",
        "UPDATE record SET seq = seq + 1",
        "UPDATE log SET value = replace(value, 'send', 'sent')",
        "DELETE FROM record",
    ] {
        let _ = std::fs::remove_file(&file);
        finished(&file);
        assert!(read(SqlitePlanStore::open_read_only(&file)).unwrap().0.is_some());
        rusqlite::Connection::open(&file).unwrap().execute_batch(change).unwrap();
        for opened in both(&file) {
            let told = read(opened).unwrap_err();
            assert!(told.is_unusable(), "{change}: {told}");
            assert!(told.to_string().contains("move it and its log away"), "{told}");
        }
    }
}

#[test]
fn a_damaged_file_with_a_log_is_refused_and_both_are_left_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.db");
    let mut bench = Bench::new(&busy(), IoPolicy::Continue);
    let mut driver = bench.start_on(Box::new(SqlitePlanStore::open(&file).unwrap()));
    bench.drive(&mut driver, HOUR, |_, _| {});
    drop(driver);
    let asking = SqlitePlanStore::open(&file).unwrap();
    asking.ask(&Request { who: "ann".to_owned(), kind: RequestKind::Abort }).unwrap();
    // As the process leaves it that dies here.
    let both_of =
        |file: &Path| [file.to_owned(), file.with_extension("db-wal")].map(|it| std::fs::read(it).unwrap());
    let [mut whole, log] = both_of(&file);
    let at = whole.windows(12).rposition(|text| text == b"\"retries\":0,").unwrap();
    whole[at + 10] = b'7';
    let left = tempfile::tempdir().unwrap();
    let file = left.path().join("plan.db");
    std::fs::write(&file, &whole).unwrap();
    std::fs::write(left.path().join("plan.db-wal"), &log).unwrap();
    for opened in [0, 1, 2] {
        let told = match opened {
            0 => read(SqlitePlanStore::open(&file)).unwrap_err(),
            1 => read(SqlitePlanStore::open_read_only(&file)).unwrap_err(),
            _ => read(SqlitePlanStore::open_beside(&file)).unwrap_err(),
        };
        assert!(told.is_unusable() && told.to_string().contains("-wal"), "{told}");
        assert_eq!(both_of(&file), [whole.clone(), log.clone()], "opened the way {opened}");
    }
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_damage_or_nothing_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.db");
    finished(&file);
    let whole = std::fs::read(&file).unwrap();
    let stored = read(SqlitePlanStore::open_read_only(&file)).unwrap();
    for length in (1..whole.len()).step_by(997) {
        std::fs::write(&file, &whole[..length]).unwrap();
        for opened in both(&file) {
            match read(opened) {
                Ok(found) => assert!(found == stored, "cut at {length}"),
                Err(error) => assert!(error.is_unusable(), "cut at {length}: {error}"),
            }
        }
    }
    // The log that lost its file is no empty plan either.
    std::fs::write(dir.path().join("plan.db-wal"), "what was last").unwrap();
    for empty in [true, false] {
        if empty {
            std::fs::write(&file, "").unwrap();
        } else {
            std::fs::remove_file(&file).unwrap();
        }
        assert!(SqlitePlanStore::is_there(&file).unwrap());
        for opened in both(&file) {
            assert!(opened.unwrap_err().is_unusable());
        }
    }
}

#[test]
fn after_a_failed_write_no_clone_writes_any_more_and_all_of_it_or_nothing_is_there() {
    for fault in [Fault::NoSpace, Fault::SyncFails] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("plan.db");
        finished(&file);
        let before = read(SqlitePlanStore::open_read_only(&file)).unwrap();
        let disk = Disk::under(&file);
        let mut store = SqlitePlanStore::over(&file, disk.open().unwrap()).unwrap();
        let clone = store.clone();
        let mut record = store.load().unwrap().unwrap();
        record.seq += 1;
        let line =
            LogLine { at: record.state.created_at, phase: String::new(), what: "once more".to_owned() };
        disk.fail(fault, 1);
        let failed = store.commit(&record, &line).unwrap_err();
        assert!(matches!(failed, PlanStoreError::File(_)), "{failed}");
        let again = store.commit(&record, &line).unwrap_err();
        assert!(again.to_string().contains("given up"), "{again}");
        let asked = clone.ask(&Request { who: "bob".to_owned(), kind: RequestKind::Abort }).unwrap_err();
        assert!(asked.to_string().contains("given up"), "{asked}");
        drop((store, clone));
        disk.heal();
        let after = read(SqlitePlanStore::open(&file)).unwrap();
        let last = after.1.last().unwrap().what.as_str();
        assert!(after == before || (after.0 == Some(record) && last == "once more"), "{fault:?}");
    }
}

#[test]
fn a_file_of_version_1_is_read_as_it_was_meant_and_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.db");
    rusqlite::Connection::open(&file).unwrap().execute_batch(include_str!("fixtures/plan-v1.sql")).unwrap();
    // Who looks changes nothing; who asks leaves the file to the program that drives.
    let seen = read(SqlitePlanStore::open_read_only(&file)).unwrap();
    let refused = SqlitePlanStore::open_beside(&file).unwrap_err();
    assert!(matches!(refused, PlanStoreError::Older { .. }), "{refused}");
    let mut store = SqlitePlanStore::open(&file).unwrap();
    assert_eq!(read(Ok(store.clone())).unwrap(), seen);
    let mut record = seen.0.unwrap();
    assert_eq!((record.state.phase, record.seq), (Phase::Complete, seen.1.len() as u64));
    let open = store.open_requests().unwrap();
    assert_eq!(
        open.iter().map(|(id, request)| (*id, request.who.as_str())).collect::<Vec<_>>(),
        [(2, "bob")]
    );
    assert_eq!(store.answer_to(1).unwrap(), Some(Err("not offered".to_owned())));
    record.seq += 1;
    store.commit(&record, seen.1.last().unwrap()).unwrap();
    let asked = SqlitePlanStore::open_beside(&file).unwrap();
    assert_eq!(asked.ask(&open[0].1).unwrap(), 3);
    drop((store, asked));
    assert_eq!(read(SqlitePlanStore::open_read_only(&file)).unwrap().0, Some(record));
}
