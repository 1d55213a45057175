//! Follows one session for as long as its attempt lives: connects and connects again, launches what was never
//! launched, reads on from where it was, and tells the driver what is new. Levels, not edges: every look compares
//! what is with what was told.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use executor_api::ObservationSink;
use executor_probe::{Probe, Teller};
use tokio::time::{Instant, sleep};

use crate::bootstrapper::{HostedBootstrapper, session_id};
use crate::host::{Glimpse, Host, HostError, OutputWanted, Position, SessionName, Standing};
use crate::output::OutputWatch;
use crate::progress::Progress;
use crate::record::SessionRecord;
use crate::redact::Redactor;
use crate::settings::Ready;
use crate::transport::Transport;

/// How much output one look brings at most.
const PIECE: u64 = 1024 * 1024;

/// How much of the output is looked at where only its end matters.
const TAIL: u64 = 4 * 1024;

/// First and longest delay between two tries to connect.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// How many tries in a row must fail before a node that joined counts as silent.
const SILENT_AFTER: u32 = 3;

/// Shortest time between two reports of output.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Follows one session.
pub(crate) struct Follower<'a, T: Transport> {
    boot: &'a HostedBootstrapper<T>,
    record: SessionRecord<T::Settings>,
    name: SessionName,
    teller: Teller,
    progress: Progress,
    output: OutputWatch,
    position: Position,
    told: u64,
    told_phase: String,
    told_at: Option<Instant>,
    probed_at: Option<Instant>,
    joined: bool,
    silence: u32,
    denied_since: Option<Instant>,
    redactor: Redactor,
}

/// Why following goes on no longer.
enum Over {
    /// The attempt is over, or the session failed and that was told.
    Attempt,
    /// The session is over and its node lives; only a probe can still see it.
    Session,
}

impl<'a, T: Transport> Follower<'a, T> {
    pub(crate) fn new(
        boot: &'a HostedBootstrapper<T>,
        record: SessionRecord<T::Settings>,
        sink: ObservationSink,
    ) -> Self {
        let marker = match &record.resolved.ready {
            Ready::Log(text) => Some(text.clone()),
            Ready::Begun | Ready::Probe(_) => None,
        };
        let redactor = Redactor::of(&record.resolved);
        Self {
            name: SessionName::of(&record.attempt),
            teller: Teller::new(record.attempt.clone(), session_id(&record.attempt), sink),
            boot,
            record,
            progress: Progress::default(),
            output: OutputWatch::new(marker),
            position: Position::default(),
            told: 0,
            told_phase: String::new(),
            told_at: None,
            probed_at: None,
            joined: false,
            silence: 0,
            denied_since: None,
            redactor,
        }
    }

    /// Follows until the attempt is over.
    pub(crate) async fn run(mut self) {
        if let Some(at) = self.record.joined_at {
            self.tell_joined(at);
        }
        let mut delay = BACKOFF.0;
        loop {
            let began = Instant::now();
            let error = match self.connected().await {
                Ok(Over::Attempt) => return,
                Ok(Over::Session) => return self.alone().await,
                Err(error) => error,
            };
            if self.trouble(&error) {
                return;
            }
            // A connection that held for a while was a good one.
            if began.elapsed() > 2 * BACKOFF.1 {
                delay = BACKOFF.0;
            }
            if self.rest(delay).await {
                return;
            }
            delay = (2 * delay).min(BACKOFF.1);
        }
    }

    /// Follows over one connection, until it breaks.
    async fn connected(&mut self) -> Result<Over, HostError> {
        if let Ok(Some(record)) = self.boot.records.load(&self.record.attempt) {
            self.record = record;
        }
        let host = self.boot.reach(&self.record).await?;
        let host = &*host;
        self.denied_since = None;
        loop {
            let wanted = self.wanted();
            let glimpse = host.look(&self.name, self.position, wanted).await?;
            if !matches!(self.record.resolved.ready, Ready::Probe(_)) {
                self.seen();
            }
            let more = glimpse.output_at + glimpse.output_len < glimpse.output_size && !wanted.tail;
            if glimpse.standing == Standing::Absent {
                if self.joined {
                    let reason =
                        "its host has forgotten the session: it was set up anew, or its files were removed";
                    self.teller.lost(self.record.lease.clone(), reason);
                    return Ok(Over::Attempt);
                }
                if self.boot.launch(host, &self.record).await? == Standing::Cancelled {
                    return Ok(Over::Attempt);
                }
                continue;
            }
            if !self.record.launch_tried {
                // Launched by somebody whose records are not ours: a cancel must know that something may run.
                self.record.launch_tried = true;
                let kept =
                    self.boot.records.update(&self.record.attempt, |record| record.launch_tried = true);
                kept.map_err(|error| HostError::Unfit(format!("{error}: {}", error.source)))?;
            }
            if let Some(over) = self.take(host, &glimpse).await? {
                return Ok(over);
            }
            let pause = if more { Duration::ZERO } else { self.pace() };
            if self.rest(pause).await {
                return Ok(Over::Attempt);
            }
        }
    }

