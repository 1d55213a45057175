//! Storage: what each side says, what the two together mean, and what is lost when one is believed. (H21, H22, H23)

use executor_api::host::{
    AfterSplitBrain, BondMode, DiskState, Generation, Protocol, ReplicationState, Role,
};
use executor_host_fake::{BreachKind, CallKind, Fault, Incident, Rotation, Rule, StorageManner, WorldSpec};

use crate::support::*;

#[test]
fn only_the_side_that_wrote_counts_and_both_say_up_to_date() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    assert!(bench.world.write(&v1()) && bench.world.write(&v1()));
    let (ours, theirs) = (bench.operator.peer_volume(&w1()), bench.operator.peer_volume(&w2()));
    assert_eq!((ours.out_of_sync_kib, theirs.out_of_sync_kib), (Some(8), Some(0)));
    for node in [w1(), w2()] {
        assert_eq!(bench.operator.resource(&node).volumes[&0].disk, DiskState::UpToDate);
    }
    let (ahead, behind) = (ours.generation.unwrap(), theirs.generation.unwrap());
    assert!(ahead.bitmap.same(behind.current) && !ahead.current.same(behind.current));
    assert_eq!(ahead.current.0 & 1, 1, "the primary's bit");
    assert_eq!(bench.world.missing_on(&r1(), &w2()).len(), 2);
    assert_eq!(bench.world.lost_writes(), []);
}

#[test]
fn disconnecting_one_side_leaves_the_other_trying() {
    let mut bench = Bench::pair();
    bench.operator.pin_all();
    bench.operator.disconnect(&w1(), &r1()).unwrap();
    assert_eq!(
        (bench.operator.connection(&w1()).as_str(), bench.operator.connection(&w2()).as_str()),
        ("StandAlone", "Connecting")
    );
}

#[test]
fn a_fast_forward_copies_over_time_and_ends_identical() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    for _ in 0..5 {
        bench.world.write(&v1());
    }
    bench.operator.connect(&w1(), &r1()).unwrap();
    bench.operator.connect(&w2(), &r1()).unwrap();
    bench.pass(std::time::Duration::from_millis(700));
    let target = bench.operator.resource(&w2());
    assert_eq!(target.volumes[&0].disk, DiskState::Inconsistent);
    assert_eq!(target.connections[&w1()].volumes[&0].replication, ReplicationState::SyncTarget);
    bench.pass(secs(10));
    let volume = bench.operator.peer_volume(&w1());
    assert_eq!((volume.out_of_sync_kib, volume.resyncs_finished), (Some(0), Some(1)));
    assert!(volume.generation.unwrap().bitmap.is_none());
    assert_eq!(bench.world.missing_on(&r1(), &w2()), []);
    assert_eq!(bench.breaches(), []);
}

#[test]
fn up_to_date_on_both_sides_with_sectors_out_of_sync_on_one() {
    let bench = Bench::pair();
    bench.befall(&Incident::BitsAppear { resource: r1(), host: w2(), blocks: 3 });
    assert_eq!(bench.operator.peer_volume(&w1()).out_of_sync_kib, Some(0));
    assert_eq!(bench.operator.peer_volume(&w2()).out_of_sync_kib, Some(12));
    assert_eq!(bench.operator.resource(&w2()).volumes[&0].disk, DiskState::UpToDate);
    assert_eq!(bench.operator.connection(&w2()), "Connected");
}

#[test]
fn silent_rot_shows_only_when_blocks_are_compared() {
    let bench = Bench::pair();
    bench.world.write(&v1());
    bench.befall(&Incident::Rots { resource: r1(), host: w2(), block: 0 });
    assert_eq!(bench.operator.peer_volume(&w1()).out_of_sync_kib, Some(0));
    assert_eq!(bench.world.missing_on(&r1(), &w2()).len(), 1);
    bench.befall(&Incident::Verify { resource: r1() });
    assert_eq!(bench.operator.peer_volume(&w1()).out_of_sync_kib, Some(4));
    assert_eq!(bench.operator.connection(&w1()), "Connected", "and nothing is repaired by itself");
}

