//! A run that this process drives: lock, store, driver and control socket together. Every command that drives
//! opens one; the control socket calls the same methods.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use executor_api::{GroupId, LogicalNodeId};
use reconciler::file::{self, Loaded};
use reconciler::providers::{self, Site};
use reconciler_core::{ClusterShape, Hold, HoldBy};
use reconciler_driver::{
    DriverHandle, ExecutorTable, Journal, MetaChange, ShellConfig, SqliteStore, StateStore, StopReason,
    TokioTimer,
};
use tokio::sync::{Mutex, broadcast, mpsc, watch};
use tokio::task::JoinHandle;

use crate::cli::failure::Failure;
use crate::cli::output::remark;
use crate::cli::view::{Explained, Status};
use crate::run::dir::{RunDir, port_registry};
use crate::run::intent::{Intent, Notes};
use crate::run::lock::Lock;
use crate::run::plans::{self, Change, Held, Wanted};
use crate::run::protocol::Request;
use crate::run::remove;
use crate::run::state::{self, NOTES_KEY, Stored, notes_text};
use crate::run::{server, socket, status};

/// How often plans of maintenance are looked at unasked.
const HEED_EVERY: Duration = Duration::from_secs(2);

/// What a run is opened for.
#[derive(Clone, Debug)]
pub(crate) enum Aim {
    /// To make it as a file says.
    File {
        /// The file.
        loaded: Box<Loaded>,
        /// Its absolute path.
        path: PathBuf,
        /// Whether it may be another file than before.
        rebind: bool,
    },
    /// To drive on with what was last accepted.
    Accepted,
    /// To give a group another count.
    Scale {
        /// The group.
        group: GroupId,
        /// How many.
        count: u32,
    },
    /// To remove every node.
    Nothing,
}

/// A run that this process drives.
#[derive(Debug)]
pub(crate) struct Live {
    dir: RunDir,
    handle: DriverHandle,
    table: ExecutorTable,
    in_force: Mutex<InForce>,
    stop: watch::Sender<bool>,
    /// Set when the run is being let go of: orders that come now are for the next driver.
    closing: AtomicBool,
    /// Set once, as it needs a finished `self`.
    server: OnceLock<JoinHandle<()>>,
    /// What plans of maintenance hold.
    maintained: Mutex<Held>,
    /// Whether the run's state was made by this very opening.
    founded: bool,
    /// Taken out when the run is closed.
    lock: std::sync::Mutex<Option<Lock>>,
}

/// What is in force.
#[derive(Clone, Debug)]
struct InForce {
    shape: ClusterShape,
    notes: Notes,
    destroying: bool,
}

impl Live {
    /// Takes the run's lock and drives it. Also says what the user should know.
    pub(crate) async fn open(dir: &RunDir, aim: Aim) -> Result<(Arc<Self>, Vec<String>), Failure> {
        Self::open_taped(dir, aim, false).await
    }

    /// As [`open`](Self::open); with `tape`, every decision is kept for a replay.
    pub(crate) async fn open_taped(
        dir: &RunDir,
        aim: Aim,
        tape: bool,
    ) -> Result<(Arc<Self>, Vec<String>), Failure> {
        if !dir.has_store()? {
            // A run is made only of a file without mistakes; else not even an empty directory is left.
            let table = providers::executors(&site(dir, Arc::new(TokioTimer::new()))?);
            check(&aim, &resolve(dir, &aim, None)?, &table).await?;
        }
        dir.create()?;
        let lock = Lock::take(dir).map_err(|error| error.refusal(dir.run()))?;
        Self::open_locked(dir, aim, tape, lock).await
    }

