//! The program's output: read at once so that the program never waits, blacked out, written to a file that is
//! rotated at its size limit, and searched for the marker text. A full disk loses output, never the node.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, PipeReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};

use super::Launch;
use super::state::Shared;
use crate::layout::file;
use crate::logs::rotated_name;

/// What stands in the log in place of a secret.
const BLACKED_OUT: &[u8] = b"[secret]";
/// A shorter value is no secret, and blacking it out would leave nothing readable.
const SHORTEST_SECRET: usize = 4;
/// How much of the end is kept for the reason of a failure.
const TAIL_BYTES: usize = 1024;
const TAIL_LINES: usize = 8;

/// The output, shared by the thread that reads it and by the one that wants it read to the end.
#[derive(Clone)]
pub(crate) struct Output {
    sink: Arc<Mutex<Sink>>,
}

struct Sink {
    pipe: PipeReader,
    buffer: Vec<u8>,
    ended: bool,
    log: Log,
    redactor: Redactor,
    marker: Option<MarkerSearch>,
    tail: VecDeque<u8>,
    shared: Arc<Shared>,
}

impl Output {
    /// Reads `pipe` on a thread of its own until all writers are gone.
    pub(crate) fn follow(
        pipe: PipeReader,
        dir: &Path,
        launch: &Launch,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        // Reading happens under the mutex and must not block there; waiting happens outside of it.
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let readable = pipe.try_clone()?;
        let output = Self {
            sink: Arc::new(Mutex::new(Sink {
                pipe,
                buffer: vec![0; 64 * 1024],
                ended: false,
                log: Log::new(dir, launch.max_bytes, launch.keep),
                redactor: Redactor::new(launch.secrets.clone()),
                marker: launch.marker.clone().map(MarkerSearch::new),
                tail: VecDeque::new(),
                shared,
            })),
        };
        let reader = output.clone();
        thread::Builder::new().name("output".into()).spawn(move || {
            loop {
                let _ = poll(&mut [PollFd::new(&readable, PollFlags::IN)], None);
                if reader.drain() {
                    return;
                }
            }
        })?;
        Ok(output)
    }

    /// Takes in what has been written so far. Whether that was the end.
    pub(crate) fn drain(&self) -> bool {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner).drain()
    }

    /// The last lines, as text.
    pub(crate) fn tail(&self) -> String {
        let sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = sink.tail.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

impl Sink {
    fn drain(&mut self) -> bool {
        while !self.ended {
            match self.pipe.read(&mut self.buffer) {
                Ok(0) => {
                    self.ended = true;
                    let rest = self.redactor.finish();
                    self.take(&rest);
                }
                Ok(length) => {
                    let clean = self.redactor.push(&self.buffer[..length]);
                    self.take(&clean);
                    // One that never stops writing must not keep the mutex for ever.
                    if length < self.buffer.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.ended = true,
            }
        }
        self.ended
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.marker.as_mut().is_some_and(|search| search.push(bytes)) {
            self.marker = None;
            self.shared.update(|status| status.marker_seen = true);
        }
        self.tail.extend(bytes);
        let over = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..over);
        self.log.write(bytes);
    }
}

/// The log file and its rotation.
struct Log {
    dir: PathBuf,
    max_bytes: u64,
    keep: u32,
    open: Option<(File, u64)>,
}

impl Log {
    fn new(dir: &Path, max_bytes: u64, keep: u32) -> Self {
        Self { dir: dir.to_owned(), max_bytes: max_bytes.max(1), keep, open: None }
    }

    /// Writes, in pieces that fit; what cannot be written is dropped.
    fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.open.as_ref().is_some_and(|(_, length)| *length >= self.max_bytes) {
                self.rotate();
            }
            if self.open.is_none() {
                let path = self.dir.join(file::LOG);
                let Ok(file) = File::options().create(true).append(true).open(path) else { return };
                let length = file.metadata().map_or(0, |data| data.len());
                self.open = Some((file, length));
            }
            let Some((file, length)) = &mut self.open else { return };
            let room = usize::try_from(self.max_bytes.saturating_sub(*length)).unwrap_or(usize::MAX);
            let piece = &bytes[..bytes.len().min(room.max(1))];
            if file.write_all(piece).is_err() {
                return;
            }
            *length += piece.len() as u64;
            bytes = &bytes[piece.len()..];
        }
    }

    fn rotate(&mut self) {
        self.open = None;
        let current = self.dir.join(file::LOG);
        if self.keep == 0 {
            let _ = fs::remove_file(current);
            return;
        }
        for number in (1..self.keep).rev() {
            let _ = fs::rename(rotated_name(&self.dir, number), rotated_name(&self.dir, number + 1));
        }
        let _ = fs::rename(current, rotated_name(&self.dir, 1));
    }
}

