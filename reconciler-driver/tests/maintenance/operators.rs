//! Two operators and one plan: whoever comes too late is refused, by the lock, by the store, and in the last place by
//! the agents. (H26)

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use executor_api::Timer as _;
use executor_api::host::{HostErrorKind, PlanUid};
use reconciler_core::maintenance::IoPolicy;
use reconciler_driver::maintenance::{MaintenanceDriver, MaintenanceError};

use crate::bench::{Bench, HOUR, busy, quiesce};
use crate::sleeper::{Sleep, Sleeper};

/// One operator falls asleep before its mutation number `after`, the other takes over, and the first wakes.
fn paused(after: u32, lasts: Duration, io: IoPolicy) -> (Bench, Sleep, Result<(), MaintenanceError>) {
    let mut bench = Bench::new(&busy(), io);
    let sleeps = Arc::new(Mutex::new(Sleep { after, lasts, ..Sleep::default() }));
    let mut start = bench.starting(Box::new(bench.store.clone()));
    Sleeper::sits(&mut start, bench.world.seat("op-1"), &bench.timer, &sleeps);
    let mut first = bench.begin(start).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let ended = {
        let mut first = pin!(first.drive(|_, _| false));
        // Until it sleeps.
        while sleeps.lock().unwrap().until.is_none() {
            if let Poll::Ready(ended) = first.as_mut().poll(&mut context) {
                return (bench, Sleep::default(), ended);
            }
            if sleeps.lock().unwrap().until.is_none() {
                bench.timer.advance_to(bench.timer.next().unwrap());
            }
        }
        // Asleep: only the other one runs.
        let until = sleeps.lock().unwrap().until.unwrap();
        let mut second: MaintenanceDriver = bench.start();
        let timer = bench.timer.clone();
        let driven = bench.timer.run(second.drive(|_, _| timer.now() >= until)).unwrap();
        driven.unwrap();
        bench.timer.advance_to(until);
        bench.timer.run(first).unwrap()
    };
    let sleep = std::mem::take(&mut *sleeps.lock().unwrap());
    (bench, sleep, ended)
}

#[test]
fn h26_an_operator_that_slept_past_its_lease_is_refused_at_the_agent_every_time() {
    let runs = std::env::var("RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(100_u32);
    let mut refused = 0;
    let mut seed = 7_u64;
    for _ in 0..runs {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let after = u32::try_from((seed >> 33) % 20).unwrap();
        let lasts = Duration::from_secs(75 + (seed >> 40) % 300);
        let io = if seed >> 63 == 0 { IoPolicy::Continue } else { quiesce() };
        let (bench, sleep, ended) = paused(after, lasts, io);
        let Some(woken) = sleep.woken else {
            panic!("never slept before mutation {after}: {}", bench.told())
        };
        assert!(
            matches!(woken, Err(HostErrorKind::StaleFence { .. })),
            "asleep before mutation {after} for {lasts:?}: {woken:?}\n{}",
            bench.told()
        );
        assert!(
            matches!(ended, Err(MaintenanceError::Store { .. })),
            "its record is another's now: {ended:?}"
        );
        let breaches = bench.world.breaches();
        assert!(breaches.is_empty() && bench.world.lost_writes().is_empty(), "{breaches:#?}");
        refused += 1;
    }
    println!("refused at the agent in {refused} of {runs} runs");
    assert_eq!(refused, runs);
}

#[test]
fn an_operator_that_slept_past_its_deadline_does_nothing_although_nobody_took_over() {
    for after in 0..20 {
        let mut bench = Bench::new(&busy(), IoPolicy::Continue);
        let lasts = bench.plan.pace.operation_timeout + Duration::from_secs(1);
        let sleeps = Arc::new(Mutex::new(Sleep { after, lasts, ..Sleep::default() }));
        let mut start = bench.starting(Box::new(bench.store.clone()));
        Sleeper::sits(&mut start, bench.world.seat("op-1"), &bench.timer, &sleeps);
        let mut driver = bench.begin(start).unwrap();
        let mut deeds = None;
        {
            let mut drive = pin!(driver.drive(|_, _| sleeps.lock().unwrap().woken.is_some()));
            let mut context = Context::from_waker(Waker::noop());
            while drive.as_mut().poll(&mut context).is_pending() {
                let until = sleeps.lock().unwrap().until;
                if let (Some(until), None) = (until, &deeds) {
                    deeds = Some(bench.world.deeds().len());
                    bench.timer.advance_to(until);
                } else {
                    bench.timer.advance_to(bench.timer.next().unwrap());
                }
            }
        }
        let woken = sleeps.lock().unwrap().woken.clone();
        assert_eq!(woken, Some(Err(HostErrorKind::Refused)), "asleep before mutation {after}");
        assert_eq!(
            Some(bench.world.deeds().len()),
            deeds,
            "asleep before mutation {after}: {}",
            bench.told()
        );
        bench.drive(&mut driver, HOUR, |_, _| {});
        bench.check(driver.state());
    }
}

#[test]
fn h26_a_lease_that_is_renewed_is_never_taken_and_a_dead_ones_is_taken_after_its_own_time() {
    let mut bench = Bench::new(&busy(), IoPolicy::Continue);
    let mut first = bench.start();
    let held = first.drive(|driver, _| driver.state().hold_placed);
    bench.timer.run(held).unwrap().unwrap();
    let fence = bench.world.lock().lease.unwrap().fence;
    let died = bench.timer.now();
    drop(first);
    let mut second = bench.start();
    let world = bench.world.clone();
    let taken = second.drive(|_, _| world.lock().lease.is_some_and(|lease| lease.fence != fence));
    bench.timer.run(taken).unwrap().unwrap();
    let waited = bench.timer.now().duration_since(died).unwrap();
    let ttl = bench.plan.pace.lease_ttl;
    assert!(waited >= ttl && waited < ttl + Duration::from_secs(5), "{waited:?}");
}

#[test]
fn a_second_plan_waits_while_the_cluster_is_held_for_the_first() {
    let mut bench = Bench::new(&busy(), IoPolicy::Continue);
    let mut first = bench.start();
    let held = first.drive(|driver, _| driver.state().hold_placed);
    bench.timer.run(held).unwrap().unwrap();
    // The first operator is gone; its lease runs out, its hold does not.
    drop(first);
    let deeds = bench.world.deeds().len();
    let mut other = bench.plan.clone();
    other.uid = PlanUid::new("plan-2").unwrap();
    let start = bench.starting(Box::<reconciler_driver::maintenance::MemoryPlanStore>::default());
    let approval = reconciler_core::maintenance::Person { who: "tester".to_owned(), at: bench.timer.now() };
    let mut second = MaintenanceDriver::file(start, other, Some(approval)).unwrap();
    bench.drive(&mut second, HOUR, |_, _| {});
    assert!(!second.state().hold_placed && bench.world.deeds().len() == deeds);
    assert_eq!(bench.world.lock().hold.unwrap().plan, bench.plan.uid);
}
