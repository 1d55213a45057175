//! Random histories: edits, holds, crashes, lost, late and repeated messages, a world that misbehaves. At
//! every step the invariants hold and a pass over the dirty slots finds what a full reconcile finds; when the
//! trouble ends, the world becomes what is declared, and stays so.

use std::sync::Arc;
use std::time::SystemTime;

use executor_api::{Timer as _, Visibility};
use executor_fake::{FakeBehaviour, FakeWorld, Fault, Weather};
use proptest::prelude::*;
use reconciler_core::{ClusterShape, Hold, HoldBy, check, is_converged, reconcile_slots};
use reconciler_driver::runner::{CrashPoint, Hooks, Settled};
use reconciler_driver::{
    ClusterDriver, DriverInput, ExecutorTable, MemoryStore, Rules, Runner, VirtualTimer,
};

use crate::support::{at, epoch, group, policy, secs, shape, slot};

#[derive(Clone, Debug)]
enum Move {
    Declare { web: u32, db: u32, version: u64, limited: bool },
    Hold(u32),
    Release,
    Replace(u32),
    Crash,
    Wait(u64),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one =
        prop_oneof![
            (0..4_u32, 0..3_u32, 1..3_u64, any::<bool>())
                .prop_map(|(web, db, version, limited)| Move::Declare { web, db, version, limited }),
            (0..4_u32).prop_map(Move::Hold),
            Just(Move::Release),
            (0..4_u32).prop_map(Move::Replace),
            Just(Move::Crash),
            (0..40_u64).prop_map(Move::Wait),
            (0..40_u64).prop_map(Move::Wait),
        ];
    prop::collection::vec(one, 1..25)
}

/// Chance from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Loses, repeats and delays messages, and kills the process around store writes, until it is told to stop.
struct Trouble {
    dice: Dice,
    until: SystemTime,
    now: SystemTime,
}

impl Hooks for Trouble {
    fn deliver(&mut self, input: &DriverInput, now: SystemTime) -> Option<Vec<(SystemTime, DriverInput)>> {
        self.now = now;
        if now >= self.until {
            return None;
        }
        let delay = secs(self.dice.roll(40));
        match self.dice.roll(20) {
            0 => Some(Vec::new()),
            1 => Some(vec![(now, input.clone()), (now + delay, input.clone())]),
            2 => Some(vec![(now + delay, input.clone())]),
            _ => None,
        }
    }

    fn crashes(&mut self, _: CrashPoint, _: u64) -> bool {
        self.now < self.until && self.dice.roll(60) == 0
    }

    fn after_pass(&mut self, driver: &ClusterDriver) {
        self.now = driver.now();
        assert_eq!(check::violations(driver.state()), []);
        assert_eq!(
            driver.is_converged(),
            is_converged(driver.state(), driver.expanded())
                && driver.state().observed_generation == driver.desired().generation
        );
        assert_eq!(driver.ready(), driver.state().nodes.values().filter(|node| node.is_ready()).count());
    }
}

/// The core's rules, with every pass compared with one over all slots.
fn compared() -> Rules {
    Rules {
        reconcile: Arc::new(|state, desired, dirty, now| {
            let plan = reconcile_slots(state, desired, dirty, now)?;
            let all = state.nodes.keys().chain(desired.specs.keys()).cloned().collect();
            let full = reconcile_slots(state, desired, &all, now)?;
            assert_eq!(plan.actions, full.actions, "a pass over {dirty:?} missed something");
            Ok(plan)
        }),
        ..Rules::default()
    }
}

fn declared(generation: u64, web: u32, db: u32, version: u64, limited: bool) -> ClusterShape {
    let mut web = group("web", web, version);
    web.update.max_unavailable = limited.then_some(1);
    shape(generation, vec![web, group("db", db, 1)])
}

