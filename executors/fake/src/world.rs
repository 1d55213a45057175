//! The handle to the world: the truth for those who check it, and the levers for those who disturb it.
//! Every entry first lets happen what is due. Cheap to clone; all clones are one world.

mod records;
pub(crate) mod state;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use executor_api::{AttemptKey, BootstrapSessionId, Executor, LeaseId, Life, LogicalNodeId, RunId, Timer};

pub use records::{
    Breach, BreachKind, Happened, Incident, LeaseTruth, SessionPhase, SessionTruth, WorldEvent,
};
use state::State;

use crate::behaviour::FakeBehaviour;
use crate::faults::{CallKind, Fault, Rule, Unsuited, Weather};
use crate::provider::FakeProvider;

/// One deterministic world.
#[derive(Clone)]
pub struct FakeWorld {
    timer: Arc<dyn Timer>,
    state: Arc<Mutex<State>>,
}

impl FakeWorld {
    /// An empty world that lives in the time of `timer`.
    pub fn new(timer: Arc<dyn Timer>, behaviour: FakeBehaviour) -> Self {
        let state = State::new(behaviour, timer.now());
        Self { timer, state: Arc::new(Mutex::new(state)) }
    }

    /// A new provider on this world. It remembers nothing of other providers' calls: this is a restart.
    pub fn provider(&self) -> FakeProvider {
        FakeProvider::new(self.clone())
    }

