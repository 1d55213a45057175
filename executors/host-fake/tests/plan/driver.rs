//! The smallest driver that keeps the order of things: read, decide, record, renew, send, fold. One operation out at
//! a time, every call ended by its deadline, and nothing kept in memory that a crash may not take.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::Timer;
use executor_api::host::{
    BondMode, BondName, ClusterLock, Evidence, HostError, HostErrorKind, HostExecutor, HostFailure, HostName,
    HostProbe, LeaseHolder, LeaseRecord, LeaseWatch, LinkProbeSpec, LockError, ModuleVersion, PlanHold,
    PlanUid, ResourceName, Source, StorageProbe, Takeover, VirtualMachines,
};
use executor_host_fake::{HostWorld, Scenario, Seat};
use reconciler_core::maintenance::check::violations;
use reconciler_core::maintenance::{
    Act, Applied, BondFlipPlan, Effect, EffectDone, IoPolicy, LockAction, Observed, Pace, Person, Phase,
    PlanObservation, PlanState, Recovery, advance, apply, fold,
};

use crate::clock::{VirtualTimer, run};

/// A plan on its way.
pub(crate) struct Drive {
    pub(crate) timer: Arc<VirtualTimer>,
    pub(crate) world: HostWorld,
    pub(crate) plan: BondFlipPlan,
    /// What a crash leaves.
    pub(crate) state: PlanState,
    pub(crate) story: Vec<String>,
    /// What the plan's own record must never be, and was.
    pub(crate) violations: BTreeSet<&'static str>,
    seat: Seat,
    me: LeaseHolder,
    watch: LeaseWatch,
    starts: u32,
}

pub(crate) fn flip_plan(io: IoPolicy) -> BondFlipPlan {
    let host = |name| HostName::new(name).unwrap();
    let resource = |name| ResourceName::new(name).unwrap();
    BondFlipPlan {
        uid: PlanUid::new("plan-1").unwrap(),
        nodes: [host("w1"), host("w2")],
        bond: BondName::new("bond0").unwrap(),
        from: BondMode::ActiveBackup,
        to: BondMode::BalanceRr,
        resources: BTreeSet::from([resource("r1"), resource("r2")]),
        io,
        approved: true,
        module_floor: ModuleVersion { major: 9, minor: 2, patch: 19 },
        probe: LinkProbeSpec { packets: 20, frame_bytes: 1514 },
        pace: Pace::default(),
    }
}

impl Drive {
    pub(crate) fn new(scenario: &Scenario, plan: BondFlipPlan) -> Self {
        let timer = VirtualTimer::new();
        let world = HostWorld::of(Arc::<VirtualTimer>::clone(&timer), scenario).unwrap();
        let approval = Some(Person { who: "tester".to_owned(), at: timer.now() });
        let state = PlanState::new(plan.uid.clone(), approval, timer.now());
        let seat = world.seat("op-1");
        let me = LeaseHolder::new("op-1").unwrap();
        Self {
            timer,
            world,
            plan,
            state,
            story: Vec::new(),
            violations: BTreeSet::new(),
            seat,
            me,
            watch: LeaseWatch::new(),
            starts: 1,
        }
    }

    /// The process is gone, and another takes over what was stored.
    pub(crate) fn crash(&mut self) {
        self.starts += 1;
        self.me = LeaseHolder::new(format!("op-{}", self.starts)).unwrap();
        self.seat = self.world.seat(self.me.as_str());
        self.watch = LeaseWatch::new();
        self.story.push("crash".to_owned());
        if let Some(pending) = &self.state.pending {
            let id = pending.effect.id();
            self.fold(PlanObservation::Lost { id });
        }
    }

    /// Drives until the plan is over or frozen, or that much time has passed. Calls `before` ahead of every pass.
    pub(crate) fn drive(&mut self, limit: Duration, mut before: impl FnMut(&mut Self)) {
        let end = self.timer.now() + limit;
        while self.timer.now() < end && !self.is_settled() {
            before(self);
            self.pass();
        }
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.state.is_over() || self.state.recovery == Recovery::Escalated
    }

