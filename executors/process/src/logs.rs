//! Where a node's output is. Written by the supervisor, read by whoever wants to see it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use executor_api::AttemptKey;

use crate::layout::{self, NodePlace, file};

/// How much of a destroyed attempt's output is kept.
const PREVIOUS_BYTES: u64 = 1024 * 1024;

/// The files that hold the output of a slot's present attempt and of the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFiles {
    /// Rotated files of the present attempt, oldest first; only those that exist.
    pub rotated: Vec<PathBuf>,
    /// What is being written now. It may not exist yet. When it is rotated it is renamed and another file
    /// takes its name: a follower sees another inode.
    pub current: PathBuf,
    /// The tail of the last destroyed attempt's output; it may not exist.
    pub previous: PathBuf,
}

/// Where the output of an attempt below a run's nodes directory is.
pub fn log_files(root: &Path, key: &AttemptKey) -> LogFiles {
    let place = NodePlace::of(root, key);
    LogFiles {
        rotated: rotated(&place.dir),
        current: place.dir.join(file::LOG),
        previous: place.previous_log(),
    }
}

/// The name of the n-th rotated file.
pub(crate) fn rotated_name(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{}.{number}", file::LOG))
}

/// Keeps the tail of an attempt's output as that of the slot's previous attempt.
pub(crate) fn keep_tail(place: &NodePlace) -> io::Result<()> {
    let mut tail = Vec::new();
    let files = rotated(&place.dir).into_iter().chain([place.dir.join(file::LOG)]);
    let mut room = PREVIOUS_BYTES;
    for path in files.rev() {
        let mut log = match File::open(&path) {
            Ok(log) => log,
            Err(error) if layout::is_absent(&error) => continue,
            Err(error) => return Err(error),
        };
        let length = log.metadata()?.len();
        log.seek(SeekFrom::Start(length.saturating_sub(room)))?;
        let mut part = Vec::new();
        log.take(room).read_to_end(&mut part)?;
        room -= part.len() as u64;
        part.append(&mut tail);
        tail = part;
        if room == 0 {
            break;
        }
    }
    if tail.is_empty() {
        return Ok(());
    }
    layout::make_dir(&place.keep)?;
    std::fs::write(place.previous_log(), tail)
}

/// Rotated files, oldest first.
fn rotated(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        (1..=u32::MAX).map(|number| rotated_name(dir, number)).take_while(|path| path.exists()).collect();
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use executor_api::{LogicalNodeId, NodeAttemptId, RunId};
    use std::fs;

    #[test]
    fn the_tail_joins_the_rotated_files_in_order() {
        let root = tempfile::tempdir().unwrap();
        let key = AttemptKey {
            run: RunId::new("demo", "u").unwrap(),
            node: LogicalNodeId::parse("n-0").unwrap(),
            attempt: NodeAttemptId(1),
        };
        let place = NodePlace::of(root.path(), &key);
        fs::create_dir_all(&place.dir).unwrap();
        for (name, text) in [("output.log.2", "one\n"), ("output.log.1", "two\n"), ("output.log", "three\n")]
        {
            fs::write(place.dir.join(name), text).unwrap();
        }
        let files = log_files(root.path(), &key);
        assert_eq!(files.rotated.len(), 2);
        assert!(files.rotated[0].ends_with("output.log.2"));
        keep_tail(&place).unwrap();
        assert_eq!(fs::read_to_string(files.previous).unwrap(), "one\ntwo\nthree\n");
    }
}
