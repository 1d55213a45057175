//! Dedup: at most one live lease and one live session for an attempt, whatever the operations, however
//! concurrent, and across instances. The last four run behind the ledger, as every executor does in the driver.

use std::sync::{Arc, Mutex, PoisonError};

use executor_api::{
    AttemptKey, Begin, CreateMode, Executor, ExecutorErrorKind, Ledger, NodeManagerCommand, OperationContext,
    outcome::EffectFailure,
};

use crate::bench::{Bench, leased, session_of};
use crate::case::{CallEnd, CaseResult, ensure};
use crate::harness::{Injection, NodePlan};

const AT_ONCE: usize = 8;

pub(crate) async fn a_lease_is_made_once_however_often_it_is_created(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let first = b.create(&key).await?;
    for _ in 0..4 {
        let again = b.create(&key).await?;
        ensure!(
            again.lease_id == first.lease_id,
            "a repeat gave {} after {}",
            again.lease_id,
            first.lease_id
        );
    }
    one_lease(&b, &key).await
}

pub(crate) async fn creates_at_once_make_one_lease(b: Arc<Bench>) -> CaseResult {
    let executors = vec![b.executor().clone(); AT_ONCE];
    create_at_once(&b, executors).await
}

pub(crate) async fn creates_of_two_instances_at_once_make_one_lease(b: Arc<Bench>) -> CaseResult {
    create_at_once(&b, vec![b.executor().clone(), b.restarted()]).await
}

pub(crate) async fn a_session_is_started_once_however_often(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let request = b.leased(&key, NodePlan::NeverJoins).await?;
    let mut sessions = Vec::new();
    for _ in 0..5 {
        let outcome = b.start_on(b.executor(), &request, &key, CreateMode::CreateOrAdopt).await?;
        sessions.push(session_of(outcome)?);
    }
    sessions.dedup();
    ensure!(sessions.len() == 1, "repeated starts gave the sessions {sessions:?}");
    one_session(&b, &key).await
}

pub(crate) async fn starts_at_once_make_one_session(b: Arc<Bench>) -> CaseResult {
    let executors = vec![b.executor().clone(); AT_ONCE];
    start_at_once(&b, executors).await
}

pub(crate) async fn starts_of_two_instances_at_once_make_one_session(b: Arc<Bench>) -> CaseResult {
    start_at_once(&b, vec![b.executor().clone(), b.restarted()]).await
}

pub(crate) async fn different_slots_hold_different_leases(b: Arc<Bench>) -> CaseResult {
    let mut leases = Vec::new();
    for index in 0..3 {
        leases.push(b.create(&b.key("web", index, u64::from(index) + 1)).await?.lease_id);
        b.absence_counts().await;
    }
    leases.sort();
    leases.dedup();
    ensure!(leases.len() == 3, "three slots hold only {leases:?}");
    Ok(())
}

pub(crate) async fn the_same_operation_at_once_acts_once(b: Arc<Bench>) -> CaseResult {
    let shell = Arc::new(LedgerShell::new(b.executor().clone()));
    let (key, ctx, command) = create_command(&b);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let (shell, b, ctx, command) = (Arc::clone(&shell), Arc::clone(&b), ctx.clone(), command.clone());
        tasks.spawn(async move { shell.submit(&b, &ctx, &command).await });
    }
    let mut answers = tasks.join_all().await;
    answers.dedup();
    ensure!(answers.len() == 1, "one operation had the outcomes {answers:?}");
    one_lease(&b, &key).await
}

pub(crate) async fn the_same_operation_after_its_end_is_replayed(b: Arc<Bench>) -> CaseResult {
    let shell = LedgerShell::new(b.executor().clone());
    let (key, ctx, command) = create_command(&b);
    let first = shell.submit(&b, &ctx, &command).await;
    // Even when the lease is no more, the same operation does not act again.
    let lease = b.create(&key).await?;
    b.absence_counts().await;
    b.destroy(&key, &lease).await?;
    let again = shell.submit(&b, &ctx, &command).await;
    ensure!(first == again, "a replay answered {again:?} after {first:?}");
    ensure!(b.inventory().await.leases_of(&key).is_empty(), "a replay made another lease");
    Ok(())
}

pub(crate) async fn the_same_operation_with_other_input_is_refused(b: Arc<Bench>) -> CaseResult {
    let shell = LedgerShell::new(b.executor().clone());
    let (key, ctx, command) = create_command(&b);
    let _ = shell.submit(&b, &ctx, &command).await;
    let lease = b.create(&key).await?;
    let answer = shell.submit(&b, &ctx, &NodeManagerCommand::DestroyLease { lease }).await;
    ensure!(answer == Submitted::Conflict, "another command under a used operation gave {answer:?}");
    one_lease(&b, &key).await
}

