//! State on a disk that is full, may not be written, or lost a bit, beside real processes: the cause is said, no
//! node is touched, nothing is sent, and once the cause is gone the next command goes on by itself.
//!
//! What needs a file system of its own needs the right to mount one. Where that is missing, the test says so on the
//! terminal and ends; the limits that any process may set itself are tried in `durability.rs`.
#![expect(clippy::unwrap_used, reason = "a test that cannot look has failed")]

use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::lab::{Lab, processes, wait, web};

/// Says past the test runner's capture what was not tried.
fn skipped(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "NOT RUN: {what}: {why}");
}

fn mount(arguments: &[&str], on: &Path) -> Result<(), String> {
    let done = Command::new("mount").args(arguments).arg(on).output().map_err(|error| error.to_string())?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()) }
}

fn unmount(path: &Path) {
    let mut done = false;
    for _ in 0..50 {
        done = Command::new("umount").arg(path).output().is_ok_and(|done| done.status.success());
        if done {
            break;
        }
        // The last process of a run ends a moment after it was seen to.
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    if !done {
        let _ = Command::new("umount").arg("-l").arg(path).output();
    }
}

/// A file system of a few megabytes.
struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    fn new(what: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        match mount(&["-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs"], dir.path()) {
            Ok(()) => Some(Self { dir }),
            Err(why) => {
                skipped(what, &why);
                None
            }
        }
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn filler(&self) -> PathBuf {
        self.dir.path().join("filler")
    }

    /// Leaves this many bytes free.
    fn fill(&self, free: u64) {
        let mut file = fs::File::create(self.filler()).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub(free)).unwrap();
    }

    fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        unmount(self.dir.path());
    }
}

fn declared(run: &str, count: u32) -> String {
    web(run, count, "").replace("retry: {", "retry: { operation_timeout: 3s, initial: 200ms, cap: 1s,")
}

fn apply(lab: &Lab) -> String {
    lab.ok(&["apply", "-q", "-y", "--timeout", "60s"]);
    lab.status()["uid"].as_str().unwrap().to_owned()
}

#[test]
fn a_full_disk_stops_the_driver_and_harms_no_node_and_space_cures_it() {
    let Some(disk) = SmallDisk::new("a full disk") else { return };
    let lab = Lab::with(&declared("fulldisk", 2)).keeping_state_in(disk.state());
    let uid = apply(&lab);
    let before = processes(&uid, None);
    let mut run = lab.run();
    disk.fill(0);
    lab.write(&declared("fulldisk", 4));
    assert_eq!(run.wait(), 1);
    let said = run.output();
    assert!(said.contains("state.db") && said.contains("free some space"), "{said}");
    assert!(said.contains("its nodes are left running"), "{said}");
    // Neither can anybody else go on: the state, or else a node's own files, find no room.
    let output = lab.output(&["apply", "-q", "-y", "--timeout", "3s"]);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).to_lowercase().contains("space"), "{output:?}");
    assert_eq!(processes(&uid, None), before, "no node was touched");
    disk.free();
    // What was stored before the disk was full may have been begun, and nothing beside that.
    let stored = lab.attempts();
    for slot in fs::read_dir(disk.state().join("fulldisk/nodes")).unwrap().flatten() {
        let name = slot.file_name().into_string().unwrap();
        for attempt in fs::read_dir(slot.path()).unwrap().flatten() {
            let attempt = attempt.file_name().into_string().unwrap();
            let known = stored.get(&name).is_some_and(|id| attempt.starts_with(&format!("a{id}-")));
            assert!(
                known || !attempt.starts_with('a'),
                "{name}/{attempt} was made and is not stored: {stored:?}"
            );
        }
    }
    let _run = lab.run();
    lab.converged(4);
    let now = processes(&uid, None);
    assert!(before.iter().all(|pid| now.contains(pid)), "the nodes that were there still are");
}

