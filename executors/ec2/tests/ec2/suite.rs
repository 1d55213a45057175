//! The shared suite, all of it: nothing is skipped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conformance::{CASES, Verdict, run_suite};
use executor_ec2::conformance::Ec2Harness;

use crate::world::Region;

/// Cases that run side by side; each has a region of its own.
const SIDE_BY_SIDE: usize = 4;

/// A case, once in each way in which the faults that it asks for can happen: name and way with what came of it.
fn in_every_way(name: &str) -> Vec<(String, Verdict)> {
    let ways = Arc::new(AtomicUsize::new(1));
    let mut verdicts = Vec::new();
    while verdicts.len() < ways.load(Ordering::Relaxed) {
        let way = verdicts.len();
        let report = run_suite(|| Ec2Harness::in_way(way, &ways), Some(name)).expect("the name is a case's");
        verdicts.extend(
            report.verdicts.into_iter().map(|(name, verdict)| (format!("{name}, way {way}"), verdict)),
        );
    }
    verdicts
}

/// All cases in one test, and not one each through `conformance::suite!`: where there is no world, nothing is run and
/// nothing has failed, and they go side by side in regions of their own.
#[test]
fn the_shared_suite() {
    // Whether there is a world at all is settled before all of them find out.
    if Region::take().is_none() {
        return;
    }
    let next = AtomicUsize::new(0);
    let verdicts = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..SIDE_BY_SIDE)
            .map(|_| {
                scope.spawn(|| {
                    let mut done = Vec::new();
                    while let Some(case) = CASES.get(next.fetch_add(1, Ordering::Relaxed)) {
                        done.extend(in_every_way(case.name));
                    }
                    done
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    let in_the_first = verdicts.iter().filter(|(name, _)| name.ends_with(", way 0"));
    assert_eq!(in_the_first.count(), CASES.len());
    assert!(verdicts.len() > CASES.len() + 30, "faults come in several ways: {}", verdicts.len());
    let told = |name: &str, verdict: &Verdict| match verdict {
        Verdict::Ok => None,
        Verdict::Failed(why) => Some(format!("FAILED {name}: {why}")),
        Verdict::Skipped(why) => Some(format!("skipped {name}: {why}")),
    };
    let not_ok: Vec<_> = verdicts.iter().filter_map(|(name, verdict)| told(name, verdict)).collect();
    assert_eq!(not_ok, [""; 0], "of {} cases", CASES.len());
}
