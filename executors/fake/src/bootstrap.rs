//! The bootstrapper of the fake: starts sessions on the world's leases, and tells what becomes of them.
//! `attach` reports levels, not edges: it compares what is with what it last told.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::SystemTime;

use async_trait::async_trait;
use executor_api::{
    AttemptKey, BootstrapSessionId, Bootstrapper, CreateMode, Endpoint, ExecutorError, ExecutorErrorKind,
    FoundSession, LeaseId, Life, NodeObservation, ObservationReport, ObservationSink, OperationContext,
    OperationKind, ProviderName, Reading, RejectReason, RunNodeGroupSpec, SpecProblem, StartOutcome,
    StartRequest, Visibility,
};

use crate::behaviour::NodeBehaviour;
use crate::call::Call;
use crate::faults::{CallKind, Fault};
use crate::provider::{FakeProvider, invalid, unexpected};
use crate::settings;
use crate::world::state::{Act, Answer, StartAct, State};
use crate::world::{FakeWorld, SessionPhase, SessionTruth};

impl FakeProvider {
    /// The attempt's session, the one that runs before those that are over.
    fn read_session(&self, attempt: &AttemptKey) -> Result<Option<SessionTruth>, &'static str> {
        let fault = self.world.arrive(CallKind::FindSession, Some(attempt));
        if let Some(fault) = fault {
            self.world.fire(fault);
            return Err("the sessions cannot be read at present");
        }
        Ok(self.world.enter(|state| {
            let sessions = state.sessions_of(attempt);
            sessions.min_by_key(|session| !session.truth.runs()).map(|session| session.truth.clone())
        }))
    }
}

#[async_trait]
impl Bootstrapper for FakeProvider {
    fn name(&self) -> ProviderName {
        self.name.clone()
    }

