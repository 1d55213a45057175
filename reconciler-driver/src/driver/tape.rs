//! What a driver was told and what it answered, in order: enough to make it decide everything again. A driver
//! is deterministic, so a tape that was played back without a difference explains every step of its run.
//!
//! What it asked for is taped whole, every command and every stored value, and compared as values: a version that adds a
//! field reads older tapes, one that sends or stores something else is told apart.

use std::time::SystemTime;

use executor_api::NodeAttemptId;
use reconciler_core::{ClusterShape, RetryPolicy};
use serde::{Deserialize, Serialize};
use serde_json::{Value, to_value};

use super::{Attachment, Checkpoint, ClusterDriver, DriverInput, EffectCall, PassReport, Sweep};
use crate::error::DriverError;
use crate::executors::ExecutorTable;
use crate::rules::Rules;
use crate::store::{Changeset, StateImage};

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
        /// What it asked for.
        asked: Box<Asked>,
    },
}

/// What a pass asked for, whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// As [`PassReport::detach`].
    pub detach: Vec<NodeAttemptId>,
    /// As [`PassReport::attach`].
    pub attach: Vec<Attachment>,
    /// As [`PassReport::effects`].
    pub effects: Vec<EffectCall>,
    /// As [`PassReport::sweeps`].
    pub sweeps: Vec<Sweep>,
    /// As [`PassReport::commit`].
    pub commit: Option<Changeset>,
}

impl Asked {
    fn of(report: &PassReport) -> Self {
        Self {
            detach: report.detach.clone(),
            attach: report.attach.clone(),
            effects: report.effects.clone(),
            sweeps: report.sweeps.clone(),
            commit: report.commit.clone(),
        }
    }

    /// Each thing asked for, under a name that says which it is.
    fn things(&self) -> Vec<(String, Value)> {
        let mut things = Vec::new();
        let mut thing = |name: String, value: serde_json::Result<Value>| {
            things.push((name, value.unwrap_or_else(|error| Value::String(error.to_string()))));
        };
        for attempt in &self.detach {
            thing(format!("detach {attempt}"), Ok(Value::Null));
        }
        for attachment in &self.attach {
            thing(format!("attach {} {}", attachment.node, attachment.attempt), to_value(attachment));
        }
        for call in &self.effects {
            let (operation, kind) = (call.context.operation, call.command.kind());
            thing(format!("send {} {operation} {kind}", call.node), to_value(call));
        }
        for sweep in &self.sweeps {
            let orphan = &sweep.orphan;
            thing(format!("sweep {} of {}", orphan.lease.lease_id, orphan.attempt), to_value(sweep));
        }
        if let Some(commit) = &self.commit {
            for (slot, node) in &commit.upserted {
                thing(format!("store {slot}"), to_value(node));
            }
            for slot in &commit.removed {
                thing(format!("remove {slot}"), Ok(Value::Null));
            }
            thing(format!("commit {}", commit.seq), to_value(&commit.meta));
        }
        things
    }
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
            // There is nothing to hold it against.
            (_, None) => return Err(DriverError::TapeWithoutBeginning),
            (TapeEntry::Desired(desired), Some(driver)) => {
                // What was refused then is refused now.
                let _ = driver.set_desired(*desired);
            }
            (TapeEntry::Policy(policy), Some(driver)) => driver.set_policy(*policy),
            (TapeEntry::Input { now, input }, Some(driver)) => driver.handle(*input, now),
            (TapeEntry::Settled { now }, Some(driver)) => driver.settle_all_operations(now),
            (TapeEntry::Pass { now, told, asked }, Some(driver)) => {
                let (played_told, played_asked) = answer(&driver.pass(now));
                let apart = lines_apart(&told, &played_told).or_else(|| {
                    (*asked != played_asked).then(|| things_apart(&asked.things(), &played_asked.things()))
                });
                if let Some((taped, played)) = apart {
                    let pass = playback.passes + 1;
                    playback.difference = Some(Difference { pass, at: now, taped, played });
                    return Ok(playback);
                }
                playback.passes += 1;
            }
        }
    }
    Ok(playback)
}

/// Both sides of a difference: the tape's, and what was decided now.
type Apart = (Option<String>, Option<String>);

/// The first lines that are not the same.
fn lines_apart(taped: &[String], played: &[String]) -> Option<Apart> {
    let same = taped.iter().zip(played).take_while(|(taped, played)| taped == played).count();
    let apart = (taped.get(same).cloned(), played.get(same).cloned());
    (apart != (None, None)).then_some(apart)
}

/// The first things that are not the same and, of the same thing, the first place in it.
fn things_apart(taped: &[(String, Value)], played: &[(String, Value)]) -> Apart {
    let same = taped.iter().zip(played).take_while(|(taped, played)| taped == played).count();
    match (taped.get(same), played.get(same)) {
        (Some((name, taped)), Some((other, played))) if name == other => {
            let (place, taped, played) = values_apart(taped, played);
            let line = |value: Option<&Value>| match value {
                Some(value) => format!("{name}: {place} is {value}"),
                None => format!("{name}: {place} is absent"),
            };
            (Some(line(taped)), Some(line(played)))
        }
        (taped, played) => {
            let line = |(name, value): &(String, Value)| format!("{name}: {value}");
            (taped.map(line), played.map(line))
        }
    }
}

/// Where two values first differ, as a JSON pointer, and what each holds there.
fn values_apart<'a>(taped: &'a Value, played: &'a Value) -> (String, Option<&'a Value>, Option<&'a Value>) {
    let inside = |key: String, taped: Option<&'a Value>, played: Option<&'a Value>| match (taped, played) {
        (Some(taped), Some(played)) => {
            let (place, taped, played) = values_apart(taped, played);
            (format!("/{key}{place}"), taped, played)
        }
        (taped, played) => (format!("/{key}"), taped, played),
    };
    match (taped, played) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys());
            let key = keys.into_iter().find(|key| a.get(*key) != b.get(*key));
            key.map(|key| inside(key.clone(), a.get(key), b.get(key)))
        }
        (Value::Array(a), Value::Array(b)) => {
            let index = (0..a.len().max(b.len())).find(|index| a.get(*index) != b.get(*index));
            index.map(|index| inside(index.to_string(), a.get(index), b.get(index)))
        }
        _ => None,
    }
    .unwrap_or((String::new(), Some(taped), Some(played)))
}

/// What is taped of a pass.
fn answer(report: &Result<PassReport, DriverError>) -> (Vec<String>, Asked) {
    match report {
        Ok(report) => (lines(report), Asked::of(report)),
        Err(error) => (vec![format!("failed: {error}")], Asked::default()),
    }
}

/// What came of a pass beside what it asked for, a line each.
fn lines(report: &PassReport) -> Vec<String> {
    let mut lines = Vec::new();
    for event in &report.events {
        let node = event.node.as_ref().map_or("-", |node| node.as_str());
        let attempt = event.attempt.map_or_else(|| "-".to_owned(), |attempt| attempt.to_string());
        lines.push(format!("{node} {attempt} {} {}", event.what.name(), event.what));
    }
    lines.extend(report.stops.iter().map(|operation| format!("stop {operation}")));
    lines.extend(report.retired.iter().map(|attempt| format!("retire {attempt}")));
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
        self.tape(|| {
            let (told, asked) = answer(report);
            TapeEntry::Pass { now, told, asked: Box::new(asked) }
        });
    }
}
