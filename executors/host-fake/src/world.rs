//! The handle to the world: the truth for those who check it, and the levers for those who disturb it. Every entry
//! first lets happen what is due. Cheap to clone; all clones are one world.

mod agent;
mod befall;
mod bond;
mod handshake;
mod judge;
mod key;
mod lease;
mod ledger;
mod link;
mod machines;
mod operate;
mod reading;
mod records;
mod replica;
mod replicate;
mod resync;
mod state;
mod writes;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use executor_api::Timer;
use executor_api::host::{
    BondReading, EvictionSetting, FenceValue, HostName, LockRecords, ResourceName, StorageReading, VmName,
    VmPicture,
};

pub(crate) use agent::{Admission, Operation};
pub(crate) use judge::{Known, Subject};
pub use key::{Letter, Naming};
pub(crate) use operate::refusal;
pub use records::{Breach, BreachKind, Deed, MissingWrite, Place, WorldEvent};
pub(crate) use state::{Due, State, later};
use writes::Wrote;

use crate::faults::rules::{Rule, Unsuited, Weather, Whose};
use crate::faults::{CallKind, Fault};
use crate::incident::Incident;
use crate::scenario::{Scenario, ScenarioError};
use crate::seat::Seat;
use crate::spec::{Pace, SpecProblem, WorldSpec};

/// One deterministic cluster.
#[derive(Clone)]
pub struct HostWorld {
    timer: Arc<dyn Timer>,
    state: Arc<Mutex<State>>,
}

impl HostWorld {
    /// A world that lives in the time of `timer`.
    ///
    /// # Errors
    /// The description makes no sense.
    pub fn new(timer: Arc<dyn Timer>, spec: &WorldSpec) -> Result<Self, SpecProblem> {
        spec.check()?;
        let state = State::new(spec, timer.now());
        Ok(Self { timer, state: Arc::new(Mutex::new(state)) })
    }

    /// A world with its troubles.
    ///
    /// # Errors
    /// The world makes no sense, or a fault is meant for a call that it cannot befall.
    pub fn of(timer: Arc<dyn Timer>, scenario: &Scenario) -> Result<Self, ScenarioError> {
        let world = Self::new(timer, &scenario.world)?;
        for incident in &scenario.incidents {
            world.schedule(incident.at, &incident.what);
        }
        for rule in &scenario.faults {
            world.script(rule.clone())?;
        }
        world.set_weather(scenario.weather.clone());
        Ok(world)
    }

    /// A copy of the world as it is now, which lives on by itself in the time of `timer`. Calls that are under way
    /// stay with the original; operations of agents go on in both.
    #[must_use]
    pub fn fork(&self, timer: Arc<dyn Timer>) -> Self {
        let state = self.enter(|state| state.clone());
        Self { timer, state: Arc::new(Mutex::new(state)) }
    }

    /// The place of one operator, by name: all that it reaches the world through.
    pub fn seat(&self, name: &str) -> Seat {
        Seat::new(self.clone(), name)
    }

    // Disturbing it.

    /// Adds a scripted fault behind those that are there.
    ///
    /// # Errors
    /// The fault cannot befall that call.
    pub fn script(&self, rule: Rule) -> Result<(), Unsuited> {
        self.enter(|state| state.faults.script(rule))
    }

    /// Sets or ends seeded misbehaviour.
    pub fn set_weather(&self, weather: Option<Weather>) {
        self.enter(|state| state.faults.set_weather(weather));
    }

    /// Ends all misbehaviour of calls to come. What is under way still happens, and counts are kept.
    pub fn clear_faults(&self) {
        self.enter(|state| state.faults.clear());
    }

    /// Changes how long things take from now on.
    pub fn set_pace(&self, pace: Pace) {
        self.enter(|state| state.pace = pace);
    }

    /// Something befalls the world so long after its beginning; at once if that is over.
    pub fn schedule(&self, at: Duration, incident: &Incident) {
        self.enter(|state| {
            let at = later(state.start, at).max(state.now);
            state.at(at, Due::Befalls(Box::new(incident.clone())));
        });
    }

