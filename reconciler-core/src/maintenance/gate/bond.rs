//! Is a bond as it must be, are both alike, did the probe pass. Equal modes alone are no proof: a bond that
//! lost a member has the right mode and loses every second packet.

use std::collections::{BTreeMap, BTreeSet};

use executor_api::host::{
    BondMode, BondOriginal, BondReading, HostName, InterfaceName, LinkProbe, MemberState, MiiStatus,
};

use crate::maintenance::gate::{Gathering, Look, Place};
use crate::maintenance::verdict::{Finding, FindingKind, Subject, Verdict};

/// Both bonds are sound in the mode that the plan starts from, and alike.
pub fn untouched(look: Look<'_>) -> Verdict {
    let mut gathering = Gathering::new(look);
    for node in &look.plan.nodes {
        let evidence = look.observed.bonds.get(node);
        if let Some(reading) = gathering.take_host(Subject::Bond, node, evidence) {
            gathering.extend(sound(node, reading, &look.plan.from));
        }
    }
    gathering.verdict("bond gate")
}

/// Each of these hosts' bonds is as it was last read back and found right.
pub fn as_verified<'n>(look: Look<'_>, nodes: impl IntoIterator<Item = &'n HostName>) -> Verdict {
    let mut gathering = Gathering::new(look);
    for node in nodes {
        let evidence = look.observed.bonds.get(node);
        let Some(reading) = gathering.take_host(Subject::Bond, node, evidence) else { continue };
        match look.state.verified_bonds.get(node) {
            Some(verified) if verified == reading => {}
            Some(verified) => {
                let what = format!("{node}: the bond changed ({})", difference(verified, reading));
                gathering.no(FindingKind::Negative, Subject::Bond, what);
            }
            None => {
                let what = format!("{node}: the bond was never recorded");
                gathering.no(FindingKind::Negative, Subject::Bond, what);
            }
        }
    }
    gathering.verdict("bond gate")
}

/// This host's bond is in the mode that the plan leads to, and kept everything else.
pub fn turned(look: Look<'_>, node: &HostName) -> Verdict {
    let mut gathering = Gathering::new(look);
    let evidence = look.observed.bonds.get(node);
    if let Some(reading) = gathering.take_host(Subject::Bond, node, evidence) {
        gathering.extend(reached(look, node, reading, &look.plan.to));
    }
    gathering.verdict("bond gate")
}

/// Both bonds are as verified, sound in this mode, and alike in everything that the link depends on.
pub fn symmetric(look: Look<'_>, mode: &BondMode) -> Verdict {
    let mut gathering = Gathering::new(look);
    let mut seen = Vec::new();
    for node in &look.plan.nodes {
        let evidence = look.observed.bonds.get(node);
        let Some(reading) = gathering.take_host(Subject::Bond, node, evidence) else { continue };
        gathering.extend(reached(look, node, reading, mode));
        if look.state.verified_bonds.get(node) != Some(reading) {
            let what = format!("{node}: the bond is not as it was verified");
            gathering.no(FindingKind::Negative, Subject::Bond, what);
        }
        seen.push(reading);
    }
    if let [one, two] = seen.as_slice()
        && (one.mode != two.mode || one.mtu != two.mtu || one.members.len() != two.members.len())
    {
        gathering.no(
            FindingKind::Negative,
            Subject::Bond,
            "the bonds differ in mode, MTU or number of members",
        );
    }
    gathering.verdict("symmetry gate")
}

/// The bond has reached this mode and kept everything else.
pub fn reached(look: Look<'_>, node: &HostName, reading: &BondReading, mode: &BondMode) -> Vec<Finding> {
    let mut findings = sound(node, reading, mode);
    if let Some(original) = look.state.bond_originals.get(node) {
        kept(node, reading, original, &mut findings);
    } else {
        let what = format!("{node}: what the bond was before is not recorded");
        findings.push(Finding::new(FindingKind::Negative, Subject::Bond, what));
    }
    findings
}

