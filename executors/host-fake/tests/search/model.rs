//! One state of a search: the world, the record that both operators write, the operators, and what is on its way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::Timer as _;
use executor_api::host::{
    BondMode, BondName, ClusterLock, Evidence, HostProbe, LeaseHolder, LeaseWatch, LinkProbeSpec,
    ModuleVersion, PlanUid, ResourceName, Source, StorageProbe, Takeover, VirtualMachines, VmName,
};
use executor_host_fake::{HostWorld, Letter, Pace as WorldPace, Seat, WorldSpec};
use reconciler_core::maintenance::check::violations;
use reconciler_core::maintenance::{
    BondFlipPlan, Effect, IoPolicy, Observed, Pace, Person, Phase, PlanState, Recovery,
};

use crate::clock::{StillTimer, run};
use crate::faults::w;
use crate::moves::Setting;
use crate::watch;

/// A recorded effect on its way out of its operator.
#[derive(Clone)]
pub(crate) struct Flight {
    pub(crate) effect: Effect,
    pub(crate) deadline: SystemTime,
    /// The write of the record that it belongs to.
    pub(crate) seq: u64,
}

/// One process that would drive the plan.
#[derive(Clone)]
pub(crate) struct Operator {
    pub(crate) letter: char,
    pub(crate) starts: u32,
    pub(crate) name: String,
    /// The write that it knows. Whoever is behind can store nothing, and therefore send nothing.
    pub(crate) seq: u64,
    pub(crate) watch: LeaseWatch,
    pub(crate) flight: Option<Flight>,
    /// It stands still right before its operation leaves, its lease just renewed.
    pub(crate) asleep: bool,
}

impl Operator {
    fn new(letter: char) -> Self {
        let mut operator = Self {
            letter,
            starts: 0,
            name: String::new(),
            seq: 1,
            watch: LeaseWatch::new(),
            flight: None,
            asleep: false,
        };
        operator.restart();
        operator
    }

    /// A process ends and another comes up, under a name that was never used before and with nothing in memory.
    pub(crate) fn restart(&mut self) {
        self.starts += 1;
        self.name = format!("op-{}-{}", self.letter, self.starts);
        self.watch = LeaseWatch::new();
        self.flight = None;
        self.asleep = false;
    }
}

pub(crate) struct Model {
    pub(crate) timer: Arc<StillTimer>,
    pub(crate) world: HostWorld,
    pub(crate) plan: Arc<BondFlipPlan>,
    pub(crate) state: PlanState,
    /// Writes of the record so far.
    pub(crate) seq: u64,
    pub(crate) operators: [Operator; 2],
    /// What was sent by processes that are gone.
    pub(crate) letters: Vec<Letter>,
    /// Faults that may yet come.
    pub(crate) faults: u32,
    /// How many of them may be the world's.
    pub(crate) incidents: u32,
    pub(crate) replies: u32,
}

const START: Duration = Duration::from_secs(1_000_000);

impl Model {
    pub(crate) fn new(setting: &Setting) -> Self {
        let now = SystemTime::UNIX_EPOCH + START;
        let timer = StillTimer::at(now);
        let world = HostWorld::new(Arc::<StillTimer>::clone(&timer), &spec(setting)).unwrap();
        let plan = plan(setting);
        let approval = Some(Person { who: "tester".to_owned(), at: now });
        let state = PlanState::new(plan.uid.clone(), approval, now);
        let model = Self {
            timer,
            world,
            plan: Arc::new(plan),
            state,
            seq: 1,
            operators: [Operator::new('a'), Operator::new('b')],
            letters: Vec::new(),
            faults: setting.faults,
            incidents: setting.incidents.min(setting.faults),
            replies: setting.replies,
        };
        model.write();
        model
    }

    /// What may yet go wrong: in all, and by the world.
    pub(crate) fn budget(&self) -> (u32, u32) {
        (self.faults, self.incidents)
    }

    pub(crate) fn fork(&self) -> Self {
        let timer = StillTimer::at(self.timer.now());
        let world = self.world.fork(Arc::<StillTimer>::clone(&timer));
        Self {
            timer,
            world,
            plan: Arc::clone(&self.plan),
            state: self.state.clone(),
            seq: self.seq,
            operators: self.operators.clone(),
            letters: self.letters.clone(),
            faults: self.faults,
            incidents: self.incidents,
            replies: self.replies,
        }
    }

    pub(crate) fn now(&self) -> SystemTime {
        self.timer.now()
    }

    pub(crate) fn seat(&self, which: usize) -> Seat {
        self.world.seat(&self.operators[which].name)
    }

    pub(crate) fn me(&self, which: usize) -> LeaseHolder {
        LeaseHolder::new(self.operators[which].name.clone()).unwrap()
    }

    /// Every machine writes, wherever it may.
    pub(crate) fn write(&self) {
        for number in [1, 2] {
            let _acknowledged = self.world.write(&VmName::new(format!("v{number}")).unwrap());
        }
    }

