//! One arbiter: nodes whose hosts are under maintenance are left alone by the run that they belong to, whatever becomes
//! of either process, and are taken back when the plan is over.
#![expect(clippy::unwrap_used, reason = "a test that cannot look has failed")]

use std::path::Path;

use serde_json::Value;

use crate::lab::{Background, Lab, signal, wait, web};

/// A plan on simulated hosts of its own, which freezes and asks, for one node of the lab's run.
fn plan(lab: &Lab) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let read = |name: &str| std::fs::read_to_string(examples.join(name)).unwrap();
    let pace =
        "world:\n  pace: { operation: 50ms, flip_step: 50ms, pods: 1s, probe: 100ms, handshake: 100ms }\n";
    let hosts =
        read("bond-flip-broken-hosts.yaml").replacen("world:\n", pace, 1).replace("at: 12s", "at: 3s");
    std::fs::write(lab.path().join("bond-flip-broken-hosts.yaml"), hosts).unwrap();
    let text = read("bond-flip-broken.yaml") + "cluster: { run: held, nodes: [web-1] }\n";
    let path = lab.path().join("plan.yaml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn node(lab: &Lab, id: &str) -> Value {
    let status = lab.status();
    status["nodes"].as_array().unwrap().iter().find(|node| node["id"] == id).cloned().unwrap()
}

/// The run's holds in words.
fn holds(lab: &Lab) -> Vec<String> {
    let status = lab.status();
    let hold = |hold: &Value| format!("{} by {}: {}", hold["node"], hold["by"], hold["reason"]);
    status["holds"].as_array().unwrap().iter().map(hold).collect()
}

/// Ends the program of a node, and waits until the one who drives has heard of it.
fn kill(lab: &Lab, id: &str) {
    for pid in lab.pids(id) {
        signal(pid, "KILL");
    }
    wait("the node's processes to end", 20, || lab.pids(id).is_empty());
}

