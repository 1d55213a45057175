//! Every store write of a schedule befallen in every way: the process dies around it, the write fails, or the disk
//! holds something else afterwards. Each is a schedule of its own, which must keep every rule and converge.
//!
//! ```text
//!   seed ──► base schedule, with its own disturbances ──► so many writes
//!              for each write, for each blow: the same schedule and that blow at that write
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use reconciler_driver::runner::CrashPoint;

use super::batch::{Summary, on_all_threads};
use super::plan::{Act, Clock, Disk, Disturbance, Plan, WriteFault};
use super::stage::{Played, play};
use super::{Failure, Options, Outcome, draw, expected, quiet_panics, shrink};

/// What may befall a store write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blow {
    /// The process dies there, and starts again from what was written last.
    Crash(CrashPoint),
    /// There is no space for it.
    NoSpace,
    /// It is not synchronised; whether it reached the disk nevertheless.
    SyncFails(bool),
    /// The process dies after it, and a copy from so many writes before is put back.
    OldState(usize),
    /// The process dies after it, and its state is deleted.
    LostState,
    /// The process dies after it, and its state does not read.
    UnreadableState,
    /// The process dies in it, and what reached the disk of it does not read.
    TornWrite,
}

/// In this order each write is befallen. Dying between the commit and the dispatch is one point: nothing has left
/// the process before somebody begins with it.
const BLOWS: [Blow; 12] = [
    Blow::Crash(CrashPoint::BeforeCommit),
    Blow::Crash(CrashPoint::AfterCommit),
    Blow::Crash(CrashPoint::UnderWay),
    Blow::Crash(CrashPoint::AfterAnswer),
    Blow::NoSpace,
    Blow::SyncFails(false),
    Blow::SyncFails(true),
    Blow::OldState(1),
    Blow::OldState(5),
    Blow::LostState,
    Blow::UnreadableState,
    Blow::TornWrite,
];

/// What a sweep came to.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// Base schedules.
    pub bases: u64,
    /// Store writes of all of them.
    pub writes: u64,
    /// Crashes at a write that really happened, one for each schedule played for one.
    pub crash_points: u64,
    /// The schedules played, with a blow each.
    pub played: Summary,
    /// How often each blow was really dealt.
    pub dealt: BTreeMap<&'static str, u64>,
}

