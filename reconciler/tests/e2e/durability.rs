//! State that is lost, old, damaged or cannot be written, beside nodes that live: nothing is harmed, the cause is
//! said, and once it is gone everything goes on.
#![expect(clippy::unwrap_used, reason = "a test that cannot look has failed")]

use std::fs;
use std::path::PathBuf;

use crate::lab::{Lab, processes, signal, wait, web};

fn run_dir(lab: &Lab, run: &str) -> PathBuf {
    lab.state_dir().join(run)
}

fn applied(run: &str, count: u32) -> (Lab, String) {
    let text = web(run, count, "").replace("retry: {", "retry: { operation_timeout: 3s,");
    let lab = Lab::with(&text);
    lab.ok(&["apply", "-q", "--timeout", "60s"]);
    let uid = lab.status()["uid"].as_str().unwrap().to_owned();
    (lab, uid)
}

#[test]
fn a_lost_state_beside_living_nodes_changes_nothing_until_they_are_adopted() {
    let (lab, uid) = applied("lost", 2);
    let before = processes(&uid, None);
    let store = run_dir(&lab, "lost").join("state.db");
    fs::remove_file(&store).unwrap();
    for command in [&["apply", "-q", "-y", "--timeout", "30s"][..], &["run", "-q"]] {
        let said = lab.ends(4, command);
        assert!(said.contains("is empty, but process shows 2 living lease(s)"), "{said}");
        assert!(said.contains(&format!("--adopt {uid}")), "{said}");
        assert_eq!(processes(&uid, None), before, "no node was touched and none was made");
        assert!(!store.exists(), "no state was made beside them");
    }
    let said = lab.ok(&["apply", "-y", "--adopt", &uid, "--timeout", "60s"]);
    assert!(said.contains("2 node(s)"), "{said}");
    assert_eq!(processes(&uid, None), before, "the same processes, adopted");
    let status = lab.status();
    assert_eq!((&status["uid"], &status["converged"]), (&uid.as_str().into(), &true.into()));
    lab.destroy();
    assert_eq!(processes(&uid, None), [0; 0]);
    assert!(!run_dir(&lab, "lost").exists(), "nothing is left of the run");
}

#[test]
fn a_log_whose_state_file_is_away_is_kept_until_it_is_back() {
    let (lab, uid) = applied("log-alone", 2);
    let mut run = lab.run();
    lab.ok(&["replace", "web-0", "-q"]);
    wait("the replaced node", 30, || lab.attempts()["web-0"] > 2 && lab.status()["converged"] == true);
    let before = processes(&uid, None);
    run.kill();
    let dir = run_dir(&lab, "log-alone");
    let [store, log, kept] = ["state.db", "state.db-wal", "kept.db"].map(|name| dir.join(name));
    let newest = fs::read(&log).unwrap();
    fs::rename(&store, &kept).unwrap();
    for command in [
        &["apply", "-q", "-y", "--timeout", "30s"][..],
        &["run", "-q"],
        &["status"],
        &["pause", "web-0"],
        &["orphans"],
        &["destroy", "-y", "-q"],
    ] {
        let said = lab.ends(4, command);
        assert!(said.contains("state.db-wal") && said.contains("put that very file back"), "{said}");
        assert_eq!(fs::read(&log).unwrap(), newest, "{command:?}");
        assert!(!store.exists(), "{command:?}");
    }
    assert_eq!(processes(&uid, None), before, "no node was touched");
    fs::rename(&kept, &store).unwrap();
    lab.ok(&["apply", "-q", "-y", "--timeout", "60s"]);
    assert_eq!(processes(&uid, None), before);
    lab.destroy();
}

#[test]
fn a_driver_whose_lock_was_removed_stops_when_another_one_drives() {
    let (lab, uid) = applied("twice", 2);
    let mut first = lab.run();
    lab.converged(2);
    fs::remove_file(run_dir(&lab, "twice").join("lock")).unwrap();
    let second = lab.run();
    wait("the second driver", 20, || {
        lab.try_status().is_some_and(|status| status["driver_pid"] == second.id())
    });
    // Both see it; one of them may do something about it.
    signal(processes(&uid, None)[0], "KILL");
    assert_eq!(first.wait(), 1);
    let said = first.output();
    assert!(said.contains("another process took over") && said.contains("its lock was removed"), "{said}");
    lab.converged(2);
    wait("the nodes", 20, || processes(&uid, None).len() == 2);
    assert_eq!(lab.status()["driver_pid"], second.id(), "{}", second.output());
    lab.destroy();
}

