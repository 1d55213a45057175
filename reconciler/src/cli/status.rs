//! `reconciler status`: the nodes, from the process that drives or else from the stored state.

use super::args::{Format, Global};
use super::drive::driver_of;
use super::failure::{Code, Failure};
use super::output::{document, status_table};
use super::view::Status;
use crate::run::dir::RunDir;
use crate::run::state::Stored;
use crate::run::status::of_stored;

/// `reconciler status`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How to write it.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(super) async fn run(global: &Global, args: &Args) -> Result<Code, Failure> {
    let status = read(&global.dir()?).await?;
    document(args.output, &status, || status_table(&status))?;
    Ok(Code::Done)
}

/// The run as it stands, whoever drives it.
pub(super) async fn read(dir: &RunDir) -> Result<Status, Failure> {
    if let Some(mut client) = driver_of(dir).await? {
        let status = client.status().await;
        if !client.is_lost() {
            return status;
        }
    }
    of_stored(&Stored::expect(dir)?)
}
