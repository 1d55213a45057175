//! What callers must not bring about, judged on the truth at the moment it happens. A caller is excused when the
//! world moved after the caller's last look: nobody could have known. That goes for a look that was new enough to act
//! on when the call left, and for no older one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use executor_api::host::{
    ConnectionState, DiskState, EvictionSetting, GateToken, HostAction, HostName, HostOperation,
    ResourceName, VmAction, VmOperation,
};

use super::agent::Operation;
use super::handshake::{Meeting, meet};
use super::link::Quality;
use super::records::{BreachKind, Deed, Place};
use super::replica::Cause;
use super::state::State;

/// What can be looked at, and what can move behind a caller's back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Subject {
    Storage(HostName),
    Bond(HostName),
    Pods(HostName),
    Link,
    Vms,
}

/// When a caller last looked at what.
pub(crate) type Known = BTreeMap<Subject, Glance>;

/// One look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Glance {
    /// Its place among all that happened.
    pub(crate) order: u64,
    at: SystemTime,
}

/// For how long a look is one to act on: as long as plans take evidence for such, unless they say otherwise.
const LOOK: Duration = Duration::from_secs(10);

/// The same for a probe of the link: from its end to the stamp of the gates, and from there to the last connect.
const PROBE: Duration = Duration::from_mins(1);

impl Glance {
    /// Its age, and up to which it is one to act on.
    pub(crate) fn age(&self, subject: &Subject, now: SystemTime) -> (Duration, Duration) {
        let counts = match subject {
            Subject::Link => PROBE,
            Subject::Storage(_) | Subject::Bond(_) | Subject::Pods(_) | Subject::Vms => LOOK,
        };
        (now.duration_since(self.at).unwrap_or_default(), counts)
    }
}

impl State {
    /// A caller looked.
    pub(crate) fn knows(&mut self, seat: &str, subject: Subject) {
        let glance = Glance { order: self.next(), at: self.now };
        self.known.entry(seat.to_owned()).or_default().insert(subject, glance);
    }

    /// What a caller knows whose call leaves now, or left before it fell asleep.
    pub(crate) fn knowledge(&mut self, seat: &str) -> Known {
        let left = self.set_out.remove(seat).unwrap_or(self.now);
        let known = self.known.get(seat).cloned().unwrap_or_default();
        let counts = |subject: &Subject, glance: &Glance| {
            let (age, counts) = glance.age(subject, left);
            age <= counts
        };
        known.into_iter().filter(|(subject, glance)| counts(subject, glance)).collect()
    }

    fn excused(&self, known: &Known, subjects: &[Subject]) -> bool {
        subjects.iter().any(|subject| match (self.moved.get(subject), known.get(subject)) {
            (Some(moved), Some(known)) => *moved > known.order,
            (Some(_) | None, None) | (None, Some(_)) => false,
        })
    }

    /// An operation was let through and begins.
    pub(crate) fn judge(&mut self, operation: &Operation, known: &Known) {
        let place = match operation {
            Operation::Host(operation) => Place::Host(operation.node.clone()),
            Operation::Vm(operation) => Place::Vm(operation.vm.clone()),
        };
        let (plan, id) = operation.key();
        let (at, fence, mutates) = (self.now, operation.fence(), operation.mutates());
        let what = operation.words();
        self.note(place.clone(), format!("begins: {what} ({id}, {fence})"));
        self.deeds.push(Deed {
            at,
            plan: plan.clone(),
            id,
            fence,
            place: place.clone(),
            what: what.clone(),
            mutates,
        });
        if !mutates {
            return;
        }
        let agents = self.hosts.values().map(|host| &host.agent).chain([&self.vm_agent]);
        let others: Vec<_> =
            agents.filter_map(|agent| agent.mutating()).filter(|other| *other != operation).collect();
        if let Some(other) = others.first() {
            let what = format!("{what} while {} is under way", other.words());
            self.breach(BreachKind::OperationsOverlap, place.clone(), what, false);
        }
        if !self.lock.granted.contains(&fence) {
            self.breach(BreachKind::FenceNeverGranted, place.clone(), format!("{what} under {fence}"), false);
        }
        if self.acted.is_some_and(|acted| fence < acted) {
            self.breach(BreachKind::HoldersInterleave, place.clone(), format!("{what} under {fence}"), false);
        }
        self.acted = self.acted.max(Some(fence));
        if self.lock.hold.as_ref().is_none_or(|hold| hold.plan != plan) {
            let excused = self.lock.hold_taken_away;
            self.breach(BreachKind::WithoutHold, place, format!("{what} for {plan}"), excused);
        }
        match operation {
            Operation::Host(operation) => self.judge_host(operation, known),
            Operation::Vm(operation) => self.judge_vm(operation, known),
        }
    }