    async fn open_locked(
        dir: &RunDir,
        aim: Aim,
        tape: bool,
        lock: Lock,
    ) -> Result<(Arc<Self>, Vec<String>), Failure> {
        remove::call_off(dir)?;
        let timer = TokioTimer::new();
        let table = providers::executors(&site(dir, Arc::new(timer.clone()))?);
        let stored = Stored::look(dir)?;
        let intent = resolve(dir, &aim, stored.as_ref())?;
        check(&aim, &intent, &table).await?;
        let mut store = state::prepare(dir, stored.as_ref(), &intent.shape, &intent.notes)?;
        let Wanted { held: maintained, warnings } = heed_stored(dir, &mut store)?;
        let listener = socket::bind(&dir.socket()).map_err(|error| {
            Failure::while_doing(
                format_args!("serving the control socket {}", dir.socket().display()),
                &error,
            )
        })?;
        let config = ShellConfig::new(intent.shape.clone(), table.clone(), Box::new(store));
        let config = ShellConfig {
            policy: intent.notes.policy.clone(),
            clock: timer,
            journal: journal(dir, tape),
            ..config
        };
        let doing = format!("starting to drive run {}", dir.run());
        let handle =
            reconciler_driver::start(config).await.map_err(|error| Failure::while_doing(&doing, &error))?;
        let destroying = matches!(aim, Aim::Nothing);
        let in_force = InForce { shape: intent.shape, notes: intent.notes, destroying };
        let live = Arc::new(Self {
            dir: dir.clone(),
            handle,
            table,
            in_force: Mutex::new(in_force),
            stop: watch::Sender::new(false),
            closing: AtomicBool::new(false),
            server: OnceLock::new(),
            maintained: Mutex::new(maintained),
            founded: stored.is_none(),
            lock: std::sync::Mutex::new(Some(lock)),
        });
        // Callers that came meanwhile have been waiting in the socket's queue.
        live.server.get_or_init(|| tokio::spawn(server::serve(listener, Arc::downgrade(&live))));
        tokio::spawn(heed(Arc::downgrade(&live), warnings.clone()));
        Ok((live, intent.notices.into_iter().chain(warnings).collect()))
    }

    /// Stops driving and lets go of the run. Nodes are left as they are.
    pub(crate) async fn close(&self) -> Result<(), Failure> {
        self.closing.store(true, Ordering::SeqCst);
        if let Some(server) = self.server.get() {
            server.abort();
        }
        let stopped = self.handle.shutdown().await;
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Of a run that somebody took over, the files are that one's.
        let ours = lock.as_ref().is_some_and(|lock| lock.is_of(&self.dir));
        if ours {
            let _ = std::fs::remove_file(self.dir.socket());
        }
        if ours && self.founded && matches!(stopped, StopReason::Distrusted(_)) {
            // An empty state beside nodes of the run's name is of no use to anybody. Best effort.
            for file in state::files_of(&self.dir.store()).iter().rev() {
                let _ = state::remove_if_there(file);
            }
        }
        drop(lock);
        if stopped == StopReason::Requested { Ok(()) } else { Err(self.ended(&stopped)) }
    }

    /// Takes over a file: the run's own, or with `rebind` another one.
    pub(crate) async fn submit(
        &self,
        path: &Path,
        text: String,
        rebind: bool,
    ) -> Result<Vec<String>, Failure> {
        let mut in_force = self.in_force.lock().await;
        self.not_while_destroying(&in_force)?;
        let loaded = file::parse(path, text)?;
        if loaded.declared.run != self.dir.run() {
            return Err(Failure::refused(format!(
                "{} now says run {}, but run {} is being driven; a run cannot be renamed",
                path.display(),
                loaded.declared.run,
                self.dir.run()
            )));
        }
        let run = in_force.shape.run_id.clone();
        let intent =
            Intent::of_file(&loaded.declared, path, &run, Some(&in_force.shape), &in_force.notes, rebind)?;
        let found = providers::validate(&self.table, &intent.shape).await;
        if !found.is_empty() {
            return Err(loaded.problems(found).into());
        }
        let notices = intent.notices.clone();
        self.enforce(&mut in_force, intent).await?;
        Ok(notices)
    }

    /// Gives a group another count.
    pub(crate) async fn scale(&self, group: &GroupId, count: u32) -> Result<Vec<String>, Failure> {
        let mut in_force = self.in_force.lock().await;
        self.not_while_destroying(&in_force)?;
        let intent = Intent::scaled(&in_force.shape, &in_force.notes, group, count)?;
        self.enforce(&mut in_force, intent).await?;
        Ok(Vec::new())
    }

    /// Removes every node. The file no longer matters.
    pub(crate) async fn destroy(&self) -> Result<Vec<String>, Failure> {
        let mut in_force = self.in_force.lock().await;
        let intent = Intent::nothing(&in_force.shape, &in_force.notes);
        self.enforce(&mut in_force, intent).await?;
        in_force.destroying = true;
        Ok(Vec::new())
    }

    /// Asks for a fresh attempt of a node.
    pub(crate) async fn replace(&self, node: &LogicalNodeId) -> Result<Vec<String>, Failure> {
        self.handle.replace(node.clone()).await.map_err(|error| self.failed("replacing a node", &error))?;
        Ok(Vec::new())
    }

