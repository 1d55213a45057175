//! What a driver was told and what it answered, in order: enough to make it decide everything again. A driver
//! is deterministic, so a tape that was played back without a difference explains every step of its run.

use std::time::SystemTime;

use reconciler_core::{ClusterShape, RetryPolicy};
use serde::{Deserialize, Serialize};

use super::{Checkpoint, ClusterDriver, DriverInput, PassReport};
use crate::error::DriverError;
use crate::executors::ExecutorTable;
use crate::rules::Rules;
use crate::store::StateImage;

/// One thing on a tape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TapeEntry {
    /// A driver began. The first entry of each tape that was not moved on.
    Begin(Box<TapeBegin>),
    /// It went on, on a new file. The first entry there.
    Checkpoint(Box<Checkpoint>),
    /// It was given another shape.
    Desired(Box<ClusterShape>),
    /// It was given another timing.
    Policy(Box<RetryPolicy>),
    /// It was told something.
    Input {
        /// When.
        now: SystemTime,
        /// What.
        input: Box<DriverInput>,
    },
    /// Its operations were settled, as it was about to end.
    Settled {
        /// When.
        now: SystemTime,
    },
    /// It made a pass.
    Pass {
        /// When.
        now: SystemTime,
        /// What came of it, a line each.
        told: Vec<String>,
    },
}

/// What a driver began with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeBegin {
    /// The version of the program, for people.
    pub version: String,
    /// When.
    pub now: SystemTime,
    /// The stored state, if there was one.
    pub image: Option<StateImage>,
    /// The shape it was to make.
    pub desired: ClusterShape,
    /// Its timing.
    pub policy: RetryPolicy,
    /// Whether it was guarded.
    pub guard: bool,
}

impl TapeBegin {
    /// The driver that begins with this.
    pub fn driver(self, executors: ExecutorTable, rules: Rules) -> Result<ClusterDriver, DriverError> {
        let Self { now, image, desired, policy, guard, .. } = self;
        let driver = match image {
            Some(image) => ClusterDriver::restore(image, desired, policy, now)?,
            None => ClusterDriver::new(desired, policy, now)?,
        };
        let mut driver = driver.with_executors(executors).with_rules(rules);
        if guard {
            driver.guard();
        }
        Ok(driver)
    }
}

/// Where a playback first differs from its tape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which pass, from one.
    pub pass: u64,
    /// When the tape says it was.
    pub at: SystemTime,
    /// What the tape says, from the first line that differs.
    pub taped: Option<String>,
    /// What was decided now.
    pub played: Option<String>,
}

/// How a playback went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Playback {
    /// Drivers that began.
    pub begun: u64,
    /// Passes that came out the same.
    pub passes: u64,
    /// The first difference; what follows it was not played.
    pub difference: Option<Difference>,
}

/// Lets drivers decide everything on a tape again. `executors` is asked only how late effects may be.
pub fn replay(
    tape: impl IntoIterator<Item = TapeEntry>,
    executors: &ExecutorTable,
    rules: &Rules,
) -> Result<Playback, DriverError> {
    let mut playback = Playback::default();
    let mut driver: Option<ClusterDriver> = None;
    for entry in tape {
        match (entry, driver.as_mut()) {
            (TapeEntry::Begin(begin), _) => {
                playback.begun += 1;
                driver = Some(begin.driver(executors.clone(), rules.clone())?);
            }
            (TapeEntry::Checkpoint(checkpoint), _) => {
                driver = Some(checkpoint.driver(executors.clone(), rules.clone())?);
            }
            // The beginning was lost: there is nothing to hold it against.
            (_, None) => {}
            (TapeEntry::Desired(desired), Some(driver)) => {
                // What was refused then is refused now.
                let _ = driver.set_desired(*desired);
            }
            (TapeEntry::Policy(policy), Some(driver)) => driver.set_policy(*policy),
            (TapeEntry::Input { now, input }, Some(driver)) => driver.handle(*input, now),
            (TapeEntry::Settled { now }, Some(driver)) => driver.settle_all_operations(now),
            (TapeEntry::Pass { now, told }, Some(driver)) => {
                let played = match driver.pass(now) {
                    Ok(report) => lines(&report),
                    Err(error) => vec![format!("failed: {error}")],
                };
                if played != told {
                    let same = told.iter().zip(&played).take_while(|(told, played)| told == played).count();
                    playback.difference = Some(Difference {
                        pass: playback.passes + 1,
                        at: now,
                        taped: told.get(same).cloned(),
                        played: played.get(same).cloned(),
                    });
                    return Ok(playback);
                }
                playback.passes += 1;
            }
        }
    }
    Ok(playback)
}

/// What came of a pass, a line each.
fn lines(report: &PassReport) -> Vec<String> {
    let mut lines = Vec::new();
    for event in &report.events {
        let node = event.node.as_ref().map_or("-", |node| node.as_str());
        let attempt = event.attempt.map_or_else(|| "-".to_owned(), |attempt| attempt.to_string());
        lines.push(format!("{node} {attempt} {} {}", event.what.name(), event.what));
    }
    lines.extend(report.stops.iter().map(|operation| format!("stop {operation}")));
    lines.extend(report.retired.iter().map(|attempt| format!("retire {attempt}")));
    for call in &report.effects {
        let (operation, kind) = (call.context.operation, call.command.kind());
        lines.push(format!("send {} {operation} {kind} by {:?}", call.node, call.context.deadline));
    }
    lines.extend(
        report
            .sweeps
            .iter()
            .map(|sweep| format!("sweep {} of {}", sweep.orphan.lease.lease_id, sweep.orphan.attempt)),
    );
    if let Some(commit) = &report.commit {
        let (stored, gone) = (commit.upserted.len(), commit.removed.len());
        lines.push(format!("commit {}: {stored} stored, {gone} gone", commit.seq));
    }
    lines
}

impl ClusterDriver {
    /// Keeps a tape from now on.
    pub fn keep_tape(&mut self) {
        self.tape.get_or_insert_default();
    }

    /// What was taped since the last time.
    pub fn take_tape(&mut self) -> Vec<TapeEntry> {
        self.tape.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Tapes an entry, if a tape is kept.
    pub(super) fn tape(&mut self, entry: impl FnOnce() -> TapeEntry) {
        if let Some(tape) = &mut self.tape {
            tape.push(entry());
        }
    }

    pub(super) fn tape_pass(&mut self, now: SystemTime, report: &Result<PassReport, DriverError>) {
        self.tape(|| TapeEntry::Pass {
            now,
            told: match report {
                Ok(report) => lines(report),
                Err(error) => vec![format!("failed: {error}")],
            },
        });
    }
}
