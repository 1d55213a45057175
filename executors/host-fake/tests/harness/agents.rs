//! Agents: fences, one act per id, outcomes that are lost and settled, crashes in the middle.

use executor_api::host::{BondMode, FenceValue, HostAction, HostErrorKind, HostReport, Settled};
use executor_host_fake::{BreachKind, CallKind, Fault, Incident, Rule};

use crate::support::*;

#[test]
fn an_operator_that_slept_through_its_lease_is_refused_every_time() {
    for _ in 0..1000 {
        let mut bench = Bench::new(&instant());
        bench.operator.take_lock();
        bench.operator.prepare();
        // Its next operation is ready when it falls asleep.
        let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
        bench.pass(secs(61));
        let mut other = bench.other("op-b");
        other.take_lock();
        let theirs = other.flip(&w1(), BondMode::BalanceRr);
        other.apply(&theirs).unwrap();
        let error = bench.operator.apply(&flip).unwrap_err();
        assert_eq!(error.kind, HostErrorKind::StaleFence { highest: other.fence });
        assert_eq!(bench.breaches(), []);
    }
}

#[test]
fn an_agent_that_has_not_met_the_new_holder_lets_the_old_one_through_and_the_truth_says_so() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    let late = bench.operator.flip(&w2(), BondMode::BalanceRr);
    bench.pass(secs(61));
    let mut other = bench.other("op-b");
    other.take_lock();
    let theirs = other.flip(&w1(), BondMode::BalanceRr);
    other.apply(&theirs).unwrap();
    bench.operator.apply(&late).unwrap();
    assert_eq!(bench.breaches(), [BreachKind::HoldersInterleave]);
    // Settling anything on an agent makes it refuse from then on.
    let mut bench = Bench::pair();
    bench.operator.prepare();
    let late = bench.operator.flip(&w2(), BondMode::BalanceRr);
    bench.pass(secs(61));
    let mut other = bench.other("op-b");
    other.take_lock();
    assert_eq!(other.settle(&late).unwrap(), Settled::NeverBegun);
    assert!(bench.operator.apply(&late).is_err());
    assert_eq!(bench.world.highest_fence(&w2()), Some(FenceValue(2)));
}

#[test]
fn one_id_acts_once_also_across_a_restart_of_the_agent() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
    bench.operator.apply(&flip).unwrap();
    bench.befall(&Incident::AgentRestarts { host: w1() });
    let down = bench.operator.apply(&flip).unwrap_err();
    assert_eq!(down.kind, HostErrorKind::Unavailable);
    bench.pass(secs(5));
    assert_eq!(bench.operator.apply(&flip).unwrap(), HostReport::Done);
    let deeds = bench.world.deeds();
    assert_eq!(deeds.iter().filter(|deed| deed.id == flip.id).count(), 1);
    let mut other = flip.clone();
    other.action = HostAction::DrainSatellite;
    assert_eq!(bench.operator.apply(&other).unwrap_err().kind, HostErrorKind::Refused, "the id is taken");
}

#[test]
fn a_lost_answer_is_settled_and_a_lost_request_never_acts() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    bench.script(Rule::new(CallKind::SetBondMode, Fault::AnswerLost));
    let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
    assert_eq!(bench.operator.apply(&flip).unwrap_err().kind, HostErrorKind::Ambiguous);
    assert_eq!(bench.operator.settle(&flip).unwrap(), Settled::Done(HostReport::Done));
    bench.script(Rule::new(CallKind::SetBondMode, Fault::LandsLate { after: secs(30) }));
    let flip = bench.operator.flip(&w2(), BondMode::BalanceRr);
    assert_eq!(bench.operator.apply(&flip).unwrap_err().kind, HostErrorKind::Ambiguous);
    assert_eq!(bench.operator.settle(&flip).unwrap(), Settled::NeverBegun);
    bench.pass(secs(60));
    assert_eq!(bench.operator.bond(&w2()).mode, BondMode::ActiveBackup, "it was barred before it came");
    assert_eq!(bench.fired("landed"), 1);
    assert_eq!(bench.operator.apply(&flip).unwrap_err().kind, HostErrorKind::Refused);
}

