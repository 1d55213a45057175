//! The ways in which hosts, storage and machines mislead, one test each. (H20 to H25, H27)

use std::time::Duration;

use executor_api::host::{BondMode, EvictionSetting, EvictionStrategy};
use executor_host_fake::{
    CallKind, Fault, Incident, MigrationFate, Rule, Scenario, StorageManner, TimedIncident, VmSpec,
};
use reconciler_core::maintenance::{IoPolicy, Phase, PlanState, Recovery};
use reconciler_driver::maintenance::MaintenanceDriver;

use crate::bench::{Bench, HOUR, busy, member, r1, v, w};

/// Lets something befall the world when the plan first enters a phase, and drives on to the end.
fn befalls(scenario: &Scenario, phase: Phase, incidents: &[Incident]) -> (Bench, MaintenanceDriver) {
    befalls_when(scenario, |_, state| state.phase == phase, incidents)
}

/// The same, once this holds.
fn befalls_when(
    scenario: &Scenario,
    when: impl Fn(&Bench, &PlanState) -> bool,
    incidents: &[Incident],
) -> (Bench, MaintenanceDriver) {
    let mut bench = Bench::new(scenario, IoPolicy::Continue);
    let mut driver = bench.start();
    let (world, mut done) = (bench.world.clone(), false);
    bench.drive(&mut driver, HOUR, |driver, _| {
        if !done && when(&bench, driver.state()) {
            done = true;
            for incident in incidents {
                world.befall(incident);
            }
        }
    });
    assert!(done, "it never came to that: {}", bench.told());
    bench.check(driver.state());
    (bench, driver)
}

fn with_fault(rule: Rule) -> (Bench, PlanState) {
    let mut scenario = busy();
    scenario.faults.push(rule);
    let mut bench = Bench::new(&scenario, IoPolicy::Continue);
    let state = bench.finish();
    (bench, state)
}

#[test]
fn h20_a_mode_reported_and_not_there_stops_before_the_second_host() {
    let faults =
        [Fault::DoneNothing, Fault::MemberMissing, Fault::RoutesLost, Fault::NotPersisted, Fault::WrongFirst];
    for fault in faults {
        let rule = Rule { times: None, ..Rule::new(CallKind::SetBondMode, fault).host(&w(1)) };
        let (bench, state) = with_fault(rule);
        assert!(bench.world.fired().contains_key(fault.name()), "{fault:?}");
        assert_eq!(bench.deeds("balance-rr on w2"), 0, "{fault:?}: {}", bench.told());
        assert!(
            matches!(state.recovery, Recovery::RevertedSafe | Recovery::Escalated),
            "{fault:?}: {}",
            bench.told()
        );
    }
}

/// Both sides have been told to connect, and are in sync.
fn together(bench: &Bench, state: &PlanState) -> bool {
    state.phase == Phase::ResumeDrbd && state.reconnected.len() == 2 && bench.world.is_in_sync()
}

#[test]
fn h21_blocks_out_of_sync_on_one_side_are_never_waited_away() {
    let bits = || Incident::BitsAppear { resource: r1(), host: w(2), blocks: 3 };
    let (bench, driver) = befalls_when(&busy(), together, &[bits()]);
    assert!(driver.state().phase < Phase::RestoreMigration, "{}", bench.told());
    assert_eq!(bench.deeds("restore"), 0, "no machine is let go: {}", bench.told());
    for (phase, restored) in [(Phase::RestoreMigration, 0), (Phase::ReleaseLock, 2)] {
        let (bench, driver) = befalls(&busy(), phase, &[bits()]);
        assert_eq!(driver.state().phase, phase, "{}", bench.told());
        assert_eq!(bench.deeds("restore"), restored, "{}", bench.told());
        let storage = [1, 2].map(|number| bench.world.storage(&w(number)).unwrap());
        let counts = storage.map(|side| {
            let resource = &side.resources[&r1()];
            resource.connections.values().next().unwrap().volumes[&0].out_of_sync_kib
        });
        assert_eq!(counts, [Some(0), Some(12)], "one side sees nothing");
        assert!(bench.world.lock().hold.is_some());
    }
}

