//! The fake executor passes the suite, in a crisp world and in a hazy one.

use conformance::fake::FakeHarness;
use conformance::{UnknownCase, Verdict, run_suite};

mod crisp {
    use super::FakeHarness;
    conformance::suite!(FakeHarness::crisp);
}

mod hazy {
    use super::FakeHarness;
    conformance::suite!(FakeHarness::hazy);
}

#[test]
fn only_what_the_world_cannot_suffer_is_skipped() {
    let skipped = |make: fn() -> FakeHarness| {
        let verdicts = run_suite(make, None).unwrap().verdicts.into_iter();
        let skips = verdicts.filter_map(|(name, verdict)| match verdict {
            Verdict::Skipped(why) => Some(format!("{name}: {why}")),
            Verdict::Ok | Verdict::Failed(_) => None,
        });
        skips.collect::<Vec<_>>()
    };
    assert_eq!(
        skipped(FakeHarness::crisp),
        ["adoption::a_lease_that_lands_late_is_adopted: in this world nothing lands late"]
    );
    assert_eq!(skipped(FakeHarness::hazy), Vec::<String>::new());
}

#[test]
fn an_unknown_case_is_an_error() {
    let name = "dedup::no_such_case".to_owned();
    let unknown = run_suite(FakeHarness::crisp, Some(&name));
    let UnknownCase { name: named, instead } = unknown.unwrap_err();
    assert_eq!(named, name);
    assert!(instead.starts_with("those of dedup are dedup::a_lease_is_made_once"), "{instead}");
    let unknown = run_suite(FakeHarness::crisp, Some("dedupe")).unwrap_err().to_string();
    assert!(unknown.contains("a promise (dedup, adoption, absent,"), "{unknown}");
}