fn play(moves: Vec<Move>, seed: u64, per_mille: u32, visibility: Visibility) {
    let end = at(600);
    let timer = VirtualTimer::new(epoch());
    let behaviour = FakeBehaviour { visibility, ..FakeBehaviour::default() };
    let world = FakeWorld::new(Arc::new(timer.clone()), behaviour);
    let mut weather = Weather::everything(seed, per_mille, Some(end));
    // Two leases from one create are a breach, which waits for a person; a lease that never gets an endpoint
    // is asked for one for ever.
    weather.chances.retain(|chance| !matches!(chance.fault, Fault::MadeTwice | Fault::NoEndpoint));
    world.set_weather(Some(weather));
    let mut policy = policy();
    policy.extra.loss_timeout = Some(secs(30));
    // The net is not to catch anything: progress must not depend on it.
    policy.extra.tick_every = std::time::Duration::MAX;
    let executors = ExecutorTable::new().with_executor(world.executor());
    let desired = declared(1, 2, 1, 1, false);
    let memory = Box::new(MemoryStore::new());
    let mut runner = Runner::open(memory, desired, policy, executors, timer.clone(), compared())
        .unwrap()
        .with_hooks(Box::new(Trouble { dice: Dice(seed), until: end, now: epoch() }));
    let mut generation = 1;
    for step in moves {
        match step {
            Move::Declare { web, db, version, limited } => {
                generation += 1;
                runner.set_desired(declared(generation, web, db, version, limited)).unwrap();
            }
            Move::Hold(index) => {
                let hold = Hold { by: HoldBy::Operator, reason: "test".to_owned(), since: timer.now() };
                let slot = (index < 3).then(|| slot(&format!("web-{index}")));
                runner.tell(DriverInput::Hold { slot, hold });
            }
            Move::Release => release(&mut runner),
            Move::Replace(index) => {
                runner.tell(DriverInput::Replace { slot: slot(&format!("web-{index}")) });
            }
            Move::Crash => runner.crash().unwrap(),
            Move::Wait(seconds) => runner.run_for(secs(seconds)).unwrap(),
        }
    }
    release(&mut runner);
    let left = end.duration_since(timer.now()).unwrap_or_default();
    runner.run_for(left).unwrap();
    // A release told right before a crash is forgotten with it, as is everything that was not stored.
    release(&mut runner);
    let settled = runner.run_until_settled(secs(900)).unwrap();
    assert_eq!(settled, Settled::Converged, "{}", story_of(&runner));
    // What was lost just before the end is found by the listings, and healed.
    let declared = runner.driver().expanded().specs.len();
    runner.run_for(secs(300)).unwrap();
    assert_eq!(runner.run_until_settled(secs(900)).unwrap(), Settled::Converged, "{}", story_of(&runner));
    assert_eq!(world.existing_leases().len(), declared, "{}", story_of(&runner));
    assert_eq!(world.breaches(), [], "{}", story_of(&runner));
    // Steady: nothing more is done.
    let (mutations, state) = (world.mutations(), runner.driver().state().clone());
    runner.run_for(secs(60)).unwrap();
    assert_eq!(world.mutations(), mutations);
    assert_eq!(*runner.driver().state(), state);
}

fn story_of(runner: &Runner) -> String {
    runner.full_trace().join("\n")
}

fn release(runner: &mut Runner) {
    runner.tell(DriverInput::Release { slot: None, by: HoldBy::Operator });
    for index in 0..3 {
        let slot = Some(slot(&format!("web-{index}")));
        runner.tell(DriverInput::Release { slot, by: HoldBy::Operator });
    }
}

proptest! {
    #[test]
    fn any_history_converges_once_the_trouble_ends(
        moves in moves(),
        seed in any::<u64>(),
        per_mille in prop_oneof![Just(0_u32), Just(5), Just(20)],
        lag in 0..20_u64,
    ) {
        play(moves, seed, per_mille, Visibility { listing_lag: secs(lag), late_landing: secs(lag / 2) });
    }
}
