//! The suite bites: executors with one deliberate fault each, and exactly the cases that each one fails.
//! A sabotage wraps the fake executor; what it does not spoil is the fake's own.

#![expect(
    clippy::unwrap_used,
    clippy::needless_raw_string_hashes,
    reason = "the helpers of a test are tests"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use conformance::fake::FakeHarness;
use conformance::{CASES, run_suite};
use executor_api::{
    AttemptKey, BootstrapSessionId, Bootstrapper, CreateMode, CreateOutcome, EndpointLookup, Executor,
    ExecutorError, ExecutorErrorKind, FoundLease, FoundSession, LeaseFacts, LeaseId, LeaseOwner,
    LeaseProvider, Life, Listing, LogicalNodeSpec, NodeObservation, ObservationSink, OperationContext,
    OperationKind, ProviderName, Reading, RejectReason, RunId, RunNodeGroupSpec, SpecProblem, StartOutcome,
    StartRequest, Visibility,
};
use executor_fake::{FakeProvider, FakeWorld};
use expect_test::{Expect, expect};

/// The deliberate faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    NeverLooksFirst,
    TokenFromTheClock,
    AdoptsByNameOnly,
    CreatesUnderAdoptOnly,
    StartsUnderAdoptOnly,
    ReturnsDeadLeases,
    AbsentIsAnError,
    UnknownIsAbsent,
    DestroysForAnybody,
    DestroyReturnsEarly,
    DestroyForgetsTheYoung,
    IgnoresItsDeadline,
    LostAnswersAreRefusals,
    ThrottlesAreAmbiguous,
    HalfAListingIsWhole,
    ListsOnlyItsOwnUid,
    ExitZeroIsNoFailure,
    ForgetsLossAfterTheJoin,
    SharesOneNonce,
    CancelOnlySaysSo,
    CompletingEndsTheNode,
    RemembersOnlyInMemory,
    AcceptsAnySpec,
    ForgetsItsSessions,
    SharesOneLease,
    TellsOnlyEdges,
    NeverFindsAnEndpoint,
    DeadReadsAsAlive,
    RemembersEndpoints,
    AdoptsFailedSessions,
    NumbersDownwards,
    RefusesAnySpec,
    ListsNothing,
    ListsByPrefix,
    AdoptsTheDeadOfTheSlot,
    DeclaresNoDelay,
    NeverTellsOfJoins,
    NoExitIsFailure,
    MakesTwo,
    CompletesOnlyOnce,
}

#[derive(Clone, Debug)]
struct Saboteur {
    inner: FakeProvider,
    world: FakeWorld,
    how: How,
    /// What this instance has seen; forgotten at a restart.
    memory: Arc<Mutex<Vec<AttemptKey>>>,
    endpoints: Arc<Mutex<BTreeMap<String, EndpointLookup>>>,
}

impl Saboteur {
    fn executor(world: &FakeWorld, how: How) -> Executor {
        let (inner, world) = (world.provider(), world.clone());
        let this = Arc::new(Self { inner, world, how, memory: Arc::default(), endpoints: Arc::default() });
        Executor::new(Arc::clone(&this) as Arc<dyn LeaseProvider>, this)
    }

    fn is(&self, how: How) -> bool {
        self.how == how
    }

    fn is_new(&self, key: &AttemptKey) -> bool {
        let mut memory = self.memory.lock().unwrap();
        let new = !memory.contains(key);
        memory.push(key.clone());
        new
    }

    /// Makes a lease without asking anybody.
    async fn make(&self, key: &AttemptKey) -> CreateOutcome {
        let id = self.world.plant(key);
        tokio::time::sleep(Duration::from_secs(2)).await;
        CreateOutcome::Leased { lease: self.facts(id), endpoint: None }
    }

    fn facts(&self, lease_id: LeaseId) -> LeaseFacts {
        LeaseFacts {
            lease_id,
            provider: LeaseProvider::name(&self.inner),
            created_at: Some(self.world.now()),
            attributes: BTreeMap::new(),
        }
    }

    /// The lease of this id, whoever owns it.
    fn owner_of(&self, lease: &LeaseFacts) -> Option<AttemptKey> {
        let found = self.world.leases().into_iter().find(|truth| truth.id == lease.lease_id)?;
        if let LeaseOwner::Attempt(key) = found.owner { Some(key) } else { None }
    }

    fn gone(effect: OperationKind) -> ExecutorError {
        ExecutorError::new(ExecutorErrorKind::Gone, effect, "there is no such thing")
    }
}