    fn visibility(&self) -> Visibility {
        // Sessions show at once; only leases hide.
        let late_landing = self.world.enter(|state| state.behaviour.visibility.late_landing);
        Visibility { listing_lag: std::time::Duration::ZERO, late_landing }
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        let problems = settings::boot(&mut NodeBehaviour::default(), &group.template.boot.settings);
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    async fn start(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError> {
        let call = Call::arrive(&self.world, ctx, CallKind::Start, OperationKind::StartBootstrap).await?;
        let mut behaviour = self.world.enter(|state| state.behaviour.of(&request.desired.id));
        let problems = settings::boot(&mut behaviour, &request.desired.template.boot.settings);
        if !problems.is_empty() {
            return Err(invalid(&call, &problems));
        }
        if let Err(error) = settings::secret(&request.desired.template.boot.settings) {
            let kind = ExecutorErrorKind::Rejected(RejectReason::Validation);
            return Err(call
                .error(kind, "needs a secret that cannot be read; see /boot/secret")
                .with_source(error));
        }
        call.pause(self.world.enter(|state| state.behaviour.read)).await?;
        let over = |how: &str| call.error(ExecutorErrorKind::Gone, &format!("found its session over: {how}"));
        let found = self.read_session(&ctx.attempt);
        let found = found.map_err(|why| call.error(ExecutorErrorKind::Unavailable, why))?;
        let mut session = match found {
            Some(SessionTruth { phase: SessionPhase::Failed(how) | SessionPhase::Ended(how), .. }) => {
                return Err(over(&how));
            }
            Some(found) => found.id,
            None if mode == CreateMode::AdoptOnly => {
                let as_of = self.world.now();
                return call.tell(StartOutcome::Absent { as_of }).await;
            }
            None => {
                let takes = behaviour.start;
                let act = Act::Start(Box::new(StartAct {
                    attempt: ctx.attempt.clone(),
                    nonce: ctx.identity().nonce,
                    lease: request.lease.lease_id.clone(),
                    behaviour,
                    fault: call.fault,
                }));
                match call.act(takes, act).await? {
                    Answer::Session(id) => id,
                    Answer::NoLease => {
                        return Err(call.error(ExecutorErrorKind::Gone, "found no living lease to run on"));
                    }
                    Answer::SessionOver(how) => return Err(over(&how)),
                    other => return Err(unexpected(&call, &other)),
                }
            }
        };
        if call.fault == Some(Fault::WithoutId) {
            session.0.clear();
            call.fire();
        }
        call.tell(StartOutcome::Started { session }).await
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundSession> {
        let as_of = self.world.now();
        match self.read_session(attempt) {
            Err(why) => Reading::Unknown { reason: why.to_owned(), as_of },
            Ok(None) => Reading::Absent { as_of },
            Ok(Some(session)) => {
                let life = if session.runs() { Life::Live } else { Life::Dead };
                Reading::Present { facts: FoundSession { session: session.id }, life, as_of }
            }
        }
    }

    async fn complete(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        let effect = OperationKind::BootstrapConvergenceObserved;
        let call = Call::arrive(&self.world, ctx, CallKind::Complete, effect).await?;
        let act = Act::Complete { attempt: ctx.attempt.clone(), session: session.clone() };
        end(&self.world, &call, session, act).await
    }

    async fn cancel(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        let call = Call::arrive(&self.world, ctx, CallKind::Cancel, OperationKind::CancelBootstrap).await?;
        let act = Act::Cancel { attempt: ctx.attempt.clone(), session: session.clone() };
        end(&self.world, &call, session, act).await
    }

    async fn attach(
        &self,
        attempt: &AttemptKey,
        session: &BootstrapSessionId,
        sink: ObservationSink,
    ) -> Result<(), ExecutorError> {
        let fault = self.world.arrive(CallKind::Attach, Some(attempt));
        if fault == Some(Fault::Panics) {
            self.world.fire(Fault::Panics);
            panic!("the fake executor was told to panic in attach for {attempt}");
        }
        let teller = Teller { world: &self.world, attempt, sink, fault };
        let mut told = Told::default();
        loop {
            let Some(seen) = self.world.enter(|state| look(state, attempt, session)) else {
                return Err(ExecutorError::new(
                    ExecutorErrorKind::Gone,
                    OperationKind::StartBootstrap,
                    format!("there is no session {session} of {attempt} to follow"),
                ));
            };
            if teller.tell(&mut told, session, &seen) {
                return Ok(());
            }
            let sleep = seen.next.map(|at| self.world.timer().sleep_until(at));
            Changed { world: &self.world, attempt, version: seen.version, sleep }.await;
        }
    }
}

/// Ends a session one way or the other. What is over already is success.
async fn end(
    world: &FakeWorld,
    call: &Call<'_>,
    session: &BootstrapSessionId,
    act: Act,
) -> Result<(), ExecutorError> {
    let takes = world.enter(|state| {
        let found = state.session(session).filter(|session| session.truth.runs())?;
        Some(match act {
            Act::Complete { .. } => found.behaviour.complete,
            _ => found.behaviour.cancel,
        })
    });
    match call.act(takes.unwrap_or_default(), act).await? {
        Answer::Done | Answer::NotFound => call.tell(()).await,
        Answer::NotYours => {
            let kind = ExecutorErrorKind::Rejected(RejectReason::Validation);
            Err(call.error(kind, "names a session of somebody else; nothing of it was touched"))
        }
        other => Err(unexpected(call, &other)),
    }
}

/// What those who follow an attempt can see of it.
struct Seen {
    session: SessionTruth,
    lease: LeaseId,
    life: Life,
    ended: Option<String>,
    by_request: bool,
    vanished: bool,
    endpoint: Option<Endpoint>,
    version: u64,
    next: Option<SystemTime>,
}

fn look(state: &mut State, attempt: &AttemptKey, session: &BootstrapSessionId) -> Option<Seen> {
    let session = state.session(session).filter(|session| session.truth.owner == *attempt)?.truth.clone();
    let lease = state.lease(&session.lease)?;
    let after_now = (std::ops::Bound::Excluded(state.now), std::ops::Bound::Unbounded);
    Some(Seen {
        lease: lease.truth.id.clone(),
        life: lease.truth.life,
        ended: lease.truth.ended.clone(),
        by_request: lease.by_request,
        vanished: lease.truth.vanished,
        endpoint: lease.truth.endpoint.clone(),
        version: state.attempts.get(attempt).map_or(0, |entry| entry.version),
        next: lease.agenda.range(after_now).next().copied(),
        session,
    })
}

/// What was told so far.
#[derive(Default)]
struct Told {
    sequence: u64,
    joined: bool,
    suspected: bool,
    endpoint: Option<Endpoint>,
}

struct Teller<'a> {
    world: &'a FakeWorld,
    attempt: &'a AttemptKey,
    sink: ObservationSink,
    fault: Option<Fault>,
}

impl Teller<'_> {
    /// Tells what is new. Answers whether the attempt is over.
    fn tell(&self, told: &mut Told, id: &BootstrapSessionId, seen: &Seen) -> bool {
        let (sequence, phase) = match &seen.session.phase {
            SessionPhase::Running => (1, "starting"),
            SessionPhase::Joined => (2, "joined"),
            SessionPhase::Completed => (3, "completed"),
            SessionPhase::Failed(_) | SessionPhase::Ended(_) => (told.sequence, ""),
        };
        if sequence > told.sequence {
            told.sequence = sequence;
            let phase = phase.to_owned();
            self.send(id, NodeObservation::BootstrapProgress { session: id.clone(), sequence, phase });
        }
        if let (Some(member), false) = (&seen.session.member, told.joined) {
            told.joined = true;
            let member = member.clone();
            self.send(id, NodeObservation::MemberJoined { session: id.clone(), member });
        }
        if let SessionPhase::Failed(reason) = &seen.session.phase {
            let reason = reason.clone();
            self.send(id, NodeObservation::BootstrapFailed { session: id.clone(), reason });
            return true;
        }
        if seen.life == Life::Dead && seen.vanished {
            // Silence proves nothing: the listing has to say that the lease is no more.
            if !told.suspected {
                told.suspected = true;
                let reason = format!("the connection to {} broke", seen.lease);
                self.send(id, NodeObservation::Suspected { reason });
            }
            return false;
        }
        if seen.life == Life::Dead {
            if !seen.by_request {
                let reason = seen.ended.clone().unwrap_or_default();
                self.send(id, NodeObservation::LeaseLost { lease: seen.lease.clone(), reason });
            }
            return true;
        }
        if let Some(endpoint) = &seen.endpoint
            && told.endpoint.replace(endpoint.clone()).is_some_and(|before| before != *endpoint)
        {
            let endpoint = endpoint.clone();
            self.send(id, NodeObservation::EndpointChanged { lease: seen.lease.clone(), endpoint });
        }
        matches!(seen.session.phase, SessionPhase::Ended(_))
    }

    fn send(&self, id: &BootstrapSessionId, observation: NodeObservation) {
        self.deliver(observation.clone());
        match self.fault {
            Some(fault @ Fault::Repeats) => {
                self.world.fire(fault);
                self.deliver(observation);
            }
            Some(fault @ Fault::Outdated) => {
                self.world.fire(fault);
                let phase = "outdated".to_owned();
                self.deliver(NodeObservation::BootstrapProgress { session: id.clone(), sequence: 0, phase });
                let session = BootstrapSessionId(format!("{id}-never-was"));
                let reason = "a session that never was failed".to_owned();
                self.deliver(NodeObservation::BootstrapFailed { session, reason });
            }
            _ => {}
        }
    }

    fn deliver(&self, observation: NodeObservation) {
        let AttemptKey { node, attempt, .. } = self.attempt.clone();
        self.sink.send(ObservationReport { node, attempt, observation });
    }
}

/// Completes once something about the attempt has changed, or at the next moment at which it may.
struct Changed<'a> {
    world: &'a FakeWorld,
    attempt: &'a AttemptKey,
    version: u64,
    sleep: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Future for Changed<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let changed = self.world.enter(|state| {
            let Some(entry) = state.attempts.get_mut(self.attempt) else {
                return true;
            };
            if entry.version != self.version {
                return true;
            }
            if !entry.watchers.iter().any(|watcher| watcher.will_wake(cx.waker())) {
                entry.watchers.push(cx.waker().clone());
            }
            false
        });
        if changed {
            return Poll::Ready(());
        }
        match self.sleep.as_mut() {
            Some(sleep) => sleep.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}
