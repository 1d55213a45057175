//! What exists, as the disk and the process table say. Nothing here asks the executor.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use conformance::{HeldLease, HeldSession, Inventory};
use executor_api::{
    AttemptKey, BootstrapSessionId, LeaseId, LeaseOwner, LogicalNodeId, NodeAttemptId, RunId,
};

use crate::layout::{self, LeaseRecord, NodePlace, file};
use crate::marker;
use crate::processes::{self, ProcessInfo};

/// Takes stock below a nodes directory, and of the processes of runs whose uid begins like that.
pub(super) fn take(root: &Path, uid: &str) -> Inventory {
    Inventory { leases: leases(root), sessions: sessions(root, uid) }
}

/// Ends every process of these runs and every supervisor below the directory. Removing the directory is left to
/// its owner.
pub(super) fn kill_everything(dir: &Path, uid: &str) {
    // Supervisors first: they start nothing anew, but they would still write.
    for (info, _) in supervisors(dir) {
        let _ = processes::kill(info.id);
    }
    for info in marked(uid).into_values().map(|(info, _)| info) {
        let _ = processes::kill(info.id);
    }
}

/// Each attempt's directory is a lease; dead ones count, for they take up room until they are destroyed. So do
/// directories half made or half removed.
fn leases(root: &Path) -> Vec<HeldLease> {
    let mut found = Vec::new();
    for slot in fs::read_dir(root).into_iter().flatten().flatten() {
        for entry in fs::read_dir(slot.path()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("slot-") {
                continue;
            }
            let owner = match layout::read_record::<LeaseRecord>(&entry.path(), file::LEASE) {
                Ok(Some(record)) if !name.starts_with('.') => LeaseOwner::Attempt(record.attempt),
                _ => LeaseOwner::Incomplete,
            };
            let id = format!("{}/{name}", slot.file_name().to_string_lossy());
            found.push(HeldLease { id: LeaseId(id), owner });
        }
    }
    found
}

/// One per supervisor, and one per program that no supervisor of ours watches.
fn sessions(root: &Path, uid: &str) -> Vec<HeldSession> {
    let marked = marked(uid);
    let mut watched = Vec::new();
    let mut owners = Vec::new();
    for (supervisor, dir) in supervisors(root) {
        if let Ok(Some(record)) = layout::read_record::<LeaseRecord>(&dir, file::LEASE) {
            watched.push(supervisor.id.pid);
            owners.push(record.attempt);
        }
    }
    for (info, key) in marked.values() {
        if !watched.contains(&info.parent) && !marked.contains_key(&info.parent) {
            owners.push(key.clone());
        }
    }
    let session =
        |owner: AttemptKey| HeldSession { id: BootstrapSessionId(NodePlace::of(root, &owner).id), owner };
    owners.into_iter().map(session).collect()
}

/// The supervisors of nodes below a directory, each with its node's.
fn supervisors(below: &Path) -> Vec<(ProcessInfo, PathBuf)> {
    let table = processes::table().unwrap_or_default();
    let found = table.into_iter().filter_map(|info| {
        let line = fs::read(format!("/proc/{}/cmdline", info.id.pid)).ok()?;
        let mut words = line.split(|byte| *byte == 0).rev().skip_while(|word| word.is_empty());
        let dir = PathBuf::from(String::from_utf8_lossy(words.next()?).into_owned());
        let serves = words.next()? == b"serve" && dir.starts_with(below);
        serves.then_some((info, dir))
    });
    found.collect()
}

/// The processes that carry the marker of such a run, by process id.
fn marked(uid: &str) -> BTreeMap<i32, (ProcessInfo, AttemptKey)> {
    let table = processes::table().unwrap_or_default();
    let found = table.into_iter().filter_map(|info| {
        let environ = fs::read(format!("/proc/{}/environ", info.id.pid)).ok()?;
        let key = owner_of(&environ).filter(|key| key.run.uid().starts_with(uid))?;
        Some((info.id.pid, (info, key)))
    });
    found.collect()
}

fn owner_of(environ: &[u8]) -> Option<AttemptKey> {
    let entries: BTreeMap<&str, &str> = environ
        .split(|byte| *byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok()?.split_once('='))
        .collect();
    Some(AttemptKey {
        run: RunId::new(*entries.get(marker::RUN)?, *entries.get(marker::RUN_UID)?).ok()?,
        node: LogicalNodeId::parse(*entries.get(marker::NODE)?).ok()?,
        attempt: NodeAttemptId(entries.get(marker::ATTEMPT)?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_belongs_to_whom_its_whole_marker_names() {
        let environ =
            b"A=b\0RECONCILER_RUN=r\0RECONCILER_RUN_UID=u\0RECONCILER_NODE=n-1\0RECONCILER_ATTEMPT=7\0";
        let key = owner_of(environ).unwrap();
        assert_eq!((key.run.uid(), key.node.as_str(), key.attempt.0), ("u", "n-1", 7));
        assert!(owner_of(&environ[..environ.len() - 24]).is_none(), "half a marker was taken");
    }
}
