//! One host's bond, by the kernel's rules: a mode is taken only by a bond that is down and empty, members join
//! only while they may, and going down loses every route that is not a connected one.

use std::collections::{BTreeMap, BTreeSet};

use executor_api::host::{
    BondMode, BondName, BondOriginal, BondReading, InterfaceName, MemberReading, MemberState, MiiStatus,
    PersistedBond,
};

use crate::spec::BondSpec;

/// An interface of a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Nic {
    pub(crate) mac: String,
    /// Its place in the bond at the beginning: the wire it is on.
    pub(crate) wire: usize,
    pub(crate) carrier: bool,
    /// How often it yet refuses to be put into a bond.
    pub(crate) refuses: u32,
    pub(crate) link_failures: u32,
}

/// A bond device, and what the host's configuration says of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bond {
    pub(crate) name: BondName,
    pub(crate) mode: BondMode,
    pub(crate) up: bool,
    /// In the order in which they were put in.
    pub(crate) members: Vec<InterfaceName>,
    active: Option<InterfaceName>,
    pub(crate) mac: String,
    mtu: u32,
    pub(crate) addresses: BTreeSet<String>,
    pub(crate) routes: BTreeSet<String>,
    pub(crate) nics: BTreeMap<InterfaceName, Nic>,
    pub(crate) config_mode: BondMode,
    pub(crate) config_members: Vec<InterfaceName>,
    config_routes: BTreeSet<String>,
}

/// One thing that an agent does on the way to another mode.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BondStep {
    Persist { mode: BondMode, members: Vec<InterfaceName> },
    Down,
    Release,
    Mode(BondMode),
    Join(InterfaceName),
    Up,
    Routes(BTreeSet<String>),
}

/// Why the kernel did not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KernelRefusal {
    #[error("unable to set option because the bond device has slaves")]
    NotEmpty,
    #[error("unable to set option because the bond is up")]
    Busy,
    #[error("the device cannot be enslaved")]
    NotEnslaved,
    #[error("no such device")]
    NoDevice,
}

impl Bond {
    pub(crate) fn new(spec: &BondSpec, host: usize) -> Self {
        let nic = |wire: usize| Nic {
            mac: format!("52:54:00:{host:02x}:{wire:02x}:00"),
            wire,
            carrier: true,
            refuses: 0,
            link_failures: 0,
        };
        let nics = spec.members.iter().enumerate().map(|(wire, name)| (name.clone(), nic(wire))).collect();
        let mut bond = Self {
            name: spec.name.clone(),
            mode: spec.mode.clone(),
            up: false,
            members: Vec::new(),
            active: None,
            mac: RANDOM_MAC.to_owned(),
            mtu: spec.mtu,
            addresses: spec.addresses.clone(),
            routes: BTreeSet::new(),
            nics,
            config_mode: spec.mode.clone(),
            config_members: spec.members.clone(),
            config_routes: spec.routes.clone(),
        };
        bond.boot();
        bond
    }

    /// Comes up as the configuration says.
    pub(crate) fn boot(&mut self) {
        self.up = false;
        self.release();
        self.mode = self.config_mode.clone();
        for member in self.config_members.clone() {
            // A member that refuses is missing after a boot, too.
            let _ = self.join(&member);
        }
        self.up = true;
        self.routes = self.config_routes.clone();
    }

    /// Does one step, or says why the kernel would not.
    pub(crate) fn step(&mut self, step: &BondStep) -> Result<(), KernelRefusal> {
        match step {
            BondStep::Persist { mode, members } => {
                self.config_mode = mode.clone();
                self.config_members.clone_from(members);
            }
            BondStep::Down => {
                self.up = false;
                self.routes.clear();
            }
            BondStep::Release => self.release(),
            BondStep::Mode(mode) => return self.set_mode(mode),
            BondStep::Join(member) => return self.join(member),
            BondStep::Up => self.up = true,
            BondStep::Routes(routes) => self.routes.extend(routes.iter().cloned()),
        }
        Ok(())
    }

    fn set_mode(&mut self, mode: &BondMode) -> Result<(), KernelRefusal> {
        if !self.members.is_empty() {
            return Err(KernelRefusal::NotEmpty);
        }
        if self.up {
            return Err(KernelRefusal::Busy);
        }
        self.mode = mode.clone();
        Ok(())
    }

    fn join(&mut self, member: &InterfaceName) -> Result<(), KernelRefusal> {
        let nic = self.nics.get_mut(member).ok_or(KernelRefusal::NoDevice)?;
        if nic.refuses > 0 {
            nic.refuses -= 1;
            return Err(KernelRefusal::NotEnslaved);
        }
        if self.members.contains(member) {
            return Err(KernelRefusal::NotEnslaved);
        }
        nic.link_failures = 0;
        if self.members.is_empty() {
            self.mac.clone_from(&nic.mac);
        }
        self.members.push(member.clone());
        self.choose();
        Ok(())
    }

    fn release(&mut self) {
        self.members.clear();
        self.active = None;
        RANDOM_MAC.clone_into(&mut self.mac);
    }

    /// A member drops out.
    pub(crate) fn leave(&mut self, member: &InterfaceName) {
        self.members.retain(|name| name != member);
        self.choose();
    }

    /// A member's carrier goes or comes.
    pub(crate) fn set_carrier(&mut self, member: &InterfaceName, carrier: bool) {
        let Some(nic) = self.nics.get_mut(member) else { return };
        if nic.carrier && !carrier {
            nic.link_failures += 1;
        }
        nic.carrier = carrier;
        self.choose();
    }

