//! What the cluster says about virtual machines and their migrations. What is declared and what runs are kept
//! apart: a declared change may wait for the next restart.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host::identity::{HostName, MigrationName, ResourceName, VmName};
use crate::host::words::words;

words!(
    /// What is to happen to a virtual machine whose node is emptied.
    EvictionStrategy {
        /// Nothing. Prevents migration, not eviction.
        None = "None",
        /// It is migrated.
        LiveMigrate = "LiveMigrate",
        /// It is migrated if it can be.
        LiveMigrateIfPossible = "LiveMigrateIfPossible",
        /// Somebody else sees to it.
        External = "External",
    }
);

/// The value of the field: left out, which means the cluster's default, or set. Left out is not `None`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvictionSetting {
    /// The field is left out.
    Unset,
    /// The field has this value.
    Set(EvictionStrategy),
}

impl EvictionSetting {
    /// The value of a pinned machine.
    pub const PINNED: Self = Self::Set(EvictionStrategy::None);
}

impl fmt::Display for EvictionSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset => f.write_str("(not set)"),
            Self::Set(strategy) => strategy.fmt(f),
        }
    }
}

words!(
    /// How far a migration is.
    MigrationPhase {
        /// Asked for.
        Pending = "Pending",
        /// A target is sought.
        Scheduling = "Scheduling",
        /// A target was found.
        Scheduled = "Scheduled",
        /// The target prepares.
        PreparingTarget = "PreparingTarget",
        /// The target is ready.
        TargetReady = "TargetReady",
        /// Memory is being copied.
        Running = "Running",
        /// Done: the machine is elsewhere now.
        Succeeded = "Succeeded",
        /// Over without a move.
        Failed = "Failed",
    }
);

words!(
    /// How far the abort of a migration is.
    AbortStatus {
        /// Under way: it may still lose the race.
        Aborting = "Aborting",
        /// The migration was stopped.
        Succeeded = "Succeeded",
        /// The migration could not be stopped.
        Failed = "Failed",
    }
);

/// All virtual machines with a volume on the asked resources, and every migration of any of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmPicture {
    /// The machines.
    pub vms: BTreeMap<VmName, VmReading>,
    /// The migrations that are recorded, over or not.
    pub migrations: BTreeMap<MigrationName, MigrationReading>,
}

impl VmPicture {
    /// The migrations that are not over, in order of name. One whose phase is not understood is not over.
    pub fn unfinished(&self) -> impl Iterator<Item = (&MigrationName, &MigrationReading)> {
        self.migrations.iter().filter(|(_, migration)| !migration.is_over())
    }
}

/// One virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmReading {
    /// The resources that its volumes lie on.
    pub resources: BTreeSet<ResourceName>,
    /// What is declared for it.
    pub declared: EvictionSetting,
    /// The instance that runs, if one does.
    pub running: Option<RunningVm>,
    /// What holds it in place besides the setting.
    pub shield: PinShield,
}

/// The running instance of a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningVm {
    /// The pod it runs in.
    pub pod_uid: String,
    /// The host it runs on.
    pub node: HostName,
    /// What applies to it now.
    pub effective: EvictionSetting,
    /// The host that it is marked to be moved away from, if it is: a new migration will follow. Must be stated:
    /// a reading that leaves it out cannot be read.
    #[serde(deserialize_with = "Option::deserialize")]
    pub evacuating_from: Option<HostName>,
}

/// What holds a machine in place, since the setting alone grants an eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinShield {
    /// An eviction of its pod is refused.
    pub eviction_refused: Option<bool>,
    /// A new migration of it is refused.
    pub migration_refused: Option<bool>,
}

impl PinShield {
    /// Both refusals are in place.
    pub fn is_up(&self) -> bool {
        self.eviction_refused == Some(true) && self.migration_refused == Some(true)
    }

    /// Neither refusal is in place.
    pub fn is_down(&self) -> bool {
        self.eviction_refused == Some(false) && self.migration_refused == Some(false)
    }
}

/// What a machine had before it was pinned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmOriginal {
    /// What was declared.
    pub declared: EvictionSetting,
    /// Where it ran and in which pod, if it ran.
    pub placement: Option<(HostName, String)>,
}

/// One migration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationReading {
    /// The machine.
    pub vm: VmName,
    /// How far it is.
    pub phase: MigrationPhase,
    /// Somebody asked for its end.
    pub abort_requested: bool,
    /// How far that is.
    pub abort_status: Option<AbortStatus>,
    /// The machine runs on the target already while memory still follows: cannot be stopped without loss.
    pub post_copy: Option<bool>,
}

impl MigrationReading {
    /// Whether nothing of it can still happen.
    pub fn is_over(&self) -> bool {
        match self.phase {
            MigrationPhase::Succeeded | MigrationPhase::Failed => true,
            MigrationPhase::Pending
            | MigrationPhase::Scheduling
            | MigrationPhase::Scheduled
            | MigrationPhase::PreparingTarget
            | MigrationPhase::TargetReady
            | MigrationPhase::Running
            | MigrationPhase::Unknown(_) => false,
        }
    }
}