#[test]
fn nodes_at_a_provider_that_the_file_no_longer_names_are_found_by_an_adoption() {
    let (lab, uid) = applied("moved", 2);
    let store = run_dir(&lab, "moved").join("state.db");
    let state = fs::read(&store).unwrap();
    let declared = fs::read_to_string(lab.file()).unwrap();
    fs::remove_file(&store).unwrap();
    lab.write("run: moved\ngroups:\n  - { name: vm, count: 1, provider: fake }\n");
    let said = lab.ends(4, &["apply", "-q", "-y", "--adopt", &uid, "--timeout", "30s"]);
    assert!(said.contains("web-0 lives at process but is not declared"), "{said}");
    fs::write(&store, state).unwrap();
    lab.write(&declared);
    lab.converged(2);
}

#[test]
fn an_old_copy_of_the_state_changes_nothing() {
    let (lab, uid) = applied("old", 2);
    let store = run_dir(&lab, "old").join("state.db");
    let old = fs::read(&store).unwrap();
    lab.ok(&["replace", "web-0", "-q"]);
    lab.ok(&["apply", "-q", "-y", "--timeout", "60s"]);
    let newest = fs::read(&store).unwrap();
    let before = processes(&uid, None);
    fs::write(&store, old).unwrap();
    let said = lab.ends(4, &["apply", "-q", "-y", "--timeout", "30s"]);
    assert!(said.contains("older than its nodes") && said.contains("web-0 a3"), "{said}");
    for command in [&["orphans"][..], &["orphans", "--destroy"]] {
        let said = lab.ends(4, command);
        assert!(said.contains("older than its nodes") && !said.contains("no orphans"), "{said}");
    }
    assert_eq!(processes(&uid, None), before);
    fs::write(&store, newest).unwrap();
    lab.ok(&["apply", "-q", "-y", "--timeout", "60s"]);
    assert_eq!(processes(&uid, None), before);
}

#[test]
fn a_damaged_state_is_refused_and_its_copy_goes_on() {
    let (lab, uid) = applied("torn", 2);
    let store = run_dir(&lab, "torn").join("state.db");
    let whole = fs::read(&store).unwrap();
    let before = processes(&uid, None);
    let mut torn = whole.clone();
    let half = torn.len() / 2;
    torn[half..].fill(0xa5);
    for bytes in
        [&torn[..], b"not a database at all, whatever it may have been before ".repeat(40).as_slice()]
    {
        fs::write(&store, bytes).unwrap();
        let said = lab.ends(4, &["apply", "-q", "-y", "--timeout", "30s"]);
        assert!(said.contains("state.db") && said.contains("damaged"), "{said}");
        assert_eq!(fs::read(&store).unwrap(), bytes);
        assert_eq!(processes(&uid, None), before);
    }
    fs::write(&store, whole).unwrap();
    lab.ok(&["apply", "-q", "-y", "--timeout", "60s"]);
    assert_eq!(processes(&uid, None), before);
}

#[test]
fn a_disk_that_takes_no_more_stops_the_driver_and_harms_no_node() {
    let (lab, uid) = applied("full", 2);
    let before = processes(&uid, None);
    // Files of this process may grow no further than the state is already.
    let limited = |arguments: &str| {
        let program = env!("CARGO_BIN_EXE_reconciler");
        let script = format!("trap '' XFSZ; ulimit -f 8; exec {program} {arguments}");
        let shaped = lab.command(&[]);
        let mut command = std::process::Command::new("bash");
        command.args(["-c", &script]).current_dir(lab.path()).stdin(std::process::Stdio::null());
        for (key, value) in shaped.get_envs() {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        command.output().unwrap()
    };
    let output = limited("apply -q -y --timeout 30s");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("state.db") && said.contains("space"), "{said}");
    assert_eq!(processes(&uid, None), before);
    lab.ok(&["apply", "-q", "-y", "--timeout", "60s"]);
    assert_eq!(processes(&uid, None), before);
}

