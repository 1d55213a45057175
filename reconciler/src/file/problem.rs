//! What is wrong with a cluster file, each problem with its line, its column and the line itself.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::file::positions::{Position, Positions};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it stands in the text, if it stands anywhere.
    pub position: Option<Position>,
    /// JSON pointer to it; empty for the text as a whole.
    pub pointer: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

/// Everything that is wrong with one file, in order of place. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    file: PathBuf,
    text: String,
    list: Vec<Problem>,
}

impl Problems {
    /// Problems found in a text that was read from `file`, as `(pointer, message)`.
    pub fn at_pointers(
        file: &Path,
        text: &str,
        positions: &Positions,
        found: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let list = found.into_iter().map(|(pointer, message)| Problem {
            position: positions.locate(&pointer),
            pointer,
            message,
        });
        Self::new(file, text, list.collect())
    }

    /// One problem at a place that the parser named.
    pub(crate) fn at_place(file: &Path, text: &str, position: Option<Position>, message: String) -> Self {
        Self::new(file, text, vec![Problem { position, pointer: String::new(), message }])
    }

    fn new(file: &Path, text: &str, mut list: Vec<Problem>) -> Self {
        list.sort_by(|a, b| (a.position, &a.pointer).cmp(&(b.position, &b.pointer)));
        Self { file: file.to_owned(), text: text.to_owned(), list }
    }

    /// The problems in order of place.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.list.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.file.display())?;
            if let Some(Position { line, column }) = problem.position {
                write!(f, ":{line}:{column}")?;
            }
            f.write_str(": ")?;
            if !problem.pointer.is_empty() {
                write!(f, "{}: ", dotted(&problem.pointer))?;
            }
            f.write_str(&problem.message)?;
            if let Some(Position { line, column }) = problem.position {
                excerpt(f, &self.text, line, column)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// `/groups/0/shape/ports` as people write it: `groups[0].shape.ports`.
fn dotted(pointer: &str) -> String {
    let mut path = String::new();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        if part.bytes().all(|b| b.is_ascii_digit()) && !path.is_empty() {
            path.extend(["[", &part, "]"]);
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&part);
        }
    }
    path
}

/// The line itself with a mark under the column. A line of machine-made length is left out.
fn excerpt(f: &mut fmt::Formatter<'_>, text: &str, line: u64, column: u64) -> fmt::Result {
    let index = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    let Some(source) = text.lines().nth(index) else { return Ok(()) };
    if source.trim().is_empty() || source.chars().count() > 160 {
        return Ok(());
    }
    let number = line.to_string();
    let before: String = source
        .chars()
        .take(usize::try_from(column.saturating_sub(1)).unwrap_or(0))
        .map(|c| if c == '\t' { '\t' } else { ' ' })
        .collect();
    write!(f, "\n  {number} | {source}\n  {:width$} | {before}^", "", width = number.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn each_problem_names_its_place_and_shows_its_line() {
        let text = "run: demo\ngroups:\n  - name: web\n    shape: { ports: [x] }\n";
        let positions = Positions::of(text, serde_saphyr::Options::default());
        let found = [
            ("/groups/0/shape/ports".to_owned(), "give each port a name".to_owned()),
            ("/run".to_owned(), "choose another".to_owned()),
        ];
        let problems = Problems::at_pointers(Path::new("cluster.yaml"), text, &positions, found);
        expect![[r"
            cluster.yaml:1:1: run: choose another
              1 | run: demo
                | ^
            cluster.yaml:4:14: groups[0].shape.ports: give each port a name
              4 |     shape: { ports: [x] }
                |              ^"]]
        .assert_eq(&problems.to_string());
    }
}
