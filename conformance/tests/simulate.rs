//! Seeded schedules of the shipped driver. A few hundred here; 100,000 in the optimised profile:
//! `cargo test --profile checked -p conformance --test simulate -- --nocapture`. `SIMULATE_SCHEDULES` says how
//! many, `SIMULATE_SEED` from which seed on, `SIMULATE_STORY=1` tells the first one whole.

use conformance::simulate::{Options, Subject, endure, hung, levels, run_many, taped, tell};

/// Batches smaller than this may miss a rare disturbance without proving anything.
const ENOUGH: u64 = 20_000;

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {value:?}")))
}

#[test]
fn every_schedule_keeps_the_invariants_and_converges() {
    let first = number("SIMULATE_SEED").unwrap_or(1);
    let count = number("SIMULATE_SCHEDULES").unwrap_or(if cfg!(optimised) { 100_000 } else { 300 });
    let options = Options::default();
    if number("SIMULATE_STORY").is_some() {
        let (plan, story, violation) = tell(first, &options);
        println!("{plan}\n{}\n{violation:?}", story.join("\n"));
        return;
    }
    let summary = run_many(first, count, &options);
    println!("{summary}");
    if let Some(failure) = &summary.failure {
        panic!("{failure}");
    }
    let missed = summary.never_happened();
    assert!(count < ENOUGH || missed.is_empty(), "never happened in {count} schedules: {missed:?}");
}

#[test]
fn with_a_third_of_all_calls_failing_for_ever_nodes_are_still_ready_for_most_of_the_time() {
    let (seeds, hours) = if cfg!(optimised) { (200, 24) } else { (6, 3) };
    let mut least = u32::MAX;
    for seed in 1..=seeds {
        let endured = endure(seed, 300, hours, &Options::default());
        assert_eq!(endured.violation, None, "seed {seed}");
        let worst = endured.ready_per_mille.iter().copied().min().unwrap_or_default();
        least = least.min(worst);
    }
    println!("in the worst hour of {seeds} clusters: {least} per mille ready");
}

#[test]
fn whichever_way_leads_to_a_declaration_the_world_ends_the_same() {
    let seeds = if cfg!(optimised) { 20_000 } else { 60 };
    let options = Options::default();
    for seed in 1..=seeds {
        assert_eq!(levels(seed, &options), None, "seed {seed}");
    }
    println!("{seeds} declarations, each reached in four ways");
}

#[test]
fn what_was_taped_is_decided_again_from_any_checkpoint() {
    let seeds = if cfg!(optimised) { 2_000 } else { 40 };
    let options = Options::default();
    let mut passes = 0;
    for seed in 1..=seeds {
        let (replayed, violation) = taped(seed, &options);
        assert_eq!(violation, None, "seed {seed}");
        passes += replayed;
    }
    println!("{passes} passes of {seeds} schedules decided again");
    assert!(passes > seeds * 10, "{passes}");
}

#[test]
fn with_every_executor_hung_all_is_sent_and_nothing_is_looked_at_in_vain() {
    let slots = if cfg!(optimised) { 10_000 } else { 500 };
    let seen = hung(slots, &Subject::default());
    println!("{slots} slots: {seen:?}");
    assert_eq!(seen.violation, None);
}
