//! Arguments that several commands share, and how they are read.

use std::path::{Path, PathBuf};

use reconciler::file::{self, DurationText, parse_duration};

use crate::cli::failure::Failure;
use crate::run::dir::{RunDir, state_root};

/// Which run, and where its state is. May be given before the command and after it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Global {
    /// The cluster file [default: cluster.yaml].
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The run by name, for commands that need no file.
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    run: Option<String>,
    /// Where runs are kept, each in a directory of its own [default: `$RECONCILER_STATE_DIR`, or
    /// else `$XDG_STATE_HOME/reconciler`].
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Say more on standard error; twice for much more. `RUST_LOG` overrides it.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// A command's own arguments, and those of all commands.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct With<T: clap::Args> {
    #[command(flatten)]
    pub(crate) args: T,
    #[command(flatten)]
    pub(crate) global: Global,
}

/// How a result is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

impl Global {
    /// These, and where they say nothing, those.
    #[must_use]
    pub(crate) fn or(self, before: &Self) -> Self {
        let named = self.file.is_some() || self.run.is_some();
        Self {
            file: if named { self.file } else { before.file.clone() },
            run: if named { self.run } else { before.run.clone() },
            state_dir: self.state_dir.or_else(|| before.state_dir.clone()),
            verbose: self.verbose.saturating_add(before.verbose),
        }
    }

    /// The cluster file.
    pub(crate) fn file(&self) -> &Path {
        self.file.as_deref().unwrap_or_else(|| Path::new("cluster.yaml"))
    }

    /// The directory of the run that is meant, by `--run` or by the file's own word. A mistake elsewhere in the
    /// file does not matter.
    pub(crate) fn dir(&self) -> Result<RunDir, Failure> {
        let name = match &self.run {
            Some(name) => name.clone(),
            None => file::run_name(self.file())?,
        };
        self.dir_of(&name)
    }

    /// The directory of a run by name.
    pub(crate) fn dir_of(&self, run: &str) -> Result<RunDir, Failure> {
        // The name becomes a path: only a legal one may.
        executor_api::RunId::new(run, "unminted").map_err(|error| Failure::error(error.to_string()))?;
        Ok(RunDir::of(&state_root(self.state_dir.as_deref())?, run))
    }

    /// The file's absolute path, as it is remembered in the state.
    pub(crate) fn file_path(&self) -> Result<PathBuf, Failure> {
        absolute(self.file())
    }
}

/// The path without links and dots if it exists, else just absolute.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::fs::canonicalize(path)
        .or_else(|_| std::path::absolute(path))
        .map_err(|error| Failure::while_doing(format_args!("finding {}", path.display()), &error))
}

/// Reads a duration argument.
pub(crate) fn duration(text: &str) -> Result<DurationText, String> {
    parse_duration(text).map(DurationText)
}

/// Reads a node's id.
pub(crate) fn node_id(text: &str) -> Result<executor_api::LogicalNodeId, String> {
    executor_api::LogicalNodeId::parse(text).map_err(|error| error.to_string())
}
