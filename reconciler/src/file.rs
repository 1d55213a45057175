//! The cluster file: from YAML to a checked declaration, with line and column for whatever is wrong.
//!
//! ```text
//!   text ──settings──► ClusterFile ──check──► Declared ──shape(run, generation)──► ClusterShape
//!     └────positions──► line and column of every key ◄── problems found by anybody later
//! ```

pub mod duration;
pub mod positions;
pub mod problem;
pub mod settings;

mod check;
mod near;

use std::path::{Path, PathBuf};

use executor_api::SpecProblem;

pub use check::Declared;
pub use duration::{DurationText, format_duration, parse_duration};
pub use problem::{Problem, Problems};
pub use settings::ClusterFile;

use positions::{Position, Positions};

/// A file that was read and checked, together with its text, so that later problems find their place.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Where it was read.
    pub path: PathBuf,
    /// What it declares.
    pub declared: Declared,
    text: String,
    positions: Positions,
}

/// Why a file gave no declaration.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read the cluster file {}: {source}; name another with -f FILE", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It can be read, and something in it is wrong.
    #[error(transparent)]
    Wrong(#[from] Problems),
}

impl Loaded {
    /// The text as it was read.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Problems that a provider found in a group, at their places in this file.
    pub fn problems(&self, found: impl IntoIterator<Item = (usize, SpecProblem)>) -> Problems {
        let found = found.into_iter().map(|(group, problem)| {
            let pointer = problem.pointer.trim_end_matches('/');
            let slash = if pointer.is_empty() || pointer.starts_with('/') { "" } else { "/" };
            (format!("/groups/{group}{slash}{pointer}"), problem.message)
        });
        Problems::at_pointers(&self.path, &self.text, &self.positions, found)
    }
}

/// Reads and checks a file.
pub fn load(path: &Path) -> Result<Loaded, FileError> {
    let text = read(path)?;
    Ok(parse(path, text)?)
}

/// Reads only the run's name, so that a mistake elsewhere in the file does not stand between its user and the
/// state of the run.
pub fn run_name(path: &Path) -> Result<String, FileError> {
    #[derive(serde::Deserialize)]
    struct Named {
        run: String,
    }
    let text = read(path)?;
    refuse_empty(path, &text)?;
    let named: Named =
        serde_saphyr::from_str_with_options(&text, options()).map_err(|error| wrong(path, &text, &error))?;
    Ok(named.run)
}

/// Checks a text that came from `path`.
pub fn parse(path: &Path, text: impl Into<String>) -> Result<Loaded, Problems> {
    let text = text.into();
    refuse_empty(path, &text)?;
    let file: ClusterFile =
        serde_saphyr::from_str_with_options(&text, options()).map_err(|error| wrong(path, &text, &error))?;
    let positions = Positions::of(&text, options());
    match check::check(&file) {
        Ok(declared) => Ok(Loaded { path: path.to_owned(), declared, text, positions }),
        Err(found) => Err(Problems::at_pointers(path, &text, &positions, found)),
    }
}

fn read(path: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(path).map_err(|source| FileError::Unreadable { path: path.to_owned(), source })
}

/// Another kind of file in the same dialect of YAML, read as it is written: its value, and where everything in it stands.
///
/// # Errors
/// The text is no such value.
pub fn parse_as<T: serde::de::DeserializeOwned>(path: &Path, text: &str) -> Result<(T, Positions), Problems> {
    let value =
        serde_saphyr::from_str_with_options(text, options()).map_err(|error| wrong(path, text, &error))?;
    Ok((value, Positions::of(text, options())))
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { with_snippet: false, strict_booleans: true }
}

/// A file being rewritten is empty for a moment, and a mistake may leave it so. Neither means "no nodes".
fn refuse_empty(path: &Path, text: &str) -> Result<(), Problems> {
    let says_nothing = |line: &str| {
        let line = line.trim();
        line.is_empty() || line.starts_with('#') || line == "---" || line == "..."
    };
    if text.lines().all(says_nothing) {
        let message =
            "the file declares nothing, and nothing is changed; use `reconciler destroy` to remove a run";
        return Err(Problems::at_place(path, text, None, message.to_owned()));
    }
    Ok(())
}

/// The parser's complaint in the words of someone who writes YAML.
fn wrong(path: &Path, text: &str, error: &serde_saphyr::Error) -> Problems {
    let position = error.location().map(|at| Position { line: at.line(), column: at.column() });
    let message = error.without_snippet().to_string();
    let message = message.split(" at line ").next().unwrap_or(&message);
    let message = match message {
        "invalid u32" => "expected a whole number from 0 to 4294967295".to_owned(),
        "expected sequence start" => "expected a list".to_owned(),
        "expected mapping start" => "expected named settings (`key: value`)".to_owned(),
        other => other
            .replace(", set DuplicateKeyPolicy in Options if acceptable", "")
            .replace("expected one of ", "known here: "),
    };
    let message = near::hinted(message);
    Problems::at_place(path, text, position, message)
}

#[cfg(test)]
mod tests;
