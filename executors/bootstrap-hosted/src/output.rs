//! Looks at a session's output as it goes by: the last line for the operator, the marker for the join. Keeps a few
//! hundred bytes, however much goes by.

/// Longest end of the output that is kept for its last line.
const KEPT: usize = 2048;

/// What was seen of an output so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputWatch {
    marker: Option<String>,
    /// The end of what went by: long enough for a marker that is cut in two, and for a last line.
    end: Vec<u8>,
    /// Whether something before `end` is missing, so that it may begin in the middle of a line.
    cut: bool,
    seen: bool,
}

impl OutputWatch {
    /// Watches for this marker, if there is one.
    pub fn new(marker: Option<String>) -> Self {
        Self { marker, end: Vec::new(), cut: false, seen: false }
    }

    /// Takes the next piece. `gap` says that something before it was skipped.
    pub fn feed(&mut self, piece: &[u8], gap: bool) {
        if gap {
            self.end.clear();
            self.cut = true;
        }
        self.end.extend_from_slice(piece);
        if let Some(marker) = &self.marker
            && !self.seen
        {
            self.seen = self.end.windows(marker.len().max(1)).any(|part| part == marker.as_bytes());
        }
        let keep = KEPT.max(self.marker.as_ref().map_or(0, String::len));
        let surplus = self.end.len().saturating_sub(keep);
        self.cut |= surplus > 0;
        self.end.drain(..surplus);
        self.end.shrink_to(2 * keep);
    }

    /// Whether the marker went by.
    pub fn marker_seen(&self) -> bool {
        self.seen
    }

    /// The last line that is not blank, whole: a line whose beginning is missing is none, because nobody could tell
    /// any more whether it begins in the middle of a secret.
    pub fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.end);
        let whole = if self.cut { text.split_once('\n')?.1 } else { &*text };
        whole.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_seen_wherever_it_is_cut() {
        let text = b"hello, node is up and running";
        for cut in 0..text.len() {
            let mut watch = OutputWatch::new(Some("node is up".into()));
            watch.feed(&text[..cut], false);
            watch.feed(&text[cut..], false);
            assert!(watch.marker_seen(), "cut at {cut}");
        }
        let mut watch = OutputWatch::new(Some("node is up".into()));
        watch.feed(b"node is", false);
        watch.feed(b" up", true);
        assert!(!watch.marker_seen(), "the halves of two texts are no marker");
    }

    #[test]
    fn a_hundred_megabytes_leave_a_few_hundred_bytes() {
        let mut watch = OutputWatch::new(Some("never".into()));
        let piece = vec![b'x'; 256 * 1024];
        for _ in 0..400 {
            watch.feed(&piece, false);
        }
        assert!(watch.end.len() <= KEPT && watch.end.capacity() <= 4 * KEPT, "{}", watch.end.capacity());
    }

    #[test]
    fn the_last_line_is_the_last_that_says_something() {
        let mut watch = OutputWatch::new(None);
        watch.feed(b"one\ntwo\n\n", false);
        assert_eq!(watch.last_line().as_deref(), Some("two"));
        watch.feed(b"the end of a line", true);
        assert_eq!(watch.last_line(), None, "its beginning is missing");
        watch.feed(b"\nthree", false);
        assert_eq!(watch.last_line().as_deref(), Some("three"));
    }
}
