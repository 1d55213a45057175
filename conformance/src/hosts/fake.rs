//! The harness of the simulated hosts: virtual time, ground truth, and every trouble that a case can ask for. Also
//! what sabotaged implementations are tried on, which proves that the suite bites.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use executor_api::Timer;
use executor_api::host::{
    BondName, EvictionStrategy, HostIdError, HostName, HostOperation, ResourceName, StorageProbe as _,
    VmName, VmOperation,
};
use executor_host_fake::{CallKind, Fault, HostWorld, Incident, MigrationFate, Rule, Seat, WorldSpec};
use reconciler_driver::maintenance::Hands;

use crate::harness::CannotInject;
use crate::hosts::harness::{HostHarness, HostTrouble, HostTruth, Site};
use crate::time::TokioTimer;

type Wrap = Arc<dyn Fn(&Arc<Seat>, Arc<dyn Timer>) -> Hands + Send + Sync>;
type Told = Arc<dyn Fn(&HostTrouble) + Send + Sync>;

/// The operator under test.
const SEAT: &str = "suite";

/// A fresh simulated site for one case.
pub struct SimulatedHosts {
    world: HostWorld,
    timer: Arc<dyn Timer>,
    site: Site,
    wrap: Wrap,
    told: Told,
}

impl SimulatedHosts {
    /// The simulated hosts as they are.
    pub fn new() -> Self {
        Self::sabotaged(Hands::of, |_| ())
    }

    /// Implementations of one's own making on the simulated hosts. `told` hears of every trouble before it comes.
    #[expect(clippy::missing_panics_doc, reason = "the pair is sound and its names are legal")]
    pub fn sabotaged(
        wrap: impl Fn(&Arc<Seat>, Arc<dyn Timer>) -> Hands + Send + Sync + 'static,
        told: impl Fn(&HostTrouble) + Send + Sync + 'static,
    ) -> Self {
        let epoch = SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 365);
        let timer: Arc<dyn Timer> = Arc::new(TokioTimer::starting_at(epoch));
        let spec = WorldSpec::pair().writing_every(Duration::from_millis(500));
        #[expect(clippy::expect_used, reason = "the pair is sound and its names are legal")]
        let (world, site) = (
            HostWorld::new(Arc::clone(&timer), &spec).expect("the pair is sound"),
            site(&spec).expect("the names of the pair are legal"),
        );
        Self { world, timer, site, wrap: Arc::new(wrap), told: Arc::new(told) }
    }

    /// The world beneath.
    pub fn world(&self) -> &HostWorld {
        &self.world
    }

    fn befall(&self, incident: &Incident) {
        self.world.befall(incident);
    }

    fn host_rule(&self, operation: &HostOperation, fault: Fault) -> Result<(), CannotInject> {
        self.rule(Rule::new(CallKind::of_host(&operation.action), fault).host(&operation.node))
    }

    fn vm_rule(&self, operation: &VmOperation, fault: Fault) -> Result<(), CannotInject> {
        self.rule(Rule::new(CallKind::of_vm(&operation.action), fault).vm(&operation.vm))
    }

    fn read_rule(&self, call: CallKind, host: &HostName, fault: Fault) -> Result<(), CannotInject> {
        self.rule(Rule::new(call, fault).host(host).always())
    }

    fn rule(&self, rule: Rule) -> Result<(), CannotInject> {
        self.world.script(rule.seat(SEAT)).map_err(|unsuited| CannotInject::because(unsuited.to_string()))
    }

    /// Troubles of calls and reads.
    fn inject_call(&self, trouble: &HostTrouble) -> Result<(), CannotInject> {
        use CallKind::{ReadBond, ReadHost, ReadLock, ReadSatellite, ReadStorage, ReadVms};
        let soon = Duration::from_secs(20);
        match trouble {
            HostTrouble::LoseAnswer(operation) => self.host_rule(operation, Fault::AnswerLost),
            HostTrouble::LoseRequest(operation) => self.host_rule(operation, Fault::RequestLost),
            HostTrouble::LandLate(operation) => self.host_rule(operation, Fault::LandsLate { after: soon }),
            HostTrouble::Repeat(operation) => self.host_rule(operation, Fault::Repeats { after: soon }),
            HostTrouble::Slow(operation) => self.host_rule(operation, Fault::Slow { times: 5 }),
            HostTrouble::KillAgentDuring(operation) => {
                self.host_rule(operation, Fault::AgentDies { steps: 3 })
            }
            HostTrouble::LoseVmAnswer(operation) => self.vm_rule(operation, Fault::AnswerLost),
            HostTrouble::LoseVmRequest(operation) => self.vm_rule(operation, Fault::RequestLost),
            HostTrouble::FailReads(host) => [ReadHost, ReadBond, ReadStorage, ReadSatellite]
                .into_iter()
                .try_for_each(|call| self.read_rule(call, host, Fault::Unreadable)),
            HostTrouble::FailMachines => self.rule(Rule::new(ReadVms, Fault::Unreadable).always()),
            HostTrouble::FailLock => self.rule(Rule::new(ReadLock, Fault::Unreadable).always()),
            HostTrouble::HideCounters(host) => self.read_rule(ReadStorage, host, Fault::NoCounters),
            HostTrouble::HideIdentifiers(host) => self.read_rule(ReadStorage, host, Fault::NoIdentifiers),
            HostTrouble::HideEvents(host) => self.read_rule(ReadStorage, host, Fault::NoEvents),
            HostTrouble::TearStatus(host) => self.read_rule(ReadStorage, host, Fault::Torn),
            HostTrouble::GarbleStorage(host) => self.read_rule(ReadStorage, host, Fault::Garbled),
            HostTrouble::GarbleBond(host) => self.read_rule(ReadBond, host, Fault::Garbled),
            HostTrouble::CutMembers(host) => self.read_rule(ReadBond, host, Fault::CutShort),
            HostTrouble::CutPods(host) => self.read_rule(ReadSatellite, host, Fault::CutShort),
            HostTrouble::HideConfiguration(host) => self.read_rule(ReadBond, host, Fault::NoConfiguration),
            HostTrouble::LoseRenewalAnswer => self.rule(Rule::new(CallKind::Renew, Fault::AnswerLost)),
            HostTrouble::LoseAcquisition => self.rule(Rule::new(CallKind::Acquire, Fault::RequestLost)),
            HostTrouble::Heal => {
                self.world.clear_faults();
                Ok(())
            }
            other => Err(CannotInject::because(format!("the simulated hosts do not know {other:?}"))),
        }
    }

    /// What befalls the site itself, if this is of that kind.
    fn incidents(&self, trouble: &HostTrouble) -> Option<Incident> {
        let resource = || self.site.resource.clone();
        let migrates = |vm: &VmName, to: &HostName, fate| Incident::Migrates {
            vm: vm.clone(),
            to: to.clone(),
            fate,
            past_the_shield: false,
        };
        let incident = match trouble {
            HostTrouble::RestartAgent(host) => Incident::AgentRestarts { host: host.clone() },
            HostTrouble::LoseCarrier(host, member) => {
                Incident::CarrierLost { host: host.clone(), interface: member.clone() }
            }
            HostTrouble::DropMember(host, member) => {
                Incident::MemberLeaves { host: host.clone(), interface: member.clone() }
            }
            HostTrouble::SetBond(host, mode) => {
                Incident::BondSet { host: host.clone(), mode: Some(mode.clone()) }
            }
            HostTrouble::SetConfiguration(host, mode) => {
                Incident::ConfigurationSet { host: host.clone(), mode: mode.clone() }
            }
            HostTrouble::DropRoutes(host) => Incident::RoutesLost { host: host.clone() },
            HostTrouble::LosePackets => Incident::WireLoses { wire: 0, every: 5 },
            HostTrouble::Reboot(host) => Incident::HostReboots { host: host.clone() },
            HostTrouble::MarkBlocks(host) => {
                Incident::BitsAppear { resource: resource(), host: host.clone(), blocks: 3 }
            }
            HostTrouble::AnnounceSplitBrain(host) => {
                Incident::SplitBrainAnnounced { resource: resource(), host: host.clone() }
            }
            HostTrouble::Diverge(host) => {
                Incident::Diverges { resource: resource(), host: host.clone(), writes: 2 }
            }
            HostTrouble::ReturnPod(host) => Incident::PodReturns { host: host.clone() },
            HostTrouble::Migrate(vm, to) => migrates(vm, to, MigrationFate::Obedient),
            HostTrouble::MigrateStubbornly(vm, to) => migrates(vm, to, MigrationFate::WinsTheRace),
            HostTrouble::MarkForEvacuation(vm) => Incident::EvacuationMark { vm: vm.clone(), marked: true },
            HostTrouble::ChangeEffective(vm, setting) => {
                Incident::EffectiveChanged { vm: vm.clone(), setting: setting.clone() }
            }
            HostTrouble::Evict(vm) => Incident::Evicted { vm: vm.clone() },
            HostTrouble::DeleteLease => Incident::LeaseDeleted,
            _ => return None,
        };
        Some(incident)
    }
}

