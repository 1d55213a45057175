//! What is on disk, where, and who writes it. Everything else about a node can be read off these files.
//!
//! ```text
//! ROOT/SLOT/slot-UID/             what belongs to the slot of one run, from attempt to attempt
//!     ports.json                    its ports (the claim itself is in the port registry)
//!     data/                         {data} when the shape says `data: keep`
//!     previous.log                  the tail of the last destroyed attempt's output
//! ROOT/SLOT/aN-XXXXXXXXXXXX/      one attempt: the lease. Made under a hidden name, then renamed: the commit
//!     lease.json                    whose it is                          written before the rename
//!     session.lock                  held by the one session              driver, then supervisor
//!     boot.json                     what a later driver must know        driver, under the lock
//!     session.json                  who runs                             supervisor
//!     ready.json                    that it joined                       driver, at the first good probe
//!     exit.json                     how the program ended                supervisor, or whoever cleans up
//!     session.sock                  status, watch, stop                  supervisor
//!     output.log, output.log.1 ...  the program's output                 supervisor
//!     work/                         {dir}
//!     data/                         {data} when the shape says `data: discard`
//! ```
//! No record holds a secret: the environment goes to the supervisor through a pipe.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use executor_api::{AttemptKey, LogicalNodeId, RunId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::marker;
use crate::processes::ProcessId;
use crate::settings::{DataPolicy, EnvValue};

/// Where everything of one attempt is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlace {
    /// `SLOT/aN-XXXXXXXXXXXX`: the lease's id and the session's.
    pub id: String,
    /// The slot's directory.
    pub slot: PathBuf,
    /// What belongs to the slot of this run.
    pub keep: PathBuf,
    /// The attempt's directory.
    pub dir: PathBuf,
}

impl NodePlace {
    /// The place of an attempt below a run's nodes directory.
    pub fn of(root: &Path, key: &AttemptKey) -> Self {
        let name = format!("{}-{}", key.attempt, &marker::nonce(key)[..12]);
        let slot = root.join(key.node.as_str());
        Self {
            id: format!("{}/{name}", key.node),
            keep: keep_dir(root, &key.run, &key.node),
            dir: slot.join(name),
            slot,
        }
    }

    /// Where `{data}` is.
    pub fn data(&self, policy: DataPolicy) -> PathBuf {
        match policy {
            DataPolicy::Discard => self.dir.join("data"),
            DataPolicy::Keep => self.keep.join("data"),
        }
    }

    /// Where `{dir}` is.
    pub fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    /// The output of the last destroyed attempt.
    pub fn previous_log(&self) -> PathBuf {
        self.keep.join("previous.log")
    }
}

/// What belongs to a slot of one run rather than to an attempt.
pub fn keep_dir(root: &Path, run: &RunId, node: &LogicalNodeId) -> PathBuf {
    root.join(node.as_str()).join(format!("slot-{}", run.uid()))
}

/// Names of the files in an attempt's directory.
pub mod file {
    /// Whose the directory is.
    pub const LEASE: &str = "lease.json";
    /// The lock that makes a session the only one.
    pub const LOCK: &str = "session.lock";
    /// What a later driver must know of the session.
    pub const BOOT: &str = "boot.json";
    /// Who runs.
    pub const SESSION: &str = "session.json";
    /// That the node joined.
    pub const READY: &str = "ready.json";
    /// How the program ended.
    pub const EXIT: &str = "exit.json";
    /// The supervisor's socket.
    pub const SOCKET: &str = "session.sock";
    /// The program's output.
    pub const LOG: &str = "output.log";
    /// What the supervisor itself had to say; empty unless something is wrong with it.
    pub const SUPERVISOR_LOG: &str = "supervisor.log";
}

/// `lease.json`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// Whose it is.
    pub attempt: AttemptKey,
    /// When it was made.
    pub created_at: SystemTime,
    /// The slot's ports in the order of the shape.
    pub ports: Vec<(String, u16)>,
    /// What `{data}` means.
    pub data: DataPolicy,
}

/// `boot.json`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootRecord {
    /// When the node is ready.
    pub probe: Option<ProbeRecord>,
    /// The declared environment, secrets by reference, for an `exec` probe.
    pub env: BTreeMap<String, EnvValue>,
    /// The program's working directory.
    pub workdir: PathBuf,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
}

