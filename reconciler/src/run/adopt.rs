//! Making a run's lost state anew from what its providers show. Nothing at the providers is changed by it; what was
//! stored before is moved aside.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::{LeaseOwner, Listing, ProviderName, RunId, Timer as _};
use reconciler::file::Loaded;
use reconciler::providers;
use reconciler_core::Expanded;
use reconciler_driver::adopt::{Shown, state_from_listings};
use reconciler_driver::{ExecutorTable, TokioTimer};

use crate::cli::failure::Failure;
use crate::cli::output::remark;
use crate::cli::view::rfc3339;
use crate::run::dir::RunDir;
use crate::run::intent::{Intent, Notes};
use crate::run::live::site;
use crate::run::lock::Lock;
use crate::run::state::{files_of, found, remove_if_there};

/// Gives a run the state that its nodes of this uid imply, for the file's shape. Says what was done.
pub(crate) async fn adopt(dir: &RunDir, loaded: &Loaded, path: &Path, uid: &str) -> Result<String, Failure> {
    let run = RunId::new(dir.run(), uid).map_err(|error| Failure::error(error.to_string()))?;
    let timer = TokioTimer::new();
    let table = providers::executors(&site(dir, Arc::new(timer.clone()))?);
    let intent = Intent::of_file(&loaded.declared, path, &run, None, &Notes::default(), true)?;
    let problems = providers::validate(&table, &intent.shape).await;
    if !problems.is_empty() {
        return Err(loaded.problems(problems).into());
    }
    let expanded = Expanded::of(&intent.shape)
        .map_err(|error| Failure::while_doing("reading the declared shape", &error))?;
    let mut asked: BTreeSet<ProviderName> =
        intent.shape.groups.iter().map(|group| group.template.provider.clone()).collect();
    dir.create()?;
    let _lock = Lock::take(dir).map_err(|error| error.refusal(dir.run()))?;
    table.acquaint(&intent.shape);
    let (began, within) = (timer.now(), intent.notes.policy.operation_timeout);
    let visibility = |name: &ProviderName| table.visibility(name, false);
    asked.extend(elsewhere(&table, &run, &asked, within).await);
    let counts_from = asked.iter().map(|name| visibility(name).absent_counts_from(began)).max();
    if let Some(counts_from) = counts_from.filter(|at| *at > began) {
        // Whoever cannot be listed at all is told at once.
        list(&table, &run, asked.clone(), within).await?;
        remark(format!(
            "waiting until {}: what was made last may not be shown before, and must not be made twice",
            rfc3339(counts_from)
        ));
        timer.sleep_until(counts_from).await;
    }
    let asked_at = timer.now();
    let listings = list(&table, &run, asked, within).await?;
    let shown = listings.into_iter().map(|(name, listing)| {
        let visibility = visibility(&name);
        (name, Shown { asked_at, visibility, listing })
    });
    let state = state_from_listings(&run, &expanded, &shown.collect(), began, SystemTime::now())
        .map_err(|error| Failure::no_state(format!("adopting run {}: {error}", dir.run())))?;
    let aside = dir.path().join("state.db.before-adopt");
    // A log goes with its own file: what an earlier adoption moved aside makes room, unless this is what is left of one
    // that was cut short.
    if dir.store().exists() {
        for left in files_of(&aside).iter().rev() {
            remove_if_there(left)
                .map_err(|error| Failure::while_doing(format_args!("removing {}", left.display()), &error))?;
        }
    }
    for (from, to) in files_of(&dir.store()).iter().zip(files_of(&aside)) {
        if from.exists() {
            std::fs::rename(from, &to).map_err(|error| {
                Failure::while_doing(format_args!("moving {} aside", from.display()), &error)
            })?;
        }
    }
    found(dir, &intent.shape, &intent.notes, &state)?;
    Ok(format!(
        "run {} has state again: {} node(s) of uid {uid} are to be adopted, the next attempt is a{}",
        dir.run(),
        state.nodes.len(),
        state.next_attempt_id
    ))
}

/// The other built-in providers that show something of the run: the file may have been edited since it was made there.
async fn elsewhere(
    table: &ExecutorTable,
    run: &RunId,
    asked: &BTreeSet<ProviderName>,
    within: Duration,
) -> Vec<ProviderName> {
    let mut found = Vec::new();
    for name in table.providers().map(|provider| provider.name()).filter(|name| !asked.contains(name)) {
        let listing = match list(table, run, [name.clone()].into(), within).await {
            Ok(mut listings) => listings.remove(&name),
            Err(failure) => {
                remark(format!(
                    "{name} is not declared and cannot be listed, so that nothing of run {} is looked for there: {}",
                    run.name(),
                    failure.message
                ));
                continue;
            }
        };
        let of_run = |owner: &LeaseOwner| matches!(owner, LeaseOwner::Attempt(key) if key.run == *run);
        if listing.is_some_and(|listing| listing.leases.iter().any(|listed| of_run(&listed.owner))) {
            found.push(name);
        }
    }
    found
}

/// Lists providers, all of them or none, each within a time.
pub(crate) async fn list(
    table: &ExecutorTable,
    run: &RunId,
    names: BTreeSet<ProviderName>,
    within: Duration,
) -> Result<BTreeMap<ProviderName, Listing>, Failure> {
    let mut listings = BTreeMap::new();
    for name in names {
        let Some(provider) = table.provider(&name) else {
            return Err(Failure::error(format!("provider {name} is not built in")));
        };
        let listing = tokio::time::timeout(within, provider.list(run)).await.map_err(|_| {
            let after = within.as_secs_f64();
            Failure::error(format!("{name} did not list what it holds within {after} s; look again later"))
        })?;
        let listing = listing
            .map_err(|error| Failure::while_doing(format_args!("listing what {name} holds"), &error))?;
        listings.insert(name, listing);
    }
    Ok(listings)
}
