//! What a world is made of before anything happens: hosts with their bonds, resources, machines, and how long
//! things take. Read from a scenario file or built in code.

use std::collections::BTreeSet;
use std::time::Duration;

use executor_api::host::{
    AfterSplitBrain, BondMode, BondName, EvictionSetting, EvictionStrategy, HostIdError, HostName,
    InterfaceName, ModuleVersion, Protocol, ResourceName, VmName,
};
use serde::{Deserialize, Serialize};

use crate::span;

/// A world at its beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorldSpec {
    /// The hosts.
    pub hosts: Vec<HostSpec>,
    /// The replicated resources.
    pub resources: Vec<ResourceSpec>,
    /// The virtual machines.
    #[serde(default)]
    pub vms: Vec<VmSpec>,
    /// How the hosts' interfaces are wired.
    #[serde(default)]
    pub wiring: Wiring,
    /// How storage behaves.
    #[serde(default)]
    pub storage: StorageManner,
    /// What an eviction does to a machine whose setting is left out.
    #[serde(default = "default_eviction")]
    pub default_eviction: EvictionStrategy,
    /// A change of a machine's declared setting reaches the running instance by itself. Otherwise it waits for
    /// a restart, unless the agent carries it there.
    #[serde(default)]
    pub live_update: bool,
    /// How long things take.
    #[serde(default)]
    pub pace: Pace,
}

/// One host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Its name.
    pub name: HostName,
    /// Its bond.
    pub bond: BondSpec,
    /// It may hold replicas.
    #[serde(default = "yes")]
    pub eligible: bool,
}

/// One bond.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BondSpec {
    /// Its name.
    pub name: BondName,
    /// Its mode, live and in the configuration.
    pub mode: BondMode,
    /// Its members, in the order in which they are put in. The place of each says which wire it is on.
    pub members: Vec<InterfaceName>,
    /// Largest frame in bytes.
    #[serde(default = "default_mtu")]
    pub mtu: u32,
    /// Addresses with prefix length.
    #[serde(default)]
    pub addresses: BTreeSet<String>,
    /// Static routes through the bond.
    #[serde(default)]
    pub routes: BTreeSet<String>,
}

/// One replicated resource, with one volume per entry of `blocks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceSpec {
    /// Its name.
    pub name: ResourceName,
    /// The hosts that have a copy.
    pub on: Vec<HostName>,
    /// How many blocks of 4 KiB each volume has.
    #[serde(default = "default_blocks")]
    pub blocks: Vec<u32>,
    /// When a write counts as done.
    #[serde(default = "protocol_c")]
    pub protocol: Protocol,
    /// What is done by itself after a split brain with no, one, two primaries.
    #[serde(default = "disconnect")]
    pub after_split_brain: AfterSplitBrain,
    /// Two hosts may write at once.
    #[serde(default)]
    pub allow_two_primaries: bool,
}

/// One virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmSpec {
    /// Its name.
    pub name: VmName,
    /// The resources that its volumes lie on.
    pub resources: BTreeSet<ResourceName>,
    /// Where it runs, if it runs.
    #[serde(default)]
    pub runs_on: Option<HostName>,
    /// Its eviction setting; left out means the field is left out.
    #[serde(default)]
    pub eviction: Option<EvictionStrategy>,
    /// What the running instance has, where that differs from what is declared.
    #[serde(default)]
    pub running_eviction: Option<EvictionSetting>,
    /// How often it writes a block. Left out: only when told to.
    #[serde(default, with = "span::maybe")]
    pub writes_every: Option<Duration>,
}

impl VmSpec {
    /// What is declared for it.
    pub fn declared(&self) -> EvictionSetting {
        self.eviction.clone().map_or(EvictionSetting::Unset, EvictionSetting::Set)
    }
}

/// How interfaces of different hosts are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wiring {
    /// One network per place in the bond: what one host sends on its first interface arrives on the others' first.
    /// A host in one mode facing a host in another loses every second packet.
    #[default]
    Wires,
    /// One switch that learns where an address is.
    Switch,
}

