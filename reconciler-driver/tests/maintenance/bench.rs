//! A plan, a world and a store that outlives every start of the driver. Time is virtual.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::Timer as _;
use executor_api::host::{
    BondMode, BondName, HostName, InterfaceName, LeaseHolder, LinkProbeSpec, ModuleVersion, PlanUid,
    ResourceName, VmName,
};
use executor_host_fake::{HostWorld, Incident, Scenario, WorldSpec};
use reconciler_core::maintenance::check::violations;
use reconciler_core::maintenance::{BondFlipPlan, IoPolicy, Pace, Person, Phase, PlanState, Recovery};
use reconciler_driver::VirtualTimer;
use reconciler_driver::maintenance::{
    Hands, MaintenanceDriver, MaintenanceError, MemoryPlanStore, Pass, PlanRules, PlanStore, Start,
};

pub(crate) const HOUR: Duration = Duration::from_hours(1);

pub(crate) struct Bench {
    pub(crate) timer: VirtualTimer,
    pub(crate) world: HostWorld,
    pub(crate) store: MemoryPlanStore,
    pub(crate) plan: BondFlipPlan,
    pub(crate) starts: u32,
    /// Machines whose setting somebody else changes: what is theirs is not the plan's to put back.
    others: BTreeSet<VmName>,
    /// The world may lose data by itself.
    careless: bool,
}

impl Bench {
    pub(crate) fn new(scenario: &Scenario, io: IoPolicy) -> Self {
        let timer = VirtualTimer::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
        let world = HostWorld::of(Arc::new(timer.clone()), scenario).unwrap();
        let changed = scenario.incidents.iter().filter_map(|incident| match &incident.what {
            Incident::Redeclared { vm, .. } | Incident::EffectiveChanged { vm, .. } => Some(vm.clone()),
            _ => None,
        });
        let others = changed.collect();
        let careless = scenario.incidents.iter().any(|incident| loses(&incident.what));
        Self { timer, world, store: MemoryPlanStore::new(), plan: flip_plan(io), starts: 0, others, careless }
    }

    /// A start of the process: files the plan the first time, takes up what is stored afterwards.
    pub(crate) fn start(&mut self) -> MaintenanceDriver {
        let store = Box::new(self.store.clone());
        self.start_on(store)
    }

    /// The same, with a store of the caller's.
    pub(crate) fn start_on(&mut self, store: Box<dyn PlanStore>) -> MaintenanceDriver {
        let start = self.starting(store);
        self.begin(start).unwrap()
    }

    pub(crate) fn begin(&self, start: Start) -> Result<MaintenanceDriver, MaintenanceError> {
        if self.store.record().is_some() {
            return MaintenanceDriver::resume(start);
        }
        let approval = Person { who: "tester".to_owned(), at: self.timer.now() };
        MaintenanceDriver::file(start, self.plan.clone(), Some(approval))
    }

    pub(crate) fn starting(&mut self, store: Box<dyn PlanStore>) -> Start {
        self.starts += 1;
        let name = format!("op-{}", self.starts);
        let seat = Arc::new(self.world.seat(&name));
        let hands = Hands::of(&seat, Arc::new(self.timer.clone()));
        Start { store, hands, me: LeaseHolder::new(name).unwrap(), rules: PlanRules::default() }
    }

    /// Drives until the plan is over or frozen, or for that long. `each` is called after every pass.
    pub(crate) fn drive(
        &self,
        driver: &mut MaintenanceDriver,
        limit: Duration,
        mut each: impl FnMut(&MaintenanceDriver, &Pass),
    ) {
        let end = self.timer.now() + limit;
        let timer = self.timer.clone();
        let passes = driver.drive(|driver, pass| {
            assert_eq!(violations(driver.plan(), driver.state()), Vec::<&str>::new(), "{}", self.told());
            each(driver, pass);
            timer.now() >= end
        });
        self.timer.run(passes).unwrap().unwrap_or_else(|error| panic!("{error:?}"));
    }

    /// Drives until the process ends: after that long, or when it is told to.
    pub(crate) fn drive_while(
        &self,
        driver: &mut MaintenanceDriver,
        limit: Duration,
        mut goes_on: impl FnMut() -> bool,
    ) {
        let end = self.timer.now() + limit;
        let timer = self.timer.clone();
        let passes = driver.drive(|_, _| timer.now() >= end || !goes_on());
        self.timer.run(passes).unwrap().unwrap();
    }

    /// From the first start to the end.
    pub(crate) fn finish(&mut self) -> PlanState {
        let mut driver = self.start();
        self.drive(&mut driver, HOUR, |_, _| {});
        self.check(driver.state());
        driver.state().clone()
    }

