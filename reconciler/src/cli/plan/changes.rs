//! Which nodes a file would make, replace or remove, read off the stored state. Also what `apply` asks about.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use executor_api::{GroupId, LogicalNodeId, LogicalNodeSpec, RunId};
use reconciler::file::Loaded;
use reconciler::providers;
use reconciler_core::{
    ClusterState, Expanded, ManagedNode, NodeIntent, SpecField, Why, decide_slot, slot_converged,
};
use reconciler_driver::TokioTimer;
use serde::Serialize;

use crate::cli::failure::Failure;
use crate::run::dir::RunDir;
use crate::run::intent::{Intent, Notes};
use crate::run::live::site;
use crate::run::state::Stored;

/// What happens to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verb {
    /// There is none yet.
    Create,
    /// Its attempt makes place for another one.
    Replace,
    /// It goes.
    Remove,
    /// It is on its way already.
    Continue,
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Remove => "remove",
            Self::Continue => "continue",
        })
    }
}

/// One node that changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Change {
    /// The node.
    pub(crate) node: LogicalNodeId,
    /// Its group.
    pub(crate) group: GroupId,
    /// What happens to it.
    #[serde(rename = "change")]
    pub(crate) verb: Verb,
    /// Why.
    pub(crate) why: String,
}

/// How many nodes of a group are replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Replacement {
    /// The group.
    pub(crate) group: GroupId,
    /// How many.
    pub(crate) count: usize,
    /// How many at once; no limit if absent.
    pub(crate) at_once: Option<u32>,
}

/// A file against the stored state.
#[derive(Debug)]
pub(crate) struct Changes {
    /// What is stored, if the run exists.
    pub(crate) stored: Option<Stored>,
    /// What the file asks for.
    pub(crate) intent: Intent,
    /// The nodes that change.
    pub(crate) list: Vec<Change>,
    /// What is in force already, slot by slot.
    accepted: BTreeMap<LogicalNodeId, LogicalNodeSpec>,
    desired: BTreeMap<LogicalNodeId, LogicalNodeSpec>,
}

impl Changes {
    /// Reads and validates; changes nothing. `path` is the file's absolute path.
    pub(crate) async fn of(
        dir: &RunDir,
        loaded: &Loaded,
        path: &Path,
        rebind: bool,
    ) -> Result<Self, Failure> {
        let stored = Stored::look(dir)?;
        let run = match &stored {
            Some(stored) => stored.image.run.clone(),
            None => RunId::new(dir.run(), "unminted").map_err(|error| Failure::error(error.to_string()))?,
        };
        let notes = stored.as_ref().map_or_else(Notes::default, |stored| stored.notes.clone());
        let accepted = stored.as_ref().map(|stored| &stored.image.desired);
        let intent = Intent::of_file(&loaded.declared, path, &run, accepted, &notes, rebind)?;
        let table = providers::executors(&site(dir, Arc::new(TokioTimer::new()))?);
        let found = providers::validate(&table, &intent.shape).await;
        if !found.is_empty() {
            return Err(loaded.problems(found).into());
        }
        let expanded = |shape| Expanded::of(shape).map_err(|error| Failure::error(error.to_string()));
        let desired = expanded(&intent.shape)?;
        let accepted = accepted.map(expanded).transpose()?.map(|expanded| expanded.specs);
        let nothing = ClusterState::default();
        let state = stored.as_ref().map_or(&nothing, |stored| &stored.image.state);
        let list = list(state, &desired, SystemTime::now());
        Ok(Self { stored, intent, list, accepted: accepted.unwrap_or_default(), desired: desired.specs })
    }

    /// The generation in force; 0 for a run that does not exist yet.
    pub(crate) fn accepted_generation(&self) -> u64 {
        self.stored.as_ref().map_or(0, |stored| stored.image.desired.generation)
    }

    /// Whether timing or limits differ from what is in force, while no node does.
    pub(crate) fn settings_change(&self) -> bool {
        let Some(stored) = &self.stored else { return false };
        let shape = self.intent.shape.generation != stored.image.desired.generation;
        self.intent.notes.policy != stored.notes.policy || (shape && self.list.is_empty())
    }

    /// The nodes that live by what is in force, and whose present attempt would end. What somebody asked for before is
    /// not asked again: any driver goes on with it.
    pub(crate) fn newly_lost(&self) -> Vec<String> {
        let Some(stored) = &self.stored else { return Vec::new() };
        let lost = |change: &&Change| {
            let slot = &change.node;
            let ending = stored.image.state.nodes.get(slot).is_some_and(is_ending);
            let (before, after) = (self.accepted.get(slot), self.desired.get(slot));
            let as_before = before
                .zip(after)
                .is_some_and(|(before, after)| SpecField::differing(before, after).is_empty());
            match change.verb {
                Verb::Replace => !ending && !as_before,
                Verb::Remove => before.is_some(),
                Verb::Create | Verb::Continue => false,
            }
        };
        self.list.iter().filter(lost).map(|change| change.node.to_string()).collect()
    }

    /// How many are replaced in each group, and how many at once.
    pub(crate) fn replacements(&self) -> Vec<Replacement> {
        let mut counts: BTreeMap<&GroupId, usize> = BTreeMap::new();
        for change in self.list.iter().filter(|change| change.verb == Verb::Replace) {
            *counts.entry(&change.group).or_default() += 1;
        }
        let limit = |id: &GroupId| {
            self.intent.shape.groups.iter().find(|group| group.group_id == *id)?.update.max_unavailable
        };
        counts
            .into_iter()
            .map(|(id, count)| Replacement { group: id.clone(), count, at_once: limit(id) })
            .collect()
    }
}

fn list(state: &ClusterState, desired: &Expanded, now: SystemTime) -> Vec<Change> {
    let mut slots: Vec<_> = state.nodes.keys().chain(desired.specs.keys()).collect();
    slots.sort();
    slots.dedup();
    let changes = slots.into_iter().filter_map(|slot| {
        let node = state.nodes.get(slot);
        let spec = desired.specs.get(slot);
        let (verb, why) = match (node, spec) {
            (None, None) => return None,
            (None, Some(_)) => (Verb::Create, Why::Declared.to_string()),
            (Some(_), None) => (Verb::Remove, Why::Undeclared.to_string()),
            (Some(node), Some(spec)) => {
                let fields = SpecField::differing(&node.record.desired, spec);
                if !fields.is_empty() {
                    (Verb::Replace, Why::SpecChanged { fields }.to_string())
                } else if slot_converged(state, desired, slot) {
                    return None;
                } else {
                    (on_its_way(node), decide_slot(state, desired, slot, now).why.to_string())
                }
            }
        };
        let group = spec.or_else(|| node.map(|node| &node.record.desired))?.group.clone();
        Some(Change { node: slot.clone(), group, verb, why })
    });
    changes.collect()
}

fn on_its_way(node: &ManagedNode) -> Verb {
    if is_ending(node) { Verb::Replace } else { Verb::Continue }
}

/// Whether its present attempt ends whatever the file says.
fn is_ending(node: &ManagedNode) -> bool {
    node.intent == NodeIntent::Deleting || node.extra.replace_requested
}
