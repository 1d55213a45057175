//! What a bootstrapper must know of an attempt in a later life: one small file per attempt, in a directory that
//! belongs to the run. Written before the outside world is touched, so that an attempt without a record is one
//! for which nothing was ever begun from here. Holds references to secrets, never a secret.
//!
//! ```text
//! DIR/UID/SLOT/aN.json
//! ```

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::marker::PhantomData;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use executor_api::{AttemptKey, ExecutorError, ExecutorErrorKind, NodeAttemptId, OperationKind};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How many records of earlier attempts a slot keeps.
const KEPT: usize = 8;

/// The records of one bootstrapper.
#[derive(Debug)]
pub struct Records<T> {
    dir: PathBuf,
    what: PhantomData<fn(T) -> T>,
}

/// Why a record could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} the record {path}; see to the directory's rights and space")]
pub struct RecordError {
    /// What was being done.
    pub doing: &'static str,
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl RecordError {
    /// As the end of a call that did nothing else.
    pub fn ends(self, effect: OperationKind, attempt: &AttemptKey) -> ExecutorError {
        let context = format!("the record of {attempt} could not be kept");
        ExecutorError::new(ExecutorErrorKind::Unavailable, effect, context).with_source(self)
    }
}

impl<T: Serialize + DeserializeOwned> Records<T> {
    /// Records below this directory, which is made on first use.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, what: PhantomData }
    }

