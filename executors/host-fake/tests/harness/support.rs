//! An operator who does what it is told, one call after the other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::Timer;
use executor_api::host::{
    BondMode, BondName, BondOriginal, BondReading, ClusterLock, FenceValue, Fingerprint, GateToken,
    HostAction, HostError, HostExecutor, HostName, HostOperation, HostOperationId, HostProbe, HostReport,
    InterfaceName, LeaseHolder, LeaseRecord, LinkProbe, LinkProbeSpec, MemberState, MigrationName,
    PeerVolumeReading, PlanHold, PlanUid, ResourceName, ResourceReading, Settled, StorageProbe,
    StorageReading, VirtualMachines, VmAction, VmName, VmOperation, VmPicture, VmReading,
};
use executor_host_fake::{BreachKind, HostWorld, Incident, Pace, Rule, Scenario, Seat, WorldSpec};

pub(crate) use crate::clock::{VirtualTimer, run};

/// A world, its clock, and the operator under test.
pub(crate) struct Bench {
    pub(crate) timer: Arc<VirtualTimer>,
    pub(crate) world: HostWorld,
    pub(crate) operator: Operator,
}

/// An operator with its lease, its plan and its count of operations.
pub(crate) struct Operator {
    timer: Arc<VirtualTimer>,
    pub(crate) seat: Seat,
    pub(crate) plan: PlanUid,
    pub(crate) fence: FenceValue,
    pub(crate) lease: Option<LeaseRecord>,
    next: u64,
}

impl Bench {
    pub(crate) fn new(spec: &WorldSpec) -> Self {
        Self::of(&Scenario::calm(spec.clone()))
    }

    pub(crate) fn of(scenario: &Scenario) -> Self {
        let timer = VirtualTimer::new();
        let world = HostWorld::of(Arc::<VirtualTimer>::clone(&timer), scenario).unwrap();
        let operator = Operator {
            timer: Arc::clone(&timer),
            seat: world.seat("op-a"),
            plan: PlanUid::new("plan-1").unwrap(),
            fence: FenceValue(0),
            lease: None,
            next: 0,
        };
        Self { timer, world, operator }
    }

    /// The usual pair, with the lock taken.
    pub(crate) fn pair() -> Self {
        let mut bench = Self::new(&WorldSpec::pair());
        bench.operator.take_lock();
        bench
    }

    /// A second operator with a plan of its own name.
    pub(crate) fn other(&self, seat: &str) -> Operator {
        Operator {
            timer: Arc::clone(&self.timer),
            seat: self.world.seat(seat),
            plan: self.operator.plan.clone(),
            fence: FenceValue(0),
            lease: None,
            next: 100,
        }
    }

    pub(crate) fn befall(&self, incident: &Incident) {
        let seen = self.world.incidents().values().sum::<u64>();
        self.world.befall(incident);
        assert_eq!(self.world.incidents().values().sum::<u64>(), seen + 1, "{incident} came to nothing");
    }

    pub(crate) fn script(&self, rule: Rule) {
        self.world.script(rule).unwrap();
    }

    /// Lets so much time pass.
    pub(crate) fn pass(&self, time: Duration) {
        let until = self.timer.now() + time;
        run(&self.timer, self.timer.sleep_until(until));
        // Somebody looks, and what was due has happened.
        self.world.now();
    }

    pub(crate) fn breaches(&self) -> Vec<BreachKind> {
        self.world.breaches().iter().map(|breach| breach.kind).collect()
    }

    pub(crate) fn all_breaches(&self) -> Vec<BreachKind> {
        self.world.all_breaches().iter().map(|breach| breach.kind).collect()
    }

    pub(crate) fn fired(&self, name: &str) -> u64 {
        self.world.fired().get(name).copied().unwrap_or(0)
    }
}

