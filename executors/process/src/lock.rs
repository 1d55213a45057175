//! The lock that makes a session the only one of its attempt. It is tied to an open file, so it ends with the
//! last process that has it: first the driver that starts, then the supervisor, which inherits the very same
//! open file. A free lock proves that no supervisor lives.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::layout::{self, file};

/// What an attempt to take the lock found.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It is ours now.
    Ours(SessionLock),
    /// Someone has it: a supervisor, or a driver that starts or cleans up.
    Held,
    /// There is no such lease.
    NoLease,
}

/// The lock, held.
#[derive(Debug)]
pub(crate) struct SessionLock {
    file: File,
}

impl SessionLock {
    /// Takes the lock of an attempt's directory if it is free.
    pub(crate) fn take(dir: &Path) -> io::Result<Taken> {
        let path = dir.join(file::LOCK);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if layout::is_absent(&error) => return Ok(Taken::NoLease),
            Err(error) => return Err(error),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Taken::Held),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The directory may have been destroyed between the open and the lock.
        match fs::metadata(&path) {
            Ok(now) if now.ino() == file.metadata()?.ino() => Ok(Taken::Ours(Self { file })),
            Ok(_) => Ok(Taken::Held),
            Err(error) if layout::is_absent(&error) => Ok(Taken::NoLease),
            Err(error) => Err(error),
        }
    }

    /// Another handle on the same lock, to hand to a child: the lock is free once both are closed.
    pub(crate) fn share(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

/// Whether someone holds the lock. Does not disturb one who is about to take it for longer than an instant.
pub(crate) fn is_held(dir: &Path) -> io::Result<bool> {
    let file = match File::open(dir.join(file::LOCK)) {
        Ok(file) => file,
        Err(error) if layout::is_absent(&error) => return Ok(false),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_held_until_the_last_handle_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(SessionLock::take(dir.path()).unwrap(), Taken::NoLease));
        fs::write(dir.path().join(file::LOCK), "").unwrap();
        let Taken::Ours(lock) = SessionLock::take(dir.path()).unwrap() else { panic!("not free") };
        let shared = lock.share().unwrap();
        drop(lock);
        assert!(is_held(dir.path()).unwrap());
        assert!(matches!(SessionLock::take(dir.path()).unwrap(), Taken::Held));
        drop(shared);
        assert!(!is_held(dir.path()).unwrap());
        assert!(matches!(SessionLock::take(dir.path()).unwrap(), Taken::Ours(_)));
    }
}
