//! Machines: declared and running, pins, migrations that come back, evictions that are granted. (H24, H25)

use executor_api::host::{AbortStatus, EvictionSetting, EvictionStrategy, MigrationPhase, VmAction};
use executor_host_fake::{BreachKind, CallKind, Fault, Incident, MigrationFate, Rule, VmSpec};

use crate::support::*;

#[test]
fn a_pin_holds_and_a_restore_is_exact_left_out_included() {
    let mut bench = Bench::pair();
    bench.operator.pin_all();
    for vm in [v1(), v2()] {
        let machine = bench.operator.machine(&vm);
        assert_eq!(
            (machine.declared, machine.running.unwrap().effective),
            (EvictionSetting::PINNED, EvictionSetting::PINNED)
        );
        assert!(machine.shield.is_up());
    }
    assert_eq!(bench.world.unrestored(), [v1(), v2()]);
    let first = EvictionSetting::Set(EvictionStrategy::LiveMigrate);
    bench.operator.vm(&v1(), VmAction::Restore { original: first.clone() }).unwrap();
    bench.operator.vm(&v2(), VmAction::Restore { original: EvictionSetting::Unset }).unwrap();
    assert_eq!(bench.operator.machine(&v1()).declared, first);
    assert_eq!(bench.operator.machine(&v2()).declared, EvictionSetting::Unset);
    assert_eq!(bench.world.unrestored(), []);
    assert_eq!(bench.breaches(), []);
}

#[test]
fn a_pin_that_never_reached_the_running_instance() {
    let mut bench = Bench::pair();
    bench.script(Rule::new(CallKind::Pin, Fault::NotPropagated).vm(&v1()));
    bench.operator.pin_all();
    let machine = bench.operator.machine(&v1());
    assert_eq!(machine.declared, EvictionSetting::PINNED);
    assert_eq!(machine.running.unwrap().effective, EvictionSetting::Set(EvictionStrategy::LiveMigrate));
    bench.operator.disconnect(&w1(), &r1()).unwrap();
    assert_eq!(bench.breaches(), [BreachKind::UnpinnedDuringHostChange]);
}

#[test]
fn an_abort_is_a_request_and_a_stuck_migration_stays() {
    let mut bench = Bench::pair();
    let fate = MigrationFate::Stuck { ends_after: Some(secs(300)) };
    bench.befall(&Incident::Migrates { vm: v1(), to: w2(), fate, past_the_shield: false });
    bench.pass(secs(10));
    bench.operator.vm(&v1(), VmAction::AbortMigration { migration: migration("v1-1") }).unwrap();
    bench.pass(secs(200));
    let reading = bench.operator.picture().migrations[&migration("v1-1")].clone();
    assert_eq!(
        (reading.phase, reading.abort_status),
        (MigrationPhase::Scheduling, Some(AbortStatus::Aborting))
    );
    bench.pass(secs(200));
    assert_eq!(bench.operator.picture().unfinished().count(), 0);
}

#[test]
fn a_migration_wins_the_race_against_its_abort() {
    let mut bench = Bench::pair();
    bench.befall(&Incident::Migrates {
        vm: v1(),
        to: w2(),
        fate: MigrationFate::WinsTheRace,
        past_the_shield: false,
    });
    bench.pass(secs(3));
    bench.operator.vm(&v1(), VmAction::AbortMigration { migration: migration("v1-1") }).unwrap();
    bench.pass(secs(30));
    let picture = bench.operator.picture();
    let over = &picture.migrations[&migration("v1-1")];
    assert_eq!((&over.phase, &over.abort_status), (&MigrationPhase::Succeeded, &Some(AbortStatus::Failed)));
    assert_eq!(picture.vms[&v1()].running.as_ref().unwrap().node, w2());
}

#[test]
fn an_evacuation_mark_brings_migrations_back_until_the_shield_is_up() {
    let mut bench = Bench::pair();
    bench.befall(&Incident::EvacuationMark { vm: v1(), marked: true });
    assert_eq!(bench.operator.machine(&v1()).running.unwrap().evacuating_from, Some(w1()));
    bench.pass(secs(11));
    assert_eq!(bench.operator.picture().unfinished().count(), 1);
    bench.operator.vm(&v1(), VmAction::AbortMigration { migration: migration("v1-1") }).unwrap();
    bench.pass(secs(2));
    assert_eq!(bench.operator.picture().unfinished().count(), 0);
    bench.pass(secs(15));
    assert_eq!(bench.operator.picture().unfinished().count(), 1, "and there is another");
    bench.operator.vm(&v1(), VmAction::AbortMigration { migration: migration("v1-2") }).unwrap();
    bench.operator.pin_all();
    bench.pass(secs(60));
    assert_eq!(bench.operator.picture().migrations.len(), 2, "refused from now on");
}