    /// Something befalls the world now.
    pub fn befall(&self, incident: &Incident) {
        self.enter(|state| state.befall(incident));
    }

    /// A machine writes its next block now. Whether the write was acknowledged at once.
    pub fn write(&self, vm: &VmName) -> bool {
        self.enter(|state| state.write_next(vm) == Some(Wrote::Done))
    }

    // Asking it.

    /// Everything that really happened, oldest first.
    pub fn log(&self) -> Vec<WorldEvent> {
        self.enter(|state| state.log.clone())
    }

    /// What happened after the first `seen` events.
    pub fn log_from(&self, seen: usize) -> Vec<WorldEvent> {
        self.enter(|state| state.log.get(seen..).unwrap_or_default().to_vec())
    }

    /// The operations that agents let through, oldest first.
    pub fn deeds(&self) -> Vec<Deed> {
        self.enter(|state| state.deeds.clone())
    }

    /// What callers brought about and must never do.
    pub fn breaches(&self) -> Vec<Breach> {
        self.all_breaches().into_iter().filter(|breach| !breach.excused).collect()
    }

    /// The same, with what the world brought about by itself.
    pub fn all_breaches(&self) -> Vec<Breach> {
        self.enter(|state| state.breaches.clone())
    }

    /// Acknowledged writes that no copy holds any more.
    pub fn lost_writes(&self) -> Vec<MissingWrite> {
        self.enter(|state| state.missing(|_| true))
    }

    /// Those of them that the world destroyed by itself: incidents did, or copying that no caller asked for or that
    /// nothing could have warned of.
    pub fn taken_writes(&self) -> Vec<MissingWrite> {
        let mut lost = self.lost_writes();
        self.enter(|state| {
            lost.retain(|lost| {
                state.ledger.is_taken(&(lost.resource.clone(), lost.volume, lost.block), lost.write)
            });
        });
        lost
    }

    /// Acknowledged writes that this host's copy lacks.
    pub fn missing_on(&self, resource: &ResourceName, host: &HostName) -> Vec<MissingWrite> {
        self.enter(|state| state.missing(|at| at == host))
            .into_iter()
            .filter(|write| write.resource == *resource)
            .collect()
    }

    /// The hosts whose copy of a resource holds every acknowledged write.
    pub fn whole_copies(&self, resource: &ResourceName) -> Vec<HostName> {
        self.enter(|state| {
            let sides = state
                .resources
                .get(resource)
                .map(|resource| resource.sides.keys().cloned().collect::<Vec<_>>());
            sides.unwrap_or_default().into_iter().filter(|host| state.is_whole(resource, host)).collect()
        })
    }

    /// Whether every copy of every resource holds every acknowledged write and is connected to every other.
    pub fn is_in_sync(&self) -> bool {
        self.enter(|state| {
            let names: Vec<_> = state.resources.keys().cloned().collect();
            names.iter().all(|name| {
                let whole = state.resources[name].sides.keys().all(|host| state.is_whole(name, host));
                whole && state.unfit(name).is_none()
            })
        })
    }