    /// Holds a node, or all of them, by the operator's word.
    pub(crate) async fn pause(
        &self,
        node: Option<LogicalNodeId>,
        reason: String,
    ) -> Result<Vec<String>, Failure> {
        self.check_node(node.as_ref()).await?;
        self.handle
            .hold(node, HoldBy::Operator, reason)
            .await
            .map_err(|error| self.failed("pausing", &error))?;
        Ok(Vec::new())
    }

    /// Ends the operator's hold, or that of the driver's own alarm.
    pub(crate) async fn resume(
        &self,
        node: Option<LogicalNodeId>,
        breach: bool,
    ) -> Result<Vec<String>, Failure> {
        self.check_node(node.as_ref()).await?;
        let by = if breach { HoldBy::Breach } else { HoldBy::Operator };
        self.handle.release(node, by).await.map_err(|error| self.failed("resuming", &error))?;
        Ok(Vec::new())
    }

    /// Holds what plans of maintenance hold by now, and nothing else in their name. Gives what the user should know.
    pub(crate) async fn heed_plans(&self) -> Result<Vec<String>, Failure> {
        let mut maintained = self.maintained.lock().await;
        let Wanted { held, warnings } = plans::wanted(&self.dir, &maintained)?;
        let mut failure = None;
        for change in plans::changes(&maintained, &held) {
            let made = match change {
                Change::Hold(slot, hold) => {
                    let asked =
                        self.handle.hold(slot.clone(), HoldBy::Maintenance, hold.reason.clone()).await;
                    asked
                        .map(|()| drop(maintained.insert(slot, hold)))
                        .map_err(|error| self.failed("holding a node for maintenance", &error))
                }
                Change::Release(slot) => {
                    let asked = self.handle.release(slot.clone(), HoldBy::Maintenance).await;
                    asked
                        .map(|_| drop(maintained.remove(&slot)))
                        .map_err(|error| self.failed("releasing a node after maintenance", &error))
                }
            };
            // A node that is not there (any more) stands in no other's way.
            failure = failure.or_else(|| made.err());
        }
        failure.map_or(Ok(warnings), Err)
    }

    /// The same for a run that nobody drives. Says whether there is one.
    #[cfg(feature = "host-fake")]
    pub(crate) fn heed_plans_offline(dir: &RunDir) -> Result<bool, Failure> {
        if !dir.has_store()? {
            return Ok(false);
        }
        let _lock = Lock::take(dir).map_err(|error| error.refusal(dir.run()))?;
        heed_stored(dir, &mut state::open(dir)?).map(|_| true)
    }

    /// Asks the command that drives to stop.
    pub(crate) fn ask_to_stop(&self) -> Vec<String> {
        self.stop.send_replace(true);
        Vec::new()
    }

