//! A toy world for decisions: two hosts, two resources, two machines, one lock. It obeys each operation at once
//! and to the letter; tests bend it in between. What real storage does to mislead is the harness's business.
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::wildcard_enum_match_arm,
    unreachable_pub,
    missing_docs,
    reason = "shared by several tests, each of which uses a part; a panic is a failed test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use executor_api::host::*;
use reconciler_core::maintenance::*;

pub fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

pub fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

pub fn resource(name: &str) -> ResourceName {
    ResourceName::new(name).unwrap()
}

pub fn vm(name: &str) -> VmName {
    VmName::new(name).unwrap()
}

pub fn person(who: &str) -> Person {
    Person { who: who.to_owned(), at: at(0) }
}

pub fn plan(io: IoPolicy) -> BondFlipPlan {
    BondFlipPlan {
        uid: PlanUid::new("p-1").unwrap(),
        nodes: [host("w1"), host("w2")],
        bond: BondName::new("bond0").unwrap(),
        from: BondMode::ActiveBackup,
        to: BondMode::BalanceRr,
        resources: BTreeSet::from([resource("r1"), resource("r2")]),
        io,
        approved: true,
        module_floor: ModuleVersion { major: 9, minor: 3, patch: 3 },
        probe: LinkProbeSpec { packets: 50, frame_bytes: 1500 },
        pace: Pace::default(),
    }
}

pub fn quiesce() -> IoPolicy {
    IoPolicy::Quiesce { suspend_for: Some(Duration::from_mins(10)) }
}

fn bond(mode: BondMode) -> BondReading {
    let names = ["s0", "s1"].map(|name| InterfaceName::new(name).unwrap());
    let members = names.iter().enumerate().map(|(index, name)| {
        let carries = mode == BondMode::BalanceRr || index == 0;
        let state = if carries { MemberState::Active } else { MemberState::Backup };
        (name.clone(), MemberReading { state, mii: MiiStatus::Up, link_failures: Some(0) })
    });
    BondReading {
        boot_id: "boot-1".to_owned(),
        mode_number: mode.number(),
        members: members.collect(),
        members_complete: true,
        up: Some(true),
        carrier: Some(true),
        mtu: Some(1500),
        mac: Some("52:54:00:0a:01:00".to_owned()),
        addresses: BTreeSet::from(["192.0.2.1/24".to_owned()]),
        routes: BTreeSet::from(["198.51.100.0/24 via 192.0.2.9".to_owned()]),
        persisted: Some(PersistedBond { mode: mode.clone(), members: names.into_iter().collect() }),
        mode,
    }
}

fn ids(primary: bool) -> GenerationIds {
    GenerationIds {
        current: Generation(0xBE97_0000_0000_E036 | u64::from(primary)),
        bitmap: Generation::NONE,
        history: [Generation(0x3650_0000_0000_8B00), Generation::JUST_CREATED],
        consistent: Some(true),
        was_up_to_date: Some(true),
        primary: Some(primary),
        crashed_primary: Some(false),
        primary_lost_quorum: Some(false),
        peer_connected: Some(true),
        peer_outdated: Some(false),
        peer_full_sync: Some(false),
    }
}

fn storage_resource(peer: &HostName, primary: bool) -> ResourceReading {
    let role = |is: bool| if is { Role::Primary } else { Role::Secondary };
    let no = Some(false);
    ResourceReading {
        role: role(primary),
        suspended: Suspensions { user: no, no_data: no, fencing: no, quorum: no },
        force_io_failures: no,
        volumes: BTreeMap::from([(
            0,
            VolumeReading {
                disk: DiskState::UpToDate,
                client: no,
                quorum: Some(true),
                size_kib: Some(65_496),
                upper_pending: Some(0),
                lower_pending: Some(0),
            },
        )]),
        connections: BTreeMap::from([(
            peer.clone(),
            ConnectionReading {
                state: ConnectionState::Connected,
                peer_role: role(!primary),
                paths: vec![Some(true)],
                net: NetOptions {
                    protocol: Protocol::C,
                    after_sb_0pri: AfterSplitBrain::Disconnect,
                    after_sb_1pri: AfterSplitBrain::Disconnect,
                    after_sb_2pri: AfterSplitBrain::Disconnect,
                    allow_two_primaries: no,
                },
                volumes: BTreeMap::from([(
                    0,
                    PeerVolumeReading {
                        replication: ReplicationState::Established,
                        peer_disk: DiskState::UpToDate,
                        peer_client: no,
                        resync_suspended: ResyncSuspended::No,
                        out_of_sync_kib: Some(0),
                        pending: Some(0),
                        unacked: Some(0),
                        resyncs_finished: Some(0),
                        generation: Some(ids(primary)),
                    },
                )]),
            },
        )]),
    }
}

