//! Takes secrets out of a text before anybody is told it. A program that prints its secrets prints them on its host;
//! here they go no further. Where a secret is not known any more, nothing is told at all.

use crate::settings::{EnvValue, Resolved};

/// What stands in a secret's place.
const INSTEAD: &str = "[secret]";

/// Shortest part of a secret that is looked for: anything shorter is in every other word.
const SHORTEST: usize = 4;

/// The secrets of one session.
#[derive(Clone, Default)]
pub(crate) struct Redactor {
    /// The longest first, so that no secret that begins with another one stays half readable.
    secrets: Vec<String>,
    /// Why one of them could not be read: the session may have been given it by a driver that could.
    unknown: Option<String>,
}

impl Redactor {
    /// Reads the session's secrets.
    pub(crate) fn of(resolved: &Resolved) -> Self {
        let mut unknown = None;
        let mut values = Vec::new();
        for (name, value) in &resolved.env {
            let EnvValue::Secret(reference) = value else { continue };
            match reference.resolve() {
                Ok(secret) => values.push(secret.expose().to_owned()),
                Err(error) => unknown = Some(format!("{name}: {error}")),
            }
        }
        Self { unknown, ..Self::new(values.into_iter()) }
    }

    fn new(values: impl Iterator<Item = String>) -> Self {
        // Output is told line by line, and so a secret of several lines is looked for.
        let mut secrets: Vec<String> = values
            .flat_map(|value| value.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>())
            .filter(|line| line.len() >= SHORTEST)
            .collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Self { secrets, unknown: None }
    }

    /// Why nothing may be told.
    pub(crate) fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }

    /// The text without the secrets; `None` if one of them is not known.
    pub(crate) fn clean(&self, text: &str) -> Option<String> {
        self.unknown.is_none().then(|| self.without_secrets(text))
    }

    fn without_secrets(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret, INSTEAD))
    }

    /// Where the last part of these bytes begins that may be the beginning of a secret, or of a character, that
    /// goes on behind them. Nothing that is a secret already lies across that place.
    fn open_end(&self, bytes: &[u8]) -> usize {
        let longest = self.secrets.first().map_or(0, String::len);
        let from = bytes.len().saturating_sub(longest);
        let begins = |rest: &[u8]| {
            self.secrets.iter().any(|secret| secret.len() > rest.len() && secret.as_bytes().starts_with(rest))
        };
        let mut at = (from..bytes.len()).find(|at| begins(&bytes[*at..])).unwrap_or(bytes.len());
        let tail = &bytes[bytes.len().saturating_sub(4)..];
        if let Some(part) = tail.utf8_chunks().last()
            && part.invalid().len() < 4
            && std::str::from_utf8(part.invalid()).is_err_and(|error| error.error_len().is_none())
        {
            at = at.min(bytes.len() - part.invalid().len());
        }
        loop {
            let across = self.secrets.iter().find_map(|secret| {
                let starts = at.saturating_sub(secret.len() - 1)..at;
                starts.into_iter().find(|start| bytes[*start..].starts_with(secret.as_bytes()))
            });
            match across {
                Some(start) => at = start,
                None => return at,
            }
        }
    }
}

/// Takes the secrets out of an output that comes in pieces, cut anywhere. Holds back no more than may be the
/// beginning of a secret.
pub(crate) struct Cleaner {
    redactor: Redactor,
    held: Vec<u8>,
}

impl Cleaner {
    pub(crate) fn new(redactor: Redactor) -> Self {
        Self { redactor, held: Vec::new() }
    }

    /// Takes the next piece; what may be told now.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> String {
        self.held.extend_from_slice(piece);
        let rest = self.held.split_off(self.redactor.open_end(&self.held));
        let told = std::mem::replace(&mut self.held, rest);
        self.redactor.without_secrets(&String::from_utf8_lossy(&told))
    }

    /// What is left when nothing more will come.
    pub(crate) fn finish(&mut self) -> String {
        let told = std::mem::take(&mut self.held);
        self.redactor.without_secrets(&String::from_utf8_lossy(&told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::settings::{Ready, StopTimes};
    use executor_api::SecretRef;
    use std::time::Duration;

    fn redactor(secrets: &[&str]) -> Redactor {
        Redactor::new(secrets.iter().map(|secret| (*secret).to_owned()))
    }

    #[test]
    fn no_secret_and_no_line_of_one_is_left() {
        let redactor = redactor(&["hunter2", "hunter2-and-more", "line one\nline two\n"]);
        assert_eq!(redactor.clean("a hunter2-and-more b hunter2").as_deref(), Some("a [secret] b [secret]"));
        assert_eq!(redactor.clean("x line two").as_deref(), Some("x [secret]"));
    }

    #[test]
    fn pieces_cut_anywhere_say_the_same_as_the_whole() {
        let redactor = redactor(&["hunter2", "hunter2-and-more", "er2-an", "größe"]);
        let text = "a hunter2-and-mor hunter2 hunter2-and-more größ größe é hunter hunte\n… hunter";
        let whole = redactor.without_secrets(text);
        assert!(!whole.contains("hunter2") && whole.contains("größ "), "{whole}");
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let mut cleaner = Cleaner::new(redactor.clone());
                let mut told = cleaner.feed(&text.as_bytes()[..first]);
                told += &cleaner.feed(&text.as_bytes()[first..second]);
                told += &cleaner.feed(&text.as_bytes()[second..]);
                told += &cleaner.finish();
                assert_eq!(told, whole, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn what_cannot_be_a_secret_is_told_at_once() {
        let mut cleaner = Cleaner::new(redactor(&["hunter2"]));
        assert_eq!(cleaner.feed(b"Password: "), "Password: ");
        assert_eq!(cleaner.feed(b"hun"), "");
        assert_eq!(cleaner.feed(b"ger"), "hunger");
    }

    #[test]
    fn nothing_is_told_of_a_session_whose_secret_is_not_known() {
        let env = vec![("TOKEN".to_owned(), EnvValue::Secret(SecretRef::FromFile("/nowhere/token".into())))];
        let stop = StopTimes { grace: Duration::ZERO, unreachable_for: Duration::ZERO };
        let resolved =
            Resolved { plan: Plan::default(), sources: Vec::new(), env, ready: Ready::Begun, stop };
        let redactor = Redactor::of(&resolved);
        assert_eq!(redactor.clean("harmless?"), None);
        assert!(
            redactor.unknown().is_some_and(|why| why.contains("TOKEN") && why.contains("/nowhere/token"))
        );
    }
}
