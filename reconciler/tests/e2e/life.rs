//! A cluster's life from the command line, with real processes: made, kept, healed, scaled, changed, removed.

use crate::lab::{Lab, attempts, get, is_alive, named_in_command_lines, processes, signal, wait, web};

#[test]
fn four_processes_in_a_row_act_on_the_same_nodes_and_leave_nothing() {
    let lab = Lab::with(&web("four", 3, ""));
    lab.ok(&["apply", "--timeout", "30s"]);
    let status = lab.status();
    assert_eq!((status["converged"].as_bool(), status["driver_pid"].as_u64()), (Some(true), None));
    let made = attempts(&status);
    let endpoint = status["nodes"][0]["endpoint"].as_str().unwrap().to_owned();
    assert_eq!(get(&endpoint, "/healthz").as_deref(), Some("ok\n"));
    let pids = lab.pids("web-0");
    assert_eq!(pids.len(), 1);

    let mut run = lab.run();
    assert_eq!(attempts(&lab.converged(3)), made, "run adopts what apply made");
    assert_eq!(lab.pids("web-0"), pids);
    assert_eq!(run.terminate(), 0);
    assert!(run.output().contains("left running"), "{}", run.output());
    assert!(is_alive(pids[0]), "stopping the driver stops no node");

    let uid = status["uid"].as_str().unwrap();
    lab.destroy();
    assert_eq!(processes(uid, None), [0; 0]);
    assert_eq!(named_in_command_lines(lab.state_dir()), [""; 0], "supervisors");
    assert!(get(&endpoint, "/healthz").is_none(), "the port is still served");
    assert!(!lab.state_dir().join("four").exists());
    lab.ends(4, &["status"]);
}

#[test]
fn a_killed_node_is_healed_at_once_and_the_others_are_untouched() {
    let lab = Lab::with(&web("heal", 3, ""));
    let _run = lab.run();
    let before = attempts(&lab.converged(3));
    let others = [lab.pids("web-0"), lab.pids("web-2")];
    signal(lab.pids("web-1")[0], "KILL");
    wait("the loss to be noticed", 5, || {
        lab.explain("web-1")["node"]["attempt"] != before["web-1"]
            || lab.explain("web-1")["node"]["ready"] == false
    });
    let after = attempts(&lab.converged(3));
    assert!(after["web-1"] > before["web-1"], "{before:?} {after:?}");
    assert_eq!((after["web-0"], after["web-2"]), (before["web-0"], before["web-2"]));
    assert_eq!([lab.pids("web-0"), lab.pids("web-2")], others);
    let history = lab.explain("web-1")["history"].to_string();
    assert!(!history.contains("restart delayed"), "{history}");
}

#[test]
fn ten_nodes_killed_at_once_all_come_back() {
    let lab = Lab::with(&web("ten", 10, ""));
    let _run = lab.run();
    let before = attempts(&lab.converged(10));
    let uid = lab.status()["uid"].as_str().unwrap().to_owned();
    for pid in processes(&uid, None) {
        signal(pid, "KILL");
    }
    wait("ten fresh attempts", 10, || {
        let now = lab.attempts();
        now.len() == 10 && now.iter().all(|(node, attempt)| *attempt > before[node])
    });
    lab.converged(10);
    assert_eq!(processes(&uid, None).len(), 10);
}

#[test]
fn nodes_outlive_a_killed_driver_and_are_healed_by_the_next_one() {
    let lab = Lab::with(&web("adopt", 2, ""));
    let mut first = lab.run();
    let before = attempts(&lab.converged(2));
    let pids = [lab.pids("web-0"), lab.pids("web-1")];
    first.kill();
    let _second = lab.run();
    assert_eq!(attempts(&lab.converged(2)), before);
    assert_eq!([lab.pids("web-0"), lab.pids("web-1")], pids, "adopted, not started again");
    signal(pids[0][0], "KILL");
    wait("the adopted node to be healed", 10, || lab.attempts()["web-0"] > before["web-0"]);
    assert_eq!(lab.converged(2)["nodes"][1]["attempt"], before["web-1"]);
}

