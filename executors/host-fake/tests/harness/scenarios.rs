//! Scenario files, seeded weather, and copies of a world.

use std::sync::Arc;

use executor_api::host::{BondMode, HostAction, VmAction};
use executor_host_fake::{HostWorld, Incident, Scenario, Weather, WorldSpec};

use crate::support::*;

#[test]
fn a_scenario_is_read_written_and_lived_through() {
    let text = r#"{
        "about": "a pod comes back between two flips",
        "world": {
            "hosts": [
                { "name": "w1", "bond": { "name": "bond0", "mode": "active-backup", "members": ["s0", "s1"] } },
                { "name": "w2", "bond": { "name": "bond0", "mode": "active-backup", "members": ["s0", "s1"] } }
            ],
            "resources": [{ "name": "r1", "on": ["w1", "w2"], "blocks": [8] }],
            "vms": [{ "name": "v1", "resources": ["r1"], "runs_on": "w1", "eviction": "LiveMigrate", "writes_every": "250ms" }],
            "pace": { "flip_step": "1s" }
        },
        "incidents": [
            { "at": "20s", "what": { "stand_alone": { "resource": "r1", "host": "w1" } } },
            { "at": "30s", "what": { "pod_returns": { "host": "w1" } } },
            { "at": "40s", "what": { "migrates": { "vm": "v1", "to": "w2", "fate": { "stuck": { "ends_after": "5m" } } } } },
            { "at": "50s", "what": "lease_deleted" }
        ],
        "faults": [{ "call": "set_bond_mode", "fault": { "fails_after": { "steps": 2 } }, "host": "w1" }],
        "weather": { "seed": 7, "chances": [{ "call": "read_bond", "fault": "unreadable", "per_mille": 5 }] }
    }"#;
    let scenario: Scenario = serde_json::from_str(text).unwrap();
    let again: Scenario = serde_json::from_str(&serde_json::to_string(&scenario).unwrap()).unwrap();
    assert_eq!(scenario, again);
    let bench = Bench::of(&scenario);
    bench.pass(secs(25));
    assert_eq!(bench.operator.connection(&w1()), "StandAlone");
    bench.pass(secs(25));
    assert_eq!(bench.operator.connection(&w1()), "Connected");
    assert_eq!(bench.operator.picture().unfinished().count(), 1);
    assert!(serde_json::from_str::<Scenario>(&text.replace("\"about\"", "\"abuot\"")).is_err());
}

#[test]
fn worlds_that_make_no_sense_are_refused() {
    let mut spec = WorldSpec::pair();
    spec.vms[0].runs_on = Some(executor_api::host::HostName::new("w9").unwrap());
    let timer = Bench::pair().timer;
    let error = HostWorld::new(timer, &spec).unwrap_err();
    assert!(error.to_string().contains("v1 runs on w9"), "{error}");
}

#[test]
fn a_copy_of_a_world_lives_by_itself() {
    let mut bench = Bench::new(&instant());
    bench.operator.take_lock();
    bench.operator.prepare();
    let copy = bench.world.fork(Arc::<VirtualTimer>::clone(&bench.timer));
    let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
    bench.operator.apply(&flip).unwrap();
    assert_eq!(copy.bond(&w1()).unwrap().mode, BondMode::ActiveBackup);
    assert_eq!(bench.world.bond(&w1()).unwrap().mode, BondMode::BalanceRr);
    bench
        .operator
        .wait(executor_api::host::HostExecutor::apply(&copy.seat("op-a"), &flip, bench.world.now()))
        .unwrap();
    assert_eq!(copy.bond(&w1()).unwrap().mode, BondMode::BalanceRr);
}

/// A stubborn operator that tries everything and looks at nothing, in bad weather.
fn storm(seed: u64) -> (HostWorld, Vec<String>) {
    let spec = WorldSpec::pair().writing_every(std::time::Duration::from_millis(200));
    let mut bench = Bench::new(&spec);
    bench.operator.take_lock();
    bench.world.set_weather(Some(Weather::everything(seed, 12, None)));
    let op = &mut bench.operator;
    let limit = secs(5);
    for round in 0..6_u8 {
        let mode = if round % 2 == 0 { BondMode::BalanceRr } else { BondMode::ActiveBackup };
        for vm in [v1(), v2()] {
            let _ = op.vm(&vm, VmAction::Pin);
        }
        for node in [w1(), w2()] {
            let _ = op.host(&node, HostAction::SuspendIo { resource: r1(), limit });
            let _ = op.disconnect(&node, &r1());
            let _ = op.host(&node, HostAction::DrainSatellite);
            let original = original(&op.seat.world().bond(&node).unwrap());
            let operation =
                op.operation(&node, HostAction::SetBondMode { bond: bond0(), mode: mode.clone(), original });
            let outcome = op.apply(&operation);
            if outcome.is_err() {
                let _ = op.settle(&operation);
            }
            let gates = op.gates();
            let _ = op.host(&node, HostAction::UndrainSatellite { gates });
            let _ = op.connect(&node, &r1());
            let _ = op.host(&node, HostAction::ResumeIo { resource: r1() });
        }
        let picture = op.seat.world().vms();
        for vm in picture.vms.keys() {
            let original = op.seat.world().first_declared(vm).unwrap();
            let _ = op.vm(vm, VmAction::Restore { original });
        }
    }
    bench.pass(secs(60));
    let log = bench
        .world
        .log()
        .iter()
        .map(|event| format!("{:?} {} {}", event.at, event.place, event.what))
        .collect();
    (bench.world, log)
}

#[test]
fn the_same_seed_makes_the_same_history() {
    assert_eq!(storm(3).1, storm(3).1);
    assert_ne!(storm(3).1, storm(4).1);
}

#[test]
fn over_many_storms_every_fault_of_operations_fires_and_the_truth_stays_sane() {
    let mut fired = std::collections::BTreeMap::new();
    for seed in 0..40 {
        let (world, _) = storm(seed);
        for (name, count) in world.fired() {
            *fired.entry(name).or_insert(0) += count;
        }
        // Every copy is where the truth says, and content never comes from nowhere.
        for resource in [r1(), r2()] {
            for host in world.whole_copies(&resource) {
                assert_eq!(world.missing_on(&resource, &host), []);
            }
        }
    }
    for name in [
        "unavailable",
        "request-lost",
        "answer-lost",
        "hangs",
        "lands-late",
        "repeats",
        "slow",
        "refused",
        "fails",
        "done-nothing",
        "fails-after",
        "agent-dies",
        "member-missing",
        "routes-lost-in-flip",
        "not-persisted",
        "wrong-first",
        "reverts",
        "evicts-machines",
        "ends-early",
        "not-propagated",
        "no-shield",
        "restores-none",
        "landed",
    ] {
        assert!(fired.contains_key(name), "{name} never fired: {fired:?}");
    }
}

#[test]
fn incidents_that_name_what_is_not_there_come_to_nothing() {
    let bench = Bench::pair();
    let ghost = executor_api::host::VmName::new("ghost").unwrap();
    bench.world.befall(&Incident::Evicted { vm: ghost });
    assert!(bench.world.incidents().is_empty());
}