/// The bond is not as it was verified only in what a link that came and went leaves behind: how often it failed, and
/// which member carries. Otherwise it is the same, sound, and kept.
pub fn only_flapped(look: Look<'_>, node: &HostName, reading: &BondReading) -> bool {
    let still = |bond: &BondReading| {
        let mut bond = bond.clone();
        for member in bond.members.values_mut() {
            member.link_failures = None;
            member.state = MemberState::Active;
        }
        bond
    };
    look.state.verified_bonds.get(node).is_some_and(|verified| {
        verified != reading
            && still(verified) == still(reading)
            && reached(look, node, reading, &verified.mode).is_empty()
    })
}

/// How often each of its links has failed.
pub fn link_failures(reading: &BondReading) -> BTreeMap<InterfaceName, Option<u32>> {
    reading.members.iter().map(|(name, member)| (name.clone(), member.link_failures)).collect()
}

/// What the bond is before the plan, to return to. `None` when something of it was not reported.
pub fn original_of(reading: &BondReading) -> Option<BondOriginal> {
    let carrying: Vec<_> =
        reading.members.iter().filter(|(_, member)| member.state == MemberState::Active).collect();
    let first = match carrying.as_slice() {
        [(name, _)] => Some((*name).clone()),
        _ => None,
    };
    Some(BondOriginal {
        mode: reading.mode.clone(),
        members: reading.members.keys().cloned().collect(),
        first,
        mtu: reading.mtu?,
        mac: reading.mac.clone()?,
        addresses: reading.addresses.clone(),
        routes: reading.routes.clone(),
    })
}

/// Everything that keeps a bond from being sound in this mode.
pub fn sound(node: &HostName, reading: &BondReading, mode: &BondMode) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut place = Place { at: format!("{node}:"), subject: Subject::Bond, findings: &mut findings };
    place.must_be("mode", Some(&reading.mode), mode);
    match mode.number() {
        Some(number) => place.must_be("mode number", reading.mode_number.as_ref(), &number),
        None => place.push(FindingKind::Unknown, format!("mode {mode} is not known")),
    }
    if reading.boot_id.is_empty() {
        place.push(FindingKind::Unknown, "the boot is not identified");
    }
    place.must_be("bond up", reading.up.as_ref(), &true);
    place.must_be("carrier", reading.carrier.as_ref(), &true);
    if reading.mtu.is_none() || reading.mac.is_none() {
        place.push(FindingKind::Unknown, "MTU or hardware address was not reported");
    }
    if !reading.members_complete {
        place.push(FindingKind::Unknown, "the list of members was cut short");
    }
    if reading.members.is_empty() {
        place.push(FindingKind::Negative, "the bond has no member");
    }
    for (name, member) in &reading.members {
        place.must_be(&format!("link of {name}"), Some(&member.mii), &MiiStatus::Up);
        if member.link_failures.is_none() {
            place.push(FindingKind::Unknown, format!("link failures of {name} were not reported"));
        }
        match &member.state {
            MemberState::Active | MemberState::Backup => {}
            MemberState::Unknown(word) => place.push(FindingKind::Unknown, format!("{name} is {word}")),
        }
    }
    let carrying = reading.members.values().filter(|member| member.state == MemberState::Active).count();
    let expected = match mode {
        BondMode::ActiveBackup => 1,
        BondMode::BalanceRr
        | BondMode::BalanceXor
        | BondMode::Broadcast
        | BondMode::Ieee8023ad
        | BondMode::BalanceTlb
        | BondMode::BalanceAlb
        | BondMode::Unknown(_) => reading.members.len(),
    };
    if carrying != expected {
        place.push(FindingKind::Negative, format!("{carrying} member(s) carry, must be {expected}"));
    }
    match &reading.persisted {
        None => place.push(FindingKind::Unknown, "the configuration for the next boot was not reported"),
        Some(persisted) => {
            place.must_be("mode at the next boot", Some(&persisted.mode), mode);
            if !persisted.members.iter().eq(reading.members.keys()) {
                place.push(FindingKind::Negative, "the members at the next boot are others");
            }
        }
    }
    findings
}

