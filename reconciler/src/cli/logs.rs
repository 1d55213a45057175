//! `reconciler logs`: the output of a node, from wherever its bootstrapper keeps it. The process provider keeps it in
//! files here ([`local`]); sessions that live on their nodes keep it there ([`hosted`]).

#[cfg(any(feature = "agent", feature = "ssh"))]
mod hosted;
#[cfg(feature = "process")]
mod local;

use std::sync::Arc;

use executor_api::{AttemptKey, LogicalNodeId, NodeTemplate};
use reconciler::providers::{self, Site};
use reconciler_driver::TokioTimer;

use super::args::{Global, node_id};
use super::failure::{Code, Failure};
use crate::run::dir::RunDir;
use crate::run::live::site;
use crate::run::state::Stored;
use crate::run::status::unknown;

/// `reconciler logs`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The node, such as web-1.
    #[arg(value_parser = node_id)]
    node: LogicalNodeId,
    /// Go on with what the node writes from now on, through its next attempts too.
    #[arg(short, long, conflicts_with = "previous")]
    follow: bool,
    /// The output of the attempt before this one.
    #[arg(long)]
    previous: bool,
}

#[cfg_attr(
    not(any(feature = "agent", feature = "process", feature = "ssh")),
    expect(clippy::unused_async, reason = "there is nothing to wait for where nothing keeps an output")
)]
pub(super) async fn run(global: &Global, args: &Args) -> Result<Code, Failure> {
    let dir = global.dir()?;
    let (key, template) = attempt(&dir, &args.node)?;
    let site = site(&dir, Arc::new(TokioTimer::new()))?;
    let bootstrapper = bootstrapper(&site, &template)?;
    #[cfg(any(feature = "agent", feature = "ssh"))]
    if let Some(output) =
        providers::BOOTSTRAPPERS.iter().find(|row| row.name == bootstrapper).and_then(|row| row.output)
    {
        return hosted::run(&dir, args, key, &*output(&site)).await;
    }
    #[cfg(feature = "process")]
    if bootstrapper == "process" {
        return local::run(&dir, args, key).await;
    }
    Err(Failure::error(format!(
        "the output of {} is not known here: its bootstrapper, {bootstrapper}, keeps none ({key})",
        args.node
    )))
}

/// The name of the node's bootstrapper: the one that is named, or the one that its provider brings.
fn bootstrapper(site: &Site, template: &NodeTemplate) -> Result<String, Failure> {
    let executor = providers::executors(site).resolve(template);
    let executor = executor.map_err(|error| Failure::error(error.to_string()))?;
    Ok(executor.bootstrap().name().to_string())
}

/// The node's present attempt, as stored: one is never acted for before it is stored.
fn attempt(dir: &RunDir, id: &LogicalNodeId) -> Result<(AttemptKey, Arc<NodeTemplate>), Failure> {
    let stored = Stored::expect(dir)?;
    let node = stored.image.state.nodes.get(id).ok_or_else(|| unknown(id))?;
    let key = AttemptKey { run: stored.image.run, node: id.clone(), attempt: node.attempt };
    Ok((key, Arc::clone(&node.record.desired.template)))
}

/// Watches through which attempts a node goes.
#[cfg(any(feature = "agent", feature = "process", feature = "ssh"))]
struct Attempts<'a> {
    dir: &'a RunDir,
    node: &'a LogicalNodeId,
    latest: AttemptKey,
    unreadable: u32,
}

#[cfg(any(feature = "agent", feature = "process", feature = "ssh"))]
impl<'a> Attempts<'a> {
    /// How many looks in a row may fail: a state that is being written or put away is there again in a moment.
    const PATIENCE: u32 = 25;

    fn new(dir: &'a RunDir, node: &'a LogicalNodeId, latest: AttemptKey) -> Self {
        Self { dir, node, latest, unreadable: 0 }
    }

    /// The attempt as it is now; `None` once the node, or all of the run, is gone.
    fn look(&mut self) -> Result<Option<AttemptKey>, Failure> {
        match Stored::look(self.dir) {
            Ok(Some(stored)) => {
                self.unreadable = 0;
                let Some(node) = stored.image.state.nodes.get(self.node) else { return Ok(None) };
                self.latest.attempt = node.attempt;
                Ok(Some(self.latest.clone()))
            }
            Ok(None) => Ok(None),
            Err(failure) if self.unreadable >= Self::PATIENCE => Err(failure),
            Err(_) => {
                self.unreadable += 1;
                Ok(Some(self.latest.clone()))
            }
        }
    }
}

/// What is said between the output of two attempts.
#[cfg(any(feature = "agent", feature = "process", feature = "ssh"))]
fn goes_on(node: &LogicalNodeId, now: &AttemptKey) -> String {
    format!("--- {node} goes on as attempt {}", now.attempt)
}

/// Writes a piece of output. Answers whether anybody still reads.
#[cfg(any(feature = "agent", feature = "process", feature = "ssh"))]
fn tell(piece: &[u8]) -> Result<bool, Failure> {
    use std::io::{self, Write as _};
    let mut out = io::stdout().lock();
    match out.write_all(piece).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::while_doing("writing to standard output", &error)),
    }
}