    fn judge_host(&mut self, operation: &HostOperation, known: &Known) {
        let host = &operation.node;
        match &operation.action {
            HostAction::ResumeIo { .. } | HostAction::ProbeLink { .. } => return,
            HostAction::SetBondMode { .. } => self.judge_flip(host, known),
            HostAction::ConnectResource { resource, peer, .. } => {
                self.judge_reconnect(host, [(resource.clone(), peer.clone())].into(), known);
            }
            HostAction::UndrainSatellite { .. } => {
                let links = self.links_of(host);
                self.judge_reconnect(host, links, known);
            }
            HostAction::SuspendIo { .. }
            | HostAction::DisconnectResource { .. }
            | HostAction::DrainSatellite => {}
        }
        self.judge_pins(operation, known);
    }

    fn links_of(&self, host: &HostName) -> BTreeSet<(ResourceName, HostName)> {
        let mut links = BTreeSet::new();
        for (name, resource) in &self.resources {
            let Some(side) = resource.sides.get(host) else { continue };
            links.extend(side.links.keys().map(|peer| (name.clone(), peer.clone())));
        }
        links
    }

    fn judge_flip(&mut self, host: &HostName, known: &Known) {
        let others = self.hosts.iter().filter(|(name, _)| *name != host);
        let broken: Vec<_> = others
            .filter(|(_, other)| other.flip.is_some() || !other.bond.is_up_with_all())
            .map(|(name, _)| name.clone())
            .collect();
        for other in broken {
            let excused = self.excused(known, &[Subject::Bond(other.clone())]);
            let what = format!("{host} begins while the bond of {other} is not whole");
            self.breach(BreachKind::TwoBondsInTransition, Place::Host(host.clone()), what, excused);
        }
        let apart = |resource: &super::replica::Resource| {
            resource.sides.get(host).is_none_or(super::replica::Side::is_apart)
        };
        let connected: Vec<_> = self
            .resources
            .iter()
            .filter(|(_, resource)| !apart(resource))
            .map(|(name, _)| name.clone())
            .collect();
        let excused = self.excused(known, &[Subject::Storage(host.clone())]);
        for name in connected {
            let what = format!("{name} on {host} is connected or trying to be");
            self.breach(BreachKind::FlippedWhileConnected, Place::Host(host.clone()), what, excused);
        }
        let drained = self.hosts.get(host).is_some_and(|host| host.kept_away && host.pods.is_empty());
        if !drained {
            let excused = self.excused(known, &[Subject::Pods(host.clone())]);
            let what = format!("storage pods are on {host}, or may come");
            self.breach(BreachKind::FlippedUndrained, Place::Host(host.clone()), what, excused);
        }
    }

    fn judge_pins(&mut self, operation: &HostOperation, known: &Known) {
        let host = &operation.node;
        let here = |name: &ResourceName| {
            self.resources.get(name).is_some_and(|resource| resource.sides.contains_key(host))
        };
        let mut faults = Vec::new();
        for (name, vm) in &self.vms {
            if !vm.resources.iter().any(here) {
                continue;
            }
            let Some(running) = &vm.running else { continue };
            let shielded = vm.refuses_evictions && vm.refuses_migrations;
            if running.effective != EvictionSetting::PINNED || !shielded {
                faults.push((name.clone(), "is not pinned"));
            }
            if running.evacuating_from.is_some() {
                faults.push((name.clone(), "is marked to be moved away"));
            }
            let moving =
                self.migrations.values().any(|migration| migration.vm == *name && !migration.is_over());
            if moving {
                faults.push((name.clone(), "is being moved"));
            }
        }
        let excused = self.excused(known, &[Subject::Vms]);
        for (name, fault) in faults {
            let what = format!("{} while {name} {fault}", operation.action);
            self.breach(BreachKind::UnpinnedDuringHostChange, Place::Vm(name), what, excused);
        }
    }

