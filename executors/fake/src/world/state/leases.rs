//! How leases come into being, live, move and end. Part of [`State`]: every change of a lease goes through here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use executor_api::{
    AttemptKey, LeaseId, LeaseOwner, Life, LogicalNodeId, LogicalNodeSpec, NodeAttemptId, RunId, labels,
};

use super::{Answer, CreateAct, Due, State, later, number};
use crate::behaviour::{EndpointTiming, NodeBehaviour, Tokens};
use crate::faults::Fault;
use crate::world::records::{BreachKind, Happened, Lease, LeaseTruth, SessionPhase, endpoint};

impl State {
    /// Makes a lease that nobody asked for.
    pub(crate) fn plant(&mut self, labels: BTreeMap<String, String>, name: String) -> LeaseId {
        let behaviour = NodeBehaviour {
            endpoint: EndpointTiming::AtOnce,
            dies_after: None,
            ..self.behaviour.node.clone()
        };
        self.make_lease(labels, name, String::new(), None, behaviour, None, true)
    }

    pub(super) fn create(&mut self, act: CreateAct) -> Answer {
        let CreateAct { attempt, identity, body, behaviour, fault } = act;
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

    #[expect(clippy::too_many_arguments, reason = "the one place where a lease comes into being")]
    pub(super) fn make_lease(
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
            self.slots.entry((key.run.clone(), key.node.clone())).or_default().insert(id.clone());
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

    pub(super) fn witness_lease(&mut self, key: &AttemptKey, id: &LeaseId, excused: bool) {
        let slot = self.slots.get(&(key.run.clone(), key.node.clone())).cloned().unwrap_or_default();
        for other in slot {
            let same = self.lease(&other).is_some_and(|lease| lease.truth.belongs_to(key));
            let kind = if same { BreachKind::TwoLeasesForAttempt } else { BreachKind::TwoLeasesForSlot };
            self.breach(kind, format!("{id} was made for {key} while {other} exists"), excused);
        }
    }

    pub(super) fn enliven(&mut self, id: &LeaseId) {
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

    pub(super) fn destroy(&mut self, attempt: &AttemptKey, id: &LeaseId, takes: Duration) -> Answer {
        let now = self.now;
        let Some(found) = self.lease(id).filter(|lease| self.reachable_by_id(lease)) else {
            return Answer::NotFound;
        };
        if !found.truth.belongs_to(attempt) {
            self.breach(BreachKind::WrongKill, format!("destroy of {id} for {attempt}"), false);
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
                Due::Dies { lease: id.clone(), why, by_request: true, fault: None },
            );
        }
        Answer::Done
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

    /// How a lease shows to a lookup or listing that describes `as_of`; `None` if it does not show.
    pub(crate) fn shown(&self, lease: &Lease, as_of: SystemTime) -> Option<Life> {
        let life = lease.life_at(as_of)?;
        if as_of < lease.truth.visible_from {
            return None;
        }
        if life == Life::Dead {
            let shown = lease.died_at().is_some_and(|at| as_of < later(at, self.behaviour.dead_shown_for));
            return (shown && !lease.truth.vanished).then_some(life);
        }
        Some(life)
    }

    /// Whether a request that names this lease finds it.
    pub(crate) fn reachable_by_id(&self, lease: &Lease) -> bool {
        self.now >= later(lease.truth.created_at, self.behaviour.direct_lag) && !lease.truth.vanished
    }

    pub(super) fn take_address(&mut self) -> u32 {
        self.free_addresses.pop_first().unwrap_or_else(|| {
            self.addresses += 1;
            self.addresses - 1
        })
    }
}

/// Whose something with these labels is.
fn owner_of(labels: &BTreeMap<String, String>) -> LeaseOwner {
    let read = || {
        let run = RunId::new(labels.get(labels::RUN)?, labels.get(labels::RUN_UID)?).ok()?;
        let node = LogicalNodeId::parse(labels.get(labels::NODE)?).ok()?;
        let attempt = NodeAttemptId(labels.get(labels::ATTEMPT)?.parse().ok()?);
        Some(AttemptKey { run, node, attempt })
    };
    read().map_or(LeaseOwner::Incomplete, LeaseOwner::Attempt)
}
