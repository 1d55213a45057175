//! What happened, on disk beside the state: every event, and on request every pass. For people and for replay;
//! the driver never reads it, and goes on without it when it cannot be written.
//!
//! Lines of JSON. The events of a run are in `events.jsonl` and the file before it in `events.1.jsonl`; the
//! passes of the driver that runs in `passes.jsonl` and those before them in `passes.1.jsonl`. Each file is
//! bounded and moves on to a new one; a tape of passes goes on there from a checkpoint of the driver, so that each
//! file can be replayed alone.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::driver::{Checkpoint, TapeEntry};
use crate::event::Event;

/// Longest file of events, in bytes; two are kept.
const EVENTS_LIMIT: u64 = 8 << 20;
/// Longest tape after what it begins with, in bytes; two are kept.
const PASSES_LIMIT: u64 = 256 << 20;

/// Writes a run's journal.
#[derive(Debug)]
pub struct Journal {
    events: Log,
    passes: Option<Log>,
}

#[derive(Debug)]
struct Log {
    dir: PathBuf,
    name: &'static str,
    /// Moves on when this much was written since [`begun`](Self::begun).
    limit: u64,
    begun: u64,
    file: File,
    written: u64,
}

impl Journal {
    /// Goes on with the events in a directory, and begins a tape of passes if asked to.
    pub fn open(dir: &Path, passes: bool) -> io::Result<Self> {
        let events = Log::open(dir, "events", EVENTS_LIMIT)?;
        let passes = if passes {
            let mut log = Log::open(dir, "passes", PASSES_LIMIT)?;
            log.rotate()?;
            Some(log)
        } else {
            None
        };
        Ok(Self { events, passes })
    }

    /// Whether passes are wanted.
    pub(crate) fn wants_passes(&self) -> bool {
        self.passes.is_some()
    }

    /// Appends events.
    pub(crate) fn events(&mut self, events: &[Event]) -> io::Result<()> {
        if self.events.is_full() {
            self.events.rotate()?;
        }
        self.events.append(events)
    }

    /// Appends to the tape. `checkpoint` is what the driver knows after them, for a tape that moves on.
    pub(crate) fn passes(
        &mut self,
        entries: &[TapeEntry],
        checkpoint: impl FnOnce() -> serde_json::Result<Checkpoint>,
    ) -> io::Result<()> {
        let Some(log) = &mut self.passes else { return Ok(()) };
        log.append(entries)?;
        if log.is_full() {
            let checkpoint = TapeEntry::Checkpoint(Box::new(checkpoint()?));
            log.rotate()?;
            log.append(&[checkpoint])?;
            log.begun = log.written;
        }
        Ok(())
    }
}

impl Log {
    fn open(dir: &Path, name: &'static str, limit: u64) -> io::Result<Self> {
        let path = current(dir, name);
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let mut log = Self { dir: dir.to_owned(), name, limit, begun: 0, file, written: 0 };
        log.written = log.file.metadata()?.len();
        if log.written > 0 {
            // A line that an earlier process did not finish must not swallow the next one.
            log.write(b"\n")?;
        }
        Ok(log)
    }

    fn is_full(&self) -> bool {
        self.written - self.begun >= self.limit
    }

    /// Moves the file aside and begins an empty one.
    fn rotate(&mut self) -> io::Result<()> {
        let path = current(&self.dir, self.name);
        if self.written > 0 {
            std::fs::rename(&path, before(&self.dir, self.name))?;
            self.file = OpenOptions::new().create(true).append(true).open(path)?;
            (self.written, self.begun) = (0, 0);
        }
        Ok(())
    }

    fn append<T: Serialize>(&mut self, values: &[T]) -> io::Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        let mut text = Vec::new();
        for value in values {
            serde_json::to_writer(&mut text, value)?;
            text.push(b'\n');
        }
        self.write(&text)
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        self.file.write_all(text)?;
        self.written += text.len() as u64;
        Ok(())
    }
}

/// The events kept in a directory, oldest first. Lines that were not finished are left out.
pub fn read_events(dir: &Path) -> io::Result<Vec<Event>> {
    let mut events = Vec::new();
    for path in [before(dir, "events"), current(dir, "events")] {
        events.extend(lines(&path)?.iter().filter_map(|line| serde_json::from_slice(line).ok()));
    }
    Ok(events)
}

/// A tape of passes. Its last line may be unfinished and is left out then; any other that does not read is an error,
/// since what follows it was decided with it.
pub fn read_tape(path: &Path) -> io::Result<Vec<TapeEntry>> {
    let lines = lines(path)?;
    let last = lines.iter().rposition(|line| !line.is_empty());
    let mut entries = Vec::new();
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(entry) => entries.push(entry),
            Err(error) if Some(index) == last && error.is_eof() => {}
            Err(error) => {
                let reason = format!("line {} is no entry of a tape of this version: {error}", index + 1);
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
        }
    }
    Ok(entries)
}

/// Where the latest passes of the latest driver in a directory are.
pub fn tape_path(dir: &Path) -> PathBuf {
    current(dir, "passes")
}

