//! The fake as its users see it: a life from lease to loss, giving calls up, and each fault doing what it says.

#![expect(
    clippy::unwrap_used,
    clippy::needless_raw_string_hashes,
    reason = "the helpers of a test are tests"
)]

mod support;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use executor_api::{
    AttemptKey, BootstrapSessionId, Bootstrapper, CreateMode, CreateOutcome, EndpointLookup,
    ExecutorErrorKind, LeaseFacts, LeaseProvider, Life, NodeObservation, ObservationSink, OperationContext,
    Reading, RejectReason, StartOutcome, StartRequest, Visibility,
};
use executor_fake::{
    BreachKind, CallKind, FakeBehaviour, FakeProvider, FakeWorld, Fault, Incident, Rule, SessionPhase,
    Silence, Tokens, Weather,
};
use expect_test::expect;
use serde_json::{Value, json};
use support::{Time, ctx, epoch, key, secs, spec};

/// A world, its time, and an attempt to play with.
struct Stage {
    time: Time,
    world: FakeWorld,
    key: AttemptKey,
    shape: Value,
    boot: Value,
    sequence: u64,
}

impl Stage {
    fn new(behaviour: FakeBehaviour) -> Self {
        let time = Time::new();
        let timer: Arc<dyn executor_api::Timer> = Arc::<support::VirtualTimer>::clone(&time.timer);
        let world = FakeWorld::new(timer, behaviour);
        Self { time, world, key: key("web-0", 1), shape: Value::Null, boot: Value::Null, sequence: 0 }
    }

    fn ctx(&mut self) -> OperationContext {
        self.sequence += 1;
        ctx(&self.key, self.sequence, self.world.now())
    }

    fn provider(&self) -> FakeProvider {
        self.world.provider()
    }

    fn create_as(&mut self, mode: CreateMode) -> Result<CreateOutcome, ExecutorErrorKind> {
        let (provider, ctx) = (self.provider(), self.ctx());
        let desired = spec(&self.key, self.shape.clone(), self.boot.clone());
        self.time.block_on(async move { provider.create(&ctx, &desired, mode).await.map_err(|e| e.kind) })
    }

    fn create(&mut self) -> Result<LeaseFacts, ExecutorErrorKind> {
        match self.create_as(CreateMode::CreateOrAdopt)? {
            CreateOutcome::Leased { lease, .. } => Ok(lease),
            CreateOutcome::Absent { .. } => panic!("a create found nothing and made nothing"),
        }
    }

    /// Spawns a create and gives it up once `after` has passed.
    fn create_and_give_up(&mut self, after: Duration) {
        let (provider, ctx) = (self.provider(), self.ctx());
        let desired = spec(&self.key, self.shape.clone(), self.boot.clone());
        let until = self.world.now() + after;
        let task = self.time.spawn(async move {
            let result = provider.create(&ctx, &desired, CreateMode::CreateOrAdopt).await;
            panic!("a create that should have hung ended with {result:?}");
        });
        self.time.run_until(until);
        self.time.drop_task(task);
    }

    fn start(&mut self, lease: &LeaseFacts) -> Result<BootstrapSessionId, ExecutorErrorKind> {
        let endpoint = loop {
            let (provider, ctx, lease) = (self.provider(), self.ctx(), lease.clone());
            let lookup = self.time.block_on(async move { provider.lookup_endpoint(&ctx, &lease).await });
            match lookup.map_err(|e| e.kind)? {
                EndpointLookup::Found(endpoint) => break endpoint,
                EndpointLookup::NotReady(_) => {}
            }
        };
        let (provider, ctx) = (self.provider(), self.ctx());
        let desired = spec(&self.key, self.shape.clone(), self.boot.clone());
        let request = StartRequest { desired, lease: lease.clone(), endpoint };
        let started = self
            .time
            .block_on(async move { provider.start(&ctx, &request, CreateMode::CreateOrAdopt).await });
        match started.map_err(|e| e.kind)? {
            StartOutcome::Started { session } => Ok(session),
            StartOutcome::Absent { .. } => panic!("a start found nothing and started nothing"),
        }
    }

