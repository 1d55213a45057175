//! What is refused: bad files, second drivers, foreign state, missing confirmations. Each with one clear error and
//! its exit code, and without any change.

use expect_test::{Expect, expect};

use crate::lab::{Lab, attempts, wait, web};

#[expect(clippy::needless_pass_by_value, reason = "written at the call, where it is rewritten in place")]
fn refused(text: &str, expected: Expect) {
    let lab = Lab::with(text);
    let said = lab.ends(1, &["apply"]);
    for command in ["validate", "plan", "run"] {
        assert_eq!(lab.ends(1, &[command]), said, "{command} and apply say different things");
    }
    expected.assert_eq(&said);
    assert!(!lab.state_dir().exists(), "something was made");
}

fn with(group: &str) -> String {
    format!("run: bad\ngroups:\n  - name: web\n    count: 1\n{group}")
}

#[test]
fn an_unknown_provider_is_named_with_those_built_in() {
    refused(
        &with("    provider: ec3\n"),
        expect![[r#"
        error: cluster.yaml:5:5: groups[0].provider: provider "ec3" is unknown or not built in; built in: fake, process (others need a build with their Cargo feature)
          5 |     provider: ec3
            |     ^
    "#]],
    );
}

#[test]
fn an_unknown_bootstrapper_is_named() {
    refused(
        &with("    provider: fake\n    boot: { via: telnet }\n"),
        expect![[r#"
            error: cluster.yaml:6:13: groups[0].boot.via: no bootstrapper "telnet"; there are agent, fake, probe, process, ssh
              6 |     boot: { via: telnet }
                |             ^
        "#]],
    );
}

#[test]
fn a_providers_own_settings_are_checked_at_their_places() {
    refused(
        &with("    provider: fake\n    shape:\n      create: soon\n      crate: 2s\n"),
        expect![[r#"
            error: cluster.yaml:7:7: groups[0].shape.create: write a duration such as "200ms", "2s" or "1m30s"
              7 |       create: soon
                |       ^
            cluster.yaml:8:7: groups[0].shape.crate: the fake knows no setting "crate"; it knows create, destroy, dies_after, endpoint, labels
              8 |       crate: 2s
                |       ^
        "#]],
    );
}

#[test]
fn a_program_that_does_not_exist_is_found_out_before_anything_is_made() {
    refused(
        &with("    provider: process\n    boot:\n      command: [no-such-program-here]\n"),
        expect![[r#"
            error: cluster.yaml:7:17: groups[0].boot.command[0]: no program named "no-such-program-here" is in PATH; install it, or write its absolute path
              7 |       command: [no-such-program-here]
                |                 ^
        "#]],
    );
}

#[test]
fn a_process_group_without_a_command_says_so() {
    refused(
        &with("    provider: process\n"),
        expect![[r#"
        error: cluster.yaml:3:5: groups[0].boot: a process node needs `command: [PROGRAM, ARGUMENTS...]`
          3 |   - name: web
            |     ^
    "#]],
    );
}

#[test]
fn misspelt_settings_of_the_process_provider_are_named() {
    refused(
        &with(
            "    provider: process\n    shape: { prots: [http] }\n    boot:\n      command: [\"true\", \"{port.http}\"]\n      ready: { htp: x }\n",
        ),
        expect![[r#"
            error: cluster.yaml:6:14: groups[0].shape.prots: unknown field `prots`, expected `ports` or `data`
              6 |     shape: { prots: [http] }
                |              ^
            cluster.yaml:9:16: groups[0].boot.ready.htp: unknown field `htp`, expected one of `tcp`, `http`, `exec`, `log`, `every`, `timeout`
              9 |       ready: { htp: x }
                |                ^
        "#]],
    );
}

#[test]
fn an_empty_file_changes_nothing() {
    let lab = Lab::with(&web("empty", 1, ""));
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    let before = lab.attempts();
    lab.write("");
    for command in ["validate", "plan", "apply", "run", "status"] {
        assert!(lab.ends(1, &[command]).contains("declares nothing"), "{command}");
    }
    lab.write(&web("empty", 1, ""));
    assert_eq!(lab.attempts(), before);
}

#[test]
fn an_unreadable_file_is_an_error_and_a_run_is_reached_by_name() {
    let lab = Lab::with(&web("byname", 1, ""));
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    std::fs::remove_file(lab.file()).unwrap();
    assert!(lab.ends(1, &["status"]).contains("cannot read the cluster file cluster.yaml"));
    assert!(lab.ok(&["--run", "byname", "status"]).contains("1 of 1 ready"));
    lab.ok(&["destroy", "--run", "byname", "-y", "-q"]);
}

#[test]
fn a_second_driver_is_refused_with_the_pid_of_the_first() {
    let lab = Lab::with(&web("second", 1, ""));
    let first = lab.run();
    lab.converged(1);
    let said = lab.ends(3, &["run"]);
    assert!(said.contains(&format!("process {}", first.child.id())), "{said}");
    lab.converged(1);
}

#[test]
fn another_file_of_the_same_run_is_refused_unless_rebound() {
    let lab = Lab::with(&web("bound", 1, ""));
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    let before = lab.attempts();
    std::fs::write(lab.path().join("other.yaml"), web("bound", 2, "")).unwrap();
    for command in ["apply", "plan", "run"] {
        let said = lab.ends(3, &[command, "-f", "other.yaml"]);
        assert!(said.contains("--rebind") && said.contains("cluster.yaml"), "{said}");
    }
    assert_eq!(lab.attempts(), before);
    lab.ok(&["apply", "-q", "-f", "other.yaml", "--rebind", "--timeout", "30s"]);
    assert_eq!(attempts(&lab.converged(2))["web-0"], before["web-0"]);
}

#[test]
fn commands_on_a_run_without_state_end_with_4() {
    let lab = Lab::with(&web("nothing", 1, ""));
    for command in [
        &["status"][..],
        &["explain", "web-0"],
        &["logs", "web-0"],
        &["watch"],
        &["scale", "web=2"],
        &["replace", "web-0"],
        &["pause"],
        &["resume"],
        &["release", "web-0"],
        &["destroy", "-y"],
    ] {
        assert!(lab.ends(4, command).contains("run nothing has no state"), "{command:?}");
    }
    assert!(!lab.state_dir().exists());
}

#[test]
fn state_that_is_no_state_is_refused_and_left_as_it_is() {
    let lab = Lab::with(&web("garbage", 1, ""));
    let store = lab.state_dir().join("garbage/state.db");
    std::fs::create_dir_all(store.parent().unwrap()).unwrap();
    std::fs::write(&store, "this is not a database, and somebody may want it back").unwrap();
    let before = std::fs::read(&store).unwrap();
    for command in [&["apply"][..], &["status"], &["destroy", "-y"]] {
        let output = lab.output(command);
        assert!(matches!(output.status.code(), Some(1 | 4)), "{command:?}: {output:?}");
    }
    assert_eq!(std::fs::read(&store).unwrap(), before);
    std::fs::remove_dir_all(store.parent().unwrap()).unwrap();
}

#[test]
fn destroying_needs_a_confirmation() {
    let lab = Lab::with(&web("sure", 1, ""));
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    assert!(lab.ends(3, &["destroy"]).contains("-y"));
    lab.converged(1);
}

#[test]
fn replacing_or_removing_nodes_needs_a_confirmation_and_making_them_does_not() {
    let lab = Lab::with(&web("asked", 2, ""));
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    lab.write(&web("asked", 3, ""));
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    let before = attempts(&lab.converged(3));
    let leader = |count| web("asked", count, "").replace("role: worker", "role: leader");
    for (text, lost) in [(web("asked", 2, ""), "web-2 would be"), (leader(3), "web-0, web-1, web-2 would be")]
    {
        lab.write(&text);
        let said = lab.ends(3, &["apply", "-q", "--timeout", "30s"]);
        assert!(said.contains(lost) && said.contains("give -y"), "{said}");
        assert_eq!((lab.attempts(), &lab.status()["generation"]), (before.clone(), &2.into()));
    }
    lab.ok(&["apply", "-q", "-y", "--timeout", "30s"]);
    let after = attempts(&lab.converged(3));
    assert!(after.iter().all(|(node, attempt)| *attempt > before[node]));
    // What was asked for is not asked again: any driver goes on with it.
    lab.ok(&["pause", "web-1"]);
    lab.write(&leader(1));
    let run = lab.run();
    wait("the others to go", 20, || lab.attempts().len() == 2);
    drop(run);
    lab.ends(2, &["apply", "-q", "--timeout", "1s"]);
    lab.ok(&["resume", "web-1"]);
    lab.ok(&["apply", "-q", "--timeout", "30s"]);
    lab.converged(1);
}

#[test]
fn bad_arguments_say_what_to_write() {
    let lab = Lab::with(&web("args", 1, ""));
    for (args, said) in [
        (&["scale", "web"][..], "GROUP=N"),
        (&["scale", "web=many"], "GROUP=N"),
        (&["explain", "Web-0"], "web"),
        (&["apply", "--timeout", "30"], "\"20s\""),
    ] {
        let output = lab.output(args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && text.to_lowercase().contains(&said.to_lowercase()),
            "{args:?}: {text}"
        );
    }
    let help = lab.ok(&["--help"]);
    assert!(help.contains("Exit codes:") && !help.contains("demo-node"), "{help}");
}

#[test]
fn a_nodes_own_port_that_a_stranger_took_is_named_and_waited_for() {
    let lab = Lab::with(
        &web("taken", 1, "").replace("stable_after: 0s", "stable_after: 0s, initial: 200ms, cap: 1s"),
    );
    lab.ok(&["up", "-q", "--timeout", "30s"]);
    let endpoint = lab.status()["nodes"][0]["endpoint"].as_str().unwrap().to_owned();
    crate::lab::signal(lab.pids("web-0")[0], "KILL");
    wait("its death", 5, || lab.pids("web-0").is_empty());
    let mut stranger = None;
    wait("the stranger to have the port", 5, || {
        stranger = std::net::TcpListener::bind(&endpoint).ok();
        stranger.is_some()
    });
    let _run = lab.run();
    let port = endpoint.rsplit(':').next().unwrap();
    wait("the port to be named", 15, || {
        lab.explain("web-0").to_string().contains(port)
            && lab.explain("web-0")["node"]["last_error"].as_str().is_some_and(|error| error.contains(port))
    });
    drop(stranger);
    assert_eq!(lab.converged(1)["nodes"][0]["endpoint"], endpoint, "the port is the node's own");
}
