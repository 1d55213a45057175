//! Listing: one call shows every lease of the run's name once it must be visible, says whose it is, and says
//! when it is not the whole truth.

use std::sync::Arc;

use executor_api::{LeaseOwner, Life, RunId};

use super::identity::{other_uid, owned_by};
use crate::bench::Bench;
use crate::case::{CaseEnd, CaseResult, ensure};
use crate::harness::Injection;

/// More than two pages of two.
const MANY: u32 = 5;

pub(crate) async fn a_listing_shows_every_lease(b: Arc<Bench>) -> CaseResult {
    let keys: Vec<_> = (0..3).map(|index| b.key("web", index, u64::from(index) + 1)).collect();
    for key in &keys {
        b.create(key).await?;
    }
    b.rest(b.visibility().listing_lag).await;
    let listing = b.list(b.run()).await?;
    ensure!(listing.complete, "a listing without any fault is incomplete");
    for key in keys {
        let owner = LeaseOwner::Attempt(key.clone());
        let shown = listing.leases.iter().filter(|lease| lease.owner == owner && lease.life < Life::Ending);
        let shown = shown.count();
        ensure!(shown == 1, "{key} is listed {shown} times in {:?}", listing.leases);
    }
    Ok(())
}

pub(crate) async fn a_listing_shows_nothing_destroyed_as_alive(b: Arc<Bench>) -> CaseResult {
    let key = b.key("web", 0, 1);
    let lease = b.create(&key).await?;
    b.absence_counts().await;
    b.destroy(&key, &lease).await?;
    b.rest(b.visibility().listing_lag).await;
    let listing = b.list(b.run()).await?;
    let alive = listing.leases.iter().find(|lease| lease.life < Life::Ending);
    ensure!(alive.is_none(), "a destroyed lease is listed as {alive:?}");
    Ok(())
}

pub(crate) async fn a_listing_leaves_other_runs_out(b: Arc<Bench>) -> CaseResult {
    let run = RunId::new(format!("{}x", b.run().name()), b.run().uid());
    let run = run.map_err(|error| CaseEnd::Failed(format!("the harness's run name: {error}")))?;
    b.create(&b.key_in(&run, "web", 0, 1)).await?;
    b.rest(b.visibility().listing_lag).await;
    let listing = b.list(b.run()).await?;
    ensure!(listing.leases.is_empty(), "another run's leases are listed: {:?}", listing.leases);
    Ok(())
}

pub(crate) async fn a_listing_shows_another_uid_of_the_run_as_foreign(b: Arc<Bench>) -> CaseResult {
    let other = other_uid(b.run())?;
    let foreign = b.create(&b.key_in(&other, "web", 0, 1)).await?;
    b.rest(b.visibility().listing_lag).await;
    let listing = b.list(b.run()).await?;
    let found = listing.leases.iter().find(|lease| lease.lease.lease_id == foreign.lease_id);
    let Some(found) = found else {
        return Err(CaseEnd::Failed("a lease of another uid of the run is not listed".to_owned()));
    };
    ensure!(owned_by(&found.owner, &other), "a foreign lease is listed as {:?}", found.owner);
    Ok(())
}

pub(crate) async fn an_incomplete_listing_says_so(b: Arc<Bench>) -> CaseResult {
    for index in 0..3 {
        b.create(&b.key("web", index, u64::from(index) + 1)).await?;
    }
    b.rest(b.visibility().listing_lag).await;
    b.inject(Injection::HalveListing).await?;
    if let Ok(listing) = b.list(b.run()).await {
        let whole = listing.leases.len() == 3;
        ensure!(
            whole || !listing.complete,
            "a listing of {} of 3 calls itself complete",
            listing.leases.len()
        );
    }
    Ok(())
}

pub(crate) async fn every_page_is_read(b: Arc<Bench>) -> CaseResult {
    let made = many(&b).await?;
    b.inject(Injection::SmallPages).await?;
    let listing = b.list(b.run()).await?;
    ensure!(listing.complete, "a listing in pages without any fault is incomplete");
    for id in made {
        let shown = listing.leases.iter().filter(|listed| listed.lease.lease_id == id).count();
        ensure!(shown == 1, "{id} is listed {shown} times in pages");
    }
    Ok(())
}

pub(crate) async fn a_page_with_nothing_on_it_is_not_the_last(b: Arc<Bench>) -> CaseResult {
    let made = many(&b).await?;
    b.inject(Injection::SmallPages).await?;
    b.inject(Injection::EmptyPage).await?;
    // An error or an incomplete listing says nothing, and may.
    let Ok(listing) = b.list(b.run()).await else { return Ok(()) };
    for id in made {
        let shown = listing.leases.iter().any(|listed| listed.lease.lease_id == id);
        ensure!(
            shown || !listing.complete,
            "{id} is behind an empty page, and the listing calls itself complete"
        );
    }
    Ok(())
}

pub(crate) async fn pages_that_shift_hide_nothing(b: Arc<Bench>) -> CaseResult {
    many(&b).await?;
    b.inject(Injection::SmallPages).await?;
    b.inject(Injection::ShiftPages).await?;
    // An error or an incomplete listing says nothing, and may.
    let Ok(listing) = b.list(b.run()).await else { return Ok(()) };
    let mut shown: Vec<_> = listing.leases.iter().map(|listed| listed.lease.lease_id.clone()).collect();
    let all = shown.len();
    shown.sort();
    shown.dedup();
    ensure!(shown.len() == all, "a lease is listed twice: {:?}", listing.leases);
    for held in b.inventory().await.leases {
        let hidden = listing.complete && !shown.contains(&held.id);
        ensure!(!hidden, "{} exists, and a listing that calls itself complete leaves it out", held.id);
    }
    Ok(())
}

async fn many(b: &Bench) -> Result<Vec<executor_api::LeaseId>, CaseEnd> {
    let mut made = Vec::new();
    for index in 0..MANY {
        made.push(b.create(&b.key("web", index, u64::from(index) + 1)).await?.lease_id);
    }
    b.absence_counts().await;
    Ok(made)
}
