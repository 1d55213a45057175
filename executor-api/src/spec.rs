//! What is wanted: groups as a user declares them, and the slots they expand to.
//! A slot's spec is an immutable attempt template; policy is kept apart and never compared.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::identity::{GroupId, LogicalNodeId, ProviderName, RunId};

/// What a node is for, in the words of its cluster. Free text; carried, compared, never interpreted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeRole(pub String);

/// How a lease becomes a node: which bootstrapper, and that bootstrapper's own settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootSpec {
    /// The bootstrapper by name; `None` means the one that the lease provider brings.
    pub via: Option<ProviderName>,
    /// Opaque to everyone but the bootstrapper, which validates it.
    pub settings: Value,
}

/// What a node is told about joining. Opaque to everyone but the bootstrapper.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JoinSpec(pub Value);

/// The part of a spec that all slots of a group share. Any difference in it means replacement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTemplate {
    /// What the node is for.
    pub role: NodeRole,
    /// Who leases it.
    pub provider: ProviderName,
    /// Opaque to everyone but the lease provider, which validates it.
    pub shape: Value,
    /// How it is bootstrapped.
    pub boot: BootSpec,
    /// What it is told about joining.
    pub join: JoinSpec,
}

/// Timing that may differ per group. Editing it replaces nothing. `None` takes the run's value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupPolicy {
    /// First retry delay.
    pub initial_delay: Option<Duration>,
    /// Longest retry delay.
    pub cap: Option<Duration>,
    /// How long one executor call may take.
    pub operation_timeout: Option<Duration>,
    /// Time between two endpoint lookups.
    pub endpoint_probe_interval: Option<Duration>,
    /// How long a bootstrap may run before its node must have joined.
    pub join_within: Option<Duration>,
    /// How long a node may stay suspect before its attempt is ended.
    pub loss_timeout: Option<Duration>,
    /// How long a node must have been ready before it counts as healthy again.
    pub stable_after: Option<Duration>,
}

/// How many slots of a group may be replaced at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdatePolicy {
    /// No replacement begins while this many slots of the group are not ready. `None`: no limit.
    pub max_unavailable: Option<u32>,
}

/// One declared group of equal nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunNodeGroupSpec {
    /// The run it belongs to; must be that of the shape.
    pub run_id: RunId,
    /// Unique within the shape.
    pub group_id: GroupId,
    /// How many slots.
    pub count: u32,
    /// What each slot should be.
    pub template: Arc<NodeTemplate>,
    /// Timing; not compared.
    pub policy: GroupPolicy,
    /// Replacement limits; not compared.
    pub update: UpdatePolicy,
}

/// What one slot should be. Kept in the attempt that implements it; any inequality means replacement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogicalNodeSpec {
    /// The slot.
    pub id: LogicalNodeId,
    /// The group it belongs to.
    pub group: GroupId,
    /// Its place in the group, from zero.
    pub index: u32,
    /// What it should be; one allocation for all equal slots.
    pub template: Arc<NodeTemplate>,
}

impl LogicalNodeSpec {
    /// This slot, of this template.
    pub fn of(id: LogicalNodeId, template: Arc<NodeTemplate>) -> Self {
        Self { group: id.group(), index: id.index(), id, template }
    }
}

/// The slots of a group, in order of index.
pub fn expand_node_group(group: &RunNodeGroupSpec) -> impl Iterator<Item = LogicalNodeSpec> + '_ {
    (0..group.count).map(|index| LogicalNodeSpec {
        id: LogicalNodeId::of(&group.group_id, index),
        group: group.group_id.clone(),
        index,
        template: Arc::clone(&group.template),
    })
}

/// One thing that a provider or bootstrapper finds wrong with a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecProblem {
    /// JSON pointer into the group as the user wrote it: `/shape/ports/0`, `/boot/command`.
    pub pointer: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl SpecProblem {
    /// A problem at a place.
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into() }
    }
}

/// User labels checked against the reserved keys; the problems found, each at its key below `pointer`.
pub fn check_user_labels(pointer: &str, user: &BTreeMap<String, String>) -> Vec<SpecProblem> {
    user.keys()
        .filter(|key| key.starts_with(crate::identity::labels::PREFIX))
        .map(|key| {
            SpecProblem::new(
                format!("{pointer}{}", pointer_key(key)),
                format!("the key {key:?} is reserved for the reconciler's own labels; choose another"),
            )
        })
        .collect()
}

/// The keys of an opaque setting that nobody knows; each a problem at its key below `pointer`. A misspelt key would
/// otherwise be silently without effect. `Null` has no keys; what is no object is one problem.
pub fn unknown_keys(pointer: &str, settings: &Value, known: &[&str]) -> Vec<SpecProblem> {
    let listed =
        if known.is_empty() { "none at all".to_owned() } else { format!("only {}", known.join(", ")) };
    let Some(object) = settings.as_object() else {
        let wrong =
            || vec![SpecProblem::new(pointer, format!("these are settings by name; there are {listed}"))];
        return if settings.is_null() { Vec::new() } else { wrong() };
    };
    let unknown = object.keys().filter(|key| !known.contains(&key.as_str()));
    let problem = |key: &String| {
        let place = format!("{pointer}{}", pointer_key(key));
        SpecProblem::new(place, format!("there is no {key:?}; there are {listed}"))
    };
    unknown.map(problem).collect()
}

/// One key as a segment of a JSON pointer.
pub fn pointer_key(key: &str) -> String {
    format!("/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_a_problem_at_its_place() {
        let told = |settings| {
            let found = unknown_keys("/shape", &settings, &["size"]).into_iter();
            found.map(|problem| format!("{}: {}", problem.pointer, problem.message)).collect::<Vec<_>>()
        };
        assert_eq!(
            told(serde_json::json!({ "size": 1, "a/b": 2 })),
            ["/shape/a~1b: there is no \"a/b\"; there are only size"]
        );
        assert_eq!(told(serde_json::json!(3)), ["/shape: these are settings by name; there are only size"]);
        assert!(told(Value::Null).is_empty());
    }

    #[test]
    fn expansion_names_slots_by_group_and_index_and_shares_the_template() {
        let group = RunNodeGroupSpec {
            run_id: RunId::new("demo", "u1").unwrap(),
            group_id: GroupId::new("web").unwrap(),
            count: 3,
            template: Arc::new(NodeTemplate {
                role: NodeRole("worker".into()),
                provider: ProviderName::new("fake").unwrap(),
                shape: Value::Null,
                boot: BootSpec::default(),
                join: JoinSpec::default(),
            }),
            policy: GroupPolicy::default(),
            update: UpdatePolicy::default(),
        };
        let slots: Vec<_> = expand_node_group(&group).collect();
        assert_eq!(slots.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), ["web-0", "web-1", "web-2"]);
        assert!(slots.iter().all(|s| Arc::ptr_eq(&s.template, &group.template)));
    }

    #[test]
    fn a_reserved_label_is_a_problem_at_its_key() {
        let user = BTreeMap::from([("reconciler/run".into(), "x".into()), ("team".into(), "y".into())]);
        let problems = check_user_labels("/shape/tags", &user);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].pointer, "/shape/tags/reconciler~1run");
    }
}
