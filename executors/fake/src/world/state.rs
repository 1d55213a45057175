//! The truth and how it changes: requests that arrive, and what falls due. Locked by `FakeWorld`; knows no
//! futures. What happens to leases and to sessions is in the two modules below.

mod leases;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;
use std::time::{Duration, SystemTime};

use executor_api::{
    AttemptIdentity, AttemptKey, BootstrapSessionId, LeaseId, LeaseOwner, LogicalNodeId, LogicalNodeSpec,
    RunId,
};

use super::records::{Breach, BreachKind, Happened, Incident, Lease, Session, SessionPhase, WorldEvent};
use crate::behaviour::{FakeBehaviour, NodeBehaviour};
use crate::faults::{CallKind, Fault, FaultPlan};

/// A request on its way, and what is to be done once it arrives.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Create(Box<CreateAct>),
    Start(Box<StartAct>),
    Destroy { attempt: AttemptKey, lease: LeaseId, takes: Duration },
    Cancel { attempt: AttemptKey, session: BootstrapSessionId },
    Complete { attempt: AttemptKey, session: BootstrapSessionId },
}

#[derive(Clone, Debug)]
pub(crate) struct CreateAct {
    pub(crate) attempt: AttemptKey,
    pub(crate) identity: AttemptIdentity,
    pub(crate) body: LogicalNodeSpec,
    pub(crate) behaviour: NodeBehaviour,
    pub(crate) fault: Option<Fault>,
}

#[derive(Clone, Debug)]
pub(crate) struct StartAct {
    pub(crate) attempt: AttemptKey,
    pub(crate) nonce: String,
    pub(crate) lease: LeaseId,
    pub(crate) behaviour: NodeBehaviour,
    pub(crate) fault: Option<Fault>,
}

/// How a request was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Lease(LeaseId),
    /// The token was used, and what it made is dead.
    TokenSpent(LeaseId),
    /// The token was used with another body.
    TokenMismatch,
    Session(BootstrapSessionId),
    /// The lease that a session should run on is not there.
    NoLease,
    /// The attempt's session is over already.
    SessionOver(String),
    Done,
    NotFound,
    /// It belongs to somebody else.
    NotYours,
}