#[test]
fn a_disk_that_fills_up_at_any_commit_is_survived() {
    let Some(disk) = SmallDisk::new("a disk that fills up") else { return };
    let lab = Lab::with(&declared("filling", 2)).keeping_state_in(disk.state());
    let uid = apply(&lab);
    let mut stopped = 0;
    for free in [0, 4, 12, 20, 28, 40, 60, 90, 130, 200] {
        let before = processes(&uid, None);
        disk.fill(free * 1024);
        let output = lab.output(&["apply", "-q", "-y", "--timeout", "3s"]);
        let scaled = lab.output(&["scale", "web=3", "-q", "--timeout", "3s"]);
        for output in [output, scaled] {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            // Whether the state or a node's own files find no room decides between an error and one that waits.
            assert!(matches!(output.status.code(), Some(0..=2)), "{said}");
            if output.status.code() == Some(1) {
                assert!(said.contains("space"), "{said}");
                stopped += 1;
            }
        }
        let now = processes(&uid, None);
        let kept = before.iter().filter(|pid| now.contains(pid)).count();
        assert!(kept >= 2, "with {free} KiB left, a node was lost: {before:?} {now:?}");
        disk.free();
        lab.ok(&["scale", "web=2", "-q", "--timeout", "60s"]);
        assert_eq!(processes(&uid, None).len(), 2, "with {free} KiB left");
    }
    assert!(stopped > 3, "only {stopped} commands met the end of the disk");
    lab.destroy();
    assert_eq!(processes(&uid, None), [0; 0]);
}

/// A directory that nobody may write to for now, whoever they are.
struct ReadOnly<'a>(&'a Path);

impl<'a> ReadOnly<'a> {
    fn make(path: &'a Path) -> Result<Self, String> {
        let text = path.to_str().unwrap();
        mount(&["--bind", text], path)?;
        let made = Self(path);
        mount(&["-o", "remount,bind,ro"], path)?;
        Ok(made)
    }
}

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        unmount(self.0);
    }
}

#[test]
fn a_directory_that_may_not_be_written_is_said_and_can_still_be_looked_at() {
    let lab = Lab::with(&declared("readonly", 2));
    let uid = apply(&lab);
    let before = processes(&uid, None);
    match ReadOnly::make(lab.state_dir()) {
        Err(why) => return skipped("a read-only directory", &why),
        Ok(_read_only) => {
            for command in [
                &["apply", "-q", "-y", "--timeout", "20s"][..],
                &["run", "-q"],
                &["scale", "web=3", "-q"],
                &["destroy", "-y", "-q"],
                &["pause", "web-0"],
            ] {
                let said = lab.ends(1, command);
                assert!(said.contains("Read-only") && said.contains("writable"), "{command:?}: {said}");
            }
            assert_eq!(lab.status()["nodes"].as_array().unwrap().len(), 2);
            assert_eq!(lab.explain("web-1")["node"]["ready"], true);
            assert_eq!(processes(&uid, None), before);
        }
    }
    let _run = lab.run();
    lab.converged(2);
    assert_eq!(processes(&uid, None), before);
}

#[test]
fn state_that_may_not_be_read_is_not_taken_for_none() {
    let lab = Lab::with(&declared("private", 1));
    let uid = apply(&lab);
    let state = lab.state_dir().to_str().unwrap();
    let mut command = lab.command(&["--run", "private", "--state-dir", state, "status"]);
    // Nobody, in a directory that is open to all.
    let output = command.uid(65534).gid(65534).current_dir("/").output();
    let Ok(output) = output else { return skipped("another user", "this user may not become another one") };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("Permission denied") && !said.contains("has no state"), "{said}");
    assert_eq!(processes(&uid, None).len(), 1);
}

#[test]
fn a_file_of_a_newer_program_is_refused_and_left_as_it_is() {
    let lab = Lab::with(&declared("newer", 2));
    let uid = apply(&lab);
    let before = processes(&uid, None);
    let store = lab.state_dir().join("newer/state.db");
    let whole = fs::read(&store).unwrap();
    // SQLite keeps the version as the last of four bytes there.
    let mut newer = whole.clone();
    newer[63] = 99;
    fs::write(&store, &newer).unwrap();
    for command in [&["apply", "-q", "-y"][..], &["run", "-q"], &["destroy", "-y", "-q"], &["status"]] {
        let said = lab.ends(4, command);
        assert!(said.contains("schema version 99") && said.contains("newer program"), "{said}");
        assert_eq!(fs::read(&store).unwrap(), newer);
    }
    assert_eq!(processes(&uid, None), before);
    fs::write(&store, &whole).unwrap();
    lab.ok(&["apply", "-q", "-y", "--timeout", "60s"]);
    assert_eq!(processes(&uid, None), before);
}

