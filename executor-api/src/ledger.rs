//! The operation ledger: which operation runs, which has ended and how. A table without waiting, used above
//! every executor, so that one operation id never acts twice within a driver process.
//!
//! Memory is bounded by live attempts: of each attempt only the newest operation, running or ended, is kept,
//! until [`Ledger::retire`].

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::command::NodeManagerCommand;
use crate::identity::{NodeAttemptId, OperationId, RunId};
use crate::outcome::{EffectOutcome, EffectSuccess};

/// What to do with a submitted operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// New: run it, then [`Ledger::finish`].
    Start,
    /// The same operation runs already: wait for its outcome.
    Join,
    /// The same operation has ended: this is how.
    Replay(EffectOutcome),
    /// The id was used with another command, or is older than the attempt's newest.
    Conflict,
    /// Another operation of the attempt runs, or one that was given up may still land and this one would
    /// create beside it.
    Busy {
        /// When it may be tried again, if that is a time rather than an event.
        until: Option<SystemTime>,
    },
}

/// What is known of an attempt's newest operation.
#[derive(Clone, Debug)]
enum Progress {
    Running,
    Ended(EffectOutcome),
}

#[derive(Clone, Debug)]
struct Entry {
    operation: OperationId,
    command: NodeManagerCommand,
    progress: Progress,
    /// An effect given up may still land until then; nothing may be created beside it.
    lands_until: Option<SystemTime>,
}

/// The table. One per driver process.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    attempts: BTreeMap<(RunId, NodeAttemptId), Entry>,
}

impl Ledger {
    /// An empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// Announces an operation and says what to do with it.
    pub fn begin(
        &mut self,
        run: &RunId,
        operation: OperationId,
        command: &NodeManagerCommand,
        now: SystemTime,
    ) -> Begin {
        let key = (run.clone(), operation.attempt);
        let mut lands_until = None;
        if let Some(entry) = self.attempts.get(&key) {
            if entry.operation == operation {
                return match &entry.progress {
                    _ if entry.command != *command => Begin::Conflict,
                    Progress::Running => Begin::Join,
                    Progress::Ended(outcome) => Begin::Replay(outcome.clone()),
                };
            }
            if operation.sequence < entry.operation.sequence {
                return Begin::Conflict;
            }
            if matches!(entry.progress, Progress::Running) {
                return Begin::Busy { until: None };
            }
            lands_until = entry.lands_until.filter(|until| now < *until);
            if lands_until.is_some() && command.may_create() {
                return Begin::Busy { until: lands_until };
            }
        }
        let entry = Entry { operation, command: command.clone(), progress: Progress::Running, lands_until };
        self.attempts.insert(key, entry);
        Begin::Start
    }

    /// Records how an operation ended. `lands_until` is set when it was given up and its effect may still
    /// happen. Late or unknown operations change nothing; the answer tells whether this one was current.
    pub fn finish(
        &mut self,
        run: &RunId,
        operation: OperationId,
        outcome: EffectOutcome,
        lands_until: Option<SystemTime>,
    ) -> bool {
        let Some(entry) = self.attempts.get_mut(&(run.clone(), operation.attempt)) else {
            return false;
        };
        if entry.operation != operation || !matches!(entry.progress, Progress::Running) {
            return false;
        }
        // What an earlier call made was found: it has landed, and nothing else was under way.
        if let Ok(EffectSuccess::LeaseCreated { .. } | EffectSuccess::BootstrapStarted { .. }) = &outcome {
            entry.lands_until = None;
        }
        entry.progress = Progress::Ended(outcome);
        entry.lands_until = entry.lands_until.max(lands_until);
        true
    }

    /// Forgets an attempt that is over.
    pub fn retire(&mut self, run: &RunId, attempt: NodeAttemptId) {
        self.attempts.remove(&(run.clone(), attempt));
    }

