//! `reconciler orphans`: leases of this run that belong to no attempt any more, and those that others of its name
//! hold. Reports; with `--destroy` ends what is surely an orphan and old enough. May be used while somebody drives:
//! no driver ever returns to an attempt that is over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use executor_api::{LeaseOwner, ProviderName};
use reconciler::providers;
use reconciler_driver::{Distrust, ExecutorTable, Orphan, OrphanAge, TokioTimer, find_orphans};
use serde::Serialize;

use super::args::{Format, Global};
use super::failure::{Code, Failure};
use super::output::document;
use super::view::rfc3339;
use crate::run::adopt::list;
use crate::run::live::site;
use crate::run::state::Stored;

/// `reconciler orphans`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Destroy those that are old enough.
    #[arg(long)]
    destroy: bool,
    /// Look at this provider too, though no node uses it now.
    #[arg(long, value_name = "NAME")]
    provider: Vec<String>,
    /// How to write it.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
struct Found {
    orphans: Vec<OrphanView>,
    /// Of other uids of the run's name, or without a whole identity. Never touched.
    foreign: Vec<ForeignView>,
    /// Providers whose listing lacks something: nothing is said of them.
    incomplete: Vec<String>,
    /// Why the run's state knows too little to tell an orphan. Nothing is destroyed by it.
    untrusted: Vec<String>,
}

#[derive(Debug, Serialize)]
struct OrphanView {
    node: String,
    attempt: u64,
    provider: String,
    lease: String,
    made: Option<String>,
    state: String,
    destroyed: bool,
}

#[derive(Debug, Serialize)]
struct ForeignView {
    provider: String,
    lease: String,
    owner: String,
}

pub(super) async fn run(global: &Global, args: &Args) -> Result<Code, Failure> {
    let dir = global.dir()?;
    let before = Stored::expect(&dir)?;
    let table = providers::executors(&site(&dir, Arc::new(TokioTimer::new()))?);
    table.acquaint(&before.image.desired);
    table.acquaint_with_nodes(&before.image.state);
    let within = before.notes.policy.operation_timeout;
    let listings = list(&table, &before.image.run, in_use(&before, &args.provider)?, within).await?;
    // Read after the listing: whatever was listed is younger than this state, or known to it.
    let stored = Stored::expect(&dir)?;
    let (run, state, policy) = (&stored.image.run, &stored.image.state, &stored.notes.policy);
    let doubts = listings
        .iter()
        .filter_map(|(provider, listing)| Distrust::of(run, state, provider, listing))
        .map(|doubt| doubt.to_string());
    let mut found = Found { untrusted: doubts.collect(), ..Found::default() };
    for (provider, listing) in &listings {
        if !listing.complete {
            found.incomplete.push(provider.to_string());
        }
        for listed in &listing.leases {
            let owner = match &listed.owner {
                LeaseOwner::Attempt(key) if key.run == *run => continue,
                LeaseOwner::Attempt(key) => format!("{} {} of uid {}", key.node, key.attempt, key.run.uid()),
                LeaseOwner::Incomplete => "somebody with an incomplete identity".to_owned(),
            };
            let lease = listed.lease.lease_id.to_string();
            found.foreign.push(ForeignView { provider: provider.to_string(), lease, owner });
        }
        let visibility = table.visibility(provider, false);
        let call_time = policy.operation_timeout;
        for orphan in find_orphans(run, state, listing, call_time, visibility, SystemTime::now()) {
            let destroyed = if args.destroy && found.untrusted.is_empty() && orphan.age == OrphanAge::Enough {
                Some(destroy(&table, provider, &orphan, &stored).await)
            } else {
                None
            };
            found.orphans.push(view(provider, &orphan, destroyed.as_ref()));
        }
    }
    document(args.output, &found, || text(&found))?;
    Ok(code(&found))
}

/// All clear is said only by one who knows.
fn code(found: &Found) -> Code {
    if !found.untrusted.is_empty() {
        Code::NoState
    } else if !found.incomplete.is_empty() || found.orphans.iter().any(|orphan| !orphan.destroyed) {
        Code::Pending
    } else {
        Code::Done
    }
}

