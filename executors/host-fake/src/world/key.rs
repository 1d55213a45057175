//! Tells worlds apart, for whoever searches them: two worlds with one key go on alike. Times count from now; numbers
//! that only have to be equal or in order (fences, generations, contents, pods, operations) are renamed; the past that
//! nothing asks for any more is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::time::{Duration, SystemTime};

use executor_api::host::{
    FenceValue, Generation, HostName, HostOperation, HostOperationId, ResourceName, VmOperation,
};

use super::HostWorld;
use super::agent::{Agent, Operation};
use super::judge::{Known, Subject};
use super::replica::{Cause, Copy, Resource, Suspension};
use super::state::{Due, State};
use crate::seat::Seat;

/// What is further off than this is not told apart: no search walks that long.
const FAR_OFF: Duration = Duration::from_mins(5);

/// A number for each thing that is named, in the order of their first naming.
#[derive(Default)]
struct Names(BTreeMap<u64, u64>);

impl Names {
    fn of(&mut self, thing: u64) -> u64 {
        let next = self.0.len() as u64;
        *self.0.entry(thing).or_insert(next)
    }
}

/// An operation that was sent and has not arrived. Whoever sent it may be gone by the time it does.
#[derive(Clone, Debug)]
pub struct Letter {
    operation: Operation,
    seat: String,
    known: Known,
}

impl Letter {
    /// The fence that it carries.
    pub fn fence(&self) -> FenceValue {
        self.operation.fence()
    }

    /// Its identity.
    pub fn id(&self) -> HostOperationId {
        self.operation.key().1
    }

    /// In words.
    pub fn words(&self) -> String {
        self.operation.words()
    }
}

impl Seat {
    /// Sends an operation to a host and waits for nothing: it arrives when it is [delivered](HostWorld::deliver).
    pub fn post_host(&self, operation: &HostOperation) -> Letter {
        self.post(Operation::Host(operation.clone()))
    }

    /// Sends an operation to a machine, likewise.
    pub fn post_vm(&self, operation: &VmOperation) -> Letter {
        self.post(Operation::Vm(operation.clone()))
    }

    fn post(&self, operation: Operation) -> Letter {
        let known = self.world().enter(|state| state.knowledge(self.name()));
        Letter { operation, seat: self.name().to_owned(), known }
    }
}

/// What a search knows of the numbers in a world.
#[expect(missing_debug_implementations, reason = "holds a function")]
pub struct Naming<'a> {
    /// Every fence that somebody still carries, those of [`HostWorld::fences`] included: only their order counts.
    pub fences: &'a BTreeSet<FenceValue>,
    /// Operations that may arrive or be asked for again. What agents remember of others no longer matters.
    pub open: &'a BTreeSet<HostOperationId>,
    /// The names under which operators hold the lease and look, each by its place.
    pub operators: &'a [&'a str],
    /// Operations on their way.
    pub letters: &'a [Letter],
    /// How many resyncs of a volume on a host count as none.
    pub resyncs: &'a dyn Fn(&ResourceName, &HostName, u16) -> usize,
}

impl HostWorld {
    /// An operation that was on its way arrives. Its deadline lies in the sender's time, which may be any: it is not over.
    pub fn deliver(&self, letter: &Letter) {
        let Letter { operation, seat, known } = letter.clone();
        self.enter(|state| {
            let deadline = state.now;
            state.arrive_late(operation, seat, known, deadline);
        });
    }

    /// Whether an operation on its way can do nothing any more, whenever it arrives: its agent has met a higher fence,
    /// or is done with it.
    pub fn is_void(&self, letter: &Letter) -> bool {
        self.enter(|state| {
            let agent = match &letter.operation {
                Operation::Host(operation) => state.hosts.get(&operation.node).map(|host| &host.agent),
                Operation::Vm(_) => Some(&state.vm_agent),
            };
            agent.is_none_or(|agent| {
                letter.fence() < agent.highest()
                    || !matches!(agent.remembers(letter.id()), "nothing" | "begun")
            })
        })
    }

    /// Drops the log and what else only people read, and what agents remember of any but these operations: copies cost
    /// less without it. Breaches stay.
    pub fn forget_the_past(&self, open: &BTreeSet<HostOperationId>) {
        self.enter(|state| {
            for agent in state.hosts.values_mut().map(|host| &mut host.agent).chain([&mut state.vm_agent]) {
                agent.forget_all_but(open);
            }
            state.log.clear();
            state.deeds.clear();
            state.calls.clear();
        });
    }

    /// The fences that the world remembers and compares.
    pub fn fences(&self) -> BTreeSet<FenceValue> {
        self.enter(|state| {
            let agents = state.hosts.values().map(|host| &host.agent).chain([&state.vm_agent]);
            let lease = state.lock.lease.as_ref().map(|held| held.record.fence);
            agents.map(Agent::highest).chain(state.acted).chain(lease).collect()
        })
    }