    fn destroy(&mut self, lease: &LeaseFacts) -> Result<(), ExecutorErrorKind> {
        let (provider, ctx, lease) = (self.provider(), self.ctx(), lease.clone());
        self.time.block_on(async move { provider.destroy(&ctx, &lease).await.map_err(|e| e.kind) })
    }

    fn find(&mut self) -> Option<Life> {
        let (provider, key) = (self.provider(), self.key.clone());
        let reading = self.time.block_on(async move { LeaseProvider::find(&provider, &key).await });
        if let Reading::Present { life, .. } = reading { Some(life) } else { None }
    }

    /// Follows a session in the background; what is told is added to the list, one line each.
    fn attach(&mut self, session: &BootstrapSessionId) -> Rc<RefCell<Vec<String>>> {
        let lines = Rc::new(RefCell::new(Vec::new()));
        let told = Arc::new(Mutex::new(Vec::new()));
        let (provider, key, session) = (self.provider(), self.key.clone(), session.clone());
        let world = self.world.clone();
        let sink = {
            let told = Arc::clone(&told);
            ObservationSink::new(move |report| {
                let at = world.now().duration_since(epoch()).unwrap().as_millis();
                told.lock().unwrap().push(format!("+{at}ms {}", say(&report.observation)));
            })
        };
        let out = Rc::clone(&lines);
        self.time.spawn(async move {
            let end = provider.attach(&key, &session, sink).await;
            told.lock().unwrap().push(format!("end {:?}", end.map_err(|e| e.kind)));
            out.borrow_mut().append(&mut told.lock().unwrap());
        });
        lines
    }

    fn run_for(&mut self, time: Duration) {
        let until = self.world.now() + time;
        self.time.run_until(until);
    }

    fn existing(&self) -> usize {
        self.world.existing_leases().len()
    }

    fn log(&self) -> String {
        let lines = self.world.log().into_iter().map(|event| {
            format!("+{}ms {}\n", event.at.duration_since(epoch()).unwrap().as_millis(), event.what)
        });
        lines.collect()
    }
}

fn say(observation: &NodeObservation) -> String {
    match observation {
        NodeObservation::BootstrapProgress { session, sequence, phase } => {
            format!("{session} #{sequence} {phase}")
        }
        NodeObservation::MemberJoined { member, .. } => format!("{} joined", member.member_id),
        NodeObservation::BootstrapFailed { session, reason } => format!("{session} failed: {reason}"),
        NodeObservation::LeaseLost { lease, reason } => format!("{lease} lost: {reason}"),
        other => format!("{other:?}"),
    }
}

fn late_landing(seconds: u64) -> FakeBehaviour {
    let visibility = Visibility { listing_lag: Duration::ZERO, late_landing: secs(seconds) };
    FakeBehaviour { visibility, ..FakeBehaviour::default() }
}

