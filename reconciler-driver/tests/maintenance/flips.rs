//! Plans that go well, and plans that may not begin.

use executor_api::host::{BondMode, EvictionSetting, EvictionStrategy};
use reconciler_core::maintenance::{IoPolicy, Phase, Recovery};
use reconciler_driver::maintenance::{MaintenanceDriver, MaintenanceError, MemoryPlanStore};

use crate::bench::{Bench, HOUR, busy, quiesce, v};

#[test]
fn a_flip_completes_under_either_policy_while_machines_write_on_both_hosts() {
    for io in [quiesce(), IoPolicy::Continue] {
        let mut bench = Bench::new(&busy(), io);
        let state = bench.finish();
        assert_eq!((state.phase, &state.recovery), (Phase::Complete, &Recovery::Forward), "{}", bench.told());
        assert_eq!(bench.modes(), [BondMode::BalanceRr, BondMode::BalanceRr]);
        assert!(bench.world.is_in_sync() && bench.world.acknowledged() > 50);
        let machines = bench.world.vms().vms;
        assert_eq!(machines[&v(1)].declared, EvictionSetting::Set(EvictionStrategy::LiveMigrate));
        assert_eq!(machines[&v(2)].declared, EvictionSetting::Unset);
        assert_eq!(bench.world.all_breaches(), []);
        assert!(bench.world.lock().lease.is_none());
        let before = bench.world.deeds().len();
        let mut again = bench.start();
        bench.drive(&mut again, HOUR, |_, _| {});
        assert_eq!(bench.world.deeds().len(), before, "a plan that is over stays over");
    }
}

#[test]
fn a_plan_that_nobody_approved_on_the_spot_touches_nothing() {
    let mut bench = Bench::new(&busy(), IoPolicy::Continue);
    let start = bench.starting(Box::new(MemoryPlanStore::new()));
    let mut driver = MaintenanceDriver::file(start, bench.plan.clone(), None).unwrap();
    bench.drive(&mut driver, HOUR / 6, |_, _| {});
    assert_eq!(driver.state().phase, Phase::Idle);
    bench.plan.approved = false;
    let mut driver = bench.start();
    bench.drive(&mut driver, HOUR / 6, |_, _| {});
    assert!(bench.world.deeds().is_empty() && bench.world.lock().hold.is_none());
}

#[test]
fn a_plan_that_makes_no_sense_is_not_filed_and_a_store_takes_one_plan() {
    let mut bench = Bench::new(&busy(), IoPolicy::Continue);
    let mut senseless = bench.plan.clone();
    senseless.to = BondMode::ActiveBackup;
    let start = bench.starting(Box::new(bench.store.clone()));
    let refused = MaintenanceDriver::file(start, senseless, None).unwrap_err();
    assert_eq!(refused.to_string(), "plan plan-1 is refused: /to: the bond has that mode already");
    let _first = bench.start();
    let start = bench.starting(Box::new(bench.store.clone()));
    let refused = MaintenanceDriver::file(start, bench.plan.clone(), None).unwrap_err();
    assert!(matches!(refused, MaintenanceError::AlreadyFiled { .. }), "{refused}");
}

#[test]
fn a_look_shows_every_gate_and_the_next_step_and_changes_nothing() {
    let mut bench = Bench::new(&busy(), IoPolicy::Continue);
    let mut driver = bench.start();
    bench.timer.run(driver.look()).unwrap();
    let survey = driver.survey();
    assert!(survey.iter().any(|(gate, verdict)| *gate == "hosts ready" && verdict.passed()), "{survey:#?}");
    assert!(survey.iter().any(|(_, verdict)| !verdict.passed()), "the lock is not held yet");
    assert!(driver.next_step().to_string().starts_with("enter PreconditionsCheck"), "{}", driver.next_step());
    assert_eq!((driver.state().phase, bench.world.deeds().len()), (Phase::Idle, 0));
}
