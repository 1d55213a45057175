//! Reads of hosts: from the kernel and the configuration, now; never from a cache and never from what was asked for.

use std::sync::Arc;

use executor_api::host::{BondMode, InterfaceName, MemberState, MiiStatus};

use crate::case::{CaseEnd, CaseResult, ensure};
use crate::hosts::bench::HostBench;
use crate::hosts::harness::HostTrouble;

pub(crate) async fn a_bond_is_read_as_it_is_not_as_it_was_asked_for(b: Arc<HostBench>) -> CaseResult {
    let lease = b.lead().await?;
    b.quiet(&lease).await?;
    let one = b.one().clone();
    let flip = b.set_bond(&one, BondMode::BalanceRr).await?;
    b.act(&lease, &one, flip).await?;
    let read = b.bond(&one).await?;
    ensure!(
        (&read.mode, read.mode_number) == (&BondMode::BalanceRr, Some(0)),
        "after a flip the bond reads as {} {:?}",
        read.mode,
        read.mode_number
    );
    b.inject(HostTrouble::SetBond(one.clone(), BondMode::ActiveBackup)).await?;
    b.until("the bond was brought back", |truth| {
        truth.bonds.get(&one).is_some_and(|bond| bond.mode == BondMode::ActiveBackup && bond.up == Some(true))
    })
    .await?;
    let read = b.bond(&one).await?;
    ensure!(
        (&read.mode, read.mode_number) == (&BondMode::ActiveBackup, Some(1)),
        "somebody brought the bond back, and it reads as {} {:?}",
        read.mode,
        read.mode_number
    );
    Ok(())
}

pub(crate) async fn the_next_boot_is_read_from_the_configuration(b: Arc<HostBench>) -> CaseResult {
    let one = b.one().clone();
    b.bond(&one).await?;
    b.inject(HostTrouble::SetConfiguration(one.clone(), BondMode::BalanceRr)).await?;
    let read = b.bond(&one).await?;
    let next = read.persisted.map(|persisted| persisted.mode);
    ensure!(next == Some(BondMode::BalanceRr), "the configuration was rewritten, and reads as {next:?}");
    ensure!(
        read.mode == BondMode::ActiveBackup,
        "only the configuration was rewritten; the mode is {}",
        read.mode
    );
    Ok(())
}

pub(crate) async fn a_member_without_carrier_shows(b: Arc<HostBench>) -> CaseResult {
    let (one, member) = (b.one().clone(), last_member(&b).await?);
    b.inject(HostTrouble::LoseCarrier(one.clone(), member.clone())).await?;
    let read = b.bond(&one).await?;
    let mii = read.members.get(&member).map(|member| member.mii.clone());
    ensure!(mii.is_none() || mii != Some(MiiStatus::Up), "{member} lost carrier and reads as {mii:?}");
    Ok(())
}

pub(crate) async fn a_member_that_left_is_not_shown(b: Arc<HostBench>) -> CaseResult {
    let (one, member) = (b.one().clone(), last_member(&b).await?);
    ensure!(b.bond(&one).await?.members.contains_key(&member), "{member} is not shown");
    b.inject(HostTrouble::DropMember(one.clone(), member.clone())).await?;
    ensure!(!b.bond(&one).await?.members.contains_key(&member), "{member} left and is still shown");
    Ok(())
}

pub(crate) async fn routes_that_are_gone_are_not_shown(b: Arc<HostBench>) -> CaseResult {
    let one = b.one().clone();
    let routes = b.bond(&one).await?.routes;
    ensure!(routes == b.true_bond(&one).await?.routes, "routes are read as {routes:?}");
    b.inject(HostTrouble::DropRoutes(one.clone())).await?;
    let routes = b.bond(&one).await?.routes;
    ensure!(routes.is_empty(), "routes that are gone are read: {routes:?}");
    Ok(())
}

pub(crate) async fn a_list_of_members_cut_short_says_so(b: Arc<HostBench>) -> CaseResult {
    let one = b.one().clone();
    ensure!(b.bond(&one).await?.members_complete, "a whole list of members is said to be cut short");
    b.inject(HostTrouble::CutMembers(one.clone())).await?;
    if let Ok(read) = b.try_bond(&one).await? {
        ensure!(!read.members_complete, "a list of members that was cut short is said to be whole");
    }
    Ok(())
}

pub(crate) async fn a_state_that_nobody_knows_is_kept_as_it_was_read(b: Arc<HostBench>) -> CaseResult {
    let one = b.one().clone();
    b.inject(HostTrouble::GarbleBond(one.clone())).await?;
    if let Ok(read) = b.try_bond(&one).await? {
        let unknown = |state: &MemberState| matches!(state, MemberState::Unknown(_));
        let kept = read.members.values().any(|member| unknown(&member.state));
        ensure!(kept, "a state that nobody knows was read as one that is known: {:?}", read.members);
    }
    Ok(())
}

pub(crate) async fn a_configuration_that_cannot_be_read_is_not_made_up(b: Arc<HostBench>) -> CaseResult {
    let one = b.one().clone();
    b.inject(HostTrouble::HideConfiguration(one.clone())).await?;
    if let Ok(read) = b.try_bond(&one).await? {
        ensure!(read.persisted.is_none(), "a configuration nobody can read is told: {:?}", read.persisted);
    }
    Ok(())
}

pub(crate) async fn a_boot_shows(b: Arc<HostBench>) -> CaseResult {
    let one = b.one().clone();
    let before = b.bond(&one).await?.boot_id;
    ensure!(before == b.bond(&one).await?.boot_id, "the mark of a boot changes without one");
    b.inject(HostTrouble::Reboot(one.clone())).await?;
    for _ in 0..150 {
        if let Ok(read) = b.try_bond(&one).await? {
            ensure!(read.boot_id != before, "the host was booted, and nothing in the reading shows it");
            return Ok(());
        }
        b.pass(std::time::Duration::from_secs(2)).await;
    }
    Err(CaseEnd::Failed("the bond cannot be read after a boot".to_owned()))
}

pub(crate) async fn what_cannot_be_read_is_an_error(b: Arc<HostBench>) -> CaseResult {
    let one = b.one().clone();
    b.bond(&one).await?;
    b.inject(HostTrouble::FailReads(one.clone())).await?;
    let bond = b.try_bond(&one).await?;
    ensure!(bond.is_err(), "a bond that cannot be read is told: {bond:?}");
    if let Ok(facts) = b.hands().probe.host(&one).await {
        ensure!(facts.live != Some(true), "a host that does not answer is told to be live: {facts:?}");
    }
    Ok(())
}

/// The member that was put in last.
async fn last_member(b: &HostBench) -> Result<InterfaceName, CaseEnd> {
    let bond = b.true_bond(b.one()).await?;
    let last = bond.members.keys().next_back().cloned();
    last.ok_or_else(|| CaseEnd::Failed("the site's bond has no members".to_owned()))
}
