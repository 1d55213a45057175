//! From a seed to a schedule. Nothing else here; every number that a schedule depends on is drawn in this
//! file, in one fixed order.

use std::time::Duration;

use executor_api::{LogicalNodeId, RejectReason, Visibility};
use executor_fake::{
    CallKind, EndpointTiming, FakeBehaviour, Fault, Incident, Joining, NodeBehaviour, Silence, Tokens,
};
use reconciler_core::{PolicyExtra, RetryPolicy};
use reconciler_driver::runner::CrashPoint;

use super::Options;
use super::dice::Dice;
use super::plan::{Act, Clock, Disk, Disturbance, Fate, GroupPlan, Plan, ShapePlan, WriteFault, slot};

/// So long that no tick ever comes.
pub(super) const NO_TICK: Duration = Duration::from_hours(50 * 365 * 24);

/// The calls that faults are drawn for.
const CALLS: [CallKind; 10] = [
    CallKind::Create,
    CallKind::Lookup,
    CallKind::Destroy,
    CallKind::FindLease,
    CallKind::List,
    CallKind::Start,
    CallKind::Complete,
    CallKind::Cancel,
    CallKind::FindSession,
    CallKind::Attach,
];

/// Draws a schedule.
pub(super) fn plan(seed: u64, options: &Options) -> Plan {
    let mut dice = Dice::new(seed);
    let mut versions = 0;
    let shape = draw_shape(&mut dice, &mut versions, true);
    let behaviour = draw_behaviour(&mut dice);
    let policy = draw_policy(&mut dice, &behaviour);
    let slots: Vec<LogicalNodeId> = (0..2).flat_map(|group| (0..3).map(move |i| slot(group, i))).collect();
    let declared: Vec<LogicalNodeId> =
        (0..shape.0.len()).flat_map(|group| (0..shape.0[group].count).map(move |i| slot(group, i))).collect();
    let mut plan = Plan {
        seed,
        steps: options.steps,
        shape,
        guarded: dice.percent(50),
        policy,
        behaviour,
        victim: None,
        disturbances: Vec::new(),
        swept: false,
    };
    let mut draw = Draw { dice, slots, declared, versions, steps: options.steps, disturbances: Vec::new() };
    // Quiet schedules are worth having too: what breaks there needs few steps to tell.
    let busy = draw.dice.pick(&[1_u32, 1, 2, 3]);
    let no_lag = plan.behaviour.visibility.listing_lag.is_zero();
    for _ in 0..draw.dice.between(0, 4 * busy) {
        draw.call_fault(no_lag);
    }
    for _ in 0..draw.dice.between(0, 2 * busy) {
        draw.delivery(&plan.policy);
    }
    for _ in 0..draw.dice.between(0, busy) {
        draw.crash(plan.guarded);
    }
    if draw.dice.percent(5) {
        draw.failing_write();
    }
    // A start that may have been sent to a bootstrapper which is not there can never be looked up: a process
    // that dies then leaves something that only a person can settle.
    let never_dies = draw.dice.percent(30);
    if never_dies {
        draw.disturbances
            .retain(|d| !matches!(d, Disturbance::Crash { .. } | Disturbance::CommitFails { .. }));
    }
    for _ in 0..draw.dice.between(0, busy) {
        draw.edit(never_dies);
    }
    for _ in 0..draw.dice.between(0, busy) {
        draw.act();
    }
    if draw.dice.percent(10) && !draw.declared.is_empty() {
        let node = draw.dice.pick(&draw.declared);
        let call = draw.dice.pick(&[CallKind::Create, CallKind::Start, CallKind::Lookup]);
        plan.victim = Some((node, call));
        // A slot that is down for ever uses up its group's allowance: the others rightly wait.
        let unlimited = |shape: &mut ShapePlan| shape.0.iter_mut().for_each(|group| group.limit = None);
        unlimited(&mut plan.shape);
        for disturbance in &mut draw.disturbances {
            if let Disturbance::Act { act: Act::Edit(shapes), .. } = disturbance {
                shapes.iter_mut().for_each(unlimited);
            }
        }
    }
    if never_dies {
        draw.disturbances.retain(|d| !matches!(d, Disturbance::Act { act: Act::Die(_), .. }));
    }
    plan.disturbances = draw.disturbances;
    plan
}

fn draw_shape(dice: &mut Dice, versions: &mut u32, first: bool) -> ShapePlan {
    let mut group = |dice: &mut Dice, most: u32, least: u32| {
        *versions += 1;
        GroupPlan {
            count: dice.between(least, most),
            version: *versions,
            limit: dice.percent(15).then_some(1),
            unserved: false,
        }
    };
    let mut groups = vec![group(dice, 3, u32::from(first))];
    if dice.percent(40) {
        groups.push(group(dice, 2, 0));
    }
    ShapePlan(groups)
}

