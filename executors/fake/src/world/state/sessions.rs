//! How sessions start, join and end. Part of [`State`]: every change of a session goes through here.

use executor_api::{AttemptKey, BootstrapSessionId, LeaseId, LeaseOwner, Life, MemberFacts, NodeAttemptId};

use super::{Answer, Due, StartAct, State, number};
use crate::behaviour::{Joining, NodeBehaviour, Tokens};
use crate::faults::Fault;
use crate::world::records::{BreachKind, Happened, Session, SessionPhase, SessionTruth};

impl State {
    /// Starts a session that nobody asked for.
    pub(crate) fn plant_session(&mut self, key: &AttemptKey, lease: &LeaseId) -> BootstrapSessionId {
        let behaviour = NodeBehaviour { join: Joining::Never, ..self.behaviour.node.clone() };
        self.make_session(key, lease, String::new(), behaviour)
    }

    pub(super) fn start(&mut self, act: StartAct) -> Answer {
        let StartAct { attempt, nonce, lease, behaviour, fault } = act;
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
        let nonce = if fault == Some(Fault::WrongNonce) { format!("not-{nonce}") } else { nonce };
        let join = match fault {
            Some(Fault::Exits { after, status }) => Joining::Exits { after, status },
            Some(Fault::NeverJoins) => {
                self.faults.fire("never-joins");
                Joining::Never
            }
            _ => behaviour.join,
        };
        let id = self.make_session(&attempt, &lease, nonce, behaviour);
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

    fn make_session(
        &mut self,
        attempt: &AttemptKey,
        lease: &LeaseId,
        nonce: String,
        behaviour: NodeBehaviour,
    ) -> BootstrapSessionId {
        let n = self.sessions.len() as u64 + 1;
        let id = BootstrapSessionId(format!("bs-{n}"));
        self.witness_session(attempt, &id);
        let truth = SessionTruth {
            id: id.clone(),
            owner: attempt.clone(),
            lease: lease.clone(),
            started_at: self.now,
            phase: SessionPhase::Running,
            member: None,
        };
        self.sessions.insert(n, Session { truth, nonce, behaviour });
        self.attempts.entry(attempt.clone()).or_default().sessions.push(id.clone());
        self.note(&LeaseOwner::Attempt(attempt.clone()), Happened::SessionStarted(id.clone()));
        self.touch(attempt);
        id
    }

    pub(super) fn witness_session(&mut self, key: &AttemptKey, id: &BootstrapSessionId) {
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
            let kind = if same { BreachKind::TwoSessionsForAttempt } else { BreachKind::TwoSessionsForSlot };
            self.breach(kind, format!("{id} was started for {key} while {other} runs"), false);
        }
    }

    pub(super) fn join_session(&mut self, id: &BootstrapSessionId) {
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
        self.note(&LeaseOwner::Attempt(owner.clone()), Happened::SessionJoined(id.clone()));
        self.touch(&owner);
    }

    pub(super) fn exit_session(&mut self, id: &BootstrapSessionId, status: i32) {
        if self.session(id).is_some_and(|s| s.truth.phase == SessionPhase::Running) {
            let how = format!("exited with status {status} before joining");
            self.end_session(id, SessionPhase::Failed(how));
        }
    }

    pub(super) fn end_session(&mut self, id: &BootstrapSessionId, phase: SessionPhase) {
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
        self.note(&LeaseOwner::Attempt(owner.clone()), Happened::SessionOver(id.clone(), how));
        self.touch(&owner);
    }

    pub(super) fn session_owner(&self, id: &BootstrapSessionId) -> Option<AttemptKey> {
        self.session(id).map(|session| session.truth.owner.clone())
    }
}

fn first_of_slot(key: &AttemptKey) -> AttemptKey {
    AttemptKey { attempt: NodeAttemptId(0), ..key.clone() }
}
