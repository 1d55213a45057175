//! What the commands share that drive a run until it has converged: through the process that drives it already,
//! or by driving it themselves for that long.

use std::sync::Arc;
use std::time::Duration;

use super::args::duration;
use super::failure::{Code, Failure};
use super::follow::{Ended, conclude, until_converged};
use super::output::remark;
use crate::run::client::Client;
use crate::run::dir::RunDir;
use crate::run::live::{Aim, Live};
use crate::run::lock::holder;
use crate::run::protocol::Request;
use reconciler::file::DurationText;

/// How long to follow, and how loudly.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Following {
    /// Give up after this long: exit with 2 and say what is in the way. What was begun goes on from there with
    /// the next command.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) timeout: Option<DurationText>,
    /// Show no progress.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl Following {
    pub(crate) fn timeout(self) -> Option<Duration> {
        self.timeout.map(|timeout| timeout.0)
    }
}

/// The process that drives a run, if one does. One that is just starting is waited for.
pub(crate) async fn driver_of(dir: &RunDir) -> Result<Option<Client>, Failure> {
    for _ in 0..20 {
        if let Some(client) = Client::connect(dir).await? {
            return Ok(Some(client));
        }
        if holder(dir).is_none() {
            return Ok(None);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(None)
}

/// Gives an order to a driver and follows until it is carried out.
pub(crate) async fn through(
    mut client: Client,
    dir: &RunDir,
    request: Request,
    following: Following,
) -> Result<Ended, Failure> {
    let (generation, notices) = match client.order(request).await {
        Err(_) if client.is_lost() => return Ok(Ended::Stopped),
        ordered => ordered?,
    };
    notices.iter().for_each(remark);
    let Some(watcher) = Client::connect(dir).await? else { return Ok(Ended::Stopped) };
    let ended =
        until_converged(&mut watcher.watch(), generation, following.timeout(), following.quiet).await?;
    Ok(if matches!(ended, Ended::Interrupted) { Ended::LetGo } else { ended })
}

/// Drives a run until it has converged, and leaves its nodes running.
pub(crate) async fn alone(
    dir: &RunDir,
    aim: Aim,
    following: Following,
) -> Result<(Arc<Live>, Ended), Failure> {
    let (live, notices) = Live::open(dir, aim).await?;
    notices.iter().for_each(remark);
    let generation = live.generation().await;
    let ended = until_converged(&mut live.watch(), generation, following.timeout(), following.quiet).await?;
    Ok((live, ended))
}

/// [`through`] or [`alone`]. A driver that ends while it is followed (another `apply` that had its own work done) is
/// succeeded by the next one, or by ourselves.
pub(crate) async fn carry_out(
    dir: &RunDir,
    request: Request,
    aim: Aim,
    following: Following,
) -> Result<Ended, Failure> {
    let mut tries = 0;
    loop {
        while let Some(client) = driver_of(dir).await? {
            match through(client, dir, request.clone(), following).await? {
                Ended::Stopped => {}
                ended => return Ok(ended),
            }
        }
        match alone(dir, aim.clone(), following).await {
            // Somebody began to drive in this very moment: the order goes to that one.
            Err(Failure { code: Code::Refused, .. }) if tries < 5 && holder(dir).is_some() => tries += 1,
            Err(failure) => return Err(failure),
            Ok((live, ended)) => {
                live.close().await?;
                return Ok(ended);
            }
        }
    }
}

/// [`carry_out`], to the last words.
pub(crate) async fn until_done(
    dir: &RunDir,
    request: Request,
    aim: Aim,
    following: Following,
) -> Result<Code, Failure> {
    let ended = carry_out(dir, request, aim, following).await?;
    conclude(ended, dir.run(), following.timeout())
}
