//! One arbiter: a node whose host is under maintenance is not replaced by the cluster reconciler, however suspect it
//! looks, and is again once the plan is over.

use reconciler_core::HoldBy;
use reconciler_core::maintenance::{IoPolicy, Phase};
use reconciler_driver::maintenance::hold_of;

use crate::bench::{Bench, HOUR, busy};

#[test]
fn a_plan_holds_its_nodes_from_before_the_lock_until_it_is_over() {
    let mut bench = Bench::new(&busy(), IoPolicy::Continue);
    let mut driver = bench.start();
    let mut seen = std::collections::BTreeMap::new();
    bench.drive(&mut driver, HOUR, |driver, _| {
        let hold = hold_of(driver.plan(), driver.state());
        if let Some(hold) = &hold {
            assert_eq!(hold.by, HoldBy::Maintenance);
            assert!(hold.reason.contains("w1 and w2"), "{}", hold.reason);
        }
        seen.insert(driver.state().phase, hold.is_some());
    });
    for (phase, held) in seen {
        assert_eq!(held, (Phase::AcquireLock..Phase::Complete).contains(&phase), "{phase}");
    }
}