#[test]
fn a_split_brain_looks_like_a_plain_disconnect_until_identifiers_are_compared() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    bench.world.write(&v1());
    bench.befall(&Incident::Diverges { resource: r1(), host: w2(), writes: 0 });
    assert_eq!(bench.operator.connection(&w2()), "StandAlone");
    let ids = [w1(), w2()].map(|node| bench.operator.peer_volume(&node).generation.unwrap());
    assert!(ids[0].bitmap.same(ids[1].bitmap) && !ids[0].current.same(ids[1].current));
    assert!(
        bench.operator.storage(&w1()).split_brain_seen.unwrap().is_empty(),
        "not announced before a meeting"
    );
}

#[test]
fn a_split_brain_is_seen_from_one_side_only() {
    let manner = StorageManner { one_sided_split_brain: true, ..StorageManner::default() };
    let mut bench = Bench::new(&WorldSpec { storage: manner, ..WorldSpec::pair() });
    bench.operator.take_lock();
    bench.operator.prepare();
    bench.world.write(&v1());
    bench.befall(&Incident::Diverges { resource: r1(), host: w2(), writes: 1 });
    // Nobody looks before connecting.
    bench.operator.connect(&w1(), &r1()).unwrap();
    bench.operator.connect(&w2(), &r1()).unwrap();
    bench.pass(secs(3));
    assert_eq!(
        (bench.operator.connection(&w1()).as_str(), bench.operator.connection(&w2()).as_str()),
        ("StandAlone", "Connecting")
    );
    assert!(bench.operator.storage(&w1()).split_brain_seen.unwrap().contains(&r1()));
    assert!(bench.operator.storage(&w2()).split_brain_seen.unwrap().is_empty());
    assert!(bench.all_breaches().contains(&BreachKind::ReconnectDiverged));
    assert_eq!(bench.world.whole_copies(&r1()), [], "neither side has all that was acknowledged");
    assert_eq!(bench.world.lost_writes(), [], "and nothing is lost yet");
}

#[test]
fn a_split_brain_that_resolves_itself_has_thrown_writes_away() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    let policy = AfterSplitBrain::Unknown("discard-secondary".to_owned());
    bench.befall(&Incident::NetChanged {
        resource: r1(),
        protocol: None,
        after_split_brain: Some(policy),
        allow_two_primaries: None,
    });
    bench.befall(&Incident::Diverges { resource: r1(), host: w2(), writes: 2 });
    bench.world.write(&v1());
    bench.operator.storage(&w1());
    bench.operator.storage(&w2());
    bench.operator.connect(&w1(), &r1()).unwrap();
    bench.operator.connect(&w2(), &r1()).unwrap();
    bench.pass(secs(10));
    assert_eq!(bench.operator.connection(&w1()), "Connected");
    assert_eq!(bench.operator.peer_volume(&w1()).out_of_sync_kib, Some(0), "all looks well");
    assert!(bench.operator.storage(&w2()).split_brain_seen.unwrap().contains(&r1()));
    // Of the two blocks written on w2, one was also written on w1; both of w2's writes are gone.
    assert_eq!(bench.world.lost_writes().len(), 2);
    assert!(bench.breaches().contains(&BreachKind::DataDestroyed));
}

#[test]
fn a_storage_pod_comes_back_and_reconnects_past_every_gate() {
    let mut bench = Bench::pair();
    bench.operator.pin_all();
    for node in [w1(), w2()] {
        bench.operator.host(&node, executor_api::host::HostAction::DrainSatellite).unwrap();
    }
    // One side only: the other goes on trying.
    bench.operator.disconnect(&w1(), &r1()).unwrap();
    bench.befall(&Incident::PodReturns { host: w1() });
    bench.pass(secs(2));
    assert_eq!(bench.operator.connection(&w1()), "Connected");
    let satellite = bench
        .operator
        .wait(executor_api::host::StorageProbe::satellite(&bench.operator.seat, &w1()))
        .unwrap();
    assert!(!satellite.is_drained());
    let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
    bench.operator.apply(&flip).unwrap();
    assert!(bench.breaches().contains(&BreachKind::FlippedWhileConnected), "the caller had looked since");
}