/// The providers that are or were declared, that hold a node, or that were named.
pub(super) fn in_use(stored: &Stored, named: &[String]) -> Result<BTreeSet<ProviderName>, Failure> {
    let image = &stored.image;
    let declared = image.desired.groups.iter().map(|group| group.template.provider.clone());
    let holding = image.state.nodes.values().map(|node| node.record.desired.template.provider.clone());
    let mut wanted: BTreeSet<_> =
        declared.chain(holding).chain(stored.notes.providers.iter().cloned()).collect();
    for name in named {
        wanted.insert(ProviderName::new(name).map_err(|error| Failure::error(error.to_string()))?);
    }
    Ok(wanted)
}

async fn destroy(
    table: &ExecutorTable,
    provider: &ProviderName,
    orphan: &Orphan,
    stored: &Stored,
) -> Result<(), String> {
    let Some(leases) = table.provider(provider) else { return Err("it is not built in".to_owned()) };
    let timeout = stored.notes.policy.operation_timeout;
    let context = orphan.context(SystemTime::now() + timeout);
    match tokio::time::timeout(timeout, leases.destroy(&context, &orphan.lease)).await {
        Ok(done) => done.map_err(|error| error.summary()),
        Err(_) => Err("it did not end in time; look again".to_owned()),
    }
}

fn view(provider: &ProviderName, orphan: &Orphan, destroyed: Option<&Result<(), String>>) -> OrphanView {
    let state = match (destroyed, orphan.age) {
        (Some(Ok(())), _) => "destroyed".to_owned(),
        (Some(Err(error)), _) => format!("not destroyed: {error}"),
        (None, OrphanAge::Enough) => "may be destroyed with --destroy".to_owned(),
        (None, OrphanAge::TooYoung { until }) => format!("too young until {}", rfc3339(until)),
        (None, OrphanAge::Unknown) => "of unknown age; end it by hand".to_owned(),
    };
    OrphanView {
        node: orphan.attempt.node.to_string(),
        attempt: orphan.attempt.attempt.0,
        provider: provider.to_string(),
        lease: orphan.lease.lease_id.to_string(),
        made: orphan.lease.created_at.map(rfc3339),
        state,
        destroyed: matches!(destroyed, Some(Ok(()))),
    }
}

fn text(found: &Found) -> String {
    let mut text = String::new();
    let mut say = |line: String| text.extend([&line, "\n"]);
    for orphan in &found.orphans {
        let OrphanView { node, attempt, provider, lease, state, .. } = orphan;
        say(format!("orphan   {node} a{attempt}  {provider} {lease}  {state}"));
    }
    for ForeignView { provider, lease, owner } in &found.foreign {
        say(format!("foreign  {provider} {lease}  belongs to {owner}; left alone"));
    }
    for provider in &found.incomplete {
        say(format!("{provider} did not list everything: nothing is said of its orphans; look again later"));
    }
    for why in &found.untrusted {
        say(format!("what is an orphan cannot be told: {why}"));
    }
    if found.orphans.is_empty() && found.incomplete.is_empty() && found.untrusted.is_empty() {
        say("no orphans".to_owned());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_orphans_are_said_only_by_one_who_knows() {
        let orphan = |destroyed| OrphanView {
            node: "web-0".to_owned(),
            attempt: 1,
            provider: "process".to_owned(),
            lease: "l-1".to_owned(),
            made: None,
            state: String::new(),
            destroyed,
        };
        let (one, nothing) = (|| vec!["p".to_owned()], Found::default);
        for (found, expected, clear) in [
            (nothing(), Code::Done, true),
            (Found { orphans: vec![orphan(true)], ..nothing() }, Code::Done, false),
            (Found { orphans: vec![orphan(false)], ..nothing() }, Code::Pending, false),
            (Found { incomplete: one(), ..nothing() }, Code::Pending, false),
            (Found { incomplete: one(), orphans: vec![orphan(true)], ..nothing() }, Code::Pending, false),
            (Found { untrusted: one(), ..nothing() }, Code::NoState, false),
            (Found { untrusted: one(), incomplete: one(), ..nothing() }, Code::NoState, false),
        ] {
            assert_eq!((code(&found), text(&found).contains("no orphans")), (expected, clear), "{found:?}");
        }
    }
}
