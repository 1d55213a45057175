//! Waits end: the time for which I/O may stand still, whatever can or cannot be read meanwhile, and every stored wait
//! after the clock was set back between two starts.

use std::time::{Duration, SystemTime};

use executor_api::Timer as _;
use executor_host_fake::{CallKind, Fault, Incident, Rule};
use reconciler_core::maintenance::{Answer, HaltReason, IoPolicy, Phase, Recovery, Reply};
use reconciler_driver::maintenance::{MemoryPlanStore, PlanRecord};

use crate::bench::{Bench, HOUR, busy, quiesce, r1, w};

const MINUTE: Duration = Duration::from_mins(1);

fn at_most_a_minute() -> IoPolicy {
    IoPolicy::Quiesce { suspend_for: Some(MINUTE) }
}

#[test]
fn io_that_stands_still_for_too_long_is_told_although_storage_cannot_be_read() {
    for from in [8_u64, 10, 12, 14, 16] {
        let mut scenario = busy();
        let torn = Rule::new(CallKind::ReadStorage, Fault::Torn).host(&w(2)).always();
        scenario.faults.push(Rule { from: Duration::from_secs(from), ..torn });
        let mut bench = Bench::new(&scenario, at_most_a_minute());
        let mut driver = bench.start();
        let (mut halted, mut asked) = (None, None);
        let since = |at: SystemTime, until: SystemTime| at.duration_since(until).unwrap_or_default();
        bench.drive(&mut driver, HOUR, |driver, pass| {
            let state = driver.state();
            let Some(until) = state.io_suspended_until else { return };
            if matches!(state.recovery, Recovery::Halted(HaltReason::SuspensionExceeded)) {
                halted.get_or_insert_with(|| since(pass.at, until));
            }
            if state.recovery == Recovery::Escalated {
                asked.get_or_insert_with(|| since(pass.at, until));
            }
        });
        bench.check(driver.state());
        let soon = Duration::from_secs(5);
        assert!(halted.is_some_and(|late| late < soon), "torn from {from} s: {halted:?}\n{}", bench.told());
        assert!(
            asked.is_some_and(|late| late < MINUTE + soon),
            "torn from {from} s: {asked:?}\n{}",
            bench.told()
        );
        assert_eq!(driver.state().escalation.as_ref().unwrap().reason, HaltReason::SuspensionExceeded);
    }
}

#[test]
fn io_is_not_suspended_again_on_the_way_back_once_its_time_is_over_unless_a_person_replies() {
    let mut bench = Bench::new(&busy(), at_most_a_minute());
    let mut driver = bench.start();
    let (world, mut done) = (bench.world.clone(), false);
    bench.drive(&mut driver, HOUR, |driver, _| {
        if !done && driver.state().phase == Phase::FlipNode2 {
            done = true;
            world.befall(&Incident::Blocked { resource: r1(), blocked: true });
        }
    });
    bench.check(driver.state());
    let state = driver.state();
    assert_eq!(state.recovery, Recovery::Escalated, "{}", bench.told());
    assert_eq!(state.escalation.as_ref().unwrap().reason, HaltReason::SuspensionExceeded, "{}", bench.told());
    let suspended = |bench: &Bench| {
        let start = bench.world.start();
        let deeds = bench.world.deeds().into_iter().filter(|deed| deed.what.contains("suspend-io"));
        deeds.map(|deed| deed.at.duration_since(start).unwrap()).collect::<Vec<_>>()
    };
    let times = suspended(&bench);
    assert!(*times.last().unwrap() < times[0] + MINUTE, "{times:?}");
    // A person lets it stand still once more, for as long again.
    bench.world.befall(&Incident::Blocked { resource: r1(), blocked: false });
    let open = state.escalation.clone().unwrap();
    let reply = Reply { fingerprint: open.fingerprint, answer: Answer::RollBack, who: "ann".to_owned() };
    bench.timer.run(driver.respond(reply)).unwrap().unwrap();
    bench.drive(&mut driver, HOUR, |_, _| {});
    bench.check(driver.state());
    let again = suspended(&bench);
    let again = &again[times.len()..];
    assert!(again.last() < again.first().map(|first| *first + MINUTE).as_ref(), "{again:?}");
}

