//! Whole plans: two that go well, and one per trap. (H20 to H25, H27)

use std::time::Duration;

use executor_api::host::{
    BondMode, EvictionSetting, EvictionStrategy, HostName, InterfaceName, ResourceName, VmName,
};
use executor_host_fake::{
    CallKind, Fault, Incident, MigrationFate, Rule, Scenario, StorageManner, TimedIncident, WorldSpec,
};
use reconciler_core::maintenance::{IoPolicy, Phase, Recovery};

use crate::driver::{Drive, flip_plan};

const HOUR: Duration = Duration::from_hours(1);

fn w(number: u8) -> HostName {
    HostName::new(format!("w{number}")).unwrap()
}

fn r1() -> ResourceName {
    ResourceName::new("r1").unwrap()
}

fn v1() -> VmName {
    VmName::new("v1").unwrap()
}

fn quiesce() -> IoPolicy {
    IoPolicy::Quiesce { suspend_for: Some(Duration::from_mins(10)) }
}

/// Machines write all the time.
fn busy() -> Scenario {
    Scenario::calm(WorldSpec::pair().writing_every(Duration::from_millis(200)))
}

fn drive(scenario: &Scenario, io: IoPolicy) -> Drive {
    let mut drive = Drive::new(scenario, flip_plan(io));
    drive.drive(HOUR, |_| {});
    drive.check();
    drive
}

fn outcome(drive: &Drive) -> (Phase, &Recovery) {
    (drive.state.phase, &drive.state.recovery)
}

fn modes(drive: &Drive) -> [BondMode; 2] {
    [1, 2].map(|number| drive.world.bond(&w(number)).unwrap().mode)
}

/// Nothing happens any more for an hour: no operation, no write to the lock.
fn is_frozen(drive: &mut Drive) {
    assert_eq!(drive.state.recovery, Recovery::Escalated, "{}", drive.told());
    let (deeds, lock, state) = (drive.world.deeds().len(), drive.world.lock(), drive.state.clone());
    for _ in 0..60 {
        drive.pass();
        drive.sleep(Duration::from_mins(1));
    }
    assert_eq!((drive.world.deeds().len(), drive.world.lock()), (deeds, lock), "{}", drive.told());
    assert_eq!(drive.state.phase, state.phase);
    assert!(drive.world.lock().hold.is_some(), "the hold stays");
    drive.check();
}

#[test]
fn a_flip_completes_under_either_policy_while_machines_write() {
    for io in [quiesce(), IoPolicy::Continue] {
        let drive = drive(&busy(), io);
        assert_eq!(drive.state.phase, Phase::Complete, "{}", drive.told());
        assert_eq!(drive.state.recovery, Recovery::Forward);
        assert_eq!(modes(&drive), [BondMode::BalanceRr, BondMode::BalanceRr]);
        assert!(drive.world.is_in_sync() && drive.world.lost_writes().is_empty());
        assert_eq!(drive.world.unrestored(), []);
        assert!(drive.world.acknowledged() > 50);
        assert_eq!(drive.world.all_breaches(), []);
        assert!(drive.world.lock().lease.is_none() && drive.world.lock().hold.is_none());
    }
}

#[test]
fn h20_a_mode_reported_and_not_there_stops_before_the_second_host() {
    for fault in
        [Fault::DoneNothing, Fault::MemberMissing, Fault::RoutesLost, Fault::NotPersisted, Fault::WrongFirst]
    {
        let mut scenario = busy();
        scenario.faults.push(Rule { times: None, ..Rule::new(CallKind::SetBondMode, fault).host(&w(1)) });
        let drive = drive(&scenario, IoPolicy::Continue);
        assert!(drive.world.fired().contains_key(fault.name()));
        let second = drive.world.deeds().iter().filter(|deed| deed.what.contains("balance-rr on w2")).count();
        assert_eq!(second, 0, "{fault:?}: {}", drive.told());
        assert!(
            matches!(drive.state.recovery, Recovery::RevertedSafe | Recovery::Escalated),
            "{}",
            drive.told()
        );
    }
}

