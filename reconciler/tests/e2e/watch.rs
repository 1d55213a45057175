//! Ground truth while something else goes on: looks at the process table again and again, on a thread of its own,
//! and keeps what must never be seen. Knows nothing of drivers.
#![expect(clippy::unwrap_used, reason = "a test that cannot look has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// One process of this boot: an id comes again, an id with its start time does not.
type Process = (i32, u64);

/// What was seen so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// How often the process table was read.
    pub(crate) looks: u64,
    /// The processes of each attempt, and the slots that it was said to be of.
    pub(crate) attempts: BTreeMap<u64, (BTreeSet<String>, BTreeSet<Process>)>,
    /// What must never be, in words.
    pub(crate) wrong: BTreeSet<String>,
}

/// Watches one run's processes until it is asked what it saw.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to watch the processes that carry this uid.
    pub(crate) fn of(uid: &str) -> Self {
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Seen::default())));
        let (stopped, into) = (Arc::clone(&stop), Arc::clone(&seen));
        let marker = format!("RECONCILER_RUN_UID={uid}");
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                look(&marker, &mut into.lock().unwrap());
                // Between two looks others have the processor: a poll of the world, nothing is waited for.
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        Self { stop, seen, thread: Some(thread) }
    }

    /// Fails if anything was seen by now that must never be.
    pub(crate) fn check(&self) {
        let seen = self.seen.lock().unwrap();
        assert!(seen.wrong.is_empty(), "{:#?}", seen.wrong);
    }

    /// Ends the watch; what it saw.
    pub(crate) fn end(mut self) -> Seen {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
        self.check();
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

fn look(marker: &str, seen: &mut Seen) {
    seen.looks += 1;
    let mut of_slot: BTreeMap<String, Vec<(u64, Process)>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let Ok(environ) = std::fs::read(entry.path().join("environ")) else { continue };
        let environ = String::from_utf8_lossy(&environ);
        if !environ.split('\0').any(|var| var == marker) {
            continue;
        }
        let value = |key: &str| environ.split('\0').find_map(|var| var.strip_prefix(key).map(str::to_owned));
        let attempt = value("RECONCILER_ATTEMPT=").and_then(|text| text.parse().ok());
        let (Some(slot), Some(attempt)) = (value("RECONCILER_NODE="), attempt) else { continue };
        let Some(start) = alive_since(pid) else { continue };
        of_slot.entry(slot).or_default().push((attempt, (pid, start)));
    }
    for (slot, found) in of_slot {
        // The table is read one entry after the other. Those that still live after the last of them was seen
        // have all lived at the moment in between.
        let together: Vec<_> =
            found.iter().filter(|(_, (pid, start))| alive_since(*pid) == Some(*start)).collect();
        if together.len() > 1 {
            seen.wrong.insert(format!("{slot} has more than one living process: {together:?}"));
        }
        for (attempt, process) in found {
            let (slots, processes) = seen.attempts.entry(attempt).or_default();
            slots.insert(slot.clone());
            processes.insert(process);
            if slots.len() > 1 {
                seen.wrong.insert(format!("attempt a{attempt} was given out twice, to {slots:?}"));
            }
            if processes.len() > 1 {
                seen.wrong.insert(format!("attempt a{attempt} had more than one process: {processes:?}"));
            }
        }
    }
}

/// The start time of a process that lives, in clock ticks since boot. Zombies do not.
fn alive_since(pid: i32) -> Option<u64> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = line.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    let since = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(since)
}
