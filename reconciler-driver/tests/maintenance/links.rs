//! Links that come and go, and bonds that lose a member: noise is waited out, what goes on is not, and no bond is
//! ever turned beside another that is not whole.

use std::time::Duration;

use executor_api::Timer as _;
use executor_host_fake::{HostWorld, Incident};
use reconciler_core::maintenance::{Answer, IoPolicy, Phase, PlanState, Recovery, Reply};
use reconciler_driver::maintenance::MaintenanceDriver;

use crate::bench::{Bench, HOUR, busy, member, quiesce, w};

/// A link of the second host fails when a phase begins, so many times with a pause between; each failure is short.
fn flapping(phase: Phase, interface: &str, failures: u32, pause: Duration) -> (Bench, MaintenanceDriver) {
    let mut bench = Bench::new(&busy(), IoPolicy::Continue);
    let mut driver = bench.start();
    let (world, timer, interface) = (bench.world.clone(), bench.timer.clone(), member(interface));
    let (mut left, mut next, mut down) = (failures, None, false);
    bench.drive(&mut driver, HOUR, |driver, _| {
        let begins = next.is_none() && driver.state().phase == phase;
        if !(begins || next.is_some_and(|at| timer.now() >= at)) || (left == 0 && !down) {
            return;
        }
        let (host, interface) = (w(2), interface.clone());
        let wait = if down {
            world.befall(&Incident::CarrierBack { host, interface });
            pause
        } else {
            world.befall(&Incident::CarrierLost { host, interface });
            left -= 1;
            Duration::from_secs(2)
        };
        down = !down;
        next = Some(timer.now() + wait);
    });
    bench.check(driver.state());
    (bench, driver)
}

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn a_link_that_fails_once_for_two_seconds_costs_one_try_in_any_phase() {
    for phase in [
        Phase::SuspendMigration,
        Phase::DisconnectDrbd,
        Phase::DrainSatellite,
        Phase::FlipNode1,
        Phase::FlipNode2,
        Phase::ResumeDrbd,
        Phase::RestoreMigration,
        Phase::ReleaseLock,
    ] {
        // A host that carries over its first member and one that carries over its second do not hear each other: the
        // first member of one host is left alone while that is how replication runs.
        let members = if phase < Phase::DrainSatellite { &["s1"][..] } else { &["s0", "s1"] };
        for interface in members {
            let (bench, driver) = flapping(phase, interface, 1, MINUTE);
            let state = driver.state();
            assert_eq!(
                state.phase,
                Phase::Complete,
                "{interface} in {phase}: {}\n{}",
                state.label(),
                bench.told()
            );
            assert!(state.retries <= 1, "{interface} in {phase}: {} tries", state.retries);
        }
    }
}

#[test]
fn a_link_that_goes_on_failing_spends_the_tries_and_ends_the_plan() {
    for pause in [Duration::from_secs(5), Duration::from_secs(20)] {
        for phase in [Phase::FlipNode1, Phase::RestoreMigration] {
            let (bench, driver) = flapping(phase, "s1", 1000, pause);
            let state = driver.state();
            assert_eq!(state.recovery, Recovery::Escalated, "every {pause:?} in {phase}\n{}", bench.told());
            let noted =
                bench.store.log().iter().filter(|line| line.what.contains("links have settled")).count();
            assert_eq!(noted, 0, "{}", bench.told());
        }
    }
}

#[test]
fn a_reply_after_a_link_has_settled_is_enough() {
    let (bench, mut driver) = flapping(Phase::RestoreMigration, "s1", 4, Duration::from_secs(25));
    let open = driver.state().escalation.clone().expect("every try was spent");
    let reply = Reply { fingerprint: open.fingerprint, answer: Answer::RetryStep, who: "ann".to_owned() };
    bench.timer.run(driver.respond(reply)).unwrap().unwrap();
    bench.drive(&mut driver, HOUR, |_, _| {});
    assert_eq!(driver.state().phase, Phase::Complete, "{}", bench.told());
    bench.check(driver.state());
}

/// A member leaves a bond when a phase begins.
fn member_leaves(phase: Phase, host: u8, io: IoPolicy) -> (Bench, PlanState) {
    let mut bench = Bench::new(&busy(), io);
    let mut driver = bench.start();
    let (world, mut done): (HostWorld, bool) = (bench.world.clone(), false);
    bench.drive(&mut driver, HOUR, |driver, _| {
        if !done && driver.state().phase == phase {
            done = true;
            world.befall(&Incident::MemberLeaves { host: w(host), interface: member("s1") });
        }
    });
    bench.check(driver.state());
    let state = driver.state().clone();
    (bench, state)
}

#[test]
fn a_bond_that_lost_a_member_is_brought_back_before_the_other_one() {
    for io in [IoPolicy::Continue, quiesce()] {
        for host in [1, 2] {
            let (bench, state) = member_leaves(Phase::ResumeDrbd, host, io.clone());
            assert_eq!(state.recovery, Recovery::RevertedSafe, "w{host}, {io:?}\n{}", bench.told());
            let deeds = bench.world.deeds();
            let back: Vec<_> = deeds.iter().filter(|deed| deed.what.contains("active-backup")).collect();
            assert!(back[0].what.ends_with(&format!("on w{host}")), "{back:?}");
            assert_eq!(back.len(), 2, "{back:?}");
        }
    }
}

/// Where the bond that is not whole is none of those to be turned back, nobody turns the other beside it.
#[test]
fn a_bond_is_not_turned_back_beside_one_that_lost_a_member_by_itself() {
    for io in [IoPolicy::Continue, quiesce()] {
        let (bench, state) = member_leaves(Phase::FlipNode2, 2, io);
        assert_eq!(state.recovery, Recovery::Escalated, "{}", bench.told());
        assert_eq!(bench.deeds("active-backup"), 0, "{}", bench.told());
    }
}

#[test]
fn a_member_that_leaves_in_any_phase_breaches_nothing() {
    for phase in Phase::ALL {
        for host in [1, 2] {
            for io in [IoPolicy::Continue, quiesce()] {
                member_leaves(phase, host, io);
            }
        }
    }
}