#[derive(Clone, Debug)]
enum Due {
    Act { ticket: u64, act: Act, given_up: bool },
    Live(LeaseId),
    Dies { lease: LeaseId, why: String, by_request: bool, fault: Option<&'static str> },
    Vanishes(LeaseId),
    Moves(LeaseId, Option<&'static str>),
    Joins(BootstrapSessionId),
    Exits(BootstrapSessionId, i32, Option<&'static str>),
    Incident(LogicalNodeId, Incident),
}

/// Everything about one attempt.
#[derive(Debug, Default)]
pub(crate) struct AttemptEntry {
    pub(crate) leases: Vec<LeaseId>,
    pub(crate) sessions: Vec<BootstrapSessionId>,
    /// Counts what those who watch the attempt must see.
    pub(crate) version: u64,
    pub(crate) watchers: Vec<Waker>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) behaviour: FakeBehaviour,
    pub(crate) faults: FaultPlan,
    pub(crate) now: SystemTime,
    pub(crate) leases: BTreeMap<u64, Lease>,
    pub(crate) sessions: BTreeMap<u64, Session>,
    pub(crate) attempts: BTreeMap<AttemptKey, AttemptEntry>,
    pub(crate) slots: BTreeMap<(RunId, LogicalNodeId), BTreeSet<LeaseId>>,
    /// By bare run name: what a listing looks at.
    pub(crate) runs: BTreeMap<String, BTreeSet<u64>>,
    tokens: BTreeMap<String, LeaseId>,
    /// Attempts that were declared over: nothing can be made under them any more.
    spent: BTreeSet<AttemptKey>,
    due: BTreeMap<(SystemTime, u64), Due>,
    tickets: BTreeMap<u64, (SystemTime, u64)>,
    answers: BTreeMap<u64, Answer>,
    pub(crate) incidents: BTreeMap<LogicalNodeId, BTreeSet<SystemTime>>,
    free_addresses: BTreeSet<u32>,
    addresses: u32,
    sequence: u64,
    pub(crate) log: Vec<WorldEvent>,
    pub(crate) breaches: Vec<Breach>,
    pub(crate) calls: BTreeMap<CallKind, u64>,
    pub(crate) creates_by_token: BTreeMap<String, u64>,
    pub(crate) wake: Vec<Waker>,
    /// How many leases a page of a listing holds. `None`: all.
    pub(crate) page: Option<usize>,
    /// The first lease disappears while the pages of the next listing are read.
    pub(crate) shift: bool,
    pub(crate) empty_page: bool,
}

impl State {
    pub(crate) fn new(behaviour: FakeBehaviour, now: SystemTime) -> Self {
        Self {
            behaviour,
            faults: FaultPlan::default(),
            now,
            leases: BTreeMap::new(),
            sessions: BTreeMap::new(),
            attempts: BTreeMap::new(),
            slots: BTreeMap::new(),
            runs: BTreeMap::new(),
            tokens: BTreeMap::new(),
            spent: BTreeSet::new(),
            due: BTreeMap::new(),
            tickets: BTreeMap::new(),
            answers: BTreeMap::new(),
            incidents: BTreeMap::new(),
            free_addresses: BTreeSet::new(),
            addresses: 0,
            sequence: 0,
            log: Vec::new(),
            breaches: Vec::new(),
            calls: BTreeMap::new(),
            creates_by_token: BTreeMap::new(),
            wake: Vec::new(),
            page: None,
            shift: false,
            empty_page: false,
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

    /// Sends a request that arrives at `at`.
    pub(crate) fn submit(&mut self, at: SystemTime, act: Act) -> u64 {
        let ticket = self.next();
        let key = (at, self.next());
        self.tickets.insert(ticket, key);
        self.due.insert(key, Due::Act { ticket, act, given_up: false });
        ticket
    }

    /// The caller no longer waits. What has not happened yet is stopped, or still lands within the declared
    /// time.
    pub(crate) fn give_up(&mut self, ticket: u64) {
        self.answers.remove(&ticket);
        let Some(key) = self.tickets.remove(&ticket) else {
            return;
        };
        let Some(Due::Act { act, .. }) = self.due.remove(&key) else {
            return;
        };
        let at = key.0;
        let allowance = self.behaviour.visibility.late_landing;
        if allowance.is_zero() {
            return;
        }
        self.land_late(act, at.min(later(self.now, allowance)));
    }

    /// Lets a request arrive for which nobody waits.
    pub(crate) fn land_late(&mut self, act: Act, at: SystemTime) {
        let ticket = self.next();
        let key = (at, self.next());
        self.due.insert(key, Due::Act { ticket, act, given_up: true });
    }

    pub(crate) fn answer(&mut self, ticket: u64) -> Option<Answer> {
        self.answers.remove(&ticket)
    }

    /// Requests on their way that would make something for this attempt.
    pub(crate) fn in_flight(&self, key: &AttemptKey) -> usize {
        self.due.values().filter(|due| matches!(due, Due::Act { act, .. } if act.makes_for(key))).count()
    }

    /// Ends whatever exists for an attempt; nothing can be made for it any more.
    pub(crate) fn spend(&mut self, key: &AttemptKey) {
        self.due.retain(|_, due| !matches!(due, Due::Act { act, .. } if act.makes_for(key)));
        self.spent.insert(key.clone());
        for id in self.attempts.get(key).map(|entry| entry.leases.clone()).unwrap_or_default() {
            self.end_lease(&id, "reclaimed by the provider", false, false);
        }
    }

    pub(crate) fn lease(&self, id: &LeaseId) -> Option<&Lease> {
        self.leases.get(&number(&id.0)?).filter(|lease| lease.truth.id == *id)
    }

    pub(crate) fn session(&self, id: &BootstrapSessionId) -> Option<&Session> {
        self.sessions.get(&number(&id.0)?).filter(|session| session.truth.id == *id)
    }

    pub(crate) fn leases_of<'a>(&'a self, key: &AttemptKey) -> impl Iterator<Item = &'a Lease> + use<'a> {
        let ids = self.attempts.get(key).map_or(&[][..], |entry| &entry.leases);
        ids.iter().filter_map(|id| self.lease(id))
    }

    pub(crate) fn sessions_of<'a>(&'a self, key: &AttemptKey) -> impl Iterator<Item = &'a Session> + use<'a> {
        let ids = self.attempts.get(key).map_or(&[][..], |entry| &entry.sessions);
        ids.iter().filter_map(|id| self.session(id))
    }

    pub(crate) fn schedule_incident(&mut self, at: SystemTime, node: LogicalNodeId, incident: Incident) {
        self.incidents.entry(node.clone()).or_default().insert(at);
        for lease in self.leases.values_mut().filter(|lease| lease.truth.exists()) {
            if matches!(&lease.truth.owner, LeaseOwner::Attempt(key) if key.node == node) {
                lease.agenda.insert(at);
            }
        }
        let keys: Vec<_> = self.attempts.keys().filter(|key| key.node == node).cloned().collect();
        for key in keys {
            self.touch(&key);
        }
        self.plan(at, Due::Incident(node, incident));
    }

    /// Something befalls a slot's lease or session now.
    pub(crate) fn befall(&mut self, node: &LogicalNodeId, incident: &Incident) {
        let of_slot = |key: &AttemptKey| key.node == *node;
        let living: Vec<LeaseId> = self
            .attempts
            .iter()
            .filter(|(key, _)| of_slot(key))
            .flat_map(|(_, entry)| entry.leases.iter())
            .filter(|id| self.lease(id).is_some_and(|lease| lease.truth.exists()))
            .cloned()
            .collect();
        match incident {
            Incident::Dies(why) => living.iter().for_each(|id| self.end_lease(id, why, false, false)),
            Incident::Vanishes => living.iter().for_each(|id| self.end_lease(id, "vanished", false, true)),
            Incident::Moves => living.iter().for_each(|id| self.move_lease(id)),
            Incident::Exits(status) => {
                let running: Vec<_> = self
                    .attempts
                    .iter()
                    .filter(|(key, _)| of_slot(key))
                    .flat_map(|(_, entry)| entry.sessions.clone())
                    .collect();
                for id in running {
                    self.exit_session(&id, *status);
                }
                // After the join it is the node that exits, and the lease with it.
                for id in living {
                    let joined =
                        self.sessions.values().any(|s| s.truth.lease == id && s.truth.member.is_some());
                    if joined {
                        self.end_lease(&id, &format!("exited with status {status}"), false, false);
                    }
                }
            }
        }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Act { ticket, act, given_up } => {
                if given_up {
                    self.faults.fire("landed-late");
                }
                let answer = self.perform(act);
                if self.tickets.remove(&ticket).is_some() {
                    self.answers.insert(ticket, answer);
                }
            }
            Due::Live(id) => self.enliven(&id),
            Due::Dies { lease, why, by_request, fault } => {
                let exists = self.lease(&lease).is_some_and(|lease| lease.truth.exists());
                if let (true, Some(name)) = (exists, fault) {
                    self.faults.fire(name);
                }
                self.end_lease(&lease, &why, by_request, false);
            }
            Due::Vanishes(id) => {
                if self.lease(&id).is_some_and(|lease| lease.truth.exists()) {
                    self.faults.fire("vanishes");
                }
                self.end_lease(&id, "vanished", false, true);
            }
            Due::Moves(id, fault) => {
                if let Some(name) = fault {
                    self.faults.fire(name);
                }
                self.move_lease(&id);
            }
            Due::Joins(id) => self.join_session(&id),
            Due::Exits(id, status, fault) => {
                let runs = self.session(&id).is_some_and(|s| s.truth.phase == SessionPhase::Running);
                if let (true, Some(name)) = (runs, fault) {
                    self.faults.fire(name);
                }
                self.exit_session(&id, status);
            }
            Due::Incident(node, incident) => self.befall(&node, &incident),
        }
    }

    fn perform(&mut self, act: Act) -> Answer {
        match act {
            Act::Create(act) => self.create(*act),
            Act::Start(act) => self.start(*act),
            Act::Destroy { attempt, lease, takes } => self.destroy(&attempt, &lease, takes),
            Act::Cancel { attempt, session } => match self.session_owner(&session) {
                None => Answer::NotFound,
                Some(owner) if owner != attempt => {
                    self.breach(BreachKind::WrongKill, format!("cancel of {session} for {attempt}"), false);
                    Answer::NotYours
                }
                Some(_) => {
                    self.end_session(&session, SessionPhase::Ended("cancelled".to_owned()));
                    Answer::Done
                }
            },
            Act::Complete { attempt, session } => match self.session_owner(&session) {
                None => Answer::NotFound,
                Some(owner) if owner != attempt => Answer::NotYours,
                Some(_) => {
                    if self.session(&session).is_some_and(|s| s.truth.phase == SessionPhase::Joined) {
                        self.end_session(&session, SessionPhase::Completed);
                    }
                    Answer::Done
                }
            },
        }
    }

    fn plan(&mut self, at: SystemTime, due: Due) {
        let key = (at, self.next());
        self.due.insert(key, due);
    }

    fn plan_for_lease(&mut self, id: &LeaseId, after: Duration, due: Due) {
        let at = later(self.now, after);
        if after.is_zero() {
            self.happen(due);
            return;
        }
        if let Some(lease) = number(&id.0).and_then(|n| self.leases.get_mut(&n)) {
            lease.agenda.insert(at);
            if let LeaseOwner::Attempt(key) = lease.truth.owner.clone() {
                self.touch(&key);
            }
        }
        self.plan(at, due);
    }

    fn touch(&mut self, key: &AttemptKey) {
        if let Some(entry) = self.attempts.get_mut(key) {
            entry.version += 1;
            self.wake.append(&mut entry.watchers);
        }
    }

    fn note(&mut self, owner: &LeaseOwner, what: Happened) {
        let node = match owner {
            LeaseOwner::Attempt(key) => Some(key.node.clone()),
            LeaseOwner::Incomplete => None,
        };
        self.log.push(WorldEvent { at: self.now, node, what });
    }

    fn breach(&mut self, kind: BreachKind, detail: String, excused: bool) {
        self.breaches.push(Breach { at: self.now, kind, detail, excused });
    }

    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

impl Act {
    fn makes_for(&self, key: &AttemptKey) -> bool {
        match self {
            Self::Create(act) => act.attempt == *key,
            Self::Start(act) => act.attempt == *key,
            Self::Destroy { .. } | Self::Cancel { .. } | Self::Complete { .. } => false,
        }
    }
}

/// The number in `i-7` or `bs-7`.
fn number(id: &str) -> Option<u64> {
    id.rsplit_once('-')?.1.parse().ok()
}

/// `at + by`, or the end of time.
pub(crate) fn later(at: SystemTime, by: Duration) -> SystemTime {
    at.checked_add(by).unwrap_or(at)
}