    /// How many resyncs of a volume a host has seen end.
    pub fn resyncs_finished(&self, resource: &ResourceName, host: &HostName, volume: u16) -> usize {
        self.enter(|state| {
            let copy = state.resources.get(resource).and_then(|resource| resource.copy(host, volume));
            copy.map_or(0, |copy| copy.toward.values().map(|toward| toward.finished.len()).sum())
        })
    }

    /// Feeds a hash with everything that the future depends on. Worlds that were made alike and feed alike behave
    /// alike under the same naming.
    pub fn feed(&self, naming: &Naming<'_>, hash: &mut impl Hasher) {
        self.enter(|state| state.feed(naming, hash));
    }
}

impl State {
    fn feed(&self, naming: &Naming<'_>, hash: &mut impl Hasher) {
        self.feed_hosts(naming, hash);
        self.feed_storage(naming, hash);
        self.feed_machines(hash);
        self.feed_lock(naming, hash);
        self.feed_knowledge(naming, hash);
        for ((at, _), due) in self.pending() {
            self.until(*at).hash(hash);
            self.feed_due(due, naming, hash);
        }
        self.breaches.len().hash(hash);
    }

    /// How long until then; nothing for what is past, and no more than is far off.
    fn until(&self, at: SystemTime) -> Duration {
        at.duration_since(self.now).unwrap_or_default().min(FAR_OFF)
    }

    fn feed_hosts(&self, naming: &Naming<'_>, hash: &mut impl Hasher) {
        for (name, host) in &self.hosts {
            (name, host.alive, host.boot, host.eligible, &host.bond, host.kept_away).hash(hash);
            (host.pods.is_empty(), host.agent.down_until.map(|at| self.until(at))).hash(hash);
            host.flip.as_ref().map(|flip| (&flip.steps, flip.done, &flip.was)).hash(hash);
        }
        self.cabling.hash(hash);
        for agent in self.hosts.values().map(|host| &host.agent).chain([&self.vm_agent]) {
            rank(naming, agent.highest()).hash(hash);
            agent.is_busy().hash(hash);
            for (place, id) in naming.open.iter().enumerate() {
                (place, agent.remembers(*id)).hash(hash);
            }
        }
        self.acted.map(|acted| rank(naming, acted)).hash(hash);
    }

    fn feed_storage(&self, naming: &Naming<'_>, hash: &mut impl Hasher) {
        let (mut generations, mut contents) = (Names::default(), Names::default());
        contents.of(0);
        for (name, resource) in &self.resources {
            let mut resource = resource.clone();
            let rivals = rivals(&resource);
            for (host, side) in &mut resource.sides {
                if let Some(Suspension::Until(at)) = &mut side.suspended {
                    *at = SystemTime::UNIX_EPOCH + self.until(*at);
                }
                side.announced.truncate(1);
                side.announced.fill(SystemTime::UNIX_EPOCH);
                for (peer, link) in &mut side.links {
                    if let Cause::Caller { what, since } = &mut link.cause {
                        // Only whether the world moved under it since is ever asked.
                        let moved = [host, peer].into_iter().any(|at| {
                            self.moved.get(&Subject::Storage(at.clone())).is_some_and(|at| *at > *since)
                        });
                        what.clear();
                        *since = u64::from(moved);
                    }
                    link.unsent.iter_mut().for_each(|(_, _, content)| *content = contents.of(*content));
                }
                for (volume, copy) in &mut side.copies {
                    let base = (naming.resyncs)(name, host, *volume);
                    rename(copy, &mut generations, &mut contents, &rivals, base);
                }
            }
            (name, &resource).hash(hash);
        }
        for (place, heads) in self.ledger.heads() {
            let owed = heads.iter().filter(|head| !self.ledger.is_taken(place, **head));
            let heads: BTreeSet<_> = owed.map(|head| contents.of(*head)).collect();
            (place, heads).hash(hash);
        }
        // What never was acknowledged counts as what it replaced.
        let torn: BTreeMap<_, _> = (contents.0.clone().into_iter())
            .filter_map(|(content, name)| Some((name, contents.of(self.ledger.replaced_by(content)?))))
            .collect();
        (torn, &self.hidden).hash(hash);
    }

    fn feed_machines(&self, hash: &mut impl Hasher) {
        for (name, vm) in &self.vms {
            (name, setting(&vm.declared), vm.refuses_evictions, vm.refuses_migrations).hash(hash);
            vm.shield_taken_away.hash(hash);
            (&vm.pinned_by, vm.waiting, vm.turn % self.blocks_of(vm).max(1)).hash(hash);
            let running = vm.running.as_ref();
            running
                .map(|running| (&running.node, setting(&running.effective), &running.evacuating_from))
                .hash(hash);
        }
        for (name, migration) in self.migrations.iter().filter(|(_, migration)| !migration.is_over()) {
            (name, format!("{migration:?}")).hash(hash);
        }
    }

    fn blocks_of(&self, vm: &super::state::Vm) -> u64 {
        let blocks = vm.resources.iter().filter_map(|name| self.resources.get(name)).flat_map(|resource| {
            let side = resource.sides.values().next();
            side.into_iter().flat_map(|side| side.copies.values().map(|copy| copy.blocks.len() as u64))
        });
        blocks.sum::<u64>() * vm.resources.len() as u64
    }

