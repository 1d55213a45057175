//! What the driver is told of one session: observations, addressed and in the vocabulary of the contract.

use std::time::SystemTime;

use executor_api::{
    AttemptKey, BootstrapSessionId, LeaseId, MemberFacts, NodeObservation, ObservationReport, ObservationSink,
};

/// Longest phase that is told, in characters.
const PHASE_LIMIT: usize = 200;

/// Tells about one session of one attempt.
#[derive(Clone, Debug)]
pub struct Teller {
    attempt: AttemptKey,
    session: BootstrapSessionId,
    sink: ObservationSink,
}

impl Teller {
    /// A teller for this session.
    pub fn new(attempt: AttemptKey, session: BootstrapSessionId, sink: ObservationSink) -> Self {
        Self { attempt, session, sink }
    }

    /// What the session is doing. A report whose number is not above the last one is dropped by whoever folds
    /// it. Cut to one printable line.
    pub fn progress(&self, sequence: u64, phase: &str) {
        let session = self.session.clone();
        self.send(NodeObservation::BootstrapProgress { session, sequence, phase: printable(phase) });
    }

    /// The node joined: it answers for the attempt's nonce.
    pub fn joined(&self, member_id: String, joined_at: SystemTime) {
        let nonce = self.attempt.identity().nonce;
        let member = MemberFacts { member_id, nonce, joined_at };
        self.send(NodeObservation::MemberJoined { session: self.session.clone(), member });
    }

    /// The session failed.
    pub fn failed(&self, reason: &str) {
        let reason = reason.to_owned();
        self.send(NodeObservation::BootstrapFailed { session: self.session.clone(), reason });
    }

    /// Proved: what the lease was for is dead.
    pub fn lost(&self, lease: LeaseId, reason: &str) {
        self.send(NodeObservation::LeaseLost { lease, reason: reason.to_owned() });
    }

    /// The node cannot be seen.
    pub fn suspected(&self, reason: &str) {
        self.send(NodeObservation::Suspected { reason: reason.to_owned() });
    }

    /// The node was seen.
    pub fn seen_alive(&self) {
        self.send(NodeObservation::SeenAlive);
    }

    fn send(&self, observation: NodeObservation) {
        let AttemptKey { node, attempt, .. } = self.attempt.clone();
        self.sink.send(ObservationReport { node, attempt, observation });
    }
}

/// One line without control characters, cut where it is too long.
pub fn printable(text: &str) -> String {
    let mut line: String =
        text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(PHASE_LIMIT).collect();
    if text.trim().chars().nth(PHASE_LIMIT).is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_one_short_printable_line() {
        assert_eq!(printable(" a\tb\u{1b}[31mc\n"), "a b [31mc");
        assert_eq!(printable(&"x".repeat(300)).chars().count(), PHASE_LIMIT + 1);
    }
}
