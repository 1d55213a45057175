//! Binding and reaching a run's control socket. A socket's address holds at most 108 bytes and a state directory
//! may be deeper than that, so both sides go through a descriptor of the directory.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// A short name for a path, valid while the directory stays open.
struct Short {
    path: PathBuf,
    _dir: File,
}

impl Short {
    fn of(path: &Path) -> io::Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a socket needs a directory and a name"));
        };
        let dir = File::open(parent)?;
        let path = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _dir: dir })
    }
}

/// Binds the socket, in place of one that a dead driver left. Only the holder of the run's lock may do this.
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(Short::of(path)?.path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Reaches the one who serves the socket, or nobody.
pub(crate) async fn connect(path: &Path) -> io::Result<Option<UnixStream>> {
    let short = match Short::of(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        short => short?,
    };
    match UnixStream::connect(&short.path).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_in_a_deep_directory_can_be_bound_and_reached() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("d".repeat(90)).join("e".repeat(90));
        std::fs::create_dir_all(&deep).unwrap();
        let path = deep.join("control.sock");
        assert!(connect(&path).await.unwrap().is_none());
        let listener = bind(&path).unwrap();
        assert!(connect(&path).await.unwrap().is_some());
        drop(listener);
        assert!(connect(&path).await.unwrap().is_none(), "a dead driver's socket is nobody");
        bind(&path).unwrap();
    }
}
