//! What is wrong with a plan's file is told at its place, with what is allowed there.

use serde_json::Value;

use crate::desk::Desk;

/// Replaces one thing in the example; what `plan` says to that.
fn told(from: &str, to: &str) -> String {
    let desk = Desk::new();
    let plan = desk.plan("bond-flip", |text| {
        assert!(text.contains(from), "{from}");
        // The comment above is for readers, and grows.
        let first = text.find("\nname:").map_or(0, |at| at + 1);
        text[first..].replace(from, to)
    });
    let text = desk.ends(1, &["plan", &plan]);
    text.replace(&plan, "plan.yaml")
}

#[test]
fn an_unknown_key_is_told_with_its_line_and_the_one_that_was_meant() {
    let text = told("\nbond:", "\nbnd:");
    assert!(text.contains("plan.yaml:3:1: unknown field `bnd`; do you mean `bond`?"), "{text}");
    assert!(text.contains("3 | bnd: bond0\n    | ^"), "{text}");
}

#[test]
fn a_plan_without_an_io_policy_is_refused_and_told_both() {
    let text = told("io: continue", "#");
    assert!(text.contains("io: ") && text.contains("no default"), "{text}");
    assert!(text.contains("`io: continue`") && text.contains("quiesce"), "{text}");
    let text = told("io: continue", "io: contineu");
    assert!(text.contains("plan.yaml:7:1: unknown variant `contineu`; do you mean `continue`?"), "{text}");
}

#[test]
fn durations_are_texts_with_units() {
    let text = told("io: continue", "io: { quiesce: { suspend_for: 10 } }");
    assert!(text.contains("plan.yaml:7:31") && text.contains("\"1m30s\""), "{text}");
}

#[test]
fn everything_that_makes_no_sense_is_told_at_once_and_in_order() {
    let text = told("[w1, w2]", "[w1, w1]");
    assert!(text.contains("plan.yaml:2:1: nodes: the two hosts must differ"), "{text}");
    let text = told("to: balance-rr", "to: active-backup\npace: { retry_cap: 0 }");
    let (mode, pace) =
        (text.find("has that mode already").unwrap(), text.find("the first try counts").unwrap());
    assert!(mode < pace && text.contains("pace.retry_cap"), "{text}");
}

#[test]
fn hosts_that_cannot_be_read_are_told_with_their_file() {
    let text = told("bond-flip-hosts.yaml", "nowhere.yaml");
    assert!(text.contains("nowhere.yaml") && text.contains("simulated hosts"), "{text}");
}

#[test]
fn nodes_of_the_run_that_do_not_exist_are_only_known_once_the_run_is() {
    let desk = Desk::new();
    let plan = desk.plan("bond-flip", |text| format!("{text}cluster: {{ run: demo, nodes: [\"web 1\"] }}\n"));
    let text = desk.ends(1, &["plan", &plan]);
    assert!(text.contains("web 1"), "{text}");
    let plan = desk.plan("bond-flip", |text| format!("{text}cluster: {{ run: demo, nodes: [web-1] }}\n"));
    desk.ends(0, &["plan", &plan]);
    let text = desk.ends(3, &["run", &plan, "--approve", "--fast"]);
    assert!(text.contains("--fast"), "{text}");
}

#[test]
fn the_schema_is_json_and_knows_every_key() {
    let desk = Desk::new();
    let schema: Value = serde_json::from_str(&desk.ends(0, &["schema"])).unwrap();
    assert_eq!(schema["title"], "Maintenance plan");
    assert!(schema["properties"]["io"].is_object() && schema["additionalProperties"] == false, "{schema:#}");
}