#[test]
fn a_state_directory_that_cannot_be_made_is_named() {
    let lab = Lab::with(&web("nodir", 1, ""));
    let file = lab.path().join("a-file");
    fs::write(&file, "").unwrap();
    for command in ["apply", "run"] {
        let said = lab.ends(1, &["--state-dir", file.to_str().unwrap(), command, "-q"]);
        assert!(said.contains("a-file"), "{said}");
    }
}

#[test]
fn an_orphan_is_reported_and_destroyed_only_when_asked_and_old_enough() {
    let (lab, uid) = applied("strays", 2);
    assert!(lab.ok(&["orphans"]).contains("no orphans"));
    // A lease of an attempt that is over: a copy of what a1 had, after a3 took its place.
    let slot = run_dir(&lab, "strays").join("nodes/web-0");
    let attempt = |number: u64| {
        let entries = fs::read_dir(&slot).unwrap().flatten().map(|entry| entry.path());
        entries.into_iter().find(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name == format!("a{number}") || name.starts_with(&format!("a{number}-"))
        })
    };
    let first = attempt(1).unwrap();
    let record = fs::read(first.join("lease.json")).unwrap();
    lab.ok(&["replace", "web-0", "-q"]);
    lab.ok(&["apply", "-q", "-y", "--timeout", "60s"]);
    assert_eq!(lab.attempts()["web-0"], 3);
    let plant = |record: &[u8]| {
        fs::create_dir_all(&first).unwrap();
        fs::write(first.join("lease.json"), record).unwrap();
        fs::write(first.join("lock"), "").unwrap();
    };
    let text = String::from_utf8(record).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["created_at"]["secs_since_epoch"] = now.into();
    plant(value.to_string().as_bytes());
    let young = lab.ends(2, &["orphans", "--destroy"]);
    assert!(young.contains("orphan   web-0 a1") && young.contains("too young"), "{young}");
    assert!(first.exists());
    value["created_at"]["secs_since_epoch"] = (now - 3600).into();
    plant(value.to_string().as_bytes());
    let old = lab.ends(2, &["orphans"]);
    assert!(old.contains("may be destroyed"), "{old}");
    assert!(first.exists(), "reported, and no more");
    // One of another uid is never touched.
    value["attempt"]["run"]["uid"] = "somebody-else".into();
    let other = slot.with_file_name("web-1").join(first.file_name().unwrap());
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("lease.json"), value.to_string()).unwrap();
    let _run = lab.run();
    let done = lab.ok(&["orphans", "--destroy"]);
    assert!(done.contains("destroyed") && done.contains("uid somebody-else; left alone"), "{done}");
    assert!(!first.exists() && other.exists());
    assert_eq!(processes(&uid, None).len(), 2);
    fs::remove_dir_all(&other).unwrap();
}

/// Makes a lease of an attempt of web-0 that is over, an hour old, behind the driver's back: a copy of what it had.
/// Its directory.
fn plant_orphan(lab: &Lab, run: &str) -> PathBuf {
    let slot = run_dir(lab, run).join("nodes/web-0");
    let first = fs::read_dir(&slot).unwrap().flatten().map(|entry| entry.path());
    let first = first.into_iter().find(|path| path.join("lease.json").exists()).unwrap();
    let record = fs::read(first.join("lease.json")).unwrap();
    lab.ok(&["replace", "web-0", "-q"]);
    lab.ok(&["apply", "-q", "-y", "--timeout", "60s"]);
    let mut value: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let made = value["created_at"]["secs_since_epoch"].as_u64().unwrap();
    value["created_at"]["secs_since_epoch"] = (made - 3600).into();
    fs::create_dir_all(&first).unwrap();
    fs::write(first.join("lease.json"), value.to_string()).unwrap();
    fs::write(first.join("lock"), "").unwrap();
    first
}

