//! `plan` and `schema`: what is said before anything is done.

#![expect(clippy::unwrap_used, reason = "a test that cannot look has failed")]

use serde_json::Value;

use crate::lab::{Lab, signal, web};

fn plan(lab: &Lab, code: i32) -> Value {
    serde_json::from_str(&lab.ends(code, &["plan", "-o", "json"])).unwrap()
}

fn changes(plan: &Value) -> Vec<String> {
    let list = plan["changes"].as_array().unwrap();
    list.iter()
        .map(|c| format!("{} {}", c["change"].as_str().unwrap(), c["node"].as_str().unwrap()))
        .collect()
}

#[test]
fn a_plan_says_what_apply_would_do_and_makes_nothing() {
    let lab = Lab::with(&web("planned", 2, ""));
    let new = plan(&lab, 2);
    assert_eq!(changes(&new), ["create web-0", "create web-1"]);
    assert_eq!(new["outcome"], "converged");
    assert!(new["trajectory"].to_string().contains("start-bootstrap"));
    assert!(!lab.state_dir().exists(), "planning made something");

    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    let before = lab.attempts();
    let none = plan(&lab, 0);
    assert_eq!((changes(&none), none["trajectory"].as_array().unwrap().len()), (Vec::new(), 0), "{none:#}");
    assert!(lab.ok(&["plan"]).contains("nothing to do"));

    lab.write(
        &web("planned", 3, "    update: { max_unavailable: 1 }").replace("role: worker", "role: leader"),
    );
    let edit = plan(&lab, 2);
    assert_eq!(changes(&edit), ["replace web-0", "replace web-1", "create web-2"]);
    assert_eq!(
        (&edit["replacements"][0]["count"], &edit["replacements"][0]["at_once"]),
        (&2.into(), &1.into())
    );
    assert_eq!((&edit["accepted_generation"], &edit["planned_generation"]), (&1.into(), &2.into()));
    assert_eq!(edit["outcome"], "converged", "{edit:#}");
    assert!(edit["changes"][0]["why"].as_str().unwrap().contains("role"));
    assert!(lab.ends(2, &["plan"]).contains("2 node(s) replaced, 1 at a time"));

    lab.write(&web("planned", 1, ""));
    assert_eq!(changes(&plan(&lab, 2)), ["remove web-1"]);
    assert_eq!(lab.attempts(), before);
}

#[test]
fn timing_alone_is_a_change_that_touches_no_node() {
    let lab = Lab::with(&web("timing", 1, ""));
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    let before = lab.attempts();
    lab.write(&web("timing", 1, "").replace("stable_after: 0s", "stable_after: 5s"));
    let edit = plan(&lab, 2);
    assert_eq!((changes(&edit), &edit["settings_change"]), (Vec::new(), &true.into()));
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    assert_eq!((lab.attempts(), &lab.status()["generation"]), (before, &1.into()));
    plan(&lab, 0);
}

#[test]
fn a_scale_is_part_of_the_plan() {
    let lab = Lab::with(&web("planscale", 1, ""));
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    lab.ok(&["scale", "web=2", "-q", "--timeout", "30s"]);
    plan(&lab, 0);
    lab.write(&web("planscale", 3, ""));
    let edit = plan(&lab, 2);
    assert_eq!(changes(&edit), ["create web-2"]);
    assert!(edit["notices"][0].as_str().unwrap().contains("dropped"));
}

#[test]
fn the_fake_provider_can_be_declared_and_driven() {
    let text = "run: imaginary\ngroups:\n  - name: vm\n    count: 4\n    provider: fake\n    \
                shape: { create: 20ms, endpoint: at-once }\n    boot: { start: 10ms, join: 30ms, complete: 1ms }\n";
    let lab = Lab::with(text);
    lab.ok(&["apply", "-q", "--timeout", "20s"]);
    assert!(lab.ok(&["status"]).contains("4 of 4 ready"));
    lab.destroy();
}

#[test]
fn the_schema_and_the_examples_agree() {
    let lab = Lab::new();
    let schema: Value = serde_json::from_str(&lab.ok(&["schema"])).unwrap();
    assert_eq!(
        schema["$defs"]["GroupSettings"]["properties"]["provider"]["enum"],
        serde_json::json!(["fake", "process"])
    );
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/local.yaml");
    assert!(lab.ok(&["validate", "-f", example]).contains("3 node(s): valid"));
}

#[test]
fn status_yaml_reads_as_the_same_document() {
    let lab = Lab::with(&web("formats", 1, ""));
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    let yaml = lab.ok(&["status", "-o", "yaml"]);
    assert!(yaml.contains("run: formats") && yaml.contains("ready: true"), "{yaml}");
    let json = lab.status();
    for key in ["run", "generation", "observed_generation", "converged", "nodes", "overrides", "holds"] {
        assert!(json.get(key).is_some(), "status has no {key}");
    }
    for key in ["id", "attempt", "stage", "ready", "endpoint", "why", "until", "failures", "last_error"] {
        assert!(json["nodes"][0].get(key).is_some(), "a node has no {key}");
    }
}

#[test]
fn watch_shows_what_happens_while_somebody_drives() {
    let lab = Lab::with(&web("watched", 1, ""));
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    assert!(lab.ends(1, &["watch"]).contains("nobody drives"));
    let _run = lab.run();
    lab.converged(1);
    let mut watch = lab.background(&["watch", "--events"]);
    let mut nodes = lab.background(&["watch"]);
    crate::lab::wait("the first state", 5, || nodes.output().contains("web-0"));
    signal(lab.pids("web-0")[0], "KILL");
    crate::lab::wait("the healing to be shown", 10, || {
        watch.output().contains("begin-delete")
            && watch.output().contains("restart")
            && nodes.output().contains("ready")
    });
    assert_eq!((watch.terminate(), nodes.terminate()), (0, 0));
}
