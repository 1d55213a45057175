//! Many schedules on all threads, and what they came to together.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Failure, Options, Outcome, expected, explain, quiet_panics, run_one};

/// What a batch came to.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Schedules played.
    pub schedules: u64,
    /// Steps played.
    pub steps: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// How often each disturbance really happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// The failure with the lowest seed among those found.
    pub failure: Option<Box<Failure>>,
    /// How many schedules failed.
    pub failures: u64,
}

/// Plays the schedules of `count` seeds from `first` on, on all threads.
pub fn run_many(first: u64, count: u64, options: &Options) -> Summary {
    quiet_panics();
    let started = Instant::now();
    let total = Mutex::new((Summary::default(), None::<u64>));
    on_all_threads(count, options, |number| {
        let outcome = run_one(first.wrapping_add(number), options);
        let failed = outcome.violation.is_some();
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.0.add(&outcome);
        if failed {
            total.1 = Some(total.1.map_or(outcome.seed, |seed| seed.min(outcome.seed)));
        }
        if failed && options.stop_at_first { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let (mut summary, failed) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.elapsed = started.elapsed();
    summary.failure = failed.and_then(|seed| explain(seed, options)).map(Box::new);
    summary
}

/// Does something for each number below `count`, on all threads, until one says that it is enough.
pub(super) fn on_all_threads(count: u64, options: &Options, work: impl Fn(u64) -> ControlFlow<()> + Sync) {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..options.threads.get() {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    stop.fetch_or(work(number).is_break(), Ordering::Relaxed);
                }
            });
        }
    });
}

impl Summary {
    /// Schedules per second.
    pub fn rate(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a rate to look at")]
        let schedules = self.schedules as f64;
        schedules / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Disturbances that a batch of this size should have met and never did.
    pub fn never_happened(&self) -> Vec<&'static str> {
        expected::NAMES.iter().copied().filter(|name| self.counts.get(name).is_none_or(|n| *n == 0)).collect()
    }

    pub(super) fn add(&mut self, outcome: &Outcome) {
        self.schedules += 1;
        self.steps += outcome.steps;
        self.failures += u64::from(outcome.violation.is_some());
        for (name, times) in &outcome.counts {
            *self.counts.entry(name).or_default() += times;
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schedules, steps, failures, .. } = self;
        let seconds = self.elapsed.as_secs_f64();
        write!(
            f,
            "{schedules} schedules, {steps} steps, {failures} failed, {seconds:.1} s, {:.0} schedules/s",
            self.rate()
        )?;
        for (name, times) in &self.counts {
            write!(f, "\n  {times:>9}  {name}")?;
        }
        Ok(())
    }
}
