//! Telling the driver what a session does: progress, the join when the probe passes, and the end, which the
//! supervisor's socket brings at once. Goes on until the attempt is over.
//!
//! Before the join an end is a failed bootstrap, whatever the exit status; after it the lease is lost. An end
//! that was asked for is neither: whoever asked knows. A supervisor that was killed counts as the end of its
//! node even if the program still runs, for nobody could tell when that ends.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use executor_api::{
    AttemptKey, BootstrapSessionId, ExecutorError, LeaseId, MemberFacts, NodeObservation, ObservationReport,
    ObservationSink, OperationKind,
};
use tokio::time;

use crate::client::Conversation;
use crate::executor::SessionLife;
use crate::layout::{self, BootRecord, ExitRecord, LeaseRecord, NodePlace, ReadyRecord, file};
use crate::marker;
use crate::probe;
use crate::supervisor::{Request, Status};

/// Time between two tries to reach a supervisor that holds its lock and does not answer.
const RECONNECT: Duration = Duration::from_millis(50);

/// Streams what the session of an attempt does into `sink`.
pub(crate) async fn attach(
    place: &NodePlace,
    key: &AttemptKey,
    session: &BootstrapSessionId,
    sink: &ObservationSink,
) -> Result<(), ExecutorError> {
    let unreadable = |source: std::io::Error| {
        ExecutorError::ambiguous(
            OperationKind::StartBootstrap,
            format!("cannot read the session of {key} in {}; make it readable", place.dir.display()),
        )
        .with_source(source)
    };
    let mut report = Reporter { place, key, session, sink, sequence: 0, said: String::new() };
    if session.0 != place.id {
        report.failed("the attempt has another session".to_owned());
        return Ok(());
    }
    let mut joined = None;
    loop {
        if joined.is_none() {
            joined = layout::read_record::<ReadyRecord>(&place.dir, file::READY).map_err(unreadable)?;
        }
        match SessionLife::read(&place.dir).map_err(unreadable)? {
            SessionLife::Ended(exit) => {
                report.ended(&exit, joined.is_some());
                return Ok(());
            }
            SessionLife::None => {
                let lease =
                    layout::read_record::<LeaseRecord>(&place.dir, file::LEASE).map_err(unreadable)?;
                report.missing(lease.is_some());
                return Ok(());
            }
            SessionLife::Starting => {}
            SessionLife::Live => {
                if let Ok(supervisor) = Conversation::open(&place.dir, Request::Watch).await {
                    let boot =
                        layout::read_record::<BootRecord>(&place.dir, file::BOOT).map_err(unreadable)?;
                    follow(supervisor, boot.as_ref(), &mut joined, &mut report).await;
                }
            }
        }
        time::sleep(RECONNECT).await;
    }
}

/// Listens to the supervisor and probes until it has nothing more to say. What its silence means is read off
/// the directory by the caller.
async fn follow(
    mut supervisor: Conversation,
    boot: Option<&BootRecord>,
    joined: &mut Option<ReadyRecord>,
    report: &mut Reporter<'_>,
) {
    let Some(mut status) = supervisor.next().await else { return };
    if let Some(record) = joined.as_ref().filter(|_| is_running(&status)) {
        report.joined(record);
    }
    while is_running(&status) {
        if joined.is_some() {
            match supervisor.next().await {
                Some(next) => status = next,
                None => return,
            }
            continue;
        }
        let pid = status.program.map_or(0, |id| id.pid);
        let tried = tokio::select! {
            // An end outranks an answer: it may come from a stranger.
            biased;
            next = supervisor.next() => match next {
                Some(next) => {
                    status = next;
                    continue;
                }
                None => return,
            },
            tried = try_probe(boot, status.marker_seen, report.key) => tried,
        };
        match tried {
            Ok(()) => {
                let record = ReadyRecord { joined_at: SystemTime::now() };
                // Without the record a later driver probes again, and nothing else changes.
                let _ = layout::write_record(&report.place.dir, file::READY, &record);
                report.joined(&record);
                *joined = Some(record);
            }
            Err(Waiting { what, every }) => {
                report.progress(format!("running as pid {pid}, {what}"));
                let pause = time::sleep(every);
                tokio::select! {
                    biased;
                    next = supervisor.next() => match next {
                        Some(next) => status = next,
                        None => return,
                    },
                    () = pause => {}
                }
            }
        }
    }
}

/// Why a node is not ready, and when to look again.
struct Waiting {
    what: String,
    every: Duration,
}

async fn try_probe(boot: Option<&BootRecord>, marker_seen: bool, key: &AttemptKey) -> Result<(), Waiting> {
    // Without a probe, running is all that was asked for.
    let Some(boot) = boot else { return Ok(()) };
    let Some(record) = &boot.probe else { return Ok(()) };
    probe::try_once(&record.check, record.timeout, marker_seen, key, boot).await.map_err(|why| Waiting {
        what: format!("not ready: {}: {why}", probe::describe(&record.check)),
        every: record.every,
    })
}

fn is_running(status: &Status) -> bool {
    status.program.is_some() && status.exit.is_none() && !status.finished
}

/// Addresses observations of one session.
struct Reporter<'a> {
    place: &'a NodePlace,
    key: &'a AttemptKey,
    session: &'a BootstrapSessionId,
    sink: &'a ObservationSink,
    sequence: u64,
    said: String,
}

impl Reporter<'_> {
    /// Says what the session is doing, unless it has just said so.
    fn progress(&mut self, phase: String) {
        if phase == self.said {
            return;
        }
        self.said.clone_from(&phase);
        // Milliseconds since the epoch: a later driver counts on from higher numbers.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        self.sequence = u64::try_from(now).unwrap_or(u64::MAX).max(self.sequence.saturating_add(1));
        let observation = NodeObservation::BootstrapProgress {
            session: self.session.clone(),
            sequence: self.sequence,
            phase,
        };
        self.deliver(observation);
    }

    fn joined(&mut self, record: &ReadyRecord) {
        self.progress("ready".to_owned());
        self.deliver(NodeObservation::MemberJoined {
            session: self.session.clone(),
            member: MemberFacts {
                member_id: self.place.id.clone(),
                nonce: marker::nonce(self.key),
                joined_at: record.joined_at,
            },
        });
    }

    fn ended(&self, exit: &ExitRecord, had_joined: bool) {
        if exit.asked {
            return;
        }
        if had_joined {
            self.lost(exit.describe());
        } else {
            self.failed(exit.describe());
        }
    }

    /// The session's record is not there: never was, or removed by a hand from outside.
    fn missing(&self, has_lease: bool) {
        if has_lease {
            self.failed("no such session was ever started".to_owned());
        } else {
            self.lost(format!("its directory {} is gone", self.place.dir.display()));
        }
    }

    fn failed(&self, reason: String) {
        self.deliver(NodeObservation::BootstrapFailed { session: self.session.clone(), reason });
    }

    fn lost(&self, reason: String) {
        self.deliver(NodeObservation::LeaseLost { lease: LeaseId(self.place.id.clone()), reason });
    }

    fn deliver(&self, observation: NodeObservation) {
        self.sink.send(ObservationReport {
            node: self.key.node.clone(),
            attempt: self.key.attempt,
            observation,
        });
    }
}
