//! Behaviour of host operations: what a success promises, and that every call ends.

use std::sync::Arc;
use std::time::Duration;

use executor_api::host::{
    BondMode, BondReading, ConnectionState, HostAction, HostErrorKind, SatelliteReading,
};

use crate::case::{CaseResult, ensure};
use crate::hosts::bench::HostBench;
use crate::hosts::harness::HostTrouble;

pub(crate) async fn success_means_that_it_is_over(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    b.act(&lease, &one, HostAction::DrainSatellite).await?;
    ensure!(b.is_drained(&one).await, "a drain was reported done, and {one} is not drained");
    let disconnect = b.disconnect(&one);
    b.act(&lease, &one, disconnect).await?;
    let state = b.true_connection(&one).await;
    ensure!(state == "StandAlone", "a disconnect was reported done, and the connection is {state}");
    Ok(())
}

pub(crate) async fn a_flip_brings_everything_into_the_new_mode(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    b.quiet(&lease).await?;
    let one = b.one().clone();
    let before = b.true_bond(&one).await?;
    let flip = b.set_bond(&one, BondMode::BalanceRr).await?;
    b.act(&lease, &one, flip).await?;
    let after = b.true_bond(&one).await?;
    ensure!(after.mode == BondMode::BalanceRr, "the flip was reported done, and the mode is {}", after.mode);
    ensure!(after.members.keys().eq(before.members.keys()), "members are {:?} after the flip", after.members);
    ensure!(after.up == Some(true), "the bond is not up after the flip");
    let next = after.persisted.as_ref().map(|persisted| persisted.mode.clone());
    ensure!(next == Some(BondMode::BalanceRr), "the configuration says {next:?} after the flip");
    same_address(&before, &after)
}

pub(crate) async fn a_flip_back_puts_the_original_back(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    b.quiet(&lease).await?;
    let one = b.one().clone();
    let before = b.true_bond(&one).await?;
    for mode in [BondMode::BalanceRr, BondMode::ActiveBackup] {
        let flip = b.set_bond(&one, mode).await?;
        b.act(&lease, &one, flip).await?;
    }
    let after = b.true_bond(&one).await?;
    ensure!(after.mode == before.mode, "the mode is {} after the way back", after.mode);
    ensure!(
        after.members.keys().eq(before.members.keys()),
        "members are {:?} after the way back",
        after.members
    );
    ensure!(
        after.persisted == before.persisted,
        "the configuration is not what it was: {:?}",
        after.persisted
    );
    same_address(&before, &after)
}

pub(crate) async fn a_disconnected_resource_stays_apart(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    b.apart(&lease).await?;
    b.pass(Duration::from_secs(30)).await;
    for node in &b.site().nodes {
        let state = b.true_connection(node).await;
        ensure!(state == "StandAlone", "{node} was taken down and is {state} by itself");
    }
    Ok(())
}

pub(crate) async fn a_connected_resource_catches_up(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    b.apart(&lease).await?;
    b.pass(Duration::from_secs(5)).await;
    for node in &b.site().nodes {
        b.act(&lease, node, b.connect(&lease, node)).await?;
    }
    let (resource, nodes) = (b.site().resource.clone(), b.site().nodes.clone());
    b.until("both sides are connected and in sync", |truth| {
        nodes.iter().all(|node| {
            let found = truth.storage.get(node).and_then(|storage| storage.resources.get(&resource));
            found.is_some_and(|resource| {
                !resource.connections.is_empty()
                    && resource.connections.values().all(|connection| {
                        connection.state == ConnectionState::Connected
                            && connection.volumes.values().all(|volume| volume.out_of_sync_kib == Some(0))
                    })
            })
        })
    })
    .await
}

pub(crate) async fn a_drain_keeps_pods_away(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    b.act(&lease, &one, HostAction::DrainSatellite).await?;
    b.pass(Duration::from_mins(1)).await;
    ensure!(b.is_drained(&one).await, "{one} was drained, and storage pods came back by themselves");
    Ok(())
}

pub(crate) async fn an_undrain_lets_pods_back(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    b.act(&lease, &one, HostAction::DrainSatellite).await?;
    b.act(&lease, &one, b.undrain(&lease)).await?;
    b.until("storage pods run again", |truth| {
        truth.satellites.get(&one).is_some_and(SatelliteReading::is_serving)
    })
    .await
}

