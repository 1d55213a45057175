//! From what a user says (a file, a scale, a destroy) to the shape that comes next: whose file it is, which
//! generation it gets, which counts stand. Pure; `plan`, the opening of a run and a live driver use the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use executor_api::{GroupId, ProviderName, RunId};
use reconciler::file::Declared;
use reconciler_core::{ClusterShape, RetryPolicy};
use serde::{Deserialize, Serialize};

use crate::cli::failure::Failure;
use crate::cli::view::Override;

/// What is remembered of a run beside its shape and its nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Notes {
    /// The cluster file, absolute.
    pub(crate) file: Option<PathBuf>,
    /// The file's own count of each group.
    pub(crate) file_counts: BTreeMap<GroupId, u32>,
    /// Counts that stand instead.
    pub(crate) overrides: BTreeMap<GroupId, Override>,
    /// Every provider that was ever declared: what lives there of this run is found even when no node needs it now.
    pub(crate) providers: BTreeSet<ProviderName>,
    /// The run's timing, so that commands without the file keep to it.
    pub(crate) policy: RetryPolicy,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Intent {
    /// The shape, with its generation.
    pub(crate) shape: ClusterShape,
    /// What to remember.
    pub(crate) notes: Notes,
    /// What the user should know.
    pub(crate) notices: Vec<String>,
}

impl Intent {
    /// What a file says. `accepted` is the last accepted shape, if there is one.
    pub(crate) fn of_file(
        declared: &Declared,
        file: &Path,
        run: &RunId,
        accepted: Option<&ClusterShape>,
        notes: &Notes,
        rebind: bool,
    ) -> Result<Self, Failure> {
        if let Some(bound) = notes.file.as_deref().filter(|bound| *bound != file)
            && !rebind
        {
            return Err(Failure::refused(format!(
                "run {} belongs to the file {}, not to {}; use another run name, or --rebind to hand the run over",
                run.name(),
                bound.display(),
                file.display()
            )));
        }
        let mut notices = Vec::new();
        let file_counts: BTreeMap<GroupId, u32> =
            declared.counts().map(|(id, count)| (id.clone(), count)).collect();
        let mut overrides = notes.overrides.clone();
        overrides.retain(|group, over| match file_counts.get(group) {
            Some(count) if *count == over.file_count => true,
            Some(count) => {
                notices.push(format!(
                    "group {group}: the file now says {count} instead of {}, so its scale to {} is dropped",
                    over.file_count, over.count
                ));
                false
            }
            None => {
                notices.push(format!(
                    "group {group} is no longer in the file; its scale to {} is dropped",
                    over.count
                ));
                false
            }
        });
        let counts = overrides.iter().map(|(group, over)| (group.clone(), over.count)).collect();
        let shape = next(declared.shape(run, 1, &counts), accepted);
        let mut providers = notes.providers.clone();
        providers.extend(shape.groups.iter().map(|group| group.template.provider.clone()));
        let notes = Notes {
            file: Some(file.to_owned()),
            file_counts,
            overrides,
            providers,
            policy: declared.policy.clone(),
        };
        Ok(Self { shape, notes, notices })
    }

    /// Another count for one group.
    pub(crate) fn scaled(
        accepted: &ClusterShape,
        notes: &Notes,
        group: &GroupId,
        count: u32,
    ) -> Result<Self, Failure> {
        let mut shape = accepted.clone();
        let Some(found) = shape.groups.iter_mut().find(|candidate| candidate.group_id == *group) else {
            let known: Vec<_> = accepted.groups.iter().map(|group| group.group_id.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Failure::error(format!(
                "run {} has no group {group}; it has {known}",
                accepted.run_id.name()
            )));
        };
        let before = std::mem::replace(&mut found.count, count);
        let mut notes = notes.clone();
        let file_count = notes.file_counts.get(group).copied().unwrap_or(before);
        if count == file_count {
            notes.overrides.remove(group);
        } else {
            notes.overrides.insert(group.clone(), Override { count, file_count });
        }
        reconciler_core::Expanded::of(&shape).map_err(|error| Failure::error(error.to_string()))?;
        Ok(Self { shape: next(shape, Some(accepted)), notes, notices: Vec::new() })
    }

