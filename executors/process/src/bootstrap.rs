//! The bootstrap half: one supervised session per attempt. Whoever holds the session lock may start it; the
//! lock then lives on in the supervisor. A dropped start leaves a session that can be adopted, or none.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use executor_api::{
    AttemptKey, BootstrapSessionId, Bootstrapper, CreateMode, ExecutorError, ExecutorErrorKind, FoundSession,
    Life, ObservationSink, OperationContext, OperationKind, ProviderName, Reading, RejectReason,
    RunNodeGroupSpec, SpecProblem, StartOutcome, StartRequest, Visibility,
};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::{task, time};

use crate::client::Conversation;
use crate::executor::{ProcessExecutor, SessionLife, SupervisorCommand, is_over, provider_name, time_left};
use crate::layout::{self, LeaseRecord, NodePlace, SessionRecord, file};
use crate::lock::{SessionLock, Taken};
use crate::plan::{self, Plan};
use crate::ports;
use crate::settings::{self, ProcessBoot};
use crate::supervisor::{self, Request};
use crate::template::{Peer, Scope};
use crate::{attach, stop, validate};

/// Time between two looks at a session that is about to begin.
const STEP: Duration = Duration::from_millis(10);

#[async_trait]
impl Bootstrapper for ProcessExecutor {
    fn name(&self) -> ProviderName {
        provider_name()
    }

    /// Nothing is late: a supervisor whose order did not come complete runs nothing, and one that has its
    /// order is seen at once by the lock that it holds.
    fn visibility(&self) -> Visibility {
        Visibility::default()
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        validate::boot(group, &self.config.self_program)
    }