#[test]
fn h21_blocks_out_of_sync_on_one_side_are_never_waited_away() {
    let mut drive = Drive::new(&busy(), flip_plan(IoPolicy::Continue));
    let mut done = false;
    drive.drive(HOUR, |drive| {
        if drive.state.phase == Phase::RestoreMigration && !done {
            done = true;
            drive.world.befall(&Incident::BitsAppear { resource: r1(), host: w(2), blocks: 3 });
        }
    });
    assert!(done && drive.state.phase == Phase::RestoreMigration, "{}", drive.told());
    assert!(drive.world.lock().hold.is_some());
    drive.check();
}

#[test]
fn h22_a_split_brain_seen_by_one_side_freezes_the_plan_at_once() {
    let mut scenario = busy();
    scenario.world.storage = StorageManner { one_sided_split_brain: true, ..StorageManner::default() };
    let mut drive = Drive::new(&scenario, flip_plan(IoPolicy::Continue));
    let mut done = false;
    drive.drive(HOUR, |drive| {
        if drive.state.phase == Phase::FlipNode2 && !done {
            done = true;
            drive.world.befall(&Incident::Diverges { resource: r1(), host: w(2), writes: 1 });
        }
    });
    assert!(done);
    assert_eq!(outcome(&drive), (Phase::FlipNode2, &Recovery::Escalated), "{}", drive.told());
    assert_eq!(drive.state.retries, 0);
    is_frozen(&mut drive);
    assert_eq!(drive.world.lost_writes(), []);
}

#[test]
fn h23_a_storage_pod_that_comes_back_stops_the_next_flip() {
    for phase in [Phase::FlipNode1, Phase::FlipNode2] {
        let mut drive = Drive::new(&busy(), flip_plan(IoPolicy::Continue));
        let mut done = false;
        drive.drive(HOUR, |drive| {
            if drive.state.phase == phase && !done {
                done = true;
                drive.world.befall(&Incident::PodReturns { host: w(1) });
                drive.world.befall(&Incident::PodReturns { host: w(2) });
            }
        });
        drive.check();
        assert!(done && drive.state.phase != Phase::Complete || drive.world.is_in_sync(), "{}", drive.told());
        assert!(
            drive.story.iter().any(|line| line.starts_with("halt") || line.starts_with("escalate")),
            "{}",
            drive.told()
        );
        assert_eq!(drive.world.lost_writes(), []);
    }
}

#[test]
fn h24_migrations_that_do_not_end_or_come_back_hold_the_plan() {
    let fates = [
        MigrationFate::Stuck { ends_after: None },
        MigrationFate::Stuck { ends_after: Some(Duration::from_secs(20)) },
        MigrationFate::WinsTheRace,
        MigrationFate::Obedient,
    ];
    for fate in fates {
        let mut scenario = busy();
        let what = Incident::Migrates { vm: v1(), to: w(2), fate: fate.clone(), past_the_shield: false };
        scenario.incidents.push(TimedIncident { at: Duration::ZERO, what });
        let drive = drive(&scenario, IoPolicy::Continue);
        let endless = fate == MigrationFate::Stuck { ends_after: None };
        assert_eq!(
            drive.state.phase == Phase::Complete && drive.state.recovery != Recovery::RevertedSafe,
            !endless,
            "{fate:?}: {}",
            drive.told()
        );
    }
    let mut scenario = busy();
    let what = Incident::EvacuationMark { vm: v1(), marked: true };
    scenario.incidents.push(TimedIncident { at: Duration::ZERO, what });
    let drive = drive(&scenario, IoPolicy::Continue);
    assert_ne!(drive.state.phase, Phase::Complete, "{}", drive.told());
    assert!(drive.world.deeds().iter().all(|deed| !deed.what.contains("disconnect")));
}