fn machine(node: &str, on: &str, setting: EvictionSetting) -> VmReading {
    VmReading {
        resources: BTreeSet::from([resource(on)]),
        declared: setting.clone(),
        running: Some(RunningVm {
            pod_uid: format!("pod-of-{on}"),
            node: host(node),
            effective: setting,
            evacuating_from: None,
        }),
        shield: PinShield { eviction_refused: Some(false), migration_refused: Some(false) },
    }
}

/// What is true out there.
#[derive(Clone, Debug)]
pub struct World {
    pub bonds: BTreeMap<HostName, BondReading>,
    pub storage: BTreeMap<HostName, StorageReading>,
    pub satellites: BTreeMap<HostName, SatelliteReading>,
    pub vms: VmPicture,
    pub lock: LockRecords,
    pub fences: u64,
    /// Machines write while replication is apart.
    pub writers: bool,
}

impl World {
    pub fn new(writers: bool) -> Self {
        let nodes = [host("w1"), host("w2")];
        let resources = |node: &HostName, peer: &HostName| {
            // The machine on r1 runs on w1, that on r2 on w2.
            let primary = |name: &str| writers && (name == "r1") == (node.as_str() == "w1");
            ["r1", "r2"]
                .into_iter()
                .map(|name| {
                    let mut reading = storage_resource(peer, primary(name));
                    if !writers {
                        for connection in reading.connections.values_mut() {
                            connection.peer_role = Role::Secondary;
                        }
                    }
                    (resource(name), reading)
                })
                .collect()
        };
        let storage = |node: &HostName, peer: &HostName| StorageReading {
            module: Some(ModuleVersion { major: 9, minor: 3, patch: 3 }),
            stable: true,
            resources: resources(node, peer),
            split_brain_seen: Some(BTreeSet::new()),
        };
        let pods = |node: &HostName| SatelliteReading {
            kept_away: Some(false),
            pods: Some(BTreeSet::from([format!("satellite-{node}")])),
        };
        let live = EvictionSetting::Set(EvictionStrategy::LiveMigrate);
        Self {
            bonds: nodes.iter().map(|node| (node.clone(), bond(BondMode::ActiveBackup))).collect(),
            storage: BTreeMap::from([
                (nodes[0].clone(), storage(&nodes[0], &nodes[1])),
                (nodes[1].clone(), storage(&nodes[1], &nodes[0])),
            ]),
            satellites: nodes.iter().map(|node| (node.clone(), pods(node))).collect(),
            vms: VmPicture {
                vms: BTreeMap::from([
                    (vm("v1"), machine("w1", "r1", live)),
                    (vm("v2"), machine("w2", "r2", EvictionSetting::Unset)),
                ]),
                migrations: BTreeMap::new(),
            },
            lock: LockRecords::default(),
            fences: 0,
            writers,
        }
    }

    pub fn resource_mut(&mut self, node: &str, name: &str) -> &mut ResourceReading {
        self.storage.get_mut(&host(node)).unwrap().resources.get_mut(&resource(name)).unwrap()
    }

    pub fn connection_mut(&mut self, node: &str, name: &str) -> &mut ConnectionReading {
        self.resource_mut(node, name).connections.values_mut().next().unwrap()
    }

    pub fn peer_volume_mut(&mut self, node: &str, name: &str) -> &mut PeerVolumeReading {
        self.connection_mut(node, name).volumes.get_mut(&0).unwrap()
    }

    pub fn ids_mut(&mut self, node: &str, name: &str) -> &mut GenerationIds {
        self.peer_volume_mut(node, name).generation.as_mut().unwrap()
    }

    pub fn bond_mut(&mut self, node: &str) -> &mut BondReading {
        self.bonds.get_mut(&host(node)).unwrap()
    }

