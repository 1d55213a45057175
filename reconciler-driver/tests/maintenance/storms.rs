//! Random troubles, random ends of the process, every kind of fault: whatever comes, the shipped driver brings about
//! nothing forbidden and loses nothing that was acknowledged.

use std::collections::BTreeMap;
use std::time::Duration;

use executor_host_fake::{Incident, MigrationFate, Scenario, TimedIncident, Weather, WorldSpec};
use reconciler_core::maintenance::{IoPolicy, Phase, Recovery};

use crate::bench::{Bench, member, v, w};

/// Draws below a bound, from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn incident(draw: &mut Draw) -> Incident {
    let host = w(if draw.below(2) == 0 { 1 } else { 2 });
    let resource = executor_api::host::ResourceName::new(format!("r{}", 1 + draw.below(2))).unwrap();
    let vm = v(if draw.below(2) == 0 { 1 } else { 2 });
    let interface = member(if draw.below(2) == 0 { "s0" } else { "s1" });
    match draw.below(20) {
        0 => Incident::CarrierLost { host, interface },
        1 => Incident::CarrierBack { host, interface },
        2 => Incident::WireLoses { wire: 0, every: 4 },
        3 => Incident::WireLoses { wire: 0, every: 0 },
        4 => Incident::MemberRefuses { host, interface, times: 1 },
        5 => Incident::BondSet { host, mode: None },
        6 => Incident::HostReboots { host },
        7 => Incident::AgentRestarts { host },
        8 => Incident::PodReturns { host },
        9 => Incident::StandAlone { resource, host },
        10 => Incident::Reconnects { resource, host },
        11 => Incident::BitsAppear { resource, host, blocks: 2 },
        12 => Incident::Diverges { resource, host, writes: 1 },
        13 => Incident::ResyncHeld { resource, host, held: draw.below(2) == 0 },
        14 => Incident::Migrates { vm, to: host, fate: MigrationFate::WinsTheRace, past_the_shield: false },
        15 => Incident::EvacuationMark { vm, marked: draw.below(2) == 0 },
        16 => Incident::Evicted { vm },
        17 => Incident::Restarts { vm, to: None },
        18 => Incident::LeaseDeleted,
        _ => Incident::RoutesLost { host },
    }
}

/// One seed's troubles, with up to two ends of the process at random moments.
fn storm(seed: u64) -> (Bench, &'static str) {
    let mut draw = Draw(seed);
    let mut scenario = Scenario::calm(WorldSpec::pair().writing_every(Duration::from_secs(1)));
    for _ in 0..seed % 4 {
        let at = Duration::from_millis(draw.below(60_000));
        scenario.incidents.push(TimedIncident { at, what: incident(&mut draw) });
    }
    scenario.weather = Some(Weather::everything(seed, 2, Some(Duration::from_mins(5))));
    let io = match draw.below(2) {
        0 => IoPolicy::Continue,
        _ => IoPolicy::Quiesce { suspend_for: Some(Duration::from_mins(2)) },
    };
    let mut bench = Bench::new(&scenario, io);
    for _ in 0..draw.below(3) {
        let mut driver = bench.start();
        let time = Duration::from_millis(draw.below(90_000));
        let mut passes = draw.below(120);
        bench.drive_while(&mut driver, time, || {
            passes = passes.saturating_sub(1);
            passes > 0
        });
    }
    let mut driver = bench.start();
    bench.drive(&mut driver, Duration::from_mins(40), |_, _| {});
    bench.check(driver.state());
    let end = match (&driver.state().recovery, driver.state().phase) {
        (Recovery::Escalated, _) => "escalated",
        (Recovery::RevertedSafe, _) => "reverted",
        (_, Phase::Complete) => "complete",
        _ => "waiting",
    };
    (bench, end)
}

#[test]
fn in_foul_weather_nothing_forbidden_comes_about() {
    let seeds = std::env::var("STORMS").ok().and_then(|text| text.parse().ok()).unwrap_or(40_u64);
    let first = std::env::var("FIRST").ok().and_then(|text| text.parse().ok()).unwrap_or(0_u64);
    let (mut ends, mut fired) = (BTreeMap::new(), BTreeMap::new());
    for seed in first..first + seeds {
        let (bench, end) = storm(seed);
        *ends.entry(end).or_insert(0_u32) += 1;
        for (fault, times) in bench.world.fired() {
            *fired.entry(fault).or_insert(0) += times;
        }
    }
    println!("{seeds} seeds from {first}: {ends:?}; {} kinds of fault fired: {fired:?}", fired.len());
    assert!(ends.contains_key("complete") && ends.contains_key("escalated"), "{ends:?}");
    assert!(fired.len() >= 10, "{fired:?}");
}