/// The fingerprint of the plan's question, once it is another than this one.
fn frozen(lab: &Lab, plan: &str, before: Option<&str>) -> String {
    let mut fingerprint = None;
    wait("the plan's question", 60, || {
        let output = lab.output(&["maintenance", "status", plan, "-o", "json"]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        fingerprint = status["question"]["fingerprint"].as_str().map(str::to_owned);
        fingerprint.is_some() && fingerprint.as_deref() != before
    });
    fingerprint.unwrap()
}

fn drive_plan(lab: &Lab, plan: &str) -> Background {
    lab.background(&["maintenance", "run", plan, "--approve", "--again", "--who", "ann"])
}

#[test]
fn a_node_under_maintenance_is_not_replaced_until_the_plan_is_over_whoever_crashes() {
    let lab = Lab::with(&web("held", 3, ""));
    lab.ok(&["apply", "-q", "--timeout", "60s"]);
    let first = lab.attempts();
    let plan = plan(&lab);
    let mut run = lab.run();
    let mut driving = drive_plan(&lab, &plan);
    let first_question = frozen(&lab, &plan, None);
    assert_eq!(holds(&lab).len(), 1, "{:?}", holds(&lab));
    assert!(
        holds(&lab)[0].starts_with("\"web-1\" by \"maintenance\": \"plan bond-flip-broken-"),
        "{:?}",
        holds(&lab)
    );
    // A node that is not held is replaced; the held one is not, though it is just as dead.
    kill(&lab, "web-1");
    kill(&lab, "web-2");
    wait("the node that is not held to be replaced", 60, || {
        let free = node(&lab, "web-2");
        free["attempt"].as_u64() > first.get("web-2").copied() && free["ready"] == true
    });
    assert_eq!(node(&lab, "web-1")["attempt"].as_u64(), first.get("web-1").copied());
    let why = lab.explain("web-1").to_string();
    assert!(why.contains("maintenance") && why.contains("works on w1 and w2"), "{why}");
    // The cluster's driver dies: its successor holds before its first pass.
    run.kill();
    let mut run = lab.run();
    assert_eq!(holds(&lab).len(), 1);
    // The plan's driver dies in the middle: nobody knows how the hosts are, and nothing is taken back.
    driving.kill();
    run.kill();
    let _run = lab.run();
    assert_eq!(holds(&lab).len(), 1);
    assert_eq!(node(&lab, "web-1")["attempt"].as_u64(), first.get("web-1").copied());
    // Begun anew, frozen again, and ended by a person: from then on the node is replaced.
    let mut driving = drive_plan(&lab, &plan);
    let question = frozen(&lab, &plan, Some(&first_question));
    lab.ok(&[
        "maintenance",
        "respond",
        &plan,
        "--question",
        &question,
        "--answer",
        "hand-over",
        "--who",
        "ann",
    ]);
    assert_eq!(driving.wait(), 2);
    wait("the node to be taken back", 60, || {
        let node = node(&lab, "web-1");
        node["attempt"].as_u64() > first.get("web-1").copied() && node["ready"] == true
    });
    assert_eq!(holds(&lab), Vec::<String>::new());
}

#[test]
fn a_run_that_nobody_drives_is_held_all_the_same_and_a_plan_that_is_given_up_lets_it_go() {
    let lab = Lab::with(&web("held", 2, ""));
    lab.ok(&["apply", "-q", "--timeout", "60s"]);
    let plan = plan(&lab);
    let mut driving = drive_plan(&lab, &plan);
    frozen(&lab, &plan, None);
    assert_eq!(holds(&lab).len(), 1, "stored, for whoever drives next");
    let before = lab.attempts();
    kill(&lab, "web-1");
    // Whoever drives it now leaves the node as it is. What is held is at most suspect, and said to be held.
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    assert_eq!(lab.attempts(), before);
    assert_eq!(holds(&lab).len(), 1);
    driving.kill();
    lab.ok(&["maintenance", "abort", &plan, "--give-up", "--who", "ann"]);
    assert_eq!(holds(&lab), Vec::<String>::new());
    lab.ok(&["apply", "-q", "--timeout", "60s"]);
    assert!(lab.attempts()["web-1"] > before["web-1"]);
}

#[test]
fn a_plan_for_nodes_that_the_run_does_not_have_is_refused_at_its_place() {
    let lab = Lab::with(&web("held", 1, ""));
    lab.ok(&["apply", "-q", "--timeout", "60s"]);
    let plan = plan(&lab);
    let text = std::fs::read_to_string(&plan).unwrap().replace("[web-1]", "[web-1, web-9]");
    std::fs::write(&plan, text).unwrap();
    let text = lab.ends(1, &["maintenance", "run", &plan, "--approve"]);
    assert!(text.contains("run held has no node web-9") && text.contains("plan.yaml:13:"), "{text}");
    assert_eq!(holds(&lab), Vec::<String>::new());
}

#[test]
fn a_plan_whose_run_does_not_answer_waits_says_why_and_can_be_called_off() {
    let lab = Lab::with(&web("held", 2, ""));
    let run = lab.run();
    lab.converged(2);
    let plan = plan(&lab);
    let text = std::fs::read_to_string(&plan).unwrap() + "pace: { dwell: 1s }\n";
    std::fs::write(&plan, text).unwrap();
    let pid = i32::try_from(run.id()).unwrap();
    signal(pid, "STOP");
    let mut driving = drive_plan(&lab, &plan);
    wait("the plan to wait", 40, || driving.output().contains("waiting for run held"));
    assert!(driving.output().contains("is it suspended?"), "{}", driving.output());
    let said = lab.ok(&["maintenance", "abort", &plan, "--who", "ann"]);
    assert!(said.contains("goes back"), "{said}");
    assert_eq!(driving.wait(), 2);
    let told = driving.output();
    assert!(told.contains("RevertedSafe") && told.contains("nothing was touched"), "{told}");
    signal(pid, "CONT");
    assert_eq!(holds(&lab), Vec::<String>::new());
}

#[test]
fn a_plan_that_is_stopped_by_a_signal_says_what_is_left_and_how_to_go_on() {
    let lab = Lab::with(&web("held", 2, ""));
    lab.ok(&["apply", "-q", "--timeout", "60s"]);
    let plan = plan(&lab);
    let mut driving = drive_plan(&lab, &plan);
    frozen(&lab, &plan, None);
    assert_eq!(driving.terminate(), 2);
    let said = driving.output();
    for part in [
        "stopped by a signal while Escalated",
        "run held goes on leaving its nodes alone",
        "--again",
        "--give-up",
    ] {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
    assert_eq!(holds(&lab).len(), 1);
    lab.ok(&["maintenance", "abort", &plan, "--give-up"]);
    assert_eq!(holds(&lab), Vec::<String>::new());
}

#[test]
fn a_link_that_cannot_be_read_stops_no_run_and_releases_nothing() {
    let lab = Lab::with(&web("held", 2, ""));
    lab.ok(&["apply", "-q", "--timeout", "60s"]);
    let plan = plan(&lab);
    let mut driving = drive_plan(&lab, &plan);
    frozen(&lab, &plan, None);
    driving.kill();
    let link = lab.state_dir().join("maintenance-bond-flip-broken/cluster.json");
    std::fs::write(&link, "").unwrap();
    let said = lab.ok(&["apply", "-q", "--timeout", "30s"]);
    assert!(said.contains("cluster.json") && said.contains("--give-up"), "{said}");
    let run = lab.run();
    lab.converged(2);
    // It looks at the plans every two seconds, and says the same thing once.
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(run.output().matches("cluster.json").count(), 1, "{}", run.output());
    assert_eq!(holds(&lab).len(), 1, "what it held stays held");
    lab.ok(&["maintenance", "abort", &plan, "--give-up"]);
    wait("the node to be let go", 20, || holds(&lab).is_empty());
}
