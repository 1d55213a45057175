//! Removing what is left of a run that has no nodes any more. Only what this program made is removed, file by
//! file; anything else in the directory is left and named.

use std::io;
use std::path::Path;
use std::time::Duration;

use crate::cli::failure::Failure;
use crate::run::dir::RunDir;
use crate::run::lock::{Lock, LockError};
use crate::run::state::{Stored, files_of, remove_if_there};

/// In the directory of a run that was proved to be empty, until all of it is gone.
const MARK: &str = "removing";

/// Whether a removal was cut short after the state was gone: what is left may go.
pub(crate) fn was_cut_short(dir: &RunDir) -> Result<bool, Failure> {
    Ok(dir.path().join(MARK).exists() && Stored::look(dir)?.is_none())
}

/// The run is driven again: a removal that was cut short is over.
pub(crate) fn call_off(dir: &RunDir) -> Result<(), Failure> {
    let mark = dir.path().join(MARK);
    remove_if_there(&mark)
        .map_err(|error| Failure::while_doing(format_args!("removing {}", mark.display()), &error))
}

/// Removes the run's files and its directory. May be asked for again after it was cut short.
pub(crate) async fn remove(dir: &RunDir) -> Result<(), Failure> {
    let _lock = take_lock(dir).await?;
    let stored = Stored::look(dir)?;
    if stored.is_some_and(|stored| !stored.image.state.nodes.is_empty()) {
        return Err(Failure::error(format!("run {} has nodes again; somebody else made them", dir.run())));
    }
    let doing = |path: &Path| format!("removing {}", path.display());
    let mark = dir.path().join(MARK);
    std::fs::write(&mark, []).map_err(|error| Failure::while_doing(doing(&mark), &error))?;
    let new = dir.path().join("state.db.new");
    let before = dir.path().join("state.db.before-adopt");
    let journal = ["events.jsonl", "events.1.jsonl", "passes.jsonl", "passes.1.jsonl"];
    let journal = journal.map(|name| dir.path().join(name));
    for path in [dir.socket()]
        .into_iter()
        .chain(journal)
        .chain(files_of(&before))
        .chain(files_of(&new))
        .chain(files_of(&dir.store()).into_iter().rev())
    {
        remove_if_there(&path).map_err(|error| Failure::while_doing(doing(&path), &error))?;
    }
    remove_records(&dir.sessions()).map_err(|error| Failure::while_doing(doing(&dir.sessions()), &error))?;
    // The lock's file goes last and while it is held: whoever waits for it finds that it is no longer there.
    for path in [dir.sessions(), dir.nodes()] {
        remove_empty(&path).map_err(|error| Failure::while_doing(doing(&path), &error))?;
    }
    for path in [dir.lock(), mark] {
        remove_if_there(&path).map_err(|error| Failure::while_doing(doing(&path), &error))?;
    }
    absent(std::fs::remove_dir(dir.path())).map_err(|error| Failure::while_doing(doing(dir.path()), &error))
}

/// The driver lets go of the lock a moment after it answered.
async fn take_lock(dir: &RunDir) -> Result<Lock, Failure> {
    let mut tries = 0;
    loop {
        match Lock::take(dir) {
            Ok(lock) => return Ok(lock),
            Err(LockError::Held(_)) if tries < 200 => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => return Err(error.refusal(dir.run())),
        }
    }
}

/// Removes the records of sessions, as `executor_probe::records` names them: `lock`, `aN.json`, and what was about to
/// become one. A session's record outlives its node, for a late call must find that it is over.
fn remove_records(path: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_records(&entry.path())?;
        } else if is_record(&entry.file_name().to_string_lossy()) {
            remove_if_there(&entry.path())?;
        }
    }
    Ok(())
}

fn is_record(name: &str) -> bool {
    let attempt = name.strip_prefix('a').and_then(|rest| rest.split_once('.'));
    let of_attempt = attempt.is_some_and(|(number, kind)| {
        number.parse::<u64>().is_ok() && (kind == "json" || kind.starts_with("new-"))
    });
    of_attempt || name == "lock"
}

/// Removes directories that hold nothing but such directories. A file in one of them belongs to somebody.
fn remove_empty(path: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_empty(&entry.path())?;
        }
    }
    absent(std::fs::remove_dir(path))
}

fn absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_sessions_are_removed_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let slot = dir.path().join("probe/uid/web-0");
        std::fs::create_dir_all(&slot).unwrap();
        for name in ["lock", "a1.json", "a12.new-7-0", "notes.txt", "a.json", "about.json"] {
            std::fs::write(slot.join(name), "").unwrap();
        }
        remove_records(dir.path()).unwrap();
        let left = std::fs::read_dir(&slot).unwrap().map(|entry| entry.unwrap().file_name());
        let mut left: Vec<_> = left.collect();
        left.sort();
        assert_eq!(left, ["a.json", "about.json", "notes.txt"]);
        remove_empty(dir.path()).unwrap_err();
    }
}
