//! The cluster file as its user writes it, before anything is checked beyond names and types of keys.
//! Owns the vocabulary and its defaults; `check` turns it into a shape and a policy.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::file::duration::DurationText;

/// A declared cluster.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// The run's name: lowercase letters, digits and '-', at most 40. One run has one state.
    pub run: String,
    /// The groups of equal nodes. At least one; use `reconciler destroy` to remove a run.
    pub groups: Vec<GroupSettings>,
    /// How failures and waits are timed. Editing it replaces nothing.
    #[serde(default)]
    pub retry: RetrySettings,
    /// How often the world is looked at.
    #[serde(default)]
    pub observe: ObserveSettings,
    /// How much each provider is asked to do at once.
    #[serde(default)]
    pub limits: LimitSettings,
    /// What becomes of a lease of this run whose attempt is over: one that a lost answer or a hand behind the
    /// driver's back left. It is reported (the default), or also destroyed once it is old enough and was seen twice.
    #[serde(default)]
    pub orphans: OrphanSetting,
}

/// What becomes of a lease whose attempt is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OrphanSetting {
    /// It is reported in events and by `reconciler orphans`.
    #[default]
    Report,
    /// It is reported, and destroyed.
    Destroy,
}

/// One group of equal nodes, named `{name}-0`, `{name}-1` and so on.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupSettings {
    /// The group's name, unique in the file: lowercase letters, digits and '-', at most 40.
    pub name: String,
    /// How many nodes.
    pub count: u32,
    /// What the nodes are for. Carried and compared, never interpreted.
    #[serde(default)]
    pub role: String,
    /// Who leases the nodes: the name of a provider that is built in.
    pub provider: String,
    /// What is leased, in the provider's own settings.
    #[serde(default)]
    pub shape: Value,
    /// How a lease becomes a node: `via` names a bootstrapper (the provider brings one by default), the other
    /// keys are that bootstrapper's own.
    #[serde(default)]
    pub boot: Map<String, Value>,
    /// What a node is told about joining; `within` is how long it may take (5m by default).
    #[serde(default)]
    pub join: Map<String, Value>,
    /// Timing of this group where it differs from the run's. Editing it replaces nothing.
    #[serde(default)]
    pub retry: GroupRetrySettings,
    /// How replacements go. Editing it replaces nothing.
    #[serde(default)]
    pub update: UpdateSettings,
}

/// How failures and waits are timed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetrySettings {
    /// Delay after the first failure; doubles with each further one. Default 1s.
    pub initial: Option<DurationText>,
    /// Longest delay. Default 60s.
    pub cap: Option<DurationText>,
    /// How much of a delay is left to chance, from 0 (the default) to 1.
    pub jitter: Option<f64>,
    /// How long one call to a provider may take. Default 30s.
    pub operation_timeout: Option<DurationText>,
    /// Time between two looks for an endpoint. Default 5s.
    pub probe: Option<DurationText>,
    /// How long a node must have been ready before its failures are forgotten and its loss is healed without
    /// a delay. Default 10s.
    pub stable_after: Option<DurationText>,
    /// How long a node may stay out of sight before it is given up. By default silence ends nothing.
    pub loss_timeout: Option<DurationText>,
}

/// Timing of one group, where it differs from the run's.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GroupRetrySettings {
    /// Delay after the first failure; doubles with each further one.
    pub initial: Option<DurationText>,
    /// Longest delay.
    pub cap: Option<DurationText>,
    /// How long one call to a provider may take.
    pub operation_timeout: Option<DurationText>,
    /// Time between two looks for an endpoint.
    pub probe: Option<DurationText>,
    /// How long a node must have been ready before its failures are forgotten.
    pub stable_after: Option<DurationText>,
    /// How long a node may stay out of sight before it is given up.
    pub loss_timeout: Option<DurationText>,
}

/// How replacements go.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateSettings {
    /// No replacement begins while this many nodes of the group are not ready. No limit by default.
    pub max_unavailable: Option<u32>,
}

/// How often the world is looked at.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ObserveSettings {
    /// Time between two listings of each provider. Default 2s.
    pub every: Option<DurationText>,
    /// Time between two passes that nothing asked for. Default 10s.
    pub tick: Option<DurationText>,
    /// Time between two sweeps for orphans. Default 1m.
    pub sweep: Option<DurationText>,
}

/// How much each provider is asked to do at once.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSettings {
    /// Creates, lookups and starts at once. Default 64.
    pub creates: Option<u32>,
    /// Cancels and destroys at once. Default 64.
    pub cleanups: Option<u32>,
}
