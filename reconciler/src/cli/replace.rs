//! `reconciler replace NODE`: a fresh attempt for a node, whatever state the present one is in.

use executor_api::LogicalNodeId;

use super::args::{Global, node_id};
use super::drive::{Following, driver_of, through};
use super::failure::{Code, Failure};
use super::follow::{conclude, until_converged};
use crate::run::live::{Aim, Live};
use crate::run::protocol::Request;

/// `reconciler replace`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The node, such as web-1.
    #[arg(value_parser = node_id)]
    node: LogicalNodeId,
    #[command(flatten)]
    following: Following,
}

pub(super) async fn run(global: &Global, args: &Args) -> Result<Code, Failure> {
    let dir = global.dir()?;
    let timeout = args.following.timeout();
    let ended = if let Some(client) = driver_of(&dir).await? {
        through(client, &dir, Request::Replace { node: args.node.clone() }, args.following).await?
    } else {
        let (live, _) = Live::open(&dir, Aim::Accepted).await?;
        let asked = live.replace(&args.node).await;
        let ended = match asked {
            Ok(_) => {
                let generation = live.generation().await;
                until_converged(&mut live.watch(), generation, timeout, args.following.quiet).await
            }
            Err(failure) => Err(failure),
        };
        live.close().await?;
        ended?
    };
    conclude(ended, dir.run(), timeout)
}