pub(crate) async fn the_same_operation_across_a_timeout_does_not_act_again(b: Arc<Bench>) -> CaseResult {
    let shell = LedgerShell::new(b.executor().clone());
    let (key, mut ctx, command) = create_command(&b);
    b.inject(Injection::LoseCreateAnswer).await?;
    let first = shell.submit(&b, &ctx, &command).await;
    let again = shell.submit(&b, &ctx, &command).await;
    ensure!(first == again, "an operation that was given up answered {again:?} after {first:?}");
    // The next operation of the attempt looks first, however the one before it ended.
    b.absence_counts().await;
    ctx.operation.sequence += 1;
    ctx.deadline = b.ctx(&key).deadline;
    let next = shell.submit(&b, &ctx, &command).await;
    ensure!(matches!(next, Submitted::Ended(Ok(_))), "the operation after the lost one ended with {next:?}");
    let (one, none) = (shell.remembers(), shell.forget(&b, &key));
    ensure!(
        (one, none) == (1, 0),
        "the ledger remembers {one} operations of one attempt, and {none} of none"
    );
    one_lease(&b, &key).await
}

async fn create_at_once(b: &Arc<Bench>, executors: Vec<Executor>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let mut tasks = tokio::task::JoinSet::new();
    for executor in executors {
        let (b, key) = (Arc::clone(b), key.clone());
        tasks.spawn(async move { leased(b.create_on(&executor, &key, CreateMode::CreateOrAdopt).await?) });
    }
    let mut ids = Vec::new();
    for created in tasks.join_all().await {
        ids.push(created?.lease_id);
    }
    ids.dedup();
    ensure!(ids.len() == 1, "creates at once gave the leases {ids:?}");
    one_lease(b, &key).await
}

async fn start_at_once(b: &Arc<Bench>, executors: Vec<Executor>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let request = b.leased(&key, NodePlan::NeverJoins).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for executor in executors {
        let (b, key, request) = (Arc::clone(b), key.clone(), request.clone());
        tasks.spawn(async move {
            session_of(b.start_on(&executor, &request, &key, CreateMode::CreateOrAdopt).await?)
        });
    }
    let mut ids = Vec::new();
    for started in tasks.join_all().await {
        ids.push(started?);
    }
    ids.dedup();
    ensure!(ids.len() == 1, "starts at once gave the sessions {ids:?}");
    one_session(b, &key).await
}

pub(crate) async fn one_lease(b: &Bench, key: &AttemptKey) -> CaseResult {
    let leases = b.inventory().await.leases_of(key);
    ensure!(leases.len() == 1, "{key} holds {} leases: {leases:?}", leases.len());
    Ok(())
}

pub(crate) async fn one_session(b: &Bench, key: &AttemptKey) -> CaseResult {
    let sessions = b.inventory().await.sessions_of(key);
    ensure!(sessions.len() == 1, "{key} has {} sessions: {sessions:?}", sessions.len());
    Ok(())
}

fn create_command(b: &Bench) -> (AttemptKey, OperationContext, NodeManagerCommand) {
    let key = b.key("web", 0, 1);
    let desired = b.desired(&key, NodePlan::Joins);
    let command = NodeManagerCommand::CreateLease { desired, mode: CreateMode::CreateOrAdopt };
    (key.clone(), b.ctx(&key), command)
}

/// How a submission through the ledger ended.
#[derive(Clone, Debug, PartialEq)]
enum Submitted {
    Ended(executor_api::EffectOutcome),
    Conflict,
    Busy,
}

/// The ledger with the waiting that it leaves to its shell.
struct LedgerShell {
    executor: Executor,
    ledger: Mutex<Ledger>,
    ended: tokio::sync::Notify,
}

impl LedgerShell {
    fn new(executor: Executor) -> Self {
        Self { executor, ledger: Mutex::new(Ledger::new()), ended: tokio::sync::Notify::new() }
    }

    async fn submit(&self, b: &Bench, ctx: &OperationContext, command: &NodeManagerCommand) -> Submitted {
        loop {
            // Created before looking, so that an end in between is not missed.
            let ended = self.ended.notified();
            let begin = self.lock().begin(b.run(), ctx.operation, command, b.now());
            match begin {
                Begin::Start => {
                    let outcome = match b.call(self.executor.execute(ctx, command)).await {
                        Ok(success) => Ok(success),
                        Err(CallEnd::Error(error)) => Err(EffectFailure::from(&error)),
                        // Given up, as the driver does it.
                        Err(end) => Err(EffectFailure {
                            kind: ExecutorErrorKind::Ambiguous,
                            message: end.to_string(),
                        }),
                    };
                    self.lock().finish(b.run(), ctx.operation, outcome.clone(), None);
                    self.ended.notify_waiters();
                    return Submitted::Ended(outcome);
                }
                Begin::Join => ended.await,
                Begin::Replay(outcome) => return Submitted::Ended(outcome),
                Begin::Conflict => return Submitted::Conflict,
                Begin::Busy { .. } => return Submitted::Busy,
            }
        }
    }

    fn remembers(&self) -> usize {
        self.lock().len()
    }

    /// How much is remembered once the attempt is over.
    fn forget(&self, b: &Bench, key: &AttemptKey) -> usize {
        let mut ledger = self.lock();
        ledger.retire(b.run(), key.attempt);
        ledger.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