    /// Folds one look, and tells what is new.
    async fn take(&mut self, host: &dyn Host, glimpse: &Glimpse) -> Result<Option<Over>, HostError> {
        if glimpse.standing == Standing::Cancelled {
            return Ok(Some(Over::Attempt));
        }
        self.progress.feed(&self.record.resolved.plan, &glimpse.events);
        self.position.events += glimpse.events.len() as u64;
        self.output.feed(&glimpse.output, glimpse.output_at != self.position.output);
        self.position.output = glimpse.output_at + glimpse.output_len;
        if let (false, Some(at)) = (self.joined, glimpse.joined_at) {
            self.join(at);
        }
        let ended = glimpse.standing == Standing::Ended;
        let death = self.progress.failed.clone().or_else(|| self.progress.program_ended.clone());
        let death = death.or_else(|| {
            let all_read = glimpse.events.is_empty();
            if ended && all_read { self.progress.death(&self.record.resolved.plan) } else { None }
        });
        if let Some(death) = death {
            let last = self.last_line().map(|line| format!("; its last words: {line}"));
            let reason = format!("{death}{}", last.unwrap_or_default());
            if self.joined {
                self.teller.lost(self.record.lease.clone(), &reason);
            } else {
                self.teller.failed(&reason);
            }
            return Ok(Some(Over::Attempt));
        }
        self.tell_progress();
        if self.joined {
            self.look_at_joined().await;
        } else if self.is_ready().await {
            let at = host.mark_joined(&self.name).await?;
            self.join(at);
        }
        let done = ended && self.joined && self.progress.over && self.record.resolved.plan.program.is_none();
        Ok(done.then_some(Over::Session))
    }

    /// Whether the node may be called joined now.
    async fn is_ready(&mut self) -> bool {
        if !self.progress.begun {
            return false;
        }
        match &self.record.resolved.ready {
            Ready::Begun => true,
            Ready::Log(_) => self.output.marker_seen(),
            Ready::Probe(probe) => {
                let probe = probe.clone();
                matches!(self.probe(&probe).await, Some(true))
            }
        }
    }

    /// Looks at a node that joined, if it has a probe.
    async fn look_at_joined(&mut self) {
        let Ready::Probe(probe) = self.record.resolved.ready.clone() else { return };
        match self.probe(&probe).await {
            Some(true) => self.seen(),
            Some(false) => self.unseen(&format!("the probe of {} fails", probe.check)),
            None => {}
        }
    }

    /// Tries the probe if it is due; what it said.
    async fn probe(&mut self, probe: &Probe) -> Option<bool> {
        if self.probed_at.is_some_and(|at| at.elapsed() < probe.every) {
            return None;
        }
        let tried = probe.once().await;
        self.probed_at = Some(Instant::now());
        Some(match tried {
            Ok(()) => true,
            Err(failure) => {
                tracing::debug!(attempt = %self.record.attempt, %failure, "not ready");
                false
            }
        })
    }

    /// Watches a node whose session is over. Only its probe, if it has one, can still see it.
    async fn alone(mut self) {
        let watch = self.boot.config.watch;
        loop {
            self.look_at_joined().await;
            if self.rest(watch).await {
                return;
            }
        }
    }

