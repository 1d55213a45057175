//! When a log moves into its file: after the commit that fills it, whose error an error of the move is. SQLite's own way
//! is the same but for the error, which it keeps to itself: the next commit would synchronise the same handle again, and
//! the kernel, which tells a lost write once, would call it well. For both stores of this crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rusqlite::Connection;
use rusqlite::hooks::Wal;

/// Pages in a log that is moved.
const FULL: i32 = 1000;

/// The log of a connection's database, for its writer.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Pages in it after the latest commit.
    pages: Arc<AtomicI32>,
}

impl Log {
    /// Takes the log over from SQLite.
    pub(crate) fn of(connection: &mut Connection) -> rusqlite::Result<Self> {
        let log = Self::default();
        let pages = Arc::clone(&log.pages);
        // An error in here would reach the commit without saying which.
        connection.wal_hook(Some(move |_: &mut Wal, count| {
            pages.store(count, Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(log)
    }

    /// Moves what the latest commit filled. What readers or another writer are in the way of, a later commit moves.
    pub(crate) fn move_if_full(&self, connection: &Connection) -> rusqlite::Result<()> {
        if self.pages.load(Ordering::Relaxed) < FULL {
            return Ok(());
        }
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
    }
}
