//! Incidents drawn from a seed, for tests that want to meet what nobody thought of. The same seed and world give
//! the same troubles on every machine and in every build: seeds that once broke something are kept by number. Kinds that
//! came later are drawn by a call of their own, so that the older seeds still draw what they drew.

use std::time::Duration;

use executor_api::host::{
    AfterSplitBrain, BondMode, EvictionSetting, HostName, InterfaceName, MigrationName, ModuleVersion,
    Protocol, ResourceName, VmName,
};

use crate::incident::{Incident, MigrationFate};
use crate::scenario::TimedIncident;
use crate::spec::{VmSpec, WorldSpec};

/// A stream of draws, and what of a world can be befallen.
#[derive(Clone, Debug)]
pub struct Troubles {
    draws: u64,
    hosts: Vec<(HostName, Vec<InterfaceName>)>,
    resources: Vec<ResourceName>,
    machines: Vec<VmSpec>,
}

impl Troubles {
    /// Kinds of incident among which [`incident`](Self::incident) draws.
    pub const KINDS: u64 = 20;
    /// Kinds of incident among which [`further`](Self::further) draws.
    pub const FURTHER: u64 = 17;
    /// Kinds of course among which [`course`](Self::course) draws.
    pub const COURSES: u64 = 13;

    /// Troubles for a world.
    pub fn new(seed: u64, world: &WorldSpec) -> Self {
        Self {
            draws: seed,
            hosts: world.hosts.iter().map(|host| (host.name.clone(), host.bond.members.clone())).collect(),
            resources: world.resources.iter().map(|resource| resource.name.clone()).collect(),
            machines: world.vms.clone(),
        }
    }

