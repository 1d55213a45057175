//! What the script answers, read. Pure; anything that is not exactly an answer is none.

use std::time::{Duration, SystemTime};

use super::{CancelEnd, Glimpse, Standing};

/// The line after which a reply begins; a login shell may have said something before it.
const MARK: &[u8] = b"reconciler-reply-1\n";

/// The reply in what a command wrote.
pub(super) fn body(written: &[u8]) -> Option<&[u8]> {
    let at = written.windows(MARK.len()).position(|window| window == MARK)?;
    Some(&written[at + MARK.len()..])
}

/// Reads a standing.
pub(super) fn standing(text: &str) -> Option<Standing> {
    Some(match text.trim() {
        "absent" => Standing::Absent,
        "running" => Standing::Running,
        "ended" => Standing::Ended,
        "cancelled" => Standing::Cancelled,
        _ => return None,
    })
}

/// Reads seconds since the epoch.
pub(super) fn time(text: &str) -> Option<SystemTime> {
    let seconds = text.trim().parse().ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Reads the end of a cancel.
pub(super) fn cancelled(text: &str) -> Option<CancelEnd> {
    match text.trim() {
        "clean" => Some(CancelEnd::Clean),
        other => other.strip_prefix("left ").map(|pids| CancelEnd::Left(pids.to_owned())),
    }
}

/// Reads a look: a header in lines, an empty line, then as many bytes as it announced.
pub(super) fn glimpse(reply: &[u8]) -> Option<Glimpse> {
    let end = reply.windows(2).position(|two| two == b"\n\n")?;
    let header = std::str::from_utf8(&reply[..end]).ok()?;
    let field = |name: &str| {
        header.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::trim))
    };
    let number = |name: &str| field(name)?.parse::<u64>().ok();
    let (events_len, output_len) = (number("events")?, number("output")?);
    let body = &reply[end + 2..];
    let events_end = usize::try_from(events_len).ok()?;
    let output_end = events_end.checked_add(usize::try_from(output_len).ok()?)?;
    if body.len() != output_end {
        return None;
    }
    Some(Glimpse {
        standing: standing(field("standing")?)?,
        joined_at: field("joined").and_then(time),
        events: String::from_utf8_lossy(&body[..events_end]).into_owned(),
        output_at: number("at")?,
        output_size: number("size")?,
        output: body[events_end..].to_vec(),
        output_len,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLY: &str = "standing running\njoined \nevents 3\nat 7\nsize 12\noutput 5\n\nabchello";

    #[test]
    fn a_look_is_its_header_and_the_bytes_it_announced() {
        let seen = glimpse(REPLY.as_bytes()).unwrap();
        assert_eq!((seen.standing, seen.joined_at), (Standing::Running, None));
        assert_eq!((seen.events.as_str(), seen.output.as_slice()), ("abc", b"hello".as_slice()));
        assert_eq!((seen.output_at, seen.output_size), (7, 12));
    }

    #[test]
    fn a_look_that_was_cut_anywhere_is_none() {
        for length in 0..REPLY.len() {
            assert_eq!(glimpse(&REPLY.as_bytes()[..length]), None, "cut at {length}");
        }
    }

    #[test]
    fn what_a_login_shell_says_first_is_not_part_of_a_reply() {
        assert_eq!(body(b"Welcome!\nreconciler-reply-1\nclean\n"), Some(b"clean\n".as_slice()));
        assert_eq!(body(b"Welcome!\n"), None);
    }

    #[test]
    fn words_are_read_or_refused() {
        assert_eq!(standing("ended\n"), Some(Standing::Ended));
        assert_eq!(standing("endedx"), None);
        assert_eq!(cancelled("left 12 13\n"), Some(CancelEnd::Left("12 13".into())));
        assert_eq!(cancelled("lef"), None);
        assert_eq!(time("12\n"), Some(SystemTime::UNIX_EPOCH + Duration::from_secs(12)));
        assert_eq!(time(""), None);
    }
}