    pub fn running_mut(&mut self, name: &str) -> &mut RunningVm {
        self.vms.vms.get_mut(&vm(name)).unwrap().running.as_mut().unwrap()
    }

    pub fn observe(&self, me: &LeaseHolder, now: SystemTime) -> Observed {
        fn seen<T>(value: &T, source: Source, now: SystemTime) -> Evidence<T>
        where
            T: Clone,
        {
            Evidence::seen(source, now, value.clone())
        }
        fn each<T: Clone>(map: &BTreeMap<HostName, T>, now: SystemTime) -> BTreeMap<HostName, Evidence<T>> {
            map.iter()
                .map(|(node, value)| (node.clone(), seen(value, Source::Host(node.clone()), now)))
                .collect()
        }
        let facts = HostFacts { eligible: Some(true), live: Some(true) };
        let takeover = match &self.lock.lease {
            None => Takeover::Free,
            Some(lease) => Takeover::Expired { version: lease.version.clone() },
        };
        Observed {
            me: me.clone(),
            takeover,
            lock: Some(seen(&self.lock, Source::Cluster, now)),
            hosts: each(&self.bonds.keys().map(|node| (node.clone(), facts.clone())).collect(), now),
            bonds: each(&self.bonds, now),
            storage: each(&self.storage, now),
            satellites: each(&self.satellites, now),
            vms: Some(seen(&self.vms, Source::Cluster, now)),
        }
    }

    fn wire(&mut self, node: &str, name: &str, state: ConnectionState) {
        let connected = state == ConnectionState::Connected;
        let primary_there = {
            let other = if node == "w1" { "w2" } else { "w1" };
            self.resource_mut(other, name).role.clone()
        };
        let connection = self.connection_mut(node, name);
        connection.state = state;
        connection.paths = vec![Some(connected)];
        connection.peer_role = if connected { primary_there } else { Role::Unknown("Unknown".to_owned()) };
        let volume = connection.volumes.get_mut(&0).unwrap();
        volume.replication = if connected { ReplicationState::Established } else { ReplicationState::Off };
        volume.peer_disk = if connected { DiskState::UpToDate } else { DiskState::DUnknown };
        volume.generation.as_mut().unwrap().peer_connected = Some(connected);
    }

    pub fn disconnect(&mut self, node: &str, name: &str) {
        let other = if node == "w1" { "w2" } else { "w1" };
        let was = self.connection_mut(node, name).state.clone();
        self.wire(node, name, ConnectionState::StandAlone);
        if was == ConnectionState::Connected {
            self.wire(other, name, ConnectionState::Connecting);
            for side in ["w1", "w2"] {
                let reading = self.resource_mut(side, name);
                if reading.role == Role::Primary && reading.suspended.user == Some(false) {
                    self.write(side, name, 40);
                }
            }
        }
    }

    /// A write while apart: a new generation, and blocks that the peer lacks.
    pub fn write(&mut self, node: &str, name: &str, kib: u64) {
        let mark = if node == "w1" { 0xFFFF_0000 } else { 0x00FF_FF00 };
        let volume = self.peer_volume_mut(node, name);
        volume.out_of_sync_kib = Some(kib);
        let ids = volume.generation.as_mut().unwrap();
        if ids.bitmap.is_none() {
            ids.bitmap = Generation(ids.current.masked());
            ids.current = Generation(ids.current.0 ^ mark);
        }
    }

    pub fn connect(&mut self, node: &str, name: &str) {
        let other = if node == "w1" { "w2" } else { "w1" };
        if self.connection_mut(other, name).state != ConnectionState::Connecting {
            self.wire(node, name, ConnectionState::Connecting);
            return;
        }
        self.wire(node, name, ConnectionState::Connected);
        self.wire(other, name, ConnectionState::Connected);
        let (ours, theirs) = (self.ids_mut(node, name).clone(), self.ids_mut(other, name).clone());
        let lead = if ours.bitmap.is_none() { theirs } else { ours };
        for side in [node, other] {
            let ids = self.ids_mut(side, name);
            let copied = !lead.bitmap.is_none();
            if copied {
                ids.current = Generation(lead.current.masked() | u64::from(ids.primary == Some(true)));
                ids.history = [lead.bitmap, lead.history[0]];
                ids.bitmap = Generation::NONE;
            }
            let volume = self.peer_volume_mut(side, name);
            volume.out_of_sync_kib = Some(0);
            if copied {
                volume.resyncs_finished = volume.resyncs_finished.map(|count| count + 1);
            }
        }
    }

