//! The declared cluster, and its expansion to slots. What comes out of [`ClusterShape::expand`] cannot hold
//! duplicates; nothing after it checks again.

use std::collections::BTreeMap;
use std::sync::Arc;

use executor_api::{
    GroupId, GroupPolicy, LogicalNodeId, LogicalNodeSpec, RunId, RunNodeGroupSpec, SlotGroup, UpdatePolicy,
    expand_node_group,
};
use serde::{Deserialize, Serialize};

/// Most slots a shape may declare: a typing error in a count must not become a bill.
pub const NODE_LIMIT: u64 = 1_000_000;

/// One revision of what should exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterShape {
    /// The run; fixed for the life of a driver.
    pub run_id: RunId,
    /// Strictly increases whenever the supplied shape changes.
    pub generation: u64,
    /// The groups, in the order declared.
    pub groups: Vec<RunNodeGroupSpec>,
}

/// Why a shape is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A group says it belongs to another run.
    #[error("group {group} belongs to run {found}, not to {expected}")]
    ForeignGroup {
        /// The group.
        group: GroupId,
        /// The run it names.
        found: RunId,
        /// The run of the shape.
        expected: RunId,
    },
    /// Two groups share a name.
    #[error("group {group} is declared twice; group names must be unique")]
    DuplicateGroup {
        /// The name.
        group: GroupId,
    },
    /// Two groups expand to the same slot.
    #[error("node id {node} results from group {first} and from group {second}; rename one of them")]
    DuplicateNode {
        /// The slot.
        node: LogicalNodeId,
        /// The group that had it first.
        first: GroupId,
        /// The group that has it too.
        second: GroupId,
    },
    /// More slots than [`NODE_LIMIT`].
    #[error("the shape declares {count} nodes; at most {NODE_LIMIT} are allowed")]
    TooManyNodes {
        /// How many were declared.
        count: u64,
    },
    /// A replacement limit under which nothing could ever be replaced.
    #[error("group {group}: max_unavailable must be at least 1, or absent for no limit")]
    NoneUnavailable {
        /// The group.
        group: GroupId,
    },
}

/// A shape, expanded once per generation and shared by all passes over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expanded {
    /// The run.
    pub run_id: RunId,
    /// The generation that was expanded.
    pub generation: u64,
    /// What each slot should be.
    pub specs: BTreeMap<LogicalNodeId, LogicalNodeSpec>,
    /// The groups by name.
    pub groups: BTreeMap<GroupId, ExpandedGroup>,
}

/// What a group's slots share beside their spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpandedGroup {
    /// The group and its slots, in order of index.
    pub slots: SlotGroup,
    /// Timing; not compared.
    pub policy: GroupPolicy,
    /// Replacement limits; not compared.
    pub update: UpdatePolicy,
}

impl ClusterShape {
    /// What each slot should be. Does not depend on any history.
    pub fn expand(&self) -> Result<BTreeMap<LogicalNodeId, LogicalNodeSpec>, ShapeError> {
        Expanded::of(self).map(|expanded| expanded.specs)
    }
}

impl Expanded {
    /// Checks and expands a shape.
    pub fn of(shape: &ClusterShape) -> Result<Self, ShapeError> {
        let count = shape.groups.iter().map(|g| u64::from(g.count)).sum();
        if count > NODE_LIMIT {
            return Err(ShapeError::TooManyNodes { count });
        }
        let mut specs: BTreeMap<LogicalNodeId, LogicalNodeSpec> = BTreeMap::new();
        let mut groups = BTreeMap::new();
        for group in &shape.groups {
            if group.run_id != shape.run_id {
                return Err(ShapeError::ForeignGroup {
                    group: group.group_id.clone(),
                    found: group.run_id.clone(),
                    expected: shape.run_id.clone(),
                });
            }
            if group.update.max_unavailable == Some(0) {
                return Err(ShapeError::NoneUnavailable { group: group.group_id.clone() });
            }
            let mut slots = Vec::new();
            for spec in expand_node_group(group) {
                slots.push(spec.id.clone());
                let second = spec.group.clone();
                if let Some(first) = specs.insert(spec.id.clone(), spec) {
                    if first.group == second {
                        return Err(ShapeError::DuplicateGroup { group: second });
                    }
                    return Err(ShapeError::DuplicateNode { node: first.id, first: first.group, second });
                }
            }
            let slots = SlotGroup { group: group.group_id.clone(), slots: Arc::from(slots) };
            let expanded = ExpandedGroup { slots, policy: group.policy.clone(), update: group.update };
            if groups.insert(group.group_id.clone(), expanded).is_some() {
                return Err(ShapeError::DuplicateGroup { group: group.group_id.clone() });
            }
        }
        Ok(Self { run_id: shape.run_id.clone(), generation: shape.generation, specs, groups })
    }
}