    /// What must hold at the end of any run.
    pub(crate) fn check(&self, state: &PlanState) {
        let breaches = self.world.breaches();
        assert!(breaches.is_empty(), "{breaches:#?}\n{}", self.told());
        let mut lost = self.world.lost_writes();
        if self.careless {
            let taken = self.world.taken_writes();
            lost.retain(|write| !taken.contains(write));
        }
        assert!(lost.is_empty(), "{lost:?}\n{}", self.told());
        let back = state.phase == Phase::Complete || state.recovery == Recovery::RevertedSafe;
        if back {
            assert!(self.world.lock().hold.is_none(), "{}", self.told());
            let mut unrestored = self.world.unrestored();
            unrestored.retain(|vm| !self.others.contains(vm));
            assert_eq!(unrestored, [], "{}", self.told());
        }
    }

    /// An hour in which nothing may happen: no operation, no write to the lock, no other phase.
    pub(crate) fn is_frozen(&mut self, driver: &mut MaintenanceDriver) {
        assert_eq!(driver.state().recovery, Recovery::Escalated, "{}", self.told());
        let before = (self.world.deeds().len(), self.world.lock(), driver.state().phase);
        for _ in 0..60 {
            self.pass(driver);
            self.sleep(Duration::from_mins(1));
        }
        let after = (self.world.deeds().len(), self.world.lock(), driver.state().phase);
        assert_eq!(before, after, "{}", self.told());
        assert!(after.1.hold.is_some(), "the hold stays");
        self.check(driver.state());
    }

    pub(crate) fn pass(&self, driver: &mut MaintenanceDriver) -> Pass {
        self.timer.run(driver.pass()).unwrap().unwrap()
    }

    pub(crate) fn sleep(&self, time: Duration) {
        let until = self.timer.now() + time;
        self.timer.run(self.timer.sleep_until(until)).unwrap();
    }

    pub(crate) fn modes(&self) -> [BondMode; 2] {
        [1, 2].map(|number| self.world.bond(&w(number)).unwrap().mode)
    }

    /// How often something was really done.
    pub(crate) fn deeds(&self, what: &str) -> usize {
        self.world.deeds().iter().filter(|deed| deed.what.contains(what)).count()
    }

    /// The plan's timeline and the world's, for a person to read.
    pub(crate) fn told(&self) -> String {
        let start = self.world.start();
        let since = |at: SystemTime| at.duration_since(start).unwrap_or_default().as_secs_f64();
        let plan = self.store.log().into_iter();
        let plan: Vec<_> =
            plan.map(|line| format!("+{:>8.2}s {}: {}", since(line.at), line.phase, line.what)).collect();
        let world = self.world.log().into_iter();
        let world: Vec<_> = world
            .map(|event| format!("+{:>8.2}s {}: {}", since(event.at), event.place, event.what))
            .collect();
        format!("{}\n--\n{}", plan.join("\n"), world.join("\n"))
    }
}

/// Whether data may be lost through this incident alone: a copy is spoilt, or says what is not so, or two that have
/// diverged are merged unasked.
fn loses(incident: &Incident) -> bool {
    matches!(
        incident,
        Incident::Rots { .. }
            | Incident::BitsDropped { .. }
            | Incident::DayZero { .. }
            | Incident::JustCreated { .. }
            | Incident::DiskFails { .. }
            | Incident::NetChanged { .. }
            | Incident::Module { .. }
    )
}

pub(crate) fn flip_plan(io: IoPolicy) -> BondFlipPlan {
    BondFlipPlan {
        uid: PlanUid::new("plan-1").unwrap(),
        nodes: [w(1), w(2)],
        bond: BondName::new("bond0").unwrap(),
        from: BondMode::ActiveBackup,
        to: BondMode::BalanceRr,
        resources: BTreeSet::from([r1(), ResourceName::new("r2").unwrap()]),
        io,
        approved: true,
        module_floor: ModuleVersion { major: 9, minor: 2, patch: 19 },
        probe: LinkProbeSpec { packets: 20, frame_bytes: 1514 },
        pace: Pace::default(),
    }
}

pub(crate) fn w(number: u8) -> HostName {
    HostName::new(format!("w{number}")).unwrap()
}

pub(crate) fn r1() -> ResourceName {
    ResourceName::new("r1").unwrap()
}

pub(crate) fn v(number: u8) -> VmName {
    VmName::new(format!("v{number}")).unwrap()
}

pub(crate) fn member(name: &str) -> InterfaceName {
    InterfaceName::new(name).unwrap()
}

pub(crate) fn quiesce() -> IoPolicy {
    IoPolicy::Quiesce { suspend_for: Some(Duration::from_mins(10)) }
}

/// Machines on both hosts write all the time.
pub(crate) fn busy() -> Scenario {
    Scenario::calm(WorldSpec::pair().writing_every(Duration::from_millis(200)))
}