    /// How an operator judges the lease by its own watch, and from now on remembers it.
    pub(crate) fn watch(&mut self, which: usize) -> Takeover {
        let at = self.now().duration_since(SystemTime::UNIX_EPOCH + START).unwrap();
        let lease = self.world.lock().lease;
        self.operators[which].watch.look(lease.as_ref(), at)
    }

    /// Everything that an operator reads in one pass.
    pub(crate) fn observe(&mut self, which: usize) -> Observed {
        let takeover = self.watch(which);
        let (seat, now, timer) = (self.seat(which), self.now(), Arc::clone(&self.timer));
        let mut observed = Observed::nothing(self.me(which), takeover);
        observed.lock = Some(evidence(Source::Cluster, now, run(&timer, ClusterLock::read(&seat))));
        for node in &self.plan.nodes {
            let source = || Source::Host(node.clone());
            let host = evidence(source(), now, run(&timer, seat.host(node)));
            observed.hosts.insert(node.clone(), host);
            let bond = evidence(source(), now, run(&timer, seat.bond(node, &self.plan.bond)));
            observed.bonds.insert(node.clone(), bond);
            let read = run(&timer, seat.storage(node, &self.plan.resources, self.state.created_at));
            observed.storage.insert(node.clone(), evidence(source(), now, read));
            let satellite = evidence(source(), now, run(&timer, seat.satellite(node)));
            observed.satellites.insert(node.clone(), satellite);
        }
        let picture = run(&timer, seat.picture(&self.plan.resources));
        observed.vms = Some(evidence(Source::Cluster, now, picture));
        observed
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.state.is_over() || (self.state.recovery == Recovery::Escalated && !self.state.handed_over)
    }

    /// What must hold in every state.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut broken: Vec<_> =
            violations(&self.plan, &self.state).into_iter().map(watch::violation).collect();
        broken.extend(self.world.breaches().iter().map(watch::breach));
        if !self.world.lost_writes().is_empty() {
            broken.push("M0: no copy holds what was acknowledged".to_owned());
        }
        if self.state.recovery == Recovery::Escalated
            && !self.state.handed_over
            && self.state.pending.is_some()
        {
            broken.push("R6: an operation is out while the plan is frozen".to_owned());
        }
        let back = self.state.phase == Phase::Complete || self.state.recovery == Recovery::RevertedSafe;
        if back && self.world.lock().hold.is_some_and(|hold| hold.plan == self.plan.uid) {
            broken.push("M4: over, and the cluster is held".to_owned());
        }
        if broken.is_empty() { Ok(()) } else { Err(broken.join("; ")) }
    }
}

fn evidence<T, E: ToString>(source: Source, at: SystemTime, read: Result<T, E>) -> Evidence<T> {
    match read {
        Ok(value) => Evidence::seen(source, at, value),
        Err(reason) => Evidence::unknown(source, at, reason.to_string()),
    }
}

/// Two hosts, a machine on each, and everything that has no order of its own happens at once.
fn spec(setting: &Setting) -> WorldSpec {
    let second = Duration::from_secs(1);
    let pace = WorldPace {
        migration_phase: second,
        evacuation: 5 * second,
        vm_start: second,
        boot: 3 * second,
        agent_restart: 2 * second,
        ..WorldPace::instant()
    };
    let mut spec = WorldSpec::pair().pace(pace);
    spec.resources.truncate(setting.resources);
    spec.vms.truncate(setting.resources);
    for resource in &mut spec.resources {
        resource.blocks = vec![setting.blocks];
    }
    spec
}

fn plan(setting: &Setting) -> BondFlipPlan {
    let second = Duration::from_secs(1);
    let resource = |number: usize| ResourceName::new(format!("r{number}")).unwrap();
    let io = if setting.quiesce {
        IoPolicy::Quiesce { suspend_for: Some(setting.suspend_for) }
    } else {
        IoPolicy::Continue
    };
    BondFlipPlan {
        uid: PlanUid::new("plan-1").unwrap(),
        nodes: [w(1), w(2)],
        bond: BondName::new("bond0").unwrap(),
        from: BondMode::ActiveBackup,
        to: BondMode::BalanceRr,
        resources: (1..=setting.resources).map(resource).collect::<BTreeSet<_>>(),
        io,
        approved: true,
        module_floor: ModuleVersion { major: 9, minor: 2, patch: 19 },
        probe: LinkProbeSpec { packets: 20, frame_bytes: 1514 },
        pace: Pace {
            evidence_max_age: 10 * second,
            gate_max_age: 20 * second,
            dwell: 4 * second,
            settle: 4 * second,
            connect_within: 4 * second,
            retry_cap: setting.retry_cap,
            connect_attempts: 2,
            operation_timeout: 10 * second,
            lease_ttl: 6 * second,
        },
    }
}
