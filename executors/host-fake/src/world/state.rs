//! The truth, and what falls due. Locked by the handle; knows no futures. Each kind of thing changes in a module
//! of its own: `operate`, `replicate`, `resync`, `writes`, `machines`, `lease`, `befall`; `judge` says what should not
//! have been.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, SystemTime};

use executor_api::host::{
    AbortStatus, EvictionSetting, EvictionStrategy, FenceValue, Generation, HostName, MigrationName,
    MigrationPhase, PlanUid, ResourceName, VmName,
};

use super::agent::{Agent, Key, Operation};
use super::bond::{Bond, BondStep};
use super::judge::{Known, Subject};
use super::lease::Lock;
use super::ledger::Ledger;
use super::link::{Cabling, Quality};
use super::records::{Breach, BreachKind, Deed, Place, WorldEvent};
use super::replica::{Cause, Resource};
use crate::chance::mix;
use crate::faults::rules::FaultPlan;
use crate::faults::{CallKind, Fault};
use crate::incident::{Incident, MigrationFate};
use crate::spec::{Pace, StorageManner, VmSpec, WorldSpec};

/// What is to happen at its time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Due {
    /// An operation arrives for which nobody waits.
    Arrives {
        operation: Operation,
        seat: String,
        known: Known,
        deadline: SystemTime,
    },
    /// The next step of a flip.
    FlipStep(HostName),
    /// An agent is done.
    Ends {
        operation: Operation,
        seat: String,
        fault: Option<Fault>,
        since: u64,
    },
    PingTimeout {
        resource: ResourceName,
        one: HostName,
        other: HostName,
    },
    Handshake {
        resource: ResourceName,
        one: HostName,
        other: HostName,
    },
    Resync {
        resource: ResourceName,
        volume: u16,
        source: HostName,
        target: HostName,
    },
    Flush {
        resource: ResourceName,
        host: HostName,
        peer: HostName,
    },
    SuspensionEnds {
        resource: ResourceName,
        host: HostName,
        until: SystemTime,
    },
    PodStarts {
        host: HostName,
        round: u64,
    },
    Migration(MigrationName),
    AbortLands(MigrationName),
    Evacuation(VmName),
    VmStarts {
        vm: VmName,
        node: HostName,
    },
    Write {
        vm: VmName,
        pod: u64,
    },
    Boots(HostName),
    AgentBack(HostName),
    BondReverts {
        host: HostName,
        mode: executor_api::host::BondMode,
    },
    Befalls(Box<Incident>),
}

/// One host.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) alive: bool,
    pub(crate) boot: u64,
    pub(crate) eligible: bool,
    pub(crate) bond: Bond,
    pub(crate) agent: Agent,
    pub(crate) kept_away: bool,
    pub(crate) pods: BTreeSet<String>,
    /// Grows with every drain, so that a pod that was to come before it does not.
    pub(crate) pod_round: u64,
    pub(crate) flip: Option<Flip>,
}

/// A bond on its way to another mode.
#[derive(Clone, Debug)]
pub(crate) struct Flip {
    pub(crate) key: Key,
    pub(crate) steps: VecDeque<BondStep>,
    pub(crate) done: usize,
    pub(crate) fault: Option<Fault>,
    pub(crate) was: executor_api::host::BondMode,
}

/// One machine.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own; together they are no state machine"
)]
pub(crate) struct Vm {
    pub(crate) resources: BTreeSet<ResourceName>,
    /// What it had at the beginning.
    pub(crate) first: EvictionSetting,
    pub(crate) declared: EvictionSetting,
    pub(crate) running: Option<Instance>,
    pub(crate) refuses_evictions: bool,
    pub(crate) refuses_migrations: bool,
    /// Somebody deleted what refused them, and no operation put it back.
    pub(crate) shield_taken_away: bool,
    /// An operation of this plan pinned it and none has restored it.
    pub(crate) pinned_by: Option<PlanUid>,
    pub(crate) writes_every: Option<Duration>,
    /// How many writes it has asked for.
    pub(crate) turn: u64,
    /// A write of it is not done yet.
    pub(crate) waiting: bool,
}

/// A running instance.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) pod: u64,
    pub(crate) node: HostName,
    pub(crate) effective: EvictionSetting,
    pub(crate) evacuating_from: Option<HostName>,
}

