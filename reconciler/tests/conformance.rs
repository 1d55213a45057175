//! `reconciler conformance` and `reconciler simulate` as a provider author uses them.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Command, Stdio};

fn conformance(args: &[&str]) -> (i32, String, String) {
    reconciler("conformance", args)
}

fn reconciler(verb: &str, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reconciler"));
    let out = command.arg(verb).args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().unwrap(), text(&out.stdout), text(&out.stderr))
}

#[test]
fn every_case_has_a_line_and_the_sums_are_right() {
    let (code, out, _) = conformance(&["template"]);
    assert_eq!(code, 0, "{out}");
    let starting = |word: &str| out.lines().filter(|line| line.starts_with(word)).count();
    let (ok, skipped) = (starting("ok "), starting("skipped "));
    assert_eq!(out.lines().last().unwrap(), format!("{ok} ok, 0 failed, {skipped} skipped"));
    assert!(ok > 60 && ok + skipped == out.lines().count() - 1, "{out}");
    let unexplained = out.lines().filter(|line| line.starts_with("skipped ") && !line.contains(": "));
    assert_eq!(unexplained.count(), 0, "a skip says why:\n{out}");
}

#[test]
fn one_case_or_one_promise_can_be_asked_for_as_a_document() {
    let case = "adoption::adopt_only_makes_no_lease";
    let (code, out, _) = conformance(&["fake", "--case", case, "-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["ok"]), (0, &serde_json::json!(1)), "{out}");
    assert_eq!(report["cases"], serde_json::json!([{ "name": case, "verdict": "ok" }]));
    let (code, out, _) = conformance(&["fake", "--case", "adoption"]);
    assert_eq!(code, 0, "{out}");
    assert!(
        out.lines().count() > 10 && out.lines().rev().skip(1).all(|line| line.starts_with("ok adoption::"))
    );
}

#[test]
fn an_unknown_case_names_those_that_could_be_meant() {
    let (code, _, error) = conformance(&["fake", "--case", "dedup::no_such"]);
    assert_eq!(code, 1);
    assert!(
        error.contains("no case \"dedup::no_such\"; those of dedup are dedup::a_lease_is_made_once"),
        "{error}"
    );
    let (code, _, error) = conformance(&["fake", "--case", "no_such"]);
    assert_eq!(code, 1);
    assert!(error.contains("a promise (dedup, adoption, absent,"), "{error}");
}

#[test]
fn an_unknown_provider_names_those_that_can_be_tried() {
    let (code, out, error) = conformance(&["cloud"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(
        error.contains("no provider \"cloud\"")
            && error.contains("fake, process")
            && error.contains("template"),
        "{error}"
    );
}

#[cfg(feature = "host-fake")]
#[test]
fn the_simulated_hosts_pass_the_suite_of_maintenance() {
    let (code, out, _) = conformance(&["host-fake", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["failed"], &report["skipped"]), (0, &0.into(), &0.into()), "{out}");
    assert!(report["ok"].as_u64().unwrap() > 100, "{out}");
    let case = "lock_hold::a_hold_outlives_its_lease";
    let (code, out, _) = conformance(&["host-fake", "--case", case]);
    assert_eq!((code, out), (0, format!("ok {case}\n1 ok, 0 failed, 0 skipped\n")));
    let (code, _, error) = conformance(&["host-fake", "--case", "adoption::adopt_only_makes_no_lease"]);
    assert_eq!(code, 1);
    assert!(error.contains("no case \"adoption::adopt_only_makes_no_lease\""), "{error}");
}

#[test]
fn a_small_batch_of_schedules_says_what_it_proves_nothing_about() {
    let (code, out, error) = reconciler("simulate", &["--seeds", "3", "--steps", "20"]);
    assert_eq!(code, 0, "{out}{error}");
    assert!(out.starts_with("3 schedules"), "{out}");
    assert!(error.contains("these never happened, so nothing is proved about them"), "{error}");
    let (code, out, error) = reconciler("simulate", &["--seeds", "0"]);
    assert_eq!((code, out.as_str()), (1, ""), "{error}");
    assert!(error.contains("--seeds"), "{error}");
}

#[test]
fn one_schedule_is_told_from_its_shape_to_its_end() {
    let (code, out, _) = reconciler("simulate", &["--seed", "7", "--story"]);
    assert_eq!(code, 0, "{out}");
    assert_eq!(out.lines().last(), Some("-> nothing that must not be"));
    assert!(out.lines().count() > 50, "{out}");
}