#[test]
fn a_node_that_died_while_nobody_drove_is_healed_by_the_next_driver() {
    let lab = Lab::with(&web("absent", 2, ""));
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    let before = lab.attempts();
    signal(lab.pids("web-1")[0], "KILL");
    wait("its death", 5, || lab.pids("web-1").is_empty());
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    let _run = lab.run();
    wait("a fresh attempt", 10, || lab.attempts()["web-1"] > before["web-1"]);
    assert_eq!(attempts(&lab.converged(2))["web-0"], before["web-0"]);
}

#[test]
fn edits_of_the_count_and_of_the_spec_converge_while_run_watches() {
    let lab = Lab::with(&web("edit", 3, ""));
    let run = lab.run();
    let three = attempts(&lab.converged(3));
    lab.write(&web("edit", 5, ""));
    let five = attempts(&lab.converged(5));
    assert!(three.iter().all(|(node, attempt)| five[node] == *attempt));
    lab.write(&web("edit", 2, ""));
    let two = attempts(&lab.converged(2));
    assert_eq!(two.keys().collect::<Vec<_>>(), ["web-0", "web-1"]);
    lab.write(&web("edit", 2, "").replace("role: worker", "role: leader"));
    wait("both to be replaced", 20, || lab.attempts().iter().all(|(node, attempt)| *attempt > two[node]));
    lab.converged(2);
    assert_eq!(lab.status()["generation"], 4, "{}", run.output());
    // Only the timing: nothing is replaced, and the generation stays.
    let now = lab.attempts();
    lab.write(
        &web("edit", 2, "")
            .replace("role: worker", "role: leader")
            .replace("stable_after: 0s", "stable_after: 1s"),
    );
    wait("the edit to be read", 10, || run.output().matches("was read again").count() == 4);
    assert_eq!((lab.attempts(), &lab.status()["generation"]), (now, &4.into()));
}

#[test]
fn apply_hands_its_file_to_the_process_that_drives() {
    let lab = Lab::with(&web("hand", 1, ""));
    let mut run = lab.run();
    lab.converged(1);
    lab.write(&web("hand", 3, ""));
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    let status = lab.converged(3);
    assert_eq!(status["driver_pid"], run.child.id());
    lab.destroy();
    assert_eq!(run.wait(), 0);
}

#[test]
fn a_scale_stands_until_the_file_changes_its_own_count() {
    let lab = Lab::with(&web("scale", 2, ""));
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    lab.ok(&["scale", "web=3", "-q", "--timeout", "30s"]);
    let status = lab.converged(3);
    assert_eq!(status["overrides"]["web"]["count"], 3);
    assert!(lab.ok(&["status"]).contains("scaled to 3; its file says 2"));
    // Applying the unchanged file keeps it; a driver takes a scale over its socket.
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    lab.converged(3);
    let run = lab.run();
    lab.ok(&["scale", "web=4", "-q", "--timeout", "30s"]);
    lab.converged(4);
    lab.write(&web("scale", 1, ""));
    let status = lab.converged(1);
    assert_eq!(status["overrides"], serde_json::json!({}));
    assert!(run.output().contains("its scale to 4 is dropped"), "{}", run.output());
    assert!(lab.ends(1, &["scale", "db=1"]).contains("no group db; it has web"));
}

#[test]
fn a_node_is_replaced_on_request_with_and_without_a_driver() {
    let lab = Lab::with(&web("fresh", 2, ""));
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    let first = lab.attempts();
    lab.ok(&["replace", "web-0", "-q", "--timeout", "30s"]);
    let second = lab.attempts();
    assert!(second["web-0"] > first["web-0"] && second["web-1"] == first["web-1"]);
    let _run = lab.run();
    lab.ok(&["replace", "web-1", "-q", "--timeout", "30s"]);
    let third = lab.attempts();
    assert!(third["web-1"] > second["web-1"] && third["web-0"] == second["web-0"]);
    assert!(lab.ends(1, &["replace", "web-7"]).contains("web-7"));
}