/// How storage behaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StorageManner {
    /// The module's version. Older ones drop leftover bits when identifiers are equal.
    pub module: ModuleVersion,
    /// When a primary that loses its peer begins a new generation.
    pub rotation: Rotation,
    /// Only the host that notices a split brain drops the connection; the other goes on waiting.
    pub one_sided_split_brain: bool,
}

impl Default for StorageManner {
    fn default() -> Self {
        let module = ModuleVersion { major: 9, minor: 3, patch: 3 };
        Self { module, rotation: Rotation::AtFirstWrite, one_sided_split_brain: false }
    }
}

/// When a primary begins a new generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rotation {
    /// With the first write after the peer is gone.
    AtFirstWrite,
    /// As soon as the peer is gone, or on becoming primary without one.
    AtOnce,
}

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pace {
    /// One reading.
    #[serde(with = "span")]
    pub read: Duration,
    /// One call to the lock.
    #[serde(with = "span")]
    pub lock: Duration,
    /// One operation of an agent that is not named below.
    #[serde(with = "span")]
    pub operation: Duration,
    /// One step of a flip: configuration, down, release, mode, each member, up, addresses and routes.
    #[serde(with = "span")]
    pub flip_step: Duration,
    /// Until storage pods are gone, or back.
    #[serde(with = "span")]
    pub pods: Duration,
    /// One link probe.
    #[serde(with = "span")]
    pub probe: Duration,
    /// From both sides waiting to the handshake.
    #[serde(with = "span")]
    pub handshake: Duration,
    /// Until a dead link is noticed.
    #[serde(with = "span")]
    pub ping_timeout: Duration,
    /// One block of a resync.
    #[serde(with = "span")]
    pub resync_block: Duration,
    /// One phase of a migration.
    #[serde(with = "span")]
    pub migration_phase: Duration,
    /// Until an evacuation mark leads to a migration, and to the next one.
    #[serde(with = "span")]
    pub evacuation: Duration,
    /// Until a machine is up again.
    #[serde(with = "span")]
    pub vm_start: Duration,
    /// Until a host is up again.
    #[serde(with = "span")]
    pub boot: Duration,
    /// Until an agent is up again.
    #[serde(with = "span")]
    pub agent_restart: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            read: ms(20),
            lock: ms(5),
            operation: ms(200),
            flip_step: ms(400),
            pods: ms(5_000),
            probe: ms(1_000),
            handshake: ms(500),
            ping_timeout: ms(10_000),
            resync_block: ms(100),
            migration_phase: ms(2_000),
            evacuation: ms(10_000),
            vm_start: ms(5_000),
            boot: ms(40_000),
            agent_restart: ms(3_000),
        }
    }
}

impl Pace {
    /// Everything happens at once: calls end at their first poll.
    pub fn instant() -> Self {
        let none = Duration::ZERO;
        Self {
            read: none,
            lock: none,
            operation: none,
            flip_step: none,
            pods: none,
            probe: none,
            handshake: none,
            ping_timeout: none,
            resync_block: none,
            migration_phase: none,
            evacuation: none,
            vm_start: none,
            boot: none,
            agent_restart: none,
        }
    }
}

impl WorldSpec {
    /// Two hosts `w1` and `w2` with an active-backup `bond0` of `s0` and `s1`; `r1` and `r2` on both; `v1` on `w1`
    /// with `LiveMigrate`, `v2` on `w2` with the setting left out.
    pub fn pair() -> Self {
        Self::try_pair().unwrap_or_else(|error| unreachable!("a name written here is refused: {error}"))
    }