    /// Waits until somebody asked to stop.
    pub(crate) async fn asked_to_stop(&self) {
        // The sender is in `self`: it cannot be gone.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Whether the run is being let go of.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Waits until the driver stops by itself, and says why.
    pub(crate) async fn stopped(&self) -> Failure {
        self.ended(&self.handle.stopped().await)
    }

    /// The generation in force.
    pub(crate) async fn generation(&self) -> u64 {
        self.in_force.lock().await.shape.generation
    }

    /// The run's file, unless every node is being removed.
    pub(crate) async fn file(&self) -> Option<PathBuf> {
        let in_force = self.in_force.lock().await;
        in_force.notes.file.clone().filter(|_| !in_force.destroying)
    }

    /// The run as it stands.
    pub(crate) async fn status(&self) -> Result<Status, Failure> {
        let notes = self.in_force.lock().await.notes.clone();
        let snapshot =
            self.handle.snapshot().await.map_err(|error| self.failed("reading the status", &error))?;
        Ok(status::of_snapshot(snapshot, &notes, Some(std::process::id())))
    }

    /// One node, and why it does what it does.
    pub(crate) async fn explain(&self, node: &LogicalNodeId) -> Result<Explained, Failure> {
        let found = self
            .handle
            .explain(node.clone())
            .await
            .map_err(|error| self.failed("explaining a node", &error))?;
        found.map(status::of_explanation).ok_or_else(|| status::unknown(node))
    }

    /// The run now and after each change, until the driver stops or nobody listens. Changes that come close
    /// together are one.
    pub(crate) fn watch(self: &Arc<Self>) -> mpsc::Receiver<Status> {
        let (sender, receiver) = mpsc::channel(1);
        let (live, mut changes) = (Arc::downgrade(self), self.handle.watch());
        tokio::spawn(async move {
            loop {
                let started = tokio::time::Instant::now();
                let Some(strong) = live.upgrade() else { return };
                let Ok(status) = strong.status().await else { return };
                drop(strong);
                let cost = started.elapsed();
                if sender.send(status).await.is_err() {
                    return;
                }
                tokio::select! {
                    next = changes.changed() => if next.is_err() { return },
                    () = sender.closed() => return,
                }
                // A large run takes its time to be written down; most of the driver's time is for driving.
                tokio::time::sleep(Duration::from_millis(30).max(cost * 5)).await;
            }
        });
        receiver
    }

    /// What happens from now on, one line each. A listener that falls behind is told how much it missed.
    pub(crate) fn events(&self) -> mpsc::Receiver<String> {
        let (sender, receiver) = mpsc::channel(64);
        let mut events = self.handle.events();
        tokio::spawn(async move {
            loop {
                let text = match events.recv().await {
                    Ok(event) => status::event(&event),
                    Err(broadcast::error::RecvError::Lagged(missed)) => {
                        format!("({missed} events were missed)")
                    }
                    Err(broadcast::error::RecvError::Closed) => return,
                };
                if sender.send(text).await.is_err() {
                    return;
                }
            }
        });
        receiver
    }

    /// Changes the stored holds of a run that nobody drives.
    pub(crate) fn change_holds_offline(dir: &RunDir, request: &Request) -> Result<Vec<String>, Failure> {
        let missing = || state::missing(dir);
        if !dir.has_store()? {
            return Err(missing());
        }
        let _lock = Lock::take(dir).map_err(|error| error.refusal(dir.run()))?;
        let mut store = state::open(dir)?;
        let stored = Stored::load(dir, &mut store)?.ok_or_else(missing)?;
        let image = &stored.image;
        let mut holds = image.state.holds.clone();
        let known = |node: &LogicalNodeId| status::explain_stored(&stored, node).map(|_| ());
        match request {
            Request::Pause { node, reason } => {
                node.as_ref().map_or(Ok(()), known)?;
                let hold = Hold { by: HoldBy::Operator, reason: reason.clone(), since: SystemTime::now() };
                holds.hold(node.clone(), hold);
            }
            Request::Resume { node, breach } => {
                node.as_ref().map_or(Ok(()), known)?;
                holds.release(node.as_ref(), if *breach { HoldBy::Breach } else { HoldBy::Operator });
            }
            other => return Err(Failure::error(format!("not a matter of holds: {other:?}"))),
        }
        let meta = MetaChange { holds: Some(holds), ..MetaChange::default() };
        let changes = state::changes(image.state.observed_generation, image.state.next_attempt_id, meta);
        store.commit(&changes).map_err(|error| Failure::while_doing("storing the holds", &error))?;
        Ok(vec!["nobody drives this run; the change counts from the next apply or run".to_owned()])
    }

    /// Puts an intent into force: the shape, the timing and the notes, in this order. What is remembered is
    /// computed anew from the file whenever it is read, so that a crash in between loses nothing.
    async fn enforce(&self, in_force: &mut InForce, intent: Intent) -> Result<(), Failure> {
        if intent.shape != in_force.shape {
            self.handle
                .set_desired(intent.shape.clone())
                .await
                .map_err(|error| self.failed("setting the shape", &error))?;
        }
        if intent.notes.policy != in_force.notes.policy {
            let set = self.handle.set_policy(intent.notes.policy.clone()).await;
            set.map_err(|error| self.failed("setting the timing", &error))?;
        }
        if intent.notes != in_force.notes {
            let annotated =
                self.handle.annotate(NOTES_KEY.to_owned(), Some(notes_text(&intent.notes)?)).await;
            annotated.map_err(|error| self.failed("remembering the file", &error))?;
        }
        (in_force.shape, in_force.notes) = (intent.shape, intent.notes);
        Ok(())
    }

    async fn check_node(&self, node: Option<&LogicalNodeId>) -> Result<(), Failure> {
        match node {
            Some(node) => self.explain(node).await.map(|_| ()),
            None => Ok(()),
        }
    }

    fn not_while_destroying(&self, in_force: &InForce) -> Result<(), Failure> {
        if in_force.destroying {
            return Err(Failure::refused(format!(
                "run {} is being destroyed; wait until it is gone, then apply the file again",
                self.dir.run()
            )));
        }
        Ok(())
    }

    fn ended(&self, reason: &StopReason) -> Failure {
        let reason = match reason {
            StopReason::Distrusted(reason) => return Failure::no_state(reason),
            StopReason::Requested => "it was asked to",
            StopReason::StoreFailed(reason) | StopReason::Failed(reason) => reason,
        };
        Failure::error(format!(
            "the driver of run {} has stopped, its nodes are left running: {reason}",
            self.dir.run()
        ))
    }

    fn failed(&self, doing: &str, error: &dyn std::error::Error) -> Failure {
        Failure::while_doing(format_args!("{doing} (run {})", self.dir.run()), error)
    }
}

/// The run's journal. Driving does not depend on it.
fn journal(dir: &RunDir, tape: bool) -> Option<Journal> {
    match Journal::open(dir.path(), tape) {
        Ok(journal) => Some(journal),
        Err(error) => {
            let dir = dir.path().display();
            tracing::warn!("what happens is not written down in {dir}: {error}");
            None
        }
    }
}

/// Where the providers of a run keep what they need.
pub(crate) fn site(dir: &RunDir, timer: Arc<dyn executor_api::Timer>) -> Result<Site, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::while_doing("finding this program's own file", &error))?;
    Ok(Site { nodes: dir.nodes(), sessions: dir.sessions(), ports: port_registry()?, program, timer })
}