#[test]
fn a_paused_node_is_left_alone_until_it_is_resumed() {
    let lab = Lab::with(&web("pause", 1, ""));
    let _run = lab.run();
    let before = attempts(&lab.converged(1));
    lab.ok(&["pause", "web-0", "--reason", "disk swap"]);
    assert_eq!(lab.status()["holds"][0]["reason"], "disk swap");
    signal(lab.pids("web-0")[0], "KILL");
    wait("its death", 5, || lab.pids("web-0").is_empty());
    wait("the death to be suspected", 5, || {
        lab.explain("web-0")["node"]["why"] == "could not be seen lately"
    });
    assert_eq!(lab.attempts(), before);
    lab.ok(&["resume", "web-0"]);
    wait("a fresh attempt", 10, || lab.attempts()["web-0"] > before["web-0"]);
    lab.converged(1);
}

#[test]
fn the_output_of_a_node_and_of_its_previous_attempt_can_be_read() {
    let lab = Lab::with(&web("logs", 1, ""));
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    assert!(lab.ok(&["logs", "web-0"]).contains("demo node listens on"));
    assert!(lab.ends(1, &["logs", "web-0", "--previous"]).contains("no output of an earlier attempt"));
    lab.ok(&["replace", "web-0", "-q", "--timeout", "30s"]);
    assert!(lab.ok(&["logs", "web-0", "--previous"]).contains("demo node listens on"));
    assert!(lab.ends(1, &["logs", "web-9"]).contains("no node web-9"));
}

#[test]
fn two_runs_of_one_name_never_touch_each_other() {
    let (one, two) = (Lab::with(&web("twin", 2, "")), Lab::with(&web("twin", 2, "")));
    one.ok(&["apply", "-q", "--timeout", "30s"]);
    let untouched = [one.pids("web-0"), one.pids("web-1")];
    two.ok(&["apply", "-q", "--timeout", "30s"]);
    let ports = |lab: &Lab| {
        lab.status()["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|n| n["endpoint"].to_string())
            .collect::<Vec<_>>()
    };
    assert!(ports(&one).iter().all(|port| !ports(&two).contains(port)));
    two.destroy();
    assert_eq!([one.pids("web-0"), one.pids("web-1")], untouched);
    one.converged(2);
}

#[test]
fn an_idle_cluster_is_only_looked_at() {
    let text = web("idle", 5, "") + "observe: { every: 100ms, tick: 100ms }\n";
    let lab = Lab::with(&text);
    let run = lab.run();
    lab.converged(5);
    let counters = || lab.status()["counters"].clone();
    // Failures are forgotten and sessions are closed first; then nothing moves any more.
    let mut before = counters();
    wait("a quiet moment", 10, || {
        let now = counters();
        let quiet = now["dispatched"] == before["dispatched"];
        before = now;
        quiet
    });
    let passes = before["passes"].as_u64().unwrap();
    wait("ten more ticks", 20, || counters()["passes"].as_u64().unwrap() >= passes + 10);
    let after = counters();
    assert_eq!(after["dispatched"], before["dispatched"], "{after:#}");
    assert_eq!(after["found_by_tick"], 0, "{after:#}");
    let ticks = std::fs::read_to_string(format!("/proc/{}/stat", run.child.id())).unwrap();
    assert!(!ticks.is_empty());
}

#[test]
fn two_applies_at_the_same_moment_share_one_driver() {
    let lab = Lab::with(&web("race", 2, ""));
    let mut both: Vec<_> = (0..3).map(|_| lab.background(&["apply", "-q", "--timeout", "30s"])).collect();
    for apply in &mut both {
        assert_eq!(apply.wait(), 0, "{}", apply.output());
    }
    let attempts = lab.attempts();
    assert_eq!(attempts.len(), 2);
    assert!(attempts.values().all(|attempt| *attempt <= 2), "made once: {attempts:?}");
    assert_eq!(lab.pids("web-0").len(), 1);
}
