//! What befalls the world without anybody asking. Scheduled by a scenario or by a test, and told in the words of
//! a scenario file.

use std::fmt;
use std::time::Duration;

use executor_api::host::{
    AfterSplitBrain, BondMode, EvictionSetting, HostName, InterfaceName, MigrationName, ModuleVersion,
    Protocol, ResourceName, VmName,
};
use serde::{Deserialize, Serialize};

use crate::span;
use crate::spec::VmSpec;

/// One event. Something that it names and that is not there makes it come to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Incident {
    // Hosts and bonds.
    /// A member loses carrier. Its peer across the wire notices nothing.
    CarrierLost {
        /// The host.
        host: HostName,
        /// The member.
        interface: InterfaceName,
    },
    /// A member has carrier again.
    CarrierBack {
        /// The host.
        host: HostName,
        /// The member.
        interface: InterfaceName,
    },
    /// A wire loses packets, all carriers up.
    WireLoses {
        /// Its place: 0 joins the first members.
        wire: usize,
        /// Every so many packets one is lost; 1 cuts it in the middle, 0 mends it.
        every: u32,
    },
    /// A member refuses to be put into a bond this many times.
    MemberRefuses {
        /// The host.
        host: HostName,
        /// The member.
        interface: InterfaceName,
        /// How often.
        times: u32,
    },
    /// A member drops out of its bond.
    MemberLeaves {
        /// The host.
        host: HostName,
        /// The member.
        interface: InterfaceName,
    },
    /// Something else on the host brings the bond into a mode, in good order.
    BondSet {
        /// The host.
        host: HostName,
        /// The mode; left out: what the configuration says.
        mode: Option<BondMode>,
    },
    /// Something else rewrites the host's configuration of the bond.
    ConfigurationSet {
        /// The host.
        host: HostName,
        /// The mode.
        mode: BondMode,
    },
    /// The bond's static routes go.
    RoutesLost {
        /// The host.
        host: HostName,
    },
    /// The host crashes and comes back with what its configuration says.
    HostReboots {
        /// The host.
        host: HostName,
    },
    /// The host crashes and stays away.
    HostDies {
        /// The host.
        host: HostName,
    },
    /// A dead host boots.
    HostReturns {
        /// The host.
        host: HostName,
    },
    /// The agent on the host crashes and comes back. What it was doing stays half done.
    AgentRestarts {
        /// The host.
        host: HostName,
    },
    /// The host may hold replicas, or may not.
    Eligible {
        /// The host.
        host: HostName,
        /// Whether.
        eligible: bool,
    },

    // Storage.
    /// A storage pod is re-created on the host, kept away or not, and brings its resources up.
    PodReturns {
        /// The host.
        host: HostName,
    },
    /// A side drops a connection and does not try again.
    StandAlone {
        /// The resource.
        resource: ResourceName,
        /// The host.
        host: HostName,
    },
    /// A side begins to wait for its peers.
    Reconnects {
        /// The resource.
        resource: ResourceName,
        /// The host.
        host: HostName,
    },
    /// Handshakes never come to an end, or do again.
    Blocked {
        /// The resource.
        resource: ResourceName,
        /// Whether.
        blocked: bool,
    },
    /// A host's map of what its peers lack gains blocks whose content is equal, as after a comparison that found
    /// differences. State and identifiers stay.
    BitsAppear {
        /// The resource.
        resource: ResourceName,
        /// The host that counts.
        host: HostName,
        /// How many blocks.
        blocks: u32,
    },
    /// A host's map of what its peers lack is wiped; what it stood for is still lacking.
    BitsDropped {
        /// The resource.
        resource: ResourceName,
        /// The host.
        host: HostName,
    },
    /// A block rots: its content is another, and nothing shows it.
    Rots {
        /// The resource.
        resource: ResourceName,
        /// The host.
        host: HostName,
        /// The block.
        block: u32,
    },
    /// Blocks are compared; differences are marked on both sides and repaired on neither.
    Verify {
        /// The resource.
        resource: ResourceName,
    },
    /// Every copy of the resource gets one identifier that was given by fiat and never rotated; the copy on the
    /// host holds nothing of what was written.
    DayZero {
        /// The resource.
        resource: ResourceName,
        /// The host with the empty copy.
        host: HostName,
    },
    /// The copies are as just created.
    JustCreated {
        /// The resource.
        resource: ResourceName,
        /// On this host only; left out: on all.
        host: Option<HostName>,
    },
    /// The host's side says that it went down while primary.
    CrashedPrimary {
        /// The resource.
        resource: ResourceName,
        /// The host.
        host: HostName,
    },
    /// The host becomes primary beside the other while apart, and writes this many blocks.
    Diverges {
        /// The resource.
        resource: ResourceName,
        /// The host.
        host: HostName,
        /// How many.
        writes: u32,
    },
    /// The host announces a split brain that resolved itself.
    SplitBrainAnnounced {
        /// The resource.
        resource: ResourceName,
        /// The host.
        host: HostName,
    },
    /// The options of the resource's connections are changed.
    NetChanged {
        /// The resource.
        resource: ResourceName,
        /// When a write counts as done.
        protocol: Option<Protocol>,
        /// What is done after a split brain.
        after_split_brain: Option<AfterSplitBrain>,
        /// Two hosts may write at once.
        allow_two_primaries: Option<bool>,
    },
    /// A resync is held on the host, or goes on.
    ResyncHeld {
        /// The resource.
        resource: ResourceName,
        /// The host.
        host: HostName,
        /// Whether.
        held: bool,
    },
    /// The host's disk fails.
    DiskFails {
        /// The resource.
        resource: ResourceName,
        /// The host.
        host: HostName,
    },
    /// I/O of the resource on the host is suspended by hand, or goes on.
    IoSuspended {
        /// The resource.
        resource: ResourceName,
        /// The host.
        host: HostName,
        /// Whether.
        suspended: bool,
    },
    /// The module is another version.
    Module {
        /// Which.
        version: ModuleVersion,
    },

    // Machines.
    /// Somebody asks for a migration.
    Migrates {
        /// The machine.
        vm: VmName,
        /// Where to.
        to: HostName,
        /// What becomes of it.
        #[serde(default)]
        fate: MigrationFate,
        /// It is made although new migrations are refused.
        #[serde(default)]
        past_the_shield: bool,
    },
    /// A migration that stands still ends without a move.
    MigrationEnds {
        /// Which.
        migration: MigrationName,
    },
    /// The machine is marked to be moved away from where it is. Migrations follow.
    EvacuationMark {
        /// The machine.
        vm: VmName,
        /// Whether; `false` lifts the mark.
        marked: bool,
    },
    /// The machine's pod is evicted, as a drain of its host does.
    Evicted {
        /// The machine.
        vm: VmName,
    },
    /// The machine is restarted, here or elsewhere, by its owner.
    Restarts {
        /// The machine.
        vm: VmName,
        /// Where; left out: where it was.
        to: Option<HostName>,
    },
    /// The machine is stopped by its owner.
    Stops {
        /// The machine.
        vm: VmName,
    },
    /// A machine is made.
    Appears {
        /// The machine.
        vm: Box<VmSpec>,
    },
    /// A machine is deleted.
    Disappears {
        /// The machine.
        vm: VmName,
    },
    /// Somebody declares another setting.
    Redeclared {
        /// The machine.
        vm: VmName,
        /// The setting.
        setting: EvictionSetting,
    },
    /// The running instance has another setting than before.
    EffectiveChanged {
        /// The machine.
        vm: VmName,
        /// The setting.
        setting: EvictionSetting,
    },
    /// What refuses evictions and migrations is deleted by somebody.
    ShieldDeleted {
        /// The machine.
        vm: VmName,
    },

    // The lock.
    /// The lease record is deleted by hand.
    LeaseDeleted,
    /// The hold is deleted by hand.
    HoldDeleted,
}