#[test]
fn h22_a_split_brain_seen_by_one_side_freezes_the_plan_at_once() {
    let mut scenario = busy();
    scenario.world.storage = StorageManner { one_sided_split_brain: true, ..StorageManner::default() };
    let diverges = Incident::Diverges { resource: r1(), host: w(2), writes: 1 };
    let (mut bench, mut driver) = befalls(&scenario, Phase::FlipNode2, &[diverges]);
    assert_eq!((driver.state().phase, driver.state().retries), (Phase::FlipNode2, 0), "{}", bench.told());
    bench.is_frozen(&mut driver);
    // After the reconnect: one side stands alone and says why, the other waits and says nothing.
    let one_sided = [
        Incident::StandAlone { resource: r1(), host: w(1) },
        Incident::SplitBrainAnnounced { resource: r1(), host: w(1) },
    ];
    let (mut bench, mut driver) = befalls_when(&busy(), together, &one_sided);
    let state = |number: u8, peer: u8| {
        let side = bench.world.storage(&w(number)).unwrap();
        (side.resources[&r1()].connections[&w(peer)].state.to_string(), side.split_brain_seen.unwrap().len())
    };
    assert_eq!((state(1, 2), state(2, 1)), (("StandAlone".to_owned(), 1), ("Connecting".to_owned(), 0)));
    assert_eq!((driver.state().phase, driver.state().retries), (Phase::ResumeDrbd, 0), "{}", bench.told());
    bench.is_frozen(&mut driver);
    // The other side does not answer at all.
    let (bench, driver) = befalls_when(&busy(), together, &[Incident::HostDies { host: w(2) }]);
    assert_eq!(driver.state().recovery, Recovery::Escalated, "{}", bench.told());
    assert!(bench.world.lock().hold.is_some() && bench.deeds("restore") == 0);
}

#[test]
fn h23_a_storage_pod_that_comes_back_stops_the_next_flip() {
    for phase in [Phase::FlipNode1, Phase::FlipNode2] {
        let pods = [1, 2].map(|number| Incident::PodReturns { host: w(number) });
        let (bench, driver) = befalls(&busy(), phase, &pods);
        let stopped = bench
            .store
            .log()
            .iter()
            .any(|line| line.what.starts_with("halt") || line.what.starts_with("escalate"));
        assert!(stopped, "{}", bench.told());
        assert!(driver.state().phase != Phase::Complete || bench.world.is_in_sync(), "{}", bench.told());
    }
}

#[test]
fn h24_migrations_that_do_not_end_or_come_back_hold_the_plan() {
    let at = |what| TimedIncident { at: Duration::ZERO, what };
    let fates = [
        (MigrationFate::Stuck { ends_after: None }, false),
        (MigrationFate::Stuck { ends_after: Some(Duration::from_secs(20)) }, true),
        (MigrationFate::WinsTheRace, true),
        (MigrationFate::Obedient, true),
    ];
    for (fate, completes) in fates {
        let mut scenario = busy();
        let migrates = Incident::Migrates { vm: v(1), to: w(2), fate: fate.clone(), past_the_shield: false };
        scenario.incidents.push(at(migrates));
        let mut bench = Bench::new(&scenario, IoPolicy::Continue);
        let state = bench.finish();
        assert_eq!(state.phase == Phase::Complete, completes, "{fate:?}: {}", bench.told());
        if fate == MigrationFate::WinsTheRace {
            let now = bench.world.vms().vms[&v(1)].running.clone().unwrap().node;
            assert_eq!((now, state.vm_originals[&v(1)].placement.clone().unwrap().0), (w(2), w(2)));
        }
    }
    // The migration ends at last, and the mark that is left from an earlier drain brings the next one.
    let mut scenario = busy();
    let stuck = MigrationFate::Stuck { ends_after: Some(Duration::from_mins(5)) };
    let migrates = Incident::Migrates { vm: v(1), to: w(2), fate: stuck, past_the_shield: false };
    scenario.incidents.push(at(migrates));
    scenario.incidents.push(at(Incident::EvacuationMark { vm: v(1), marked: true }));
    let mut bench = Bench::new(&scenario, IoPolicy::Continue);
    let state = bench.finish();
    assert_eq!((state.phase == Phase::Complete, bench.deeds("disconnect")), (false, 0), "{}", bench.told());
    let mut scenario = busy();
    scenario.incidents.push(at(Incident::EvacuationMark { vm: v(1), marked: true }));
    let mut bench = Bench::new(&scenario, IoPolicy::Continue);
    let state = bench.finish();
    assert_ne!(state.phase, Phase::Complete, "{}", bench.told());
    assert_eq!(bench.deeds("disconnect"), 0);
}