    fn feed_lock(&self, naming: &Naming<'_>, hash: &mut impl Hasher) {
        let held = self.lock.lease.as_ref().map(|held| {
            let place = naming.operators.iter().position(|name| *name == held.record.holder.as_str());
            let age = self.now.duration_since(held.renewed).unwrap_or_default();
            (place, rank(naming, held.record.fence), held.record.ttl, age.min(held.record.ttl))
        });
        held.hash(hash);
        (self.lock.hold.as_ref().map(|hold| &hold.plan), self.lock.hold_taken_away).hash(hash);
    }

    fn feed_knowledge(&self, naming: &Naming<'_>, hash: &mut impl Hasher) {
        let behind = |known: Option<&Known>| -> Vec<(Subject, bool)> {
            let moved = self.moved.iter();
            moved
                .map(|(subject, moved)| {
                    let known = known.and_then(|known| known.get(subject));
                    (subject.clone(), known.is_some_and(|known| *moved > known.order))
                })
                .collect()
        };
        for name in naming.operators {
            let known = self.known.get(*name);
            let behind = behind(known);
            // Only who is behind is ever excused, and only for so long.
            for (subject, _) in behind.iter().filter(|(_, behind)| *behind) {
                let age =
                    known.and_then(|known| known.get(subject)).map(|known| known.age(subject, self.now));
                age.map(|(age, counts)| age.min(counts + Duration::from_secs(1))).hash(hash);
            }
            behind.hash(hash);
        }
        for letter in naming.letters {
            (letter.words(), rank(naming, letter.fence()), behind(Some(&letter.known))).hash(hash);
            naming.open.iter().position(|id| *id == letter.id()).hash(hash);
        }
    }

    fn feed_due(&self, due: &Due, naming: &Naming<'_>, hash: &mut impl Hasher) {
        match due {
            Due::SuspensionEnds { resource, host, .. } => ("suspension", resource, host).hash(hash),
            Due::PodStarts { host, round } => {
                let counts = self.hosts.get(host).is_some_and(|host| host.pod_round == *round);
                ("pod", host, counts).hash(hash);
            }
            Due::Arrives { operation, deadline, .. } => {
                let left = deadline.duration_since(self.now).ok();
                ("arrives", operation.words(), rank(naming, operation.fence()), left).hash(hash);
            }
            Due::Ends { operation, fault, .. } => {
                ("ends", operation.words(), format!("{fault:?}")).hash(hash);
            }
            Due::Write { vm, .. } => ("write", vm).hash(hash),
            Due::FlipStep(_)
            | Due::PingTimeout { .. }
            | Due::Handshake { .. }
            | Due::Resync { .. }
            | Due::Flush { .. }
            | Due::Migration(_)
            | Due::AbortLands(_)
            | Due::Evacuation(_)
            | Due::VmStarts { .. }
            | Due::Boots(_)
            | Due::AgentBack(_)
            | Due::BondReverts { .. }
            | Due::Befalls(_) => format!("{due:?}").hash(hash),
        }
    }
}

fn rank(naming: &Naming<'_>, fence: FenceValue) -> usize {
    naming.fences.iter().position(|other| *other == fence).unwrap_or(usize::MAX)
}

fn setting(setting: &executor_api::host::EvictionSetting) -> String {
    setting.to_string()
}

/// The generations that a former one could still be recognised as: what any copy is of, or counts from.
fn rivals(resource: &Resource) -> BTreeSet<u64> {
    let copies = resource.sides.values().flat_map(|side| side.copies.values());
    copies
        .flat_map(|copy| {
            let bitmaps = copy.toward.values().map(|toward| toward.bitmap.masked());
            bitmaps.chain([copy.current.masked()])
        })
        .collect()
}

fn rename(
    copy: &mut Copy,
    generations: &mut Names,
    contents: &mut Names,
    rivals: &BTreeSet<u64>,
    resyncs: usize,
) {
    let mut named = |generation: Generation| {
        if generation.is_trivial() {
            return generation;
        }
        Generation(((generations.of(generation.masked()) + 16) << 1) | (generation.0 & 1))
    };
    // Former generations show that identifiers were ever rotated, and are met again as somebody's current one; the
    // first two are what a host reports.
    let mut place = 0;
    copy.history.retain(|former| {
        place += 1;
        place <= 2 || rivals.contains(&former.masked())
    });
    for generation in copy.history.iter_mut().chain([&mut copy.current]) {
        *generation = named(*generation);
    }
    for toward in copy.toward.values_mut() {
        toward.bitmap = named(toward.bitmap);
        let since = toward.finished.len().saturating_sub(resyncs).min(1);
        toward.finished = vec![SystemTime::UNIX_EPOCH; since];
    }
    copy.blocks
        .iter_mut()
        .chain(copy.lapsed.values_mut())
        .for_each(|content| *content = contents.of(*content));
}
