//! Nodes that do not come up, or do not stay up: how they are retried, and what their user is told.

use crate::lab::{Lab, wait, web};

/// A group of one whose program is this, with quick retries.
fn broken(run: &str, command: &str, more: &str) -> String {
    format!(
        "run: {run}\ngroups:\n  - name: bad\n    count: 1\n    provider: process\n    shape: {{ ports: [http] }}\n    \
         boot:\n      command: {command}\n      \
         ready: {{ http: \"http://127.0.0.1:{{port.http}}/healthz\", every: 50ms }}\n{more}"
    )
}

#[test]
fn a_program_that_exits_at_once_is_retried_at_doubling_delays_and_explain_says_when() {
    let lab = Lab::with(&broken("exits", "[\"false\"]", "retry: { initial: 2s }\n"));
    let _run = lab.run();
    let mut delays = Vec::new();
    for failures in 1..=2 {
        let mut explained = serde_json::Value::Null;
        wait(&format!("failure {failures} to be waited out"), 30, || {
            explained = lab.explain("bad-0");
            explained["node"]["failures"] == failures
                && explained["node"]["until"].is_string()
                && explained["step"] == "wait"
                && explained["node"]["why"].as_str().unwrap().starts_with("restart delayed")
        });
        let why = explained["node"]["why"].as_str().unwrap();
        assert!(why.contains("exit"), "the exit status is told: {why}");
        delays.push(explained["node"]["until"].as_str().unwrap().to_owned());
    }
    assert!(delays.is_sorted(), "{delays:?}");
    assert!(lab.ok(&["explain", "bad-0"]).contains("failures"));
}

#[test]
fn a_node_that_dies_soon_after_it_was_ready_is_delayed_too() {
    let command =
        r#"["{self}", "demo-node", "--port", "{port.http}", "--exit-after", "400ms", "--exit-status", "7"]"#;
    let lab = Lab::with(&broken("shortlived", command, "retry: { initial: 100ms }\n"));
    let _run = lab.run();
    wait("three failures in a row", 20, || lab.explain("bad-0")["node"]["failures"].as_u64() >= Some(3));
    let history = lab.explain("bad-0")["history"].to_string();
    assert!(
        history.contains("joined") || history.contains("complete-bootstrap"),
        "it was ready in between: {history}"
    );
}

#[test]
fn a_node_that_never_becomes_ready_fails_at_its_join_deadline() {
    let command = r#"["{self}", "demo-node", "--port", "{port.http}", "--ready-after", "1h"]"#;
    let lab = Lab::with(&broken("never", command, "    join: { within: 2s }\nretry: { initial: 100ms }\n"));
    let _run = lab.run();
    wait("its deadline to be shown", 10, || {
        let explained = lab.explain("bad-0");
        explained["node"]["stage"] == "bootstrap-running" && explained["node"]["until"].is_string()
    });
    wait("two deadlines to pass", 15, || lab.explain("bad-0")["node"]["failures"].as_u64() >= Some(2));
    let explained = lab.explain("bad-0").to_string();
    assert!(explained.contains("join"), "{explained}");
}

#[test]
fn apply_gives_up_at_its_timeout_and_names_what_is_in_the_way() {
    let command = r#"["{self}", "demo-node", "--port", "{port.http}", "--ready-after", "1h"]"#;
    let lab = Lab::with(&broken("late", command, "    join: { within: 60s }\n"));
    let said = lab.ends(2, &["apply", "-q", "--timeout", "3s"]);
    assert!(said.contains("bad-0") && said.contains("not joined yet"), "{said}");
    // What was begun is there, and the next command goes on with it.
    assert_eq!(lab.status()["nodes"][0]["stage"], "bootstrap-running");
}

#[test]
fn who_only_follows_says_that_the_other_drives_on() {
    let command = r#"["{self}", "demo-node", "--port", "{port.http}", "--ready-after", "1h"]"#;
    let lab = Lab::with(&broken("followed", command, "    join: { within: 60s }\n"));
    let mut run = lab.run();
    let mut follower = lab.background(&["apply"]);
    wait("the follower to follow", 20, || follower.output().contains("bad-0"));
    assert_eq!(follower.terminate(), 2);
    let said = follower.output();
    assert!(said.contains("no longer followed") && said.contains("goes on"), "{said}");
    assert!(!said.contains("stopped driving"), "{said}");
    assert_eq!(lab.status()["driver_pid"], run.id());
    assert_eq!(run.terminate(), 0);
    assert!(run.output().contains("stopped driving"), "{}", run.output());
}

#[test]
fn a_removal_that_is_interrupted_does_not_send_its_user_back_to_driving() {
    let command = r#"[bash, -c, "trap '' TERM; while :; do sleep 0.1; done"]"#;
    let lab = Lab::with(
        &broken("stubborn", command, "    join: { within: 60s }\n")
            .replace("      ready:", "      stop: { grace: 4s }\n      ready:"),
    );
    lab.ends(2, &["apply", "-q", "--timeout", "2s"]);
    let mut removing = lab.background(&["destroy", "-y"]);
    wait("the removal to begin", 20, || {
        lab.try_status().is_some_and(|status| status["nodes"][0]["intent"] == "deleting")
    });
    assert_eq!(removing.terminate(), 2);
    let said = removing.output();
    assert!(
        said.contains("stopped removing run stubborn") && said.contains("`reconciler destroy`"),
        "{said}"
    );
    assert!(!said.contains("`reconciler run`"), "{said}");
    lab.destroy();
}

#[test]
fn an_edit_that_is_wrong_changes_nothing_and_is_said_loudly() {
    let lab = Lab::with(&web("steady", 2, ""));
    let run = lab.run();
    let before = lab.converged(2);
    for (wrong, said) in [
        ("", "declares nothing"),
        ("run: steady\ngroups: []\n", "no group is declared"),
        ("run: steady\ngroups:\n  - name: web\n    cuont: 1\n", "cluster.yaml:4:5: unknown field `cuont`"),
        (&web("other", 2, ""), "a run cannot be renamed"),
        (&web("steady", 2, "").replace("{port.http}", "{port.htpp}"), "htpp"),
    ] {
        lab.write(wrong);
        wait(&format!("{said:?} to be said"), 5, || run.output().contains(said));
    }
    std::fs::remove_file(lab.file()).unwrap();
    wait("the missing file to be said", 5, || run.output().contains("cannot read"));
    assert_eq!(run.output().matches("stays in force").count(), 6, "{}", run.output());
    let after: serde_json::Value = {
        let output = lab.output(&["--run", "steady", "status", "-o", "json"]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    assert_eq!((&after["nodes"], &after["generation"]), (&before["nodes"], &before["generation"]));
    // And a good edit is taken again.
    lab.write(&web("steady", 3, ""));
    lab.converged(3);
}
