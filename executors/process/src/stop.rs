//! Ending a node from the driver's side: through its supervisor if one lives, by marker if not. Over only
//! when no process of the attempt is left; what is left otherwise is named.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use executor_api::{AttemptKey, ExecutorError, OperationKind};
use tokio::{task, time};

use crate::client::Conversation;
use crate::executor::is_over;
use crate::layout::{self, BootRecord, Exit, ExitRecord, NodePlace, SessionRecord, file};
use crate::lock::{SessionLock, Taken};
use crate::marker;
use crate::processes;
use crate::settings::StopSettings;
use crate::supervisor::Request;

/// How long beyond the grace time a supervisor may take before it counts as stuck, and how long SIGKILL may
/// take to work.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two tries to find the lock free.
const STEP: Duration = Duration::from_millis(10);

/// Why a node is not proved to be over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StopError {
    #[error(
        "these processes are still there after SIGKILL: {0}; see what holds them up (a hung file system?)"
    )]
    Survivors(String),
    #[error(
        "the time for the call was up before the node had stopped; the stop goes on and can be asked for again"
    )]
    OutOfTime,
    #[error("cannot use the node directory {dir}")]
    Directory { dir: String, source: io::Error },
    #[error("cannot read the process table; is /proc mounted?")]
    Processes(#[source] io::Error),
}

impl StopError {
    pub(crate) fn into_executor_error(self, effect: OperationKind, key: &AttemptKey) -> ExecutorError {
        ExecutorError::ambiguous(effect, format!("{key} is not stopped")).with_source(self)
    }
}

/// Ends every process of an attempt. The lock that is returned proves that no session can begin while it is
/// held; there is none if there is no such lease.
pub(crate) async fn stop(
    place: &NodePlace,
    key: &AttemptKey,
    deadline: SystemTime,
) -> Result<Option<SessionLock>, StopError> {
    let directory = |source| StopError::Directory { dir: place.dir.display().to_string(), source };
    let grace = layout::read_record::<BootRecord>(&place.dir, file::BOOT)
        .ok()
        .flatten()
        .map_or_else(|| StopSettings::default().grace.0, |boot| boot.grace);
    let mut stuck_at = time::Instant::now() + grace + PATIENCE;
    let lock = loop {
        match SessionLock::take(&place.dir).map_err(directory)? {
            Taken::Ours(lock) => break Some(lock),
            Taken::NoLease => break None,
            Taken::Held => {}
        }
        if is_over(deadline) {
            return Err(StopError::OutOfTime);
        }
        if let Ok(Some(survivors)) = time::timeout_at(stuck_at, ask(&place.dir, grace)).await {
            return Err(StopError::Survivors(survivors));
        }
        if time::Instant::now() >= stuck_at {
            // It neither ends the node nor says why, or it cannot be reached: do without it.
            kill_supervisor(&place.dir).map_err(directory)?;
            stuck_at = time::Instant::now() + PATIENCE;
        }
        time::sleep(STEP).await;
    };
    let nonce = marker::nonce(key);
    // A supervisor that ended in good order has left nothing, and then this is one look at the table.
    // The lock goes along: should this call be dropped, nothing begins before the search has ended.
    let (left, lock) = task::spawn_blocking(move || {
        (processes::end_all(|| processes::carriers(&nonce), grace, PATIENCE), lock)
    })
    .await
    .map_err(|error| StopError::Processes(io::Error::other(error)))?;
    let left = left.map_err(StopError::Processes)?;
    if !left.is_empty() {
        return Err(StopError::Survivors(processes::describe(&left)));
    }
    if lock.is_some() {
        record_end(&place.dir).map_err(directory)?;
    }
    Ok(lock)
}

/// Asks the supervisor to end the node and listens until it is gone or names survivors. Nobody may answer:
/// one that only begins does not listen yet, one that ends does not any more.
async fn ask(dir: &Path, grace: Duration) -> Option<String> {
    let mut supervisor = Conversation::open(dir, Request::Stop { grace }).await.ok()?;
    loop {
        let status = supervisor.next().await?;
        if status.survivors.is_some() {
            return status.survivors;
        }
    }
}

/// Kills a supervisor that does not answer: the very process that the record names, of this boot.
fn kill_supervisor(dir: &Path) -> io::Result<()> {
    if let Some(session) = layout::read_record::<SessionRecord>(dir, file::SESSION)?
        && session.boot_id == processes::boot_id()
    {
        processes::kill(session.supervisor)?;
    }
    Ok(())
}

/// Records the end of a session that did not do so itself: nothing starts here any more.
fn record_end(dir: &Path) -> io::Result<()> {
    if layout::read_record::<SessionRecord>(dir, file::SESSION)?.is_none()
        || layout::read_record::<ExitRecord>(dir, file::EXIT)?.is_some()
    {
        return Ok(());
    }
    let record = ExitRecord { how: Exit::Unseen, at: SystemTime::now(), asked: true, tail: String::new() };
    layout::write_record(dir, file::EXIT, &record)
}
