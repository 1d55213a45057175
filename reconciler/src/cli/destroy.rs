//! `reconciler destroy` (alias `down`): remove every node, then the run's state. Success means that nothing is
//! left.

use super::args::Global;
use super::drive::{Following, carry_out};
use super::failure::{Code, Failure};
use super::follow::{Ended, conclude};
use super::output::{confirm, line};
use crate::run::client::Client;
use crate::run::dir::RunDir;
use crate::run::live::Aim;
use crate::run::protocol::Request;
use crate::run::remove::remove;
use crate::run::state::Stored;

/// `reconciler destroy`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    following: Following,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
}

pub(super) async fn run(global: &Global, args: &Args) -> Result<Code, Failure> {
    let dir = global.dir()?;
    let stored = Stored::expect(&dir)?;
    if !args.yes {
        let nodes = stored.image.state.nodes.len();
        match confirm(&format!("Remove run {} with its {nodes} node(s) and their data?", dir.run())) {
            Some(true) => {}
            Some(false) => return Err(Failure::refused("not confirmed; nothing was changed")),
            None => {
                return Err(Failure::refused(
                    "destroying needs a confirmation; give -y where nobody can be asked",
                ));
            }
        }
    }
    let ended = carry_out(&dir, Request::Destroy, Aim::Nothing, args.following).await?;
    match ended {
        Ended::Converged(_) => {
            stop_driver(&dir).await?;
            remove(&dir).await?;
            line(format!("run {} is gone", dir.run()))?;
            Ok(Code::Done)
        }
        other => conclude(other, dir.run(), args.following.timeout()),
    }
}

/// Ends the process that drove the run, if one did: it has nothing left to keep.
async fn stop_driver(dir: &RunDir) -> Result<(), Failure> {
    if let Some(mut client) = Client::connect(dir).await? {
        match client.order(Request::Stop).await {
            Err(_) if client.is_lost() => {}
            ordered => drop(ordered?),
        }
    }
    Ok(())
}
