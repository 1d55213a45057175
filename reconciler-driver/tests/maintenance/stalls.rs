//! Storing the record and renewing the lease may take any time. What was read before is then no ground to act on:
//! nothing leaves, and the world is looked at again.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use executor_api::Timer as _;
use executor_host_fake::{CallKind, Fault, HostWorld, Incident, Rule};
use reconciler_core::maintenance::{IoPolicy, Phase, PlanState, Recovery};
use reconciler_driver::VirtualTimer;
use reconciler_driver::maintenance::{LogLine, MemoryPlanStore, PlanRecord, PlanStore, PlanStoreError};

use crate::bench::{Bench, HOUR, busy, quiesce, w};

/// A disk that stalls at one write, in which something befalls the world.
#[derive(Debug)]
struct Stalls {
    store: MemoryPlanStore,
    timer: VirtualTimer,
    world: HostWorld,
    /// Its write begins with these words; the first `skips` of that kind go through.
    at: &'static str,
    skips: usize,
    lasts: Duration,
    befalls: Vec<Incident>,
    stalled: Arc<Mutex<Option<(String, SystemTime)>>>,
}

impl PlanStore for Stalls {
    fn load(&mut self) -> Result<Option<PlanRecord>, PlanStoreError> {
        self.store.load()
    }

    fn commit(&mut self, record: &PlanRecord, line: &LogLine) -> Result<(), PlanStoreError> {
        self.store.commit(record, line)?;
        let mut stalled = self.stalled.lock().unwrap();
        if stalled.is_some() || !line.what.starts_with(self.at) {
            return Ok(());
        }
        if let Some(fewer) = self.skips.checked_sub(1) {
            self.skips = fewer;
            return Ok(());
        }
        *stalled = Some((line.what.clone(), self.timer.now()));
        for incident in &self.befalls {
            self.world.befall(incident);
        }
        self.timer.advance_to(self.timer.now() + self.lasts);
        Ok(())
    }
}

/// Drives through one stall. Answers with the bench, how it ended, and the write that stalled.
fn stalled(
    io: IoPolicy,
    (at, skips): (&'static str, usize),
    lasts: Duration,
    befalls: Vec<Incident>,
) -> (Bench, PlanState, Option<(String, SystemTime)>) {
    let mut bench = Bench::new(&busy(), io);
    let stalled = Arc::default();
    let store = Stalls {
        store: bench.store.clone(),
        timer: bench.timer.clone(),
        world: bench.world.clone(),
        at,
        skips,
        lasts,
        befalls,
        stalled: Arc::clone(&stalled),
    };
    let mut driver = bench.start_on(Box::new(store));
    bench.drive(&mut driver, HOUR, |_, _| {});
    bench.check(driver.state());
    let state = driver.state().clone();
    let write = stalled.lock().unwrap().take();
    (bench, state, write)
}

#[test]
fn a_flip_whose_record_took_minutes_to_store_does_not_leave_on_what_was_read_before() {
    let returns = || [w(1), w(2)].map(|host| Incident::PodReturns { host }).to_vec();
    let (bench, state, _) =
        stalled(IoPolicy::Continue, ("send w1: set bond0", 0), Duration::from_mins(10), returns());
    let told = bench.told();
    assert!(told.contains("not sent: "), "{told}");
    // Storage has reconnected meanwhile: the next look shows it.
    assert!(state.retries > 0 || state.recovery != Recovery::Forward, "{told}");
}

#[test]
fn whatever_write_stalls_nothing_leaves_on_an_old_look_and_the_plan_goes_on() {
    for io in [IoPolicy::Continue, quiesce()] {
        for skips in 0.. {
            // Longer than evidence counts, shorter than the lease and every deadline.
            let lasts = Duration::from_secs(15);
            let (bench, state, write) = stalled(io.clone(), ("send ", skips), lasts, Vec::new());
            let Some((write, at)) = write else { break };
            let told = bench.told();
            assert_eq!(state.phase, Phase::Complete, "{write}: {told}");
            assert!(told.contains("not sent: "), "{write}: {told}");
            // Nothing begins right after the stall: it is looked at first.
            let woken = at + lasts;
            let first = bench.world.deeds().into_iter().find(|deed| deed.at >= at);
            assert!(first.is_none_or(|deed| deed.at > woken), "{write}: {told}");
        }
    }
}

#[test]
fn a_stall_past_its_own_deadline_sends_nothing_either_however_long_evidence_counts() {
    let mut bench = Bench::new(&busy(), IoPolicy::Continue);
    bench.plan.pace.evidence_max_age = HOUR;
    let stalled = Arc::default();
    let store = Stalls {
        store: bench.store.clone(),
        timer: bench.timer.clone(),
        world: bench.world.clone(),
        at: "send w1: drain",
        skips: 0,
        lasts: Duration::from_mins(3),
        befalls: Vec::new(),
        stalled: Arc::clone(&stalled),
    };
    let mut driver = bench.start_on(Box::new(store));
    bench.drive(&mut driver, HOUR, |_, _| {});
    bench.check(driver.state());
    let told = bench.told();
    let (_, at) = stalled.lock().unwrap().take().unwrap();
    let drained = bench.world.deeds().into_iter().find(|deed| deed.what.contains("drain")).unwrap();
    assert!(drained.at > at + Duration::from_mins(3), "{told}");
    assert!(told.contains("not sent: its deadline has passed") || told.contains("not renewed"), "{told}");
}

#[test]
fn a_renewal_that_takes_longer_than_evidence_counts_lets_nothing_out() {
    let mut scenario = busy();
    // One call to the lock takes 5 ms: this one a little under a third of the lease.
    scenario.faults.push(Rule::new(CallKind::Renew, Fault::Slow { times: 2_400 }).times(1));
    let mut bench = Bench::new(&scenario, IoPolicy::Continue);
    let state = bench.finish();
    let told = bench.told();
    assert_eq!(state.phase, Phase::Complete, "{told}");
    assert!(told.contains("not sent: the last look was 12 s ago"), "{told}");
}
