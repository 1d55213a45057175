//! `reconciler destroy` (alias `down`): remove every node, then the run's state. Success means that nothing is
//! left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use executor_api::{LeaseOwner, Life, Listing, ProviderName, RunId};
use reconciler::providers;
use reconciler_driver::TokioTimer;

use super::args::Global;
use super::drive::{Following, carry_out};
use super::failure::{Code, Failure};
use super::follow::{Ended, Interrupt, conclude};
use super::orphans::in_use;
use super::output::{confirm, line, remark};
use crate::run::adopt::list;
use crate::run::client::Client;
use crate::run::dir::RunDir;
use crate::run::live::{Aim, site};
use crate::run::protocol::Request;
use crate::run::remove::{remove, was_cut_short};
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
    if was_cut_short(&dir)? {
        remove(&dir).await?;
        line(format!("run {} is gone", dir.run()))?;
        return Ok(Code::Done);
    }
    let stored = Stored::expect(&dir)?;
    if !args.yes {
        let nodes = stored.image.state.nodes.len();
        confirm(&format!("Remove run {} with its {nodes} node(s) and their data?", dir.run()))?;
    }
    let ended = carry_out(&dir, Request::Destroy, Aim::Nothing, args.following).await?;
    match ended {
        Ended::Converged(_) => {
            stop_driver(&dir).await?;
            let Some(gone) = Interrupt::new()?.unless(nothing_lives(&dir, &stored)).await else {
                let message = format!(
                    "the nodes of run {} are gone; whether anything else of it lives was not looked at. Its state is \
                     kept: destroy the run again",
                    dir.run()
                );
                return Err(Failure { code: Code::Pending, message });
            };
            gone?;
            remove(&dir).await?;
            line(format!("run {} is gone", dir.run()))?;
            Ok(Code::Done)
        }
        Ended::Interrupted => {
            remark(format!(
                "stopped removing run {}: what is left of its nodes lives on (`reconciler destroy` goes on with it)",
                dir.run()
            ));
            Ok(Code::Pending)
        }
        other => conclude(other, dir.run(), args.following.timeout()),
    }
}

/// Nothing of the run lives at any provider it used: with its state, what it knows of earlier attempts would be lost.
async fn nothing_lives(dir: &RunDir, stored: &Stored) -> Result<(), Failure> {
    let table = providers::executors(&site(dir, Arc::new(TokioTimer::new()))?);
    table.acquaint(&stored.image.desired);
    table.acquaint_with_nodes(&stored.image.state);
    let names = in_use(stored, &[])?;
    let lag = names.iter().map(|name| table.visibility(name, false).listing_lag).max().unwrap_or_default();
    let patience = tokio::time::Instant::now() + lag;
    loop {
        let listings =
            list(&table, &stored.image.run, names.clone(), stored.notes.policy.operation_timeout).await?;
        let Some(left) = left_of(&stored.image.run, &listings) else { return Ok(()) };
        // A listing may show for a while what has just been destroyed.
        if tokio::time::Instant::now() >= patience {
            let message = format!(
                "the nodes of run {} are gone, but {left}, then destroy the run again. Its state is kept",
                dir.run()
            );
            return Err(Failure { code: Code::Pending, message });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// What still lives of a run, or may, and what to do about it. `None` only where every provider has shown all that it
/// holds.
fn left_of(run: &RunId, listings: &BTreeMap<ProviderName, Listing>) -> Option<String> {
    let leases = listings.values().flat_map(|listing| &listing.leases);
    let left: Vec<_> = leases
        .filter(|listed| matches!(listed.life, Life::Pending | Life::Live))
        .filter(|listed| matches!(&listed.owner, LeaseOwner::Attempt(key) if key.run == *run))
        .map(|listed| listed.lease.lease_id.to_string())
        .collect();
    if !left.is_empty() {
        let left = left.join(", ");
        return Some(format!(
            "what earlier attempts left still lives: {left}. See what `reconciler orphans` says may be done about each"
        ));
    }
    let partial = listings.iter().filter(|(_, listing)| !listing.complete);
    let partial: Vec<_> = partial.map(|(provider, _)| provider.to_string()).collect();
    (!partial.is_empty()).then(|| {
        let partial = partial.join(", ");
        format!("{partial} did not list everything, so that something of it may live on. Wait for a while")
    })
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

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_listing_that_lacks_something_is_not_an_empty_one() {
        let run = RunId::new("demo", "u1").unwrap();
        let listed = |complete| {
            let listing = Listing { as_of: SystemTime::UNIX_EPOCH, complete, leases: Vec::new() };
            (ProviderName::new("vm").unwrap(), listing)
        };
        assert_eq!(left_of(&run, &[listed(true)].into()), None);
        let partial = left_of(&run, &[listed(false)].into()).unwrap();
        assert!(partial.contains("vm did not list everything"), "{partial}");
    }
}