    /// How many attempts are remembered.
    pub fn len(&self) -> usize {
        self.attempts.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::CreateMode;
    use crate::error::ExecutorErrorKind;
    use crate::facts::{BootstrapSessionId, LeaseFacts, LeaseId};
    use crate::outcome::EffectFailure;
    use crate::spec::{BootSpec, JoinSpec, LogicalNodeSpec, NodeRole, NodeTemplate};
    use crate::{GroupId, LogicalNodeId, ProviderName};
    use std::sync::Arc;
    use std::time::Duration;

    fn run() -> RunId {
        RunId::new("demo", "u1").unwrap()
    }

    fn op(attempt: u64, sequence: u64) -> OperationId {
        OperationId { attempt: NodeAttemptId(attempt), sequence }
    }

    fn cancel(session: &str) -> NodeManagerCommand {
        NodeManagerCommand::CancelBootstrap { session: BootstrapSessionId(session.into()) }
    }

    fn create(mode: CreateMode) -> NodeManagerCommand {
        let group = GroupId::new("web").unwrap();
        NodeManagerCommand::CreateLease {
            desired: LogicalNodeSpec {
                id: LogicalNodeId::of(&group, 0),
                group,
                index: 0,
                template: Arc::new(NodeTemplate {
                    role: NodeRole::default(),
                    provider: ProviderName::new("fake").unwrap(),
                    shape: serde_json::Value::Null,
                    boot: BootSpec::default(),
                    join: JoinSpec::default(),
                }),
            },
            mode,
        }
    }

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    #[test]
    fn the_same_operation_starts_once_then_joins_then_replays() {
        let mut ledger = Ledger::new();
        assert_eq!(ledger.begin(&run(), op(1, 0), &cancel("s"), NOW), Begin::Start);
        assert_eq!(ledger.begin(&run(), op(1, 0), &cancel("s"), NOW), Begin::Join);
        let outcome = Ok(EffectSuccess::BootstrapCancelled);
        assert!(ledger.finish(&run(), op(1, 0), outcome.clone(), None));
        assert_eq!(ledger.begin(&run(), op(1, 0), &cancel("s"), NOW), Begin::Replay(outcome));
    }

    #[test]
    fn another_input_or_an_older_id_is_a_conflict() {
        let mut ledger = Ledger::new();
        ledger.begin(&run(), op(1, 1), &cancel("s"), NOW);
        assert_eq!(ledger.begin(&run(), op(1, 1), &cancel("t"), NOW), Begin::Conflict);
        assert_eq!(ledger.begin(&run(), op(1, 0), &cancel("s"), NOW), Begin::Conflict);
    }

    #[test]
    fn a_second_operation_of_an_attempt_waits_and_other_attempts_do_not() {
        let mut ledger = Ledger::new();
        ledger.begin(&run(), op(1, 0), &cancel("s"), NOW);
        assert_eq!(ledger.begin(&run(), op(1, 1), &cancel("s"), NOW), Begin::Busy { until: None });
        assert_eq!(ledger.begin(&run(), op(2, 0), &cancel("s"), NOW), Begin::Start);
    }

    #[test]
    fn nothing_is_created_beside_an_effect_that_may_still_land() {
        let mut ledger = Ledger::new();
        let until = NOW + Duration::from_secs(30);
        ledger.begin(&run(), op(1, 0), &create(CreateMode::CreateOrAdopt), NOW);
        ledger.finish(&run(), op(1, 0), Ok(EffectSuccess::LeaseDestroyed), Some(until));
        let again = create(CreateMode::CreateOrAdopt);
        assert_eq!(ledger.begin(&run(), op(1, 1), &again, NOW), Begin::Busy { until: Some(until) });
        // A lookup may follow, and does not shorten the wait.
        assert_eq!(ledger.begin(&run(), op(1, 1), &create(CreateMode::AdoptOnly), NOW), Begin::Start);
        ledger.finish(&run(), op(1, 1), Ok(EffectSuccess::LeaseDestroyed), None);
        assert_eq!(ledger.begin(&run(), op(1, 2), &again, NOW), Begin::Busy { until: Some(until) });
        assert_eq!(ledger.begin(&run(), op(1, 2), &again, until), Begin::Start);
    }

    #[test]
    fn what_was_found_has_landed_and_nobody_waits_for_it() {
        let mut ledger = Ledger::new();
        let until = NOW + Duration::from_secs(30);
        ledger.begin(&run(), op(1, 0), &create(CreateMode::CreateOrAdopt), NOW);
        let lost = EffectFailure { kind: ExecutorErrorKind::Ambiguous, message: "lost".into() };
        ledger.finish(&run(), op(1, 0), Err(lost), Some(until));
        ledger.begin(&run(), op(1, 1), &create(CreateMode::AdoptOnly), NOW);
        let lease = LeaseFacts {
            lease_id: LeaseId("l-1".into()),
            provider: ProviderName::new("fake").unwrap(),
            created_at: None,
            attributes: BTreeMap::new(),
        };
        let adopted = EffectSuccess::LeaseCreated { lease, endpoint: None };
        ledger.finish(&run(), op(1, 1), Ok(adopted), None);
        // Any command that may create something stands for the start of the bootstrap.
        assert_eq!(ledger.begin(&run(), op(1, 2), &create(CreateMode::CreateOrAdopt), NOW), Begin::Start);
    }

    #[test]
    fn memory_is_bounded_by_live_attempts() {
        let mut ledger = Ledger::new();
        for sequence in 0..1000 {
            ledger.begin(&run(), op(1, sequence), &cancel("s"), NOW);
            ledger.finish(&run(), op(1, sequence), Ok(EffectSuccess::BootstrapCancelled), None);
        }
        assert_eq!(ledger.len(), 1);
        ledger.retire(&run(), NodeAttemptId(1));
        assert!(ledger.is_empty());
    }
}
