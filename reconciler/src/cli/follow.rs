//! Following a run until it is where it should be: progress for people, the timeout, and the signals that end
//! the following but not the nodes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use reconciler::file::format_duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::cli::failure::{Code, Failure};
use crate::cli::output::{self, is_lively, line, live_table, reason, remark};
use crate::cli::view::Status;

/// How the following ended.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// Everything is as declared.
    Converged(Box<Status>),
    /// Time is up.
    TimedOut(Box<Status>),
    /// Ctrl-C, or SIGTERM, to the process that drives.
    Interrupted,
    /// The same to one that only followed another process, which drives on.
    LetGo,
    /// The driver has stopped.
    Stopped,
}

/// Follows until a generation has converged.
pub(crate) async fn until_converged(
    statuses: &mut mpsc::Receiver<Status>,
    generation: u64,
    timeout: Option<Duration>,
    quiet: bool,
) -> Result<Ended, Failure> {
    let mut progress = Progress::new(quiet);
    let mut latest = None;
    let deadline = async {
        match timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(deadline);
    let mut interrupt = Interrupt::new()?;
    loop {
        tokio::select! {
            status = statuses.recv() => {
                let Some(status) = status else { return Ok(Ended::Stopped) };
                progress.show(&status)?;
                if status.converged && status.generation >= generation && status.observed_generation >= generation {
                    return Ok(Ended::Converged(Box::new(status)));
                }
                latest = Some(status);
            }
            () = &mut deadline => match latest.take() {
                Some(status) => return Ok(Ended::TimedOut(Box::new(status))),
                None => return Err(Failure { code: Code::Pending, message: "time is up before anything was seen".to_owned() }),
            },
            () = interrupt.wait() => return Ok(Ended::Interrupted),
        }
    }
}

/// What stands between a run and convergence, one line for each node.
pub(crate) fn blockers(status: &Status) -> String {
    let mut lines: Vec<String> = status
        .nodes
        .iter()
        .filter(|node| !node.ready || node.intent == "deleting")
        .take(20)
        .map(|node| {
            let attempt = node.attempt.map(|attempt| format!(" a{attempt}")).unwrap_or_default();
            let error = node.last_error.as_ref().filter(|error| !node.why.contains(error.as_str()));
            let error = error.map(|error| format!(" (last error: {error})")).unwrap_or_default();
            // What a session is at, or cannot get past, while it has not failed.
            let phase =
                node.phase.as_ref().filter(|_| node.intent != "deleting" && node.last_error.is_none());
            let phase = phase.map(|phase| format!(" (so far: {phase})")).unwrap_or_default();
            format!("  {}{attempt} {}: {}{error}{phase}", node.id, node.stage, reason(node))
        })
        .collect();
    let more = status.nodes.iter().filter(|node| !node.ready).count().saturating_sub(lines.len());
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    lines.join("\n")
}

/// Ctrl-C and SIGTERM.
#[derive(Debug)]
pub(crate) struct Interrupt {
    int: tokio::signal::unix::Signal,
    term: tokio::signal::unix::Signal,
}

impl Interrupt {
    /// Listens from now on.
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::while_doing("listening for signals", &error));
        Ok(Self { int: listen(SignalKind::interrupt())?, term: listen(SignalKind::terminate())? })
    }

    /// Waits for one.
    pub(crate) async fn wait(&mut self) {
        tokio::select! { _ = self.int.recv() => {}, _ = self.term.recv() => {} }
    }

    /// What comes of `work`; `None` if a signal comes first, which ends it where it waits.
    pub(crate) async fn unless<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.wait() => None,
        }
    }
}

/// Shows what changes: a table redrawn in place on a terminal, one line for each change elsewhere.
#[derive(Debug)]
pub(crate) struct Progress {
    started: Instant,
    quiet: bool,
    shown: BTreeMap<String, String>,
    drawn: usize,
}

impl Progress {
    /// Nothing shown yet; and nothing ever, if `quiet`.
    pub(crate) fn new(quiet: bool) -> Self {
        Self { started: Instant::now(), quiet, shown: BTreeMap::new(), drawn: 0 }
    }

    /// Shows a run as it stands now.
    pub(crate) fn show(&mut self, status: &Status) -> Result<(), Failure> {
        if self.quiet {
            return Ok(());
        }
        // More than a screenful is better read as lines.
        if is_lively() && status.nodes.len() <= 30 { self.redraw(status) } else { self.changes(status) }
    }

    /// Something else was written to the terminal: what was drawn stays above it.
    pub(crate) fn leave_standing(&mut self) {
        self.drawn = 0;
    }

    fn redraw(&mut self, status: &Status) -> Result<(), Failure> {
        let table = live_table(status);
        let up = if self.drawn > 0 { format!("\x1b[{}A\x1b[J", self.drawn) } else { String::new() };
        self.drawn = table.lines().count();
        output::print(&format!("{up}{table}"))
    }

    fn changes(&mut self, status: &Status) -> Result<(), Failure> {
        let mut now = BTreeMap::new();
        for node in &status.nodes {
            let attempt = node.attempt.map_or_else(|| "-".to_owned(), |attempt| format!("a{attempt}"));
            let intent = if node.intent == "deleting" { " (deleting)" } else { "" };
            let text = format!("{attempt:4} {}{intent}: {}", node.stage, node.why);
            if self.shown.get(&node.id) != Some(&text) {
                line(format!("+{:>6}  {:12} {text}", format_duration(self.started.elapsed()), node.id))?;
            }
            now.insert(node.id.clone(), text);
        }
        for gone in self.shown.keys().filter(|id| !now.contains_key(*id)) {
            line(format!("+{:>6}  {gone:12} gone", format_duration(self.started.elapsed())))?;
        }
        self.shown = now;
        Ok(())
    }
}

/// The last words of a command that was following, and its code.
pub(crate) fn conclude(ended: Ended, run: &str, timeout: Option<Duration>) -> Result<Code, Failure> {
    match ended {
        Ended::Converged(status) => {
            let ready = status.nodes.iter().filter(|node| node.ready).count();
            line(format!(
                "run {run} has converged: {ready} of {} nodes ready, generation {}",
                status.nodes.len(),
                status.generation
            ))?;
            Ok(Code::Done)
        }
        Ended::TimedOut(status) => {
            let time = timeout.map(format_duration).unwrap_or_default();
            remark(format!("run {run} has not converged within {time}; in the way:\n{}", blockers(&status)));
            Ok(Code::Pending)
        }
        Ended::Interrupted => {
            remark(format!(
                "stopped driving run {run}; its nodes are left running (`reconciler run` drives on)"
            ));
            Ok(Code::Pending)
        }
        Ended::LetGo => {
            remark(format!(
                "run {run} is no longer followed; the process that drives it goes on with what it was asked \
                 (`reconciler status` says how far it is)"
            ));
            Ok(Code::Pending)
        }
        Ended::Stopped => {
            Err(Failure::error(format!("the driver of run {run} has stopped before it converged")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_ends_what_waits_and_takes_nothing_back_that_is_done() {
        let mut interrupt = Interrupt::new().unwrap();
        let me = std::process::id().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &me]).status().unwrap().success());
        assert_eq!(interrupt.unless(std::future::pending::<()>()).await, None);
        assert_eq!(interrupt.unless(async { "done" }).await, Some("done"));
    }
}