#[test]
fn none_prevents_a_migration_and_grants_an_eviction() {
    let mut bench = Bench::pair();
    bench.script(Rule::new(CallKind::Pin, Fault::NoShield).vm(&v1()));
    bench.operator.pin_all();
    bench.befall(&Incident::Evicted { vm: v1() });
    bench.pass(secs(10));
    assert_eq!(bench.operator.machine(&v1()).running.unwrap().node, w2());
    assert_eq!(bench.all_breaches(), [BreachKind::PinnedVmEvicted]);
    bench.befall(&Incident::Evicted { vm: v2() });
    bench.pass(secs(10));
    assert_eq!(bench.all_breaches().len(), 1, "the shield refuses it");
    assert_eq!(bench.operator.machine(&v2()).running.unwrap().node, w2());
}

#[test]
fn a_drain_that_takes_machines_along() {
    let mut bench = Bench::pair();
    bench.script(Rule::new(CallKind::Drain, Fault::EvictsMachines).host(&w1()));
    bench.operator.pin_all();
    let pod = bench.operator.machine(&v1()).running.unwrap().pod_uid;
    bench.operator.host(&w1(), executor_api::host::HostAction::DrainSatellite).unwrap();
    bench.pass(secs(10));
    let running = bench.operator.machine(&v1()).running.unwrap();
    assert!(running.node == w2() && running.pod_uid != pod);
    assert!(bench.all_breaches().contains(&BreachKind::PinnedVmEvicted));
}

#[test]
fn machines_appear_restart_and_lose_what_was_pinned() {
    let mut bench = Bench::pair();
    bench.operator.pin_all();
    let vm = VmSpec {
        name: executor_api::host::VmName::new("v3").unwrap(),
        resources: [r1()].into(),
        runs_on: Some(w1()),
        eviction: None,
        running_eviction: None,
        writes_every: None,
    };
    bench.befall(&Incident::Appears { vm: Box::new(vm) });
    assert_eq!(bench.operator.picture().vms.len(), 3);
    bench.befall(&Incident::ShieldDeleted { vm: v1() });
    assert!(!bench.operator.machine(&v1()).shield.is_up());
    let setting = EvictionSetting::Set(EvictionStrategy::LiveMigrate);
    bench.befall(&Incident::EffectiveChanged { vm: v2(), setting: setting.clone() });
    assert_eq!(bench.operator.machine(&v2()).running.unwrap().effective, setting);
    let pod = bench.operator.machine(&v2()).running.unwrap().pod_uid;
    bench.befall(&Incident::Restarts { vm: v2(), to: Some(w1()) });
    bench.pass(secs(10));
    let running = bench.operator.machine(&v2()).running.unwrap();
    assert!(running.node == w1() && running.pod_uid != pod && running.effective == EvictionSetting::PINNED);
}

#[test]
fn a_machine_that_lands_on_a_stale_copy_is_a_breach_and_splits_the_brain() {
    let mut bench = Bench::pair();
    bench.script(Rule::new(CallKind::Pin, Fault::NoShield).vm(&v1()));
    bench.operator.pin_all();
    bench.operator.disconnect_all();
    bench.world.write(&v1());
    bench.befall(&Incident::Migrates {
        vm: v1(),
        to: w2(),
        fate: MigrationFate::PostCopy,
        past_the_shield: false,
    });
    bench.pass(secs(30));
    assert!(bench.breaches().contains(&BreachKind::VmOnUnverifiedCopy));
    bench.world.write(&v1());
    let ids = [w1(), w2()].map(|node| bench.operator.peer_volume(&node).generation.unwrap());
    assert!(ids[0].bitmap.same(ids[1].bitmap) && !ids[0].current.same(ids[1].current));
}

#[test]
fn restoring_before_the_copies_are_whole_is_a_breach() {
    let mut bench = Bench::pair();
    bench.operator.pin_all();
    bench.operator.disconnect_all();
    bench.operator.vm(&v1(), VmAction::Restore { original: EvictionSetting::Unset }).unwrap();
    assert_eq!(bench.breaches(), [BreachKind::RestoredTooEarly]);
}

#[test]
fn a_restore_that_confuses_left_out_with_none() {
    let mut bench = Bench::pair();
    bench.script(Rule::new(CallKind::Restore, Fault::RestoresNone));
    bench.operator.pin_all();
    bench.operator.vm(&v2(), VmAction::Restore { original: EvictionSetting::Unset }).unwrap();
    assert_eq!(bench.operator.machine(&v2()).declared, EvictionSetting::PINNED);
    assert!(bench.world.unrestored().contains(&v2()));
}
