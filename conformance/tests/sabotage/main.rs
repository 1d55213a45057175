//! The suite bites: executors with one deliberate fault each, and exactly the cases that each one fails.

#![expect(
    clippy::unwrap_used,
    clippy::needless_raw_string_hashes,
    reason = "the helpers of a test are tests"
)]

mod ending;
mod how;
mod listing;
mod making;
mod saboteur;
mod telling;

use std::sync::OnceLock;

use conformance::fake::FakeHarness;
use conformance::{CASES, run_suite};
use expect_test::Expect;

use how::{ALL, How};
use saboteur::Saboteur;

/// Checks which cases a sabotage fails.
fn fails(how: How, expected: &Expect) {
    expected.assert_eq(&failed(how).join("\n"));
}

/// The cases that a sabotage fails. Each is tried once per test run.
fn failed(how: How) -> &'static [&'static str] {
    static TRIED: [OnceLock<Vec<&'static str>>; ALL.len()] = [const { OnceLock::new() }; ALL.len()];
    TRIED[how as usize].get_or_init(|| {
        let make = move || FakeHarness::sabotaged(move |world| Saboteur::executor(world, how));
        run_suite(make, None).unwrap().failed()
    })
}

/// A case that nothing fails has not shown yet that it can.
#[test]
fn every_case_is_failed_by_some_sabotage() {
    let noticed: Vec<_> = ALL.iter().flat_map(|how| failed(*how)).collect();
    let names = CASES.iter().map(|case| case.name);
    let idle: Vec<_> = names.filter(|name| !noticed.contains(&name)).collect();
    assert!(idle.is_empty(), "no sabotage fails {idle:?}");
}

/// Which sabotage is caught by which cases, for reading: `cargo test -p conformance --test sabotage table -- --nocapture`.
#[test]
fn the_table_of_sabotages() {
    println!("sabotage: how many cases it fails, and the first of them");
    for how in ALL {
        let failed = failed(*how);
        let first = failed.first().copied().unwrap_or("none");
        println!("{how:?}: {}, {first}", failed.len());
        assert!(!failed.is_empty(), "nothing notices {how:?}");
    }
    println!("{} sabotages, {} cases", ALL.len(), CASES.len());
}