    /// A number below `bound`; zero where `bound` is.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draws =
            self.draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.draws >> 33).checked_rem(bound).unwrap_or_default()
    }

    /// Something that befalls one of the hosts, resources or machines. `None` in a world that lacks one of the three.
    pub fn incident(&mut self) -> Option<Incident> {
        let (host, interface, resource, machine) = self.victims()?;
        let vm = machine.name;
        Some(match self.below(Self::KINDS) {
            0 => Incident::CarrierLost { host, interface },
            1 => Incident::CarrierBack { host, interface },
            2 => Incident::WireLoses { wire: 0, every: 4 },
            3 => Incident::WireLoses { wire: 0, every: 0 },
            4 => Incident::MemberRefuses { host, interface, times: 1 },
            5 => Incident::BondSet { host, mode: None },
            6 => Incident::HostReboots { host },
            7 => Incident::AgentRestarts { host },
            8 => Incident::PodReturns { host },
            9 => Incident::StandAlone { resource, host },
            10 => Incident::Reconnects { resource, host },
            11 => Incident::BitsAppear { resource, host, blocks: 2 },
            12 => Incident::Diverges { resource, host, writes: 1 },
            13 => Incident::ResyncHeld { resource, host, held: self.below(2) == 0 },
            14 => {
                Incident::Migrates { vm, to: host, fate: MigrationFate::WinsTheRace, past_the_shield: false }
            }
            15 => Incident::EvacuationMark { vm, marked: self.below(2) == 0 },
            16 => Incident::Evicted { vm },
            17 => Incident::Restarts { vm, to: None },
            18 => Incident::LeaseDeleted,
            _ => Incident::RoutesLost { host },
        })
    }

    /// Something of the kinds that [`incident`](Self::incident) does not draw, as far as no data is lost by it alone.
    pub fn further(&mut self) -> Option<Incident> {
        let (host, interface, resource, machine) = self.victims()?;
        let vm = machine.name.clone();
        Some(match self.below(Self::FURTHER) {
            0 => Incident::MemberLeaves { host, interface },
            1 => Incident::HoldDeleted,
            2 => Incident::ShieldDeleted { vm },
            3 => {
                let name = VmName::new(format!("{vm}-late")).ok()?;
                Incident::Appears { vm: Box::new(VmSpec { name, ..machine }) }
            }
            4 => Incident::HostDies { host },
            5 => Incident::HostReturns { host },
            6 => Incident::ConfigurationSet { host, mode: BondMode::ActiveBackup },
            7 => Incident::Eligible { host, eligible: self.below(2) == 0 },
            8 => Incident::Blocked { resource, blocked: self.below(2) == 0 },
            9 => Incident::SplitBrainAnnounced { resource, host },
            10 => Incident::IoSuspended { resource, host, suspended: self.below(2) == 0 },
            11 => Incident::CrashedPrimary { resource, host },
            12 => {
                let past_the_shield = self.below(2) == 0;
                Incident::Migrates { vm, to: host, fate: MigrationFate::PostCopy, past_the_shield }
            }
            13 => Incident::Stops { vm },
            14 => Incident::Disappears { vm },
            15 => Incident::Redeclared { vm, setting: EvictionSetting::Unset },
            _ => Incident::EffectiveChanged { vm, setting: EvictionSetting::Unset },
        })
    }

    /// What neither of the others draws, from so long after the world's beginning on: data that is lost by itself, copies
    /// that prove nothing, and what ends only by a second incident.
    pub fn course(&mut self) -> Option<Vec<TimedIncident>> {
        let (host, _, resource, machine) = self.victims()?;
        let vm = machine.name;
        let at = Duration::from_millis(self.below(60_000));
        let soon = at + Duration::from_millis(1 + self.below(20_000));
        let flag = self.below(2) == 0;
        let net = |protocol, after_split_brain, allow_two_primaries| Incident::NetChanged {
            resource: resource.clone(),
            protocol,
            after_split_brain,
            allow_two_primaries,
        };
        let discards = || Some(AfterSplitBrain::Unknown("discard-secondary".to_owned()));
        let (first, then) = match self.below(Self::COURSES) {
            0 => {
                let block = u32::try_from(self.below(16)).unwrap_or_default();
                let verify = Incident::Verify { resource: resource.clone() };
                (Incident::Rots { resource, host, block }, flag.then_some(verify))
            }
            1 => {
                // Nothing was counted, so nothing is dropped, while the copies are together.
                let dropped = Incident::BitsDropped { resource: resource.clone(), host: host.clone() };
                (Incident::Diverges { resource, host, writes: 2 }, Some(dropped))
            }
            2 => (Incident::BitsDropped { resource, host }, None),
            3 => (Incident::DayZero { resource, host }, None),
            4 => (Incident::JustCreated { resource, host: flag.then_some(host) }, None),
            5 => {
                let reboots = Incident::HostReboots { host: host.clone() };
                (Incident::DiskFails { resource, host }, flag.then_some(reboots))
            }
            6 => (Incident::Verify { resource }, None),
            7 => (net(Some(Protocol::A), None, None), flag.then(|| net(Some(Protocol::C), None, None))),
            8 => (
                net(None, discards(), None),
                flag.then_some(Incident::Diverges { resource, host, writes: 1 }),
            ),
            9 => (net(None, None, Some(true)), flag.then_some(Incident::Restarts { vm, to: Some(host) })),
            10 => {
                let module =
                    |minor, patch| Incident::Module { version: ModuleVersion { major: 9, minor, patch } };
                (module(1, 23), flag.then(|| module(2, 19)))
            }
            11 => {
                let fate = MigrationFate::Stuck { ends_after: None };
                let number = 1 + self.below(2);
                let ends = MigrationName::new(format!("{vm}-{number}")).ok()?;
                let stuck = Incident::Migrates { vm, to: host, fate, past_the_shield: flag };
                (stuck, Some(Incident::MigrationEnds { migration: ends }))
            }
            _ => (Incident::HostDies { host: host.clone() }, Some(Incident::HostReturns { host })),
        };
        let first = TimedIncident { at, what: first };
        Some([Some(first), then.map(|what| TimedIncident { at: soon, what })].into_iter().flatten().collect())
    }

    /// A host with one of its members, a resource and a machine, always drawn in this order.
    fn victims(&mut self) -> Option<(HostName, InterfaceName, ResourceName, VmSpec)> {
        let host = self.index(self.hosts.len());
        let resource = self.index(self.resources.len());
        let machine = self.index(self.machines.len());
        let (host, members) = self.hosts.get(host)?.clone();
        let interface = self.index(members.len());
        let interface = members.get(interface)?.clone();
        Some((host, interface, self.resources.get(resource)?.clone(), self.machines.get(machine)?.clone()))
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_is_drawn_and_the_same_seed_draws_the_same() {
        let draw = |seed| {
            let mut troubles = Troubles::new(seed, &WorldSpec::pair());
            (0..1000).map(|_| troubles.incident().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        // `WireLoses` is drawn in two ways.
        let kinds: BTreeSet<_> = draw(7).iter().map(Incident::name).collect();
        assert_eq!(kinds.len() as u64, Troubles::KINDS - 1, "{kinds:?}");
        let mut troubles = Troubles::new(7, &WorldSpec::pair());
        let further: BTreeSet<_> = (0..1000).map(|_| troubles.further().unwrap().name()).collect();
        assert_eq!(further.len() as u64, Troubles::FURTHER, "{further:?}");
        // Only migrations are drawn by both, of another fate.
        assert_eq!(further.intersection(&kinds).collect::<Vec<_>>(), [&"migrates"]);
    }

    /// Storms promise every incident there is. The list is the one that a scenario file is read by.
    #[test]
    fn every_incident_is_drawn_by_one_of_the_calls() {
        let unknown = serde_json::from_str::<Incident>(r#""no_incident""#).unwrap_err().to_string();
        let (_, listed) = unknown.split_once("expected one of ").unwrap();
        let all: BTreeSet<_> =
            listed.split('`').skip(1).step_by(2).map(|name| name.replace('_', "-")).collect();
        let mut troubles = Troubles::new(7, &WorldSpec::pair());
        let mut drawn = BTreeSet::new();
        for _ in 0..1000 {
            drawn.extend(
                [troubles.incident().unwrap(), troubles.further().unwrap()]
                    .map(|what| what.name().to_owned()),
            );
            drawn.extend(troubles.course().unwrap().iter().map(|incident| incident.what.name().to_owned()));
        }
        assert_eq!(drawn, all);
    }

    #[test]
    fn a_world_with_nothing_in_it_is_befallen_by_nothing() {
        let world =
            WorldSpec { hosts: Vec::new(), resources: Vec::new(), vms: Vec::new(), ..WorldSpec::pair() };
        assert_eq!(Troubles::new(1, &world).incident(), None);
        assert_eq!(Troubles::new(1, &world).further(), None);
        assert_eq!(Troubles::new(1, &world).course(), None);
    }
}