#[test]
fn a_pod_that_comes_back_after_the_last_look_is_nobodys_fault() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
    for node in [w1(), w2()] {
        bench.operator.storage(&node);
        bench
            .operator
            .wait(executor_api::host::StorageProbe::satellite(&bench.operator.seat, &node))
            .unwrap();
    }
    bench.befall(&Incident::PodReturns { host: w1() });
    bench.operator.apply(&flip).unwrap();
    assert_eq!(bench.breaches(), []);
    assert!(bench.all_breaches().contains(&BreachKind::FlippedWhileConnected));
}

#[test]
fn reconnecting_over_a_half_flip_costs_the_second_copy() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    for _ in 0..12 {
        bench.world.write(&v1());
    }
    let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
    bench.operator.apply(&flip).unwrap();
    bench.operator.connect(&w1(), &r1()).unwrap();
    bench.operator.connect(&w2(), &r1()).unwrap();
    assert!(bench.breaches().contains(&BreachKind::ReconnectOverMarginalLink));
    bench.pass(std::time::Duration::from_millis(800));
    assert_eq!(bench.operator.resource(&w2()).volumes[&0].disk, DiskState::Inconsistent);
    let broke = |bench: &Bench| bench.world.log().iter().any(|event| event.what.contains("lost each other"));
    bench.pass(secs(10));
    assert!(broke(&bench), "a resync over such a link does not last");
    assert_eq!(bench.world.lost_writes(), []);
}

#[test]
fn identifiers_given_by_fiat_are_equal_over_different_content() {
    let bench = Bench::pair();
    bench.befall(&Incident::DayZero { resource: r1(), host: w2() });
    let ids = [w1(), w2()].map(|node| bench.operator.peer_volume(&node).generation.unwrap());
    assert!(
        ids[0].current.same(ids[1].current)
            && ids.iter().all(executor_api::host::GenerationIds::never_rotated)
    );
    assert_eq!(bench.operator.peer_volume(&w1()).out_of_sync_kib, Some(0));
    assert_eq!(bench.world.missing_on(&r1(), &w2()).len(), 1);
}

#[test]
fn just_created_copies_meet_without_a_copy() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    bench.world.write(&v1());
    bench.befall(&Incident::JustCreated { resource: r1(), host: None });
    let ids = bench.operator.peer_volume(&w2()).generation.unwrap();
    assert!(ids.current.same(Generation::JUST_CREATED));
    bench.operator.storage(&w1());
    bench.operator.connect(&w1(), &r1()).unwrap();
    bench.operator.connect(&w2(), &r1()).unwrap();
    bench.pass(secs(2));
    assert_eq!(bench.operator.peer_volume(&w1()).out_of_sync_kib, Some(0), "the bits are gone");
    assert_eq!(bench.world.missing_on(&r1(), &w2()).len(), 1, "and the write still is, too");
    assert!(bench.breaches().contains(&BreachKind::ReconnectUnproved));
}

#[test]
fn an_old_module_drops_leftover_bits_under_equal_identifiers() {
    for (module, left) in [((9, 1, 0), 1), ((9, 3, 3), 0)] {
        let version = executor_api::host::ModuleVersion { major: module.0, minor: module.1, patch: module.2 };
        let mut bench = Bench::pair();
        bench.befall(&Incident::Module { version });
        bench.world.write(&v1());
        bench.operator.prepare();
        bench.befall(&Incident::Rots { resource: r1(), host: w2(), block: 0 });
        bench.befall(&Incident::Verify { resource: r1() });
        bench.befall(&Incident::BitsDropped { resource: r1(), host: w2() });
        bench.operator.connect(&w1(), &r1()).unwrap();
        bench.operator.connect(&w2(), &r1()).unwrap();
        bench.pass(secs(3));
        assert_eq!(bench.world.missing_on(&r1(), &w2()).len(), left, "{version}");
        assert_eq!(bench.operator.peer_volume(&w1()).out_of_sync_kib, Some(0));
    }
}

