//! Deterministic simulation of the shipped driver: seeded schedules over a fake world in virtual time, with
//! every fault that results, reads, executors, clocks, stores and processes can have.
//!
//! ```text
//!   seed ──► Plan ──► stage: disturbed steps, then peace, then stillness
//!                      │        after each step: the driver against the world
//!                      └─► Violation ──► a smaller Plan with the same violation ──► a story
//! ```
//!
//! Everything is a function of the seed: the cluster, its edits, the timing, how the world behaves, what goes
//! wrong and when. The driver is the one that ships, on the runner that stories and `plan` use; only what it
//! touches is replaced. A batch also counts how often each disturbance really happened, and fails if one that
//! it should have met never did.
//!
//! `cargo test -p conformance --test simulate` plays a few hundred schedules. In the optimised profile
//! (`cargo test --profile checked -p conformance --test simulate`) it plays 100,000, or as many as the
//! environment variable `SIMULATE_SCHEDULES` says; `SIMULATE_SEED` moves the first seed.
//!
//! Beside single schedules there are [`sweep`] (every store write of a schedule befallen in every way), [`levels`]
//! (one declaration reached on different ways), [`taped`] (everything decided again from a tape), [`hung`] (executors that never answer) and [`endure`] (trouble that
//! never ends).
//!
//! Reading order: `plan` and `draw` (what a schedule is), `stage` (how it is played), `oracle`, `rules`, `spy`,
//! `store` and `truth` (what watches), `shrink` (how a failure becomes a story), `batch` (many of them).

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Once;

use executor_api::Executor;
use reconciler_driver::{Rules, StateStore};

mod batch;
mod crashes;
mod dice;
mod draw;
mod endure;
mod expected;
mod hung;
mod interference;
mod levels;
mod oracle;
mod plan;
mod rules;
mod shrink;
mod spy;
mod stage;
mod store;
mod taped;
mod truth;

pub use batch::{Summary, run_many};
pub use crashes::{Blow, Sweep, sweep};
pub use endure::{Endured, run as endure};
pub use hung::{Hung, hung};
pub use levels::levels;
pub use oracle::{RULES, Violation};
pub use plan::{Act, Clock, Disk, Disturbance, Fate, GroupPlan, Plan, ShapePlan, WriteFault};
pub use taped::taped;

/// How schedules are played.
#[derive(Clone, Debug)]
pub struct Options {
    /// Steps of the disturbed phase.
    pub steps: u32,
    /// What is under test.
    pub subject: Subject,
    /// Stop a batch at its first failure.
    pub stop_at_first: bool,
    /// Threads of a batch.
    pub threads: NonZeroUsize,
    /// How many times a failing schedule may be played again to make it smaller.
    pub shrink_tries: u32,
}

impl Default for Options {
    /// 200 steps of the core's own rules, on all cores.
    fn default() -> Self {
        Self {
            steps: 200,
            subject: Subject::default(),
            stop_at_first: true,
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            shrink_tries: 600,
        }
    }
}

/// What stands between the driver and the store. Takes the durable store, answers with what the driver gets.
pub type StoreWrap = fn(Box<dyn StateStore>) -> Box<dyn StateStore>;

/// What stands between the driver and its executor, in front of what watches the calls.
pub type ExecutorWrap = fn(Executor) -> Executor;

/// What is under test: the core's own rules on an honest store and executor, unless a test plants something
/// else.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Decide, fold, apply.
    pub rules: Rules,
    /// What stands between the driver and its store.
    pub store: StoreWrap,
    /// What stands between the driver and its executor.
    pub executor: ExecutorWrap,
    /// Whether the driver asks what there is before it trusts its state, in the schedules that say so.
    pub guarded: bool,
}

impl Default for Subject {
    fn default() -> Self {
        Self { rules: Rules::default(), store: |store| store, executor: |executor| executor, guarded: true }
    }
}

/// How one schedule ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which schedule.
    pub seed: u64,
    /// Steps played, those of the peaceful phase included.
    pub steps: u64,
    /// How often each disturbance really happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// What must not be, if anything.
    pub violation: Option<Violation>,
}

/// A failure, made small.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The schedule as drawn.
    pub plan: Plan,
    /// What must not be, in the schedule as drawn.
    pub violation: Violation,
    /// The smallest schedule found with a violation of the same rule.
    pub smallest: Plan,
    /// What happens in that one, line by line; the last line is the violation.
    pub story: Vec<String>,
}

/// Plays the schedule of one seed.
pub fn run_one(seed: u64, options: &Options) -> Outcome {
    quiet_panics();
    let played = stage::play(&draw::plan(seed, options), &options.subject, false);
    Outcome { seed, steps: played.steps, counts: played.counts, violation: played.violation }
}

/// The schedule of one seed, and everything that happens in it.
pub fn tell(seed: u64, options: &Options) -> (Plan, Vec<String>, Option<Violation>) {
    quiet_panics();
    let plan = draw::plan(seed, options);
    let played = stage::play(&plan, &options.subject, true);
    (plan, played.story, played.violation)
}

/// Plays the schedule of one seed, and makes it small if it fails.
pub fn explain(seed: u64, options: &Options) -> Option<Failure> {
    quiet_panics();
    shrink::explain(draw::plan(seed, options), options)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.plan.seed, self.violation)?;
        writeln!(f, "again: {}", self.plan.replay())?;
        if !self.plan.swept {
            let command = "cargo test --profile checked -p conformance --test simulate";
            writeln!(f, "   or: SIMULATE_SEED={} SIMULATE_SCHEDULES=1 {command}", self.plan.seed)?;
        }
        writeln!(f, "\nas drawn:\n{}", self.plan)?;
        writeln!(f, "made small:")?;
        for line in &self.story {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

/// The fake panics on purpose; those panics are contained and need not be printed.
fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let message = info.payload_as_str().unwrap_or_default();
            if !message.starts_with("the fake executor was told to panic") {
                before(info);
            }
        }));
    });
}
