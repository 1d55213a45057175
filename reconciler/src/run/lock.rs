//! The one who drives a run holds its lock. A kernel lock on a file: it ends with its holder, however that ends,
//! so there is nothing stale to clean up. The file's text says who holds it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Duration;

use crate::cli::failure::{Failure, remedy};
use crate::run::dir::RunDir;
use crate::run::holder::Holder;

/// A held lock. Dropping it lets go.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

/// Why a lock was not taken.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Somebody holds it; who, if the file says.
    Held(Option<Box<Holder>>),
    /// Nobody holds it here; one of another host never let go of it.
    Elsewhere(Box<Holder>, PathBuf),
    /// The file cannot be used.
    Failed(Failure),
}

impl LockError {
    /// The refusal of a second driver.
    pub(crate) fn refusal(self, run: &str) -> Failure {
        match self {
            Self::Failed(failure) => failure,
            Self::Held(None) => Failure::refused(format!(
                "run {run} is being driven by another process; stop that one first, or use status, scale and the like"
            )),
            Self::Held(Some(holder)) => {
                let pid = holder.pid;
                Failure::refused(format!(
                    "run {run} is being driven by {holder}; stop that one first (kill {pid}), or use status, scale \
                     and the like while it drives"
                ))
            }
            Self::Elsewhere(holder, file) => Failure::refused(format!(
                "run {run} was driven by {holder} and was never let go of; whether that one still drives cannot be \
                 seen from this host. Make sure that it does not, then remove {} and start again",
                file.display()
            )),
        }
    }
}

impl Lock {
    /// Takes the lock of a run whose directory exists.
    pub(crate) fn take(dir: &RunDir) -> Result<Self, LockError> {
        let failed = |error: std::io::Error| {
            let doing = format!("locking {}{}", dir.lock().display(), remedy(&error));
            LockError::Failed(Failure::while_doing(doing, &error))
        };
        let mut tries = 0;
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(dir.lock())
                .map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                // One who only looks whether it is held holds it too, for an instant.
                Err(TryLockError::WouldBlock) if tries < 5 => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
                Err(TryLockError::WouldBlock) => return Err(LockError::Held(holder(dir).map(Box::new))),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // The last holder may have removed the file between our opening and our locking it.
            if !is_lock_of(&file, dir) {
                continue;
            }
            // A lock of this kernel ends with its holder, so that what the file says here is of no account. Another
            // host's may be one that this file system does not show.
            if let Some(left) = read(dir).filter(Holder::is_elsewhere) {
                return Err(LockError::Elsewhere(Box::new(left), dir.lock()));
            }
            let holder = Holder::me().map_err(LockError::Failed)?;
            let text = serde_json::to_string(&holder).map_err(|error| failed(error.into()))?;
            file.set_len(0).map_err(failed)?;
            file.rewind().map_err(failed)?;
            writeln!(file, "{text}").map_err(failed)?;
            return Ok(Self { file });
        }
    }

    /// Whether this still is the run's lock: its file may have been removed, and another one be held.
    pub(crate) fn is_of(&self, dir: &RunDir) -> bool {
        is_lock_of(&self.file, dir)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Emptied, so that nobody is named who no longer holds it. The lock itself ends with the file.
        let _ = self.file.set_len(0);
        let _ = self.file.unlock();
    }
}

fn is_lock_of(file: &File, dir: &RunDir) -> bool {
    match (file.metadata(), std::fs::metadata(dir.lock())) {
        (Ok(ours), Ok(there)) => there.ino() == ours.ino() && there.dev() == ours.dev(),
        _ => false,
    }
}

/// Who holds the lock of a run, if somebody does.
pub(crate) fn holder(dir: &RunDir) -> Option<Holder> {
    let file = File::open(dir.lock()).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        Ok(()) | Err(TryLockError::Error(_)) => return None,
    }
    read(dir)
}

/// Whom the file names; nobody, once its holder let go of it in good order.
fn read(dir: &RunDir) -> Option<Holder> {
    let text = std::fs::read_to_string(dir.lock()).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_refused_and_told_all_of_the_first() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::of(root.path(), "demo");
        dir.create().unwrap();
        assert_eq!(holder(&dir), None);
        let lock = Lock::take(&dir).unwrap();
        let refusal = Lock::take(&dir).unwrap_err().refusal("demo");
        let first = holder(&dir).unwrap();
        for part in [&first.pid.to_string(), &first.host, &first.started, &first.since, &first.nonce] {
            assert!(
                !part.is_empty() && refusal.message.contains(part.as_str()),
                "{part}: {}",
                refusal.message
            );
        }
        drop(lock);
        assert_eq!(holder(&dir), None);
        Lock::take(&dir).unwrap();
    }

    /// A run whose lock's file says this and is held by nobody.
    fn left(root: &tempfile::TempDir, holder: &Holder) -> RunDir {
        let dir = RunDir::of(root.path(), "demo");
        dir.create().unwrap();
        std::fs::write(dir.lock(), serde_json::to_string(holder).unwrap()).unwrap();
        dir
    }

    #[test]
    fn a_dead_holder_is_in_nobodys_way_even_if_its_pid_came_again() {
        let root = tempfile::tempdir().unwrap();
        // This very process lives and has that id; it does not hold the lock.
        let dead = Holder { nonce: "another".to_owned(), ..Holder::me().unwrap() };
        let dir = left(&root, &dead);
        assert_eq!(holder(&dir), None);
        let _lock = Lock::take(&dir).unwrap();
        assert_ne!(holder(&dir).unwrap().nonce, dead.nonce);
    }

    #[test]
    fn what_another_host_left_is_refused_with_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let there = Holder { host: "far-away".to_owned(), boot: "b".to_owned(), ..Holder::me().unwrap() };
        let dir = left(&root, &there);
        let refusal = Lock::take(&dir).unwrap_err().refusal("demo");
        assert!(
            refusal.message.contains("far-away") && refusal.message.contains("remove"),
            "{}",
            refusal.message
        );
        assert_eq!(read(&dir), Some(there), "refused, and left as it was");
        std::fs::remove_file(dir.lock()).unwrap();
        Lock::take(&dir).unwrap();
    }
}
