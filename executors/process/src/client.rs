//! The driver's end of a supervisor's socket.

use std::fs::File;
use std::io;
use std::path::Path;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;

use crate::supervisor::{Request, Status, short_path};

/// A conversation with a supervisor: statuses, then the end when it is gone.
#[derive(Debug)]
pub(crate) struct Conversation {
    lines: Lines<BufReader<UnixStream>>,
}

impl Conversation {
    /// Connects and asks. An error says only that nobody answers there now.
    pub(crate) async fn open(dir: &Path, request: Request) -> io::Result<Self> {
        let handle = File::open(dir)?;
        let mut stream = UnixStream::connect(short_path(&handle)).await?;
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        stream.write_all(&line).await?;
        Ok(Self { lines: BufReader::new(stream).lines() })
    }

    /// The next status; `None` when the supervisor is gone. May be dropped while it waits.
    pub(crate) async fn next(&mut self) -> Option<Status> {
        // A line that is cut or cannot be read comes from a supervisor that was killed while it wrote.
        let line = self.lines.next_line().await.ok().flatten()?;
        serde_json::from_str(&line).ok()
    }
}
