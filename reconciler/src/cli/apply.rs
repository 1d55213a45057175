//! `reconciler apply` (alias `up`): drive until the cluster is as the file says, then exit and leave the nodes.
//! If another process drives the run, the file is handed to that one.

use reconciler::file;

use super::args::Global;
use super::drive::{Following, until_done};
use super::failure::{Code, Failure};
use super::output::{confirm, remark};
use super::plan::Changes;
use crate::run::adopt::adopt;
use crate::run::live::Aim;
use crate::run::protocol::Request;

/// `reconciler apply`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    following: Following,
    /// Hand the run over to this file, if it was made from another one.
    #[arg(long)]
    rebind: bool,
    /// The run's state was lost or is too old: make it anew from its nodes of this uid, for this file.
    #[arg(long, value_name = "UID")]
    adopt: Option<String>,
    /// Do not ask before nodes are replaced or removed. Needed for that where nobody can be asked: standard input and
    /// standard error are not both a terminal.
    #[arg(short, long)]
    yes: bool,
}

pub(super) async fn run(global: &Global, args: &Args) -> Result<Code, Failure> {
    let loaded = file::load(global.file())?;
    let dir = global.dir_of(&loaded.declared.run)?;
    let path = global.file_path()?;
    if let Some(uid) = &args.adopt {
        remark(adopt(&dir, &loaded, &path, uid).await?);
    }
    if !args.yes {
        let lost = Changes::of(&dir, &loaded, &path, args.rebind).await?.newly_lost();
        if !lost.is_empty() {
            confirm(&format!("run {}: {} would be replaced or removed. Go on?", dir.run(), lost.join(", ")))?;
        }
    }
    let request = Request::Submit { file: path.clone(), text: loaded.text().to_owned(), rebind: args.rebind };
    let aim = Aim::File { loaded: Box::new(loaded), path, rebind: args.rebind };
    until_done(&dir, request, aim, args.following).await
}
