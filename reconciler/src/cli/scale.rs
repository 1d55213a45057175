//! `reconciler scale GROUP=N`: another count for a group. It stands until the file changes its own.

use executor_api::GroupId;

use super::args::Global;
use super::drive::{Following, until_done};
use super::failure::{Code, Failure};
use crate::run::live::Aim;
use crate::run::protocol::Request;

/// `reconciler scale`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The group and how many nodes it is to have: `web=5`.
    #[arg(value_name = "GROUP=N", value_parser = group_and_count)]
    target: (GroupId, u32),
    #[command(flatten)]
    following: Following,
}

fn group_and_count(text: &str) -> Result<(GroupId, u32), String> {
    let wrong = || format!("{text:?} is no scale; write GROUP=N, such as web=5");
    let (group, count) = text.split_once('=').ok_or_else(wrong)?;
    let count = count.parse().map_err(|_| wrong())?;
    Ok((GroupId::new(group).map_err(|error| error.to_string())?, count))
}

pub(super) async fn run(global: &Global, args: &Args) -> Result<Code, Failure> {
    let (group, count) = args.target.clone();
    let request = Request::Scale { group: group.clone(), count };
    until_done(&global.dir()?, request, Aim::Scale { group, count }, args.following).await
}
