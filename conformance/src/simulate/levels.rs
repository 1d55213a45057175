//! One declaration reached on different ways: edit by edit, all edits at once, with triggers that say nothing, with
//! triggers left out, or declared from the start. A driver that acts on levels ends at the same world each time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::{Life, LogicalNodeId};
use executor_fake::{FakeWorld, Incident};
use reconciler_driver::runner::Settled;
use reconciler_driver::{DriverInput, ExecutorTable, MemoryStore, Runner, VirtualTimer};

use super::dice::Dice;
use super::oracle::Violation;
use super::plan::{Act, Disturbance, Plan, ShapePlan, run};
use super::{Options, Subject, draw};

/// How a declaration is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Each edit is made when the one before has settled.
    Settled,
    /// All edits at once.
    Merged,
    /// Edits at any moment, with ticks, the same shape again, and incidents in between.
    Disturbed,
    /// The last shape is the first.
    AtOnce,
}

const WAYS: [Way; 4] = [Way::Settled, Way::Merged, Way::Disturbed, Way::AtOnce];

/// What exists in the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct End {
    /// For each slot its spec and its living leases.
    slots: BTreeMap<LogicalNodeId, (String, usize)>,
    /// Leases in all.
    leases: usize,
}

/// Goes all ways to the last shape of a seed's schedule. What must not be, if anything.
pub fn levels(seed: u64, options: &Options) -> Option<Violation> {
    super::quiet_panics();
    let plan = draw::plan(seed, options);
    let shapes = shapes(&plan);
    let mut first: Option<(Way, End)> = None;
    for way in WAYS {
        let violation = |what: String| Some(Violation { rule: "S2", node: None, what });
        let end = match go(&plan, &shapes, way, &options.subject) {
            Ok(end) => end,
            Err(what) => return violation(format!("{way:?}: {what}")),
        };
        match &first {
            None => first = Some((way, end)),
            Some((other, there)) if *there != end => {
                return violation(format!("{other:?} ends at {there:?}, {way:?} at {end:?}"));
            }
            Some(_) => {}
        }
    }
    None
}

/// The shapes of a schedule, one after the other, each of them served.
fn shapes(plan: &Plan) -> Vec<ShapePlan> {
    let mut shapes = vec![plan.shape.clone()];
    for disturbance in &plan.disturbances {
        if let Disturbance::Act { act: Act::Edit(edits), .. } = disturbance {
            shapes.extend(edits.iter().cloned());
        }
    }
    shapes.iter_mut().flat_map(|shape| &mut shape.0).for_each(|group| group.unserved = false);
    shapes
}

fn go(plan: &Plan, shapes: &[ShapePlan], way: Way, subject: &Subject) -> Result<End, String> {
    let timer = VirtualTimer::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
    let world = FakeWorld::new(Arc::new(timer.clone()), plan.behaviour.clone());
    let executors = ExecutorTable::new().with_executor((subject.executor)(world.executor()));
    let store = (subject.store)(Box::new(MemoryStore::new()));
    let (begin, rest) = match (way, shapes) {
        (Way::AtOnce, [.., last]) => (last, &[][..]),
        (_, [first, rest @ ..]) => (first, rest),
        (_, []) => return Ok(End::default()),
    };
    let rules = subject.rules.clone();
    let mut runner =
        Runner::open(store, begin.shape(&run(), 1), plan.policy.clone(), executors, timer, rules)
            .map_err(|error| error.to_string())?;
    let mut dice = Dice::new(plan.seed);
    let mut generation = 1;
    for shape in rest {
        match way {
            Way::Settled => settle(plan, &mut runner)?,
            Way::Disturbed => disturb(&mut dice, &mut runner, &world)?,
            Way::Merged | Way::AtOnce => {}
        }
        generation += 1;
        runner.set_desired(shape.shape(&run(), generation)).map_err(|error| error.to_string())?;
    }
    settle(plan, &mut runner)?;
    let state = runner.driver().state();
    let alive = |slot: &LogicalNodeId| {
        world.leases_of_slot(&run(), slot).iter().filter(|lease| lease.life == Life::Live).count()
    };
    let slots = state
        .nodes
        .iter()
        .map(|(slot, node)| (slot.clone(), (node.record.desired.template.role.0.clone(), alive(slot))))
        .collect();
    Ok(End { slots, leases: world.existing_leases().len() })
}

fn settle(plan: &Plan, runner: &mut Runner) -> Result<(), String> {
    match runner.run_until_settled(plan.bound()) {
        Ok(Settled::Converged) => Ok(()),
        Ok(other) => Err(format!("{other:?}, not converged")),
        Err(error) => Err(error.to_string()),
    }
}

/// A few steps, in which triggers come that say nothing new, and things befall the nodes.
fn disturb(dice: &mut Dice, runner: &mut Runner, world: &FakeWorld) -> Result<(), String> {
    for _ in 0..dice.below(60) {
        runner.step().map_err(|error| error.to_string())?;
        match dice.below(10) {
            0 => runner.tell(DriverInput::Tick),
            1 => {
                let again = runner.driver().desired().as_ref().clone();
                runner.set_desired(again).map_err(|error| error.to_string())?;
            }
            2 if dice.percent(10) => {
                let slots: Vec<_> = runner.driver().slots().into_iter().collect();
                if !slots.is_empty() {
                    world.befall(&dice.pick(&slots), &Incident::Dies("reclaimed".to_owned()));
                }
            }
            _ => {}
        }
    }
    Ok(())
}
