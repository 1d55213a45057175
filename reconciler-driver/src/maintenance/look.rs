//! Reads everything once. Stamps each reading with the time of its question, asks a second time where the first went
//! wrong, and gives no reading more time than evidence may be old.

use std::fmt::Display;
use std::time::Duration;

use executor_api::host::{Evidence, HostName, LockRecords, Source};
use reconciler_core::maintenance::{BondFlipPlan, Observed, PlanState};

use super::hands::Hands;
use super::keeper::Keeper;
use crate::dispatch::contained::{Ended, contained};

/// Asks once, within a time. A panic and a silence are failures like any other.
pub(super) async fn ask<T: 'static, E: Display + 'static>(
    hands: &Hands,
    within: Duration,
    doing: &str,
    question: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, String> {
    let deadline = hands.timer.now().checked_add(within).map(|at| hands.timer.sleep_until(at));
    match contained(question, deadline).await {
        Ended::Returned(answer) => answer.map_err(|error| error.to_string()),
        Ended::Panicked(message) => Err(format!("{doing}: the implementation panicked: {message}")),
        Ended::GaveUp => Err(format!("{doing}: no answer in time")),
    }
}

/// Asks, and once more if that fails. One lost packet is not worth a halt.
async fn read<T, E, F>(
    hands: &Hands,
    within: Duration,
    source: Source,
    question: impl Fn(Hands) -> F,
) -> Evidence<T>
where
    T: 'static,
    E: Display + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
{
    let mut at = hands.timer.now();
    let mut answer = ask(hands, within, "reading", question(hands.clone())).await;
    if answer.is_err() {
        at = hands.timer.now();
        answer = ask(hands, within, "reading", question(hands.clone())).await;
    }
    match answer {
        Ok(value) => Evidence::seen(source, at, value),
        Err(reason) => Evidence::unknown(source, at, reason),
    }
}

/// Reads everything that a plan needs to know, all at once.
pub(super) async fn look(
    hands: &Hands,
    keeper: &mut Keeper,
    plan: &BondFlipPlan,
    state: &PlanState,
) -> Observed {
    let within = plan.pace.evidence_max_age / 4;
    let lock = async {
        let lock: Evidence<LockRecords> =
            read(hands, within, Source::Cluster, |hands| async move { hands.lock.read().await }).await;
        (lock, hands.timer.now())
    };
    let vms = read(hands, within, Source::Cluster, |hands| {
        let resources = plan.resources.clone();
        async move { hands.vms.picture(&resources).await }
    });
    let [first, second] = &plan.nodes;
    let ((lock, answered), vms, one, two) =
        tokio::join!(lock, vms, node(hands, plan, state, first), node(hands, plan, state, second));
    let takeover = keeper.look(&lock, answered);
    let mut observed = Observed::nothing(keeper.me.clone(), takeover);
    observed.lock = Some(lock);
    observed.vms = Some(vms);
    for part in [one, two] {
        observed.hosts.extend(part.hosts);
        observed.bonds.extend(part.bonds);
        observed.storage.extend(part.storage);
        observed.satellites.extend(part.satellites);
    }
    observed
}

/// One host's part.
async fn node(hands: &Hands, plan: &BondFlipPlan, state: &PlanState, node: &HostName) -> Part {
    let within = plan.pace.evidence_max_age / 4;
    let source = || Source::Host(node.clone());
    let host = read(hands, within, source(), |hands| {
        let node = node.clone();
        async move { hands.probe.host(&node).await }
    });
    let bond = read(hands, within, source(), |hands| {
        let (node, bond) = (node.clone(), plan.bond.clone());
        async move { hands.probe.bond(&node, &bond).await }
    });
    let storage = read(hands, within, source(), |hands| {
        let (node, resources, since) = (node.clone(), plan.resources.clone(), state.created_at);
        async move { hands.storage.storage(&node, &resources, since).await }
    });
    let satellite = read(hands, within, source(), |hands| {
        let node = node.clone();
        async move { hands.storage.satellite(&node).await }
    });
    let (host, bond, storage, satellite) = tokio::join!(host, bond, storage, satellite);
    Part {
        hosts: [(node.clone(), host)],
        bonds: [(node.clone(), bond)],
        storage: [(node.clone(), storage)],
        satellites: [(node.clone(), satellite)],
    }
}

/// What one host was read to be.
struct Part {
    hosts: [(HostName, Evidence<executor_api::host::HostFacts>); 1],
    bonds: [(HostName, Evidence<executor_api::host::BondReading>); 1],
    storage: [(HostName, Evidence<executor_api::host::StorageReading>); 1],
    satellites: [(HostName, Evidence<executor_api::host::SatelliteReading>); 1],
}
