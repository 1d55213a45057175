//! The truth and how it changes: requests that arrive, and what falls due. Locked by `FakeWorld`; knows no
//! futures. Every change of a lease or session goes through here, so that log and breaches are complete.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;
use std::time::{Duration, SystemTime};

use executor_api::{
    AttemptIdentity, AttemptKey, BootstrapSessionId, LeaseId, LeaseOwner, Life, LogicalNodeId,
    LogicalNodeSpec, MemberFacts, RunId, labels,
};

use super::records::{
    Breach, BreachKind, Happened, Incident, Lease, LeaseTruth, Session, SessionPhase, SessionTruth,
    WorldEvent, endpoint,
};
use crate::behaviour::{EndpointTiming, FakeBehaviour, Joining, NodeBehaviour, Tokens};
use crate::faults::{CallKind, Fault, FaultPlan};

/// A request on its way, and what is to be done once it arrives.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Create(Box<CreateAct>),
    Start(Box<StartAct>),
    Destroy {
        attempt: AttemptKey,
        lease: LeaseId,
        takes: Duration,
    },
    Cancel {
        attempt: AttemptKey,
        session: BootstrapSessionId,
    },
    Complete {
        attempt: AttemptKey,
        session: BootstrapSessionId,
    },
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
    Act {
        ticket: u64,
        act: Act,
        given_up: bool,
    },
    Live(LeaseId),
    Dies {
        lease: LeaseId,
        why: String,
        by_request: bool,
        fault: Option<&'static str>,
    },
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
        self.due.insert(
            key,
            Due::Act {
                ticket,
                act,
                given_up: false,
            },
        );
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
        self.due.insert(
            key,
            Due::Act {
                ticket,
                act,
                given_up: true,
            },
        );
    }

    pub(crate) fn answer(&mut self, ticket: u64) -> Option<Answer> {
        self.answers.remove(&ticket)
    }

    /// Requests on their way that would make something for this attempt.
    pub(crate) fn in_flight(&self, key: &AttemptKey) -> usize {
        self.due
            .values()
            .filter(|due| matches!(due, Due::Act { act, .. } if act.makes_for(key)))
            .count()
    }

    /// Ends whatever exists for an attempt; nothing can be made for it any more.
    pub(crate) fn spend(&mut self, key: &AttemptKey) {
        self.due
            .retain(|_, due| !matches!(due, Due::Act { act, .. } if act.makes_for(key)));
        self.spent.insert(key.clone());
        for id in self
            .attempts
            .get(key)
            .map(|entry| entry.leases.clone())
            .unwrap_or_default()
        {
            self.end_lease(&id, "reclaimed by the provider", false, false);
        }
    }

    pub(crate) fn lease(&self, id: &LeaseId) -> Option<&Lease> {
        self.leases
            .get(&number(&id.0)?)
            .filter(|lease| lease.truth.id == *id)
    }

    pub(crate) fn session(&self, id: &BootstrapSessionId) -> Option<&Session> {
        self.sessions
            .get(&number(&id.0)?)
            .filter(|session| session.truth.id == *id)
    }

    pub(crate) fn leases_of<'a>(&'a self, key: &AttemptKey) -> impl Iterator<Item = &'a Lease> + use<'a> {
        let ids = self.attempts.get(key).map_or(&[][..], |entry| &entry.leases);
        ids.iter().filter_map(|id| self.lease(id))
    }

    pub(crate) fn sessions_of<'a>(&'a self, key: &AttemptKey) -> impl Iterator<Item = &'a Session> + use<'a> {
        let ids = self.attempts.get(key).map_or(&[][..], |entry| &entry.sessions);
        ids.iter().filter_map(|id| self.session(id))
    }

    /// How a lease shows to a lookup or listing that describes `as_of`; `None` if it does not show.
    pub(crate) fn shown(&self, lease: &Lease, as_of: SystemTime) -> Option<Life> {
        let life = lease.life_at(as_of)?;
        if as_of < lease.truth.visible_from {
            return None;
        }
        if life == Life::Dead {
            let shown = lease
                .died_at()
                .is_some_and(|at| as_of < later(at, self.behaviour.dead_shown_for));
            return (shown && !lease.truth.vanished).then_some(life);
        }
        Some(life)
    }

    /// Whether a request that names this lease finds it.
    pub(crate) fn reachable_by_id(&self, lease: &Lease) -> bool {
        self.now >= later(lease.truth.created_at, self.behaviour.direct_lag) && !lease.truth.vanished
    }

    /// Makes a lease that nobody asked for.
    pub(crate) fn plant(&mut self, labels: BTreeMap<String, String>, name: String) -> LeaseId {
        let behaviour = NodeBehaviour {
            endpoint: EndpointTiming::AtOnce,
            dies_after: None,
            ..self.behaviour.node.clone()
        };
        self.make_lease(labels, name, String::new(), None, behaviour, None, true)
    }

    pub(crate) fn schedule_incident(&mut self, at: SystemTime, node: LogicalNodeId, incident: Incident) {
        self.incidents.entry(node.clone()).or_default().insert(at);
        for lease in self.leases.values_mut().filter(|lease| lease.truth.exists()) {
            if matches!(&lease.truth.owner, LeaseOwner::Attempt(key) if key.node == node) {
                lease.agenda.insert(at);
            }
        }
        let keys: Vec<_> = self
            .attempts
            .keys()
            .filter(|key| key.node == node)
            .cloned()
            .collect();
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
            Incident::Vanishes => living
                .iter()
                .for_each(|id| self.end_lease(id, "vanished", false, true)),
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
                    let joined = self
                        .sessions
                        .values()
                        .any(|s| s.truth.lease == id && s.truth.member.is_some());
                    if joined {
                        self.end_lease(&id, &format!("exited with status {status}"), false, false);
                    }
                }
            }
        }
    }

    /// Ends a lease now.
    pub(crate) fn end_lease(&mut self, id: &LeaseId, why: &str, by_request: bool, vanished: bool) {
        let now = self.now;
        let Some(lease) = number(&id.0).and_then(|n| self.leases.get_mut(&n)) else {
            return;
        };
        if !lease.truth.exists() {
            return;
        }
        lease.truth.life = Life::Dead;
        lease.truth.ended = Some(why.to_owned());
        lease.truth.vanished = vanished;
        lease.by_request |= by_request;
        lease.history.push((now, Life::Dead));
        lease.truth.endpoint = None;
        if let Some(address) = lease.address.take() {
            self.free_addresses.insert(address);
        }
        let owner = lease.truth.owner.clone();
        self.note(&owner, Happened::LeaseDead(id.clone(), why.to_owned()));
        let LeaseOwner::Attempt(key) = owner else { return };
        if let Some(slot) = self.slots.get_mut(&(key.run.clone(), key.node.clone())) {
            slot.remove(id);
        }
        let on_it: Vec<_> = self
            .sessions_of(&key)
            .filter(|s| s.truth.lease == *id && s.truth.runs())
            .map(|s| s.truth.id.clone())
            .collect();
        for session in on_it {
            self.end_session(&session, SessionPhase::Ended("its lease ended".to_owned()));
        }
        self.touch(&key);
    }

    /// A lease gets another address.
    pub(crate) fn move_lease(&mut self, id: &LeaseId) {
        let address = self.take_address();
        let Some(lease) = number(&id.0).and_then(|n| self.leases.get_mut(&n)) else {
            return;
        };
        if !lease.truth.exists() || lease.truth.endpoint.is_none() {
            self.free_addresses.insert(address);
            return;
        }
        lease.truth.endpoint = Some(endpoint(address));
        if let Some(old) = lease.address.replace(address) {
            self.free_addresses.insert(old);
        }
        let owner = lease.truth.owner.clone();
        self.note(&owner, Happened::LeaseMoved(id.clone()));
        if let LeaseOwner::Attempt(key) = owner {
            self.touch(&key);
        }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Act {
                ticket,
                act,
                given_up,
            } => {
                if given_up {
                    self.faults.fire("landed-late");
                }
                let answer = self.perform(act);
                if self.tickets.remove(&ticket).is_some() {
                    self.answers.insert(ticket, answer);
                }
            }
            Due::Live(id) => self.enliven(&id),
            Due::Dies {
                lease,
                why,
                by_request,
                fault,
            } => {
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
                let runs = self
                    .session(&id)
                    .is_some_and(|s| s.truth.phase == SessionPhase::Running);
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
            Act::Destroy {
                attempt,
                lease,
                takes,
            } => self.destroy(&attempt, &lease, takes),
            Act::Cancel { attempt, session } => match self.session_owner(&session) {
                None => Answer::NotFound,
                Some(owner) if owner != attempt => {
                    self.breach(
                        BreachKind::WrongKill,
                        format!("cancel of {session} for {attempt}"),
                        false,
                    );
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
                    if self
                        .session(&session)
                        .is_some_and(|s| s.truth.phase == SessionPhase::Joined)
                    {
                        self.end_session(&session, SessionPhase::Completed);
                    }
                    Answer::Done
                }
            },
        }
    }

    fn create(&mut self, act: CreateAct) -> Answer {
        let CreateAct {
            attempt,
            identity,
            body,
            behaviour,
            fault,
        } = act;
        *self.creates_by_token.entry(identity.token.clone()).or_default() += 1;
        if self.spent.contains(&attempt) {
            return Answer::TokenSpent(LeaseId(String::new()));
        }
        if self.behaviour.tokens == Tokens::Honoured
            && let Some(lease) = self.tokens.get(&identity.token).and_then(|id| self.lease(id))
        {
            return if lease.body.as_ref() != Some(&body) {
                Answer::TokenMismatch
            } else if matches!(lease.truth.life, Life::Pending | Life::Live) {
                Answer::Lease(lease.truth.id.clone())
            } else {
                Answer::TokenSpent(lease.truth.id.clone())
            };
        }
        let mut make = |excused| {
            let (labels, name) = (identity.labels.clone(), identity.resource_name.clone());
            let (token, body) = (identity.token.clone(), Some(body.clone()));
            self.make_lease(labels, name, token, body, behaviour.clone(), fault, excused)
        };
        let mut id = make(false);
        if fault == Some(Fault::MadeTwice) {
            id = make(true);
            self.faults.fire("made-twice");
        }
        Answer::Lease(id)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the one place where a lease comes into being"
    )]
    fn make_lease(
        &mut self,
        labels: BTreeMap<String, String>,
        name: String,
        token: String,
        body: Option<LogicalNodeSpec>,
        behaviour: NodeBehaviour,
        fault: Option<Fault>,
        excused: bool,
    ) -> LeaseId {
        let n = self.leases.len() as u64 + 1;
        let id = LeaseId(format!("i-{n}"));
        let now = self.now;
        let lag = self.behaviour.visibility.listing_lag;
        let hidden = match fault {
            Some(Fault::Hidden(more)) => {
                self.faults.fire("hidden");
                more.min(lag)
            }
            _ => lag,
        };
        let owner = owner_of(&labels);
        if let Some(run) = labels.get(labels::RUN) {
            self.runs.entry(run.clone()).or_default().insert(n);
        }
        self.tokens.insert(token.clone(), id.clone());
        let mut agenda = BTreeSet::new();
        if let LeaseOwner::Attempt(key) = &owner {
            self.witness_lease(key, &id, excused);
            let entry = self.attempts.entry(key.clone()).or_default();
            entry.leases.push(id.clone());
            self.slots
                .entry((key.run.clone(), key.node.clone()))
                .or_default()
                .insert(id.clone());
            if let Some(times) = self.incidents.get(&key.node) {
                agenda.extend(times.range(now..));
            }
        }
        let truth = LeaseTruth {
            id: id.clone(),
            owner: owner.clone(),
            token,
            labels,
            name,
            created_at: now,
            visible_from: later(now, hidden),
            life: Life::Pending,
            endpoint: None,
            ended: None,
            vanished: false,
        };
        let history = vec![(now, Life::Pending)];
        let timing = behaviour.endpoint;
        let dies_after = behaviour.dies_after;
        let lease = Lease {
            truth,
            body,
            behaviour,
            history,
            address: None,
            by_request: false,
            ends_at: None,
            agenda,
        };
        self.leases.insert(n, lease);
        self.note(&owner, Happened::LeaseMade(id.clone()));
        match (fault, timing) {
            (Some(Fault::NoEndpoint), _) => self.faults.fire("no-endpoint"),
            (_, EndpointTiming::AtOnce) => self.enliven(&id),
            (_, EndpointTiming::After(after)) => self.plan_for_lease(&id, after, Due::Live(id.clone())),
            (_, EndpointTiming::Never) => {}
        }
        let dies = |fault| Due::Dies {
            lease: id.clone(),
            why: "died by itself".to_owned(),
            by_request: false,
            fault,
        };
        if let Some(after) = dies_after {
            self.plan_for_lease(&id, after, dies(None));
        }
        match fault {
            Some(Fault::Dies(after)) => self.plan_for_lease(&id, after, dies(Some("dies"))),
            Some(Fault::Vanishes(after)) => self.plan_for_lease(&id, after, Due::Vanishes(id.clone())),
            Some(Fault::Moves(after)) => {
                self.plan_for_lease(&id, after, Due::Moves(id.clone(), Some("moves")));
            }
            _ => {}
        }
        id
    }

    fn witness_lease(&mut self, key: &AttemptKey, id: &LeaseId, excused: bool) {
        let slot = self
            .slots
            .get(&(key.run.clone(), key.node.clone()))
            .cloned()
            .unwrap_or_default();
        for other in slot {
            let same = self
                .lease(&other)
                .is_some_and(|lease| lease.truth.belongs_to(key));
            let kind = if same {
                BreachKind::TwoLeasesForAttempt
            } else {
                BreachKind::TwoLeasesForSlot
            };
            self.breach(
                kind,
                format!("{id} was made for {key} while {other} exists"),
                excused,
            );
        }
    }

    fn enliven(&mut self, id: &LeaseId) {
        let address = self.take_address();
        let now = self.now;
        let Some(lease) = number(&id.0).and_then(|n| self.leases.get_mut(&n)) else {
            return;
        };
        if lease.truth.life != Life::Pending {
            self.free_addresses.insert(address);
            return;
        }
        lease.truth.life = Life::Live;
        lease.truth.endpoint = Some(endpoint(address));
        lease.address = Some(address);
        lease.history.push((now, Life::Live));
        let owner = lease.truth.owner.clone();
        self.note(&owner, Happened::LeaseLive(id.clone()));
        if let LeaseOwner::Attempt(key) = owner {
            self.touch(&key);
        }
    }

    fn destroy(&mut self, attempt: &AttemptKey, id: &LeaseId, takes: Duration) -> Answer {
        let now = self.now;
        let Some(found) = self.lease(id).filter(|lease| self.reachable_by_id(lease)) else {
            return Answer::NotFound;
        };
        if !found.truth.belongs_to(attempt) {
            self.breach(
                BreachKind::WrongKill,
                format!("destroy of {id} for {attempt}"),
                false,
            );
            return Answer::NotYours;
        }
        let owner = found.truth.owner.clone();
        let Some(lease) = number(&id.0).and_then(|n| self.leases.get_mut(&n)) else {
            return Answer::NotFound;
        };
        if matches!(lease.truth.life, Life::Pending | Life::Live) {
            lease.truth.life = Life::Ending;
            lease.truth.ended = Some("destroyed".to_owned());
            lease.by_request = true;
            lease.ends_at = Some(later(now, takes));
            lease.history.push((now, Life::Ending));
            self.note(&owner, Happened::LeaseEnding(id.clone()));
            let why = "destroyed".to_owned();
            self.plan_for_lease(
                id,
                takes,
                Due::Dies {
                    lease: id.clone(),
                    why,
                    by_request: true,
                    fault: None,
                },
            );
        }
        Answer::Done
    }

    fn start(&mut self, act: StartAct) -> Answer {
        let StartAct {
            attempt,
            nonce,
            lease,
            behaviour,
            fault,
        } = act;
        let usable = self.lease(&lease).is_some_and(|l| {
            l.truth.belongs_to(&attempt) && matches!(l.truth.life, Life::Pending | Life::Live)
        });
        if !usable || self.spent.contains(&attempt) {
            return Answer::NoLease;
        }
        if self.behaviour.tokens == Tokens::Honoured
            && let Some(session) = self.sessions_of(&attempt).next()
        {
            return match &session.truth.phase {
                SessionPhase::Running | SessionPhase::Joined | SessionPhase::Completed => {
                    Answer::Session(session.truth.id.clone())
                }
                SessionPhase::Failed(how) | SessionPhase::Ended(how) => Answer::SessionOver(how.clone()),
            };
        }
        let n = self.sessions.len() as u64 + 1;
        let id = BootstrapSessionId(format!("bs-{n}"));
        self.witness_session(&attempt, &id);
        let nonce = if fault == Some(Fault::WrongNonce) {
            format!("not-{nonce}")
        } else {
            nonce
        };
        let join = match fault {
            Some(Fault::Exits { after, status }) => Joining::Exits { after, status },
            Some(Fault::NeverJoins) => {
                self.faults.fire("never-joins");
                Joining::Never
            }
            _ => behaviour.join,
        };
        let truth = SessionTruth {
            id: id.clone(),
            owner: attempt.clone(),
            lease: lease.clone(),
            started_at: self.now,
            phase: SessionPhase::Running,
            member: None,
        };
        self.sessions.insert(
            n,
            Session {
                truth,
                nonce,
                behaviour,
            },
        );
        self.attempts
            .entry(attempt.clone())
            .or_default()
            .sessions
            .push(id.clone());
        self.note(
            &LeaseOwner::Attempt(attempt.clone()),
            Happened::SessionStarted(id.clone()),
        );
        match join {
            Joining::After(after) => self.plan_for_lease(&lease, after, Due::Joins(id.clone())),
            Joining::Exits { after, status } => {
                let name = matches!(fault, Some(Fault::Exits { .. })).then_some("exits");
                self.plan_for_lease(&lease, after, Due::Exits(id.clone(), status, name));
            }
            Joining::Never => {}
        }
        if fault == Some(Fault::WrongNonce) {
            self.faults.fire("wrong-nonce");
        }
        self.touch(&attempt);
        Answer::Session(id)
    }

    fn witness_session(&mut self, key: &AttemptKey, id: &BootstrapSessionId) {
        let others: Vec<_> = self
            .attempts
            .range(first_of_slot(key)..)
            .take_while(|(other, _)| other.run == key.run && other.node == key.node)
            .flat_map(|(_, entry)| entry.sessions.iter())
            .filter_map(|other| self.session(other))
            .filter(|session| session.truth.runs())
            .map(|session| (session.truth.id.clone(), session.truth.owner == *key))
            .collect();
        for (other, same) in others {
            let kind = if same {
                BreachKind::TwoSessionsForAttempt
            } else {
                BreachKind::TwoSessionsForSlot
            };
            self.breach(
                kind,
                format!("{id} was started for {key} while {other} runs"),
                false,
            );
        }
    }

    fn join_session(&mut self, id: &BootstrapSessionId) {
        let now = self.now;
        let Some(session) = number(&id.0).and_then(|n| self.sessions.get_mut(&n)) else {
            return;
        };
        if session.truth.phase != SessionPhase::Running {
            return;
        }
        session.truth.phase = SessionPhase::Joined;
        session.truth.member = Some(MemberFacts {
            member_id: format!("member-{id}"),
            nonce: session.nonce.clone(),
            joined_at: now,
        });
        let owner = session.truth.owner.clone();
        self.note(
            &LeaseOwner::Attempt(owner.clone()),
            Happened::SessionJoined(id.clone()),
        );
        self.touch(&owner);
    }

    fn exit_session(&mut self, id: &BootstrapSessionId, status: i32) {
        if self
            .session(id)
            .is_some_and(|s| s.truth.phase == SessionPhase::Running)
        {
            let how = format!("exited with status {status} before joining");
            self.end_session(id, SessionPhase::Failed(how));
        }
    }

    fn end_session(&mut self, id: &BootstrapSessionId, phase: SessionPhase) {
        let Some(session) = number(&id.0).and_then(|n| self.sessions.get_mut(&n)) else {
            return;
        };
        let cancels_node = session.truth.phase == SessionPhase::Completed;
        if !session.truth.runs() && !cancels_node {
            return;
        }
        let how = match &phase {
            SessionPhase::Failed(how) | SessionPhase::Ended(how) => how.clone(),
            SessionPhase::Running | SessionPhase::Joined | SessionPhase::Completed => "completed".to_owned(),
        };
        session.truth.phase = phase;
        let owner = session.truth.owner.clone();
        self.note(
            &LeaseOwner::Attempt(owner.clone()),
            Happened::SessionOver(id.clone(), how),
        );
        self.touch(&owner);
    }

    fn session_owner(&self, id: &BootstrapSessionId) -> Option<AttemptKey> {
        self.session(id).map(|session| session.truth.owner.clone())
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
        self.log.push(WorldEvent {
            at: self.now,
            node,
            what,
        });
    }

    fn breach(&mut self, kind: BreachKind, detail: String, excused: bool) {
        self.breaches.push(Breach {
            at: self.now,
            kind,
            detail,
            excused,
        });
    }

    fn take_address(&mut self) -> u32 {
        self.free_addresses.pop_first().unwrap_or_else(|| {
            self.addresses += 1;
            self.addresses - 1
        })
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

/// Whose something with these labels is.
fn owner_of(labels: &BTreeMap<String, String>) -> LeaseOwner {
    let read = || {
        let run = RunId::new(labels.get(labels::RUN)?, labels.get(labels::RUN_UID)?).ok()?;
        let node = LogicalNodeId::parse(labels.get(labels::NODE)?).ok()?;
        let attempt = executor_api::NodeAttemptId(labels.get(labels::ATTEMPT)?.parse().ok()?);
        Some(AttemptKey { run, node, attempt })
    };
    read().map_or(LeaseOwner::Incomplete, LeaseOwner::Attempt)
}

fn first_of_slot(key: &AttemptKey) -> AttemptKey {
    AttemptKey {
        attempt: executor_api::NodeAttemptId(0),
        ..key.clone()
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
