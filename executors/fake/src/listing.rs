//! Listings in pages: one page as the world gives it, and all of them put together as a faithful provider does it.

use std::time::SystemTime;

use executor_api::{Life, ListedLease, Listing, RunId};

use crate::faults::Fault;
use crate::provider::{FakeProvider, earlier, wait};

/// How often a listing is begun anew because its pages shifted while they were read.
const READINGS: usize = 3;

/// One page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The time that the page describes.
    pub as_of: SystemTime,
    /// Its leases.
    pub leases: Vec<ListedLease>,
    /// Where the next page begins, if there is one.
    pub next: Option<usize>,
    /// Grows with every change of what there is to list. Pages of different versions do not fit together.
    pub version: usize,
}

impl FakeProvider {
    /// One page of a run's listing, from the `from`th lease on; see [`set_page`]. What [`list`] is made of, and
    /// what a caller who puts the pages together himself must see to.
    ///
    /// [`set_page`]: crate::FakeWorld::set_page
    /// [`list`]: executor_api::LeaseProvider::list
    pub async fn page(&self, run: &RunId, from: usize) -> Page {
        self.page_as(run, from, None).await
    }

    async fn page_as(&self, run: &RunId, from: usize, fault: Option<Fault>) -> Page {
        wait(&self.world, if let Some(Fault::Slow(times)) = fault { times } else { 1 }).await;
        self.world.enter(|state| {
            let as_of = match fault {
                Some(Fault::Stale { by }) => earlier(state.now, by),
                _ => state.now,
            };
            let version = state.log.len();
            if std::mem::take(&mut state.empty_page) {
                state.faults.fire("empty-page");
                return Page { as_of, leases: Vec::new(), next: Some(from), version };
            }
            let numbers = state.runs.get(run.name()).into_iter().flatten();
            let shown = numbers.filter_map(|n| state.leases.get(n));
            let shown = shown.filter_map(|lease| Some((lease, state.shown(lease, as_of)?)));
            let mut leases: Vec<_> = shown
                .map(|(lease, life)| ListedLease {
                    owner: lease.truth.owner.clone(),
                    lease: lease.facts(&self.name),
                    endpoint: lease.truth.endpoint.clone(),
                    life,
                    reason: (life > Life::Live).then(|| lease.truth.ended.clone()).flatten(),
                })
                .collect();
            let end = state.page.map_or(leases.len(), |size| from.saturating_add(size.max(1)));
            let next = (end < leases.len()).then_some(end);
            leases.truncate(end);
            let first = leases.first().map(|first| first.lease.lease_id.clone());
            leases.drain(..from.min(leases.len()));
            if let (Some(first), Some(_), true) = (first, next, state.shift) {
                state.shift = false;
                state.end_lease(&first, "removed by hand while it was listed", false, true);
                state.faults.fire("shifted");
            }
            Page { as_of, leases, next, version }
        })
    }

    /// All pages, put together: begun anew when something changed in between, and incomplete when it always does.
    pub(crate) async fn whole(&self, run: &RunId, fault: Option<Fault>) -> Listing {
        let mut left = READINGS;
        loop {
            let first = self.page_as(run, 0, fault).await;
            let (as_of, mut next, version) = (first.as_of, first.next, first.version);
            let (mut leases, mut steady) = (first.leases, true);
            while let Some(from) = next {
                let page = self.page_as(run, from, fault).await;
                steady &= page.version == version;
                leases.extend(page.leases);
                next = page.next;
            }
            left -= 1;
            if steady || left == 0 {
                return Listing { as_of, complete: steady, leases };
            }
        }
    }
}