#[async_trait]
impl LeaseProvider for Saboteur {
    fn name(&self) -> ProviderName {
        LeaseProvider::name(&self.inner)
    }

    fn visibility(&self) -> Visibility {
        if self.is(How::DeclaresNoDelay) {
            return Visibility::default();
        }
        LeaseProvider::visibility(&self.inner)
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        if self.is(How::AcceptsAnySpec) {
            return Ok(());
        }
        if self.is(How::RefusesAnySpec) {
            return Err(vec![SpecProblem::new("/shape/creaet", "there is something wrong with everything")]);
        }
        LeaseProvider::validate(&self.inner, group).await
    }

    async fn create(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, ExecutorError> {
        let key = &ctx.attempt;
        match self.how {
            How::NeverLooksFirst if mode == CreateMode::CreateOrAdopt => return Ok(self.make(key).await),
            How::TokenFromTheClock if mode == CreateMode::CreateOrAdopt => {
                let found = LeaseProvider::find(&self.inner, key).await;
                if matches!(found, Reading::Absent { .. }) {
                    return Ok(self.make(key).await);
                }
            }
            How::AdoptsByNameOnly => {
                let listing = self.inner.list(&key.run).await?;
                let mine = |owner: &LeaseOwner| matches!(owner, LeaseOwner::Attempt(o) if o.node == key.node);
                let found = listing.leases.into_iter().find(|l| l.life < Life::Ending && mine(&l.owner));
                if let Some(found) = found {
                    return Ok(CreateOutcome::Leased { lease: found.lease, endpoint: found.endpoint });
                }
            }
            How::SharesOneLease | How::AdoptsTheDeadOfTheSlot => {
                let all = self.world.leases().into_iter();
                let mut fits = all.filter(|truth| match &truth.owner {
                    LeaseOwner::Attempt(owner) => self.is(How::SharesOneLease) || owner.node == key.node,
                    LeaseOwner::Incomplete => false,
                });
                if let Some(first) = fits.next() {
                    return Ok(CreateOutcome::Leased { lease: self.facts(first.id), endpoint: None });
                }
            }
            How::MakesTwo if mode == CreateMode::CreateOrAdopt => {
                self.world.plant(key);
            }
            How::RemembersOnlyInMemory if self.is_new(key) => return Ok(self.make(key).await),
            _ => {}
        }
        let mut ctx = ctx.clone();
        if self.is(How::IgnoresItsDeadline) {
            ctx.deadline += Duration::from_hours(1);
        }
        let mode = if self.is(How::CreatesUnderAdoptOnly) { CreateMode::CreateOrAdopt } else { mode };
        let call = self.inner.create(&ctx, desired, mode);
        // A client library that gives up first and calls that a refusal.
        let patience = if self.is(How::LostAnswersAreRefusals) { 20 } else { 100_000 };
        let Ok(result) = tokio::time::timeout(Duration::from_secs(patience), call).await else {
            let kind = ExecutorErrorKind::Rejected(RejectReason::Capacity);
            return Err(ExecutorError::new(
                kind,
                OperationKind::CreateLease,
                "no answer, so surely no lease",
            ));
        };
        result.or_else(|error| match error.kind {
            ExecutorErrorKind::Gone if self.is(How::ReturnsDeadLeases) => {
                let dead = self.world.leases().into_iter().find(|truth| truth.belongs_to(&ctx.attempt));
                let lease = self.facts(dead.ok_or(error)?.id);
                Ok(CreateOutcome::Leased { lease, endpoint: None })
            }
            ExecutorErrorKind::Throttled { .. } if self.is(How::ThrottlesAreAmbiguous) => {
                Err(ExecutorError::ambiguous(OperationKind::CreateLease, "something went wrong"))
            }
            _ => Err(error),
        })
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundLease> {
        match LeaseProvider::find(&self.inner, attempt).await {
            Reading::Unknown { as_of, .. } if self.is(How::UnknownIsAbsent) => Reading::Absent { as_of },
            Reading::Present { facts, as_of, .. } if self.is(How::DeadReadsAsAlive) => {
                Reading::Present { facts, life: Life::Live, as_of }
            }
            reading => reading,
        }
    }

    async fn lookup_endpoint(
        &self,
        ctx: &OperationContext,
        lease: &LeaseFacts,
    ) -> Result<EndpointLookup, ExecutorError> {
        if self.is(How::NeverFindsAnEndpoint) {
            return Ok(EndpointLookup::NotReady("soon".to_owned()));
        }
        let known = self.endpoints.lock().unwrap().get(&lease.lease_id.0).cloned();
        if let (Some(known), true) = (known, self.is(How::RemembersEndpoints)) {
            return Ok(known);
        }
        let lookup = self.inner.lookup_endpoint(ctx, lease).await?;
        if matches!(lookup, EndpointLookup::Found(_)) {
            self.endpoints.lock().unwrap().insert(lease.lease_id.0.clone(), lookup.clone());
        }
        Ok(lookup)
    }

    async fn destroy(&self, ctx: &OperationContext, lease: &LeaseFacts) -> Result<(), ExecutorError> {
        let exists = self.world.existing_leases().iter().any(|truth| truth.id == lease.lease_id);
        match self.how {
            How::AbsentIsAnError if !exists => Err(Self::gone(OperationKind::DestroyLease)),
            How::DestroysForAnybody => {
                let mut ctx = ctx.clone();
                ctx.attempt = self.owner_of(lease).unwrap_or(ctx.attempt);
                self.inner.destroy(&ctx, lease).await
            }
            How::DestroyReturnsEarly => {
                let (inner, ctx, lease) = (self.inner.clone(), ctx.clone(), lease.clone());
                tokio::spawn(async move { inner.destroy(&ctx, &lease).await });
                Ok(())
            }
            How::DestroyForgetsTheYoung => self.inner.destroy(ctx, lease).await.or_else(|error| {
                if error.kind == ExecutorErrorKind::Ambiguous { Ok(()) } else { Err(error) }
            }),
            _ => self.inner.destroy(ctx, lease).await,
        }
    }

    async fn list(&self, run: &RunId) -> Result<Listing, ExecutorError> {
        match (self.inner.list(run).await, self.how) {
            (Err(_), How::UnknownIsAbsent) => {
                Ok(Listing { as_of: self.world.now(), complete: true, leases: Vec::new() })
            }
            (Ok(listing), How::HalfAListingIsWhole) => Ok(Listing { complete: true, ..listing }),
            (Ok(mut listing), How::ListsOnlyItsOwnUid) => {
                listing.leases.retain(|l| matches!(&l.owner, LeaseOwner::Attempt(key) if key.run == *run));
                Ok(listing)
            }
            (Ok(mut listing), How::DeadReadsAsAlive) => {
                listing.leases.iter_mut().for_each(|lease| lease.life = Life::Live);
                Ok(listing)
            }
            (Ok(listing), How::ListsNothing) => Ok(Listing { leases: Vec::new(), ..listing }),
            (Ok(mut listing), How::ListsByPrefix) => {
                if let Ok(longer) = RunId::new(format!("{}x", run.name()), run.uid()) {
                    listing.leases.extend(self.inner.list(&longer).await?.leases);
                }
                Ok(listing)
            }
            (result, _) => result,
        }
    }
}

#[async_trait]
impl Bootstrapper for Saboteur {
    fn name(&self) -> ProviderName {
        Bootstrapper::name(&self.inner)
    }

    fn visibility(&self) -> Visibility {
        if self.is(How::DeclaresNoDelay) {
            return Visibility::default();
        }
        Bootstrapper::visibility(&self.inner)
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        Bootstrapper::validate(&self.inner, group).await
    }

    async fn start(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError> {
        if self.is(How::ForgetsItsSessions) {
            if mode == CreateMode::AdoptOnly {
                return Ok(StartOutcome::Absent { as_of: self.world.now() });
            }
            let session = self.world.plant_session(&ctx.attempt, &request.lease.lease_id);
            tokio::time::sleep(Duration::from_millis(500)).await;
            return Ok(StartOutcome::Started { session });
        }
        let over = self.world.sessions().into_iter().find(|truth| truth.owner == ctx.attempt);
        if let (Some(over), true) = (over, self.is(How::AdoptsFailedSessions)) {
            return Ok(StartOutcome::Started { session: over.id });
        }
        let mode = if self.is(How::StartsUnderAdoptOnly) { CreateMode::CreateOrAdopt } else { mode };
        self.inner.start(ctx, request, mode).await
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundSession> {
        Bootstrapper::find(&self.inner, attempt).await
    }

    async fn complete(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        if self.is(How::CompletingEndsTheNode) {
            for lease in self.world.leases_of(&ctx.attempt) {
                self.world.kill(&lease.id, "its session ended");
            }
        }
        let joined = self.world.sessions().iter().any(|truth| truth.id == *session && truth.runs());
        if self.is(How::CompletesOnlyOnce) && !joined {
            return Err(Self::gone(OperationKind::BootstrapConvergenceObserved));
        }
        self.inner.complete(ctx, session).await
    }

    async fn cancel(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        let runs = self.world.sessions().iter().any(|truth| truth.id == *session && truth.runs());
        match self.how {
            How::AbsentIsAnError if !runs => Err(Self::gone(OperationKind::CancelBootstrap)),
            How::CancelOnlySaysSo => Ok(()),
            How::DestroysForAnybody => {
                let mut ctx = ctx.clone();
                let owner = self.world.sessions().into_iter().find(|truth| truth.id == *session);
                ctx.attempt = owner.map_or(ctx.attempt, |truth| truth.owner);
                self.inner.cancel(&ctx, session).await
            }
            _ => self.inner.cancel(ctx, session).await,
        }
    }

    async fn attach(
        &self,
        attempt: &AttemptKey,
        session: &BootstrapSessionId,
        sink: ObservationSink,
    ) -> Result<(), ExecutorError> {
        let how = self.how;
        let joined_before =
            self.world.sessions().iter().any(|truth| truth.id == *session && truth.member.is_some());
        let spoiled = ObservationSink::new(move |mut report| {
            match &mut report.observation {
                NodeObservation::BootstrapFailed { reason, .. }
                    if how == How::ExitZeroIsNoFailure && reason.contains("status 0") =>
                {
                    return;
                }
                NodeObservation::BootstrapFailed { .. } if how == How::NoExitIsFailure => return,
                NodeObservation::MemberJoined { .. }
                    if how == How::NeverTellsOfJoins || (how == How::TellsOnlyEdges && joined_before) =>
                {
                    return;
                }
                NodeObservation::BootstrapProgress { sequence, .. } if how == How::NumbersDownwards => {
                    *sequence = 100 - *sequence;
                }
                NodeObservation::LeaseLost { .. } if how == How::ForgetsLossAfterTheJoin => return,
                NodeObservation::MemberJoined { member, .. } if how == How::SharesOneNonce => {
                    "the-run's-nonce".clone_into(&mut member.nonce);
                }
                _ => {}
            }
            sink.send(report);
        });
        self.inner.attach(attempt, session, spoiled).await
    }
}

/// Checks which cases a sabotage fails.
fn fails(how: How, expected: &Expect) {
    expected.assert_eq(&failed(how).join("\n"));
}

/// The cases that a sabotage fails. Each is tried once per test run.
fn failed(how: How) -> &'static [&'static str] {
    static TRIED: [OnceLock<Vec<&'static str>>; ALL.len()] = [const { OnceLock::new() }; ALL.len()];
    TRIED[how as usize].get_or_init(|| {
        let make = move || FakeHarness::sabotaged(move |world| Saboteur::executor(world, how));
        run_suite(make, None).unwrap().failed()
    })
}

const ALL: [How; 40] = [
    How::NeverLooksFirst,
    How::TokenFromTheClock,
    How::AdoptsByNameOnly,
    How::CreatesUnderAdoptOnly,
    How::StartsUnderAdoptOnly,
    How::ReturnsDeadLeases,
    How::AbsentIsAnError,
    How::UnknownIsAbsent,
    How::DestroysForAnybody,
    How::DestroyReturnsEarly,
    How::DestroyForgetsTheYoung,
    How::IgnoresItsDeadline,
    How::LostAnswersAreRefusals,
    How::ThrottlesAreAmbiguous,
    How::HalfAListingIsWhole,
    How::ListsOnlyItsOwnUid,
    How::ExitZeroIsNoFailure,
    How::ForgetsLossAfterTheJoin,
    How::SharesOneNonce,
    How::CancelOnlySaysSo,
    How::CompletingEndsTheNode,
    How::RemembersOnlyInMemory,
    How::AcceptsAnySpec,
    How::ForgetsItsSessions,
    How::SharesOneLease,
    How::TellsOnlyEdges,
    How::NeverFindsAnEndpoint,
    How::DeadReadsAsAlive,
    How::RemembersEndpoints,
    How::AdoptsFailedSessions,
    How::NumbersDownwards,
    How::RefusesAnySpec,
    How::ListsNothing,
    How::ListsByPrefix,
    How::AdoptsTheDeadOfTheSlot,
    How::DeclaresNoDelay,
    How::NeverTellsOfJoins,
    How::NoExitIsFailure,
    How::MakesTwo,
    How::CompletesOnlyOnce,
];

#[test]
fn an_executor_that_never_looks_first() {
    fails(
        How::NeverLooksFirst,
        &expect![[r#"
            dedup::a_lease_is_made_once_however_often_it_is_created
            dedup::creates_at_once_make_one_lease
            dedup::creates_of_two_instances_at_once_make_one_lease
            dedup::the_same_operation_with_other_input_is_refused
            adoption::a_lease_whose_answer_was_lost_is_adopted
            adoption::a_create_that_never_arrived_is_made_good
            adoption::a_lease_that_lands_late_is_adopted
            adoption::of_two_leases_one_is_kept
            adoption::a_new_instance_adopts_the_lease
            lease_life::a_dead_lease_is_never_returned
            errors::refusals_are_told_apart
            errors::a_throttle_says_how_long
            errors::a_refused_create_made_nothing
            cancellation::a_call_ends_by_its_deadline
            cancellation::a_dropped_create_leaves_one_lease_or_none"#]],
    );
}

#[test]
fn an_executor_whose_token_comes_from_the_clock() {
    fails(
        How::TokenFromTheClock,
        &expect![[r#"
        dedup::a_lease_is_made_once_however_often_it_is_created
        dedup::creates_at_once_make_one_lease
        dedup::creates_of_two_instances_at_once_make_one_lease
        dedup::the_same_operation_with_other_input_is_refused
        adoption::a_lease_whose_answer_was_lost_is_adopted
        adoption::a_create_that_never_arrived_is_made_good
        adoption::a_lease_that_lands_late_is_adopted
        adoption::a_new_instance_adopts_the_lease
        errors::refusals_are_told_apart
        errors::a_throttle_says_how_long
        errors::a_refused_create_made_nothing
        cancellation::a_call_ends_by_its_deadline"#]],
    );
}

#[test]
fn an_executor_that_adopts_by_name_only() {
    fails(
        How::AdoptsByNameOnly,
        &expect![[r#"
            adoption::of_two_leases_one_is_kept
            identity::runs_of_one_name_are_kept_apart
            identity::a_lease_of_an_earlier_attempt_is_not_adopted"#]],
    );
}

#[test]
fn an_executor_that_creates_under_adopt_only() {
    fails(
        How::CreatesUnderAdoptOnly,
        &expect![[r#"
        adoption::a_create_that_never_arrived_is_made_good
        adoption::adopt_only_makes_no_lease
        identity::a_lease_of_an_earlier_attempt_is_not_adopted"#]],
    );
}

#[test]
fn an_executor_that_starts_under_adopt_only() {
    fails(How::StartsUnderAdoptOnly, &expect!["adoption::adopt_only_starts_no_session"]);
}

#[test]
fn an_executor_that_returns_dead_leases() {
    fails(How::ReturnsDeadLeases, &expect!["lease_life::a_dead_lease_is_never_returned"]);
}

#[test]
fn an_executor_to_which_absent_is_an_error() {
    fails(
        How::AbsentIsAnError,
        &expect![[r#"
        absent::destroying_twice_is_success
        absent::destroying_what_was_removed_by_hand_is_success
        absent::destroying_what_never_was_is_success
        absent::cancelling_twice_is_success
        absent::cancelling_what_never_was_is_success
        lease_life::a_dead_lease_can_be_destroyed
        cancellation::a_dropped_destroy_can_be_repeated
        conservation::ten_lives_leave_nothing
        conservation::five_slots_at_once_leave_nothing"#]],
    );
}

#[test]
fn an_executor_to_which_unknown_is_absent() {
    fails(
        How::UnknownIsAbsent,
        &expect![[r#"
        absent::what_cannot_be_read_is_not_absent
        absent::what_cannot_be_listed_is_not_absent"#]],
    );
}

#[test]
fn an_executor_that_destroys_for_anybody() {
    fails(
        How::DestroysForAnybody,
        &expect![[r#"
        identity::a_destroy_touches_only_its_own_attempt
        identity::a_cancel_touches_only_its_own_attempt"#]],
    );
}

#[test]
fn an_executor_whose_destroy_returns_early() {
    fails(
        How::DestroyReturnsEarly,
        &expect![[r#"
        dedup::the_same_operation_after_its_end_is_replayed
        absent::a_destroyed_lease_is_gone_from_the_world
        absent::destroying_right_after_the_create_leaves_nothing
        identity::runs_of_one_name_are_kept_apart
        cancellation::a_dropped_destroy_can_be_repeated
        conservation::ten_lives_leave_nothing
        conservation::five_slots_at_once_leave_nothing"#]],
    );
}

#[test]
fn an_executor_whose_destroy_forgets_the_young() {
    fails(How::DestroyForgetsTheYoung, &expect!["absent::destroying_right_after_the_create_leaves_nothing"]);
}

#[test]
fn an_executor_that_ignores_its_deadline() {
    fails(How::IgnoresItsDeadline, &expect!["cancellation::a_call_ends_by_its_deadline"]);
}

#[test]
fn an_executor_to_which_lost_answers_are_refusals() {
    fails(
        How::LostAnswersAreRefusals,
        &expect![[r#"
        adoption::a_lease_whose_answer_was_lost_is_adopted
        adoption::a_create_that_never_arrived_is_made_good
        adoption::a_lease_that_lands_late_is_adopted"#]],
    );
}

#[test]
fn an_executor_to_which_throttles_are_ambiguous() {
    fails(How::ThrottlesAreAmbiguous, &expect!["errors::a_throttle_says_how_long"]);
}

#[test]
fn an_executor_to_which_half_a_listing_is_whole() {
    fails(How::HalfAListingIsWhole, &expect!["listing::an_incomplete_listing_says_so"]);
}

#[test]
fn an_executor_that_lists_only_its_own_uid() {
    fails(How::ListsOnlyItsOwnUid, &expect!["listing::a_listing_shows_another_uid_of_the_run_as_foreign"]);
}

#[test]
fn an_executor_to_which_exit_zero_is_no_failure() {
    fails(
        How::ExitZeroIsNoFailure,
        &expect!["bootstrap_life::an_exit_with_success_before_the_join_is_a_failure"],
    );
}

#[test]
fn an_executor_that_forgets_loss_after_the_join() {
    fails(
        How::ForgetsLossAfterTheJoin,
        &expect![[r#"
        bootstrap_life::a_death_after_the_join_is_told
        bootstrap_life::a_death_after_completion_is_told"#]],
    );
}

#[test]
fn an_executor_that_shares_one_nonce() {
    fails(How::SharesOneNonce, &expect!["identity::the_node_quotes_its_attempts_nonce"]);
}

#[test]
fn an_executor_whose_cancel_only_says_so() {
    fails(How::CancelOnlySaysSo, &expect!["bootstrap_life::a_cancelled_session_runs_no_more"]);
}

#[test]
fn an_executor_whose_completion_ends_the_node() {
    fails(How::CompletingEndsTheNode, &expect!["bootstrap_life::a_completed_node_lives_on"]);
}

#[test]
fn an_executor_that_remembers_only_in_memory() {
    fails(
        How::RemembersOnlyInMemory,
        &expect![[r#"
        dedup::a_lease_is_made_once_however_often_it_is_created
        dedup::creates_at_once_make_one_lease
        dedup::creates_of_two_instances_at_once_make_one_lease
        dedup::the_same_operation_with_other_input_is_refused
        adoption::a_lease_whose_answer_was_lost_is_adopted
        adoption::a_create_that_never_arrived_is_made_good
        adoption::a_lease_that_lands_late_is_adopted
        adoption::a_new_instance_adopts_the_lease
        adoption::adopt_only_finds_the_lease
        adoption::adopt_only_makes_no_lease
        identity::a_lease_of_an_earlier_attempt_is_not_adopted
        errors::refusals_are_told_apart
        errors::a_throttle_says_how_long
        errors::a_refused_create_made_nothing
        cancellation::a_call_ends_by_its_deadline"#]],
    );
}

#[test]
fn an_executor_that_accepts_any_spec() {
    fails(How::AcceptsAnySpec, &expect!["errors::a_flawed_spec_is_refused_at_its_flaw"]);
}

#[test]
fn an_executor_that_forgets_its_sessions() {
    fails(
        How::ForgetsItsSessions,
        &expect![[r#"
        dedup::a_session_is_started_once_however_often
        dedup::starts_at_once_make_one_session
        dedup::starts_of_two_instances_at_once_make_one_session
        adoption::a_session_whose_answer_was_lost_is_adopted
        adoption::a_new_instance_adopts_the_session
        adoption::a_new_instance_is_told_of_the_join_at_once
        adoption::adopt_only_finds_the_session
        absent::completing_twice_is_success
        identity::the_node_quotes_its_attempts_nonce
        bootstrap_life::a_node_joins
        bootstrap_life::an_exit_with_an_error_before_the_join_is_a_failure
        bootstrap_life::an_exit_with_success_before_the_join_is_a_failure
        bootstrap_life::a_session_that_failed_is_not_adopted
        bootstrap_life::a_completed_node_lives_on
        bootstrap_life::a_death_after_the_join_is_told
        bootstrap_life::a_death_after_completion_is_told
        bootstrap_life::reports_are_numbered_upwards
        cancellation::a_dropped_start_leaves_one_session_or_none
        conservation::ten_lives_leave_nothing
        conservation::five_slots_at_once_leave_nothing"#]],
    );
}

#[test]
fn an_executor_that_shares_one_lease() {
    fails(
        How::SharesOneLease,
        &expect![[r#"
        dedup::different_slots_hold_different_leases
        adoption::of_two_leases_one_is_kept
        identity::the_longest_names_are_kept_apart
        identity::similar_slots_are_kept_apart
        identity::runs_of_one_name_are_kept_apart
        identity::a_lease_of_an_earlier_attempt_is_not_adopted
        lease_life::a_dead_lease_is_never_returned
        lease_life::the_next_attempt_gets_a_lease_of_its_own
        listing::a_listing_shows_every_lease
        cancellation::a_dropped_create_leaves_one_lease_or_none
        cancellation::a_dropped_start_leaves_one_session_or_none
        cancellation::a_dropped_destroy_can_be_repeated
        conservation::ten_lives_leave_nothing"#]],
    );
}

#[test]
fn an_executor_that_tells_only_edges() {
    fails(How::TellsOnlyEdges, &expect!["adoption::a_new_instance_is_told_of_the_join_at_once"]);
}

#[test]
fn an_executor_that_never_finds_an_endpoint() {
    fails(
        How::NeverFindsAnEndpoint,
        &expect![[r#"
        dedup::a_session_is_started_once_however_often
        dedup::starts_at_once_make_one_session
        dedup::starts_of_two_instances_at_once_make_one_session
        adoption::a_session_whose_answer_was_lost_is_adopted
        adoption::a_new_instance_adopts_the_session
        adoption::a_new_instance_is_told_of_the_join_at_once
        adoption::adopt_only_finds_the_session
        adoption::adopt_only_starts_no_session
        absent::cancelling_twice_is_success
        absent::completing_twice_is_success
        identity::a_cancel_touches_only_its_own_attempt
        identity::the_node_quotes_its_attempts_nonce
        lease_life::an_endpoint_is_found_in_time
        lease_life::a_dead_lease_is_never_returned
        lease_life::a_dead_lease_has_no_endpoint
        lease_life::a_dead_lease_does_not_read_as_alive
        lease_life::a_dead_lease_can_be_destroyed
        lease_life::a_moved_lease_is_listed_where_it_is
        bootstrap_life::a_node_joins
        bootstrap_life::an_exit_with_an_error_before_the_join_is_a_failure
        bootstrap_life::an_exit_with_success_before_the_join_is_a_failure
        bootstrap_life::a_session_that_failed_is_not_adopted
        bootstrap_life::a_cancelled_session_runs_no_more
        bootstrap_life::a_completed_node_lives_on
        bootstrap_life::a_death_after_the_join_is_told
        bootstrap_life::a_death_after_completion_is_told
        bootstrap_life::reports_are_numbered_upwards
        cancellation::a_dropped_start_leaves_one_session_or_none
        cancellation::a_dropped_destroy_can_be_repeated
        conservation::ten_lives_leave_nothing
        conservation::five_slots_at_once_leave_nothing"#]],
    );
}

#[test]
fn an_executor_to_which_the_dead_read_as_alive() {
    fails(
        How::DeadReadsAsAlive,
        &expect![[r#"
        lease_life::a_dead_lease_does_not_read_as_alive
        listing::a_listing_shows_nothing_destroyed_as_alive"#]],
    );
}

#[test]
fn an_executor_that_remembers_endpoints() {
    fails(
        How::RemembersEndpoints,
        &expect![[r#"
        lease_life::a_dead_lease_has_no_endpoint
        lease_life::a_moved_lease_is_listed_where_it_is"#]],
    );
}

#[test]
fn an_executor_that_adopts_failed_sessions() {
    fails(How::AdoptsFailedSessions, &expect!["bootstrap_life::a_session_that_failed_is_not_adopted"]);
}

#[test]
fn an_executor_that_numbers_downwards() {
    fails(How::NumbersDownwards, &expect!["bootstrap_life::reports_are_numbered_upwards"]);
}

#[test]
fn an_executor_that_refuses_any_spec() {
    fails(How::RefusesAnySpec, &expect!["errors::a_sound_spec_is_accepted"]);
}

#[test]
fn an_executor_that_lists_nothing() {
    fails(
        How::ListsNothing,
        &expect![[r#"
        listing::a_listing_shows_every_lease
        listing::a_listing_shows_another_uid_of_the_run_as_foreign"#]],
    );
}

#[test]
fn an_executor_that_lists_by_prefix() {
    fails(How::ListsByPrefix, &expect!["listing::a_listing_leaves_other_runs_out"]);
}

#[test]
fn an_executor_that_adopts_the_dead_of_the_slot() {
    fails(
        How::AdoptsTheDeadOfTheSlot,
        &expect![[r#"
        adoption::of_two_leases_one_is_kept
        identity::runs_of_one_name_are_kept_apart
        identity::a_lease_of_an_earlier_attempt_is_not_adopted
        lease_life::a_dead_lease_is_never_returned
        lease_life::the_next_attempt_gets_a_lease_of_its_own
        conservation::ten_lives_leave_nothing"#]],
    );
}

#[test]
fn an_executor_that_declares_no_delay() {
    fails(
        How::DeclaresNoDelay,
        &expect![[r#"
            dedup::the_same_operation_after_its_end_is_replayed
            adoption::a_lease_that_lands_late_is_adopted
            adoption::of_two_leases_one_is_kept
            adoption::adopt_only_finds_the_lease
            absent::a_destroyed_lease_is_gone_from_the_world
            absent::destroying_twice_is_success
            absent::destroying_what_was_removed_by_hand_is_success
            absent::destroying_right_after_the_create_leaves_nothing
            identity::runs_of_one_name_are_kept_apart
            lease_life::the_next_attempt_gets_a_lease_of_its_own
            listing::a_listing_shows_every_lease
            listing::a_listing_shows_nothing_destroyed_as_alive
            listing::a_listing_shows_another_uid_of_the_run_as_foreign
            cancellation::nothing_lands_after_the_declared_time"#]],
    );
}

#[test]
fn an_executor_that_never_tells_of_joins() {
    fails(
        How::NeverTellsOfJoins,
        &expect![[r#"
        adoption::a_new_instance_is_told_of_the_join_at_once
        absent::completing_twice_is_success
        identity::the_node_quotes_its_attempts_nonce
        bootstrap_life::a_node_joins
        bootstrap_life::a_completed_node_lives_on
        bootstrap_life::a_death_after_the_join_is_told
        bootstrap_life::a_death_after_completion_is_told
        bootstrap_life::reports_are_numbered_upwards
        conservation::ten_lives_leave_nothing
        conservation::five_slots_at_once_leave_nothing"#]],
    );
}

#[test]
fn an_executor_to_which_no_exit_is_a_failure() {
    fails(
        How::NoExitIsFailure,
        &expect![[r#"
        bootstrap_life::an_exit_with_an_error_before_the_join_is_a_failure
        bootstrap_life::an_exit_with_success_before_the_join_is_a_failure"#]],
    );
}

#[test]
fn an_executor_that_makes_two() {
    fails(
        How::MakesTwo,
        &expect![[r#"
        dedup::a_lease_is_made_once_however_often_it_is_created
        dedup::creates_at_once_make_one_lease
        dedup::creates_of_two_instances_at_once_make_one_lease
        dedup::the_same_operation_at_once_acts_once
        dedup::the_same_operation_with_other_input_is_refused
        adoption::a_lease_whose_answer_was_lost_is_adopted
        adoption::a_create_that_never_arrived_is_made_good
        adoption::of_two_leases_one_is_kept
        adoption::a_new_instance_adopts_the_lease
        adoption::adopt_only_finds_the_lease
        identity::the_longest_names_are_kept_apart
        identity::similar_slots_are_kept_apart
        identity::runs_of_one_name_are_kept_apart
        identity::a_lease_of_an_earlier_attempt_is_not_adopted
        identity::a_destroy_touches_only_its_own_attempt
        lease_life::a_dead_lease_is_never_returned
        lease_life::a_dead_lease_does_not_read_as_alive
        lease_life::the_next_attempt_gets_a_lease_of_its_own
        bootstrap_life::a_completed_node_lives_on
        errors::a_refused_create_made_nothing
        listing::a_listing_shows_every_lease
        cancellation::a_dropped_create_leaves_one_lease_or_none"#]],
    );
}

#[test]
fn an_executor_that_completes_only_once() {
    fails(How::CompletesOnlyOnce, &expect!["absent::completing_twice_is_success"]);
}

/// A case that nothing fails has not shown yet that it can.
#[test]
fn every_case_is_failed_by_some_sabotage() {
    let noticed: Vec<_> = ALL.iter().flat_map(|how| failed(*how)).collect();
    let names = CASES.iter().map(|case| case.name);
    let idle: Vec<_> = names.filter(|name| !noticed.contains(&name)).collect();
    assert!(idle.is_empty(), "no sabotage fails {idle:?}");
}
