//! The supervisor's socket. A client writes one JSON line and then reads status lines: the first at once, one
//! per change, and the end of the stream when the supervisor is gone, however it went.

use std::fs::{self, File, Permissions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::state::Shared;
use crate::layout::file;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Tell what happens.
    Watch,
    /// End the node, and tell what happens.
    Stop {
        /// Time between SIGTERM and SIGKILL.
        grace: Duration,
    },
}

/// How often a silent connection is checked for a client that has gone.
const CLIENT_CHECK: Duration = Duration::from_secs(10);
/// How long a client may take to say what it wants, or to read.
const CLIENT_PATIENCE: Duration = Duration::from_secs(5);

/// A path to the socket that is short enough for any directory (a socket's address holds 108 bytes). Valid
/// while `dir` is open.
pub(crate) fn short_path(dir: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{}", dir.as_raw_fd(), file::SOCKET))
}

/// Makes the socket, for this user alone. One left by a predecessor is replaced: the lock is ours.
pub(crate) fn bind(dir: &Path) -> io::Result<UnixListener> {
    remove(dir);
    let handle = File::open(dir)?;
    let listener = UnixListener::bind(short_path(&handle))?;
    fs::set_permissions(dir.join(file::SOCKET), Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Removes the socket.
pub(crate) fn remove(dir: &Path) {
    let _ = fs::remove_file(dir.join(file::SOCKET));
}

/// Accepts clients on a thread of its own, one thread per client.
pub(crate) fn serve(listener: UnixListener, shared: &Arc<Shared>) -> io::Result<()> {
    let shared = Arc::clone(shared);
    thread::Builder::new().name("accept".into()).spawn(move || {
        for client in listener.incoming() {
            let Ok(client) = client else {
                // Out of descriptors, most likely: let some close.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            shared.lock().connections += 1;
            let own = Arc::clone(&shared);
            let spawned = thread::Builder::new().name("client".into()).spawn(move || {
                // A client that has gone is no concern of the node.
                let _ = talk(&client, &own);
                own.lock().connections -= 1;
                own.notify();
            });
            if spawned.is_err() {
                shared.lock().connections -= 1;
            }
        }
    })?;
    Ok(())
}

fn talk(client: &UnixStream, shared: &Shared) -> io::Result<()> {
    client.set_read_timeout(Some(CLIENT_PATIENCE))?;
    client.set_write_timeout(Some(CLIENT_PATIENCE))?;
    let mut line = String::new();
    BufReader::new(client).read_line(&mut line)?;
    match serde_json::from_str(&line)? {
        Request::Watch => {}
        Request::Stop { grace } => shared.request_stop(grace),
    }
    client.set_nonblocking(true)?;
    let mut told = None;
    loop {
        let (status, version) = {
            let inner = shared.wait(CLIENT_CHECK, |inner| told != Some(inner.version));
            (inner.status.clone(), inner.version)
        };
        if told == Some(version) {
            if has_gone(client) {
                return Ok(());
            }
            continue;
        }
        told = Some(version);
        let mut text = serde_json::to_vec(&status)?;
        text.push(b'\n');
        client.set_nonblocking(false)?;
        (&*client).write_all(&text)?;
        client.set_nonblocking(true)?;
        if status.finished {
            return Ok(());
        }
    }
}

/// Clients say nothing after their request: whatever can be read now is the end.
fn has_gone(mut client: &UnixStream) -> bool {
    use io::Read as _;
    matches!(client.read(&mut [0; 16]), Ok(0))
}
