//! Schedules whose every decision is made again from a tape, and from checkpoints of the driver in the middle of it.

use super::oracle::{Violation, Watch};
use super::{Options, draw, stage};

/// Plays the schedule of one seed and, from checkpoint to checkpoint, what was taped of it. How many passes were
/// decided again, and what differed or must not be, if anything.
pub fn taped(seed: u64, options: &Options) -> (u64, Option<Violation>) {
    super::quiet_panics();
    let plan = draw::plan(seed, options);
    let watch = Watch::new(&plan, false);
    let passes = stage::play_taped(&plan, &options.subject, &watch);
    (passes, watch.with(|oracle| oracle.violation.take()))
}