    /// One pass. Waits a little where there is nothing to do.
    pub(crate) fn pass(&mut self) {
        let observed = self.observe();
        let now = self.timer.now();
        let step = advance(&self.plan, &self.state, &observed, now);
        let line = step.to_string();
        if self.story.last() != Some(&line) {
            self.story.push(line);
        }
        let waits = matches!(step.act, Act::Wait { .. });
        match apply(&self.plan, &mut self.state, &step, now) {
            Ok(Applied::Nothing) if waits => self.sleep(Duration::from_millis(500)),
            Ok(Applied::Nothing | Applied::Changed) => {}
            Ok(Applied::Send { effect, deadline }) => self.send(&effect, deadline, &observed),
            Err(refused) => panic!("{refused} at {step}"),
        }
        self.violations.extend(violations(&self.plan, &self.state));
    }

    pub(crate) fn sleep(&self, time: Duration) {
        let until = self.timer.now() + time;
        run(&self.timer, self.timer.sleep_until(until));
    }

    fn fold(&mut self, fact: PlanObservation) {
        let now = self.timer.now();
        fold(&self.plan, &mut self.state, fact, now);
    }

    fn send(&mut self, effect: &Effect, deadline: SystemTime, observed: &Observed) {
        let id = effect.id();
        if !matches!(effect, Effect::Lock { .. }) {
            let lease = observed.lock.as_ref().and_then(Evidence::value).and_then(|lock| lock.lease.clone());
            let renewed = match lease.filter(|lease| lease.holder == self.me) {
                Some(lease) => run(&self.timer, self.seat.renew(&lease)).map_err(|error| error.to_string()),
                None => Err("it is not ours".to_owned()),
            };
            if let Err(reason) = renewed {
                self.story.push(format!("  not renewed: {reason}"));
                self.fold(PlanObservation::RenewalFailed { id, reason });
                return;
            }
        }
        let outcome = match effect {
            Effect::Host(operation) => run(&self.timer, HostExecutor::apply(&self.seat, operation, deadline))
                .map(EffectDone::Host)
                .map_err(told),
            Effect::Vm(operation) => {
                let done = run(&self.timer, VirtualMachines::apply(&self.seat, operation, deadline));
                done.map(EffectDone::Host).map_err(told)
            }
            Effect::Settle { operation, fence, .. } => self.settle(operation, *fence, deadline),
            Effect::Lock { action, .. } => self.lock(action, observed),
        };
        if let Err(failure) = &outcome {
            self.story.push(format!("  {:?}: {}", failure.kind, failure.message));
        }
        self.fold(PlanObservation::Ended { id, outcome });
    }

    fn settle(
        &self,
        operation: &Effect,
        fence: executor_api::host::FenceValue,
        deadline: SystemTime,
    ) -> Result<EffectDone, HostFailure> {
        let settled = match operation {
            Effect::Host(operation) => {
                run(&self.timer, HostExecutor::settle(&self.seat, operation, fence, deadline))
            }
            Effect::Vm(operation) => {
                run(&self.timer, VirtualMachines::settle(&self.seat, operation, fence, deadline))
            }
            Effect::Settle { .. } | Effect::Lock { .. } => panic!("only operations are settled"),
        };
        settled.map(EffectDone::Settled).map_err(told)
    }

    fn lock(&self, action: &LockAction, observed: &Observed) -> Result<EffectDone, HostFailure> {
        let lease = || -> Result<LeaseRecord, HostFailure> {
            let records = observed.lock.as_ref().and_then(Evidence::value);
            records.and_then(|records| records.lease.clone()).ok_or_else(|| HostFailure {
                kind: HostErrorKind::Refused,
                message: "there is no lease".to_owned(),
            })
        };
        let seat = &self.seat;
        let written = match action {
            LockAction::AcquireLease { seen } => {
                let ttl = self.plan.pace.lease_ttl;
                let taken = run(&self.timer, seat.acquire(&self.me, ttl, seen.as_ref()));
                return taken.map(EffectDone::LeaseAcquired).map_err(|error| refused(&error));
            }
            LockAction::PlaceHold => {
                let hold = PlanHold { plan: self.plan.uid.clone(), since: self.timer.now() };
                run(&self.timer, seat.place_hold(&lease()?, &hold))
            }
            LockAction::LiftHold => run(&self.timer, seat.lift_hold(&lease()?, &self.plan.uid)),
            LockAction::ReleaseLease => run(&self.timer, seat.release(&lease()?)),
        };
        written.map(|()| EffectDone::LockWritten).map_err(|error| refused(&error))
    }

