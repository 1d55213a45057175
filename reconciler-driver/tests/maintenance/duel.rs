//! Two operators side by side, with one plan, one store and one lock. Each is put to sleep, wakes, and is started anew
//! under another name once it has ended.

use std::collections::VecDeque;
use std::ops::AddAssign;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use executor_api::Timer as _;
use executor_api::host::HostErrorKind;
use executor_host_fake::Troubles;
use reconciler_core::maintenance::check::violations;
use reconciler_driver::maintenance::MaintenanceError;

use crate::bench::Bench;
use crate::sleeper::{Sleep, Sleeper};

/// Where an operator falls asleep.
#[derive(Clone, Copy, Debug)]
enum Falls {
    /// Right before a mutation leaves it, after so many others.
    AtMutation(u32),
    /// So long after its start, wherever it is.
    After(Duration),
}

/// One start of one operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// One or the other.
    operator: usize,
    /// How long after its last turn.
    waits: Duration,
    falls: Falls,
    /// How long it sleeps.
    lasts: Duration,
}

impl Turn {
    /// So many turns, the first of them at once.
    pub(crate) fn draw(draw: &mut Troubles, count: u64) -> Vec<Self> {
        let mut turns: Vec<_> = (0..count).map(|_| Self::one(draw)).collect();
        if let Some(first) = turns.first_mut() {
            first.waits = Duration::ZERO;
        }
        turns
    }

    fn one(draw: &mut Troubles) -> Self {
        Self {
            operator: usize::from(draw.below(2) == 0),
            waits: Duration::from_millis(draw.below(60_000)),
            falls: match draw.below(2) {
                0 => Falls::AtMutation(u32::try_from(draw.below(20)).unwrap()),
                _ => Falls::After(Duration::from_millis(draw.below(60_000))),
            },
            // A lease lasts a minute.
            lasts: Duration::from_millis(1 + draw.below(300_000)),
        }
    }
}

/// How often the two came into each other's way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clashes {
    /// An operator woke, and an agent refused what it sent: somebody else has the lease.
    pub(crate) stale: u32,
    /// An operator woke, and an agent refused what it sent: its deadline is over.
    pub(crate) late: u32,
    /// An operator ended because the other had written the record.
    pub(crate) overtaken: u32,
}

impl AddAssign for Clashes {
    fn add_assign(&mut self, other: Self) {
        self.stale += other.stale;
        self.late += other.late;
        self.overtaken += other.overtaken;
    }
}

type Drive = Pin<Box<dyn Future<Output = Result<(), MaintenanceError>>>>;

/// An operator at work or asleep.
struct Running {
    drive: Drive,
    sleep: Arc<Mutex<Sleep>>,
    /// When it falls asleep.
    falls: Option<SystemTime>,
}

/// The turns of one operator that are still to come, and the one it is in.
struct Seated {
    turns: VecDeque<Turn>,
    /// When its last turn was over.
    since: SystemTime,
    running: Option<Running>,
}

impl Seated {
    /// Starts what is due. Works unless it sleeps.
    fn works(&mut self, bench: &mut Bench, clashes: &mut Clashes) {
        let now = bench.timer.now();
        if self.running.is_none()
            && let Some(turn) = self.turns.front().copied().filter(|turn| self.since + turn.waits <= now)
        {
            self.turns.pop_front();
            self.running = Some(begin(bench, turn, now));
        }
        let Some(running) = &mut self.running else { return };
        let mut sleep = running.sleep.lock().unwrap();
        if running.falls.is_some_and(|falls| falls <= now) {
            running.falls = None;
            sleep.until = Some(now + sleep.lasts);
        }
        if sleep.until.is_some_and(|until| until > now) {
            return;
        }
        drop(sleep);
        let Poll::Ready(ended) = running.drive.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            return;
        };
        match ended {
            Ok(()) => {}
            Err(MaintenanceError::Store { .. }) => clashes.overtaken += 1,
            Err(error) => panic!("{error:?}"),
        }
        match &running.sleep.lock().unwrap().woken {
            Some(Err(HostErrorKind::StaleFence { .. })) => clashes.stale += 1,
            Some(Err(HostErrorKind::Refused)) => clashes.late += 1,
            Some(_) | None => {}
        }
        self.running = None;
        self.since = now;
    }

    /// When it has something to do that no alarm of its own tells.
    fn next(&self, now: SystemTime) -> Option<SystemTime> {
        match &self.running {
            Some(running) => {
                let wakes = running.sleep.lock().unwrap().until.filter(|until| *until > now);
                wakes.or(running.falls)
            }
            None => self.turns.front().map(|turn| self.since + turn.waits),
        }
    }
}

fn begin(bench: &mut Bench, turn: Turn, now: SystemTime) -> Running {
    let (after, falls) = match turn.falls {
        Falls::AtMutation(after) => (after, None),
        Falls::After(after) => (u32::MAX, Some(now + after)),
    };
    let sleep = Arc::new(Mutex::new(Sleep { after, lasts: turn.lasts, ..Sleep::default() }));
    let mut start = bench.starting(Box::new(bench.store.clone()));
    let seat = bench.world.seat(start.me.as_str());
    Sleeper::sits(&mut start, seat, &bench.timer, &sleep);
    let mut driver = bench.begin(start).unwrap();
    let drive = Box::pin(async move {
        let passes = driver.drive(|driver, _| {
            assert_eq!(violations(driver.plan(), driver.state()), Vec::<&str>::new());
            false
        });
        passes.await
    });
    Running { drive, sleep, falls }
}

/// Long enough for every turn that is drawn: who is still at it then waits for something else.
const LASTS: Duration = Duration::from_mins(15);

/// Lets both take their turns, and ends whoever is still at it when that is over.
pub(crate) fn fight(bench: &mut Bench, turns: &[Turn]) -> Clashes {
    let began = bench.timer.now();
    let mut seated = [0, 1].map(|number| Seated {
        turns: turns.iter().filter(|turn| turn.operator == number).copied().collect(),
        since: began,
        running: None,
    });
    let mut clashes = Clashes::default();
    loop {
        for seated in &mut seated {
            seated.works(bench, &mut clashes);
        }
        let now = bench.timer.now();
        let busy = seated.iter().any(|seated| seated.running.is_some() || !seated.turns.is_empty());
        let next = seated.iter().filter_map(|seated| seated.next(now)).chain(bench.timer.next()).min();
        let Some(next) = next.filter(|_| busy && now < began + LASTS) else {
            return clashes;
        };
        bench.timer.advance_to(next);
    }
}
