//! The searches that run in CI.

use std::time::{Duration, Instant};

use reconciler_core::maintenance::{Phase, advance, apply, fold, respond};

use crate::moves::{Rules, Setting};
use crate::walk::search;

/// One fault of any kind, while machines write.
pub(crate) fn setting() -> Setting {
    Setting {
        rules: Rules { advance, apply, fold, respond },
        agent: None,
        watchful: false,
        restful: false,
        retry_cap: 2,
        quiesce: false,
        suspend_for: Duration::from_mins(10),
        resources: 1,
        blocks: 1,
        // Unoptimised, a search with a fault takes as long as all other tests together.
        faults: u32::from(cfg!(optimised)),
        from: Phase::Idle,
        only: &[],
        replies: 0,
        incidents: 1,
        limit: number("SEARCH_LIMIT").unwrap_or(8_000_000),
    }
}

fn number(name: &str) -> Option<usize> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {value:?}")))
}

fn searched(name: &str, setting: &Setting) {
    let began = Instant::now();
    let found = search(setting);
    let Setting { faults, incidents, replies, .. } = setting;
    println!(
        "{name}, {faults} faults, {incidents} of them the world's, {replies} replies: {found} ({:?})",
        began.elapsed()
    );
    assert!(found.violation.is_none() && !found.truncated, "{name}");
    assert!(found.ends.contains_key("Complete"), "the search never came to the end");
}

/// Every pair of crashes, sleeps, lost locks, lost messages and failing operations. How many of the two may be the
/// world's own (incidents, readings that fail) says `SEARCH_INCIDENTS`: each makes the search several times as long.
#[cfg_attr(not(optimised), ignore = "optimised profile only")]
#[test]
fn two_operators_and_two_faults_while_machines_write() {
    let incidents = number("SEARCH_INCIDENTS").map_or(0, |number| u32::try_from(number).unwrap());
    searched("continue", &Setting { faults: 2, incidents, ..setting() });
}

#[cfg_attr(not(optimised), ignore = "optimised profile only")]
#[test]
fn two_operators_and_two_faults_while_nobody_writes() {
    let incidents = number("SEARCH_INCIDENTS").map_or(0, |number| u32::try_from(number).unwrap());
    searched("quiesce", &Setting { quiesce: true, faults: 2, incidents, ..setting() });
}

/// What a person may answer to a plan that stopped between the two flips or after them, and to one that stops once more
/// on whatever way it took from there.
#[cfg_attr(not(optimised), ignore = "optimised profile only")]
#[test]
fn two_replies_and_two_faults_from_the_second_flip_on() {
    searched("replies", &asked_twice());
}

/// What asks a person at once, and what stops a plan on any way it may have taken then. Everything else that goes wrong
/// is in the other searches.
pub(crate) fn asked_twice() -> Setting {
    let only = &["ReadStorage unreadable", "renewal-lost", "lease-deleted"];
    Setting { faults: 2, incidents: 1, replies: 2, from: Phase::FlipNode2, only, ..setting() }
}

#[test]
fn two_operators_and_one_fault_while_machines_write() {
    searched("continue", &setting());
}

#[test]
fn two_operators_and_one_fault_while_nobody_writes() {
    searched("quiesce", &Setting { quiesce: true, ..setting() });
}
