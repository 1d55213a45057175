//! Exactness: a pin holds the machine that runs, a restore leaves what was there before, and no pod is lost over it.

use std::sync::Arc;
use std::time::Duration;

use executor_api::host::{EvictionSetting, MigrationReading, VmAction, VmName};

use crate::case::{CaseEnd, CaseResult, ensure};
use crate::hosts::bench::{HostBench, has, running};
use crate::hosts::harness::HostTrouble;

pub(crate) async fn a_pin_reaches_the_running_machine_and_raises_the_shield(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    for vm in machines(&b) {
        b.vm_act(&lease, &vm, VmAction::Pin).await?;
        let real = b.true_machine(&vm).await?;
        ensure!(
            real.declared == EvictionSetting::PINNED,
            "a pin was reported done; {} is declared",
            real.declared
        );
        ensure!(
            has(&real, &EvictionSetting::PINNED),
            "a pin was reported done, and the running machine has {:?}",
            real.running
        );
        ensure!(real.shield.is_up(), "a pin was reported done, and the shield is {:?}", real.shield);
    }
    Ok(())
}

pub(crate) async fn a_pinned_machine_is_neither_evicted_nor_moved(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let vm = b.site().set.clone();
    b.vm_act(&lease, &vm, VmAction::Pin).await?;
    let before = b.true_machine(&vm).await?;
    b.inject(HostTrouble::Evict(vm.clone())).await?;
    b.inject(HostTrouble::Migrate(vm.clone(), b.two().clone())).await?;
    b.pass(Duration::from_mins(1)).await;
    let after = b.true_machine(&vm).await?;
    ensure!(running(&after)? == running(&before)?, "a pinned machine was moved: {:?}", after.running);
    Ok(())
}

pub(crate) async fn a_setting_is_given_back_as_it_was(b: Arc<HostBench>) -> CaseResult {
    given_back(&b, &b.site().set.clone()).await
}

pub(crate) async fn a_setting_that_was_left_out_is_left_out_again(b: Arc<HostBench>) -> CaseResult {
    given_back(&b, &b.site().unset.clone()).await
}

pub(crate) async fn a_restore_lowers_the_shield(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let vm = b.site().set.clone();
    let original = b.true_machine(&vm).await?.declared;
    b.vm_act(&lease, &vm, VmAction::Pin).await?;
    b.vm_act(&lease, &vm, VmAction::Restore { original }).await?;
    let shield = b.true_machine(&vm).await?.shield;
    ensure!(shield.is_down(), "the setting was given back, and the shield is {shield:?}");
    Ok(())
}

pub(crate) async fn an_abort_ends_the_migration(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let vm = b.site().set.clone();
    b.inject(HostTrouble::Migrate(vm.clone(), b.two().clone())).await?;
    let picture = b.picture().await?;
    let migration =
        picture.unfinished().find(|(_, migration)| migration.vm == vm).map(|(name, _)| name.clone());
    let migration = migration.ok_or_else(|| CaseEnd::Failed("the migration does not show".to_owned()))?;
    b.vm_act(&lease, &vm, VmAction::AbortMigration { migration: migration.clone() }).await?;
    b.until("the migration is over", |truth| {
        truth.machines.migrations.get(&migration).is_none_or(MigrationReading::is_over)
    })
    .await?;
    let real = b.true_machine(&vm).await?;
    ensure!(running(&real)?.node == *b.one(), "an aborted migration moved {vm} to {}", running(&real)?.node);
    Ok(())
}

pub(crate) async fn no_pod_is_replaced_by_pinning_and_restoring(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    for vm in machines(&b) {
        let before = b.true_machine(&vm).await?;
        b.vm_act(&lease, &vm, VmAction::Pin).await?;
        b.vm_act(&lease, &vm, VmAction::Restore { original: before.declared.clone() }).await?;
        b.pass(Duration::from_secs(30)).await;
        let after = b.true_machine(&vm).await?;
        let (before, after) = (running(&before)?, running(&after)?);
        ensure!(
            after.pod_uid == before.pod_uid,
            "the pod of {vm} is {} and was {}",
            after.pod_uid,
            before.pod_uid
        );
    }
    Ok(())
}

pub(crate) async fn a_pin_touches_one_machine(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    let before = b.true_machine(&b.site().unset).await?;
    b.vm_act(&lease, &b.site().set, VmAction::Pin).await?;
    let after = b.true_machine(&b.site().unset).await?;
    ensure!(after == before, "a pin of {} changed {}", b.site().set, b.site().unset);
    Ok(())
}

async fn given_back(b: &HostBench, vm: &VmName) -> CaseResult {
    let lease = b.lead().await?;
    let original = b.true_machine(vm).await?.declared;
    b.vm_act(&lease, vm, VmAction::Pin).await?;
    b.vm_act(&lease, vm, VmAction::Restore { original: original.clone() }).await?;
    let real = b.true_machine(vm).await?;
    ensure!(real.declared == original, "{vm} had {original} and was given back {}", real.declared);
    ensure!(has(&real, &original), "{vm} had {original}, and what runs has {:?}", real.running);
    Ok(())
}

fn machines(b: &HostBench) -> [VmName; 2] {
    [b.site().set.clone(), b.site().unset.clone()]
}