    /// Where the records are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The attempt's record.
    pub fn load(&self, attempt: &AttemptKey) -> Result<Option<T>, RecordError> {
        let path = self.path(attempt);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(RecordError { doing: "read", path, source }),
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| RecordError {
            doing: "understand",
            path,
            source: io::Error::new(ErrorKind::InvalidData, error),
        })
    }

    /// The attempt's record; this one unless there is one already. Atomic, also between processes.
    pub fn load_or_create(&self, attempt: &AttemptKey, record: T) -> Result<T, RecordError> {
        if let Some(found) = self.load(attempt)? {
            return Ok(found);
        }
        let path = self.path(attempt);
        let made = self.stage(&path, &record).and_then(|staged| {
            let linked = fs::hard_link(&staged, &path);
            fs::remove_file(&staged)?;
            linked
        });
        match made {
            Ok(()) => {
                self.prune(attempt);
                Ok(record)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.load(attempt)?.map_or_else(|| self.load_or_create(attempt, record), Ok)
            }
            Err(source) => Err(RecordError { doing: "write", path, source }),
        }
    }

    /// Changes the attempt's record; one change at a time, also between processes. `None` if there is none.
    pub fn update(
        &self,
        attempt: &AttemptKey,
        change: impl FnOnce(&mut T),
    ) -> Result<Option<T>, RecordError> {
        let path = self.path(attempt);
        // Held until the end of this function.
        let _lock =
            self.lock(attempt).map_err(|source| RecordError { doing: "lock", path: path.clone(), source })?;
        let Some(mut record) = self.load(attempt)? else { return Ok(None) };
        change(&mut record);
        self.stage(&path, &record)
            .and_then(|staged| fs::rename(&staged, &path))
            .map_err(|source| RecordError { doing: "write", path, source })?;
        Ok(Some(record))
    }

    fn path(&self, attempt: &AttemptKey) -> PathBuf {
        self.slot(attempt).join(format!("{}.json", attempt.attempt))
    }

    fn slot(&self, attempt: &AttemptKey) -> PathBuf {
        self.dir.join(attempt.run.uid()).join(attempt.node.as_str())
    }

    fn lock(&self, attempt: &AttemptKey) -> io::Result<fs::File> {
        let slot = self.slot(attempt);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&slot)?;
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(slot.join("lock"))?;
        file.lock()?;
        Ok(file)
    }

    /// Writes the record durably under a name of its own beside its place.
    fn stage(&self, path: &Path, record: &T) -> io::Result<PathBuf> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let slot = path.parent().unwrap_or(&self.dir);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(slot)?;
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let staged = path.with_extension(format!("new-{}-{n}", std::process::id()));
        let text = serde_json::to_vec(record).map_err(io::Error::other)?;
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&staged)?;
        file.write_all(&text)?;
        file.sync_all()?;
        Ok(staged)
    }

    /// The attempts of the same slot before this one that have a record, the latest first.
    pub fn earlier(&self, attempt: &AttemptKey) -> Vec<AttemptKey> {
        let Ok(entries) = fs::read_dir(self.slot(attempt)) else { return Vec::new() };
        let mut numbers: Vec<u64> = entries
            .flatten()
            .filter_map(|entry| {
                entry.file_name().to_str()?.strip_prefix('a')?.strip_suffix(".json")?.parse().ok()
            })
            .filter(|number| *number < attempt.attempt.0)
            .collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        let key = |number| AttemptKey { attempt: NodeAttemptId(number), ..attempt.clone() };
        numbers.into_iter().map(key).collect()
    }

    /// Removes the oldest records of a slot. Best effort: one too many does no harm.
    fn prune(&self, newest: &AttemptKey) {
        for old in self.earlier(newest).into_iter().skip(KEPT) {
            let _ = fs::remove_file(self.path(&old));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use executor_api::{LogicalNodeId, RunId};

    fn key(attempt: u64) -> AttemptKey {
        AttemptKey {
            run: RunId::new("demo", "u1").unwrap(),
            node: LogicalNodeId::parse("web-0").unwrap(),
            attempt: NodeAttemptId(attempt),
        }
    }

    fn records() -> (tempfile::TempDir, Records<String>) {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path().join("records"));
        (dir, records)
    }

    #[test]
    fn the_first_record_of_an_attempt_stands() {
        let (_dir, records) = records();
        assert_eq!(records.load(&key(1)).unwrap(), None);
        assert_eq!(records.load_or_create(&key(1), "first".into()).unwrap(), "first");
        assert_eq!(records.load_or_create(&key(1), "second".into()).unwrap(), "first");
        let again = Records::<String>::new(records.dir().to_owned());
        assert_eq!(again.update(&key(1), |text| text.push('!')).unwrap().unwrap(), "first!");
        assert_eq!(records.load(&key(1)).unwrap().unwrap(), "first!");
        assert_eq!(records.update(&key(2), |_| ()).unwrap(), None);
    }

    #[test]
    fn concurrent_firsts_agree_on_one() {
        let (_dir, records) = records();
        let seen: std::collections::BTreeSet<String> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|n| {
                    let records = &records;
                    scope.spawn(move || records.load_or_create(&key(1), n.to_string()).unwrap())
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(seen.len(), 1, "{seen:?}");
    }

    #[test]
    fn a_slot_keeps_a_bounded_number() {
        let (_dir, records) = records();
        for n in 0..30 {
            records.load_or_create(&key(n), n.to_string()).unwrap();
        }
        records.update(&key(29), |_| ()).unwrap();
        let left = fs::read_dir(records.slot(&key(0))).unwrap().flatten();
        let left = left.filter(|entry| entry.file_name() != "lock").count();
        assert_eq!(left, KEPT + 1);
        let earlier: Vec<_> = records.earlier(&key(25)).iter().map(|key| key.attempt.0).collect();
        assert_eq!(earlier, [24, 23, 22, 21]);
        assert_eq!(records.load(&key(29)).unwrap().unwrap(), "29");
    }

    #[test]
    fn a_broken_record_is_an_error_that_names_the_file_and_not_an_absence() {
        let (_dir, records) = records();
        records.load_or_create(&key(1), "x".into()).unwrap();
        fs::write(records.path(&key(1)), "{").unwrap();
        assert!(records.load(&key(1)).unwrap_err().to_string().contains("a1.json"));
    }
}
