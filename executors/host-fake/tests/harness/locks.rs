//! The lock: conditional writes, fences that only rise, a hold that outlives the lease, takeovers. (H26)

use executor_api::host::{
    ClusterLock, FenceValue, LeaseHolder, LeaseWatch, LockError, PlanHold, PlanUid, Takeover,
};
use executor_host_fake::{BreachKind, CallKind, Fault, Incident, Rule};

use crate::support::*;

#[test]
fn every_write_is_conditional_and_a_fence_never_returns() {
    let bench = Bench::pair();
    let op = &bench.operator;
    let first = op.lease.clone().unwrap();
    let renewed = op.wait(op.seat.renew(&first)).unwrap();
    assert_eq!((renewed.fence, renewed.version == first.version), (first.fence, false));
    assert!(matches!(op.wait(op.seat.renew(&first)), Err(LockError::Moved { .. })));
    assert!(matches!(op.wait(op.seat.acquire(&first.holder, secs(60), None)), Err(LockError::Moved { .. })));
    let again = op.wait(op.seat.acquire(&first.holder, secs(60), Some(&renewed.version))).unwrap();
    assert!(again.fence > first.fence, "also for the same holder");
    bench.befall(&Incident::LeaseDeleted);
    let anew = op.wait(op.seat.acquire(&first.holder, secs(60), None)).unwrap();
    assert!(anew.fence > again.fence, "also after the record was deleted");
    assert_eq!(bench.breaches(), []);
}

#[test]
fn a_hold_outlives_the_lease_and_keeps_other_plans_out() {
    let bench = Bench::pair();
    let op = &bench.operator;
    op.wait(op.seat.release(op.lease.as_ref().unwrap())).unwrap();
    let other = bench.other("op-b");
    let holder = LeaseHolder::new("op-b-1").unwrap();
    let lease = other.wait(other.seat.acquire(&holder, secs(60), None)).unwrap();
    let foreign = PlanHold { plan: PlanUid::new("plan-2").unwrap(), since: bench.world.now() };
    let placed = other.wait(other.seat.place_hold(&lease, &foreign));
    assert!(matches!(placed, Err(LockError::OtherPlan { .. })));
    other.wait(other.seat.lift_hold(&lease, &op.plan)).unwrap();
    other.wait(other.seat.lift_hold(&lease, &op.plan)).unwrap();
    assert_eq!(bench.world.lock().hold, None);
}

#[test]
fn a_reply_is_lost_and_the_renewal_stands() {
    let bench = Bench::pair();
    bench.script(Rule::new(CallKind::Renew, Fault::AnswerLost).seat("op-a"));
    let op = &bench.operator;
    let lease = op.lease.clone().unwrap();
    assert!(matches!(op.wait(op.seat.renew(&lease)), Err(LockError::Ambiguous { .. })));
    let records = op.wait(ClusterLock::read(&op.seat)).unwrap();
    assert_ne!(records.lease.unwrap().version, lease.version);
}

#[test]
fn taking_a_lease_that_is_alive_is_a_breach_and_watching_it_out_is_not() {
    let bench = Bench::pair();
    let mut lease = bench.operator.lease.clone().unwrap();
    let start = bench.world.now();
    let mut watch = LeaseWatch::new();
    let candidate = bench.other("op-b");
    let holder = LeaseHolder::new("op-b-1").unwrap();
    let look = |watch: &mut LeaseWatch| {
        let records = candidate.wait(ClusterLock::read(&candidate.seat)).unwrap();
        // Any clock of its own will do.
        let elapsed = bench.world.now().duration_since(start).unwrap() + secs(300);
        watch.look(records.lease.as_ref(), elapsed)
    };
    for _ in 0..20 {
        bench.pass(secs(5));
        lease = bench.operator.wait(bench.operator.seat.renew(&lease)).unwrap();
        assert!(matches!(look(&mut watch), Takeover::Held { .. }));
    }
    bench.pass(secs(55));
    assert!(matches!(look(&mut watch), Takeover::Held { .. }));
    bench.pass(secs(6));
    let Takeover::Expired { version } = look(&mut watch) else { panic!("it was watched for its whole time") };
    let taken = candidate.wait(candidate.seat.acquire(&holder, secs(60), Some(&version))).unwrap();
    assert_eq!(bench.breaches(), []);
    // And straight back, without waiting.
    let first = LeaseHolder::new("op-a-1").unwrap();
    candidate.wait(candidate.seat.acquire(&first, secs(60), Some(&taken.version))).unwrap();
    assert_eq!(bench.breaches(), [BreachKind::TakenWhileAlive]);
    assert_eq!(bench.world.lock().lease.unwrap().fence, FenceValue(3));
}
