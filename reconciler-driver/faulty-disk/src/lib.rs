//! SQLite's own file layer, with errors where a test asks for them and a record of what reached the disk. Files
//! opened through it are real files; only tests depend on it.
//!
//! [`Disk`] is what tests hold, `layer` the table of C functions that SQLite calls.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags};

mod layer;

/// The name under which SQLite knows the layer.
const NAME: &CStr = c"faulty";

/// What a call does to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Content is written.
    Write,
    /// What was written is made durable.
    Sync,
}

/// Which file of a database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The database itself.
    Main,
    /// Its write-ahead log.
    Log,
}

/// One call that reached the layer, and whether it was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What it does.
    pub kind: Kind,
    /// To which file.
    pub part: Part,
    /// Whether it failed by order.
    pub failed: bool,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A sync fails: what was written before it may or may not be on the disk, and the kernel tells it once.
    SyncFails,
    /// There is no space left for a write.
    NoSpace,
    /// Half of a write reaches the file, then it fails.
    Torn,
}

impl Fault {
    fn hits(self, kind: Kind) -> bool {
        match self {
            Self::SyncFails => kind == Kind::Sync,
            Self::NoSpace | Self::Torn => kind == Kind::Write,
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    /// The fault, how many calls it may hit are let through first, and whether it stays from then on.
    armed: Option<(Fault, u64, bool)>,
    calls: Vec<Call>,
}

/// The disk under one database. Kept for ever, because SQLite's files point to it: a test makes a few.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    inner: Mutex<Inner>,
}

impl Disk {
    /// The disk under the database at this path.
    pub fn under(path: &Path) -> &'static Self {
        layer::register();
        layer::enter(Self { path: path.to_owned(), inner: Mutex::default() })
    }

    /// Opens the database through this layer.
    pub fn open(&self) -> rusqlite::Result<Connection> {
        Connection::open_with_flags_and_vfs(&self.path, OpenFlags::default(), NAME)
    }

    /// From now on the call after `spared` others of its kind fails, and that one alone.
    pub fn fail(&self, fault: Fault, spared: u64) {
        self.with(|inner| inner.armed = Some((fault, spared, false)));
    }

    /// As [`fail`](Self::fail), and every one of its kind after it.
    pub fn fail_for_good(&self, fault: Fault, spared: u64) {
        self.with(|inner| inner.armed = Some((fault, spared, true)));
    }

    /// The cause is gone.
    pub fn heal(&self) {
        self.with(|inner| inner.armed = None);
    }

    /// What reached the layer since the last time.
    pub fn take_calls(&self) -> Vec<Call> {
        self.with(|inner| std::mem::take(&mut inner.calls))
    }

    /// A call arrives. Whether and how it fails.
    fn meet(&self, kind: Kind, part: Part) -> Option<Fault> {
        self.with(|inner| {
            let hit = match &mut inner.armed {
                Some((fault, 0, stays)) if fault.hits(kind) => {
                    let (fault, stays) = (*fault, *stays);
                    if !stays {
                        inner.armed = None;
                    }
                    Some(fault)
                }
                Some((fault, spared, _)) if fault.hits(kind) => {
                    *spared -= 1;
                    None
                }
                Some(_) | None => None,
            };
            inner.calls.push(Call { kind, part, failed: hit.is_some() });
            hit
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