/// Befalls every store write of the schedules of `bases` seeds from `first` on.
pub fn sweep(first: u64, bases: u64, options: &Options) -> Sweep {
    quiet_panics();
    let started = Instant::now();
    let total = Mutex::new((Sweep::default(), None::<Plan>));
    on_all_threads(bases, options, |number| {
        let (own, failing) = befall_every_write(first.wrapping_add(number), options);
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.0.merge(&own);
        let failed = failing.is_some();
        if let Some(plan) = failing
            && total.1.as_ref().is_none_or(|other| plan.seed < other.seed)
        {
            total.1 = Some(plan);
        }
        if failed && options.stop_at_first { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let (mut sweep, failing) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    sweep.played.elapsed = started.elapsed();
    sweep.played.failure = failing.and_then(|plan| shrink::explain(plan, options)).map(Box::new);
    sweep
}

/// One base schedule: what came of it, and the first schedule that failed.
fn befall_every_write(seed: u64, options: &Options) -> (Sweep, Option<Plan>) {
    let mut sweep = Sweep { bases: 1, ..Sweep::default() };
    let base = base(seed, options);
    let played = play(&base, &options.subject, false);
    sweep.writes = played.writes;
    if played.violation.is_some() {
        sweep.played.failures = 1;
        return (sweep, Some(base));
    }
    let mut failing = None;
    for write in 0..played.writes {
        for blow in BLOWS {
            let mut plan = base.clone();
            plan.disturbances.push(blow.at(write));
            let Played { violation, counts, steps, .. } = play(&plan, &options.subject, false);
            sweep.count(blow, &played.counts, &counts);
            let failed = violation.is_some();
            sweep.played.add(&Outcome { seed, steps, counts, violation });
            if failed && failing.is_none() {
                failing = Some(plan);
            }
            if failed && options.stop_at_first {
                return (sweep, failing);
            }
        }
    }
    (sweep, failing)
}

/// The schedule of a seed, as a process plays it that asks before it trusts its state. Bootstrappers are never
/// missing: what may have been sent to one that is not there, a person must settle.
fn base(seed: u64, options: &Options) -> Plan {
    let mut plan = draw::plan(seed, options);
    plan.guarded = true;
    plan.swept = true;
    for disturbance in &mut plan.disturbances {
        if let Disturbance::Act { act: Act::Edit(shapes), .. } = disturbance {
            shapes.iter_mut().flat_map(|shape| &mut shape.0).for_each(|group| group.unserved = false);
        }
    }
    plan
}

impl Blow {
    fn at(self, commit: u64) -> Disturbance {
        let died = |point, disk| Disturbance::Crash { commit, point, clock: Clock::True, disk };
        match self {
            Self::Crash(point) => died(point, Disk::Newest),
            Self::NoSpace => Disturbance::CommitFails { commit, how: WriteFault::NoSpace },
            Self::SyncFails(kept) => Disturbance::CommitFails { commit, how: WriteFault::SyncFails { kept } },
            Self::OldState(writes) => died(CrashPoint::AfterCommit, Disk::Older { writes }),
            Self::LostState => died(CrashPoint::AfterCommit, Disk::Deleted),
            Self::UnreadableState => died(CrashPoint::AfterCommit, Disk::Unreadable),
            Self::TornWrite => died(CrashPoint::BeforeCommit, Disk::Torn),
        }
    }

    /// The name under which the simulator counts it when it really happens.
    fn counted_as(self) -> &'static str {
        match self {
            Self::Crash(CrashPoint::BeforeCommit) => "crash before commit",
            Self::Crash(CrashPoint::AfterCommit) => "crash after commit",
            Self::Crash(CrashPoint::BeforeDispatch) => "crash before dispatch",
            Self::Crash(CrashPoint::AfterDispatch) => "crash after dispatch",
            Self::Crash(CrashPoint::UnderWay) => "crash with effects under way",
            Self::Crash(CrashPoint::AfterAnswer) => "crash after an answer",
            Self::NoSpace => "store write without space",
            Self::SyncFails(false) => "store write not synchronised",
            Self::SyncFails(true) => "store write not synchronised and there",
            Self::OldState(_) => "old state put back",
            Self::LostState => "state deleted",
            Self::UnreadableState => "state unreadable",
            Self::TornWrite => "store write torn",
        }
    }
}

impl Sweep {
    /// Blows that were never dealt, and answers to them that were never given.
    pub fn never_happened(&self) -> Vec<&'static str> {
        let dealt = BLOWS.iter().map(|blow| blow.counted_as()).filter(|name| !self.dealt.contains_key(name));
        let met = |name: &&str| self.played.counts.get(name).is_none_or(|times| *times == 0);
        dealt.chain(expected::ANSWERS.iter().copied().filter(met)).collect()
    }

    /// Crash points per second, with everything else that a sweep does.
    pub fn rate(&self) -> f64 {
        self.played.rate()
    }

    /// Counts a blow if it was dealt: if more of its kind happened than in the schedule without it.
    fn count(&mut self, blow: Blow, base: &BTreeMap<&'static str, u64>, with: &BTreeMap<&'static str, u64>) {
        let name = blow.counted_as();
        let times = |counts: &BTreeMap<&'static str, u64>| counts.get(name).copied().unwrap_or_default();
        if times(with) > times(base) {
            *self.dealt.entry(name).or_default() += 1;
            self.crash_points += u64::from(matches!(blow, Blow::Crash(_)));
        }
    }

    fn merge(&mut self, other: &Self) {
        self.bases += other.bases;
        self.writes += other.writes;
        self.crash_points += other.crash_points;
        self.played.schedules += other.played.schedules;
        self.played.steps += other.played.steps;
        self.played.failures += other.played.failures;
        for (name, times) in &other.dealt {
            *self.dealt.entry(name).or_default() += times;
        }
        for (name, times) in &other.played.counts {
            *self.played.counts.entry(name).or_default() += times;
        }
    }

    /// The failure of the lowest seed, made small.
    pub fn failure(&self) -> Option<&Failure> {
        self.played.failure.as_deref()
    }

    /// How long it took.
    pub fn elapsed(&self) -> Duration {
        self.played.elapsed
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bases, writes, crash_points, played, dealt } = self;
        writeln!(f, "{bases} base schedules with {writes} store writes: {crash_points} crash points")?;
        for (name, times) in dealt {
            writeln!(f, "  {times:>9}  {name}, dealt to one write each")?;
        }
        write!(f, "{played}")
    }
}