#[test]
fn a_crashed_primary_comes_back_and_is_the_source() {
    let spec = WorldSpec::pair();
    let mut bench = Bench::new(&spec);
    bench.operator.take_lock();
    bench.world.write(&v1());
    bench.befall(&Incident::HostReboots { host: w1() });
    bench.pass(secs(20));
    assert_eq!(bench.operator.connection(&w2()), "Connecting");
    bench.pass(secs(40));
    assert_eq!(bench.operator.connection(&w1()), "Connected");
    assert_eq!(bench.operator.peer_volume(&w1()).resyncs_finished, Some(1));
    assert_eq!(bench.world.missing_on(&r1(), &w2()), []);
    assert_eq!(bench.world.lost_writes(), []);
}

#[test]
fn missing_counters_missing_peers_torn_reads_and_unknown_words() {
    let bench = Bench::pair();
    for fault in [
        Fault::NoCounters,
        Fault::NoIdentifiers,
        Fault::NoPeers,
        Fault::NoEvents,
        Fault::Torn,
        Fault::Garbled,
    ] {
        bench.script(Rule::new(CallKind::ReadStorage, fault));
    }
    let read = || bench.operator.storage(&w1());
    let volume = |reading: &executor_api::host::StorageReading| {
        reading.resources[&r1()].connections[&w2()].volumes[&0].clone()
    };
    assert_eq!(volume(&read()).out_of_sync_kib, None);
    assert_eq!(volume(&read()).generation, None);
    assert!(read().resources[&r1()].connections.is_empty());
    assert_eq!(read().split_brain_seen, None);
    assert!(!read().stable);
    assert_eq!(read().resources[&r1()].volumes[&0].disk.as_str(), "?");
    assert!(bench.fired("torn") == 1 && bench.fired("garbled") == 1);
    bench.script(Rule::new(CallKind::ReadStorage, Fault::Unreadable));
    let since = bench.world.start();
    let asked = [r1()].into();
    let unread = bench.operator.wait(executor_api::host::StorageProbe::storage(
        &bench.operator.seat,
        &w1(),
        &asked,
        since,
    ));
    assert!(unread.is_err());
}

#[test]
fn suspended_writes_wait_and_go_on_by_themselves_after_the_limit() {
    let spec = WorldSpec::pair().writing_every(std::time::Duration::from_millis(100));
    let mut bench = Bench::new(&spec);
    bench.operator.take_lock();
    bench.operator.pin_all();
    let limit = secs(20);
    bench.operator.host(&w1(), executor_api::host::HostAction::SuspendIo { resource: r1(), limit }).unwrap();
    bench.pass(secs(1));
    let reading = bench.operator.resource(&w1());
    assert_eq!((reading.suspended.user, reading.volumes[&0].upper_pending), (Some(true), Some(1)));
    bench.operator.disconnect(&w1(), &r1()).unwrap();
    bench.operator.disconnect(&w2(), &r1()).unwrap();
    let ids = [w1(), w2()].map(|node| bench.operator.peer_volume(&node).generation.unwrap());
    assert!(ids[0].current.same(ids[1].current), "nobody wrote, so no new generation began");
    bench.pass(secs(20));
    assert_eq!(bench.operator.resource(&w1()).suspended.user, Some(false));
    assert!(bench.operator.peer_volume(&w1()).out_of_sync_kib > Some(0));
}

#[test]
fn an_old_habit_begins_a_new_generation_without_a_write() {
    let manner = StorageManner { rotation: Rotation::AtOnce, ..StorageManner::default() };
    let mut bench = Bench::new(&WorldSpec { storage: manner, ..WorldSpec::pair() });
    bench.operator.take_lock();
    bench.operator.pin_all();
    bench.operator.disconnect(&w1(), &r1()).unwrap();
    let ids = [w1(), w2()].map(|node| bench.operator.peer_volume(&node).generation.unwrap());
    assert!(ids[0].bitmap.same(ids[1].current) && !ids[0].current.same(ids[1].current));
}

