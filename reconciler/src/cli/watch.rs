//! `reconciler watch`: what happens, as it happens, while some process drives the run.

use super::args::Global;
use super::drive::driver_of;
use super::failure::{Code, Failure};
use super::follow::{Interrupt, Progress};
use super::output::line;
use crate::run::protocol::{Answer, Request};
use crate::run::state::Stored;

/// `reconciler watch`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show each event with its reason, instead of the nodes as they change.
    #[arg(long)]
    events: bool,
}

pub(super) async fn run(global: &Global, args: &Args) -> Result<Code, Failure> {
    let dir = global.dir()?;
    let Some(mut client) = driver_of(&dir).await? else {
        Stored::expect(&dir)?;
        return Err(Failure::error(format!(
            "nobody drives run {}, so nothing happens; `reconciler run` drives it, `reconciler status` shows it",
            dir.run()
        )));
    };
    let mut interrupt = Interrupt::new()?;
    let mut progress = Progress::new(false);
    let mut answer = client.call(if args.events { Request::Events } else { Request::Watch }).await?;
    loop {
        match answer {
            Answer::Status(status) => progress.show(&status)?,
            Answer::Event { line: text } => line(text)?,
            Answer::Explained(_) | Answer::Accepted { .. } | Answer::Failed(_) => {}
        }
        answer = tokio::select! {
            next = client.next() => next?,
            () = interrupt.wait() => return Ok(Code::Done),
        };
    }
}