    async fn start(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError> {
        let key = &ctx.attempt;
        let place = self.place(key);
        let started = || StartOutcome::Started { session: BootstrapSessionId(place.id.clone()) };
        loop {
            match session(&place, key)? {
                SessionLife::Live => {
                    // Alive is what answers: the program has been started, or it is known why not.
                    if is_answering(&place.dir).await {
                        return Ok(started());
                    }
                }
                SessionLife::Ended(exit) => {
                    return Err(failed(
                        ExecutorErrorKind::Gone,
                        format!("the session of {key} is over: {}", exit.describe()),
                    ));
                }
                SessionLife::Starting => {}
                SessionLife::None => match take(&place, key)? {
                    Taken::Held => {}
                    Taken::NoLease if mode == CreateMode::AdoptOnly => {
                        return Ok(StartOutcome::Absent { as_of: SystemTime::now() });
                    }
                    Taken::NoLease => {
                        return Err(failed(
                            ExecutorErrorKind::Gone,
                            format!("the directory {} of {key} is gone", place.dir.display()),
                        ));
                    }
                    // Someone may have been quicker, and over already: look again, now that nobody else can.
                    Taken::Ours(_) if has_session(&place, key)? => {}
                    Taken::Ours(_) if mode == CreateMode::AdoptOnly => {
                        return Ok(StartOutcome::Absent { as_of: SystemTime::now() });
                    }
                    Taken::Ours(lock) => {
                        let plan = self.plan(ctx, request, &place).await?;
                        launch(&self.config.supervisor, &place, key, &plan, lock).await?;
                        return Ok(started());
                    }
                },
            }
            if is_over(ctx.deadline) {
                return Err(failed(
                    ExecutorErrorKind::Ambiguous,
                    format!("the session of {key} did not answer in time; it can still be adopted"),
                ));
            }
            time::sleep(STEP).await;
        }
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundSession> {
        let place = self.place(attempt);
        let as_of = SystemTime::now();
        let life = match SessionLife::read(&place.dir) {
            Ok(SessionLife::None) => return Reading::Absent { as_of },
            Ok(SessionLife::Starting) => Life::Pending,
            Ok(SessionLife::Live) => Life::Live,
            Ok(SessionLife::Ended(_)) => Life::Dead,
            Err(error) => {
                let reason = format!("cannot read {}: {error}", place.dir.display());
                return Reading::Unknown { reason, as_of };
            }
        };
        let facts = FoundSession { session: BootstrapSessionId(place.id) };
        Reading::Present { facts, life, as_of }
    }

    /// The supervisor goes on for as long as the node does: there is nothing to end.
    async fn complete(&self, _: &OperationContext, _: &BootstrapSessionId) -> Result<(), ExecutorError> {
        Ok(())
    }

    async fn cancel(
        &self,
        ctx: &OperationContext,
        session: &BootstrapSessionId,
    ) -> Result<(), ExecutorError> {
        let place = self.place(&ctx.attempt);
        if session.0 != place.id {
            // Not the attempt's one session, so there is no such session; the one that runs is left alone.
            return Ok(());
        }
        stop::stop(&place, &ctx.attempt, ctx.deadline)
            .await
            .map(drop)
            .map_err(|error| error.into_executor_error(OperationKind::CancelBootstrap, &ctx.attempt))
    }

    async fn attach(
        &self,
        attempt: &AttemptKey,
        session: &BootstrapSessionId,
        sink: ObservationSink,
    ) -> Result<(), ExecutorError> {
        attach::attach(&self.place(attempt), attempt, session, &sink).await
    }
}

impl ProcessExecutor {
    /// What is to be run. Checks that nobody else listens on the ports of the slot.
    async fn plan(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        place: &NodePlace,
    ) -> Result<Plan, ExecutorError> {
        let key = &ctx.attempt;
        let invalid = |context| failed(ExecutorErrorKind::Rejected(RejectReason::Validation), context);
        let boot: ProcessBoot = settings::read_boot(&request.desired.template.boot.settings)
            .map_err(|problem| invalid(format!("{}: {}; correct it", problem.pointer, problem.message)))?;
        let lease = layout::read_record::<LeaseRecord>(&place.dir, file::LEASE)
            .map_err(|source| unreadable(place, key, source))?
            .ok_or_else(|| {
                failed(
                    ExecutorErrorKind::Gone,
                    format!("the lease of {key} in {} is gone", place.dir.display()),
                )
            })?;
        for (name, port) in &lease.ports {
            if !ports::is_bindable(*port) {
                return Err(failed(
                    ExecutorErrorKind::Rejected(RejectReason::Capacity),
                    format!(
                        "port {port} ({name}), reserved for slot {}, is in use by a process that is not of this node; \
                         end that process, or destroy the slot to have another port reserved",
                        key.node
                    ),
                ));
            }
        }
        let peers = self.peers(ctx, &lease).await?;
        let own = Peer {
            node: key.node.to_string(),
            index: request.desired.index,
            ports: lease.ports.iter().cloned().collect(),
        };
        let scope = Scope {
            self_program: self.config.self_program.display().to_string(),
            run: key.run.name().to_owned(),
            group: request.desired.group.to_string(),
            attempt: key.attempt.0,
            dir: place.work().display().to_string(),
            data: place.data(lease.data).display().to_string(),
            own,
            peers,
        };
        plan::plan(&boot, key, &scope)
            .map_err(|source| invalid(format!("cannot start {key} as it is declared")).with_source(source))
    }

    /// The slots of the group with their ports; those that have none yet get them now.
    async fn peers(&self, ctx: &OperationContext, lease: &LeaseRecord) -> Result<Vec<Peer>, ExecutorError> {
        let names: Vec<String> = lease.ports.iter().map(|(name, _)| name.clone()).collect();
        let mut slots = ctx.group.slots.to_vec();
        if !slots.contains(&ctx.attempt.node) {
            slots.push(ctx.attempt.node.clone());
        }
        let (ports, run, of) = (self.ports.clone(), ctx.attempt.run.clone(), slots.clone());
        let context = || format!("the ports of the peers of {} cannot be read", ctx.attempt);
        let reserve = task::spawn_blocking(move || ports.reserve(&run, &of, &names));
        let mut reserved = time::timeout(time_left(ctx.deadline), reserve)
            .await
            .map_err(|source| failed(ExecutorErrorKind::Unavailable, context()).with_source(source))?
            .map_err(|source| failed(ExecutorErrorKind::Unavailable, context()).with_source(source))?
            .map_err(|source| failed(ExecutorErrorKind::Unavailable, context()).with_source(source))?;
        Ok(slots
            .iter()
            .map(|slot| Peer {
                node: slot.to_string(),
                index: slot.index(),
                ports: reserved.remove(slot).unwrap_or_default(),
            })
            .collect())
    }
}

fn failed(kind: ExecutorErrorKind, context: String) -> ExecutorError {
    ExecutorError::new(kind, OperationKind::StartBootstrap, context)
}

fn unreadable(place: &NodePlace, key: &AttemptKey, source: io::Error) -> ExecutorError {
    failed(
        ExecutorErrorKind::Ambiguous,
        format!("cannot tell whether {key} has a session in {}; make it readable", place.dir.display()),
    )
    .with_source(source)
}

fn session(place: &NodePlace, key: &AttemptKey) -> Result<SessionLife, ExecutorError> {
    SessionLife::read(&place.dir).map_err(|source| unreadable(place, key, source))
}

fn take(place: &NodePlace, key: &AttemptKey) -> Result<Taken, ExecutorError> {
    SessionLock::take(&place.dir).map_err(|source| unreadable(place, key, source))
}

/// Whether a session was ever recorded.
fn has_session(place: &NodePlace, key: &AttemptKey) -> Result<bool, ExecutorError> {
    layout::read_record::<SessionRecord>(&place.dir, file::SESSION)
        .map(|record| record.is_some())
        .map_err(|source| unreadable(place, key, source))
}

/// Whether the supervisor says something.
async fn is_answering(dir: &Path) -> bool {
    let Ok(mut supervisor) = Conversation::open(dir, Request::Watch).await else { return false };
    supervisor.next().await.is_some()
}

/// Starts the supervisor, hands it the lock, and gives it its order. The order's last byte is the commit.
async fn launch(
    supervisor: &SupervisorCommand,
    place: &NodePlace,
    key: &AttemptKey,
    plan: &Plan,
    lock: SessionLock,
) -> Result<(), ExecutorError> {
    // Nothing runs until the order is complete, so that until then any failure proves that nothing was made.
    let unavailable = |what: &str, source: io::Error| {
        failed(ExecutorErrorKind::Unavailable, format!("{what} for {key} in {}", place.dir.display()))
            .with_source(source)
    };
    for (path, content) in &plan.files {
        let dir = path.parent().unwrap_or(path);
        layout::make_dir(dir)
            .and_then(|()| std::fs::write(path, content))
            .map_err(|source| unavailable("cannot write the declared files", source))?;
    }
    layout::write_record(&place.dir, file::BOOT, &plan.boot)
        .map_err(|source| unavailable("cannot record the session", source))?;
    let handles = || -> io::Result<(OwnedFd, OwnedFd)> {
        let log =
            std::fs::File::options().create(true).append(true).open(place.dir.join(file::SUPERVISOR_LOG))?;
        Ok((lock.share()?.into(), log.into()))
    };
    let (shared_lock, log) =
        handles().map_err(|source| unavailable("cannot hand over the session lock", source))?;
    let mut command = Command::new(&supervisor.program);
    command
        .args(&supervisor.args)
        .arg(supervisor::DETACH)
        .arg(&place.dir)
        .arg(&supervisor.program)
        .args(&supervisor.args)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::from(shared_lock))
        .stderr(Stdio::from(log))
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|source| unavailable("cannot start the supervisor", source))?;
    // The command holds a handle on the lock of its own.
    drop(command);
    let mut order = serde_json::to_vec(&plan.launch)
        .map_err(|error| unavailable("cannot write the order", error.into()))?;
    order.push(b'\n');
    if let Some(mut pipe) = child.stdin.take() {
        pipe.write_all(&order)
            .await
            .map_err(|source| unavailable("the supervisor did not take its order", source))?;
    }
    let status = child.wait().await;
    drop(lock);
    let ambiguous = |what: String| failed(ExecutorErrorKind::Ambiguous, what);
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => {
            return Err(ambiguous(format!(
                "the supervisor command {} of {key} ended with {status}; see {}",
                supervisor.program.display(),
                place.dir.join(file::SUPERVISOR_LOG).display()
            )));
        }
        Err(source) => {
            return Err(ambiguous(format!("lost sight of the supervisor of {key}")).with_source(source));
        }
    }
    // A session is there once it answers, or once it has been and gone.
    loop {
        match session(place, key)? {
            SessionLife::Ended(_) => return Ok(()),
            SessionLife::Live if is_answering(&place.dir).await => return Ok(()),
            SessionLife::Live | SessionLife::Starting => {}
            SessionLife::None => {
                return Err(ambiguous(format!(
                    "the supervisor of {key} ended before it began; see {}",
                    place.dir.join(file::SUPERVISOR_LOG).display()
                )));
            }
        }
        time::sleep(STEP).await;
    }
}