#[test]
fn under_protocol_a_an_acknowledged_write_can_be_on_one_disk_only() {
    let bench = Bench::pair();
    let protocol = Some(Protocol::A);
    bench.befall(&Incident::NetChanged {
        resource: r1(),
        protocol,
        after_split_brain: None,
        allow_two_primaries: None,
    });
    bench.world.write(&v1());
    assert_eq!(bench.operator.peer_volume(&w1()).pending, Some(1));
    assert_eq!(bench.world.missing_on(&r1(), &w2()).len(), 1);
    bench.pass(secs(1));
    assert_eq!(bench.world.missing_on(&r1(), &w2()), []);
}

#[test]
fn a_dead_link_is_noticed_late_and_heals_through_no_gate() {
    let spec = WorldSpec::pair().writing_every(std::time::Duration::from_millis(100));
    let bench = Bench::new(&spec);
    bench.befall(&Incident::CarrierLost { host: w1(), interface: interface("s0") });
    bench.befall(&Incident::CarrierLost { host: w1(), interface: interface("s1") });
    bench.pass(secs(5));
    assert_eq!(bench.operator.connection(&w1()), "Connected", "and writes stand still");
    bench.pass(secs(10));
    assert_eq!(bench.operator.connection(&w1()), "Connecting");
    bench.befall(&Incident::CarrierBack { host: w1(), interface: interface("s0") });
    bench.pass(secs(10));
    assert_eq!(bench.operator.connection(&w1()), "Connected");
    assert!(bench.world.is_in_sync());
}

#[test]
fn a_connect_that_never_leaves_connecting() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    bench.befall(&Incident::Blocked { resource: r1(), blocked: true });
    bench.operator.connect(&w1(), &r1()).unwrap();
    bench.operator.connect(&w2(), &r1()).unwrap();
    bench.pass(secs(600));
    for node in [w1(), w2()] {
        assert_eq!(bench.operator.connection(&node), "Connecting");
    }
}

#[test]
fn a_held_resync_stands_still() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    for _ in 0..5 {
        bench.world.write(&v1());
    }
    bench.befall(&Incident::ResyncHeld { resource: r1(), host: w2(), held: true });
    bench.operator.connect(&w1(), &r1()).unwrap();
    bench.operator.connect(&w2(), &r1()).unwrap();
    bench.pass(secs(30));
    assert_eq!(bench.operator.peer_volume(&w1()).replication, ReplicationState::PausedSyncS);
    bench.befall(&Incident::ResyncHeld { resource: r1(), host: w2(), held: false });
    bench.pass(secs(10));
    assert_eq!(bench.operator.peer_volume(&w1()).replication, ReplicationState::Established);
}

#[test]
fn roles_follow_the_machines() {
    let bench = Bench::pair();
    assert_eq!(bench.operator.resource(&w1()).role, Role::Primary);
    assert_eq!(bench.operator.resource(&w2()).connections[&w1()].peer_role, Role::Primary);
    bench.befall(&Incident::Stops { vm: v1() });
    assert_eq!(bench.operator.resource(&w1()).role, Role::Secondary);
}

#[test]
fn a_write_under_way_when_its_host_dies_is_not_owed_and_hides_nothing() {
    let bench = Bench::pair();
    bench.world.write(&v1());
    bench.befall(&Incident::HostDies { host: w1() });
    assert_eq!(bench.world.lost_writes(), []);
    assert_eq!(bench.world.whole_copies(&r1()).len(), 2);
}

#[test]
fn a_host_that_was_gone_for_a_moment_only_is_connected_to_nobody() {
    let spec = WorldSpec::pair().writing_every(std::time::Duration::from_millis(100));
    let bench = Bench::new(&spec);
    bench.befall(&Incident::HostDies { host: w1() });
    bench.pass(secs(2));
    assert_eq!(bench.operator.connection(&w2()), "Connected", "not noticed yet");
    bench.befall(&Incident::HostReturns { host: w1() });
    assert_eq!(bench.operator.connection(&w2()), "Connecting");
    bench.pass(secs(30));
    assert!(bench.world.is_in_sync());
}
