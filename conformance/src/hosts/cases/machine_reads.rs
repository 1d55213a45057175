//! Reads of machines: what runs apart from what is declared, every migration, nothing from a cache.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use executor_api::host::{EvictionSetting, EvictionStrategy, MigrationReading, VmAction};

use crate::case::{CaseEnd, CaseResult, ensure};
use crate::hosts::bench::{HostBench, has, running};
use crate::hosts::harness::HostTrouble;

pub(crate) async fn what_runs_is_read_apart_from_what_is_declared(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let vm = b.site().set.clone();
    b.vm_act(&lease, &vm, VmAction::Pin).await?;
    let other = EvictionSetting::Set(EvictionStrategy::LiveMigrate);
    b.inject(HostTrouble::ChangeEffective(vm.clone(), other.clone())).await?;
    let read = b.machine(&vm).await?;
    ensure!(read.declared == EvictionSetting::PINNED, "the declared setting reads as {}", read.declared);
    ensure!(has(&read, &other), "what runs has {other}, and reads as {:?}", read.running);
    Ok(())
}

pub(crate) async fn left_out_is_not_none(b: Arc<HostBench>) -> CaseResult {
    let read = b.machine(&b.site().unset).await?.declared;
    ensure!(read == EvictionSetting::Unset, "a setting that is left out reads as {read}");
    let read = b.machine(&b.site().set).await?.declared;
    ensure!(read == EvictionSetting::Set(EvictionStrategy::LiveMigrate), "LiveMigrate reads as {read}");
    Ok(())
}

pub(crate) async fn a_migration_shows_whoever_asked_for_it(b: Arc<HostBench>) -> CaseResult {
    b.picture().await?;
    let vm = b.site().set.clone();
    b.inject(HostTrouble::Migrate(vm.clone(), b.two().clone())).await?;
    let picture = b.picture().await?;
    let shown = picture.unfinished().any(|(_, migration)| migration.vm == vm);
    ensure!(shown, "a migration of {vm} is under way and does not show");
    Ok(())
}

pub(crate) async fn an_abort_that_lost_the_race_shows_the_machine_where_it_is(
    b: Arc<HostBench>,
) -> CaseResult {
    let lease = b.lead().await?;
    let (vm, two) = (b.site().set.clone(), b.two().clone());
    b.inject(HostTrouble::MigrateStubbornly(vm.clone(), two.clone())).await?;
    let picture = b.picture().await?;
    let migration =
        picture.unfinished().find(|(_, migration)| migration.vm == vm).map(|(name, _)| name.clone());
    let migration = migration.ok_or_else(|| CaseEnd::Failed("the migration does not show".to_owned()))?;
    b.vm_act(&lease, &vm, VmAction::AbortMigration { migration: migration.clone() }).await?;
    b.until("the machine is on the other host", |truth| {
        let there = truth.machines.vms.get(&vm).and_then(|vm| vm.running.as_ref());
        there.is_some_and(|running| running.node == two)
    })
    .await?;
    let read = b.machine(&vm).await?;
    ensure!(running(&read)?.node == two, "{vm} runs on {two} and reads as on {}", running(&read)?.node);
    let over = b.picture().await?.migrations.get(&migration).is_none_or(MigrationReading::is_over);
    ensure!(over, "a migration that succeeded reads as under way");
    Ok(())
}

pub(crate) async fn a_mark_for_evacuation_shows(b: Arc<HostBench>) -> CaseResult {
    let vm = b.site().set.clone();
    b.inject(HostTrouble::MarkForEvacuation(vm.clone())).await?;
    let read = b.machine(&vm).await?;
    let mark = running(&read)?.evacuating_from.clone();
    ensure!(
        mark.as_ref() == Some(b.one()),
        "{vm} is marked to leave {}, and the mark reads as {mark:?}",
        b.one()
    );
    Ok(())
}

pub(crate) async fn machines_of_other_resources_are_left_out(b: Arc<HostBench>) -> CaseResult {
    b.inject(HostTrouble::Migrate(b.site().set.clone(), b.two().clone())).await?;
    let picture = b.picture_of(&BTreeSet::from([b.site().other.clone()])).await?;
    let names: Vec<_> = picture.vms.keys().collect();
    ensure!(names == [&b.site().unset], "asked for machines on {}, shown {names:?}", b.site().other);
    ensure!(picture.migrations.is_empty(), "migrations of other machines are shown");
    Ok(())
}

pub(crate) async fn a_lowered_shield_shows(b: Arc<HostBench>) -> CaseResult {
    let vm = b.site().set.clone();
    let read = b.machine(&vm).await?;
    ensure!(read.shield.is_down(), "no shield was raised, and it reads as {:?}", read.shield);
    let lease = b.lead().await?;
    b.vm_act(&lease, &vm, VmAction::Pin).await?;
    let read = b.machine(&vm).await?;
    ensure!(read.shield.is_up(), "the shield was raised and reads as {:?}", read.shield);
    Ok(())
}

pub(crate) async fn what_cannot_be_read_is_an_error(b: Arc<HostBench>) -> CaseResult {
    let both = b.both();
    b.picture().await?;
    b.inject(HostTrouble::FailMachines).await?;
    let within = Duration::from_mins(1);
    let told = tokio::time::timeout(within, b.hands().vms.picture(&both)).await;
    let told = told.map_err(|_| CaseEnd::Failed("a read does not end".to_owned()))?;
    ensure!(told.is_err(), "machines that cannot be read are told: {told:?}");
    Ok(())
}
