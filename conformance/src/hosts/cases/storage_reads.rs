//! Reads of storage: each host's own view, with nothing filled in that was not reported.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use executor_api::host::{ConnectionState, DiskState, HostAction};

use crate::case::{CaseResult, ensure};
use crate::hosts::bench::HostBench;
use crate::hosts::harness::HostTrouble;

pub(crate) async fn each_host_tells_its_own_view(b: Arc<HostBench>) -> CaseResult {
    let (one, two) = (b.one().clone(), b.two().clone());
    for marked in [&two, &one] {
        b.inject(HostTrouble::MarkBlocks(marked.clone())).await?;
        let lacking = b.peer_volume(marked).await?.out_of_sync_kib;
        ensure!(
            lacking.is_some_and(|kib| kib > 0),
            "{marked} counts blocks its peer lacks and tells {lacking:?}"
        );
        if *marked == two {
            let other = b.peer_volume(&one).await?.out_of_sync_kib;
            ensure!(other == Some(0), "{one} counts nothing and tells {other:?}, what its peer counts");
        }
    }
    Ok(())
}

pub(crate) async fn a_counter_that_is_not_reported_is_absent(b: Arc<HostBench>) -> CaseResult {
    b.inject(HostTrouble::HideCounters(b.one().clone())).await?;
    let volume = b.peer_volume(b.one()).await?;
    let told = [volume.out_of_sync_kib, volume.pending, volume.unacked];
    ensure!(told == [None; 3], "counters that were not reported are told as {told:?}");
    Ok(())
}

pub(crate) async fn identifiers_that_are_not_reported_are_absent(b: Arc<HostBench>) -> CaseResult {
    ensure!(b.peer_volume(b.one()).await?.generation.is_some(), "identifiers are not told");
    b.inject(HostTrouble::HideIdentifiers(b.one().clone())).await?;
    let told = b.peer_volume(b.one()).await?.generation;
    ensure!(told.is_none(), "identifiers that were not reported are told as {told:?}");
    Ok(())
}

pub(crate) async fn events_that_cannot_be_told_are_unknown(b: Arc<HostBench>) -> CaseResult {
    b.inject(HostTrouble::HideEvents(b.one().clone())).await?;
    let told = b.storage(b.one()).await?.split_brain_seen;
    ensure!(told.is_none(), "whether there was a split brain cannot be told, and is told as {told:?}");
    let told = b.peer_volume(b.one()).await?.resyncs_finished;
    ensure!(told.is_none(), "finished resyncs cannot be told, and are told as {told:?}");
    Ok(())
}

pub(crate) async fn status_that_changed_meanwhile_is_not_stable(b: Arc<HostBench>) -> CaseResult {
    ensure!(b.storage(b.one()).await?.stable, "status that stands still is said to have changed");
    b.inject(HostTrouble::TearStatus(b.one().clone())).await?;
    ensure!(!b.storage(b.one()).await?.stable, "status that changed while it was read is said to be stable");
    Ok(())
}

pub(crate) async fn a_word_that_nobody_knows_is_kept_as_it_was_read(b: Arc<HostBench>) -> CaseResult {
    b.inject(HostTrouble::GarbleStorage(b.one().clone())).await?;
    let read = b.resource(b.one()).await?;
    let states = read.connections.values().map(|connection| &connection.state);
    let disks = read.volumes.values().map(|volume| &volume.disk);
    let known = states.filter(|state| !matches!(state, ConnectionState::Unknown(_))).count()
        + disks.filter(|disk| !matches!(disk, DiskState::Unknown(_))).count();
    ensure!(known == 0, "words that nobody knows were read as ones that are known");
    Ok(())
}

pub(crate) async fn a_split_brain_that_was_announced_is_told(b: Arc<HostBench>) -> CaseResult {
    let seen = b.storage(b.one()).await?.split_brain_seen;
    ensure!(seen == Some(BTreeSet::new()), "no split brain was announced, and {seen:?} is told");
    b.inject(HostTrouble::AnnounceSplitBrain(b.one().clone())).await?;
    b.pass(Duration::from_mins(1)).await;
    let seen = b.storage(b.one()).await?.split_brain_seen;
    let told = seen.as_ref().is_some_and(|seen| seen.contains(&b.site().resource));
    ensure!(told, "a split brain was announced a minute ago, and {seen:?} is told");
    Ok(())
}

pub(crate) async fn only_what_was_asked_for_is_shown(b: Arc<HostBench>) -> CaseResult {
    let asked = BTreeSet::from([b.site().other.clone()]);
    let shown = b.storage_of(b.one(), &asked).await?.resources;
    ensure!(shown.keys().eq(asked.iter()), "asked for {asked:?}, shown {:?}", shown.keys());
    Ok(())
}

pub(crate) async fn a_connection_is_read_as_it_is_not_as_it_was_asked_for(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let (one, two, resource) = (b.one().clone(), b.two().clone(), b.site().resource.clone());
    b.apart(&lease).await?;
    let state = |read: &executor_api::host::ResourceReading| {
        read.connections.get(&two).map(|connection| connection.state.clone())
    };
    let read = state(&b.resource(&one).await?);
    ensure!(read == Some(ConnectionState::StandAlone), "taken down, the connection reads as {read:?}");
    for node in [&one, &two] {
        b.inject(HostTrouble::ReturnPod(node.clone())).await?;
    }
    b.until("the pods have connected everything", |truth| {
        let found = truth.storage.get(&one).and_then(|storage| storage.resources.get(&resource));
        found.and_then(state) == Some(ConnectionState::Connected)
    })
    .await?;
    let read = state(&b.resource(&one).await?);
    ensure!(
        read == Some(ConnectionState::Connected),
        "connected behind everybody's back, it reads as {read:?}"
    );
    Ok(())
}

pub(crate) async fn a_pod_that_comes_back_shows(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    b.act(&lease, &one, HostAction::DrainSatellite).await?;
    ensure!(b.satellite(&one).await?.is_drained(), "{one} is drained and does not read so");
    b.inject(HostTrouble::ReturnPod(one.clone())).await?;
    b.until("the pod runs", |truth| truth.satellites.get(&one).is_some_and(|pods| !pods.is_drained()))
        .await?;
    ensure!(!b.satellite(&one).await?.is_drained(), "a pod came back to {one}, and it reads as drained");
    Ok(())
}

pub(crate) async fn a_list_of_pods_cut_short_is_not_empty(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let one = b.one().clone();
    b.act(&lease, &one, HostAction::DrainSatellite).await?;
    b.inject(HostTrouble::CutPods(one.clone())).await?;
    let read = b.satellite(&one).await?;
    ensure!(!read.is_drained(), "a list of pods that may lack some reads as {:?}", read.pods);
    Ok(())
}

pub(crate) async fn what_cannot_be_read_is_an_error(b: Arc<HostBench>) -> CaseResult {
    let one = b.one().clone();
    let both = b.both();
    b.storage(&one).await?;
    b.inject(HostTrouble::FailReads(one.clone())).await?;
    let since = b.hands().timer.now();
    let storage = b.hands().storage.storage(&one, &both, since).await;
    ensure!(storage.is_err(), "storage that cannot be read is told: {storage:?}");
    let pods = b.hands().storage.satellite(&one).await;
    ensure!(pods.is_err(), "storage pods that cannot be read are told: {pods:?}");
    Ok(())
}
