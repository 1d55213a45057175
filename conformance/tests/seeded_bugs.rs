//! Deliberate faults in decider, fold, application and around the driver, and which rule reports each first.
//! A bug that nothing reports is a hole in the simulator; a rule that reports none is not known to bite.
//!
//! The table is `seeded/table.txt`, and a reviewed golden; `--nocapture` prints it with the exact seed of each.

#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test: a panic is a failed test"
)]

#[path = "seeded/applying.rs"]
mod applying;
#[path = "seeded/decider.rs"]
mod decider;
#[path = "seeded/durable.rs"]
mod durable;
#[path = "seeded/folding.rs"]
mod folding;
#[path = "seeded/plant.rs"]
mod plant;

use std::fmt::Write as _;
use std::num::NonZeroUsize;

use conformance::simulate::{Options, RULES, explain};
use expect_test::expect_file;
use plant::Bug;

/// Schedules tried before a bug counts as missed.
const SCHEDULES: u64 = 10_000;

/// The first schedule that reports a bug, and the rule.
fn first_report(bug: &Bug) -> Option<(u64, &'static str)> {
    (1..=SCHEDULES).find_map(|seed| {
        // A fresh copy for each schedule, so that each can be played again alone.
        let options = Options { subject: (bug.plant)(), threads: NonZeroUsize::MIN, ..Options::default() };
        bug.play.seed(seed, &options).map(|violation| (seed, violation.rule))
    })
}

fn all() -> Vec<Bug> {
    let mut bugs = decider::bugs();
    bugs.extend(folding::bugs());
    bugs.extend(applying::bugs());
    bugs.extend(durable::bugs());
    bugs
}

/// How many seeds it took, in the order of magnitude: the exact number is chance, and changes with every draw.
fn within(seeds: u64) -> &'static str {
    match seeds {
        1 => "the first",
        2..=10 => "10",
        11..=100 => "100",
        101..=1000 => "1000",
        _ => "10000",
    }
}

#[test]
fn every_seeded_bug_is_reported_by_the_rule_it_breaks() {
    let bugs = all();
    assert!(bugs.len() >= 30, "{} bugs are too few", bugs.len());
    let next = std::sync::atomic::AtomicUsize::new(0);
    let table = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..Options::default().threads.get() {
            scope.spawn(|| {
                while let Some(bug) = bugs.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    let report = first_report(bug);
                    table.lock().unwrap().push((bug, report));
                }
            });
        }
    });
    let mut table = table.into_inner().unwrap();
    table.sort_by_key(|(bug, _)| bugs.iter().position(|other| other.name == bug.name));
    let mut wrong = Vec::new();
    let mut golden = format!("{:<56} {:<5} {:<10} within seeds\n", "bug", "rule", "found in");
    for (bug, report) in &table {
        let (schedules, rule) = match report {
            Some((seed, rule)) => (seed.to_string(), *rule),
            None => ("-".to_owned(), "nobody"),
        };
        println!("{:<56} {rule:<6} {schedules:>6}", bug.name);
        let (play, within) =
            (format!("{:?}", bug.play).to_lowercase(), report.map_or("-", |(seed, _)| within(seed)));
        let _ = writeln!(golden, "{:<56} {rule:<5} {play:<10} {within}", bug.name);
        if rule != bug.rule {
            wrong.push(format!("{}: reported by {rule}, not by {}", bug.name, bug.rule));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unproved: Vec<_> =
        RULES.iter().filter(|(rule, _)| !bugs.iter().any(|bug| bug.rule == *rule)).collect();
    // Nothing that stands around the driver can change its state behind its back: a patch does, see
    // `scripts/patched-bugs`.
    assert_eq!(
        unproved.iter().map(|(rule, _)| *rule).collect::<Vec<_>>(),
        ["S4"],
        "rules that report no bug"
    );
    expect_file!["seeded/table.txt"].assert_eq(&golden);
}

/// The bugs of `scripts/patched-bugs`, which plays them: none may be lost because the code around it changed.
#[test]
fn every_bug_that_only_a_patch_can_plant_can_still_be_planted() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let dir = root.join("conformance/tests/seeded/patches");
    let mut patches = 0;
    for patch in std::fs::read_dir(dir).unwrap() {
        let patch = patch.unwrap().path();
        let check = std::process::Command::new("git")
            .args(["apply", "--check"])
            .arg(&patch)
            .current_dir(root)
            .output()
            .unwrap();
        assert!(check.status.success(), "{}: {}", patch.display(), String::from_utf8_lossy(&check.stderr));
        patches += 1;
    }
    assert!(patches > 0, "there are none");
}

#[test]
fn a_folded_stale_result_is_told_in_a_short_story() {
    let bugs = all();
    let bug = bugs.iter().find(|bug| bug.name == "folds a stale result").unwrap();
    let (seed, _) = first_report(bug).expect("it is reported");
    let options = Options { subject: (bug.plant)(), ..Options::default() };
    let failure = explain(seed, &options).expect("it is reported again");
    println!("{}", failure.story.join("\n"));
    assert!(failure.story.len() < 15, "{} lines", failure.story.len());
}
