//! The one who drives a run holds its lock. A kernel lock on a file: it ends with its holder, however that ends,
//! so there is nothing stale to clean up. The file's text says who holds it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cli::failure::{Failure, remedy};
use crate::run::dir::RunDir;
use crate::run::uid;

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    /// The process.
    pub(crate) pid: u32,
    /// Since when, RFC 3339.
    pub(crate) since: String,
    /// Drawn anew by each holder: a process id may come again, this does not.
    pub(crate) nonce: String,
}

/// A held lock. Dropping it lets go.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

/// Why a lock was not taken.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Somebody holds it; who, if the file says.
    Held(Option<Holder>),
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
            Self::Held(Some(Holder { pid, since, .. })) => Failure::refused(format!(
                "run {run} is being driven by process {pid} since {since}; stop that one first (kill {pid}), or use \
                 status, scale and the like while it drives"
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
                Err(TryLockError::WouldBlock) => return Err(LockError::Held(holder(dir))),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // The last holder may have removed the file between our opening and our locking it.
            let ours = file.metadata().map_err(failed)?;
            match std::fs::metadata(dir.lock()) {
                Ok(there) if there.ino() == ours.ino() && there.dev() == ours.dev() => {}
                _ => continue,
            }
            let holder = Holder {
                pid: std::process::id(),
                since: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                nonce: uid::mint().map_err(LockError::Failed)?,
            };
            let text = serde_json::to_string(&holder).map_err(|error| failed(error.into()))?;
            file.set_len(0).map_err(failed)?;
            file.rewind().map_err(failed)?;
            writeln!(file, "{text}").map_err(failed)?;
            return Ok(Self { file });
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Emptied, so that nobody is named who no longer holds it. The lock itself ends with the file.
        let _ = self.file.set_len(0);
        let _ = self.file.unlock();
    }
}

/// Who holds the lock of a run, if somebody does.
pub(crate) fn holder(dir: &RunDir) -> Option<Holder> {
    let file = File::open(dir.lock()).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        Ok(()) | Err(TryLockError::Error(_)) => return None,
    }
    let text = std::fs::read_to_string(dir.lock()).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_refused_with_the_first_ones_pid() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::of(root.path(), "demo");
        dir.create().unwrap();
        assert_eq!(holder(&dir), None);
        let lock = Lock::take(&dir).unwrap();
        let refusal = Lock::take(&dir).unwrap_err().refusal("demo");
        assert!(refusal.message.contains(&std::process::id().to_string()), "{}", refusal.message);
        drop(lock);
        assert_eq!(holder(&dir), None);
        Lock::take(&dir).unwrap();
    }
}
