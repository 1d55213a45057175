//! Bounds: no operation does more than its action says, and what is bounded in time ends.

use std::sync::Arc;
use std::time::Duration;

use executor_api::host::{
    BondMode, ConnectionState, FenceValue, GateToken, HostAction, HostErrorKind, ResourceReading,
};

use crate::case::{CaseResult, ensure};
use crate::hosts::bench::{HostBench, running};
use crate::hosts::harness::{HostTrouble, HostTruth};

pub(crate) async fn a_suspension_ends_by_itself(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let (one, resource) = (b.one().clone(), b.site().resource.clone());
    let limit = Duration::from_secs(30);
    b.act(&lease, &one, HostAction::SuspendIo { resource: resource.clone(), limit }).await?;
    let suspended = |truth: &HostTruth| {
        let found = truth.storage.get(&one).and_then(|storage| storage.resources.get(&resource));
        found.and_then(|resource: &ResourceReading| resource.suspended.user)
    };
    ensure!(suspended(&b.truth().await) == Some(true), "I/O was reported suspended and is not");
    b.pass(limit + Duration::from_secs(2)).await;
    ensure!(suspended(&b.truth().await) == Some(false), "a suspension for {limit:?} does not end by itself");
    Ok(())
}

pub(crate) async fn a_drain_touches_no_machine(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let before = b.truth().await.machines;
    for node in &b.site().nodes {
        b.act(&lease, node, HostAction::DrainSatellite).await?;
    }
    b.pass(Duration::from_secs(30)).await;
    let after = b.truth().await.machines;
    ensure!(after == before, "a drain of storage pods changed machines: {:?}", after.vms);
    Ok(())
}

pub(crate) async fn a_drain_touches_one_host(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    b.act(&lease, b.one(), HostAction::DrainSatellite).await?;
    ensure!(!b.is_drained(b.two()).await, "a drain of {} drained {} too", b.one(), b.two());
    Ok(())
}

pub(crate) async fn a_flip_touches_one_host(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    b.quiet(&lease).await?;
    let (one, two) = (b.one().clone(), b.two().clone());
    let before = b.true_bond(&two).await?;
    let flip = b.set_bond(&one, BondMode::BalanceRr).await?;
    b.act(&lease, &one, flip).await?;
    let after = b.true_bond(&two).await?;
    ensure!(after.mode == before.mode, "a flip on {one} left {two} in {}", after.mode);
    ensure!(after.persisted == before.persisted, "a flip on {one} rewrote the configuration of {two}");
    Ok(())
}

pub(crate) async fn a_disconnect_touches_one_resource(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    b.apart(&lease).await?;
    b.pass(Duration::from_secs(5)).await;
    let truth = b.truth().await;
    let other = truth.storage.get(b.one()).and_then(|storage| storage.resources.get(&b.site().other));
    let connected = other.is_some_and(|resource| {
        !resource.connections.is_empty()
            && resource.connections.values().all(|connection| connection.state == ConnectionState::Connected)
    });
    ensure!(connected, "taking {} down took {} down too", b.site().resource, b.site().other);
    Ok(())
}

pub(crate) async fn a_probe_changes_nothing(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let before = b.truth().await;
    for node in &b.site().nodes {
        b.probed(&lease, node, 50).await?;
    }
    let after = b.truth().await;
    ensure!(after.bonds == before.bonds, "a probe changed a bond");
    ensure!(after.satellites == before.satellites, "a probe changed storage pods");
    ensure!(after.machines == before.machines, "a probe changed machines");
    Ok(())
}

pub(crate) async fn a_connect_discards_nothing(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    b.apart(&lease).await?;
    b.pass(Duration::from_secs(5)).await;
    b.inject(HostTrouble::Diverge(b.two().clone())).await?;
    let identifiers = |truth: &HostTruth| {
        let of = |node| {
            let resource = truth.storage.get(node)?.resources.get(&b.site().resource)?;
            let connection = resource.connections.get(&b.peer(node))?;
            let generation = connection.volumes.values().next()?.generation.clone()?;
            Some(generation.current.masked())
        };
        (of(b.one()), of(b.two()))
    };
    for node in &b.site().nodes {
        // Whether it is refused or tried is left open; what matters is the data.
        let _ = b.apply(&b.op(&lease, node, b.connect(&lease, node))).await?;
    }
    b.pass(Duration::from_secs(30)).await;
    let (one, two) = identifiers(&b.truth().await);
    ensure!(one.is_some() && two.is_some(), "the identifiers of the copies cannot be told");
    ensure!(one != two, "two copies that had diverged are one after a connect: one side was discarded");
    running(&b.true_machine(&b.site().set).await?)?;
    Ok(())
}

pub(crate) async fn gates_of_another_lease_are_refused(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    b.act(&lease, &one, HostAction::DrainSatellite).await?;
    let gates = GateToken { fence: FenceValue(lease.fence.0.saturating_add(7)), ..b.gates(&lease) };
    let kind = b.refused(&b.op(&lease, &one, HostAction::UndrainSatellite { gates })).await?;
    ensure!(kind == HostErrorKind::Refused, "gates of another lease were told as {kind}");
    ensure!(b.is_drained(&one).await, "gates of another lease let storage pods back");
    Ok(())
}
