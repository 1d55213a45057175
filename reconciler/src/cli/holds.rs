//! `reconciler pause`, `resume` and `release`: holds on a node or on all of them. A hold is stored, so it needs
//! no driver and outlives one.

use executor_api::LogicalNodeId;

use super::args::{Global, node_id};
use super::drive::driver_of;
use super::failure::{Code, Failure};
use super::output::{line, remark};
use crate::run::live::Live;
use crate::run::protocol::Request;

/// `reconciler pause`
#[derive(Debug, clap::Args)]
pub(crate) struct PauseArgs {
    /// The node; without it, all of them.
    #[arg(value_parser = node_id)]
    node: Option<LogicalNodeId>,
    /// Why; shown wherever the node is shown.
    #[arg(long, default_value = "paused")]
    reason: String,
}

/// `reconciler resume`
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    /// The node; without it, the pause of all of them ends.
    #[arg(value_parser = node_id)]
    node: Option<LogicalNodeId>,
}

/// `reconciler release`
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    /// The node.
    #[arg(value_parser = node_id)]
    node: LogicalNodeId,
}

pub(super) async fn pause(global: &Global, args: PauseArgs) -> Result<Code, Failure> {
    let what = name(args.node.as_ref());
    change(global, Request::Pause { node: args.node, reason: args.reason }).await?;
    line(format!("{what} is paused; nothing begins there until `reconciler resume`"))?;
    Ok(Code::Done)
}

pub(super) async fn resume(global: &Global, args: ResumeArgs) -> Result<Code, Failure> {
    let what = name(args.node.as_ref());
    change(global, Request::Resume { node: args.node, breach: false }).await?;
    line(format!("{what} goes on"))?;
    Ok(Code::Done)
}

pub(super) async fn release(global: &Global, args: ReleaseArgs) -> Result<Code, Failure> {
    let what = args.node.to_string();
    change(global, Request::Resume { node: Some(args.node), breach: true }).await?;
    line(format!("{what} is released"))?;
    Ok(Code::Done)
}

fn name(node: Option<&LogicalNodeId>) -> String {
    node.map_or_else(|| "every node".to_owned(), ToString::to_string)
}

/// Tells the driver, or changes the stored holds without driving anything.
async fn change(global: &Global, request: Request) -> Result<(), Failure> {
    let dir = global.dir()?;
    while let Some(mut client) = driver_of(&dir).await? {
        match client.order(request.clone()).await {
            Err(_) if client.is_lost() => {}
            ordered => {
                ordered?.1.iter().for_each(remark);
                return Ok(());
            }
        }
    }
    Live::change_holds_offline(&dir, &request)?.iter().for_each(remark);
    Ok(())
}
