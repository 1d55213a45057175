//! Plans that are rehearsed, looked at, refused and carried out.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use crate::desk::{Desk, example};

#[test]
fn a_plan_is_rehearsed_looked_at_refused_without_approval_and_carried_out() {
    let (desk, plan) = (Desk::new(), example("bond-flip.yaml"));
    let text = desk.ends(0, &["plan", &plan]);
    assert!(text.contains("Complete") && text.contains("0 lost") && text.contains("0 breaches"), "{text}");
    let text = desk.ends(0, &["run", &plan, "--observe", "--fast"]);
    assert!(text.contains("yes hosts ready") && text.contains("next: enter PreconditionsCheck"), "{text}");
    assert!(
        text.contains("asked later") && !text.contains("must be"),
        "nothing looks wrong that is not: {text}"
    );
    assert_eq!(desk.run(&["status", &plan]).0, 4, "nothing was begun");
    desk.ends(0, &["run", &plan, "--fast", "--approve"]);
    let text = desk.ends(0, &["status", &plan, "-o", "json"]);
    let status: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&status["label"], &status["over"]), (&json!("Complete"), &json!(true)));
    assert!(status["timeline"].as_array().unwrap().len() > 30);
    let text = desk.ends(3, &["run", &plan, "--fast", "--approve"]);
    assert!(text.contains("--again"), "{text}");
    desk.ends(0, &["run", &plan, "--fast", "--approve", "--again"]);
    let text = desk.ends(3, &["abort", &plan]);
    assert!(text.contains("is over"), "{text}");
}

#[test]
fn nothing_runs_without_an_approval_in_the_plan_and_one_on_the_command_line() {
    let desk = Desk::new();
    for (written, given) in [(true, false), (false, true), (false, false)] {
        let word = format!("approved: {written}");
        let plan = desk.plan("bond-flip", |text| text.replace("approved: true", &word));
        let given =
            if given { &["run", &plan, "--fast", "--approve"][..] } else { &["run", &plan, "--fast"] };
        let text = desk.ends(3, given);
        assert!(text.contains("is not approved") && text.contains("missing"), "{text}");
        desk.ends(4, &["status", &plan]);
        assert!(!desk.path("state").exists(), "nothing was made");
    }
    let silent = desk.plan("bond-flip", |text| text.replace("approved: true", ""));
    desk.ends(3, &["run", &silent, "--fast", "--approve"]);
}

/// Constant writes from a machine on either host; one of the two machines has no setting of its own.
fn completes(io: &str) {
    let desk = Desk::new();
    let io = format!("io: {io} #");
    let plan = desk.plan("bond-flip", |text| text.replace("io:", &io));
    let text = desk.ends(0, &["run", &plan, "--fast", "--approve", "-o", "json"]);
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let truth = &last["simulated_hosts"];
    assert_eq!((&last["phase"], &last["label"]), (&json!("Complete"), &json!("Complete")), "{text}");
    assert!(truth["acknowledged"].as_u64().unwrap() > 8, "{truth}");
    assert_eq!((&truth["lost"], &truth["missing_on_a_copy"]), (&json!(0), &json!(0)));
    assert_eq!((&truth["unrestored"], &truth["breaches"]), (&json!([]), &json!([])));
    let told = desk.ends(0, &["status", &plan, "--timeline"]);
    for line in ["v1: restore LiveMigrate", "v2: restore (not set)", "enter Complete"] {
        assert!(told.contains(line), "{line} is missing: {told}");
    }
}

#[test]
fn a_flip_with_io_continue_loses_no_write_and_gives_every_setting_back() {
    completes("continue");
}

#[test]
fn a_flip_with_io_quiesce_loses_no_write_and_gives_every_setting_back() {
    completes("{ quiesce: { suspend_for: 10m } }");
}

