//! What a host says about itself and its bond, and what a link probe found.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::host::identity::{HostName, InterfaceName};
use crate::host::words::words;

words!(
    /// A bond's mode, as the kernel spells it.
    BondMode {
        /// Frames go out on the members in turn.
        BalanceRr = "balance-rr",
        /// One member carries, the others stand by.
        ActiveBackup = "active-backup",
        /// By a hash of addresses.
        BalanceXor = "balance-xor",
        /// Every frame on every member.
        Broadcast = "broadcast",
        /// By negotiation with the switch.
        Ieee8023ad = "802.3ad",
        /// Adaptive, transmit.
        BalanceTlb = "balance-tlb",
        /// Adaptive, both ways.
        BalanceAlb = "balance-alb",
    }
);

impl BondMode {
    /// The number that the kernel prints beside the word.
    pub fn number(&self) -> Option<u8> {
        match self {
            Self::BalanceRr => Some(0),
            Self::ActiveBackup => Some(1),
            Self::BalanceXor => Some(2),
            Self::Broadcast => Some(3),
            Self::Ieee8023ad => Some(4),
            Self::BalanceTlb => Some(5),
            Self::BalanceAlb => Some(6),
            Self::Unknown(_) => None,
        }
    }
}

words!(
    /// Whether a member carries.
    MemberState {
        /// It carries.
        Active = "active",
        /// It stands by.
        Backup = "backup",
    }
);

words!(
    /// A member's link, as the bond's monitor sees it. Carrier only: it says nothing about the path.
    MiiStatus {
        /// Up.
        Up = "up",
        /// Down.
        Down = "down",
        /// About to be down.
        GoingDown = "going down",
        /// About to be up.
        GoingBack = "going back",
    }
);

/// Whether a host may be worked on at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// The host may hold replicas.
    pub eligible: Option<bool>,
    /// The host and its agent answer.
    pub live: Option<bool>,
}

/// A bond as its host's kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BondReading {
    /// Changes with every boot of the host.
    pub boot_id: String,
    /// The mode's word.
    pub mode: BondMode,
    /// The mode's number, printed beside the word.
    pub mode_number: Option<u8>,
    /// The members, by name.
    pub members: BTreeMap<InterfaceName, MemberReading>,
    /// The kernel shows all members, not a list cut short.
    pub members_complete: bool,
    /// The bond is administratively up.
    pub up: Option<bool>,
    /// The bond has carrier.
    pub carrier: Option<bool>,
    /// Largest frame in bytes.
    pub mtu: Option<u32>,
    /// Hardware address.
    pub mac: Option<String>,
    /// Addresses with prefix length.
    pub addresses: BTreeSet<String>,
    /// Routes through the bond that are not the connected ones. They are lost whenever the bond goes down.
    pub routes: BTreeSet<String>,
    /// What the host's configuration will make of the bond at the next boot. `None` when it cannot be read.
    pub persisted: Option<PersistedBond>,
}

/// One member of a bond.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberReading {
    /// Whether it carries.
    pub state: MemberState,
    /// Its link.
    pub mii: MiiStatus,
    /// How often its link failed since it joined the bond.
    pub link_failures: Option<u32>,
}

/// A bond in a host's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistedBond {
    /// Its mode.
    pub mode: BondMode,
    /// Its members.
    pub members: BTreeSet<InterfaceName>,
}

/// A bond as it was before the first change: what a flip keeps and a rollback returns to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BondOriginal {
    /// The mode.
    pub mode: BondMode,
    /// The members. After a release nothing on the host says which interfaces belong there.
    pub members: BTreeSet<InterfaceName>,
    /// The member that carried, where exactly one did. It is put in first, so that the bond keeps its hardware
    /// address.
    pub first: Option<InterfaceName>,
    /// Largest frame in bytes.
    pub mtu: u32,
    /// Hardware address.
    pub mac: String,
    /// Addresses with prefix length.
    pub addresses: BTreeSet<String>,
    /// Routes through the bond that do not come back by themselves.
    pub routes: BTreeSet<String>,
}

/// How a link is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkProbeSpec {
    /// How many packets, one after the other. One packet proves nothing: on a half-flipped pair every second
    /// one gets through.
    pub packets: u32,
    /// Bytes on the wire of each, headers included; not to be fragmented.
    pub frame_bytes: u32,
}

/// What one probe in one direction found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkProbe {
    /// Who sent.
    pub from: HostName,
    /// Who was to receive.
    pub to: HostName,
    /// Packets sent.
    pub sent: u32,
    /// Packets that arrived, once each.
    pub received: u32,
    /// Bytes on the wire of each, headers included.
    pub frame_bytes: u32,
    /// What the sender's members did meanwhile.
    pub sender: BTreeMap<InterfaceName, MemberCounters>,
    /// What the receiver's members did meanwhile.
    pub receiver: BTreeMap<InterfaceName, MemberCounters>,
}

/// How far a member's counters moved during a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberCounters {
    /// Frames sent.
    pub tx: u64,
    /// Frames received.
    pub rx: u64,
    /// Frames received that nobody took: the mark of a sender in one mode facing a receiver in another.
    pub rx_nohandler: u64,
}