fn draw_behaviour(dice: &mut Dice) -> FakeBehaviour {
    let endpoint = match dice.below(3) {
        0 => EndpointTiming::AtOnce,
        _ => EndpointTiming::After(dice.millis(0, 3000)),
    };
    let node = NodeBehaviour {
        create: dice.millis(0, 3000),
        endpoint,
        destroy: dice.millis(0, 2000),
        start: dice.millis(0, 1000),
        join: Joining::After(dice.millis(0, 4000)),
        complete: dice.millis(0, 500),
        cancel: dice.millis(0, 500),
        dies_after: None,
    };
    let listing_lag = dice.seconds(&[0, 0, 0, 4, 15]);
    let late_landing = dice.seconds(&[0, 0, 6, 25]);
    FakeBehaviour {
        node,
        visibility: Visibility { listing_lag, late_landing },
        direct_lag: if dice.percent(30) { listing_lag } else { Duration::ZERO },
        tokens: dice.pick(&[Tokens::Honoured, Tokens::Ignored]),
        read: dice.millis(0, 200),
        dead_shown_for: dice.seconds(&[3600, 3600, 20]),
        ..FakeBehaviour::default()
    }
}

fn draw_policy(dice: &mut Dice, behaviour: &FakeBehaviour) -> RetryPolicy {
    let loss = dice.seconds(&[12, 30]) + behaviour.visibility.listing_lag;
    RetryPolicy {
        initial_delay: dice.seconds(&[1, 1, 2]),
        cap: dice.seconds(&[4, 15, 60]),
        jitter_per_mille: dice.pick(&[0, 0, 500]),
        operation_timeout: dice.seconds(&[8, 15, 30]),
        endpoint_probe_interval: dice.seconds(&[1, 5]),
        extra: PolicyExtra {
            seed: u64::from(dice.below(1000)),
            join_within: dice.seconds(&[12, 30, 60]),
            // Something that vanishes is only ever noticed by its silence.
            loss_timeout: Some(loss),
            stable_after: dice.seconds(&[0, 5]),
            observe_every: dice.seconds(&[5, 10]),
            tick_every: dice.pick(&[Duration::from_secs(10), NO_TICK]),
            create_share: dice.pick(&[64, 64, 64, 1]),
            cleanup_share: dice.pick(&[64, 64, 64, 1]),
            ..PolicyExtra::default()
        },
    }
}

struct Draw {
    dice: Dice,
    /// Slots that some shape may declare.
    slots: Vec<LogicalNodeId>,
    /// Slots of the first shape, which most faults should hit.
    declared: Vec<LogicalNodeId>,
    versions: u32,
    steps: u32,
    disturbances: Vec<Disturbance>,
}

impl Draw {
    fn node(&mut self) -> LogicalNodeId {
        let from =
            if self.declared.is_empty() || self.dice.percent(10) { &self.slots } else { &self.declared };
        self.dice.pick(from)
    }

    fn call_fault(&mut self, no_lag: bool) {
        let call = self.dice.pick(&CALLS);
        let fault = loop {
            let fault = self.fault(no_lag);
            if fault.suits(call) {
                break fault;
            }
        };
        let node = (call != CallKind::List).then(|| self.node());
        let nth = u64::from(self.dice.below(if call == CallKind::List { 6 } else { 3 }));
        self.disturbances.push(Disturbance::Call { call, node, nth, fault });
    }

    fn fault(&mut self, no_lag: bool) -> Fault {
        let dice = &mut self.dice;
        let silence = dice.pick(&[Silence::Hangs, Silence::Ambiguous]);
        match dice.below(28) {
            0 | 1 => Fault::AnswerLost(silence),
            2 | 3 => Fault::NotActed(silence),
            4 | 5 => Fault::LandsLate { after: dice.millis(0, 25_000), silence },
            // A duplicate that no destroy can see yet is left behind by any driver: that is what a sweep is for.
            6 if no_lag => Fault::MadeTwice,
            6 | 7 => Fault::Rejected(dice.pick(&[
                RejectReason::Validation,
                RejectReason::Quota,
                RejectReason::Authorisation,
                RejectReason::Capacity,
            ])),
            8 => Fault::Throttled { retry_after: None },
            9 => Fault::Throttled { retry_after: Some(dice.seconds(&[1, 5, 90])) },
            10 => Fault::Unavailable,
            11 => Fault::Gone,
            12 => Fault::Panics,
            13 => Fault::Slow(dice.pick(&[5, 100])),
            14 => Fault::WithoutId,
            15 | 16 => Fault::Unknown,
            17 => Fault::Stale { by: dice.millis(0, 20_000) },
            18 => Fault::Incomplete,
            19 => Fault::Empty,
            20 => Fault::Hidden(dice.millis(0, 15_000)),
            21 => Fault::Dies(dice.millis(0, 15_000)),
            22 => Fault::Vanishes(dice.millis(0, 15_000)),
            23 => Fault::Moves(dice.millis(0, 15_000)),
            24 => Fault::NoEndpoint,
            25 => Fault::Exits { after: dice.millis(0, 3000), status: dice.pick(&[0, 1]) },
            26 => dice.pick(&[Fault::NeverJoins, Fault::WrongNonce]),
            _ => dice.pick(&[Fault::Repeats, Fault::Outdated]),
        }
    }