/// Replaces secrets in a stream, those that are cut by a read included.
struct Redactor {
    secrets: Vec<Vec<u8>>,
    /// The end of the stream so far that may be the beginning of a secret.
    held: Vec<u8>,
}

impl Redactor {
    fn new(secrets: Vec<String>) -> Self {
        let mut secrets: Vec<Vec<u8>> =
            secrets.into_iter().map(String::into_bytes).filter(|s| s.len() >= SHORTEST_SECRET).collect();
        // The longest first: one secret may begin with another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self { secrets, held: Vec::new() }
    }

    fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.secrets.is_empty() {
            return bytes.to_vec();
        }
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(bytes);
        let at = self.undecided_from(&text);
        self.held = text.split_off(at);
        self.black_out(&text)
    }

    /// What was held back: nothing follows that could make it more of a secret.
    fn finish(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        self.black_out(&held)
    }

    /// Where the first secret may begin that is not over yet, reading as `black_out` does.
    fn undecided_from(&self, text: &[u8]) -> usize {
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            if self.secrets.iter().any(|secret| secret.len() > rest.len() && secret.starts_with(rest)) {
                break;
            }
            at += self.secret_at(rest).unwrap_or(1);
        }
        at
    }

    fn black_out(&self, text: &[u8]) -> Vec<u8> {
        let mut clean = Vec::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            if let Some(length) = self.secret_at(&text[at..]) {
                clean.extend_from_slice(BLACKED_OUT);
                at += length;
            } else {
                clean.push(text[at]);
                at += 1;
            }
        }
        clean
    }

    /// The length of the longest secret that the text begins with.
    fn secret_at(&self, text: &[u8]) -> Option<usize> {
        self.secrets.iter().find(|secret| text.starts_with(secret)).map(Vec::len)
    }
}

/// Looks for a text within a line of a stream.
struct MarkerSearch {
    text: Vec<u8>,
    /// The end of the stream so far, one byte shorter than the text.
    carried: Vec<u8>,
}

impl MarkerSearch {
    fn new(text: String) -> Self {
        Self { text: text.into_bytes(), carried: Vec::new() }
    }

    /// Whether the text is there now. It holds no line break, so a match lies within one line.
    fn push(&mut self, bytes: &[u8]) -> bool {
        self.carried.extend_from_slice(bytes);
        let found = self.carried.windows(self.text.len().max(1)).any(|window| window == self.text);
        let over = self.carried.len().saturating_sub(self.text.len().saturating_sub(1));
        self.carried.drain(..over);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_blacked_out_even_when_it_comes_in_pieces() {
        let mut redactor = Redactor::new(vec!["hunter2".into(), "hunter2-long".into(), "ab".into()]);
        let mut clean = Vec::new();
        for piece in ["pw=hun", "ter", "2 and hunter2-lo", "ng; ab hunt"] {
            clean.extend(redactor.push(piece.as_bytes()));
        }
        clean.extend(redactor.finish());
        assert_eq!(String::from_utf8(clean).unwrap(), "pw=[secret] and [secret]; ab hunt");
    }

    #[test]
    fn the_marker_is_found_across_pieces() {
        let mut search = MarkerSearch::new("ready to serve".into());
        assert!(!search.push(b"not yet ready to"));
        assert!(!search.push(b" se"));
        assert!(search.push(b"rve\n"));
    }

    #[test]
    fn the_log_is_rotated_at_its_limit_and_old_files_go() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::new(dir.path(), 4, 2);
        log.write(b"aaaabbbbccccdd");
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        assert_eq!(
            (read("output.log"), read("output.log.1"), read("output.log.2")),
            ("dd".into(), "cccc".into(), "bbbb".into())
        );
        assert_eq!(read("output.log.3"), "");
    }
}