    fn host_action(&mut self, operation: &HostOperation) -> HostReport {
        let node = operation.node.as_str();
        match &operation.action {
            HostAction::SuspendIo { resource, .. } => {
                self.resource_mut(node, resource.as_str()).suspended.user = Some(true);
            }
            HostAction::ResumeIo { resource } => {
                self.resource_mut(node, resource.as_str()).suspended.user = Some(false);
            }
            HostAction::DisconnectResource { resource, .. } => self.disconnect(node, resource.as_str()),
            HostAction::ConnectResource { resource, .. } => self.connect(node, resource.as_str()),
            HostAction::DrainSatellite => {
                let gone = SatelliteReading { kept_away: Some(true), pods: Some(BTreeSet::new()) };
                self.satellites.insert(operation.node.clone(), gone);
            }
            HostAction::UndrainSatellite { .. } => {
                let pods = Some(BTreeSet::from([format!("satellite-{node}-2")]));
                self.satellites
                    .insert(operation.node.clone(), SatelliteReading { kept_away: Some(false), pods });
            }
            HostAction::SetBondMode { mode, .. } => {
                self.bonds.insert(operation.node.clone(), bond(mode.clone()));
            }
            HostAction::ProbeLink { peer, spec, .. } => {
                let counters = |node: &HostName| {
                    let moved = MemberCounters { tx: 25, rx: 25, rx_nohandler: 0 };
                    self.bonds[node].members.keys().map(|name| (name.clone(), moved)).collect()
                };
                return HostReport::Probed(LinkProbe {
                    from: operation.node.clone(),
                    to: peer.clone(),
                    sent: spec.packets,
                    received: spec.packets,
                    frame_bytes: spec.frame_bytes,
                    sender: counters(&operation.node),
                    receiver: counters(peer),
                });
            }
        }
        HostReport::Done
    }

    fn vm_action(&mut self, operation: &VmOperation) {
        let set = |vm: &mut VmReading, setting: &EvictionSetting, shield: bool| {
            vm.declared = setting.clone();
            if let Some(running) = &mut vm.running {
                running.effective = setting.clone();
            }
            vm.shield = PinShield { eviction_refused: Some(shield), migration_refused: Some(shield) };
        };
        match &operation.action {
            VmAction::Pin => {
                set(self.vms.vms.get_mut(&operation.vm).unwrap(), &EvictionSetting::PINNED, true);
            }
            VmAction::Restore { original } => {
                set(self.vms.vms.get_mut(&operation.vm).unwrap(), original, false);
            }
            VmAction::AbortMigration { migration } => {
                self.vms.migrations.get_mut(migration).unwrap().abort_requested = true;
            }
        }
    }

    /// Does what an effect says.
    pub fn perform(&mut self, effect: &Effect, me: &LeaseHolder, now: SystemTime) -> EffectDone {
        match effect {
            Effect::Host(operation) => EffectDone::Host(self.host_action(operation)),
            Effect::Vm(operation) => {
                self.vm_action(operation);
                EffectDone::Host(HostReport::Done)
            }
            Effect::Settle { .. } => EffectDone::Settled(Settled::NeverBegun),
            Effect::Lock { action, .. } => match action {
                LockAction::AcquireLease { .. } => {
                    self.fences += 1;
                    let lease = LeaseRecord {
                        holder: me.clone(),
                        ttl: Duration::from_mins(1),
                        fence: FenceValue(self.fences),
                        version: RecordVersion(format!("v{}", self.fences)),
                    };
                    self.lock.lease = Some(lease.clone());
                    EffectDone::LeaseAcquired(lease)
                }
                LockAction::PlaceHold => {
                    self.lock.hold = Some(PlanHold { plan: PlanUid::new("p-1").unwrap(), since: now });
                    EffectDone::LockWritten
                }
                LockAction::LiftHold => {
                    self.lock.hold = None;
                    EffectDone::LockWritten
                }
                LockAction::ReleaseLease => {
                    self.lock.lease = None;
                    EffectDone::LockWritten
                }
            },
        }
    }
}

