//! Runs the script's commands on this very machine. Used by the agent, which is this machine's door, and by tests.

use std::path::PathBuf;
use std::process::Stdio;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::script::{Ran, Runner};
use super::{Content, HostError};

/// What of this process's environment the commands see. Its other variables may be its own secrets.
const PASSED_ON: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Runs commands here, in one directory.
#[derive(Debug)]
pub struct LocalRunner {
    dir: PathBuf,
}

impl LocalRunner {
    /// Runs commands in this directory, which must exist.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }
}

#[async_trait]
impl Runner for LocalRunner {
    async fn run(&self, command: &str, input: Content, limit: usize) -> Result<Ran, HostError> {
        let failed = |what: &str, error: std::io::Error| {
            HostError::Broken(format!("cannot {what} a command in {}: {error}", self.dir.display()))
        };
        // A command that was given up must not be killed half-way: what it does is whole or not at all by itself.
        let mut child = Command::new("/bin/sh")
            .args(["-c", command])
            .current_dir(&self.dir)
            .env_clear()
            .envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed("start", error))?;
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(HostError::Broken("a command has no pipes".to_owned()));
        };
        let feed = async move {
            let fed = match input {
                Content::Text(text) => stdin.write_all(text.as_bytes()).await,
                Content::Bytes(bytes) => stdin.write_all(&bytes).await,
                Content::File(path, _) => {
                    let mut file = tokio::fs::File::open(path).await?;
                    tokio::io::copy(&mut file, &mut stdin).await.map(|_| ())
                }
            };
            // Who does not want all of its input says so with its status.
            match fed {
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
                other => other,
            }
        };
        let (eaten, stdout, stderr) = tokio::join!(feed, take(stdout, limit), take(stderr, 4096));
        eaten.map_err(|error| failed("feed", error))?;
        let stdout = stdout.map_err(|error| failed("read", error))?;
        let stderr = stderr.map_err(|error| failed("read", error))?;
        if stdout.len() > limit {
            return Err(HostError::Broken(format!("a command wrote more than {limit} bytes")));
        }
        let status = child.wait().await.map_err(|error| failed("await", error))?;
        Ok(Ran {
            status: status.code().unwrap_or(128),
            stdout,
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        })
    }
}

/// Reads to the end, keeps one byte more than the limit at most.
async fn take(mut from: impl AsyncRead + Unpin, limit: usize) -> std::io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let mut part = vec![0; 16 * 1024];
    loop {
        let n = from.read(&mut part).await?;
        if n == 0 {
            return Ok(kept);
        }
        let room = (limit + 1).saturating_sub(kept.len());
        kept.extend_from_slice(&part[..n.min(room)]);
    }
}