    /// How many writes were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.enter(|state| state.ledger.count())
    }

    /// Machines whose declared setting is not what it was at the beginning, or that are still shielded.
    pub fn unrestored(&self) -> Vec<VmName> {
        self.enter(|state| {
            let vms = state.vms.iter();
            let changed = vms.filter(|(_, vm)| {
                let running = vm.running.as_ref().is_some_and(|running| running.effective != vm.declared);
                vm.declared != vm.first || vm.refuses_evictions || vm.refuses_migrations || running
            });
            changed.map(|(name, _)| name.clone()).collect()
        })
    }

    /// What was declared for a machine at the beginning.
    pub fn first_declared(&self, vm: &VmName) -> Option<EvictionSetting> {
        self.enter(|state| state.vms.get(vm).map(|vm| vm.first.clone()))
    }

    /// A bond as it is, even of a host that does not answer.
    pub fn bond(&self, host: &HostName) -> Option<BondReading> {
        self.enter(|state| state.hosts.get(host).map(|host| host.bond.reading(format!("boot-{}", host.boot))))
    }

    /// Whether a host's bond is up with all its members and in the mode of its configuration, and nobody works on it.
    pub fn bond_is_whole(&self, host: &HostName) -> bool {
        self.enter(|state| {
            state.hosts.get(host).is_some_and(|host| host.flip.is_none() && host.bond.is_whole())
        })
    }

    /// What a host would say about all its resources, undisturbed.
    pub fn storage(&self, host: &HostName) -> Option<StorageReading> {
        self.enter(|state| state.read_storage(host, state.resources.keys(), state.start, None))
    }

    /// All machines and migrations, undisturbed.
    pub fn vms(&self) -> VmPicture {
        self.enter(|state| state.read_vms(state.resources.keys(), None))
    }

    /// The lock's records.
    pub fn lock(&self) -> LockRecords {
        self.enter(|state| state.read_lock())
    }

    /// The highest fence that the agent on a host has met.
    pub fn highest_fence(&self, host: &HostName) -> Option<FenceValue> {
        self.enter(|state| state.hosts.get(host).map(|host| host.agent.highest()))
    }

    /// How many calls of each kind arrived.
    pub fn calls(&self) -> BTreeMap<CallKind, u64> {
        self.enter(|state| state.calls.clone())
    }

    /// How often each fault has really happened, by name. `landed` counts operations for which nobody waited.
    pub fn fired(&self) -> BTreeMap<&'static str, u64> {
        self.enter(|state| state.faults.fired.clone())
    }

    /// How often each incident has really happened, by name.
    pub fn incidents(&self) -> BTreeMap<&'static str, u64> {
        self.enter(|state| state.incidents.clone())
    }

    /// The world's time.
    pub fn now(&self) -> SystemTime {
        self.enter(|state| state.now)
    }

    /// When the world began.
    pub fn start(&self) -> SystemTime {
        self.enter(|state| state.start)
    }

    /// When something will happen by itself next.
    pub fn next_due(&self) -> Option<SystemTime> {
        self.enter(|state| state.next_due())
    }

    // For the seats.

    pub(crate) fn timer(&self) -> &Arc<dyn Timer> {
        &self.timer
    }

    /// Runs `f` on the truth once everything due has happened; what it makes due at once has happened afterwards.
    pub(crate) fn enter<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let now = self.timer.now();
        // Nothing panics half-way through a change.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.settle(now);
        let result = f(&mut state);
        state.settle(now);
        result
    }

    /// Counts a call that arrives and draws its fault.
    pub(crate) fn arrive(&self, whose: &Whose<'_>) -> Option<Fault> {
        self.enter(|state| {
            *state.calls.entry(whose.call).or_default() += 1;
            let (start, now) = (state.start, state.now);
            state.faults.draw(whose, start, now)
        })
    }

    pub(crate) fn fire(&self, fault: Fault) {
        self.enter(|state| state.faults.fire(fault.name()));
    }
}

impl State {
    /// Promised writes that none of the chosen hosts' copies holds.
    fn missing(&self, chosen: impl Fn(&HostName) -> bool) -> Vec<MissingWrite> {
        let mut missing = Vec::new();
        for (place, heads) in self.ledger.heads() {
            let (resource, volume, block) = place;
            let Some(truth) = self.resources.get(resource) else { continue };
            let contents: Vec<_> = truth
                .sides
                .iter()
                .filter(|(host, _)| chosen(host))
                .filter_map(|(_, side)| side.copies.get(volume).filter(|copy| copy.is_there()))
                .map(|copy| copy.blocks[*block as usize])
                .collect();
            for write in heads {
                if !contents.iter().any(|content| self.ledger.holds(*content, *write)) {
                    let (resource, volume, block) = (resource.clone(), *volume, *block);
                    missing.push(MissingWrite { resource, volume, block, write: *write });
                }
            }
        }
        missing
    }
}

impl fmt::Debug for HostWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostWorld")
    }
}