    /// A new provider on this world, as the driver calls it.
    pub fn executor(&self) -> Executor {
        self.provider().executor()
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

    /// Changes how the world behaves from now on.
    pub fn set_behaviour(&self, change: impl FnOnce(&mut FakeBehaviour)) {
        self.enter(|state| change(&mut state.behaviour));
    }

    /// Listings come in pages of this size from now on; `None`: in one. A page begins at a position, so that pages
    /// shift when something before it disappears.
    pub fn set_page(&self, size: Option<usize>) {
        self.enter(|state| state.page = size);
    }

    /// The next page of a listing has nothing on it, and the same ones behind it. Counted as `empty-page` once it
    /// has happened.
    pub fn empty_page(&self) {
        self.enter(|state| state.empty_page = true);
    }

    /// While the pages of the next listing are read, the first lease shown disappears without a trace. Counted as
    /// `shifted` once it has happened.
    pub fn shift_pages(&self) {
        self.enter(|state| state.shift = true);
    }

    /// Something befalls whatever lease or session the slot has at that time.
    pub fn schedule(&self, at: SystemTime, node: &LogicalNodeId, incident: Incident) {
        self.enter(|state| state.schedule_incident(at, node.clone(), incident));
    }

    /// Something befalls the slot's lease or session now.
    pub fn befall(&self, node: &LogicalNodeId, incident: &Incident) {
        self.enter(|state| state.befall(node, incident));
    }

    /// A lease dies and is listed as dead.
    pub fn kill(&self, lease: &LeaseId, why: &str) {
        self.enter(|state| state.end_lease(lease, why, false, false));
    }

    /// A lease disappears without a trace, as if removed by hand long ago.
    pub fn vanish(&self, lease: &LeaseId) {
        self.enter(|state| state.end_lease(lease, "vanished", false, true));
    }

    /// A lease changes its address.
    pub fn move_lease(&self, lease: &LeaseId) {
        self.enter(|state| state.move_lease(lease));
    }

    /// Makes a lease that carries this attempt's identity, behind everybody's back.
    pub fn plant(&self, key: &AttemptKey) -> LeaseId {
        let identity = key.identity();
        self.enter(|state| state.plant(identity.labels, identity.resource_name))
    }

    /// Starts a session of this attempt on this lease, behind everybody's back; it never joins.
    pub fn plant_session(&self, key: &AttemptKey, lease: &LeaseId) -> BootstrapSessionId {
        self.enter(|state| state.plant_session(key, lease))
    }

    /// Makes a lease with these labels, complete or not.
    pub fn plant_alien(&self, labels: BTreeMap<String, String>) -> LeaseId {
        self.enter(|state| state.plant(labels, "alien".to_owned()))
    }

    // Asking it.

    /// Every lease there ever was, oldest first.
    pub fn leases(&self) -> Vec<LeaseTruth> {
        self.enter(|state| state.leases.values().map(|lease| lease.truth.clone()).collect())
    }

    /// The leases that exist now, oldest first.
    pub fn existing_leases(&self) -> Vec<LeaseTruth> {
        self.leases().into_iter().filter(LeaseTruth::exists).collect()
    }

    /// The leases that existed at a moment, with the life they then had.
    pub fn leases_at(&self, at: SystemTime) -> Vec<LeaseTruth> {
        self.enter(|state| {
            let then = state.leases.values().filter_map(|lease| Some((lease, lease.life_at(at)?)));
            then.filter(|(_, life)| *life != Life::Dead)
                .map(|(lease, life)| LeaseTruth { life, ..lease.truth.clone() })
                .collect()
        })
    }

    /// The leases that exist for an attempt.
    pub fn leases_of(&self, key: &AttemptKey) -> Vec<LeaseTruth> {
        self.enter(|state| {
            state.leases_of(key).map(|lease| lease.truth.clone()).filter(LeaseTruth::exists).collect()
        })
    }

    /// The leases that exist for a slot, whatever the attempt.
    pub fn leases_of_slot(&self, run: &RunId, node: &LogicalNodeId) -> Vec<LeaseTruth> {
        self.enter(|state| {
            let ids = state.slots.get(&(run.clone(), node.clone())).cloned().unwrap_or_default();
            ids.iter().filter_map(|id| state.lease(id)).map(|lease| lease.truth.clone()).collect()
        })
    }

    /// Every session there ever was, oldest first.
    pub fn sessions(&self) -> Vec<SessionTruth> {
        self.enter(|state| state.sessions.values().map(|session| session.truth.clone()).collect())
    }

    /// The sessions that run for an attempt.
    pub fn sessions_of(&self, key: &AttemptKey) -> Vec<SessionTruth> {
        self.enter(|state| {
            state.sessions_of(key).map(|session| session.truth.clone()).filter(SessionTruth::runs).collect()
        })
    }

    /// How many creates and starts of an attempt are on their way and can still happen.
    pub fn in_flight(&self, key: &AttemptKey) -> usize {
        self.enter(|state| state.in_flight(key))
    }

    /// Everything that really happened, oldest first.
    pub fn log(&self) -> Vec<WorldEvent> {
        self.enter(|state| state.log.clone())
    }

    /// What happened after the first `seen` events.
    pub fn log_from(&self, seen: usize) -> Vec<WorldEvent> {
        self.enter(|state| state.log.get(seen..).unwrap_or_default().to_vec())
    }

    /// What callers brought about and must never do.
    pub fn breaches(&self) -> Vec<Breach> {
        self.enter(|state| state.breaches.iter().filter(|breach| !breach.excused).cloned().collect())
    }

    /// The same, with what the world's own faults brought about.
    pub fn all_breaches(&self) -> Vec<Breach> {
        self.enter(|state| state.breaches.clone())
    }

    /// How many calls of each kind arrived.
    pub fn calls(&self) -> BTreeMap<CallKind, u64> {
        self.enter(|state| state.calls.clone())
    }

    /// How many calls arrived that change something: creates, starts, completions, cancels, destroys.
    pub fn mutations(&self) -> u64 {
        use CallKind::{Cancel, Complete, Create, Destroy, Start};
        let calls = self.calls();
        [Create, Start, Complete, Cancel, Destroy].iter().filter_map(|kind| calls.get(kind)).sum()
    }

    /// How many create requests reached the world, by token. Its length is the number of distinct tokens.
    pub fn creates_by_token(&self) -> BTreeMap<String, u64> {
        self.enter(|state| state.creates_by_token.clone())
    }

    /// How often each fault has really happened. `landed-late` counts requests that nobody waited for.
    pub fn fired(&self) -> BTreeMap<&'static str, u64> {
        self.enter(|state| state.faults.fired.clone())
    }

    /// The world's time.
    pub fn now(&self) -> SystemTime {
        self.enter(|state| state.now)
    }

    /// The clock that it lives by.
    pub fn timer(&self) -> &Arc<dyn Timer> {
        &self.timer
    }

    // For the provider.

    /// Runs `f` on the truth once everything due has happened, and wakes those whom it concerns.
    pub(crate) fn enter<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let now = self.timer.now();
        // Nothing panics half-way through a change: faults that panic do so outside the lock.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.settle(now);
        let result = f(&mut state);
        let wake = std::mem::take(&mut state.wake);
        drop(state);
        wake.into_iter().for_each(std::task::Waker::wake);
        result
    }

    /// Counts a call that arrives and draws its fault.
    pub(crate) fn arrive(&self, call: CallKind, whose: Option<&AttemptKey>) -> Option<Fault> {
        self.enter(|state| {
            *state.calls.entry(call).or_default() += 1;
            let now = state.now;
            state.faults.draw(call, whose, now)
        })
    }

    pub(crate) fn fire(&self, fault: Fault) {
        self.enter(|state| state.faults.fire(fault.name()));
    }
}

impl fmt::Debug for FakeWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeWorld")
    }
}