pub(crate) async fn suspended_io_stands_and_resumed_io_goes_on(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let (one, resource) = (b.one().clone(), b.site().resource.clone());
    let limit = Duration::from_mins(10);
    b.act(&lease, &one, HostAction::SuspendIo { resource: resource.clone(), limit }).await?;
    ensure!(suspended(&b).await == Some(true), "I/O was reported suspended and is not");
    b.act(&lease, &one, HostAction::ResumeIo { resource }).await?;
    ensure!(suspended(&b).await == Some(false), "I/O was reported resumed and still stands");
    Ok(())
}

pub(crate) async fn a_probe_counts_every_packet(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    let found = b.probed(&lease, &one, 100).await?;
    ensure!(
        (found.sent, found.received, found.frame_bytes) == (100, 100, 1514),
        "over a sound link, of 100 packets of 1514 bytes the probe counts {} sent, {} received of {} bytes",
        found.sent,
        found.received,
        found.frame_bytes
    );
    ensure!(found.from == one && found.to == *b.two(), "the probe went from {} to {}", found.from, found.to);
    let moved = |counters: u64| counters >= 100;
    ensure!(moved(found.sender.values().map(|c| c.tx).sum()), "the sender's counters did not move");
    ensure!(moved(found.receiver.values().map(|c| c.rx).sum()), "the receiver's counters did not move");
    Ok(())
}

pub(crate) async fn a_probe_tells_of_a_link_that_loses(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    b.inject(HostTrouble::LosePackets).await?;
    let found = b.probed(&lease, &b.one().clone(), 100).await?;
    ensure!(found.sent == 100, "the probe sent {} packets, not 100", found.sent);
    ensure!(found.received < 100, "every fifth packet is lost, and the probe counts {}", found.received);
    Ok(())
}

pub(crate) async fn a_call_ends_by_its_deadline(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let op = b.op(&lease, b.one(), HostAction::DrainSatellite);
    b.inject(HostTrouble::LoseRequest(op.clone())).await?;
    // How it ends is not promised, except that it is no success.
    ensure!(b.apply(&op).await?.is_err(), "an operation that never arrived was reported done");
    Ok(())
}

pub(crate) async fn what_comes_after_its_deadline_does_nothing(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    let op = b.op(&lease, &one, HostAction::DrainSatellite);
    let error = b.apply_late(&op).await?;
    ensure!(error.kind == HostErrorKind::Refused, "it was not refused: {error}");
    ensure!(!b.is_drained(&one).await, "it was refused, and {one} is drained");
    Ok(())
}

pub(crate) async fn an_agent_that_died_in_the_middle_reports_no_success(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    b.quiet(&lease).await?;
    let one = b.one().clone();
    let flip = b.set_bond(&one, BondMode::BalanceRr).await?;
    let op = b.op(&lease, &one, flip);
    b.inject(HostTrouble::KillAgentDuring(op.clone())).await?;
    ensure!(b.apply(&op).await?.is_err(), "the agent died in the middle, and the flip was reported done");
    b.until_agent(&lease, &one).await?;
    let whole = b.true_bond(&one).await?.mode == BondMode::BalanceRr;
    let again = b.apply(&op).await?;
    ensure!(
        again.is_err() || whole,
        "a flip that was never finished is reported done after the agent came back"
    );
    Ok(())
}

async fn suspended(b: &HostBench) -> Option<bool> {
    let truth = b.truth().await;
    truth.storage.get(b.one())?.resources.get(&b.site().resource)?.suspended.user
}

fn same_address(before: &BondReading, after: &BondReading) -> CaseResult {
    ensure!(after.mac == before.mac, "the hardware address is {:?} and was {:?}", after.mac, before.mac);
    ensure!(after.mtu == before.mtu, "the largest frame is {:?} and was {:?}", after.mtu, before.mtu);
    ensure!(after.addresses == before.addresses, "addresses are {:?} now", after.addresses);
    ensure!(after.routes == before.routes, "routes are {:?} now and were {:?}", after.routes, before.routes);
    Ok(())
}
