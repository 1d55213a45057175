//! The suite of gated maintenance bites: implementations with one deliberate fault each, and exactly the cases that
//! each one fails, as reviewed in `golden.txt`.

#![expect(clippy::unwrap_used, reason = "the helpers of a test are tests")]

mod how;
mod saboteur;

use std::fmt::Write as _;
use std::sync::OnceLock;

use conformance::hosts::{HOST_CASES, run_host_suite};
use expect_test::expect_file;

use how::{ALL, How};

/// The cases that a sabotage fails. Each is tried once per test run.
fn failed(how: How) -> &'static [&'static str] {
    static TRIED: [OnceLock<Vec<&'static str>>; ALL.len()] = [const { OnceLock::new() }; ALL.len()];
    TRIED[how as usize].get_or_init(|| run_host_suite(|| saboteur::site(how), None).unwrap().failed())
}

#[test]
fn each_sabotage_fails_the_cases_that_were_reviewed() {
    let mut table = String::new();
    for how in ALL {
        writeln!(table, "{how:?}").unwrap();
        for case in failed(*how) {
            writeln!(table, "    {case}").unwrap();
        }
    }
    expect_file!["golden.txt"].assert_eq(&table);
}

#[test]
fn nothing_goes_unnoticed() {
    let idle: Vec<_> = ALL.iter().filter(|how| failed(**how).is_empty()).collect();
    assert!(idle.is_empty(), "nothing notices {idle:?}");
}

/// A case that nothing fails has not shown yet that it can.
#[test]
fn every_case_is_failed_by_some_sabotage() {
    let noticed: Vec<_> = ALL.iter().flat_map(|how| failed(*how)).collect();
    let names = HOST_CASES.iter().map(|case| case.name);
    let idle: Vec<_> = names.filter(|name| !noticed.contains(&name)).collect();
    assert!(idle.is_empty(), "no sabotage fails {idle:?}");
}
