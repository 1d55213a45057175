//! A tape that is moved on every few steps, as a full one is. What stands on the old one is decided again from what
//! it begins with.

use reconciler_driver::{Rules, TapeEntry, replay};

use super::{Stage, Watch};
use crate::simulate::Subject;
use crate::simulate::plan::Plan;

/// Steps between two tapes: no divisor of anything that a schedule repeats.
const STEPS: u32 = 23;

/// The tape under way. Ends with its driver.
pub(super) struct Tape {
    life: u64,
    steps: u32,
    entries: Vec<TapeEntry>,
}

/// Plays a schedule on tapes that are moved on. How many passes were decided again; what differs is a violation.
pub(in crate::simulate) fn play_taped(plan: &Plan, subject: &Subject, watch: &Watch) -> u64 {
    match Stage::new(plan, subject, watch) {
        Ok(mut stage) => {
            stage.begin_tape();
            stage.play();
            stage.end_tape();
            stage.replayed
        }
        Err(error) => {
            watch.with(|oracle| oracle.violated("L1", None, || format!("cannot start: {error}")));
            0
        }
    }
}

impl Stage<'_> {
    fn begin_tape(&mut self) {
        self.runner.keep_tape();
        self.runner.take_tape();
        let entries = match self.runner.driver().checkpoint() {
            Ok(checkpoint) => vec![TapeEntry::Checkpoint(Box::new(checkpoint))],
            Err(error) => return self.violated("replay", None, || format!("no checkpoint: {error}")),
        };
        self.tape = Some(Tape { life: self.lives, steps: 0, entries });
    }

    /// After every step, where a tape is kept.
    pub(super) fn tape(&mut self) {
        let Some(tape) = &mut self.tape else { return };
        if tape.life != self.lives {
            return self.begin_tape();
        }
        tape.entries.extend(self.runner.take_tape());
        tape.steps += 1;
        if tape.steps == STEPS {
            self.end_tape();
            self.begin_tape();
        }
    }

    fn end_tape(&mut self) {
        let Some(tape) = self.tape.take().filter(|tape| tape.life == self.lives) else { return };
        // As it is kept: in JSON.
        let kept: serde_json::Result<Vec<TapeEntry>> =
            tape.entries.iter().map(|entry| serde_json::from_str(&serde_json::to_string(entry)?)).collect();
        let played = kept.map_err(|error| error.to_string()).and_then(|tape| {
            replay(tape, &self.executors, &Rules::default()).map_err(|error| error.to_string())
        });
        match played {
            Ok(playback) => {
                self.replayed += playback.passes;
                if let Some(difference) = playback.difference {
                    self.violated("replay", None, || format!("{difference:?}"));
                }
            }
            Err(error) => self.violated("replay", None, || error),
        }
    }
}