/// One migration.
#[derive(Clone, Debug)]
pub(crate) struct Migration {
    pub(crate) vm: VmName,
    pub(crate) phase: MigrationPhase,
    pub(crate) target: HostName,
    pub(crate) abort_requested: bool,
    pub(crate) abort_status: Option<AbortStatus>,
    pub(crate) post_copy: bool,
    pub(crate) fate: MigrationFate,
}

/// Everything.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) start: SystemTime,
    pub(crate) now: SystemTime,
    pub(crate) pace: Pace,
    pub(crate) manner: StorageManner,
    pub(crate) default_eviction: EvictionStrategy,
    pub(crate) live_update: bool,
    pub(crate) cabling: Cabling,
    /// How good each link is, as of the last change of a bond, a wire or a host.
    pub(crate) links: BTreeMap<HostName, BTreeMap<HostName, Quality>>,
    pub(crate) hosts: BTreeMap<HostName, Host>,
    pub(crate) resources: BTreeMap<ResourceName, Resource>,
    pub(crate) vms: BTreeMap<VmName, Vm>,
    pub(crate) migrations: BTreeMap<MigrationName, Migration>,
    /// The one that acts on machines.
    pub(crate) vm_agent: Agent,
    pub(crate) lock: Lock,
    pub(crate) ledger: Ledger,
    /// Blocks that differ in a way that nothing shows.
    pub(crate) hidden: BTreeSet<(ResourceName, u16, u32)>,
    pub(crate) faults: FaultPlan,
    pub(crate) incidents: BTreeMap<&'static str, u64>,
    pub(crate) calls: BTreeMap<CallKind, u64>,
    pub(crate) log: Vec<WorldEvent>,
    pub(crate) deeds: Vec<Deed>,
    pub(crate) breaches: Vec<Breach>,
    /// The highest fence under which anything was changed.
    pub(crate) acted: Option<FenceValue>,
    pub(crate) known: BTreeMap<String, Known>,
    /// When a caller's next call left it, where that is before the call is made.
    pub(crate) set_out: BTreeMap<String, SystemTime>,
    /// When the world last changed something by itself.
    pub(crate) moved: BTreeMap<Subject, u64>,
    due: BTreeMap<(SystemTime, u64), Due>,
    sequence: u64,
    generations: u64,
}

impl State {
    pub(crate) fn new(spec: &WorldSpec, now: SystemTime) -> Self {
        let host = |(number, spec): (usize, &crate::spec::HostSpec)| {
            let host = Host {
                alive: true,
                boot: 1,
                eligible: spec.eligible,
                bond: Bond::new(&spec.bond, number + 1),
                agent: Agent::default(),
                kept_away: false,
                pods: BTreeSet::from([format!("satellite-{}-1", spec.name)]),
                pod_round: 1,
                flip: None,
            };
            (spec.name.clone(), host)
        };
        let mut state = Self {
            start: now,
            now,
            pace: spec.pace,
            manner: spec.storage.clone(),
            default_eviction: spec.default_eviction.clone(),
            live_update: spec.live_update,
            cabling: Cabling { wiring: spec.wiring, loses: BTreeMap::new() },
            links: BTreeMap::new(),
            hosts: spec.hosts.iter().enumerate().map(host).collect(),
            resources: BTreeMap::new(),
            vms: BTreeMap::new(),
            migrations: BTreeMap::new(),
            vm_agent: Agent::default(),
            lock: Lock::default(),
            ledger: Ledger::default(),
            hidden: BTreeSet::new(),
            faults: FaultPlan::default(),
            incidents: BTreeMap::new(),
            calls: BTreeMap::new(),
            log: Vec::new(),
            deeds: Vec::new(),
            breaches: Vec::new(),
            acted: None,
            known: BTreeMap::new(),
            set_out: BTreeMap::new(),
            moved: BTreeMap::new(),
            due: BTreeMap::new(),
            sequence: 0,
            generations: 0,
        };
        for resource in &spec.resources {
            let (former, current) = (state.generation(), state.generation());
            state.resources.insert(resource.name.clone(), Resource::new(resource, current, former));
        }
        state.links_changed();
        for vm in &spec.vms {
            state.add_vm(vm);
        }
        // What made the world is nobody's doing.
        state.log.clear();
        state.moved.clear();
        state
    }