#[test]
fn h25_a_pin_that_is_not_in_effect_holds_the_plan_and_originals_survive_a_restart() {
    let mut scenario = busy();
    scenario.faults.push(Rule { times: None, ..Rule::new(CallKind::Pin, Fault::NotPropagated).vm(&v1()) });
    let held = drive(&scenario, IoPolicy::Continue);
    assert!(held.world.deeds().iter().all(|deed| !deed.what.contains("disconnect")), "{}", held.told());
    // Crashed after the first pin, and taken up again.
    let mut drive = Drive::new(&busy(), flip_plan(IoPolicy::Continue));
    let mut crashed = false;
    drive.drive(HOUR, |drive| {
        if !crashed && drive.world.vms().vms.values().any(|vm| vm.declared == EvictionSetting::PINNED) {
            crashed = true;
            drive.crash();
        }
    });
    drive.check();
    assert_eq!((crashed, drive.state.phase), (true, Phase::Complete), "{}", drive.told());
    let machines = drive.world.vms().vms;
    assert_eq!(machines[&v1()].declared, EvictionSetting::Set(EvictionStrategy::LiveMigrate));
    assert_eq!(machines[&VmName::new("v2").unwrap()].declared, EvictionSetting::Unset);
}

#[test]
fn h27_a_second_flip_that_always_fails_ends_where_it_began_or_frozen() {
    for fault in [Fault::Fails, Fault::FailsAfter { steps: 4 }, Fault::AgentDies { steps: 4 }] {
        let mut scenario = busy();
        scenario.faults.push(Rule::new(CallKind::SetBondMode, fault).host(&w(2)).times(3));
        let reverted = drive(&scenario, IoPolicy::Continue);
        assert_eq!(reverted.state.recovery, Recovery::RevertedSafe, "{fault:?}: {}", reverted.told());
        assert_eq!(modes(&reverted), [BondMode::ActiveBackup, BondMode::ActiveBackup]);
        assert!(reverted.world.is_in_sync() && reverted.world.unrestored().is_empty());
    }
    let mut scenario = busy();
    scenario.faults.push(Rule::new(CallKind::SetBondMode, Fault::Fails).host(&w(2)).always());
    // The same, and nothing ever connects again.
    let mut drive = Drive::new(&scenario, flip_plan(IoPolicy::Continue));
    let mut done = false;
    drive.drive(HOUR, |drive| {
        if drive.state.phase == Phase::FlipNode2 && !done {
            done = true;
            drive.world.befall(&Incident::Blocked { resource: r1(), blocked: true });
        }
    });
    is_frozen(&mut drive);
    let tries = drive.world.deeds().iter().filter(|deed| deed.what.contains("balance-rr on w2")).count();
    assert!(tries <= 3, "{tries} tries");
}

#[test]
fn a_link_that_is_not_whole_is_never_reconnected_over() {
    for incident in [
        Incident::WireLoses { wire: 0, every: 5 },
        Incident::CarrierLost { host: w(1), interface: InterfaceName::new("s1").unwrap() },
        Incident::MemberLeaves { host: w(2), interface: InterfaceName::new("s0").unwrap() },
        Incident::BondSet { host: w(1), mode: Some(BondMode::ActiveBackup) },
    ] {
        let mut drive = Drive::new(&busy(), flip_plan(IoPolicy::Continue));
        let mut done = false;
        drive.drive(HOUR, |drive| {
            if drive.state.phase == Phase::ResumeDrbd && !done {
                done = true;
                drive.world.befall(&incident);
            }
        });
        drive.check();
        assert!(done && drive.state.phase != Phase::Complete, "{incident}: {}", drive.told());
        assert_eq!(drive.world.lost_writes(), []);
    }
}

#[test]
fn a_crash_at_any_pass_is_taken_up_safely() {
    for pass in (0..70).step_by(5) {
        for io in [quiesce(), IoPolicy::Continue] {
            let mut drive = Drive::new(&busy(), flip_plan(io));
            let mut count = 0;
            drive.drive(HOUR, |drive| {
                count += 1;
                if count == pass {
                    drive.crash();
                }
            });
            drive.check();
            assert!(drive.is_settled(), "{}", drive.told());
            assert_eq!(drive.world.lost_writes(), []);
        }
    }
}
