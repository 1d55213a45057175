//! The process ends at every step there is, and another takes over what was stored: on the happy path under both
//! policies, and on three ways of recovery.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use executor_host_fake::{
    CallKind, Fault, Incident, Rule, Scenario, StorageManner, TimedIncident, WorldSpec,
};
use reconciler_core::maintenance::{IoPolicy, Phase, PlanState, Recovery};
use reconciler_driver::maintenance::{
    LogLine, MaintenanceError, MemoryPlanStore, PlanRecord, PlanStore, PlanStoreError,
};

use crate::bench::{Bench, quiesce, r1, w};

/// Machines write, but not so often that the world is all that runs here.
fn busy() -> Scenario {
    Scenario::calm(WorldSpec::pair().writing_every(Duration::from_secs(1)))
}

/// A store whose process ends at one write.
#[derive(Debug)]
struct Ends {
    store: MemoryPlanStore,
    at: u64,
    durable: bool,
    last: Arc<Mutex<String>>,
}

impl PlanStore for Ends {
    fn load(&mut self) -> Result<Option<PlanRecord>, PlanStoreError> {
        self.store.load()
    }

    fn commit(&mut self, record: &PlanRecord, line: &LogLine) -> Result<(), PlanStoreError> {
        let ends = record.seq == self.at;
        if ends {
            self.last.lock().unwrap().clone_from(&line.what);
        }
        if !ends || self.durable {
            self.store.commit(record, line)?;
        }
        if ends { Err(PlanStoreError::Other("the process ends here".to_owned())) } else { Ok(()) }
    }
}

/// Drives with an end at that write, and says what it was. `None` once there are not so many writes.
fn crash_at_write(
    scenario: &Scenario,
    io: &IoPolicy,
    at: u64,
    durable: bool,
) -> Option<(Bench, PlanState, String)> {
    let mut bench = Bench::new(scenario, io.clone());
    let last = Arc::new(Mutex::new(String::new()));
    let start =
        bench.starting(Box::new(Ends { store: bench.store.clone(), at, durable, last: Arc::clone(&last) }));
    match bench.begin(start) {
        Ok(mut first) => match bench.timer.run(first.drive(|_, _| false)).unwrap() {
            Ok(()) => return None,
            Err(error) => assert!(matches!(error, MaintenanceError::Store { .. }), "{error}"),
        },
        Err(error) => assert!(matches!(error, MaintenanceError::Store { .. }), "{error}"),
    }
    let state = bench.finish();
    let last = last.lock().unwrap().clone();
    Some((bench, state, last))
}

/// Every write of a path: lost with what was done before it, or kept with what was to be done after it. Where neither
/// was an operation, one of the two says it all.
fn crash_at_every_write(name: &str, scenario: &Scenario, io: &IoPolicy) -> BTreeMap<String, u32> {
    let mut ends = BTreeMap::new();
    let mut writes = 0;
    while let Some((bench, state, what)) = crash_at_write(scenario, io, writes + 1, false) {
        writes += 1;
        let mut runs = vec![(bench, state)];
        if what.starts_with("send") {
            let kept = crash_at_write(scenario, io, writes, true);
            runs.extend(kept.map(|(bench, state, _)| (bench, state)));
        }
        for (bench, state) in runs {
            assert!(is_settled(&state), "{name}, write {writes}: {}\n{}", state.label(), bench.told());
            *ends.entry(state.label()).or_insert(0) += 1;
        }
    }
    println!("{name}: {writes} writes: {ends:?}");
    ends
}

/// Every crash ended like this. A plan that a crash would leave to a person is none that survives one.
fn only(ends: &BTreeMap<String, u32>, end: &str) {
    assert!(!ends.is_empty() && ends.keys().all(|label| label.starts_with(end)), "{ends:?}");
}

fn is_settled(state: &PlanState) -> bool {
    state.is_over() || state.recovery == Recovery::Escalated
}