    /// No nodes at all.
    pub(crate) fn nothing(accepted: &ClusterShape, notes: &Notes) -> Self {
        let shape = ClusterShape { run_id: accepted.run_id.clone(), generation: 1, groups: Vec::new() };
        let notes = Notes { overrides: BTreeMap::new(), file_counts: BTreeMap::new(), ..notes.clone() };
        Self { shape: next(shape, Some(accepted)), notes, notices: Vec::new() }
    }
}

/// The shape with its generation: that of the accepted one if they are equal, else the one after it.
fn next(mut shape: ClusterShape, accepted: Option<&ClusterShape>) -> ClusterShape {
    shape.generation = match accepted {
        None => 1,
        Some(accepted) if accepted.groups == shape.groups => accepted.generation,
        Some(accepted) => accepted.generation.saturating_add(1),
    };
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> RunId {
        RunId::new("demo", "u1").unwrap()
    }

    fn declared(count: u32, more: &str) -> Declared {
        let text =
            format!("run: demo\n{more}\ngroups:\n  - {{ name: web, count: {count}, provider: fake }}\n");
        reconciler::file::parse(Path::new("c"), text).unwrap().declared
    }

    fn of(declared: &Declared, accepted: Option<&Intent>) -> Intent {
        let notes = accepted.map(|a| a.notes.clone()).unwrap_or_default();
        Intent::of_file(declared, Path::new("/c"), &run(), accepted.map(|a| &a.shape), &notes, false).unwrap()
    }

    fn web() -> GroupId {
        GroupId::new("web").unwrap()
    }

    #[test]
    fn the_generation_follows_the_shape_and_not_the_text() {
        let first = of(&declared(3, ""), None);
        assert_eq!(first.shape.generation, 1);
        assert_eq!(of(&declared(3, "# a remark"), Some(&first)).shape.generation, 1);
        assert_eq!(of(&declared(3, "retry: { cap: 5s }"), Some(&first)).shape.generation, 1);
        assert_eq!(of(&declared(4, ""), Some(&first)).shape.generation, 2);
    }

    #[test]
    fn a_scale_stands_until_the_file_changes_its_own_count() {
        let first = of(&declared(3, ""), None);
        let scaled = Intent::scaled(&first.shape, &first.notes, &web(), 5).unwrap();
        assert_eq!((scaled.shape.generation, scaled.shape.groups[0].count), (2, 5));
        let same = of(&declared(3, "# touched"), Some(&scaled));
        assert_eq!((same.shape.generation, same.shape.groups[0].count, same.notices.len()), (2, 5, 0));
        let changed = of(&declared(2, ""), Some(&scaled));
        assert_eq!((changed.shape.generation, changed.shape.groups[0].count), (3, 2));
        assert_eq!(changed.notices.len(), 1);
        assert!(changed.notes.overrides.is_empty());
    }

    #[test]
    fn scaling_to_the_files_own_count_is_no_override() {
        let first = of(&declared(3, ""), None);
        let scaled = Intent::scaled(&first.shape, &first.notes, &web(), 5).unwrap();
        let back = Intent::scaled(&scaled.shape, &scaled.notes, &web(), 3).unwrap();
        assert!(back.notes.overrides.is_empty());
        assert_eq!(back.shape.generation, 3);
    }

    #[test]
    fn an_unknown_group_is_named_with_those_that_exist() {
        let first = of(&declared(3, ""), None);
        let error = Intent::scaled(&first.shape, &first.notes, &GroupId::new("db").unwrap(), 1).unwrap_err();
        assert_eq!(error.message, "run demo has no group db; it has web");
    }

    #[test]
    fn another_file_is_refused_unless_the_run_is_handed_over() {
        let first = of(&declared(3, ""), None);
        let other = |rebind| {
            Intent::of_file(
                &declared(1, ""),
                Path::new("/other"),
                &run(),
                Some(&first.shape),
                &first.notes,
                rebind,
            )
        };
        let refusal = other(false).unwrap_err();
        assert!(
            refusal.message.contains("/c") && refusal.message.contains("--rebind"),
            "{}",
            refusal.message
        );
        assert_eq!(other(true).unwrap().notes.file.as_deref(), Some(Path::new("/other")));
    }
}