#[test]
fn quiesce_without_a_way_to_stop_writers_ends_where_it_began() {
    let desk = Desk::new();
    let plan = desk.plan("bond-flip", |text| text.replace("io: continue", "io: quiesce"));
    let text = desk.ends(2, &["run", &plan, "--fast", "--approve"]);
    assert!(text.contains("RevertedSafe") && text.contains("0 machines not as they were"), "{text}");
    let told = desk.ends(2, &["status", &plan, "--timeline"]);
    assert!(told.contains("quiet gate"), "it says why: {told}");
    // A phase is one in every place; in which way the plan is there stands beside it.
    let steps = desk.ends(2, &["run", &plan, "--fast", "--approve", "--again", "-o", "json"]);
    let steps: Vec<Value> = steps.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let known = |step: &Value| step["phase"].as_str().is_some_and(|phase| !phase.contains(' '));
    assert!(steps.iter().all(known), "{steps:#?}");
    let (last, status) = (steps.last().unwrap(), desk.status(&plan).unwrap());
    for key in ["phase", "label", "recovery", "over"] {
        assert_eq!(last[key], status[key], "{key}");
    }
    // The same as YAML: a document for each.
    let yaml = desk.ends(2, &["run", &plan, "--fast", "--approve", "--again", "-o", "yaml"]);
    assert_eq!(yaml.matches("---\n").count(), steps.len(), "{yaml}");
    assert!(yaml.contains("\nphase: ") && !yaml.contains('{'), "{yaml}");
}

#[test]
fn the_timeline_is_a_text_and_a_picture() {
    let (desk, plan) = (Desk::new(), example("bond-flip.yaml"));
    desk.ends(0, &["run", &plan, "--fast", "--approve"]);
    let text = desk.ends(0, &["status", &plan, "--timeline"]);
    assert!(text.lines().count() > 30 && text.contains("set bond0 to balance-rr"), "{text}");
    let picture = desk.path("flip.svg");
    desk.ends(0, &["status", &plan, "--svg", picture.to_str().unwrap()]);
    let picture = std::fs::read_to_string(picture).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("FlipNode2"), "{picture}");
    assert_eq!(picture.matches("<title>").count(), picture.matches("</title>").count());
}

#[test]
fn a_running_plan_is_watched_and_asked_to_go_back_from_another_process() {
    let desk = Desk::new();
    let plan = desk.plan_on("bond-flip", str::to_owned, |hosts| hosts.replace("pods: 300ms", "pods: 3s"));
    let mut driving = desk.drive(&plan);
    crate::desk::until("the drain", || (desk.status(&plan)?["phase"] == "DrainSatellite").then_some(()));
    let text = desk.ends(3, &["run", &plan, "--approve"]);
    assert!(text.contains("is being driven by process") && !text.contains("kill"), "{text}");
    let text = desk.ends(0, &["abort", &plan, "-o", "json"]);
    assert!(text.contains("the plan goes back"), "{text}");
    let text = desk.ends(2, &["status", &plan, "--watch"]);
    assert!(text.contains("RevertedSafe"), "{text}");
    assert_eq!(driving.ends(), Some(2));
    let told = desk.ends(2, &["status", &plan, "--timeline"]);
    assert!(told.contains("tester asked for the way back"), "{told}");
}

#[test]
fn a_plan_file_that_is_damaged_or_newer_is_told_as_such_and_left_as_it_is() {
    let (desk, plan) = (Desk::new(), example("bond-flip.yaml"));
    desk.ends(0, &["run", &plan, "--fast", "--approve"]);
    let file = desk.path("state/maintenance-bond-flip/plan.db");
    let whole = std::fs::read(&file).unwrap();
    let mut digit = whole.clone();
    let (from, to) = (b"\"retries\":0", b"\"retries\":7");
    let places: Vec<_> = (0..whole.len() - from.len()).filter(|at| whole[*at..].starts_with(from)).collect();
    for at in &places {
        digit[*at..*at + to.len()].copy_from_slice(to);
    }
    assert_ne!(digit, whole);
    // The version is a number in the file's head.
    let mut newer = whole.clone();
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    let cut = whole[..whole.len() / 2].to_vec();
    for (bytes, words) in [(digit, "damaged"), (cut, "damaged"), (newer, "use the newer program")] {
        std::fs::write(&file, &bytes).unwrap();
        for command in [
            &["status", &plan][..],
            &["run", &plan, "--fast", "--approve", "--again"],
            &["run", &plan, "--fast", "--observe"],
            &["abort", &plan],
            &["abort", &plan, "--give-up"],
        ] {
            let text = desk.ends(4, command);
            assert!(text.contains(words) && text.contains("plan"), "{command:?}: {text}");
            assert_eq!(std::fs::read(&file).unwrap(), bytes, "{command:?}");
        }
    }
    std::fs::write(&file, whole).unwrap();
    desk.ends(0, &["status", &plan]);
}
