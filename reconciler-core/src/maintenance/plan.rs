//! What was approved: a bond flip, its policy and its pace. Never changes once the plan has begun.

use std::collections::BTreeSet;
use std::time::Duration;

use executor_api::host::{BondMode, BondName, HostName, LinkProbeSpec, ModuleVersion, PlanUid, ResourceName};
use serde::{Deserialize, Serialize};

/// What the machines may do while replication is apart. There is no default: whoever writes the plan chooses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoPolicy {
    /// Nobody writes while the copies are apart, and both must be identical before they meet again.
    Quiesce {
        /// Where somebody may write, stop that I/O for at most this long. `None`: such a plan is refused.
        suspend_for: Option<Duration>,
    },
    /// Machines go on writing; before the copies meet again one must be provably the other's ancestor.
    Continue,
}

impl IoPolicy {
    /// For how long I/O may be suspended, where it may be at all.
    pub fn suspend_for(&self) -> Option<Duration> {
        match self {
            Self::Quiesce { suspend_for } => *suspend_for,
            Self::Continue => None,
        }
    }
}

/// How long things may take and how often they are tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// Older evidence is no evidence.
    pub evidence_max_age: Duration,
    /// How long after the resume gates passed a reconnect may still be sent.
    pub gate_max_age: Duration,
    /// How long a halted plan lets things settle before anything else. Also the space between tries.
    pub dwell: Duration,
    /// How long an effect may take to be seen after its operation ended.
    pub settle: Duration,
    /// How long after its last connect a resource may take to be connected.
    pub connect_within: Duration,
    /// How often a step may be tried in all, the first time included. Counted over the whole plan.
    pub retry_cap: u32,
    /// How often a rollback may try to reconnect.
    pub connect_attempts: u32,
    /// When an operation is given up and its outcome must be settled.
    pub operation_timeout: Duration,
    /// For how long a renewal of the lease counts.
    pub lease_ttl: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            evidence_max_age: Duration::from_secs(10),
            gate_max_age: Duration::from_secs(30),
            dwell: Duration::from_secs(30),
            settle: Duration::from_mins(1),
            connect_within: Duration::from_mins(1),
            retry_cap: 3,
            connect_attempts: 3,
            operation_timeout: Duration::from_mins(2),
            lease_ttl: Duration::from_mins(1),
        }
    }
}

/// Flips one bond on two hosts, one host after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BondFlipPlan {
    /// Minted when the plan was accepted.
    pub uid: PlanUid,
    /// The two hosts, in the order in which they are flipped.
    pub nodes: [HostName; 2],
    /// The bond.
    pub bond: BondName,
    /// The mode it has.
    pub from: BondMode,
    /// The mode it is to have.
    pub to: BondMode,
    /// The resources that replicate over it.
    pub resources: BTreeSet<ResourceName>,
    /// What the machines may do meanwhile.
    pub io: IoPolicy,
    /// Somebody wrote into the plan that it may run. Not enough by itself: see
    /// [`PlanState::approval`](crate::maintenance::PlanState::approval).
    pub approved: bool,
    /// The oldest storage module whose word is taken.
    pub module_floor: ModuleVersion,
    /// How the link is probed before replication is resumed.
    pub probe: LinkProbeSpec,
    /// How long and how often.
    pub pace: Pace,
}

/// Fewer packets do not tell a half-flipped pair from a whole one.
pub const FEWEST_PACKETS: u32 = 10;

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("/{field}: {what}")]
pub struct PlanProblem {
    /// The field, as in the plan.
    pub field: &'static str,
    /// What is wrong and what would be right.
    pub what: &'static str,
}

impl BondFlipPlan {
    /// Everything wrong with the plan that can be seen without looking at a host.
    pub fn problems(&self) -> Vec<PlanProblem> {
        let flippable = |mode: &BondMode| matches!(mode, BondMode::ActiveBackup | BondMode::BalanceRr);
        let pace = &self.pace;
        let waits = [
            pace.evidence_max_age,
            pace.gate_max_age,
            pace.dwell,
            pace.settle,
            pace.connect_within,
            pace.operation_timeout,
            pace.lease_ttl,
        ];
        let suspends_for_nothing =
            matches!(&self.io, IoPolicy::Quiesce { suspend_for: Some(limit) } if limit.is_zero());
        let rules = [
            (self.nodes[0] != self.nodes[1], "nodes", "the two hosts must differ"),
            (flippable(&self.from), "from", "only active-backup and balance-rr are known here"),
            (flippable(&self.to), "to", "only active-backup and balance-rr are known here"),
            (self.from != self.to, "to", "the bond has that mode already"),
            (!self.resources.is_empty(), "resources", "name the resources that replicate over the bond"),
            (!suspends_for_nothing, "io", "a suspension of no length stops nobody"),
            (self.probe.packets >= FEWEST_PACKETS, "probe/packets", "at least 10: fewer prove nothing"),
            (waits.iter().all(|wait| !wait.is_zero()), "pace", "every duration must be longer than nothing"),
            (pace.retry_cap >= 1, "pace/retry_cap", "at least 1: the first try counts"),
            (pace.connect_attempts >= 1, "pace/connect_attempts", "at least 1"),
        ];
        rules
            .into_iter()
            .filter(|(holds, ..)| !holds)
            .map(|(_, field, what)| PlanProblem { field, what })
            .collect()
    }

    /// The other host.
    pub fn peer_of(&self, node: &HostName) -> &HostName {
        if *node == self.nodes[0] { &self.nodes[1] } else { &self.nodes[0] }
    }
}