fn lines(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        opened => BufReader::new(opened?).split(b'\n').collect(),
    }
}

fn current(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.jsonl"))
}

fn before(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.1.jsonl"))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use std::time::Duration;

    use reconciler_core::{ClusterShape, RetryPolicy};

    use super::*;
    use crate::event::Happening;
    use crate::{ClusterDriver, ExecutorTable, Rules, replay};

    fn event(reason: &str) -> Event {
        let what = Happening::Dropped { reason: reason.to_owned() };
        Event { at: SystemTime::UNIX_EPOCH, node: None, attempt: None, what }
    }

    #[test]
    fn a_line_that_was_cut_short_costs_no_other() {
        let dir = tempfile::tempdir().unwrap();
        Journal::open(dir.path(), false).unwrap().events(&[event("one"), event("two")]).unwrap();
        let path = current(dir.path(), "events");
        let text = std::fs::read(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 9]).unwrap();
        Journal::open(dir.path(), false).unwrap().events(&[event("three")]).unwrap();
        assert_eq!(read_events(dir.path()).unwrap(), [event("one"), event("three")]);
    }

    #[test]
    fn the_events_kept_are_bounded_and_the_latest() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path(), false).unwrap();
        journal.events.limit = 1000;
        for number in 0..100 {
            journal.events(&[event(&number.to_string())]).unwrap();
        }
        let kept = read_events(dir.path()).unwrap();
        assert!((10..50).contains(&kept.len()), "{}", kept.len());
        assert_eq!(kept.last(), Some(&event("99")));
    }

    #[test]
    fn a_full_tape_goes_on_from_a_checkpoint_and_each_file_replays_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path(), true).unwrap();
        let mut now = SystemTime::UNIX_EPOCH;
        let run = executor_api::RunId::new("r", "00000000").unwrap();
        let desired = ClusterShape { run_id: run, generation: 1, groups: Vec::new() };
        let mut driver = ClusterDriver::new(desired, RetryPolicy::default(), now).unwrap();
        driver.keep_tape();
        journal.passes.as_mut().unwrap().limit = 2000;
        for _ in 0..200 {
            now += Duration::from_mins(7);
            driver.pass(now).unwrap();
            let tape = driver.take_tape();
            journal.passes(&tape, || driver.checkpoint()).unwrap();
        }
        for path in [before(dir.path(), "passes"), tape_path(dir.path())] {
            let tape = read_tape(&path).unwrap();
            assert!(matches!(tape[0], TapeEntry::Checkpoint(_)), "{:?}", tape[0]);
            let checkpoint = serde_json::to_string(&tape[0]).unwrap().len();
            let length = usize::try_from(path.metadata().unwrap().len()).unwrap();
            assert!(length < checkpoint + 2500, "{length} with a checkpoint of {checkpoint}");
            let passes = tape.len() as u64 - 1;
            let playback = replay(tape, &ExecutorTable::default(), &Rules::default()).unwrap();
            assert_eq!((playback.passes, playback.difference), (passes, None));
        }
    }

    #[test]
    fn a_tape_with_a_line_that_does_not_read_is_refused_and_an_unfinished_end_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = tape_path(dir.path());
        let settled = r#"{"settled":{"now":{"secs_since_epoch":1,"nanos_since_epoch":0}}}"#;
        for (text, entries) in [
            (format!("{settled}\n{settled}\n"), Ok(2)),
            (format!("{settled}\n{}", &settled[..30]), Ok(1)),
            (format!("{settled}\n{}\n\n", &settled[..30]), Ok(1)),
            (format!("{settled}\n{}\n{settled}\n", &settled[..30]), Err("line 2 ")),
            (format!("{settled}\n{settled}\n{{\"dreamt\":1}}\n"), Err("line 3 ")),
        ] {
            std::fs::write(&path, &text).unwrap();
            match (read_tape(&path), entries) {
                (Ok(tape), Ok(count)) => assert_eq!(tape.len(), count, "{text}"),
                (Err(error), Err(line)) => assert!(error.to_string().starts_with(line), "{error}"),
                (read, _) => panic!("{text}: {read:?}"),
            }
        }
    }

    #[test]
    fn a_tape_without_its_beginning_is_not_played() {
        let now = SystemTime::UNIX_EPOCH;
        let error =
            replay([TapeEntry::Settled { now }], &ExecutorTable::default(), &Rules::default()).unwrap_err();
        assert!(error.to_string().contains("lacks its beginning"), "{error}");
    }

    #[test]
    fn a_checkpoint_that_this_version_cannot_read_is_named_and_not_guessed_at() {
        let text = r#"{"checkpoint":{"version":"9.9.9","driver":{"thoughts":[]}}}"#;
        let entry: TapeEntry = serde_json::from_str(text).unwrap();
        let error = replay([entry], &ExecutorTable::default(), &Rules::default()).unwrap_err();
        assert!(error.to_string().contains("what version 9.9.9 knew"), "{error}");
    }
}