    fn delivery(&mut self, policy: &RetryPolicy) {
        let node = self.dice.percent(85).then(|| self.node());
        let nth = u64::from(self.dice.below(10));
        let timeout = u32::try_from(policy.operation_timeout.as_millis()).unwrap_or(u32::MAX);
        let fate = match self.dice.below(4) {
            0 => Fate::Lost,
            1 => Fate::Repeated { times: self.dice.between(1, 3), every: self.dice.millis(0, 12_000) },
            2 => Fate::Delayed(self.dice.millis(0, 3000)),
            _ => Fate::Delayed(self.dice.millis(timeout, 4 * timeout)),
        };
        self.disturbances.push(Disturbance::Delivery { node, nth, fate });
    }

    fn clock(&mut self) -> Clock {
        let by = self.dice.seconds(&[1, 30, 3600, 365 * 86_400]);
        match self.dice.below(4) {
            0 => Clock::Back(by),
            1 => Clock::Forward(by),
            _ => Clock::True,
        }
    }

    fn crash(&mut self, guarded: bool) {
        let commit = u64::from(self.dice.below(16));
        let point = self.dice.pick(&[
            CrashPoint::BeforeCommit,
            CrashPoint::AfterCommit,
            CrashPoint::BeforeDispatch,
            CrashPoint::AfterDispatch,
            CrashPoint::UnderWay,
            CrashPoint::AfterAnswer,
        ]);
        let clock = self.clock();
        let disk = match self.dice.below(20) {
            // Only a driver that asks first can be given a state that is not its newest.
            0 | 1 if guarded => Disk::Older { writes: self.dice.between(1, 8) as usize },
            2 if guarded => Disk::Deleted,
            3 => Disk::Unreadable,
            _ => Disk::Newest,
        };
        self.disturbances.push(Disturbance::Crash { commit, point, clock, disk });
    }

    fn failing_write(&mut self) {
        let commit = u64::from(self.dice.below(12));
        let how = self.dice.pick(&[
            WriteFault::NoSpace,
            WriteFault::SyncFails { kept: false },
            WriteFault::SyncFails { kept: true },
        ]);
        self.disturbances.push(Disturbance::CommitFails { commit, how });
    }

    fn edit(&mut self, may_be_unserved: bool) {
        let count = if self.dice.percent(25) { 2 } else { 1 };
        let mut shapes: Vec<_> =
            (0..count).map(|_| draw_shape(&mut self.dice, &mut self.versions, false)).collect();
        for shape in &mut shapes {
            for group in &mut shape.0 {
                group.unserved = may_be_unserved && self.dice.percent(30);
                if self.dice.percent(30) {
                    // Back to a spec that was in force before.
                    group.version = self.dice.between(1, self.versions);
                }
            }
        }
        self.at(Act::Edit(shapes));
    }

    fn act(&mut self) {
        let node = self.node();
        let act = match self.dice.below(16) {
            0..=3 => {
                let incident = match self.dice.below(4) {
                    0 => Incident::Vanishes,
                    1 => Incident::Moves,
                    2 => Incident::Exits(self.dice.pick(&[0, 1])),
                    _ => Incident::Dies("reclaimed".to_owned()),
                };
                Act::Befall(node, incident)
            }
            4 => Act::Suspend(self.dice.seconds(&[5, 60, 3600, 10 * 365 * 86_400])),
            5 => Act::ClockBehind {
                by: self.dice.seconds(&[1, 60, 3600, 365 * 86_400]),
                inputs: self.dice.between(1, 12),
            },
            6 | 7 => Act::Die(self.clock()),
            8 => Act::Hold(Some(node)),
            9 => Act::Hold(None),
            10 => Act::Release(Some(node)),
            11 => Act::Release(None),
            12 | 13 => Act::Replace(node),
            14 => Act::Tick,
            _ => Act::Alien(node),
        };
        self.at(act);
    }

    fn at(&mut self, act: Act) {
        let step = self.dice.below(self.steps);
        self.disturbances.push(Disturbance::Act { step, act });
    }
}