    fn add_vm(&mut self, spec: &VmSpec) {
        self.make_vm(spec);
        if let Some(node) = &spec.runs_on {
            self.start_vm(&spec.name, node);
            if let (Some(effective), Some(vm)) = (&spec.running_eviction, self.vms.get_mut(&spec.name))
                && let Some(running) = &mut vm.running
            {
                running.effective = effective.clone();
            }
        }
    }

    /// Lets everything happen that is due by `now`. Time never runs backwards here.
    pub(crate) fn settle(&mut self, now: SystemTime) {
        let now = now.max(self.now);
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let ((at, _), due) = entry.remove_entry();
            self.now = at.max(self.now);
            self.happen(due);
        }
        self.now = now;
    }

    /// When something is due next.
    pub(crate) fn next_due(&self) -> Option<SystemTime> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Something is to happen so much later.
    pub(crate) fn after(&mut self, delay: Duration, due: Due) {
        let at = later(self.now, delay);
        self.at(at, due);
    }

    /// Something is to happen then.
    pub(crate) fn at(&mut self, at: SystemTime, due: Due) {
        let key = (at, self.next());
        self.due.insert(key, due);
    }

    /// Everything that is to happen, in order.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (&(SystemTime, u64), &Due)> {
        self.due.iter()
    }

    /// Something is to happen so much later, unless it already will.
    pub(crate) fn once_after(&mut self, delay: Duration, due: Due) {
        if !self.due.values().any(|other| *other == due) {
            self.after(delay, due);
        }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// A generation that never was before. Its lowest bit is clear.
    pub(crate) fn generation(&mut self) -> Generation {
        self.generations += 1;
        Generation((mix(self.generations) & !1).max(0x100))
    }

    pub(crate) fn note(&mut self, place: Place, what: impl Into<String>) {
        self.log.push(WorldEvent { at: self.now, place, what: what.into() });
    }

    pub(crate) fn breach(&mut self, kind: BreachKind, place: Place, what: impl Into<String>, excused: bool) {
        let what = what.into();
        self.note(place.clone(), format!("breach: {kind:?}: {what}"));
        self.breaches.push(Breach { at: self.now, kind, place, what, excused });
    }

    /// The world changed something by itself.
    pub(crate) fn moves(&mut self, subject: Subject) {
        let at = self.next();
        self.moved.insert(subject, at);
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Arrives { operation, seat, known, deadline } => {
                self.faults.fire("landed");
                self.arrive_late(operation, seat, known, deadline);
            }
            Due::FlipStep(host) => self.flip_step(&host),
            Due::Ends { operation, seat, fault, since } => self.end(&operation, &seat, fault, since),
            Due::PingTimeout { resource, one, other } => self.ping_timeout(&resource, &one, &other),
            Due::Handshake { resource, one, other } => self.handshake(&resource, &one, &other),
            Due::Resync { resource, volume, source, target } => {
                self.resync_block(&resource, volume, &source, &target);
            }
            Due::Flush { resource, host, peer } => self.flush(&resource, &host, &peer),
            Due::SuspensionEnds { resource, host, until } => self.suspension_ends(&resource, &host, until),
            Due::PodStarts { host, round } => self.pod_starts(&host, &Cause::World, round),
            Due::Migration(name) => self.migration_step(&name),
            Due::AbortLands(name) => self.abort_lands(&name),
            Due::Evacuation(vm) => self.evacuate(&vm),
            Due::VmStarts { vm, node } => self.start_vm(&vm, &node),
            Due::Write { vm, pod } => self.write_due(&vm, pod),
            Due::Boots(host) => self.boots(&host),
            Due::AgentBack(host) => {
                if let Some(host) = self.hosts.get_mut(&host) {
                    host.agent.down_until = None;
                }
            }
            Due::BondReverts { host, mode } => {
                self.faults.fire("reverts");
                self.befall(&Incident::BondSet { host, mode: Some(mode) });
            }
            Due::Befalls(incident) => self.befall(&incident),
        }
    }
}

/// `at + delay`, or the end of time.
pub(crate) fn later(at: SystemTime, delay: Duration) -> SystemTime {
    at.checked_add(delay).unwrap_or(at)
}
