//! What a person may say to a frozen plan, and to one that runs.

use executor_api::host::{BondMode, Fingerprint};
use executor_host_fake::{CallKind, Fault, Incident, Rule};
use reconciler_core::maintenance::{Answer, IoPolicy, Person, Phase, Recovery, Reply, ReplyRefused};
use reconciler_driver::maintenance::{MaintenanceDriver, RespondError};

use crate::bench::{Bench, HOUR, busy, quiesce, r1, w};

/// The second flip fails, and nothing connects: a frozen plan.
fn frozen() -> (Bench, MaintenanceDriver) {
    let mut scenario = busy();
    scenario.faults.push(Rule::new(CallKind::SetBondMode, Fault::Fails).host(&w(2)).times(3));
    let mut bench = Bench::new(&scenario, IoPolicy::Continue);
    let mut driver = bench.start();
    let world = bench.world.clone();
    bench.drive(&mut driver, HOUR, |driver, _| {
        if driver.state().phase == Phase::FlipNode2 {
            world.befall(&Incident::Blocked { resource: r1(), blocked: true });
        }
    });
    assert_eq!(driver.state().recovery, Recovery::Escalated, "{}", bench.told());
    (bench, driver)
}

fn reply(driver: &MaintenanceDriver, answer: Answer) -> Reply {
    let fingerprint = driver.state().escalation.as_ref().unwrap().fingerprint.clone();
    Reply { fingerprint, answer, who: "ann".to_owned() }
}

#[test]
fn a_reply_quotes_the_question_is_recorded_and_ends_the_freeze() {
    let (bench, mut driver) = frozen();
    let mut other = reply(&driver, Answer::LookAgain);
    other.fingerprint = Fingerprint("another".to_owned());
    let refused = bench.timer.run(driver.respond(other)).unwrap().unwrap_err();
    assert!(matches!(refused, RespondError::Refused(ReplyRefused::OtherQuestion { .. })), "{refused}");
    bench.world.befall(&Incident::Blocked { resource: r1(), blocked: false });
    let answer = reply(&driver, Answer::LookAgain);
    // What moved since the question was asked voids the reply; the question is asked anew.
    let taken = bench.timer.run(driver.respond(answer)).unwrap();
    if taken.is_err() {
        bench.pass(&mut driver);
        let answer = reply(&driver, Answer::LookAgain);
        bench.timer.run(driver.respond(answer)).unwrap().unwrap();
    }
    let taken = driver.state().replies.last().unwrap().clone();
    assert_eq!((taken.answer, taken.by.who.as_str()), (Answer::LookAgain, "ann"));
    bench.drive(&mut driver, HOUR, |_, _| {});
    bench.check(driver.state());
    assert!(driver.is_settled(), "{}", bench.told());
}

#[test]
fn a_reply_is_void_once_the_world_has_moved() {
    let (bench, mut driver) = frozen();
    let answer = reply(&driver, Answer::LookAgain);
    bench.world.befall(&Incident::BondSet { host: w(1), mode: Some(BondMode::BalanceRr) });
    let refused = bench.timer.run(driver.respond(answer)).unwrap().unwrap_err();
    assert!(matches!(refused, RespondError::Refused(ReplyRefused::Moved { .. })), "{refused}");
    assert_eq!(driver.state().recovery, Recovery::Escalated);
}

#[test]
fn hand_over_gives_up_the_lock_and_nothing_else() {
    let (bench, mut driver) = frozen();
    let deeds = bench.world.deeds().len();
    let answer = reply(&driver, Answer::HandOver);
    bench.timer.run(driver.respond(answer)).unwrap().unwrap();
    bench.drive(&mut driver, HOUR, |_, _| {});
    assert!(driver.state().is_over(), "{}", bench.told());
    assert_eq!(bench.world.deeds().len(), deeds);
    let lock = bench.world.lock();
    assert!(lock.hold.is_none() && lock.lease.is_none());
}

#[test]
fn an_abort_in_any_phase_ends_where_the_plan_began_or_at_its_end() {
    for io in [IoPolicy::Continue, quiesce()] {
        for phase in Phase::ALL {
            let mut bench = Bench::new(&busy(), io.clone());
            let mut driver = bench.start();
            let reached = driver.drive(|driver, _| driver.state().phase >= phase);
            bench.timer.run(reached).unwrap().unwrap();
            let person = Person { who: "ann".to_owned(), at: driver.state().created_at };
            driver.abort(person).unwrap();
            bench.drive(&mut driver, HOUR, |_, _| {});
            bench.check(driver.state());
            let state = driver.state();
            let fine = state.phase == Phase::Complete || state.recovery == Recovery::RevertedSafe;
            assert!(fine, "aborted in {phase}: {}\n{}", state.label(), bench.told());
            assert_eq!(state.phase == Phase::Complete, phase >= Phase::RestoreMigration, "{phase}");
        }
    }
}
