//! From the file's words to a shape and a policy: names, limits and defaults. Everything found wrong is
//! reported at once. What the providers think of their own settings is asked elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use executor_api::{
    BootSpec, GroupId, GroupPolicy, JoinSpec, NodeRole, NodeTemplate, ProviderName, RunId, RunNodeGroupSpec,
    UpdatePolicy,
};
use reconciler_core::{ClusterShape, NODE_LIMIT, OrphanPolicy, PolicyExtra, RetryPolicy};
use serde_json::Value;

use crate::file::duration::{DurationText, parse_duration};
use crate::file::settings::{ClusterFile, GroupSettings, OrphanSetting};

/// A file whose names and limits hold: what it declares, for a run whose uid is not known yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// The run's name.
    pub run: String,
    /// The run's timing.
    pub policy: RetryPolicy,
    groups: Vec<Group>,
}

/// One group without its run.
#[derive(Clone, Debug, PartialEq)]
struct Group {
    id: GroupId,
    count: u32,
    template: Arc<NodeTemplate>,
    policy: GroupPolicy,
    update: UpdatePolicy,
}

impl Declared {
    /// The shape that is declared, for one run and generation. `counts` stand instead of the file's own.
    pub fn shape(&self, run: &RunId, generation: u64, counts: &BTreeMap<GroupId, u32>) -> ClusterShape {
        let groups = self.groups.iter().map(|group| RunNodeGroupSpec {
            run_id: run.clone(),
            group_id: group.id.clone(),
            count: counts.get(&group.id).copied().unwrap_or(group.count),
            template: Arc::clone(&group.template),
            policy: group.policy.clone(),
            update: group.update,
        });
        ClusterShape { run_id: run.clone(), generation, groups: groups.collect() }
    }

    /// The file's own count of each group, in the order declared.
    pub fn counts(&self) -> impl Iterator<Item = (&GroupId, u32)> {
        self.groups.iter().map(|group| (&group.id, group.count))
    }
}

/// Checks names, limits and the keys that are not a provider's own. Problems are `(pointer, message)`.
pub(crate) fn check(file: &ClusterFile) -> Result<Declared, Vec<(String, String)>> {
    let mut found = Vec::new();
    if let Err(error) = RunId::new(file.run.as_str(), "unminted") {
        found.push(("/run".to_owned(), error.to_string()));
    }
    if file.groups.is_empty() {
        let message =
            "no group is declared, which would remove every node; use `reconciler destroy` for that";
        found.push(("/groups".to_owned(), message.to_owned()));
    }
    let policy = run_policy(file, &mut found);
    let mut names = BTreeSet::new();
    let mut total = 0_u64;
    let mut groups = Vec::new();
    for (index, settings) in file.groups.iter().enumerate() {
        let at = format!("/groups/{index}");
        if !names.insert(settings.name.as_str()) {
            found.push((
                format!("{at}/name"),
                format!("group {:?} is declared twice; rename one", settings.name),
            ));
        }
        total = total.saturating_add(u64::from(settings.count));
        if total > NODE_LIMIT {
            let message = format!("{total} nodes are declared up to here; at most {NODE_LIMIT} are allowed");
            found.push((format!("{at}/count"), message));
            total = 0;
        }
        groups.extend(group(&at, settings, &mut found));
    }
    if found.is_empty() { Ok(Declared { run: file.run.clone(), policy, groups }) } else { Err(found) }
}

fn group(at: &str, settings: &GroupSettings, found: &mut Vec<(String, String)>) -> Option<Group> {
    let id = note(GroupId::new(settings.name.as_str()), format!("{at}/name"), found);
    let provider = note(ProviderName::new(settings.provider.as_str()), format!("{at}/provider"), found);
    let mut boot = settings.boot.clone();
    let via = match boot.remove("via") {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) => note(ProviderName::new(name), format!("{at}/boot/via"), found),
        Some(_) => {
            found.push((format!("{at}/boot/via"), "write the bootstrapper's name as text".to_owned()));
            None
        }
    };
    let mut join = settings.join.clone();
    let join_within = match join.remove("within") {
        None => None,
        Some(Value::String(text)) => note(positive(&text), format!("{at}/join/within"), found),
        Some(_) => {
            let message = "write a duration with its unit, such as \"20s\"";
            found.push((format!("{at}/join/within"), message.to_owned()));
            None
        }
    };
    if settings.update.max_unavailable == Some(0) {
        let message = "with 0 nothing could ever be replaced; write 1 or more, or leave it out for no limit";
        found.push((format!("{at}/update/max_unavailable"), message.to_owned()));
    }
    let retry = &settings.retry;
    let mut above_zero =
        |key: &str, value: Option<DurationText>| timing(&format!("{at}/retry/{key}"), value, found);
    let policy = GroupPolicy {
        initial_delay: above_zero("initial", retry.initial),
        cap: above_zero("cap", retry.cap),
        operation_timeout: above_zero("operation_timeout", retry.operation_timeout),
        endpoint_probe_interval: above_zero("probe", retry.probe),
        join_within,
        loss_timeout: above_zero("loss_timeout", retry.loss_timeout),
        stable_after: retry.stable_after.map(|d| d.0),
    };
    Some(Group {
        id: id?,
        count: settings.count,
        template: Arc::new(NodeTemplate {
            role: NodeRole(settings.role.clone()),
            provider: provider?,
            shape: settings.shape.clone(),
            boot: BootSpec { via, settings: object(boot) },
            join: JoinSpec(object(join)),
        }),
        policy,
        update: UpdatePolicy { max_unavailable: settings.update.max_unavailable },
    })
}

