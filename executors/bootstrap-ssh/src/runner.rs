//! Runs one command over one channel of a connection. Holds no more of its output than was asked for.

use std::fmt;

use async_trait::async_trait;
use bootstrap_hosted::host::script::{Ran, Runner};
use bootstrap_hosted::{Content, HostError};
use russh::client::{Handle, Handler, Msg};
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf};

/// How much of a command's complaints is kept.
const COMPLAINT: usize = 4096;

/// Runs commands over one connection; the connection ends when this is dropped.
pub(crate) struct SshRunner<H: Handler> {
    handle: Handle<H>,
}

impl<H: Handler> SshRunner<H> {
    pub(crate) fn new(handle: Handle<H>) -> Self {
        Self { handle }
    }
}

impl<H: Handler> fmt::Debug for SshRunner<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SshRunner")
    }
}

#[async_trait]
impl<H: Handler + Sync> Runner for SshRunner<H> {
    async fn run(&self, command: &str, input: Content, limit: usize) -> Result<Ran, HostError> {
        let channel = self.handle.channel_open_session().await;
        let channel =
            channel.map_err(|error| HostError::Unreachable(format!("the connection is gone: {error}")))?;
        let (mut from, to) = channel.split();
        to.exec(true, command).await.map_err(|error| broken(&error))?;
        let mut feeding = std::pin::pin!(feed(&to, input));
        let mut reading = std::pin::pin!(collect(&mut from, limit));
        // The answer may come before all of the input was wanted.
        tokio::select! {
            ran = &mut reading => return ran,
            fed = &mut feeding => fed?,
        }
        reading.await
    }
}

/// Sends all of a command's input, and its end.
async fn feed(to: &ChannelWriteHalf<Msg>, input: Content) -> Result<(), HostError> {
    match input {
        Content::Text(text) => to.data(text.as_bytes()).await,
        Content::Bytes(bytes) => to.data(bytes.as_slice()).await,
        Content::File(path, _) => {
            let unreadable =
                |error| HostError::Unfit(format!("cannot read the file {}: {error}", path.display()));
            to.data(tokio::fs::File::open(&path).await.map_err(unreadable)?).await
        }
    }
    .map_err(|error| broken(&error))?;
    to.eof().await.map_err(|error| broken(&error))
}

/// Reads until the command's status is known and its output has ended.
async fn collect(from: &mut ChannelReadHalf, limit: usize) -> Result<Ran, HostError> {
    let (mut stdout, mut stderr, mut status) = (Vec::new(), Vec::new(), None);
    while let Some(message) = from.wait().await {
        match message {
            ChannelMsg::Data { data } => {
                if stdout.len() + data.len() > limit {
                    return Err(HostError::Broken(format!("a command wrote more than {limit} bytes")));
                }
                stdout.extend_from_slice(&data);
            }
            ChannelMsg::ExtendedData { data, .. } => {
                let room = COMPLAINT.saturating_sub(stderr.len()).min(data.len());
                stderr.extend_from_slice(&data[..room]);
            }
            ChannelMsg::ExitStatus { exit_status } => status = i32::try_from(exit_status).ok(),
            ChannelMsg::ExitSignal { .. } => status = Some(128),
            ChannelMsg::Failure => {
                return Err(HostError::Unfit("the host runs no commands for this account".to_owned()));
            }
            ChannelMsg::Close => break,
            _ => {}
        }
    }
    let status =
        status.ok_or_else(|| HostError::Broken("the connection broke before the answer".to_owned()))?;
    Ok(Ran { status, stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() })
}

fn broken(error: &russh::Error) -> HostError {
    HostError::Broken(format!("the connection broke: {error}"))
}
