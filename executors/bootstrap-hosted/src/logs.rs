//! Reads a session's output for whoever wants to see all of it: piece by piece, over one connection for as long as
//! that holds, with the secrets taken out. Holds one piece at a time, however much there is.

use std::fmt;

use async_trait::async_trait;
use executor_api::AttemptKey;
use executor_probe::RecordError;

use crate::bootstrapper::HostedBootstrapper;
use crate::host::{Host, HostError, OutputWanted, Position, SessionName, Standing};
use crate::record::SessionRecord;
use crate::redact::{Cleaner, Redactor};
use crate::transport::Transport;

/// How much one look brings at most.
const PIECE: u64 = 1024 * 1024;

/// What can show the output of sessions.
pub trait SessionOutput: Send + Sync + fmt::Debug {
    /// A reader from the beginning of what an attempt's session has written. Reaches nothing yet.
    ///
    /// # Errors
    /// No such session is on record here, or one of its secrets could not be taken out.
    fn reader<'a>(&'a self, attempt: &AttemptKey) -> Result<Box<dyn OutputReader + 'a>, OutputError>;

    /// The latest attempt of the same slot before this one that is on record here.
    fn previous(&self, attempt: &AttemptKey) -> Option<AttemptKey>;
}

/// Reads the output of one session.
#[async_trait]
pub trait OutputReader: Send {
    /// The next piece. After an error that passes the same piece can be asked for again.
    ///
    /// # Errors
    /// The host did not answer, or is not the one it was.
    async fn next(&mut self) -> Result<Piece, OutputError>;
}

/// A piece of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The text, which may be empty.
    pub text: String,
    /// Whether more of it is there already.
    pub more: bool,
    /// Whether nothing can come any more: the session is over, and all of its output was read.
    pub over: bool,
}

/// Why an output cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// Nothing is known of such a session.
    #[error("{attempt} has no session on record in {records}: it was not bootstrapped from here, or not yet")]
    NoSession {
        /// Whose it would be.
        attempt: AttemptKey,
        /// Where that would be.
        records: String,
    },
    /// The record itself cannot be read.
    #[error("cannot read what is on record of {attempt}")]
    Record {
        /// Whose record.
        attempt: AttemptKey,
        /// Why not.
        source: Box<RecordError>,
    },
    /// A secret that may be in the output is not known here.
    #[error("the output of {attempt} may hold a secret that cannot be taken out of it here: {reason}")]
    Secret {
        /// Whose output.
        attempt: AttemptKey,
        /// Which secret; never its value.
        reason: String,
    },
    /// The host did not answer as it should.
    #[error("cannot read the output of {attempt} on its host")]
    Host {
        /// Whose output.
        attempt: AttemptKey,
        /// Why not.
        source: HostError,
    },
}

impl OutputError {
    /// Whether the next try may go better.
    pub fn passes(&self) -> bool {
        match self {
            Self::Host { source, .. } => match source {
                HostError::Unreachable(_) | HostError::Broken(_) => true,
                HostError::Denied(_) | HostError::WrongHost(_) | HostError::Unfit(_) => false,
            },
            Self::NoSession { .. } | Self::Record { .. } | Self::Secret { .. } => false,
        }
    }
}

impl<T: Transport> SessionOutput for HostedBootstrapper<T> {
    fn reader<'a>(&'a self, attempt: &AttemptKey) -> Result<Box<dyn OutputReader + 'a>, OutputError> {
        let attempt = attempt.clone();
        let record = match self.records.load(&attempt) {
            Ok(Some(record)) => record,
            Ok(None) => {
                return Err(OutputError::NoSession {
                    attempt,
                    records: self.records.dir().display().to_string(),
                });
            }
            Err(source) => return Err(OutputError::Record { attempt, source: Box::new(source) }),
        };
        let redactor = Redactor::of(&record.resolved);
        if let Some(reason) = redactor.unknown() {
            return Err(OutputError::Secret { attempt, reason: reason.to_owned() });
        }
        let (name, cleaner) = (SessionName::of(&attempt), Cleaner::new(redactor));
        Ok(Box::new(Reader { boot: self, record, name, host: None, position: 0, cleaner }))
    }

    fn previous(&self, attempt: &AttemptKey) -> Option<AttemptKey> {
        self.records.earlier(attempt).into_iter().next()
    }
}

/// Reads over one transport.
struct Reader<'a, T: Transport> {
    boot: &'a HostedBootstrapper<T>,
    record: SessionRecord<T::Settings>,
    name: SessionName,
    /// The connection, while it holds.
    host: Option<Box<dyn Host>>,
    position: u64,
    cleaner: Cleaner,
}

#[async_trait]
impl<T: Transport> OutputReader for Reader<'_, T> {
    async fn next(&mut self) -> Result<Piece, OutputError> {
        let attempt = self.record.attempt.clone();
        self.look().await.map_err(|source| {
            self.host = None;
            OutputError::Host { attempt, source }
        })
    }
}

impl<T: Transport> Reader<'_, T> {
    async fn look(&mut self) -> Result<Piece, HostError> {
        let host = if let Some(host) = self.host.take() {
            host
        } else {
            // Another process may have met the host first and pinned it.
            if let Ok(Some(record)) = self.boot.records.load(&self.record.attempt) {
                self.record = record;
            }
            self.boot.reach(&self.record).await?
        };
        let from = Position { events: 0, output: self.position };
        let seen = host.look(&self.name, from, OutputWanted { limit: PIECE, tail: false }).await?;
        self.host = Some(host);
        self.position = seen.output_at + seen.output_len;
        let mut text = self.cleaner.feed(&seen.output);
        let more = self.position < seen.output_size;
        // The standing was read before the output: what ended has written all it ever will.
        let over = !more && matches!(seen.standing, Standing::Ended | Standing::Cancelled);
        if over {
            text += &self.cleaner.finish();
        }
        Ok(Piece { text, more, over })
    }
}
