//! The life of the supervisor: start the program, reap every descendant, record how the program ended, end
//! what it leaves behind, exit when nothing is left.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus, wait};

use super::output::Output;
use super::state::Shared;
use super::{Launch, program, socket};
use crate::layout::{self, Exit, ExitRecord, SessionRecord, file};
use crate::processes::{self, ProcessId, ProcessInfo};

/// How long after SIGKILL a process that is still there is reported.
const KILL_PATIENCE: Duration = Duration::from_secs(2);
/// How long the last status may take to reach its watchers.
const FAREWELL: Duration = Duration::from_millis(500);
/// Time between two looks for descendants that a stop has not reached yet: short at first, then longer, for
/// each look reads the whole process table.
const FIRST_STEP: Duration = Duration::from_millis(20);
const LAST_STEP: Duration = Duration::from_millis(500);

pub(crate) fn supervise(dir: &Path, launch: Launch) -> io::Result<()> {
    let own = processes::look(i32::try_from(std::process::id()).map_err(io::Error::other)?)
        .ok_or_else(|| io::Error::other("cannot find this process in /proc; is it mounted?"))?
        .id;
    let shared = Arc::new(Shared::default());
    let listener = socket::bind(dir)?;
    let mut session = SessionRecord {
        boot_id: processes::boot_id(),
        supervisor: own,
        program: None,
        started_at: SystemTime::now(),
    };
    // Before the program, so that whoever finds a free lock knows that there may be something to clean up.
    layout::write_record(dir, file::SESSION, &session)?;

    let (nonce, grace) = (launch.nonce.clone(), launch.grace);
    let output = match program::start(&launch) {
        Ok((id, pipe)) => {
            session.program = Some(id);
            shared.update(|status| status.program = Some(id));
            // Without this record the program is still found by its marker.
            let _ = layout::write_record(dir, file::SESSION, &session);
            Output::follow(pipe, dir, &launch, Arc::clone(&shared)).ok()
        }
        Err(error) => {
            let why = format!("{}: {error}", launch.program.display());
            record_exit(dir, &shared, Exit::NotStarted(why), String::new());
            None
        }
    };
    // The order with its secrets is not needed any more.
    drop(launch);
    socket::serve(listener, &shared)?;
    let stopper = Arc::clone(&shared);
    thread::Builder::new().name("stop".into()).spawn(move || stop_when_asked(&stopper, own.pid))?;

    reap_all(dir, &shared, output.as_ref(), session.program, grace);
    end_escaped(&shared, &nonce);
    if let Some(output) = &output {
        output.drain();
    }
    shared.update(|status| status.finished = true);
    drop(shared.wait(FAREWELL, |inner| inner.connections == 0));
    socket::remove(dir);
    Ok(())
}

/// Waits for children, adopted ones included, until there is none. Then no descendant is left either: the
/// parent of each would be one, or this process.
fn reap_all(
    dir: &Path,
    shared: &Shared,
    output: Option<&Output>,
    program: Option<ProcessId>,
    grace: Duration,
) {
    // Forgotten once it ended: a later child may be given the same id.
    let mut program = program.map(|id| id.pid);
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => {
                if Some(pid.as_raw_nonzero().get()) == program && !is_only_paused(status) {
                    program = None;
                    let tail = output.map_or_else(String::new, |output| {
                        output.drain();
                        output.tail()
                    });
                    record_exit(dir, shared, exit_of(status), tail);
                    // What the program leaves behind ends with it: the attempt is over.
                    shared.request_stop(grace);
                }
            }
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn is_only_paused(status: WaitStatus) -> bool {
    status.stopped() || status.continued()
}

fn exit_of(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Status(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unseen,
    }
}

fn record_exit(dir: &Path, shared: &Shared, how: Exit, tail: String) {
    let asked = shared.lock().stop.is_some();
    let record = ExitRecord { how, at: SystemTime::now(), asked, tail };
    // If it cannot be written the watchers are told all the same, and the free lock tells the others.
    let _ = layout::write_record(dir, file::EXIT, &record);
    shared.update(|status| status.exit = Some(record));
}

/// Once a stop is asked for: SIGTERM to each descendant, SIGKILL after the grace time, a word about those
/// that are still there. New ones are looked for until this process exits.
fn stop_when_asked(shared: &Shared, own: i32) {
    drop(shared.wait(Duration::MAX, |inner| inner.stop.is_some()));
    let mut asked = BTreeSet::new();
    let mut step = FIRST_STEP;
    loop {
        let Some((begun, grace)) = shared.lock().stop else { return };
        let Ok(left) = processes::descendants(own) else { return };
        let elapsed = begun.elapsed();
        for info in &left {
            if elapsed >= grace {
                let _ = processes::kill(info.id);
            } else if asked.insert(info.id) {
                let _ = processes::ask_to_end(info.id);
            }
        }
        if elapsed > grace.saturating_add(KILL_PATIENCE) {
            tell_survivors(shared, &left);
        }
        let until_kill = grace.saturating_sub(elapsed);
        let pause = if until_kill.is_zero() { step } else { step.min(until_kill) };
        let asked_for = shared.lock().stop;
        // Another request may bring SIGKILL forward.
        let inner = shared.wait(pause, |inner| inner.status.finished || inner.stop != asked_for);
        if inner.status.finished {
            return;
        }
        step = (step * 2).min(LAST_STEP);
    }
}

fn tell_survivors(shared: &Shared, left: &[ProcessInfo]) {
    let names = (!left.is_empty()).then(|| processes::describe(left));
    if shared.lock().status.survivors != names {
        shared.update(|status| status.survivors = names);
    }
}

/// Ends whatever carries the marker and is no descendant: something moved it to another parent.
fn end_escaped(shared: &Shared, nonce: &str) {
    let begun = Instant::now();
    loop {
        let Ok(left) = processes::end_all(|| processes::carriers(nonce), Duration::ZERO, KILL_PATIENCE)
        else {
            return;
        };
        tell_survivors(shared, &left);
        if left.is_empty() || begun.elapsed() > KILL_PATIENCE * 10 {
            return;
        }
    }
}