#[test]
fn an_operation_that_lands_unsettled_acts_late() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    bench.script(Rule::new(CallKind::SetBondMode, Fault::LandsLate { after: secs(30) }));
    let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
    assert!(bench.operator.apply(&flip).is_err());
    assert_eq!(bench.operator.bond(&w1()).mode, BondMode::ActiveBackup);
    bench.pass(secs(60));
    assert_eq!(bench.operator.bond(&w1()).mode, BondMode::BalanceRr);
}

#[test]
fn settling_waits_for_what_is_under_way() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    bench.script(Rule::new(CallKind::SetBondMode, Fault::Slow { times: 10 }));
    let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
    let seat = bench.operator.seat.clone();
    let soon = bench.world.now() + secs(2);
    let given_up =
        bench.operator.wait(executor_api::host::HostExecutor::apply(&seat, &flip, soon)).unwrap_err();
    assert_eq!(given_up.kind, HostErrorKind::Ambiguous);
    assert_eq!(bench.operator.settle(&flip).unwrap(), Settled::Done(HostReport::Done));
    assert_eq!(bench.operator.bond(&w1()).mode, BondMode::BalanceRr);
}

#[test]
fn an_agent_dies_in_the_middle_and_the_outcome_is_certain_afterwards() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    bench.script(Rule::new(CallKind::SetBondMode, Fault::AgentDies { steps: 3 }));
    let flip = bench.operator.flip(&w1(), BondMode::BalanceRr);
    assert_eq!(bench.operator.apply(&flip).unwrap_err().kind, HostErrorKind::Ambiguous);
    bench.pass(secs(5));
    assert!(matches!(bench.operator.settle(&flip).unwrap(), Settled::Failed(_)));
    let bond = bench.operator.bond(&w1());
    assert_eq!((bond.up, bond.members.len()), (Some(false), 0), "half done");
    assert!(!bench.world.bond_is_whole(&w1()));
}

#[test]
fn an_operation_that_arrives_twice_acts_once() {
    let mut bench = Bench::pair();
    bench.operator.pin_all();
    bench.script(Rule::new(CallKind::Disconnect, Fault::Repeats { after: secs(5) }));
    bench.operator.disconnect(&w1(), &r1()).unwrap();
    bench.operator.connect(&w1(), &r1()).unwrap();
    bench.pass(secs(30));
    assert_eq!(bench.operator.connection(&w1()), "Connected", "the late twin did nothing");
    assert_eq!(bench.fired("repeats"), 1);
}

#[test]
fn two_operations_at_once_anywhere_are_a_breach() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    bench.script(Rule::new(CallKind::SetBondMode, Fault::LandsLate { after: secs(1) }).host(&w2()));
    let (second, first) =
        (bench.operator.flip(&w2(), BondMode::BalanceRr), bench.operator.flip(&w1(), BondMode::BalanceRr));
    assert!(bench.operator.apply(&second).is_err());
    bench.operator.apply(&first).unwrap();
    let kinds = bench.breaches();
    assert!(
        kinds.contains(&BreachKind::OperationsOverlap) && kinds.contains(&BreachKind::TwoBondsInTransition),
        "{kinds:?}"
    );
}

#[test]
fn gates_of_another_lease_are_refused_and_noticed() {
    let mut bench = Bench::pair();
    bench.operator.prepare();
    let gates = executor_api::host::GateToken { fence: FenceValue(7), ..bench.operator.gates() };
    let error = bench.operator.host(&w1(), HostAction::UndrainSatellite { gates }).unwrap_err();
    assert_eq!(error.kind, HostErrorKind::Refused);
    assert_eq!(bench.breaches(), [BreachKind::ReconnectWithoutGates]);
}

#[test]
fn a_fence_that_no_lease_had_and_a_cluster_that_is_not_held() {
    let mut bench = Bench::new(&instant());
    bench.operator.fence = FenceValue(9);
    bench.operator.host(&w1(), HostAction::DrainSatellite).unwrap();
    let kinds = bench.breaches();
    assert!(
        kinds.contains(&BreachKind::FenceNeverGranted) && kinds.contains(&BreachKind::WithoutHold),
        "{kinds:?}"
    );
}
