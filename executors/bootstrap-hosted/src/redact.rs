//! Takes secrets out of a text before anybody is told it. A program that prints its secrets prints them on its host;
//! here they go no further.

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
}

impl Redactor {
    /// Reads the session's secrets. One that cannot be read now was not given to it either.
    pub(crate) fn of(resolved: &Resolved) -> Self {
        let values = resolved.env.iter().filter_map(|(_, value)| match value {
            EnvValue::Text(_) => None,
            EnvValue::Secret(reference) => reference.resolve().ok(),
        });
        Self::new(values.map(|secret| secret.expose().to_owned()))
    }

    fn new(values: impl Iterator<Item = String>) -> Self {
        // Output is told line by line, and so a secret of several lines is looked for.
        let mut secrets: Vec<String> = values
            .flat_map(|value| value.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>())
            .filter(|line| line.len() >= SHORTEST)
            .collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Self { secrets }
    }

    /// The text without the secrets.
    pub(crate) fn clean(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret, INSTEAD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_and_no_line_of_one_is_left() {
        let redactor = Redactor::new(
            ["hunter2".into(), "hunter2-and-more".into(), "line one\nline two\n".into()].into_iter(),
        );
        assert_eq!(redactor.clean("a hunter2-and-more b hunter2"), "a [secret] b [secret]");
        assert_eq!(redactor.clean("x line two"), "x [secret]");
    }
}
