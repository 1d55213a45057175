//! The calling side of a run's control socket.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use crate::cli::failure::Failure;
use crate::cli::view::Status;
use crate::run::dir::RunDir;
use crate::run::protocol::{Answer, Call, Request, VERSION};
use crate::run::socket;

/// How long a driver may take to answer. It never does I/O before it answers, so this is generous.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to the process that drives a run.
#[derive(Debug)]
pub(crate) struct Client {
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
    run: String,
    lost: bool,
}

impl Client {
    /// Connects to the one who drives, or to nobody.
    pub(crate) async fn connect(dir: &RunDir) -> Result<Option<Self>, Failure> {
        let stream: Option<UnixStream> = socket::connect(&dir.socket()).await.map_err(|error| {
            let doing = format!("reaching the driver of run {} at {}", dir.run(), dir.socket().display());
            Failure::while_doing(doing, &error)
        })?;
        Ok(stream.map(|stream| {
            let (reader, writer) = stream.into_split();
            Self { lines: BufReader::new(reader).lines(), writer, run: dir.run().to_owned(), lost: false }
        }))
    }

    /// Asks, and waits for the first answer.
    pub(crate) async fn call(&mut self, request: Request) -> Result<Answer, Failure> {
        let call = Call { version: VERSION, request };
        let mut text =
            serde_json::to_string(&call).map_err(|error| Failure::while_doing("writing a call", &error))?;
        text.push('\n');
        if let Err(error) = self.writer.write_all(text.as_bytes()).await {
            return Err(self.lose(&error));
        }
        match tokio::time::timeout(PATIENCE, self.next()).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::error(format!(
                "the driver of run {} does not answer; is it suspended?",
                self.run
            ))),
        }
    }

    /// Asks for something to be done; the generation in force and what there is to say about it.
    pub(crate) async fn order(&mut self, request: Request) -> Result<(u64, Vec<String>), Failure> {
        match self.call(request).await? {
            Answer::Accepted { generation, notices } => Ok((generation, notices)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// The run as it stands.
    pub(crate) async fn status(&mut self) -> Result<Status, Failure> {
        match self.call(Request::Status).await? {
            Answer::Status(status) => Ok(*status),
            other => Err(self.unexpected(&other)),
        }
    }

    /// The next answer of a subscription.
    pub(crate) async fn next(&mut self) -> Result<Answer, Failure> {
        let line = match self.lines.next_line().await {
            Ok(Some(line)) => line,
            Ok(None) => {
                self.lost = true;
                return Err(Failure::error(format!("the driver of run {} has stopped", self.run)));
            }
            Err(error) => return Err(self.lose(&error)),
        };
        match serde_json::from_str(&line) {
            Ok(Answer::Failed(failure)) => Err(failure),
            Ok(answer) => Ok(answer),
            Err(error) => Err(Failure::while_doing(
                format_args!(
                    "reading the answer of the driver of run {} (another version of this program?)",
                    self.run
                ),
                &error,
            )),
        }
    }

    /// The run after each change, until the driver stops or nobody listens.
    pub(crate) fn watch(mut self) -> mpsc::Receiver<Status> {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut answer = self.call(Request::Watch).await;
            while let Ok(Answer::Status(status)) = answer {
                if sender.send(*status).await.is_err() {
                    return;
                }
                answer = self.next().await;
            }
        });
        receiver
    }

    /// Whether the last call failed because the driver is gone: the next one, or the stored state, may answer it.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    fn lose(&mut self, error: &std::io::Error) -> Failure {
        self.lost = true;
        Failure::while_doing(format_args!("talking to the driver of run {}", self.run), error)
    }

    fn unexpected(&self, answer: &Answer) -> Failure {
        Failure::error(format!(
            "the driver of run {} answered something else than was asked: {answer:?}",
            self.run
        ))
    }
}
