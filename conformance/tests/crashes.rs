//! A crash at every store write of seeded schedules, in each position around it, and everything that may befall the
//! store there. A few schedules here; enough for 10,000 crash points in the optimised profile:
//! `cargo test --profile checked -p conformance --test crashes -- --nocapture`. `SIMULATE_BASES` says how many base
//! schedules, `SIMULATE_SEED` from which seed on.

use conformance::simulate::{Options, sweep};

/// What an optimised run must have come through.
const CRASH_POINTS: u64 = 10_000;
/// Base schedules whose writes have so many crash points, and some more.
const BASES: u64 = 150;

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {value:?}")))
}

#[test]
fn a_crash_at_any_store_write_harms_nothing_and_the_cluster_converges() {
    let first = number("SIMULATE_SEED").unwrap_or(1);
    let chosen = number("SIMULATE_BASES");
    let bases = chosen.unwrap_or(if cfg!(optimised) { BASES } else { 2 });
    let swept = sweep(first, bases, &Options::default());
    println!("{swept}");
    if let Some(failure) = swept.failure() {
        panic!("{failure}");
    }
    if cfg!(optimised) && chosen.is_none() {
        assert!(swept.crash_points >= CRASH_POINTS, "only {} crash points", swept.crash_points);
        let missed = swept.never_happened();
        assert!(missed.is_empty(), "never happened: {missed:?}");
    }
}
