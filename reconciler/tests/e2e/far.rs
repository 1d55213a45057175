//! Nodes that are bootstrapped over SSH and through the agent, with the real binary: their life from the command
//! line, drivers that are killed, and their output.

use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use crate::doors::{Door, KeyAgent, account, far, left_of, run_of};
use crate::lab::{Lab, attempts, is_alive, signal, wait, wait_or};

#[test]
fn a_cluster_beyond_a_door_is_made_adopted_healed_replaced_and_removed() {
    for door in Door::all() {
        let run = run_of("life", &door);
        let lab = Lab::with(&far(&run, 2, &door.way(), ""));
        lab.ok(&["apply", "-q", "--timeout", "60s"]);
        let made = lab.attempts();
        let pids = [lab.pids("far-0"), lab.pids("far-1")];
        assert!(pids.iter().all(|pids| pids.len() == 1), "{pids:?}");

        let mut driver = lab.run();
        assert_eq!(attempts(&lab.converged(2)), made, "run adopts what apply made");
        assert_eq!([lab.pids("far-0"), lab.pids("far-1")], pids);

        signal(pids[0][0], "KILL");
        wait("the killed node's next attempt", 30, || lab.attempts()["far-0"] > made["far-0"]);
        let healed = attempts(&lab.converged(2));
        assert_eq!(healed["far-1"], made["far-1"], "the other one was touched");
        assert_eq!(lab.pids("far-1"), pids[1]);

        lab.ok(&["replace", "far-1", "-q", "--timeout", "60s"]);
        let replaced = attempts(&lab.converged(2));
        assert!(replaced["far-1"] > healed["far-1"] && replaced["far-0"] == healed["far-0"]);
        assert!(!is_alive(pids[1][0]), "the replaced program lives on");

        lab.write(&far(&run, 0, &door.way(), ""));
        lab.converged(0);
        assert_eq!(left_of(&run), [""; 0]);
        assert_eq!(driver.terminate(), 0, "{}", driver.output());
        lab.destroy();
        assert!(!lab.state_dir().join(&run).exists());
    }
}

#[test]
fn a_driver_killed_in_the_middle_of_a_step_finds_the_session_again() {
    for door in Door::all() {
        let run = run_of("mid", &door);
        let (gate, count) = (door.path("gate"), door.path("count"));
        let step = format!(
            "      steps: [[sh, -c, 'until [ -e {} ]; do sleep 0.05; done; echo once >>{}']]",
            gate.display(),
            count.display()
        );
        let lab = Lab::with(&far(&run, 1, &door.way(), &step));
        let mut driver = lab.run();
        let runs = || left_of(&run).iter().any(|process| process.contains("until [ -e"));
        wait("the step to run", 30, runs);
        let before = lab.attempts();
        driver.kill();
        assert!(runs(), "the step goes on without a driver");
        let _driver = lab.run();
        fs::write(&gate, "").expect("the gate opens");
        let after = attempts(&lab.converged(1));
        assert_eq!(after, before, "{}: the session was not adopted", door.name());
        assert_eq!(fs::read_to_string(&count).expect("the step ran"), "once\n");
        lab.destroy();
        assert_eq!(left_of(&run), [""; 0]);
    }
}

#[test]
fn drivers_killed_at_many_instants_double_nothing_and_leave_nothing() {
    for door in Door::all() {
        let run = run_of("kills", &door);
        let shape = |count| {
            far(&run, count, &door.way(), "").replace("operation_timeout: 20s", "operation_timeout: 3s")
        };
        let lab = Lab::with(&shape(2));
        lab.ok(&["apply", "-q", "--timeout", "60s"]);
        for (n, millis) in [30, 90, 180, 300, 500, 800].into_iter().enumerate() {
            lab.write(&shape([3, 1][n % 2]));
            let mut driver = lab.background(&["run"]);
            // The instant of the kill is what is tried: nothing is waited for here.
            std::thread::sleep(Duration::from_millis(millis));
            driver.kill();
        }
        lab.write(&shape(2));
        lab.ok(&["apply", "-q", "-y", "--timeout", "90s"]);
        let uid = lab.status()["uid"].as_str().unwrap_or_default().to_owned();
        assert_eq!(crate::lab::processes(&uid, None).len(), 2, "{:#?}", left_of(&run));
        lab.destroy();
        assert_eq!(left_of(&run), [""; 0]);
    }
}

#[test]
fn a_door_that_was_closed_for_a_while_costs_no_attempt() {
    for mut door in Door::all() {
        let run = run_of("shut", &door);
        door.close();
        let lab = Lab::with(&far(&run, 1, &door.way(), ""));
        let _driver = lab.run();
        wait("that the host is tried", 30, || {
            lab.explain("far-0")["node"]["phase"].to_string().contains("trying to reach the host")
        });
        door.open();
        assert_eq!(attempts(&lab.converged(1))["far-0"], 1);
        lab.destroy();
    }
}