/// The run's timing, with the command line's own defaults: a node that joins counts as healthy after 10 s, and
/// the world is listed every 2 s.
fn run_policy(file: &ClusterFile, found: &mut Vec<(String, String)>) -> RetryPolicy {
    let plain = RetryPolicy::default();
    let retry = &file.retry;
    let jitter = retry.jitter.unwrap_or(0.0);
    if !(0.0..=1.0).contains(&jitter) {
        found.push(("/retry/jitter".to_owned(), "write a number from 0 to 1".to_owned()));
    }
    let mut above_zero =
        |at: &str, value: Option<DurationText>, or: Duration| timing(at, value, found).unwrap_or(or);
    let policy = RetryPolicy {
        initial_delay: above_zero("/retry/initial", retry.initial, plain.initial_delay),
        cap: above_zero("/retry/cap", retry.cap, plain.cap),
        jitter_per_mille: per_mille(jitter),
        operation_timeout: above_zero(
            "/retry/operation_timeout",
            retry.operation_timeout,
            plain.operation_timeout,
        ),
        endpoint_probe_interval: above_zero("/retry/probe", retry.probe, plain.endpoint_probe_interval),
        extra: PolicyExtra {
            seed: file.run.bytes().fold(7, |seed, byte| seed * 31 % 1_000_003 + u64::from(byte)),
            join_within: Duration::from_mins(5),
            loss_timeout: retry.loss_timeout.map(|d| d.0),
            stable_after: retry.stable_after.map_or(Duration::from_secs(10), |d| d.0),
            observe_every: above_zero("/observe/every", file.observe.every, Duration::from_secs(2)),
            tick_every: above_zero("/observe/tick", file.observe.tick, plain.extra.tick_every),
            sweep_every: above_zero("/observe/sweep", file.observe.sweep, plain.extra.sweep_every),
            orphans: match file.orphans {
                OrphanSetting::Report => OrphanPolicy::Report,
                OrphanSetting::Destroy => OrphanPolicy::Destroy,
            },
            create_share: file.limits.creates.unwrap_or(plain.extra.create_share),
            cleanup_share: file.limits.cleanups.unwrap_or(plain.extra.cleanup_share),
        },
    };
    for (at, share) in [("creates", policy.extra.create_share), ("cleanups", policy.extra.cleanup_share)] {
        if share == 0 {
            found.push((
                format!("/limits/{at}"),
                "with 0 nothing would ever be done; write 1 or more".to_owned(),
            ));
        }
    }
    policy
}

/// A ratio from 0 to 1 in thousandths.
fn per_mille(ratio: f64) -> u16 {
    (0..=1000).rev().find(|step| f64::from(*step) <= ratio * 1000.0).unwrap_or(0)
}

/// A duration that must not be zero: zero would mean a busy loop.
fn timing(at: &str, value: Option<DurationText>, found: &mut Vec<(String, String)>) -> Option<Duration> {
    match value?.0 {
        Duration::ZERO => {
            found.push((at.to_owned(), "must be longer than zero".to_owned()));
            None
        }
        duration => Some(duration),
    }
}

fn positive(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("must be longer than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// The value, or a note of what is wrong.
fn note<T, E: ToString>(result: Result<T, E>, at: String, found: &mut Vec<(String, String)>) -> Option<T> {
    result.map_err(|error| found.push((at, error.to_string()))).ok()
}

/// No settings at all are `null`, so that `boot: {}` and no `boot` are the same spec.
fn object(map: serde_json::Map<String, Value>) -> Value {
    if map.is_empty() { Value::Null } else { Value::Object(map) }
}
