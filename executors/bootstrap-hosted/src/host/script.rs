//! The host's side of a session, for whoever can run a command there: the fixed script, its verbs, and what its
//! answers mean. Both transports end here, so that a session is the same thing over either.

use std::fmt::{self, Write as _};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

use super::reply;
use super::{
    CancelEnd, Content, EVENTS_LIMIT, Glimpse, Host, HostError, OutputWanted, Position, SessionName, Standing,
};
use crate::plan::{Plan, environment_to_shell};

/// The script, as it lies on the host.
const SCRIPT: &str = include_str!("session.sh");

/// Longest answer that is not a look, and longest complaint.
const SHORT: usize = 16 * 1024;

/// A command that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Its exit status.
    pub status: i32,
    /// What it wrote to standard output, up to the limit given.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error, the beginning of it.
    pub stderr: String,
}

/// Runs commands on a host, in one directory that is always the same.
#[async_trait]
pub trait Runner: Send + Sync + fmt::Debug {
    /// Runs one command, read by a POSIX shell or any other login shell: it is made of plain words and one text
    /// in single quotes at most. `input` is its whole standard input. More than `limit` bytes of output is an
    /// error.
    async fn run(&self, command: &str, input: Content, limit: usize) -> Result<Ran, HostError>;
}

/// A host on which commands can be run.
#[derive(Debug)]
pub struct ScriptHost<R> {
    runner: R,
    script: String,
}

impl<R: Runner> ScriptHost<R> {
    /// Puts the script on the host, under a name that follows from its content.
    pub async fn install(runner: R) -> Result<Self, HostError> {
        let digest = Sha256::digest(SCRIPT.as_bytes());
        let mark = digest.iter().take(6).fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        let script = format!(".reconciler/session-{mark}.sh");
        let size = SCRIPT.len();
        // A text that is cut off on the way never gets the script's name.
        let command = format!(
            "/bin/sh -c 'umask 077; [ -e {script} ] && exec cat >/dev/null; mkdir -p .reconciler && \
             cat >.reconciler/new.$$ && [ $(wc -c <.reconciler/new.$$) -eq {size} ] && \
             mv -f .reconciler/new.$$ {script}'"
        );
        let ran = runner.run(&command, Content::Text(SCRIPT.to_owned()), SHORT).await?;
        if ran.status == 0 {
            return Ok(Self { runner, script });
        }
        Err(HostError::Unfit(format!(
            "the host could not take the session script (status {}): {}",
            ran.status,
            ran.stderr.trim()
        )))
    }

    async fn call(
        &self,
        verb: &str,
        session: &SessionName,
        arguments: &[String],
        input: Content,
        limit: usize,
    ) -> Result<Vec<u8>, HostError> {
        let mut command = format!("/bin/sh {} {verb} {session}", self.script);
        for argument in arguments {
            debug_assert!(argument.bytes().all(|b| b.is_ascii_alphanumeric() || b"./".contains(&b)));
            command.push(' ');
            command.push_str(argument);
        }
        let ran = self.runner.run(&command, input, limit + SHORT).await?;
        let complaint = || format!("{verb} ended with status {}: {}", ran.status, ran.stderr.trim());
        match ran.status {
            0 => reply::body(&ran.stdout).map(<[u8]>::to_vec).ok_or_else(|| {
                HostError::Broken(format!("{verb} was answered with something else: {}", ran.stderr.trim()))
            }),
            // Something was cut off on the way, or the shell was ended by a signal.
            65 | 128.. => Err(HostError::Broken(complaint())),
            _ => Err(HostError::Unfit(complaint())),
        }
    }

    async fn put(&self, session: &SessionName, part: String, content: Content) -> Result<(), HostError> {
        let size = match &content {
            Content::Text(text) => text.len() as u64,
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::File(_, size) => *size,
        };
        self.call("put", session, &[part, size.to_string()], content, SHORT).await.map(|_| ())
    }
}

#[async_trait]
impl<R: Runner> Host for ScriptHost<R> {
    async fn look(
        &self,
        session: &SessionName,
        from: Position,
        output: OutputWanted,
    ) -> Result<Glimpse, HostError> {
        let arguments = [
            from.events.to_string(),
            from.output.to_string(),
            output.limit.to_string(),
            EVENTS_LIMIT.to_string(),
            if output.tail { "tail" } else { "all" }.to_owned(),
        ];
        let limit = usize::try_from(output.limit.saturating_add(EVENTS_LIMIT)).unwrap_or(usize::MAX);
        let limit = limit.min(64 * 1024 * 1024);
        let answer = self.call("look", session, &arguments, Content::Text(String::new()), limit).await?;
        reply::glimpse(&answer)
            .ok_or_else(|| HostError::Broken("the answer to a look was cut off or is none".to_owned()))
    }

    async fn put_file(&self, session: &SessionName, index: usize, content: Content) -> Result<(), HostError> {
        self.put(session, format!("files/{index}"), content).await
    }

    async fn stage(&self, session: &SessionName, plan: &Plan) -> Result<(), HostError> {
        self.put(session, "plan.sh".to_owned(), Content::Text(plan.to_shell())).await
    }

    async fn launch(
        &self,
        session: &SessionName,
        environment: &[(String, String)],
    ) -> Result<Standing, HostError> {
        let input = Content::Text(environment_to_shell(environment));
        let answer = self.call("launch", session, &[], input, SHORT).await?;
        reply::standing(&String::from_utf8_lossy(&answer))
            .ok_or_else(|| HostError::Broken("the launch was not answered".to_owned()))
    }

    async fn mark_joined(&self, session: &SessionName) -> Result<SystemTime, HostError> {
        let answer = self.call("joined", session, &[], Content::Text(String::new()), SHORT).await?;
        reply::time(&String::from_utf8_lossy(&answer))
            .ok_or_else(|| HostError::Broken("the mark of the join was not answered".to_owned()))
    }

    async fn cancel(&self, session: &SessionName, grace: Duration) -> Result<CancelEnd, HostError> {
        let tenths = (grace.as_millis() / 100).clamp(1, 36_000).to_string();
        let answer = self.call("cancel", session, &[tenths], Content::Text(String::new()), SHORT).await?;
        reply::cancelled(&String::from_utf8_lossy(&answer))
            .ok_or_else(|| HostError::Broken("the cancel was not answered".to_owned()))
    }
}