    fn try_pair() -> Result<Self, HostIdError> {
        let host = |number: u8| -> Result<HostSpec, HostIdError> {
            Ok(HostSpec {
                name: HostName::new(format!("w{number}"))?,
                eligible: true,
                bond: BondSpec {
                    name: BondName::new("bond0")?,
                    mode: BondMode::ActiveBackup,
                    members: vec![InterfaceName::new("s0")?, InterfaceName::new("s1")?],
                    mtu: default_mtu(),
                    addresses: BTreeSet::from([format!("192.0.2.{number}/24")]),
                    routes: BTreeSet::from(["198.51.100.0/24 via 192.0.2.254".to_owned()]),
                },
            })
        };
        let resource = |name: &str| -> Result<ResourceSpec, HostIdError> {
            Ok(ResourceSpec {
                name: ResourceName::new(name)?,
                on: vec![HostName::new("w1")?, HostName::new("w2")?],
                blocks: default_blocks(),
                protocol: protocol_c(),
                after_split_brain: disconnect(),
                allow_two_primaries: false,
            })
        };
        let vm = |name: &str, resource: &str, host: &str, eviction: Option<EvictionStrategy>| {
            Ok::<_, HostIdError>(VmSpec {
                name: VmName::new(name)?,
                resources: BTreeSet::from([ResourceName::new(resource)?]),
                runs_on: Some(HostName::new(host)?),
                eviction,
                running_eviction: None,
                writes_every: None,
            })
        };
        Ok(Self {
            hosts: vec![host(1)?, host(2)?],
            resources: vec![resource("r1")?, resource("r2")?],
            vms: vec![
                vm("v1", "r1", "w1", Some(EvictionStrategy::LiveMigrate))?,
                vm("v2", "r2", "w2", None)?,
            ],
            wiring: Wiring::default(),
            storage: StorageManner::default(),
            default_eviction: default_eviction(),
            live_update: false,
            pace: Pace::default(),
        })
    }

    /// Every machine writes a block this often.
    #[must_use]
    pub fn writing_every(mut self, every: Duration) -> Self {
        for vm in &mut self.vms {
            vm.writes_every = Some(every);
        }
        self
    }

    /// Things take this long.
    #[must_use]
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Names that mean nothing, or two things.
    ///
    /// # Errors
    /// The first thing wrong, in words.
    pub fn check(&self) -> Result<(), SpecProblem> {
        let problem = |what: String| Err(SpecProblem(what));
        let hosts: BTreeSet<_> = self.hosts.iter().map(|host| &host.name).collect();
        if hosts.len() < 2 || hosts.len() != self.hosts.len() {
            return problem("a world needs at least two hosts, each with a name of its own".to_owned());
        }
        let resources: BTreeSet<_> = self.resources.iter().map(|resource| &resource.name).collect();
        if resources.len() != self.resources.len() {
            return problem("two resources have one name".to_owned());
        }
        for resource in &self.resources {
            let on: BTreeSet<_> = resource.on.iter().collect();
            if on.len() != resource.on.len() || !on.is_subset(&hosts) {
                return problem(format!(
                    "resource {} is on a host that is not there, or twice on one",
                    resource.name
                ));
            }
            if resource.blocks.is_empty() || resource.blocks.iter().any(|count| *count == 0 || *count > 4096)
            {
                return problem(format!("resource {} needs volumes of 1 to 4096 blocks", resource.name));
            }
        }
        let vms: BTreeSet<_> = self.vms.iter().map(|vm| &vm.name).collect();
        if vms.len() != self.vms.len() {
            return problem("two machines have one name".to_owned());
        }
        for vm in &self.vms {
            let has_copy = |resource: &ResourceName, host: &HostName| {
                self.resources.iter().any(|spec| spec.name == *resource && spec.on.contains(host))
            };
            if !vm.resources.iter().all(|name| resources.contains(name)) {
                return problem(format!("machine {} is on a resource that is not there", vm.name));
            }
            if let Some(host) = &vm.runs_on
                && !vm.resources.iter().all(|name| has_copy(name, host))
            {
                return problem(format!(
                    "machine {} runs on {host}, which has no copy of its volumes",
                    vm.name
                ));
            }
        }
        Ok(())
    }
}

/// What is wrong with a world.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the world cannot be built: {0}")]
pub struct SpecProblem(pub String);

fn yes() -> bool {
    true
}

fn default_mtu() -> u32 {
    1500
}

fn default_blocks() -> Vec<u32> {
    vec![16]
}

fn protocol_c() -> Protocol {
    Protocol::C
}

fn disconnect() -> AfterSplitBrain {
    AfterSplitBrain::Disconnect
}

fn default_eviction() -> EvictionStrategy {
    EvictionStrategy::None
}