#[test]
fn every_suspension_ends_within_the_time_that_began_with_the_first() {
    let mut bench = Bench::new(&busy(), quiesce());
    bench.finish();
    let limits: Vec<_> =
        bench.world.deeds().into_iter().filter(|deed| deed.what.contains("suspend-io")).collect();
    assert!(limits.len() >= 2, "{limits:?}");
    assert!(limits[0].what.contains("for 600s") && !limits[1].what.contains("for 600s"), "{limits:?}");
}

/// What is stored as a clock shows it that was ahead by so much.
pub(crate) fn ahead(record: &PlanRecord, by: Duration) -> PlanRecord {
    fn shift(value: &mut serde_json::Value, by: u64) {
        match value {
            serde_json::Value::Object(map) => match map.get_mut("secs_since_epoch") {
                Some(secs) => *secs = (secs.as_u64().unwrap() + by).into(),
                None => map.values_mut().for_each(|value| shift(value, by)),
            },
            serde_json::Value::Array(values) => values.iter_mut().for_each(|value| shift(value, by)),
            _ => {}
        }
    }
    let mut state = serde_json::to_value(&record.state).unwrap();
    shift(&mut state, by.as_secs());
    PlanRecord { state: serde_json::from_value(state).unwrap(), ..record.clone() }
}

#[test]
fn after_the_clock_was_set_back_no_wait_is_longer_than_its_maximum() {
    for io in [IoPolicy::Continue, quiesce()] {
        for phase in &Phase::ALL[1..11] {
            let mut bench = Bench::new(&busy(), io.clone());
            let mut driver = bench.start();
            let there = driver.drive(|driver, _| driver.state().phase == *phase);
            bench.timer.run(there).unwrap().unwrap();
            drop(driver);
            let stored = bench.store.record().unwrap();
            bench.store = MemoryPlanStore::holding(ahead(&stored, 24 * HOUR));
            let began = bench.timer.now();
            let state = bench.finish();
            let took = bench.timer.now().duration_since(began).unwrap();
            assert_eq!(state.phase, Phase::Complete, "{io:?}, {phase}: {}\n{}", state.label(), bench.told());
            assert!(took < 10 * MINUTE, "{io:?}, {phase}: {took:?}");
        }
    }
}

#[test]
fn after_the_clock_was_set_back_a_halted_plan_still_dwells_and_its_tries_count() {
    let mut scenario = busy();
    scenario.faults.push(Rule::new(CallKind::SetBondMode, Fault::Fails).host(&w(2)).times(3));
    let mut bench = Bench::new(&scenario, IoPolicy::Continue);
    for _ in 0..20 {
        let mut driver = bench.start();
        let dwells = driver.drive(|driver, _| matches!(driver.state().recovery, Recovery::Dwell { .. }));
        bench.timer.run(dwells).unwrap().unwrap();
        let settled = driver.is_settled();
        drop(driver);
        if settled {
            break;
        }
        let stored = bench.store.record().unwrap();
        bench.store = MemoryPlanStore::holding(ahead(&stored, 24 * HOUR));
        // The next start is taken to the end of the dwell, and no further.
        let mut driver = bench.start();
        let began = bench.timer.now();
        let dwelt = driver.drive(|driver, _| !matches!(driver.state().recovery, Recovery::Dwell { .. }));
        bench.timer.run(dwelt).unwrap().unwrap();
        let dwelt = bench.timer.now().duration_since(began).unwrap();
        // A lease that is another's is waited for besides.
        assert!(dwelt >= Duration::from_secs(29) && dwelt < 2 * MINUTE, "{dwelt:?}");
    }
    let state = bench.store.record().unwrap().state;
    assert_eq!(state.recovery, Recovery::RevertedSafe, "{}", bench.told());
    assert!(state.retries == 2 && bench.deeds("balance-rr on w2") <= 3, "{}", bench.told());
    bench.check(&state);
}