    fn judge_vm(&mut self, operation: &VmOperation, known: &Known) {
        let VmAction::Restore { .. } = &operation.action else { return };
        let resources = self.vms.get(&operation.vm).map(|vm| vm.resources.clone()).unwrap_or_default();
        for name in resources {
            if let Some(what) = self.unfit(&name) {
                let hosts = self
                    .resources
                    .get(&name)
                    .map(|resource| resource.sides.keys().cloned().collect::<Vec<_>>());
                let subjects: Vec<_> = hosts.unwrap_or_default().into_iter().map(Subject::Storage).collect();
                let excused = self.excused(known, &subjects);
                let place = Place::Vm(operation.vm.clone());
                self.breach(BreachKind::RestoredTooEarly, place, what, excused);
            }
        }
    }

    /// What keeps every copy of a resource from being one that a machine may run on. Hidden differences count
    /// for nothing: no caller can know of them.
    pub(crate) fn unfit(&self, name: &ResourceName) -> Option<String> {
        let resource = self.resources.get(name)?;
        for (host, side) in &resource.sides {
            if let Some((peer, link)) =
                side.links.iter().find(|(_, link)| link.state != ConnectionState::Connected)
            {
                return Some(format!("{name} on {host} is {} toward {peer}", link.state));
            }
            if side.copies.values().any(|copy| copy.disk != DiskState::UpToDate) {
                return Some(format!("the copy of {name} on {host} is not up to date"));
            }
            if self.lacks(name, host) > 0 {
                return Some(format!("the copy of {name} on {host} lacks acknowledged writes"));
            }
        }
        None
    }

    /// How many blocks of a host's copy lack something promised in a way that shows.
    pub(crate) fn lacks(&self, name: &ResourceName, host: &HostName) -> usize {
        let Some(side) = self.resources.get(name).and_then(|resource| resource.sides.get(host)) else {
            return 0;
        };
        let heads = self.ledger.heads().map(|(place, _)| place).filter(|place| place.0 == *name);
        let lacking = heads.filter(|place| {
            let content = side.copies.get(&place.1).map(|copy| copy.blocks[place.2 as usize]);
            !self.hidden.contains(*place)
                && !content.is_some_and(|content| self.ledger.is_whole(place, content))
        });
        lacking.count()
    }

    /// Whether gates belong to the operation that carries them. An agent that is asked otherwise refuses.
    pub(crate) fn judge_gates(&mut self, operation: &HostOperation, gates: &GateToken) -> bool {
        let fits = gates.plan == operation.plan && gates.fence == operation.fence;
        if !fits {
            let what = format!("{} with gates of {} under {}", operation.action, gates.plan, gates.fence);
            self.breach(BreachKind::ReconnectWithoutGates, Place::Host(operation.node.clone()), what, false);
        }
        fits
    }

    fn judge_reconnect(&mut self, host: &HostName, links: BTreeSet<(ResourceName, HostName)>, known: &Known) {
        for (name, peer) in links {
            let Some(resource) = self.resources.get(&name) else { continue };
            if resource.connected(host, &peer) {
                continue;
            }
            if self.link(host, &peer) != Quality::Whole {
                let subjects = [Subject::Link, Subject::Bond(host.clone()), Subject::Bond(peer.clone())];
                let excused = self.excused(known, &subjects);
                let what = format!("{name} between {host} and {peer}");
                self.breach(BreachKind::ReconnectOverMarginalLink, Place::Host(host.clone()), what, excused);
            }
            if let Some((kind, what)) = self.assess(&name, host, &peer) {
                let excused =
                    self.excused(known, &[Subject::Storage(host.clone()), Subject::Storage(peer.clone())]);
                self.breach(kind, Place::Resource(name), what, excused);
            }
        }
    }