    /// One member carries in active-backup: the one that did, while it can; otherwise the first that can.
    fn choose(&mut self) {
        let able = |name: &InterfaceName| self.nics.get(name).is_some_and(|nic| nic.carrier);
        let keeps = self.active.as_ref().is_some_and(|name| self.members.contains(name) && able(name));
        if !keeps {
            self.active = self.members.iter().find(|name| able(name)).cloned();
        }
    }

    /// The members that send and receive.
    pub(crate) fn carrying(&self) -> Vec<&InterfaceName> {
        if !self.up {
            return Vec::new();
        }
        let able = |name: &&InterfaceName| self.nics.get(*name).is_some_and(|nic| nic.carrier);
        match self.mode {
            BondMode::ActiveBackup => self.active.iter().filter(able).collect(),
            _ => self.members.iter().filter(able).collect(),
        }
    }

    pub(crate) fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Up, with every member of the configuration. What is not counts as in transition.
    pub(crate) fn is_up_with_all(&self) -> bool {
        let members: BTreeSet<_> = self.members.iter().collect();
        self.up && members == self.config_members.iter().collect()
    }

    /// The same, and in the mode that it will have after a boot.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_up_with_all() && self.mode == self.config_mode
    }

    /// The steps of an agent that does it right. Empty when nothing is left to do.
    pub(crate) fn steps_to(&self, mode: &BondMode, original: &BondOriginal) -> Vec<BondStep> {
        let rest = original.members.iter().filter(|member| Some(*member) != original.first.as_ref());
        let order: Vec<_> = original.first.iter().chain(rest).cloned().collect();
        let reached = self.is_whole()
            && self.mode == *mode
            && self.members.iter().collect::<BTreeSet<_>>() == order.iter().collect()
            && self.mac == original.mac
            && original.routes.is_subset(&self.routes);
        if reached {
            return Vec::new();
        }
        let mut steps = vec![
            BondStep::Persist { mode: mode.clone(), members: order.clone() },
            BondStep::Down,
            BondStep::Release,
            BondStep::Mode(mode.clone()),
        ];
        steps.extend(order.into_iter().map(BondStep::Join));
        steps.extend([BondStep::Up, BondStep::Routes(original.routes.clone())]);
        steps
    }

    pub(crate) fn reading(&self, boot_id: String) -> BondReading {
        let carrying = self.carrying();
        let member = |name: &InterfaceName| {
            let nic = &self.nics[name];
            let state = if carrying.contains(&name) { MemberState::Active } else { MemberState::Backup };
            let mii = if nic.carrier { MiiStatus::Up } else { MiiStatus::Down };
            (name.clone(), MemberReading { state, mii, link_failures: Some(nic.link_failures) })
        };
        BondReading {
            boot_id,
            mode: self.mode.clone(),
            mode_number: self.mode.number(),
            members: self.members.iter().map(member).collect(),
            members_complete: true,
            up: Some(self.up),
            carrier: Some(!carrying.is_empty()),
            mtu: Some(self.mtu),
            mac: Some(self.mac.clone()),
            addresses: self.addresses.clone(),
            routes: self.routes.clone(),
            persisted: Some(PersistedBond {
                mode: self.config_mode.clone(),
                members: self.config_members.iter().cloned().collect(),
            }),
        }
    }
}

/// What a bond without members has.
const RANDOM_MAC: &str = "9a:00:00:00:00:01";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::WorldSpec;

    fn bond() -> Bond {
        Bond::new(&WorldSpec::pair().hosts[0].bond, 1)
    }

    #[test]
    fn a_mode_is_taken_only_by_a_bond_that_is_down_and_empty() {
        let mut bond = bond();
        let flip = BondStep::Mode(BondMode::BalanceRr);
        assert_eq!(bond.step(&flip), Err(KernelRefusal::NotEmpty));
        bond.step(&BondStep::Down).unwrap();
        assert_eq!(bond.step(&flip), Err(KernelRefusal::NotEmpty), "down and not empty");
        bond.step(&BondStep::Release).unwrap();
        bond.step(&BondStep::Up).unwrap();
        assert_eq!(bond.step(&flip), Err(KernelRefusal::Busy), "empty and not down");
        bond.step(&BondStep::Down).unwrap();
        assert_eq!(bond.step(&flip), Ok(()));
    }

    #[test]
    fn a_whole_flip_keeps_what_the_original_names_and_loses_routes_on_the_way() {
        let mut bond = bond();
        let before = bond.reading("1".to_owned());
        let original = BondOriginal {
            mode: before.mode.clone(),
            members: before.members.keys().cloned().collect(),
            first: bond.active.clone(),
            mtu: 1500,
            mac: before.mac.clone().unwrap(),
            addresses: before.addresses.clone(),
            routes: before.routes.clone(),
        };
        let steps = bond.steps_to(&BondMode::BalanceRr, &original);
        for step in &steps[..steps.len() - 1] {
            bond.step(step).unwrap();
        }
        assert!(bond.routes.is_empty(), "going down loses them");
        bond.step(steps.last().unwrap()).unwrap();
        let after = bond.reading("1".to_owned());
        assert_eq!((after.mode, after.mac, after.routes), (BondMode::BalanceRr, before.mac, before.routes));
        assert!(bond.steps_to(&BondMode::BalanceRr, &original).is_empty());
    }

    #[test]
    fn the_first_member_gives_the_bond_its_address() {
        let mut bond = bond();
        let before = bond.mac.clone();
        bond.step(&BondStep::Down).unwrap();
        bond.step(&BondStep::Release).unwrap();
        let second = bond.config_members[1].clone();
        bond.step(&BondStep::Join(second)).unwrap();
        assert_ne!(bond.mac, before);
    }
}