fn kept(node: &HostName, reading: &BondReading, original: &BondOriginal, findings: &mut Vec<Finding>) {
    let mut place = Place { at: format!("{node}:"), subject: Subject::Bond, findings };
    let missing: Vec<_> =
        original.members.iter().filter(|member| !reading.members.contains_key(*member)).collect();
    for member in &missing {
        place.push(FindingKind::Negative, format!("member {member} is missing"));
    }
    if missing.is_empty() && reading.members.len() != original.members.len() {
        place.push(FindingKind::Negative, "the bond has a member that it did not have");
    }
    place.must_be("MTU", reading.mtu.as_ref(), &original.mtu);
    place.must_be("hardware address", reading.mac.as_ref(), &original.mac);
    if reading.addresses != original.addresses {
        place.push(FindingKind::Negative, "the addresses are others than before");
    }
    let lost: Vec<_> = original.routes.difference(&reading.routes).cloned().collect();
    if !lost.is_empty() {
        place.push(FindingKind::Negative, format!("routes are lost: {}", lost.join(", ")));
    }
}

/// In what a bond changed, in a few words.
fn difference(before: &BondReading, after: &BondReading) -> String {
    let names = |reading: &BondReading| reading.members.keys().cloned().collect::<BTreeSet<InterfaceName>>();
    let parts = [
        (before.boot_id != after.boot_id, "the host was booted".to_owned()),
        (before.mode != after.mode, format!("{} instead of {}", after.mode, before.mode)),
        (names(before) != names(after), "other members".to_owned()),
        (before.members != after.members && names(before) == names(after), "a member's state".to_owned()),
        (before.persisted != after.persisted, "the configuration for the next boot".to_owned()),
        (before.routes != after.routes, "routes".to_owned()),
    ];
    let parts: Vec<_> = parts.into_iter().filter_map(|(differs, word)| differs.then_some(word)).collect();
    if parts.is_empty() { "in detail".to_owned() } else { parts.join(", ") }
}

/// Everything that keeps a probe from being a pass.
pub fn probe_faults(look: Look<'_>, probe: &LinkProbe) -> Vec<Finding> {
    let spec = look.plan.probe;
    let mut findings = Vec::new();
    let at = format!("{} to {}:", probe.from, probe.to);
    let mut place = Place { at, subject: Subject::Link, findings: &mut findings };
    if probe.sent < spec.packets {
        place.push(FindingKind::Negative, format!("{} packets sent, must be {}", probe.sent, spec.packets));
    }
    if probe.received != probe.sent {
        place.push(FindingKind::Negative, format!("{} of {} packets arrived", probe.received, probe.sent));
    }
    if probe.frame_bytes < spec.frame_bytes {
        place.push(FindingKind::Negative, format!("packets of {} bytes are too small", probe.frame_bytes));
    }
    let members = |node: &HostName| look.state.verified_bonds.get(node).map(|bond| &bond.members);
    let carries = |state: &MemberState| *state == MemberState::Active;
    for (node, counters, sends) in [(&probe.from, &probe.sender, true), (&probe.to, &probe.receiver, false)] {
        let Some(members) = members(node) else {
            place.push(FindingKind::Unknown, format!("the bond of {node} was never recorded"));
            continue;
        };
        for (name, member) in members {
            let Some(counter) = counters.get(name) else {
                place.push(FindingKind::Unknown, format!("counters of {name} on {node} were not reported"));
                continue;
            };
            if sends && carries(&member.state) && counter.tx == 0 {
                place.push(FindingKind::Negative, format!("{name} on {node} sent nothing"));
            }
            if !sends && carries(&member.state) && counter.rx == 0 {
                place.push(FindingKind::Negative, format!("{name} on {node} received nothing"));
            }
            if !sends && counter.rx_nohandler > 0 {
                place.push(FindingKind::Negative, format!("{name} on {node} threw frames away"));
            }
        }
    }
    findings
}