/// A readiness probe, rendered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeRecord {
    /// What is tried.
    pub check: Check,
    /// Time between two tries.
    pub every: Duration,
    /// How long one try may take.
    pub timeout: Duration,
}

/// What a readiness probe tries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// `HOST:PORT` accepts a connection.
    Tcp(String),
    /// The address answers with a status from 200 to 399.
    Http(String),
    /// The program exits with 0.
    Exec(Vec<String>),
    /// The supervisor has seen the text in a line of the output.
    Log(String),
}

/// `session.json`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The machine's boot; process ids of another boot mean nothing.
    pub boot_id: String,
    /// The supervisor.
    pub supervisor: ProcessId,
    /// The program, once it was started.
    pub program: Option<ProcessId>,
    /// When the supervisor began.
    pub started_at: SystemTime,
}

/// `ready.json`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyRecord {
    /// When the first good probe was.
    pub joined_at: SystemTime,
}

/// `exit.json`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// How.
    pub how: Exit,
    /// When.
    pub at: SystemTime,
    /// Whether a stop had been asked for before.
    pub asked: bool,
    /// The last lines of the output, secrets blacked out.
    pub tail: String,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// With a status.
    Status(i32),
    /// By a signal.
    Signal(i32),
    /// It never ran.
    NotStarted(String),
    /// Its supervisor vanished, so nobody saw how.
    Unseen,
}

impl ExitRecord {
    /// In words, with the last output, for an operator.
    pub fn describe(&self) -> String {
        let how = match &self.how {
            Exit::Status(code) => format!("the program exited with status {code}"),
            Exit::Signal(signal) => format!("the program was ended by signal {signal}"),
            Exit::NotStarted(why) => format!("the program could not be started: {why}"),
            Exit::Unseen => {
                "the node's supervisor was killed, so the program counts as lost; what is left of it \
                             ends when the lease is destroyed"
                    .to_owned()
            }
        };
        // One line: it is stored, listed in tables and logged.
        let tail: Vec<_> = self.tail.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if tail.is_empty() { how } else { format!("{how}; last output: {}", tail.join(" | ")) }
    }
}

/// Writes a record so that a reader sees the old one or the new one, never half of one.
pub(crate) fn write_record<T: Serialize>(dir: &Path, name: &str, record: &T) -> io::Result<()> {
    let hidden = dir.join(format!(".{name}.{}", std::process::id()));
    let mut file = fs::File::create(&hidden)?;
    serde_json::to_writer(&mut file, record)?;
    file.write_all(b"\n")?;
    drop(file);
    fs::rename(&hidden, dir.join(name))
}

/// Reads a record; `None` if there is none.
pub(crate) fn read_record<T: DeserializeOwned>(dir: &Path, name: &str) -> io::Result<Option<T>> {
    match fs::read(dir.join(name)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error proves that the path is not there.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Makes a directory and its parents, for this user alone.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes a directory and what is in it; one that is not there is fine.
pub(crate) fn remove_dir(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if !is_absent(&error) => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use executor_api::NodeAttemptId;

    #[test]
    fn two_runs_of_one_name_have_separate_places_in_one_root() {
        let key = |uid: &str| AttemptKey {
            run: RunId::new("demo", uid).unwrap(),
            node: LogicalNodeId::parse("web-1").unwrap(),
            attempt: NodeAttemptId(3),
        };
        let (a, b) = (NodePlace::of(Path::new("/r"), &key("u1")), NodePlace::of(Path::new("/r"), &key("u2")));
        assert_eq!(a.slot, b.slot);
        assert_ne!(a.dir, b.dir);
        assert_ne!(a.keep, b.keep);
        assert!(a.id.starts_with("web-1/a3-"));
    }

    #[test]
    fn a_missing_record_is_none_and_a_broken_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read_record::<ReadyRecord>(dir.path(), file::READY).unwrap().is_none());
        fs::write(dir.path().join(file::READY), "{").unwrap();
        assert!(read_record::<ReadyRecord>(dir.path(), file::READY).is_err());
        let record = ReadyRecord { joined_at: SystemTime::UNIX_EPOCH };
        write_record(dir.path(), file::READY, &record).unwrap();
        assert_eq!(read_record(dir.path(), file::READY).unwrap(), Some(record));
    }
}
