//! A plan on disk.

use reconciler_core::maintenance::{Answer, IoPolicy, Phase};
use reconciler_driver::maintenance::{
    LogLine, PlanStore, PlanStoreError, Request, RequestKind, SqlitePlanStore,
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
    let refused = SqlitePlanStore::open(&file).unwrap_err();
    assert!(matches!(refused, PlanStoreError::NotOurs { .. }), "{refused}");
}
