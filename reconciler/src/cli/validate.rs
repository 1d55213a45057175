//! `reconciler validate`: everything that can be said about a file without making anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use reconciler::{file, providers};
use reconciler_driver::TokioTimer;

use super::args::Global;
use super::failure::{Code, Failure};
use super::output::line;
use crate::run::live::site;
use crate::run::state::Stored;

/// `reconciler validate`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(super) async fn run(global: &Global, _: &Args) -> Result<Code, Failure> {
    let loaded = file::load(global.file())?;
    let dir = global.dir_of(&loaded.declared.run)?;
    // An existing run's own reservations are no problem of its next shape.
    let run = match Stored::look(&dir)? {
        Some(stored) => stored.image.run,
        None => executor_api::RunId::new(dir.run(), "unminted")
            .map_err(|error| Failure::error(error.to_string()))?,
    };
    let shape = loaded.declared.shape(&run, 1, &BTreeMap::new());
    let table = providers::executors(&site(&dir, Arc::new(TokioTimer::new()))?);
    let found = providers::validate(&table, &shape).await;
    if !found.is_empty() {
        return Err(loaded.problems(found).into());
    }
    let nodes: u64 = shape.groups.iter().map(|group| u64::from(group.count)).sum();
    line(format!(
        "{}: run {}, {} group(s), {nodes} node(s): valid",
        global.file().display(),
        dir.run(),
        shape.groups.len()
    ))?;
    Ok(Code::Done)
}
