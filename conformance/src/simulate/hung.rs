//! A cluster of any size on executors that never answer: what the driver does then, counted. A pass that waited for
//! anybody would end nothing here, and one that looked at more than what changed would show in the count.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::Timer;
use executor_fake::{CallKind, FakeBehaviour, FakeWorld, Fault, Rule, Silence};
use reconciler_core::{PolicyExtra, RetryPolicy};
use reconciler_driver::runner::Step;
use reconciler_driver::{DriverInput, ExecutorTable, MemoryStore, Runner, VirtualTimer};

use super::Subject;
use super::draw::NO_TICK;
use super::oracle::Violation;
use super::plan::{GroupPlan, ShapePlan, run, slot};

/// Looks at a slot that a whole round of it may take: until it is inserted, sent, timed out, and sent again.
const LOOKS_PER_SLOT: u64 = 4;
/// Looks that one input about one slot may take.
const LOOKS_PER_INPUT: u64 = 4;

/// What was done while nobody answered.
#[derive(Clone, Debug, Default)]
pub struct Hung {
    /// Effects that were sent before time moved.
    pub sent: u64,
    /// Passes before time moved.
    pub passes: u64,
    /// Slots looked at before time moved.
    pub looked_at: u64,
    /// Slots looked at when one slot was asked about, with everything else under way.
    pub for_one: u64,
    /// What must not be, if anything.
    pub violation: Option<Violation>,
}

/// Declares so many slots on executors that never answer.
pub fn hung(slots: u32, subject: &Subject) -> Hung {
    super::quiet_panics();
    let mut hung = Hung::default();
    if let Err(what) = play(slots, subject, &mut hung) {
        hung.violation = Some(Violation { rule: "S13", node: None, what });
    }
    hung
}

fn play(slots: u32, subject: &Subject, hung: &mut Hung) -> Result<(), String> {
    let timer = VirtualTimer::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
    let world = FakeWorld::new(Arc::new(timer.clone()), FakeBehaviour::instant());
    let _ = world.script(Rule::new(CallKind::Create, Fault::NotActed(Silence::Hangs)).always());
    let _ = world.script(Rule::new(CallKind::List, Fault::Unknown).always());
    let executors = ExecutorTable::new().with_executor((subject.executor)(world.executor()));
    let group = GroupPlan { count: slots, version: 1, limit: None, unserved: false };
    let shape = ShapePlan(vec![group]).shape(&run(), 1);
    let extra = PolicyExtra { tick_every: NO_TICK, create_share: u32::MAX, ..PolicyExtra::default() };
    let policy = RetryPolicy { extra, ..RetryPolicy::default() };
    let store = (subject.store)(Box::new(MemoryStore::new()));
    let mut runner =
        Runner::open(store, shape, policy.clone(), executors, timer.clone(), subject.rules.clone())
            .map_err(|error| format!("cannot start: {error}"))?;

    until_time_moves(&mut runner, slots)?;
    let counters = runner.driver().counters();
    (hung.sent, hung.passes, hung.looked_at) =
        (counters.dispatched, counters.passes, counters.slots_looked_at);
    if hung.sent != u64::from(slots) {
        return Err(format!("{} of {slots} effects were sent while no executor answers", hung.sent));
    }
    let most = u64::from(slots) * LOOKS_PER_SLOT;
    if hung.looked_at > most {
        return Err(format!("{} looks at {slots} slots, where {most} are enough", hung.looked_at));
    }

    // One slot is asked about; the others are no business of that pass.
    let before = runner.driver().counters().slots_looked_at;
    runner.tell(DriverInput::Replace { slot: slot(0, slots / 2) });
    until_time_moves(&mut runner, slots)?;
    hung.for_one = runner.driver().counters().slots_looked_at - before;
    if hung.for_one > LOOKS_PER_INPUT {
        return Err(format!("{} slots were looked at for one input about one", hung.for_one));
    }

    // Every operation times out, and each slot goes on by itself.
    let end = timer.now() + policy.operation_timeout + policy.initial_delay * 2;
    while timer.now() < end {
        runner.step().map_err(|error| format!("stopped: {error}"))?;
    }
    let timed_out = runner.driver().counters().timeouts;
    if timed_out < u64::from(slots) {
        return Err(format!("{timed_out} of {slots} operations ended although all were due"));
    }
    let (all, most) = (runner.driver().counters().slots_looked_at, 2 * most);
    if all > most { Err(format!("{all} looks at {slots} slots, where {most} are enough")) } else { Ok(()) }
}

/// Whatever can be done without an answer is done in a bounded number of steps.
fn until_time_moves(runner: &mut Runner, slots: u32) -> Result<(), String> {
    let most = 100 + 20 * slots;
    for _ in 0..most {
        match runner.step() {
            Ok(Step::Happened) => {}
            Ok(Step::Waited | Step::Idle) => return Ok(()),
            Err(error) => return Err(format!("stopped: {error}")),
        }
    }
    Err(format!("still busy after {most} steps at one moment"))
}
