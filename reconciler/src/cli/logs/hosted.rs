//! The output of a session that lives on its node, read from there piece by piece: nothing of it is kept here.

use std::time::Duration;

use bootstrap_hosted::{OutputError, OutputReader, SessionOutput};
use executor_api::{AttemptKey, LogicalNodeId};
use tokio::time::sleep;

use super::super::follow::Interrupt;
use super::super::output::remark;
use super::{Args, Attempts, Code, Failure, goes_on, tell};
use crate::run::dir::RunDir;

/// Time between two looks for more.
const PACE: Duration = Duration::from_millis(500);

pub(super) async fn run(
    dir: &RunDir,
    args: &Args,
    key: AttemptKey,
    output: &dyn SessionOutput,
) -> Result<Code, Failure> {
    let mut interrupt = Interrupt::new()?;
    let shown = async {
        if args.follow { follow(dir, &args.node, key, output).await } else { show(args, &key, output).await }
    };
    tokio::select! {
        shown = shown => shown?,
        () = interrupt.wait() => {}
    }
    Ok(Code::Done)
}

/// Shows what there is.
async fn show(args: &Args, key: &AttemptKey, output: &dyn SessionOutput) -> Result<(), Failure> {
    let earlier;
    let key = if args.previous {
        let none = || Failure::error(format!("{} has no output of an earlier attempt", args.node));
        earlier = output.previous(key).ok_or_else(none)?;
        &earlier
    } else {
        key
    };
    let mut reader = output.reader(key).map_err(|error| failure(&args.node, &error))?;
    pour(&mut *reader).await.map_err(|error| failure(&args.node, &error))??;
    Ok(())
}

/// Shows what there is and what comes, through attempts, until the node is gone or nobody reads any more.
async fn follow(
    dir: &RunDir,
    node: &LogicalNodeId,
    mut key: AttemptKey,
    output: &dyn SessionOutput,
) -> Result<(), Failure> {
    let mut reader: Option<Box<dyn OutputReader + '_>> = None;
    let mut troubled = false;
    let mut attempts = Attempts::new(dir, node, key.clone());
    loop {
        if reader.is_none() {
            reader = match output.reader(&key) {
                Ok(reader) => Some(reader),
                // An attempt that is not bootstrapped yet.
                Err(OutputError::NoSession { .. }) => None,
                Err(error) => return Err(failure(node, &error)),
            };
        }
        if let Some(reader) = &mut reader {
            match pour(&mut **reader).await {
                Ok(read) => {
                    troubled = false;
                    if !read? {
                        return Ok(());
                    }
                }
                Err(error) if error.passes() => {
                    if !std::mem::replace(&mut troubled, true) {
                        remark(format!("--- {}; trying again", failure(node, &error).message));
                    }
                }
                Err(error) => return Err(failure(node, &error)),
            }
        }
        sleep(PACE).await;
        let Some(now) = attempts.look()? else {
            remark(format!("{node} is gone"));
            return Ok(());
        };
        if now != key {
            if let Some(reader) = &mut reader {
                // The last words of the attempt that ended, if its host still has them.
                let _ = pour(&mut **reader).await;
            }
            remark(goes_on(node, &now));
            (key, reader) = (now, None);
        }
    }
}

/// Shows what there is now; whether anybody still reads.
async fn pour(reader: &mut (dyn OutputReader + '_)) -> Result<Result<bool, Failure>, OutputError> {
    loop {
        let piece = reader.next().await?;
        match tell(piece.text.as_bytes()) {
            Ok(true) => {}
            other => return Ok(other),
        }
        if !piece.more {
            return Ok(Ok(true));
        }
    }
}

fn failure(node: &LogicalNodeId, error: &OutputError) -> Failure {
    Failure::while_doing(format_args!("reading the output of {node}"), error)
}