#[test]
fn h25_a_pin_that_is_not_in_effect_holds_the_plan_and_originals_survive_a_restart() {
    let rule = Rule { times: None, ..Rule::new(CallKind::Pin, Fault::NotPropagated).vm(&v(1)) };
    let (bench, _) = with_fault(rule);
    assert_eq!(bench.deeds("disconnect"), 0, "{}", bench.told());
    // The process ends after the first pin, and another takes over.
    let mut bench = Bench::new(&busy(), IoPolicy::Continue);
    let mut first = bench.start();
    let world = bench.world.clone();
    let stopped =
        first.drive(|_, _| world.vms().vms.values().any(|vm| vm.declared == EvictionSetting::PINNED));
    bench.timer.run(stopped).unwrap().unwrap();
    let state = bench.finish();
    assert_eq!((bench.starts, state.phase), (2, Phase::Complete), "{}", bench.told());
    let machines = bench.world.vms().vms;
    assert_eq!(machines[&v(1)].declared, EvictionSetting::Set(EvictionStrategy::LiveMigrate));
    assert_eq!(machines[&v(2)].declared, EvictionSetting::Unset);
}

#[test]
fn h25_a_machine_that_appears_late_and_pods_that_are_evicted_stop_the_plan_before_a_flip() {
    let late = VmSpec {
        name: v(3),
        resources: [r1()].into(),
        runs_on: Some(w(1)),
        eviction: Some(EvictionStrategy::LiveMigrate),
        running_eviction: None,
        writes_every: None,
    };
    let appears = Incident::Appears { vm: Box::new(late) };
    let (bench, driver) = befalls(&busy(), Phase::DrainSatellite, &[appears]);
    assert_ne!(driver.state().recovery, Recovery::Forward, "{}", bench.told());
    assert_eq!(bench.deeds("balance-rr"), 0, "{}", bench.told());
    let evicts = Rule::new(CallKind::Drain, Fault::EvictsMachines).host(&w(1));
    let (bench, state) = with_fault(evicts);
    assert!(bench.world.fired().contains_key("evicts-machines"));
    assert_eq!(bench.deeds("balance-rr"), 0, "{}", bench.told());
    assert_ne!(state.recovery, Recovery::Forward);
}

#[test]
fn h27_a_second_flip_that_always_fails_ends_where_it_began_or_frozen() {
    for fault in [Fault::Fails, Fault::FailsAfter { steps: 4 }, Fault::AgentDies { steps: 4 }] {
        let (bench, state) = with_fault(Rule::new(CallKind::SetBondMode, fault).host(&w(2)).times(3));
        assert_eq!(state.recovery, Recovery::RevertedSafe, "{fault:?}: {}", bench.told());
        assert_eq!(bench.modes(), [BondMode::ActiveBackup, BondMode::ActiveBackup]);
        assert!(bench.world.is_in_sync());
    }
    // The same, and nothing ever connects again.
    let mut scenario = busy();
    scenario.faults.push(Rule::new(CallKind::SetBondMode, Fault::Fails).host(&w(2)).always());
    let blocked = Incident::Blocked { resource: r1(), blocked: true };
    let (mut bench, mut driver) = befalls(&scenario, Phase::FlipNode2, &[blocked]);
    bench.is_frozen(&mut driver);
    let tries = bench.deeds("balance-rr on w2");
    assert!(tries <= 3, "{tries} tries");
}

#[test]
fn a_link_that_is_not_whole_is_never_reconnected_over() {
    let incidents = [
        Incident::WireLoses { wire: 0, every: 5 },
        Incident::CarrierLost { host: w(1), interface: member("s1") },
        Incident::MemberLeaves { host: w(2), interface: member("s0") },
        Incident::BondSet { host: w(1), mode: Some(BondMode::ActiveBackup) },
    ];
    for incident in incidents {
        let (bench, driver) = befalls(&busy(), Phase::ResumeDrbd, std::slice::from_ref(&incident));
        assert_ne!(driver.state().phase, Phase::Complete, "{incident}: {}", bench.told());
    }
}

#[test]
fn copies_are_judged_again_before_the_second_side_connects() {
    let spoilt = [
        Incident::DayZero { resource: r1(), host: w(2) },
        Incident::JustCreated { resource: r1(), host: Some(w(2)) },
        Incident::DiskFails { resource: r1(), host: w(2) },
        Incident::BitsAppear { resource: r1(), host: w(2), blocks: 1 },
    ];
    for incident in spoilt {
        let begun = |_: &Bench, state: &PlanState| state.reconnected.contains(&r1());
        let (bench, _) = befalls_when(&busy(), begun, std::slice::from_ref(&incident));
        assert_eq!(bench.deeds("connect r1 to w1 on w2"), 0, "{incident:?}\n{}", bench.told());
    }
}