/// What becomes of a migration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum MigrationFate {
    /// It goes through its phases and succeeds. An abort stops it.
    #[default]
    Obedient,
    /// It stands still once a target is sought. An abort ends it after this long; left out: never.
    Stuck {
        /// How long after the abort.
        #[serde(default, with = "span::maybe")]
        ends_after: Option<Duration>,
    },
    /// It succeeds, abort or no abort.
    WinsTheRace,
    /// It copies memory after the move: cannot be stopped without loss, and succeeds.
    PostCopy,
}

impl Incident {
    /// The name under which it is counted.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CarrierLost { .. } => "carrier-lost",
            Self::CarrierBack { .. } => "carrier-back",
            Self::WireLoses { .. } => "wire-loses",
            Self::MemberRefuses { .. } => "member-refuses",
            Self::MemberLeaves { .. } => "member-leaves",
            Self::BondSet { .. } => "bond-set",
            Self::ConfigurationSet { .. } => "configuration-set",
            Self::RoutesLost { .. } => "routes-lost",
            Self::HostReboots { .. } => "host-reboots",
            Self::HostDies { .. } => "host-dies",
            Self::HostReturns { .. } => "host-returns",
            Self::AgentRestarts { .. } => "agent-restarts",
            Self::Eligible { .. } => "eligible",
            Self::PodReturns { .. } => "pod-returns",
            Self::StandAlone { .. } => "stand-alone",
            Self::Reconnects { .. } => "reconnects",
            Self::Blocked { .. } => "blocked",
            Self::BitsAppear { .. } => "bits-appear",
            Self::BitsDropped { .. } => "bits-dropped",
            Self::Rots { .. } => "rots",
            Self::Verify { .. } => "verify",
            Self::DayZero { .. } => "day-zero",
            Self::JustCreated { .. } => "just-created",
            Self::CrashedPrimary { .. } => "crashed-primary",
            Self::Diverges { .. } => "diverges",
            Self::SplitBrainAnnounced { .. } => "split-brain-announced",
            Self::NetChanged { .. } => "net-changed",
            Self::ResyncHeld { .. } => "resync-held",
            Self::DiskFails { .. } => "disk-fails",
            Self::IoSuspended { .. } => "io-suspended",
            Self::Module { .. } => "module",
            Self::Migrates { .. } => "migrates",
            Self::MigrationEnds { .. } => "migration-ends",
            Self::EvacuationMark { .. } => "evacuation-mark",
            Self::Evicted { .. } => "evicted",
            Self::Restarts { .. } => "restarts",
            Self::Stops { .. } => "stops",
            Self::Appears { .. } => "appears",
            Self::Disappears { .. } => "disappears",
            Self::Redeclared { .. } => "redeclared",
            Self::EffectiveChanged { .. } => "effective-changed",
            Self::ShieldDeleted { .. } => "shield-deleted",
            Self::LeaseDeleted => "lease-deleted",
            Self::HoldDeleted => "hold-deleted",
        }
    }
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
