//! What arrives: packets between two hosts over their bonds. In wires a sender in one mode facing a receiver in
//! another loses every second packet, and carriers and modes can be right on both sides while a wire is not.

use std::collections::BTreeMap;

use executor_api::host::{BondMode, HostName, InterfaceName, LinkProbe, LinkProbeSpec, MemberCounters};

use crate::spec::Wiring;
use crate::world::bond::Bond;

/// How good a link is, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Quality {
    /// Nothing gets through in at least one direction.
    Dead,
    /// Some does. Connections are made, and nothing lasts.
    Marginal,
    /// Everything does.
    Whole,
}

/// How hosts are joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Cabling {
    pub(crate) wiring: Wiring,
    /// Every so many packets one is lost, by wire.
    pub(crate) loses: BTreeMap<usize, u32>,
}

/// Enough packets to go round every member several times.
const ROUND: u32 = 20;

/// Ethernet's header, which the largest frame does not count.
const HEADER: u32 = 14;

/// How good the link between two hosts is.
pub(crate) fn quality(cabling: &Cabling, one: &Bond, other: &Bond) -> Quality {
    let share = |from: &Bond, to: &Bond| (0..ROUND).filter(|n| cross(cabling, from, to, *n).arrives).count();
    match (share(one, other), share(other, one)) {
        (0, _) | (_, 0) => Quality::Dead,
        (there, back) if there == ROUND as usize && back == ROUND as usize => Quality::Whole,
        _ => Quality::Marginal,
    }
}

/// Sends packets one way and counts.
pub(crate) fn probe(
    cabling: &Cabling,
    (from, from_bond): (&HostName, &Bond),
    (to, to_bond): (&HostName, Option<&Bond>),
    spec: LinkProbeSpec,
) -> LinkProbe {
    let zero = |bond: &Bond| -> BTreeMap<InterfaceName, MemberCounters> {
        let none = MemberCounters { tx: 0, rx: 0, rx_nohandler: 0 };
        bond.members.iter().map(|name| (name.clone(), none)).collect()
    };
    let mut sender = zero(from_bond);
    let mut receiver = to_bond.map(zero).unwrap_or_default();
    let mut arrived = 0;
    let fits = |bond: &Bond| spec.frame_bytes <= bond.mtu() + HEADER;
    for n in 0..spec.packets {
        if !fits(from_bond) {
            continue;
        }
        let Some(to_bond) = to_bond.filter(|bond| fits(bond)) else {
            continue;
        };
        let crossing = cross(cabling, from_bond, to_bond, n);
        if let Some(counters) = crossing.out.and_then(|name| sender.get_mut(name)) {
            counters.tx += 1;
        }
        if let Some(counters) = crossing.into.and_then(|name| receiver.get_mut(name)) {
            if crossing.arrives {
                counters.rx += 1;
            } else {
                counters.rx_nohandler += 1;
            }
        }
        arrived += u32::from(crossing.arrives);
    }
    LinkProbe {
        from: from.clone(),
        to: to.clone(),
        sent: spec.packets,
        received: arrived,
        frame_bytes: spec.frame_bytes,
        sender,
        receiver,
    }
}

/// One packet on its way.
struct Crossing<'a> {
    out: Option<&'a InterfaceName>,
    into: Option<&'a InterfaceName>,
    arrives: bool,
}

fn cross<'a>(cabling: &Cabling, from: &'a Bond, to: &'a Bond, n: u32) -> Crossing<'a> {
    let lost = Crossing { out: None, into: None, arrives: false };
    let sending = from.carrying();
    if sending.is_empty() {
        return lost;
    }
    let turn = n as usize % sending.len();
    let out = sending[turn];
    let wire = from.nics[out].wire;
    // Loss is counted per wire, so that it does not fall in step with the turns of the sender.
    let on_wire = n / u32::try_from(sending.len()).unwrap_or(1);
    let swallowed =
        cabling.loses.get(&wire).is_some_and(|every| *every > 0 && on_wire.is_multiple_of(*every));
    if swallowed {
        return Crossing { out: Some(out), ..lost };
    }
    let taking = to.carrying();
    let into = match cabling.wiring {
        // Whoever is on the wire with carrier gets it; whether somebody takes it there is another question.
        Wiring::Wires => to.members.iter().find(|name| to.nics[*name].wire == wire && to.nics[*name].carrier),
        Wiring::Switch => taking.first().copied(),
    };
    let arrives = into.is_some_and(|name| taking.contains(&name));
    // In the round-robin modes every member takes; only the standby of active-backup throws away.
    let counted = into.filter(|_| arrives || to.mode == BondMode::ActiveBackup);
    Crossing { out: Some(out), into: counted, arrives }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::WorldSpec;
    use crate::world::bond::BondStep;

    fn pair() -> (Bond, Bond) {
        let spec = WorldSpec::pair();
        (Bond::new(&spec.hosts[0].bond, 1), Bond::new(&spec.hosts[1].bond, 2))
    }

    fn flip(bond: &mut Bond) {
        let order = bond.members.clone();
        let steps = [BondStep::Down, BondStep::Release, BondStep::Mode(BondMode::BalanceRr)];
        for step in steps.into_iter().chain(order.into_iter().map(BondStep::Join)).chain([BondStep::Up]) {
            bond.step(&step).unwrap();
        }
    }

    fn lost(cabling: &Cabling, from: &Bond, to: &Bond) -> u32 {
        let names = (HostName::new("a").unwrap(), HostName::new("b").unwrap());
        let spec = LinkProbeSpec { packets: 20, frame_bytes: 1514 };
        let probe = probe(cabling, (&names.0, from), (&names.1, Some(to)), spec);
        probe.sent - probe.received
    }

    #[test]
    fn half_flips_lose_what_was_measured() {
        let wires = Cabling::default();
        let switch = Cabling { wiring: Wiring::Switch, ..Cabling::default() };
        let (mut a, b) = pair();
        assert_eq!((lost(&wires, &a, &b), quality(&wires, &a, &b)), (0, Quality::Whole));
        flip(&mut a);
        assert_eq!((lost(&wires, &a, &b), quality(&wires, &a, &b)), (10, Quality::Marginal));
        assert_eq!(lost(&switch, &a, &b), 0, "a switch hides it");
        let mut both = pair();
        flip(&mut both.0);
        flip(&mut both.1);
        assert_eq!(quality(&wires, &both.0, &both.1), Quality::Whole);
        // One member missing: both modes are right, and it is still broken.
        let gone = both.0.members[0].clone();
        both.0.leave(&gone);
        assert_eq!(lost(&wires, &both.1, &both.0), 10);
        // Two standby choices that do not meet: nothing at all.
        let (mut a, b) = pair();
        let first = a.members[0].clone();
        a.leave(&first);
        assert_eq!(quality(&wires, &a, &b), Quality::Dead);
    }

    #[test]
    fn a_standby_member_throws_away_what_reaches_it() {
        let (mut a, b) = pair();
        flip(&mut a);
        let names = (HostName::new("a").unwrap(), HostName::new("b").unwrap());
        let spec = LinkProbeSpec { packets: 20, frame_bytes: 1514 };
        let probe = probe(&Cabling::default(), (&names.0, &a), (&names.1, Some(&b)), spec);
        let standby = &b.members[1];
        assert_eq!((probe.receiver[standby].rx, probe.receiver[standby].rx_nohandler), (0, 10));
    }
}