impl Operator {
    pub(crate) fn take_lock(&mut self) {
        let holder = LeaseHolder::new(format!("{}-1", self.seat.name())).unwrap();
        let seen = self.wait(ClusterLock::read(&self.seat)).unwrap().lease.map(|lease| lease.version);
        let lease = self.wait(self.seat.acquire(&holder, secs(60), seen.as_ref())).unwrap();
        self.fence = lease.fence;
        let hold = PlanHold { plan: self.plan.clone(), since: self.timer.now() };
        self.wait(self.seat.place_hold(&lease, &hold)).unwrap();
        self.lease = Some(lease);
    }

    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        run(&self.timer, future)
    }

    pub(crate) fn deadline(&self) -> SystemTime {
        self.timer.now() + secs(60)
    }

    /// An operation with the next id.
    pub(crate) fn operation(&mut self, node: &HostName, action: HostAction) -> HostOperation {
        self.next += 1;
        HostOperation {
            id: HostOperationId(self.next),
            plan: self.plan.clone(),
            node: node.clone(),
            fence: self.fence,
            action,
        }
    }

    pub(crate) fn apply(&self, operation: &HostOperation) -> Result<HostReport, HostError> {
        self.wait(HostExecutor::apply(&self.seat, operation, self.deadline()))
    }

    pub(crate) fn settle(&self, operation: &HostOperation) -> Result<Settled, HostError> {
        self.wait(HostExecutor::settle(&self.seat, operation, self.fence, self.deadline()))
    }

    pub(crate) fn host(&mut self, node: &HostName, action: HostAction) -> Result<HostReport, HostError> {
        let operation = self.operation(node, action);
        self.apply(&operation)
    }

    pub(crate) fn vm(&mut self, vm: &VmName, action: VmAction) -> Result<HostReport, HostError> {
        self.next += 1;
        let id = HostOperationId(self.next);
        let operation =
            VmOperation { id, plan: self.plan.clone(), vm: vm.clone(), fence: self.fence, action };
        self.wait(VirtualMachines::apply(&self.seat, &operation, self.deadline()))
    }

    pub(crate) fn gates(&self) -> GateToken {
        GateToken {
            plan: self.plan.clone(),
            fence: self.fence,
            resume_gates_passed_at: self.timer.now(),
            evidence: Fingerprint("evidence".to_owned()),
            bonds: Fingerprint("bonds".to_owned()),
        }
    }

    pub(crate) fn pin_all(&mut self) {
        for name in self.picture().vms.into_keys() {
            self.vm(&name, VmAction::Pin).unwrap();
        }
    }

    pub(crate) fn disconnect(
        &mut self,
        node: &HostName,
        resource: &ResourceName,
    ) -> Result<HostReport, HostError> {
        let peer = peer(node);
        self.host(node, HostAction::DisconnectResource { resource: resource.clone(), peer })
    }

    pub(crate) fn connect(
        &mut self,
        node: &HostName,
        resource: &ResourceName,
    ) -> Result<HostReport, HostError> {
        let (peer, gates) = (peer(node), self.gates());
        self.host(node, HostAction::ConnectResource { resource: resource.clone(), peer, gates })
    }

    pub(crate) fn disconnect_all(&mut self) {
        for resource in [r1(), r2()] {
            for node in [w1(), w2()] {
                self.disconnect(&node, &resource).unwrap();
            }
        }
    }

    pub(crate) fn drain_all(&mut self) {
        for node in [w1(), w2()] {
            self.host(&node, HostAction::DrainSatellite).unwrap();
        }
    }

    /// Everything before the first flip.
    pub(crate) fn prepare(&mut self) {
        self.pin_all();
        self.disconnect_all();
        self.drain_all();
    }

    pub(crate) fn flip(&mut self, node: &HostName, mode: BondMode) -> HostOperation {
        let original = original(&self.bond(node));
        self.operation(node, HostAction::SetBondMode { bond: bond0(), mode, original })
    }

    pub(crate) fn probe(&mut self, node: &HostName, packets: u32) -> LinkProbe {
        let spec = LinkProbeSpec { packets, frame_bytes: 1514 };
        let action = HostAction::ProbeLink { bond: bond0(), peer: peer(node), spec };
        match self.host(node, action).unwrap() {
            HostReport::Probed(probe) => probe,
            HostReport::Done => panic!("a probe tells what it found"),
        }
    }

    pub(crate) fn resume_all(&mut self) {
        for node in [w1(), w2()] {
            let gates = self.gates();
            self.host(&node, HostAction::UndrainSatellite { gates }).unwrap();
        }
    }

    pub(crate) fn bond(&self, node: &HostName) -> BondReading {
        self.wait(self.seat.bond(node, &bond0())).unwrap()
    }

    pub(crate) fn storage(&self, node: &HostName) -> StorageReading {
        let since = self.seat.world().start();
        self.wait(self.seat.storage(node, &BTreeSet::from([r1(), r2()]), since)).unwrap()
    }

    pub(crate) fn resource(&self, node: &HostName) -> ResourceReading {
        self.storage(node).resources[&r1()].clone()
    }

    /// What `node` says about its peer's copy of `r1`.
    pub(crate) fn peer_volume(&self, node: &HostName) -> PeerVolumeReading {
        self.resource(node).connections[&peer(node)].volumes[&0].clone()
    }

    /// `node`'s connection of `r1`, as a word.
    pub(crate) fn connection(&self, node: &HostName) -> String {
        self.resource(node).connections[&peer(node)].state.to_string()
    }

    pub(crate) fn picture(&self) -> VmPicture {
        self.wait(self.seat.picture(&BTreeSet::from([r1(), r2()]))).unwrap()
    }

    pub(crate) fn machine(&self, vm: &VmName) -> VmReading {
        self.picture().vms[vm].clone()
    }
}

/// What a bond was, from a reading of it.
pub(crate) fn original(reading: &BondReading) -> BondOriginal {
    let carrying: Vec<_> = reading
        .members
        .iter()
        .filter(|(_, member)| member.state == MemberState::Active)
        .map(|(name, _)| name)
        .collect();
    BondOriginal {
        mode: reading.mode.clone(),
        members: reading.members.keys().cloned().collect(),
        first: carrying.first().map(|name| (*name).clone()),
        mtu: reading.mtu.unwrap(),
        mac: reading.mac.clone().unwrap(),
        addresses: reading.addresses.clone(),
        routes: reading.routes.clone(),
    }
}

/// A world in which every call ends at its first poll.
pub(crate) fn instant() -> WorldSpec {
    WorldSpec::pair().pace(Pace::instant())
}

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn w1() -> HostName {
    HostName::new("w1").unwrap()
}

pub(crate) fn w2() -> HostName {
    HostName::new("w2").unwrap()
}

pub(crate) fn peer(node: &HostName) -> HostName {
    if *node == w1() { w2() } else { w1() }
}

pub(crate) fn r1() -> ResourceName {
    ResourceName::new("r1").unwrap()
}

pub(crate) fn r2() -> ResourceName {
    ResourceName::new("r2").unwrap()
}

pub(crate) fn v1() -> VmName {
    VmName::new("v1").unwrap()
}

pub(crate) fn v2() -> VmName {
    VmName::new("v2").unwrap()
}

pub(crate) fn bond0() -> BondName {
    BondName::new("bond0").unwrap()
}

pub(crate) fn interface(name: &str) -> InterfaceName {
    InterfaceName::new(name).unwrap()
}

pub(crate) fn migration(name: &str) -> MigrationName {
    MigrationName::new(name).unwrap()
}