#[test]
fn a_driver_that_may_ends_orphans_by_itself_and_says_so() {
    let (lab, uid) = applied("swept", 2);
    let orphan = plant_orphan(&lab, "swept");
    let before = processes(&uid, None);
    let text = fs::read_to_string(lab.file()).unwrap() + "observe: { every: 100ms, sweep: 200ms }\n";
    lab.write(&text);
    let run = lab.run();
    let events = |what: &str| lab.ok(&["events", "--all"]).matches(what).count();
    wait("the orphan to be reported", 20, || events(" orphan ") > 0);
    assert!(orphan.exists(), "reported, and no more");
    lab.write(&format!("{text}orphans: destroy\n"));
    wait("the orphan to be gone", 30, || !orphan.exists());
    wait("that to be told", 10, || events("orphan-destroyed") == 1);
    assert_eq!(processes(&uid, None), before, "{}", run.output());
}

#[test]
fn a_run_is_not_forgotten_while_something_of_it_lives() {
    let (lab, uid) = applied("leaves", 2);
    let orphan = plant_orphan(&lab, "leaves");
    // However often it is asked for.
    for _ in 0..2 {
        let said = lab.ends(2, &["destroy", "-y", "-q", "--timeout", "30s"]);
        assert!(said.contains("reconciler orphans") && said.contains("web-0/a1-"), "{said}");
    }
    assert_eq!(processes(&uid, None), [0; 0]);
    assert!(orphan.exists() && run_dir(&lab, "leaves").join("state.db").exists());
    // Its provider is no longer declared, and not forgotten.
    assert!(lab.ok(&["orphans", "--destroy"]).contains("destroyed"));
    lab.destroy();
    assert!(!run_dir(&lab, "leaves").exists());
}

#[test]
fn the_history_of_a_node_spans_its_attempts_and_drivers() {
    let (lab, _) = applied("history", 1);
    lab.ok(&["replace", "web-0", "-q"]);
    lab.ok(&["apply", "-q", "-y", "--timeout", "60s"]);
    let events: Vec<serde_json::Value> =
        serde_json::from_str(&lab.ok(&["events", "web-0", "-o", "json"])).unwrap();
    let steps = |attempt: u64, what: &str| {
        events.iter().any(|event| event["attempt"] == attempt && event["what"] == what)
    };
    assert!(steps(1, "insert") && steps(1, "destroy-lease") && steps(2, "start-bootstrap"), "{events:#?}");
    assert!(lab.ok(&["events", "--all"]).contains("web-0"));
    assert!(lab.ends(4, &["events", "web-7"]).contains("nothing of web-7"));
}

#[test]
fn a_taped_run_is_decided_again_as_it_was() {
    let lab = Lab::with(&web("taped", 3, ""));
    let mut run = lab.background(&["run", "-q", "--journal"]);
    wait("the run to be there", 10, || lab.try_status().is_some());
    lab.converged(3);
    lab.ok(&["scale", "web=2", "-q"]);
    lab.converged(2);
    let said = lab.ok(&["replay"]);
    assert!(said.contains("were decided as they were then"), "{said}");
    run.kill();
    assert!(lab.ok(&["replay"]).contains("were decided as they were then"));
    // A tape that says something else shows where.
    let tape = run_dir(&lab, "taped").join("passes.jsonl");
    let text = fs::read_to_string(&tape).unwrap().replacen("start-bootstrap", "begin-delete", 1);
    let changed = lab.path().join("changed.jsonl");
    fs::write(&changed, text).unwrap();
    let said = lab.ends(1, &["replay", changed.to_str().unwrap()]);
    assert!(said.contains("differs") && said.contains("begin-delete"), "{said}");
    // Neither a tape that was damaged, nor one without its beginning or without a pass, passes for one that was played.
    let text = fs::read_to_string(&tape).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let middle = lines.len() / 2;
    let mut damaged = lines.clone();
    damaged[middle] = "{\"pa";
    for (text, what) in [
        (damaged.join("\n"), format!("line {} ", middle + 1)),
        (lines[1..].join("\n"), "lacks its beginning".to_owned()),
        (lines[0].to_owned(), "holds no pass".to_owned()),
    ] {
        fs::write(&changed, text + "\n").unwrap();
        let said = lab.ends(1, &["replay", changed.to_str().unwrap()]);
        assert!(said.contains(&what), "{said}");
    }
}
