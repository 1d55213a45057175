//! Random troubles: whatever comes, the plan breaches nothing and loses nothing that was acknowledged.

use std::collections::BTreeMap;
use std::time::Duration;

use executor_host_fake::{CallKind, Scenario, TimedIncident, Troubles, Weather, WorldSpec};
use reconciler_core::maintenance::{IoPolicy, Phase, Recovery};

use crate::driver::{Drive, flip_plan};

/// Foul for operations, for the lock, or a little for everything: reads alone fail so often that a plan that meets
/// everything at once never gets far.
fn weather(seed: u64) -> Weather {
    let until = Some(Duration::from_mins(5));
    let (per_mille, only): (u32, fn(CallKind) -> bool) = match seed % 3 {
        0 => (15, CallKind::is_operation),
        1 => (25, CallKind::is_lock_write),
        _ => (1, |_| true),
    };
    let mut weather = Weather::everything(seed, per_mille, until);
    weather.chances.retain(|chance| only(chance.call));
    weather
}

fn storm(seed: u64, incidents: u64) -> Drive {
    let mut draw = Troubles::new(seed, &WorldSpec::pair());
    let mut scenario = Scenario::calm(WorldSpec::pair().writing_every(Duration::from_millis(500)));
    for _ in 0..incidents {
        let at = Duration::from_millis(draw.below(60_000));
        scenario.incidents.push(TimedIncident { at, what: draw.incident().unwrap() });
    }
    scenario.weather = Some(weather(seed));
    let io = match draw.below(2) {
        0 => IoPolicy::Continue,
        _ => IoPolicy::Quiesce { suspend_for: Some(Duration::from_mins(2)) },
    };
    let mut drive = Drive::new(&scenario, flip_plan(io));
    let crash = draw.below(200);
    let mut passes = 0;
    drive.drive(Duration::from_mins(40), |drive| {
        passes += 1;
        if passes == crash {
            drive.crash();
        }
    });
    drive
}

#[test]
fn in_foul_weather_nothing_forbidden_comes_about() {
    let mut ends = BTreeMap::new();
    for seed in 0..rounds(40) {
        let drive = storm(seed, seed % 4);
        let breaches = drive.world.breaches();
        assert!(breaches.is_empty(), "seed {seed}: {breaches:#?}\n{}", drive.told());
        assert!(drive.violations.is_empty(), "seed {seed}: {:?}\n{}", drive.violations, drive.told());
        let end = match (&drive.state.recovery, drive.state.phase) {
            (Recovery::Escalated, _) => "escalated",
            (Recovery::RevertedSafe, _) => "reverted",
            (_, Phase::Complete) => "complete",
            _ => "waiting",
        };
        *ends.entry(end).or_insert(0_u32) += 1;
    }
    assert!(ends.contains_key("complete") && ends.contains_key("escalated"), "{ends:?}");
}

/// So many seeds, or as many as `STORMS` says.
fn rounds(usual: u64) -> u64 {
    std::env::var("STORMS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}
