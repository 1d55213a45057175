//! The simulated hosts pass the suite of gated maintenance, and skip nothing.

use conformance::hosts::{HOST_CASES, SimulatedHosts, run_host_suite};
use conformance::{UnknownCase, run_suite};

conformance::host_suite!(SimulatedHosts::new);

#[test]
fn nothing_is_skipped() {
    let report = run_host_suite(SimulatedHosts::new, None).unwrap();
    assert_eq!((report.verdicts.len(), report.skipped()), (HOST_CASES.len(), Vec::new()));
}

#[test]
fn an_unknown_case_is_an_error() {
    let name = "dedup::no_such_case".to_owned();
    let unknown = run_host_suite(SimulatedHosts::new, Some(&name)).unwrap_err();
    let UnknownCase { name: named, instead } = unknown;
    assert_eq!(named, name);
    assert!(instead.contains("dedup::another_plan_has_ids_of_its_own"), "{instead}");
    // The two suites share a promise's name; each knows its own cases only.
    let of_hosts = Some("dedup::another_plan_has_ids_of_its_own");
    assert!(run_suite(conformance::fake::FakeHarness::crisp, of_hosts).is_err());
}