    fn observe(&mut self) -> Observed {
        let mut observed = Observed::nothing(self.me.clone(), Takeover::Free);
        let at = self.timer.now();
        let lock = run(&self.timer, ClusterLock::read(&self.seat));
        let elapsed = at.duration_since(self.world.start()).unwrap();
        if let Ok(records) = &lock {
            observed.takeover = self.watch.look(records.lease.as_ref(), elapsed);
        }
        observed.lock = Some(evidence(Source::Cluster, at, lock.map_err(|error| error.to_string())));
        for node in self.plan.nodes.clone() {
            let source = || Source::Host(node.clone());
            let at = self.timer.now();
            let host = run(&self.timer, self.seat.host(&node));
            observed.hosts.insert(node.clone(), evidence(source(), at, host.map_err(words)));
            let at = self.timer.now();
            let bond = run(&self.timer, self.seat.bond(&node, &self.plan.bond));
            observed.bonds.insert(node.clone(), evidence(source(), at, bond.map_err(words)));
            let at = self.timer.now();
            let since = self.state.created_at;
            let storage = run(&self.timer, self.seat.storage(&node, &self.plan.resources, since));
            observed.storage.insert(node.clone(), evidence(source(), at, storage.map_err(words)));
            let at = self.timer.now();
            let satellite = run(&self.timer, self.seat.satellite(&node));
            observed.satellites.insert(node.clone(), evidence(source(), at, satellite.map_err(words)));
        }
        let at = self.timer.now();
        let vms = run(&self.timer, self.seat.picture(&self.plan.resources));
        observed.vms = Some(evidence(Source::Cluster, at, vms.map_err(words)));
        observed
    }

    /// What must hold at the end of any run.
    pub(crate) fn check(&self) {
        let breaches = self.world.breaches();
        assert!(breaches.is_empty(), "{breaches:#?}\n{}", self.told());
        assert!(self.violations.is_empty(), "{:?}\n{}", self.violations, self.told());
        if self.state.phase == Phase::Complete {
            assert!(
                self.world.lock().hold.is_none() && self.world.unrestored().is_empty(),
                "{}",
                self.told()
            );
        }
    }

    /// The story and the world's log, for a person to read.
    pub(crate) fn told(&self) -> String {
        let start = self.world.start();
        let log = self.world.log().into_iter().map(|event| {
            let at = event.at.duration_since(start).unwrap_or_default();
            format!("+{:>8.2}s {}: {}", at.as_secs_f64(), event.place, event.what)
        });
        format!("{}\n--\n{}", self.story.join("\n"), log.collect::<Vec<_>>().join("\n"))
    }
}

fn evidence<T>(source: Source, at: SystemTime, read: Result<T, String>) -> Evidence<T> {
    match read {
        Ok(value) => Evidence::seen(source, at, value),
        Err(reason) => Evidence::unknown(source, at, reason),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "handed to map_err")]
fn words(error: HostError) -> String {
    error.to_string()
}

#[expect(clippy::needless_pass_by_value, reason = "handed to map_err")]
fn told(error: HostError) -> HostFailure {
    error.failure()
}

fn refused(error: &LockError) -> HostFailure {
    let kind = match error {
        LockError::Moved { .. } | LockError::OtherPlan { .. } => HostErrorKind::Refused,
        LockError::Unavailable { .. } => HostErrorKind::Unavailable,
        LockError::Ambiguous { .. } => HostErrorKind::Ambiguous,
    };
    HostFailure { kind, message: error.to_string() }
}
