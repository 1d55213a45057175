//! Runs the cases of hosts: each on a fresh site in a runtime of its own, as those of executors are run.

use std::sync::Arc;

use crate::hosts::bench::HostBench;
use crate::hosts::cases::HOST_CASES;
use crate::hosts::harness::HostHarness;
use crate::report::{Report, Verdict};
use crate::runner::{UnknownCase, chosen, contained};

/// Runs every case, or the one named, or all of the promise named. Blocks; not to be called from within a runtime.
///
/// # Errors
/// There is no case of that name.
pub fn run_host_suite<H: HostHarness>(
    make: impl Fn() -> H,
    only: Option<&str>,
) -> Result<Report, UnknownCase> {
    run_host_suite_telling(make, only, |_, _| ())
}

/// The same, and says how each case ended as soon as it has.
///
/// # Errors
/// There is no case of that name.
pub fn run_host_suite_telling<H: HostHarness>(
    make: impl Fn() -> H,
    only: Option<&str>,
    mut tell: impl FnMut(&'static str, &Verdict),
) -> Result<Report, UnknownCase> {
    let mut report = Report::default();
    for case in chosen(HOST_CASES, only)? {
        let open = || {
            let bench = Arc::new(HostBench::new(make()));
            let patience = bench.patience();
            (bench, patience)
        };
        let close = async |bench: Arc<HostBench>| bench.clean_up().await;
        let verdict = contained(H::VIRTUAL_TIME, open, case.run, close);
        tell(case.name, &verdict);
        report.verdicts.push((case.name, verdict));
    }
    Ok(report)
}

/// Runs one case for a `#[test]`: prints a skip, panics with a failure.
///
/// # Panics
/// The promise is broken, the case is skipped against [`HostHarness::SKIPS`], or there is no such case.
pub fn run_host_named<H: HostHarness>(make: impl Fn() -> H, name: &str) {
    match run_host_suite(make, Some(name)) {
        Err(unknown) => panic!("{unknown}"),
        Ok(report) => {
            println!("{report}");
            assert!(report.is_pass(), "{report}");
            if let Some(expected) = H::SKIPS {
                let (skipped, listed) = (!report.skipped().is_empty(), expected.contains(&name));
                assert!(skipped == listed, "{report}\nHostHarness::SKIPS lists it: {listed}");
            }
        }
    }
}
