//! The driver on tokio: real time, real executors, a store on a thread of its own. Runs effects as tasks,
//! keeps one timer for the earliest deadline and one channel of inputs; decides nothing.

use executor_api::ObservationSink;
use reconciler_core::{ClusterShape, RetryPolicy};
use tokio::sync::{broadcast, mpsc, watch};

use crate::dispatch::Dispatcher;
use crate::driver::{TapeBegin, TapeEntry};
use crate::error::DriverError;
use crate::executors::ExecutorTable;
use crate::journal::Journal;
use crate::rules::Rules;
use crate::store::{StateStore, StoreError};

mod actor;
mod clock;
mod handle;

use actor::{Actor, Message};
pub use clock::TokioTimer;
pub use handle::{DriverHandle, StopReason, Summary};

/// How many events a slow subscriber may lag behind.
const EVENT_BUFFER: usize = 4096;

/// What a driver is started with.
#[derive(Debug)]
pub struct ShellConfig {
    /// What should exist. Its run must be that of the store.
    pub desired: ClusterShape,
    /// Timing.
    pub policy: RetryPolicy,
    /// Who leases and who bootstraps.
    pub executors: ExecutorTable,
    /// Where state outlives the process. This driver is its one writer.
    pub store: Box<dyn StateStore>,
    /// The clock; executors that wait should share it.
    pub clock: TokioTimer,
    /// Decide, fold, apply.
    pub rules: Rules,
    /// Whether nothing is decided before every provider in use was listed and bore the state out.
    pub guard: bool,
    /// Where what happens is written down, if anywhere.
    pub journal: Option<Journal>,
}

impl ShellConfig {
    /// A configuration with the default timing and a clock anchored now. Called within a tokio runtime.
    pub fn new(desired: ClusterShape, executors: ExecutorTable, store: Box<dyn StateStore>) -> Self {
        Self {
            desired,
            policy: RetryPolicy::default(),
            executors,
            store,
            clock: TokioTimer::new(),
            rules: Rules::default(),
            guard: true,
            journal: None,
        }
    }
}

/// Starts driving: loads what is stored, listens to every stored session, then makes the first pass. The
/// driver goes on until [`DriverHandle::shutdown`] or until it fails, whether or not its handle is kept.
pub async fn start(config: ShellConfig) -> Result<DriverHandle, DriverError> {
    let ShellConfig { desired, policy, executors, mut store, clock, rules, guard, mut journal } = config;
    let loading = tokio::task::spawn_blocking(move || {
        let loaded = store.load();
        (store, loaded)
    });
    let lost = |error| DriverError::Load(StoreError::Other(format!("loading was cut short: {error}")));
    let (store, loaded) = loading.await.map_err(lost)?;
    let now = executor_api::Timer::now(&clock);
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let image = loaded.map_err(DriverError::Load)?;
    if let Some(image) = &image {
        executors.acquaint(&image.desired);
        executors.acquaint_with_nodes(&image.state);
    }
    executors.acquaint(&desired);
    let begin = TapeBegin { version, now, image, desired, policy, guard };
    let wants_passes = journal.as_ref().is_some_and(Journal::wants_passes);
    let taped = wants_passes.then(|| TapeEntry::Begin(Box::new(begin.clone())));
    let mut driver = begin.driver(executors.clone(), rules)?;
    if let (Some(journal), Some(entry)) = (&mut journal, taped) {
        driver.keep_tape();
        if let Err(error) = journal.passes(&[entry], || driver.checkpoint()) {
            tracing::warn!("passes are not written down: {error}");
        }
    }
    let (mail, inbox) = mpsc::unbounded_channel();
    let heard = mail.clone();
    // A driver that is gone hears nothing, and nobody minds.
    let sink = ObservationSink::new(move |report| drop(heard.send(Message::Heard(report))));
    let timer = std::sync::Arc::new(clock.clone());
    let dispatcher = Dispatcher::new(driver.run().clone(), executors, timer, sink);
    let (summaries, summary) = watch::channel(Summary::of(&driver));
    let (events, _) = broadcast::channel(EVENT_BUFFER);
    let (reasons, reason) = watch::channel(None);
    let handle = DriverHandle::new(mail.clone(), summary, events.clone(), reason);
    let actor = Actor::new(driver, dispatcher, clock, (store, journal), (mail, inbox), summaries, events);
    tokio::spawn(async move {
        let reason = actor.run().await;
        drop(reasons.send(Some(reason)));
    });
    Ok(handle)
}