    /// Tells of a failure on the way to the host. Answers whether following is over.
    fn trouble(&mut self, error: &HostError) -> bool {
        tracing::debug!(attempt = %self.record.attempt, %error, "the host cannot be asked");
        if self.joined {
            self.unseen(&error.to_string());
            return false;
        }
        let denied_for = self.boot.config.denied_for;
        let hopeless = match error {
            HostError::Unreachable(_) | HostError::Broken(_) => false,
            HostError::Denied(_) => {
                self.denied_since.get_or_insert_with(Instant::now).elapsed() >= denied_for
            }
            HostError::WrongHost(_) | HostError::Unfit(_) => true,
        };
        if hopeless {
            self.teller.failed(&error.to_string());
            return true;
        }
        let phase = format!("trying to reach the host: {error}");
        if phase != self.told_phase {
            self.tell(phase);
        }
        false
    }

    /// Waits, and answers whether the session was cancelled from here meanwhile.
    async fn rest(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        // A node that joined is watched for a long time; its record need not be read often.
        let look = Duration::from_millis(if self.joined { 2000 } else { 500 });
        loop {
            match self.boot.records.load(&self.record.attempt) {
                Ok(Some(record)) if record.cancelled => return true,
                Ok(None) => return true,
                Ok(Some(_)) | Err(_) => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            sleep(left.min(look)).await;
        }
    }

    fn join(&mut self, at: SystemTime) {
        // The host has it on record; a copy here lets the next life tell it without a connection.
        let kept = self.boot.records.update(&self.record.attempt, |record| record.joined_at = Some(at));
        if let Err(error) = kept {
            tracing::warn!(attempt = %self.record.attempt, %error, "the join could not be recorded");
        }
        self.tell_joined(at);
    }

    fn tell_joined(&mut self, at: SystemTime) {
        self.joined = true;
        self.teller.joined(self.name.to_string(), at);
    }

    /// Tells what the session does, if that is new. A node that joined has no progress to tell.
    fn tell_progress(&mut self) {
        if self.joined {
            return;
        }
        let mut phase = self.progress.phase.clone();
        if let Some(line) = self.last_line() {
            phase = format!("{phase}: {line}");
        }
        let soon = self.told_at.is_some_and(|at| at.elapsed() < REPORT_EVERY);
        if phase == self.told_phase || soon {
            return;
        }
        self.tell(phase);
        self.told_at = Some(Instant::now());
    }

    /// Tells of progress or of what is in its way, in one row of rising numbers: whoever folds the reports drops one
    /// that is not above the last. An earlier life told reports too, and another instance may have.
    fn tell(&mut self, phase: String) {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        // The clock is for records that have not seen the last report, the record for a clock that was set back.
        let next = self.told.saturating_add(1).max(u64::try_from(clock).unwrap_or(u64::MAX));
        let kept = self.boot.records.update(&self.record.attempt, |record| {
            record.told = next.max(record.told.saturating_add(1));
        });
        self.told = match kept {
            Ok(Some(record)) => record.told,
            Ok(None) | Err(_) => next,
        };
        self.teller.progress(self.told, &phase);
        self.told_phase = phase;
    }

    /// The last line of the output, as it may be told.
    fn last_line(&self) -> Option<String> {
        let line = self.output.last_line()?;
        Some(executor_probe::tell::printable(&self.redactor.clean(&line)?))
    }

    fn seen(&mut self) {
        if self.silence >= SILENT_AFTER {
            self.teller.seen_alive();
        }
        self.silence = 0;
    }

    fn unseen(&mut self, reason: &str) {
        self.silence = self.silence.saturating_add(1);
        if self.silence == SILENT_AFTER {
            self.teller.suspected(&format!("{SILENT_AFTER} tries in a row failed: {reason}"));
        }
    }

    /// How much output is wanted: all of it only while a marker is looked for.
    fn wanted(&self) -> OutputWanted {
        match &self.record.resolved.ready {
            Ready::Log(_) if !self.joined => OutputWanted { limit: PIECE, tail: false },
            Ready::Log(_) | Ready::Begun | Ready::Probe(_) => OutputWanted { limit: TAIL, tail: true },
        }
    }

    fn pace(&self) -> Duration {
        let config = &self.boot.config;
        if self.joined {
            return config.watch;
        }
        match &self.record.resolved.ready {
            Ready::Probe(probe) => config.poll.min(probe.every),
            Ready::Begun | Ready::Log(_) => config.poll,
        }
    }
}