impl Default for SimulatedHosts {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SimulatedHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedHosts")
    }
}

#[async_trait]
impl HostHarness for SimulatedHosts {
    const VIRTUAL_TIME: bool = true;
    const SKIPS: Option<&'static [&'static str]> = Some(&[]);

    fn hands(&self) -> Hands {
        (self.wrap)(&Arc::new(self.world.seat(SEAT)), Arc::clone(&self.timer))
    }

    fn site(&self) -> Site {
        self.site.clone()
    }

    async fn truth(&self) -> HostTruth {
        // A seat of its own: the truth is not disturbed by what disturbs the one under test.
        let truth = self.world.seat("truth");
        let mut found = HostTruth {
            bonds: BTreeMap::new(),
            storage: BTreeMap::new(),
            satellites: BTreeMap::new(),
            machines: self.world.vms(),
            lock: self.world.lock(),
        };
        for node in &self.site.nodes {
            found.bonds.extend(self.world.bond(node).map(|bond| (node.clone(), bond)));
            found.storage.extend(self.world.storage(node).map(|storage| (node.clone(), storage)));
            found.satellites.extend(truth.satellite(node).await.ok().map(|pods| (node.clone(), pods)));
        }
        found
    }

    async fn inject(&self, trouble: HostTrouble) -> Result<(), CannotInject> {
        (self.told)(&trouble);
        match self.incidents(&trouble) {
            Some(incident) => {
                self.befall(&incident);
                Ok(())
            }
            None => self.inject_call(&trouble),
        }
    }
}

fn site(spec: &WorldSpec) -> Result<Site, HostIdError> {
    let machine = |eviction: Option<&EvictionStrategy>, otherwise| {
        let found = spec.vms.iter().find(|vm| vm.eviction.as_ref() == eviction);
        found.map_or_else(|| VmName::new(otherwise), |vm| Ok(vm.name.clone()))
    };
    Ok(Site {
        nodes: [HostName::new("w1")?, HostName::new("w2")?],
        bond: BondName::new("bond0")?,
        resource: ResourceName::new("r1")?,
        other: ResourceName::new("r2")?,
        set: machine(Some(&EvictionStrategy::LiveMigrate), "v1")?,
        unset: machine(None, "v2")?,
    })
}