/// What the providers think of a file's shape.
async fn check(aim: &Aim, intent: &Intent, table: &ExecutorTable) -> Result<(), Failure> {
    let Aim::File { loaded, .. } = aim else { return Ok(()) };
    let found = providers::validate(table, &intent.shape).await;
    if found.is_empty() { Ok(()) } else { Err(loaded.problems(found).into()) }
}

fn resolve(dir: &RunDir, aim: &Aim, stored: Option<&Stored>) -> Result<Intent, Failure> {
    let accepted = stored.map(|stored| &stored.image.desired);
    let fresh = Notes::default();
    let notes = stored.map_or(&fresh, |stored| &stored.notes);
    let needed = || accepted.ok_or_else(|| state::missing(dir));
    match aim {
        Aim::File { loaded, path, rebind } => {
            let run = match stored {
                Some(stored) => stored.image.run.clone(),
                None => state::mint(dir.run())?,
            };
            Intent::of_file(&loaded.declared, path, &run, accepted, notes, *rebind)
        }
        Aim::Accepted => Ok(Intent { shape: needed()?.clone(), notes: notes.clone(), notices: Vec::new() }),
        Aim::Scale { group, count } => Intent::scaled(needed()?, notes, group, *count),
        Aim::Nothing => Ok(Intent::nothing(needed()?, notes)),
    }
}

/// Brings stored holds into line with the plans, for the holder of the lock, before anything is driven.
fn heed_stored(dir: &RunDir, store: &mut SqliteStore) -> Result<Wanted, Failure> {
    let stored = Stored::load(dir, store)?.ok_or_else(|| state::missing(dir))?;
    let image = &stored.image;
    let held = plans::held(&image.state.holds);
    let wanted = plans::wanted(dir, &held)?;
    let changes = plans::changes(&held, &wanted.held);
    if !changes.is_empty() {
        let mut holds = image.state.holds.clone();
        plans::make(&changes, &mut holds);
        let meta = MetaChange { holds: Some(holds), ..MetaChange::default() };
        let changes = state::changes(image.state.observed_generation, image.state.next_attempt_id, meta);
        store.commit(&changes).map_err(|error| Failure::while_doing("storing the holds", &error))?;
    }
    Ok(wanted)
}

/// Heeds the plans every now and then, for those whose process died before it could say so.
async fn heed(live: std::sync::Weak<Live>, mut told: Vec<String>) {
    loop {
        tokio::time::sleep(HEED_EVERY).await;
        let Some(live) = live.upgrade() else { return };
        if live.is_closing() {
            return;
        }
        match live.heed_plans().await {
            Ok(warnings) => {
                warnings.iter().filter(|warning| !told.contains(*warning)).for_each(remark);
                told = warnings;
            }
            Err(failure) => tracing::warn!("plans of maintenance cannot be heeded: {}", failure.message),
        }
    }
}