/// A plan under way in a world.
#[derive(Clone, Debug)]
pub struct Run {
    pub plan: BondFlipPlan,
    pub state: PlanState,
    pub world: World,
    pub me: LeaseHolder,
    pub now: u64,
    pub steps: Vec<String>,
    /// Every decision is made twice and every state read back from what would be stored.
    pub thorough: bool,
    /// Mutating deeds that were sent, in order.
    pub deeds: Vec<String>,
}

impl Run {
    pub fn new(io: IoPolicy) -> Self {
        let writers = matches!(io, IoPolicy::Continue | IoPolicy::Quiesce { suspend_for: Some(_) });
        let plan = plan(io);
        let state = PlanState::new(plan.uid.clone(), Some(person("ann")), at(0));
        Self {
            plan,
            state,
            world: World::new(writers),
            me: LeaseHolder::new("op-a").unwrap(),
            now: 0,
            steps: Vec::new(),
            thorough: true,
            deeds: Vec::new(),
        }
    }

    pub fn observed(&self) -> Observed {
        self.world.observe(&self.me, at(self.now))
    }

    pub fn decide(&self) -> Step {
        self.decide_on(&self.observed())
    }

    pub fn decide_on(&self, observed: &Observed) -> Step {
        let step = advance(&self.plan, &self.state, observed, at(self.now));
        if self.thorough {
            assert_eq!(step, advance(&self.plan, &self.state, observed, at(self.now)), "not deterministic");
        }
        step
    }

    /// Applies a step; what it sends is done at once, and truly.
    pub fn take(&mut self, step: &Step) {
        let sent = apply(&self.plan, &mut self.state, step, at(self.now)).unwrap();
        self.steps.push(step.to_string());
        if let Applied::Send { effect, .. } = sent {
            self.deeds.push(effect.to_string());
            let done = self.world.perform(&effect, &self.me, at(self.now));
            self.fold(PlanObservation::Ended { id: effect.id(), outcome: Ok(done) });
        }
        if self.thorough {
            let stored = serde_json::to_string(&self.state).unwrap();
            let read: PlanState = serde_json::from_str(&stored).unwrap();
            assert_eq!(read, self.state);
        }
        self.now += 1;
    }

    pub fn fold(&mut self, fact: PlanObservation) {
        fold(&self.plan, &mut self.state, fact, at(self.now));
    }

    /// One pass. Waits move the clock to their end.
    pub fn pass(&mut self) -> Step {
        let step = self.decide();
        if let Act::Wait { until: Some(until) } = &step.act {
            let seconds = until.duration_since(at(0)).unwrap().as_secs();
            self.now = self.now.max(seconds.saturating_sub(1));
        }
        self.take(&step);
        step
    }

    /// Passes until a step reads so.
    pub fn until(&mut self, wanted: &str) -> &mut Self {
        for _ in 0..400 {
            let step = self.pass().to_string();
            if step.starts_with(wanted) {
                return self;
            }
        }
        panic!("never came to {wanted:?}:\n{}", self.steps.join("\n"));
    }

    /// Passes until nothing more will happen, or a person is asked.
    pub fn finish(&mut self) -> &mut Self {
        for _ in 0..400 {
            let step = self.pass();
            let asked = self.state.recovery == Recovery::Escalated && !self.state.handed_over;
            if step.act == Act::Over || asked {
                return self;
            }
        }
        panic!("no end:\n{}", self.steps.join("\n"));
    }

    /// The process is killed and a fresh one starts, which knows what was stored and nothing else.
    pub fn restart(&mut self) -> &mut Self {
        let stored = serde_json::to_string(&self.state).unwrap();
        self.state = serde_json::from_str(&stored).unwrap();
        let number = self.me.as_str().len();
        self.me = LeaseHolder::new(format!("op-{}", "b".repeat(number))).unwrap();
        if let Some(pending) = self.state.pending.clone() {
            self.fold(PlanObservation::Lost { id: pending.effect.id() });
        }
        self
    }

    pub fn last_steps(&self, count: usize) -> String {
        let from = self.steps.len().saturating_sub(count);
        self.steps[from..].join("\n")
    }

    pub fn all_steps(&self) -> String {
        let mut text = self.steps.join("\n");
        text.push('\n');
        text
    }
}