    /// Two sides are about to meet.
    pub(crate) fn judge_meeting(&mut self, name: &ResourceName, one: &HostName, other: &HostName) {
        let Some((kind, what)) = self.assess(name, one, other) else { return };
        let excused = self.nobody_could_know(name, one, other);
        self.breach(kind, Place::Resource(name.clone()), what, excused);
    }

    /// Nobody asked for a connection, or a copy moved after the last look of whoever did.
    pub(crate) fn nobody_could_know(&self, name: &ResourceName, one: &HostName, other: &HostName) -> bool {
        self.asked_by(name, one, other).is_none_or(|(_, since)| {
            [one, other].into_iter().any(|host| {
                self.moved.get(&Subject::Storage(host.clone())).is_some_and(|moved| *moved > since)
            })
        })
    }

    /// The operation through which a connection comes about, if one asked for it, and when its caller last looked.
    fn asked_by(&self, name: &ResourceName, one: &HostName, other: &HostName) -> Option<(String, u64)> {
        let resource = self.resources.get(name)?;
        let cause = |host: &HostName, peer: &HostName| match &resource.sides.get(host)?.links.get(peer)?.cause
        {
            Cause::World => None,
            Cause::Caller { what, since } => Some((what.clone(), *since)),
        };
        cause(one, other).max(cause(other, one))
    }

    /// What would be wrong with a meeting of two copies now.
    fn assess(&self, name: &ResourceName, one: &HostName, other: &HostName) -> Option<(BreachKind, String)> {
        let resource = self.resources.get(name)?;
        let module = self.manner.module;
        let careful = (module.major, module.minor, module.patch) >= (9, 2, 19);
        for volume in resource.volumes() {
            let (a, b) = (resource.copy(one, volume)?, resource.copy(other, volume)?);
            if !(a.is_there() && b.is_there()) {
                let what = format!("{one} or {other} has no disk under volume {volume}");
                return Some((BreachKind::ReconnectUnproved, what));
            }
            let meeting = meet(&a.card(other), &b.card(one), careful);
            let (source, target, from, to, all) = match meeting {
                Meeting::NoSync => (one, other, a, b, None),
                Meeting::FirstToSecond => (one, other, a, b, Some(false)),
                Meeting::SecondToFirst => (other, one, b, a, Some(false)),
                Meeting::AllToSecond => (one, other, a, b, Some(true)),
                Meeting::AllToFirst => (other, one, b, a, Some(true)),
                Meeting::SplitBrain | Meeting::SplitBrainFar | Meeting::Unrelated => {
                    return Some((BreachKind::ReconnectDiverged, format!("{one} and {other}: {meeting:?}")));
                }
            };
            for block in 0..u32::try_from(from.blocks.len()).unwrap_or(u32::MAX) {
                let place = (name.clone(), volume, block);
                let (ours, theirs) = (from.blocks[block as usize], to.blocks[block as usize]);
                if ours == theirs || self.hidden.contains(&place) {
                    continue;
                }
                let counted = from.toward.get(target).is_some_and(|toward| toward.bits.contains(&block))
                    || to.toward.get(source).is_some_and(|toward| toward.bits.contains(&block))
                    || (from.crashed_primary && from.hot.contains(&block));
                let copied = all.is_some_and(|all| all || counted);
                if !copied {
                    let what = format!("block {block} differs between {one} and {other} and would stay so");
                    return Some((BreachKind::ReconnectUnproved, what));
                }
                let promised =
                    |content: u64| self.ledger.owed(&place).any(|write| self.ledger.holds(content, write));
                if promised(theirs) && !promised(ours) {
                    let what = format!("block {block} of {target} would be lost to {source}");
                    return Some((BreachKind::ReconnectDiverged, what));
                }
            }
        }
        None
    }
}