#[test]
fn the_happy_path_survives_an_end_at_every_write() {
    for (name, io) in [("continue", IoPolicy::Continue), ("quiesce", quiesce())] {
        let ends = crash_at_every_write(name, &busy(), &io);
        only(&ends, "Complete");
    }
}

#[test]
fn a_retry_that_succeeds_survives_an_end_at_every_write() {
    let mut scenario = busy();
    scenario.faults.push(Rule::new(CallKind::SetBondMode, Fault::Fails).host(&w(1)));
    let ends = crash_at_every_write("retry", &scenario, &IoPolicy::Continue);
    only(&ends, "Resumed in Complete");
}

#[test]
fn a_rollback_survives_an_end_at_every_write() {
    let mut scenario = busy();
    scenario.faults.push(Rule::new(CallKind::SetBondMode, Fault::Fails).host(&w(2)).times(3));
    let ends = crash_at_every_write("rollback", &scenario, &IoPolicy::Continue);
    only(&ends, "RevertedSafe");
}

#[test]
fn an_escalation_survives_an_end_at_every_write_and_stays_one() {
    let mut scenario = busy();
    scenario.world.storage = StorageManner { one_sided_split_brain: true, ..StorageManner::default() };
    let what = Incident::Diverges { resource: r1(), host: w(2), writes: 1 };
    scenario.incidents.push(TimedIncident { at: Duration::from_secs(12), what });
    let ends = crash_at_every_write("escalation", &scenario, &IoPolicy::Continue);
    // Where the next process takes up only what the split brain found whole, there is nothing to escalate.
    let escalated: u32 =
        ends.iter().filter(|(end, _)| end.starts_with("Escalated")).map(|(_, times)| times).sum();
    assert!(escalated >= 20, "{ends:?}");
    assert!(ends.keys().all(|end| end == "Complete" || end.starts_with("Escalated")), "{ends:?}");
}

/// Ends the process after so many moves of the clock: in the middle of a reading, a renewal or an operation.
fn crash_between(io: &IoPolicy, moves: usize) -> Option<(Bench, PlanState)> {
    let mut bench = Bench::new(&busy(), io.clone());
    let mut first = bench.start();
    {
        let mut driven = pin!(first.drive(|_, _| false));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..moves {
            if let Poll::Ready(_over) = driven.as_mut().poll(&mut context) {
                return None;
            }
            bench.timer.advance_to(bench.timer.next().unwrap());
        }
    }
    drop(first);
    let state = bench.finish();
    Some((bench, state))
}

#[test]
fn the_happy_path_survives_an_end_at_any_wait() {
    let stride = std::env::var("STRIDE").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    for io in [IoPolicy::Continue, quiesce()] {
        let mut ends = BTreeMap::new();
        let mut moves = 1;
        while let Some((bench, state)) = crash_between(&io, moves) {
            assert!(is_settled(&state), "move {moves}: {}\n{}", state.label(), bench.told());
            *ends.entry(state.label()).or_insert(0_u32) += 1;
            moves += stride;
        }
        println!("{moves} moves of the clock, one end in {stride}: {ends:?}");
        only(&ends, "Complete");
    }
}

#[test]
fn tries_are_counted_across_restarts() {
    let mut scenario = busy();
    scenario.faults.push(Rule::new(CallKind::SetBondMode, Fault::Fails).host(&w(2)).times(3));
    let mut bench = Bench::new(&scenario, IoPolicy::Continue);
    // Ends at every halt, and is taken up each time.
    for _ in 0..20 {
        let mut driver = bench.start();
        let end = driver.drive(|driver, _| matches!(driver.state().recovery, Recovery::Halted(_)));
        bench.timer.run(end).unwrap().unwrap();
        if driver.is_settled() {
            break;
        }
    }
    let state = bench.store.record().unwrap().state;
    assert_eq!(state.recovery, Recovery::RevertedSafe, "{}", bench.told());
    assert!(state.retries <= 2 && bench.deeds("balance-rr on w2") <= 3, "{}", bench.told());
    bench.check(&state);
    assert_ne!(state.phase, Phase::Complete);
}