#[test]
fn a_life_from_lease_to_loss_is_told_in_order() {
    let mut stage = Stage::new(FakeBehaviour::default());
    let lease = stage.create().unwrap();
    let session = stage.start(&lease).unwrap();
    let told = stage.attach(&session);
    stage.run_for(secs(10));
    stage.world.kill(&lease.lease_id, "kernel panic");
    stage.run_for(secs(1));
    expect![[r#"
        +3700ms bs-1 #1 starting
        +6700ms bs-1 #2 joined
        +6700ms member-bs-1 joined
        +13700ms i-1 lost: kernel panic
        end Ok(())"#]]
    .assert_eq(&told.borrow().join("\n"));
    expect![[r#"
        +2100ms i-1 made
        +3100ms i-1 live
        +3700ms bs-1 started
        +6700ms bs-1 joined
        +13700ms i-1 dead: kernel panic
        +13700ms bs-1 over: its lease ended
    "#]]
    .assert_eq(&stage.log());
    assert_eq!(stage.existing(), 0);
}

#[test]
fn the_spec_decides_how_long_things_take_and_what_becomes_of_them() {
    let mut stage = Stage::new(FakeBehaviour::instant());
    stage.shape = json!({ "create": "5s", "endpoint": "2s" });
    stage.boot = json!({ "start": "1s", "exit": { "after": "3s", "status": 0 } });
    let lease = stage.create().unwrap();
    assert_eq!(stage.world.now(), epoch() + secs(5));
    stage.run_for(secs(2));
    let session = stage.start(&lease).unwrap();
    let told = stage.attach(&session);
    stage.run_for(secs(4));
    expect![[r#"
        +8000ms bs-1 #1 starting
        +11000ms bs-1 failed: exited with status 0 before joining
        end Ok(())"#]]
    .assert_eq(&told.borrow().join("\n"));
    assert_eq!(stage.start(&lease), Err(ExecutorErrorKind::Gone), "a session that is over came back");
}

#[test]
fn a_create_given_up_in_time_makes_nothing() {
    let mut stage = Stage::new(FakeBehaviour::default());
    stage.create_and_give_up(secs(1));
    stage.run_for(secs(60));
    assert_eq!(stage.existing(), 0);
    assert_eq!(stage.world.in_flight(&stage.key), 0);
}

#[test]
fn a_create_given_up_lands_late_where_the_world_says_so_and_is_adopted() {
    let mut stage = Stage::new(late_landing(30));
    stage.create_and_give_up(secs(1));
    assert_eq!((stage.existing(), stage.world.in_flight(&stage.key)), (0, 1));
    stage.run_for(secs(5));
    assert_eq!(stage.existing(), 1);
    stage.create().unwrap();
    assert_eq!(stage.existing(), 1);
    assert_eq!(stage.world.fired()["landed-late"], 1);
}

#[test]
fn a_scripted_late_landing_never_exceeds_what_is_declared() {
    let mut stage = Stage::new(late_landing(10));
    let fault = Fault::LandsLate { after: secs(500), silence: Silence::Ambiguous };
    stage.world.script(Rule::new(CallKind::Create, fault)).unwrap();
    assert_eq!(stage.create(), Err(ExecutorErrorKind::Ambiguous));
    stage.run_for(secs(9));
    assert_eq!(stage.existing(), 0);
    stage.run_for(secs(1));
    assert_eq!(stage.existing(), 1);
}

#[test]
fn a_lost_answer_leaves_a_lease_that_the_next_create_adopts() {
    let mut stage = Stage::new(FakeBehaviour::default());
    let fault = Fault::AnswerLost(Silence::Ambiguous);
    stage.world.script(Rule::new(CallKind::Create, fault)).unwrap();
    assert_eq!(stage.create(), Err(ExecutorErrorKind::Ambiguous));
    let made = stage.world.existing_leases();
    assert_eq!(stage.create().unwrap().lease_id, made[0].id);
    assert_eq!(stage.world.fired()["answer-lost"], 1);
    assert!(stage.world.breaches().is_empty());
}

#[test]
fn a_call_that_runs_into_its_deadline_ends_there() {
    let mut stage = Stage::new(FakeBehaviour::default());
    stage.shape = json!({ "create": "45s" });
    assert_eq!(stage.create(), Err(ExecutorErrorKind::Ambiguous));
    assert_eq!(stage.world.now(), epoch() + secs(30));
}

#[test]
fn the_world_witnesses_what_must_never_be() {
    let mut stage = Stage::new(FakeBehaviour { tokens: Tokens::Ignored, ..late_landing(60) });
    stage.create_and_give_up(secs(1));
    stage.create().unwrap();
    let kinds: Vec<_> = stage.world.breaches().iter().map(|breach| breach.kind).collect();
    assert_eq!(kinds, [BreachKind::TwoLeasesForAttempt]);
    stage.key = key("web-0", 2);
    stage.create().unwrap();
    let last = stage.world.breaches().last().map(|breach| breach.kind);
    assert_eq!(last, Some(BreachKind::TwoLeasesForSlot));
}

#[test]
fn a_duplicate_of_the_worlds_own_making_is_excused_and_the_next_create_removes_it() {
    let mut stage = Stage::new(FakeBehaviour::default());
    stage.world.script(Rule::new(CallKind::Create, Fault::MadeTwice)).unwrap();
    stage.create().unwrap();
    assert_eq!((stage.existing(), stage.world.all_breaches().len()), (2, 1));
    assert!(stage.world.breaches().is_empty());
    stage.create().unwrap();
    assert_eq!(stage.existing(), 1);
}

#[test]
fn a_lease_hides_for_the_declared_lag_and_the_token_prevents_a_second() {
    let visibility = Visibility { listing_lag: secs(40), late_landing: Duration::ZERO };
    let mut stage = Stage::new(FakeBehaviour { visibility, ..FakeBehaviour::default() });
    let first = stage.create().unwrap();
    assert_eq!(stage.find(), None);
    assert_eq!(stage.create().unwrap().lease_id, first.lease_id);
    stage.run_for(secs(40));
    assert_eq!(stage.find(), Some(Life::Live));
    assert_eq!(stage.world.creates_by_token().len(), 1);
}

#[test]
fn not_found_is_only_absence_once_the_lease_is_old_enough() {
    let behaviour = FakeBehaviour { direct_lag: secs(5), ..FakeBehaviour::default() };
    let mut stage = Stage::new(behaviour);
    let lease = stage.create().unwrap();
    assert_eq!(stage.destroy(&lease), Err(ExecutorErrorKind::Ambiguous));
    assert_eq!(stage.existing(), 1);
    stage.run_for(secs(5));
    stage.world.vanish(&lease.lease_id);
    assert_eq!(stage.destroy(&lease), Ok(()));
}

#[test]
fn a_lease_of_another_attempt_is_not_touched() {
    let mut stage = Stage::new(FakeBehaviour::default());
    let lease = stage.create().unwrap();
    stage.key = key("web-0", 2);
    let refused = ExecutorErrorKind::Rejected(RejectReason::Validation);
    assert_eq!(stage.destroy(&lease), Err(refused));
    assert_eq!(stage.existing(), 1);
    assert_eq!(stage.world.breaches()[0].kind, BreachKind::WrongKill);
}

#[test]
fn a_dead_lease_is_gone_and_never_returned() {
    let mut stage = Stage::new(FakeBehaviour::default());
    let lease = stage.create().unwrap();
    stage.world.kill(&lease.lease_id, "reclaimed");
    assert_eq!(stage.create(), Err(ExecutorErrorKind::Gone));
    // Even when it is no longer listed, its token is known to be spent.
    stage.run_for(secs(7200));
    assert_eq!(stage.find(), None);
    assert_eq!(stage.create(), Err(ExecutorErrorKind::Gone));
}

#[test]
fn incidents_befall_whatever_the_slot_then_has() {
    let mut stage = Stage::new(FakeBehaviour::default());
    let node = stage.key.node.clone();
    stage.world.schedule(epoch() + secs(20), &node, Incident::Moves);
    stage.world.schedule(epoch() + secs(30), &node, Incident::Exits(9));
    let lease = stage.create().unwrap();
    let session = stage.start(&lease).unwrap();
    let told = stage.attach(&session);
    stage.run_for(secs(60));
    expect![[r#"
        +3700ms bs-1 #1 starting
        +6700ms bs-1 #2 joined
        +6700ms member-bs-1 joined
        +20000ms EndpointChanged { lease: LeaseId("i-1"), endpoint: Endpoint { host: "10.0.0.2", port: 7000, auth: None, ports: {} } }
        +30000ms i-1 lost: exited with status 9
        end Ok(())"#]].assert_eq(&told.borrow().join("\n"));
}

#[test]
fn an_adopting_provider_tells_a_session_from_its_present_state_on() {
    let mut stage = Stage::new(FakeBehaviour::default());
    let lease = stage.create().unwrap();
    let session = stage.start(&lease).unwrap();
    stage.run_for(secs(10));
    let ctx = stage.ctx();
    let (provider, of) = (stage.provider(), session.clone());
    stage.time.block_on(async move { provider.complete(&ctx, &of).await }).unwrap();
    let told = stage.attach(&session);
    stage.run_for(secs(1));
    stage.destroy(&lease).unwrap();
    expect![[r#"
        +13800ms bs-1 #3 completed
        +13800ms member-bs-1 joined
        end Ok(())"#]]
    .assert_eq(&told.borrow().join("\n"));
    assert_eq!(stage.world.sessions()[0].phase, SessionPhase::Completed);
}

#[test]
fn every_refusal_is_of_its_kind() {
    let kinds = [
        (Fault::Rejected(RejectReason::Quota), ExecutorErrorKind::Rejected(RejectReason::Quota)),
        (
            Fault::Throttled { retry_after: Some(secs(7)) },
            ExecutorErrorKind::Throttled { retry_after: Some(secs(7)) },
        ),
        (Fault::Unavailable, ExecutorErrorKind::Unavailable),
        (Fault::NotActed(Silence::Ambiguous), ExecutorErrorKind::Ambiguous),
        (Fault::Gone, ExecutorErrorKind::Gone),
    ];
    for (fault, kind) in kinds {
        let mut stage = Stage::new(FakeBehaviour::default());
        stage.world.script(Rule::new(CallKind::Create, fault)).unwrap();
        assert_eq!(stage.create(), Err(kind));
        assert_eq!((stage.existing(), stage.world.fired()[fault.name()]), (0, 1));
    }
}

#[test]
fn a_create_that_cannot_look_first_makes_nothing() {
    let mut stage = Stage::new(FakeBehaviour::default());
    stage.world.script(Rule::new(CallKind::FindLease, Fault::Unknown)).unwrap();
    assert_eq!(stage.create(), Err(ExecutorErrorKind::Unavailable));
    assert_eq!(stage.existing(), 0);
}

#[test]
fn adopt_only_makes_nothing() {
    let mut stage = Stage::new(FakeBehaviour::default());
    let outcome = stage.create_as(CreateMode::AdoptOnly);
    assert!(matches!(outcome, Ok(CreateOutcome::Absent { .. })), "{outcome:?}");
    assert!(stage.world.leases().is_empty());
}

#[test]
fn weather_from_the_same_seed_makes_the_same_history() {
    let history = |seed| {
        let mut stage = Stage::new(late_landing(20));
        stage.world.set_weather(Some(Weather::everything(seed, 15, None)));
        for attempt in 1..40 {
            stage.key = key("web-0", attempt);
            let (provider, ctx) = (stage.provider(), stage.ctx());
            let desired = spec(&stage.key, Value::Null, Value::Null);
            stage.time.spawn(async move {
                let call = std::pin::pin!(provider.create(&ctx, &desired, CreateMode::CreateOrAdopt));
                let _ = Calm(call).await;
            });
            stage.run_for(secs(10));
        }
        (stage.log(), stage.world.fired())
    };
    assert_eq!(history(5), history(5));
    assert_ne!(history(5).1, history(6).1);
}

#[test]
fn in_foul_weather_every_fault_really_happens_and_a_faithful_caller_breaches_nothing() {
    let mut fired = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let mut stage = Stage::new(late_landing(20));
        stage.world.set_weather(Some(Weather::everything(seed, 12, None)));
        stage.world.set_behaviour(|world| world.visibility.listing_lag = secs(5));
        for attempt in 1..=8 {
            stage.key = key("web-0", attempt);
            stage.stormy_life();
        }
        fired.extend(stage.world.fired().into_keys());
        assert_eq!(stage.world.breaches(), [], "seed {seed}");
    }
    let mut expected = Weather::everything(0, 1, None).names();
    expected.insert("landed-late");
    let missing: Vec<_> = expected.difference(&fired).collect();
    assert!(missing.is_empty(), "these faults never happened: {missing:?}");
}

impl Stage {
    /// Runs a call for at most ten seconds; panics, hangs and errors are nothing.
    fn try_call<T: 'static>(&mut self, call: impl Future<Output = T> + 'static) -> Option<T> {
        let result = Rc::new(RefCell::new(None));
        let into = Rc::clone(&result);
        let task = self.time.spawn(async move {
            let call = std::pin::pin!(call);
            *into.borrow_mut() = Calm(call).await;
        });
        self.run_for(secs(10));
        self.time.drop_task(task);
        result.take()
    }

    /// One attempt's life in bad weather, told by a caller that destroys until nothing is left.
    fn stormy_life(&mut self) {
        let (provider, ctx, key) = (self.provider(), self.ctx(), self.key.clone());
        let desired = spec(&key, Value::Null, Value::Null);
        let wanted = desired.clone();
        let made = self
            .try_call(async move { provider.create(&ctx, &wanted, CreateMode::CreateOrAdopt).await.ok() });
        if let Some(Some(CreateOutcome::Leased { lease, .. })) = made {
            let (provider, ctx, of) = (self.provider(), self.ctx(), lease.clone());
            let found = self.try_call(async move { provider.lookup_endpoint(&ctx, &of).await.ok() });
            if let Some(Some(EndpointLookup::Found(endpoint))) = found {
                let request = StartRequest { desired, lease: lease.clone(), endpoint };
                let (provider, ctx) = (self.provider(), self.ctx());
                let started = self.try_call(async move {
                    provider.start(&ctx, &request, CreateMode::CreateOrAdopt).await.ok()
                });
                if let Some(Some(StartOutcome::Started { session })) = started {
                    let (provider, of, id) = (self.provider(), key.clone(), session.clone());
                    let sink = ObservationSink::new(|_| {});
                    self.try_call(async move { provider.attach(&of, &id, sink).await.ok() });
                    let (provider, ctx, id) = (self.provider(), self.ctx(), session.clone());
                    self.try_call(async move { provider.complete(&ctx, &id).await.ok() });
                    let (provider, ctx) = (self.provider(), self.ctx());
                    self.try_call(async move { provider.cancel(&ctx, &session).await.ok() });
                }
            }
        }
        let (provider, run) = (self.provider(), key.run.clone());
        self.try_call(async move { provider.list(&run).await.ok() });
        // What may still land has landed, and is visible.
        self.run_for(secs(30));
        while let Some(truth) = self.world.leases_of(&key).into_iter().next() {
            let provider = LeaseProvider::name(&self.provider());
            let attributes = std::collections::BTreeMap::new();
            let created_at = Some(truth.created_at);
            let facts = LeaseFacts { lease_id: truth.id, provider, created_at, attributes };
            let (provider, ctx) = (self.provider(), self.ctx());
            self.try_call(async move { provider.destroy(&ctx, &facts).await.ok() });
        }
    }
}

/// Turns a panic of a future into its end.
struct Calm<F>(F);

impl<F: Future + Unpin> Future for Calm<F> {
    type Output = Option<F::Output>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        let poll = std::panic::AssertUnwindSafe(|| std::pin::Pin::new(&mut self.0).poll(cx));
        match std::panic::catch_unwind(poll) {
            Ok(poll) => poll.map(Some),
            Err(_) => std::task::Poll::Ready(None),
        }
    }
}