/// Groups of three kinds in one file: a local process, one over SSH, one through the agent.
#[test]
fn groups_of_different_providers_and_bootstrappers_live_in_one_file() {
    let (Some(ssh), agent) = (Door::ssh(), Door::agent()) else { return };
    let run = run_of("mixed", &ssh);
    let over_ssh = far(&run, 1, &ssh.way(), "");
    let (head, tail) =
        over_ssh.split_once("    join:").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap_or_default();
    let through_agent = far(&run, 1, &agent.way(), "");
    let group = through_agent.split_once("groups:\n").map(|(_, group)| group.replace("far", "third"));
    let group = group.and_then(|group| group.split_once("    join:").map(|(group, _)| group.to_owned()));
    let local = r#"  - name: near
    count: 1
    provider: process
    shape: { ports: [http] }
    boot:
      command: ["{self}", demo-node, --port, "{port.http}"]
  - name: imagined
    count: 1
    provider: fake
"#;
    let text = format!("{head}{}{local}    join:{tail}", group.unwrap_or_default());
    let lab = Lab::with(&text);
    let _driver = lab.run();
    let before = attempts(&lab.converged(4));
    assert_eq!(before.keys().collect::<Vec<_>>(), ["far-0", "imagined-0", "near-0", "third-0"]);
    for node in ["far-0", "third-0", "near-0"] {
        signal(lab.pids(node)[0], "KILL");
    }
    wait("three fresh attempts", 40, || {
        let now = lab.attempts();
        ["far-0", "third-0", "near-0"].iter().all(|node| now[*node] > before[*node])
    });
    assert_eq!(attempts(&lab.converged(4))["imagined-0"], before["imagined-0"]);
    lab.destroy();
    assert_eq!(left_of(&run), [""; 0]);
}

#[test]
fn a_key_may_come_from_the_users_agent() {
    let Some(door) = Door::ssh() else { return };
    let keys = KeyAgent::holding(&door.path("user_key"));
    let socket = keys.socket.display().to_string();
    let way = door.way_with(&format!("user: {}, agent: true", account()));
    let lab = Lab::with(&far("keys", 1, &way, "")).env("SSH_AUTH_SOCK", &socket);
    lab.ok(&["apply", "-q", "--timeout", "60s"]);
    assert!(lab.ok(&["logs", "far-0"]).contains("demo node listens on"));
    lab.destroy();
}

#[test]
fn an_agent_that_is_told_to_stop_leaves_its_sessions_alone() {
    let mut door = Door::agent();
    let lab = Lab::with(&far("told", 1, &door.way(), ""));
    lab.ok(&["apply", "-q", "--timeout", "60s"]);
    let pids = lab.pids("far-0");
    let before = lab.attempts();
    let server = i32::try_from(door.server().id()).expect("a process's number");
    signal(server, "TERM");
    let mut code = None;
    wait("the agent to stop", 20, || {
        code = door.server().try_wait().expect("a child of ours");
        code.is_some()
    });
    assert_eq!(code.and_then(|status| status.code()), Some(0), "{}", door.log());
    assert!(door.log().contains("its sessions go on"), "{}", door.log());
    assert!(is_alive(pids[0]));
    door.open();
    lab.ok(&["apply", "-q", "--timeout", "60s"]);
    assert_eq!((lab.attempts(), lab.pids("far-0")), (before, pids));
    lab.destroy();
}

#[test]
fn the_output_of_a_session_is_shown_and_followed_through_attempts() {
    for door in Door::all() {
        let run = run_of("words", &door);
        let lab = Lab::with(&far(&run, 1, &door.way(), "      steps: [[echo, the step has spoken]]"));
        lab.ok(&["apply", "-q", "--timeout", "60s"]);
        let shown = lab.ok(&["logs", "far-0"]);
        assert!(shown.contains("the step has spoken\ndemo node far-0 starts\n"), "{shown}");
        assert!(lab.ends(1, &["logs", "far-0", "--previous"]).contains("no output of an earlier attempt"));
        let mut following = lab.background(&["logs", "-f", "far-0"]);
        wait("what was said before", 20, || following.output().contains("demo node listens on"));
        lab.ok(&["replace", "far-0", "-q", "--timeout", "60s"]);
        let next = || following.output().split_once("goes on as attempt").map(|(_, words)| words.to_owned());
        let said = || next().is_some_and(|words| words.contains("demo node listens on"));
        wait_or("the next attempt's words", 30, said, || following.output());
        assert_eq!(following.terminate(), 0);
        assert!(lab.ok(&["logs", "far-0", "--previous"]).contains("the step has spoken"));
        lab.destroy();
    }
}

/// Peak resident memory of a process in MiB, as far as it has come.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) / 1024
}

#[test]
fn a_hundred_megabytes_of_output_are_shown_in_little_memory() {
    for door in Door::all() {
        let run = run_of("long", &door);
        let steps = "      steps: [[sh, -c, \"yes 'a line of output that is long enough' | head -c 104857600\"]]\n      \
                     log: { max_bytes: 200000000 }";
        let lab = Lab::with(&far(&run, 1, &door.way(), steps));
        let mut driver = lab.run();
        lab.converged(1);
        let held = peak(driver.child.id());
        let mut command = lab.command(&["logs", "far-0"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
        let (mut taken, mut most, mut piece) = (0, 0, vec![0; 1024 * 1024]);
        let mut out = child.stdout.take().expect("a pipe");
        loop {
            match out.read(&mut piece).expect("a pipe can be read") {
                0 => break,
                count => taken += count,
            }
            most = most.max(peak(child.id()));
        }
        assert!(child.wait().expect("a child of ours").success());
        assert!(taken > 104_857_600, "{taken} bytes");
        assert!(most < 120, "{}: logs held {most} MiB", door.name());
        assert!(held < 150, "{}: the driver held {held} MiB", door.name());
        println!("{}: logs {most} MiB, driver {held} MiB", door.name());
        assert_eq!(driver.terminate(), 0);
        lab.destroy();
    }
}
