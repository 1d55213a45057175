//! Bonds: a whole flip, and every way in which one is not whole. (H20, H27)

use executor_api::host::{BondMode, HostErrorKind, MiiStatus, StorageProbe};
use executor_host_fake::{BreachKind, CallKind, Fault, Incident, Rule, WorldSpec};

use crate::support::*;

/// Everything that a plan does, by hand and in order.
fn whole_plan(bench: &mut Bench) {
    let op = &mut bench.operator;
    op.prepare();
    for node in [w1(), w2()] {
        let flip = op.flip(&node, BondMode::BalanceRr);
        op.apply(&flip).unwrap();
        assert_eq!(op.bond(&node).mode, BondMode::BalanceRr);
    }
    for node in [w1(), w2()] {
        let probe = op.probe(&node, 20);
        assert_eq!(probe.received, 20);
    }
    op.resume_all();
    bench.pass(secs(30));
    let op = &mut bench.operator;
    for (vm, original) in [v1(), v2()].map(|vm| (vm.clone(), op.seat.world().first_declared(&vm).unwrap())) {
        op.vm(&vm, executor_api::host::VmAction::Restore { original }).unwrap();
    }
}

#[test]
fn a_plan_done_right_breaches_nothing_and_loses_nothing_while_machines_write() {
    let spec = WorldSpec::pair().writing_every(std::time::Duration::from_millis(50));
    let mut bench = Bench::new(&spec);
    bench.operator.take_lock();
    whole_plan(&mut bench);
    bench.pass(secs(10));
    let world = &bench.world;
    assert_eq!(world.all_breaches(), []);
    assert_eq!(world.lost_writes(), []);
    assert_eq!(world.unrestored(), []);
    assert!(world.is_in_sync() && world.acknowledged() > 100, "{} writes", world.acknowledged());
    let bond = world.bond(&w1()).unwrap();
    assert!(bond.routes.len() == 1 && bond.members.len() == 2, "{bond:?}");
}

#[test]
fn with_no_time_passing_every_call_ends_at_its_first_poll() {
    let mut bench = Bench::new(&instant());
    bench.operator.take_lock();
    let begun = bench.world.now();
    bench.operator.prepare();
    for node in [w1(), w2()] {
        let flip = bench.operator.flip(&node, BondMode::BalanceRr);
        bench.operator.apply(&flip).unwrap();
    }
    bench.operator.probe(&w1(), 20);
    bench.operator.resume_all();
    assert_eq!(bench.world.now(), begun);
    assert_eq!(bench.operator.connection(&w1()), "Connected");
    assert_eq!(bench.world.all_breaches(), []);
}

#[test]
fn an_agent_reports_success_and_the_kernel_is_unchanged() {
    let mut bench = Bench::pair();
    bench.script(Rule::new(CallKind::SetBondMode, Fault::DoneNothing).host(&w1()));
    bench.operator.prepare();
    let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
    assert!(bench.operator.apply(&flip).is_ok());
    assert_eq!(bench.operator.bond(&w1()).mode, BondMode::ActiveBackup);
    assert_eq!(bench.fired("done-nothing"), 1);
}

#[test]
fn the_mode_is_right_and_a_member_is_missing() {
    let mut bench = Bench::pair();
    bench.script(Rule::new(CallKind::SetBondMode, Fault::MemberMissing).host(&w1()));
    bench.operator.prepare();
    for node in [w1(), w2()] {
        let flip = bench.operator.flip(&node, BondMode::BalanceRr);
        assert!(bench.operator.apply(&flip).is_ok());
    }
    let bond = bench.operator.bond(&w1());
    assert_eq!((bond.mode, bond.members.len()), (BondMode::BalanceRr, 1));
    assert_eq!(bench.operator.probe(&w2(), 20).received, 10, "both modes are right, and half is lost");
    assert_eq!(bench.breaches(), [BreachKind::TwoBondsInTransition], "the second was begun over the first");
}

#[test]
fn a_flip_stops_half_way_and_says_so_and_can_be_taken_up_again() {
    let mut bench = Bench::pair();
    bench.script(Rule::new(CallKind::SetBondMode, Fault::FailsAfter { steps: 4 }));
    bench.operator.prepare();
    let original = original(&bench.operator.bond(&w1()));
    let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
    let error = bench.operator.apply(&flip).unwrap_err();
    assert_eq!(error.kind, HostErrorKind::Failed);
    let bond = bench.operator.bond(&w1());
    assert_eq!((bond.up, bond.members.len(), bond.routes.len()), (Some(false), 0, 0));
    let action =
        executor_api::host::HostAction::SetBondMode { bond: bond0(), mode: BondMode::ActiveBackup, original };
    bench.operator.host(&w1(), action).unwrap();
    assert!(bench.world.bond_is_whole(&w1()));
    assert_eq!(bench.operator.bond(&w1()).routes.len(), 1);
}

