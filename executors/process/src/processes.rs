//! Which processes exist, whose they are, and how to signal one. A process is meant by its id *and* its start
//! time, and signalled through a file descriptor that stays with it, so that a reused id is never hit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::marker;

/// One process of this boot: an id is reused, an id with its start time is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The process id.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub start: u64,
}

/// One line of the process table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Who.
    pub id: ProcessId,
    /// Its parent.
    pub parent: i32,
    /// Its name, cut by the kernel to 15 bytes.
    pub name: String,
    /// Whether it still runs. A zombie does not.
    pub alive: bool,
}

/// The kernel's id of this boot.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// What is known of a process id now; `None` if nothing has it.
pub fn look(pid: i32) -> Option<ProcessInfo> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Whether this very process still runs.
pub fn is_alive(id: ProcessId) -> bool {
    look(id.pid).is_some_and(|info| info.id == id && info.alive)
}

/// All processes that run.
pub fn table() -> io::Result<Vec<ProcessInfo>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        found.extend(look(pid).filter(|info| info.alive));
    }
    Ok(found)
}

/// The descendants of a process, without itself.
pub fn descendants(of: i32) -> io::Result<Vec<ProcessInfo>> {
    let table = table()?;
    let mut family = BTreeSet::from([of]);
    // A child may stand before its parent in the table: go round until nothing is added.
    loop {
        let before = family.len();
        for info in &table {
            if family.contains(&info.parent) {
                family.insert(info.id.pid);
            }
        }
        if family.len() == before {
            break;
        }
    }
    family.remove(&of);
    Ok(table.into_iter().filter(|info| family.contains(&info.id.pid)).collect())
}

/// The processes whose environment carries the nonce, and their descendants.
pub fn carriers(nonce: &str) -> io::Result<Vec<ProcessInfo>> {
    let table = table()?;
    let mut found: BTreeMap<i32, ProcessInfo> = BTreeMap::new();
    for info in &table {
        // Unreadable: it ended just now, or it is another user's and so not ours.
        let Ok(environ) = fs::read(format!("/proc/{}/environ", info.id.pid)) else { continue };
        if marker::is_carried(&environ, nonce) && is_alive(info.id) {
            found.insert(info.id.pid, info.clone());
        }
    }
    loop {
        let before = found.len();
        for info in &table {
            if found.contains_key(&info.parent) && !found.contains_key(&info.id.pid) {
                found.insert(info.id.pid, info.clone());
            }
        }
        if found.len() == before {
            return Ok(found.into_values().collect());
        }
    }
}

/// Sends SIGTERM to this very process. Whether it was there to get it.
pub fn ask_to_end(id: ProcessId) -> io::Result<bool> {
    signal(id, Signal::TERM)
}

/// Sends SIGKILL to this very process. Whether it was there to get it.
pub fn kill(id: ProcessId) -> io::Result<bool> {
    signal(id, Signal::KILL)
}

fn signal(id: ProcessId, signal: Signal) -> io::Result<bool> {
    let Some(pid) = Pid::from_raw(id.pid) else { return Ok(false) };
    let handle = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(Errno::SRCH) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    // The handle stays with whoever had the id when it was opened; only now is it known who that is.
    if !is_alive(id) {
        return Ok(false);
    }
    match pidfd_send_signal(&handle, signal) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Ends everything that `find` finds: SIGTERM once to each, SIGKILL after `grace`. Blocks until nothing is
/// found or `patience` after the grace time has passed; returns what is left then.
pub(crate) fn end_all(
    find: impl Fn() -> io::Result<Vec<ProcessInfo>>,
    grace: Duration,
    patience: Duration,
) -> io::Result<Vec<ProcessInfo>> {
    let begun = Instant::now();
    let mut asked = BTreeSet::new();
    let mut pause = Duration::from_millis(5);
    loop {
        let left = find()?;
        if left.is_empty() || begun.elapsed() > grace.saturating_add(patience) {
            return Ok(left);
        }
        for info in &left {
            // One that may not be signalled is named among what is left.
            if begun.elapsed() >= grace {
                let _ = kill(info.id);
            } else if asked.insert(info.id) {
                let _ = ask_to_end(info.id);
            }
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Names processes for an operator.
pub(crate) fn describe(processes: &[ProcessInfo]) -> String {
    let names: Vec<String> =
        processes.iter().map(|info| format!("{} (pid {})", info.name, info.id.pid)).collect();
    names.join(", ")
}

/// `/proc/PID/stat`. The name stands in brackets and may itself hold brackets and spaces.
fn parse_stat(text: &str) -> Option<ProcessInfo> {
    let (head, tail) = text.rsplit_once(')')?;
    let (pid, name) = head.split_once(" (")?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    // Counted from the state, which is field 3 of proc(5): parent 4, threads 20, start time 22.
    let state = *fields.first()?;
    let threads: u64 = fields.get(17)?.parse().ok()?;
    Some(ProcessInfo {
        id: ProcessId { pid: pid.parse().ok()?, start: fields.get(19)?.parse().ok()? },
        parent: fields.get(1)?.parse().ok()?,
        name: name.to_owned(),
        // A leader that has ended shows as a zombie while its other threads run.
        alive: !matches!(state, "Z" | "X" | "x") || threads > 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_confuse_the_table() {
        let text = "42 (a) b (c) S 7 42 42 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 1 1";
        let info = parse_stat(text).unwrap();
        assert_eq!(info.id, ProcessId { pid: 42, start: 98765 });
        assert_eq!((info.parent, info.name.as_str(), info.alive), (7, "a) b (c", true));
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while look(pid).unwrap().alive {
            assert!(Instant::now() < until, "true did not end");
            thread::yield_now();
        }
        assert!(table().unwrap().iter().all(|info| info.id.pid != pid));
        child.wait().unwrap();
        assert!(look(pid).is_none());
    }

    #[test]
    fn a_process_with_another_start_time_is_a_stranger_and_is_left_alone() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let id = look(i32::try_from(child.id()).unwrap()).unwrap().id;
        assert!(!kill(ProcessId { start: id.start + 1, ..id }).unwrap());
        assert!(is_alive(id));
        assert!(kill(id).unwrap());
        child.wait().unwrap();
        assert!(!kill(id).unwrap());
    }

    #[test]
    fn what_cannot_be_ended_is_named_after_the_patience_is_used_up() {
        let stuck = ProcessInfo {
            id: ProcessId { pid: i32::MAX, start: 1 },
            parent: 1,
            name: "stuck".into(),
            alive: true,
        };
        let left = end_all(|| Ok(vec![stuck.clone()]), Duration::ZERO, Duration::from_millis(20)).unwrap();
        assert_eq!(describe(&left), format!("stuck (pid {})", i32::MAX));
    }

    #[test]
    fn carriers_are_found_by_their_environment() {
        let nonce = format!("test-{}", std::process::id());
        let mut child = Command::new("sleep").arg("60").env(marker::NONCE, &nonce).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        // The environment is there once the program has replaced the copy of this one.
        let until = Instant::now() + Duration::from_secs(10);
        let found = loop {
            let found = carriers(&nonce).unwrap();
            if !found.is_empty() || Instant::now() > until {
                break found;
            }
        };
        assert_eq!(found.iter().map(|info| info.id.pid).collect::<Vec<_>>(), [pid]);
        assert!(
            descendants(i32::try_from(std::process::id()).unwrap()).unwrap().iter().any(|i| i.id.pid == pid)
        );
        let left = end_all(|| carriers(&nonce), Duration::from_secs(5), Duration::from_secs(5)).unwrap();
        assert!(left.is_empty());
        child.wait().unwrap();
    }
}