#[test]
fn a_file_that_is_damaged_anywhere_is_refused_or_was_not_needed() {
    let lab = Lab::with(&declared("flips", 2));
    let uid = apply(&lab);
    let before = processes(&uid, None);
    let store = lab.state_dir().join("flips/state.db");
    let whole = fs::read(&store).unwrap();
    let mut damaged: Vec<(String, Vec<u8>)> = Vec::new();
    for length in [0, 1, 99, 100, 4095, whole.len() / 2, whole.len() - 1] {
        damaged.push((format!("cut to {length} bytes"), whole[..length].to_vec()));
    }
    // Format, page size, mode, change counter, root of the schema, encoding, version, mark; then each page's own head
    // and a place within it.
    let header = [0, 16, 18, 20, 24, 28, 44, 56, 60, 63, 68, 71];
    let pages = (0..whole.len() / 4096).flat_map(|page| [page * 4096 + 103, page * 4096 + 4000]);
    for offset in header.into_iter().chain(pages) {
        let mut bytes = whole.clone();
        bytes[offset] ^= 0x10;
        damaged.push((format!("a bit of byte {offset} flipped"), bytes));
    }
    let mut refused = 0;
    for (what, bytes) in &damaged {
        fs::write(&store, bytes).unwrap();
        let output = lab.output(&["apply", "-q", "-y", "--timeout", "30s"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            Some(0) => {}
            Some(4) => {
                refused += 1;
                assert!(said.contains("state.db"), "{what}: {said}");
                assert!(fs::read(&store).unwrap() == *bytes, "{what}: the file was changed");
            }
            code => panic!("{what}: ended with {code:?}: {said}"),
        }
        assert_eq!(processes(&uid, None), before, "{what}: a node was touched");
    }
    assert!(refused > 10, "{refused} of {}", damaged.len());
    fs::write(&store, &whole).unwrap();
    lab.ok(&["apply", "-q", "-y", "--timeout", "60s"]);
    assert_eq!(processes(&uid, None), before);
}

#[test]
fn a_log_that_was_torn_when_its_driver_died_costs_no_node() {
    let lab = Lab::with(&declared("torn-log", 2));
    let uid = apply(&lab);
    let mut run = lab.run();
    lab.ok(&["replace", "web-0", "-q"]);
    wait("the replaced node", 30, || lab.attempts()["web-0"] > 2 && lab.status()["converged"] == true);
    let before = processes(&uid, None);
    run.kill();
    let dir = lab.state_dir().join("torn-log");
    let parts = ["state.db", "state.db-wal"].map(|name| dir.join(name));
    let whole = parts.clone().map(|path| fs::read(path).unwrap());
    let log = &whole[1];
    assert!(log.len() > 20_000, "{}", log.len());
    let put = |log: &[u8]| {
        fs::write(&parts[0], &whole[0]).unwrap();
        fs::write(&parts[1], log).unwrap();
        let _ = fs::remove_file(dir.join("state.db-shm"));
    };
    let mut outcomes = [0, 0];
    let cuts = [0, 31, 32, 4000, log.len() / 3, log.len() / 2, log.len() - 1];
    let flips = [8, 40, log.len() / 4, log.len() / 2, log.len() - 100].map(|offset| {
        let mut bytes = log.clone();
        bytes[offset] ^= 1;
        bytes
    });
    for bytes in cuts.iter().map(|length| log[..*length].to_vec()).chain(flips) {
        put(&bytes);
        let output = lab.output(&["apply", "-q", "-y", "--timeout", "30s"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            // Enough of it was there.
            Some(0) => outcomes[0] += 1,
            // What was left is older than the nodes.
            Some(4) => {
                outcomes[1] += 1;
                assert!(said.contains("older than its nodes") && said.contains("--adopt"), "{said}");
            }
            code => panic!("{} of {} bytes: ended with {code:?}: {said}", bytes.len(), log.len()),
        }
        assert_eq!(processes(&uid, None), before, "{} of {} bytes: {said}", bytes.len(), log.len());
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
    put(log);
    lab.ok(&["apply", "-q", "-y", "--timeout", "60s"]);
    assert_eq!(processes(&uid, None), before);
}