#[test]
fn a_member_refuses_to_come_back() {
    let mut bench = Bench::pair();
    bench.befall(&Incident::MemberRefuses { host: w1(), interface: interface("s1"), times: 1 });
    bench.operator.prepare();
    let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
    let error = bench.operator.apply(&flip).unwrap_err();
    assert!(error.context.contains("cannot be enslaved"), "{error}");
    assert_eq!(bench.operator.bond(&w1()).members.len(), 1);
}

#[test]
fn what_was_not_written_down_is_gone_after_a_reboot() {
    let mut bench = Bench::pair();
    bench.script(Rule::new(CallKind::SetBondMode, Fault::NotPersisted));
    bench.operator.prepare();
    let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
    bench.operator.apply(&flip).unwrap();
    let before = bench.operator.bond(&w1());
    assert_eq!(before.persisted.unwrap().mode, BondMode::ActiveBackup);
    bench.befall(&Incident::HostReboots { host: w1() });
    bench.pass(secs(60));
    let after = bench.operator.bond(&w1());
    assert_eq!(after.mode, BondMode::ActiveBackup);
    assert_ne!(after.boot_id, before.boot_id);
}

#[test]
fn routes_address_and_mode_can_be_lost_after_a_success() {
    for (fault, what) in [
        (Fault::RoutesLost, "routes"),
        (Fault::WrongFirst, "address"),
        (Fault::Reverts { after: secs(2) }, "mode"),
    ] {
        let mut bench = Bench::pair();
        bench.script(Rule::new(CallKind::SetBondMode, fault));
        bench.operator.prepare();
        let before = bench.operator.bond(&w1());
        let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
        bench.operator.apply(&flip).unwrap();
        bench.pass(secs(5));
        let after = bench.operator.bond(&w1());
        let lost = match what {
            "routes" => after.routes != before.routes,
            "address" => after.mac != before.mac,
            _ => after.mode == before.mode,
        };
        assert!(lost, "{what} was not lost: {after:?}");
        assert_eq!(bench.fired(fault.name()), 1, "{fault:?}");
    }
}

#[test]
fn one_packet_passes_where_twenty_show_the_half_flip() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
    bench.operator.apply(&flip).unwrap();
    assert_eq!(bench.operator.probe(&w1(), 1).received, 1);
    let probe = bench.operator.probe(&w1(), 20);
    assert_eq!(probe.received, 10);
    assert!(probe.receiver.values().any(|counters| counters.rx_nohandler == 10), "{probe:?}");
}

#[test]
fn a_wire_loses_packets_and_no_member_shows_it() {
    let mut bench = Bench::pair();
    bench.befall(&Incident::WireLoses { wire: 0, every: 5 });
    let probe = bench.operator.probe(&w1(), 20);
    assert!(probe.received < 20);
    assert!(bench.operator.bond(&w1()).members.values().all(|member| member.mii == MiiStatus::Up));
}

#[test]
fn carrier_lost_on_one_side_is_unseen_on_the_other() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    for node in [w1(), w2()] {
        let flip = bench.operator.flip(&node, BondMode::BalanceRr);
        bench.operator.apply(&flip).unwrap();
    }
    bench.befall(&Incident::CarrierLost { host: w1(), interface: interface("s1") });
    assert_eq!(bench.operator.bond(&w1()).members[&interface("s1")].mii, MiiStatus::Down);
    assert!(bench.operator.bond(&w2()).members.values().all(|member| member.mii == MiiStatus::Up));
    assert_eq!(bench.operator.probe(&w2(), 20).received, 10);
}

#[test]
fn flips_done_wrong_are_breaches() {
    let mut bench = Bench::pair();
    let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
    bench.operator.apply(&flip).unwrap();
    let kinds = bench.breaches();
    for kind in [
        BreachKind::FlippedWhileConnected,
        BreachKind::FlippedUndrained,
        BreachKind::UnpinnedDuringHostChange,
    ] {
        assert!(kinds.contains(&kind), "{kind:?} is not among {kinds:?}");
    }
}

#[test]
fn a_look_excuses_what_comes_after_it_only_while_it_is_new_enough_to_act_on() {
    for (age, breaches) in [(8, vec![]), (12, vec![BreachKind::FlippedUndrained])] {
        let mut bench = Bench::pair();
        bench.operator.prepare();
        bench.operator.storage(&w1());
        let looked = bench.operator.wait(StorageProbe::satellite(&bench.operator.seat, &w1())).unwrap();
        assert!(looked.pods.unwrap().is_empty());
        let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
        bench.befall(&Incident::PodReturns { host: w1() });
        bench.pass(secs(age));
        bench.operator.storage(&w1());
        bench.operator.apply(&flip).unwrap();
        assert!(bench.all_breaches().contains(&BreachKind::FlippedUndrained));
        let mut found = bench.breaches();
        found.retain(|kind| *kind == BreachKind::FlippedUndrained);
        assert_eq!(found, breaches, "{age} s after the look");
    }
}
