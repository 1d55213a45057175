//! One arbiter: which nodes of a run are held for plans of gated maintenance. A plan leaves a link beside its state that
//! names the run and the nodes on its hosts; what it holds is read from the plan's own record, so that a crash of either
//! process changes nothing. Whoever drives the run heeds the plans before its first pass, when a plan says so, and every
//! now and then.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use executor_api::LogicalNodeId;
use reconciler_core::{Hold, HoldBy, Holds};
use reconciler_driver::maintenance::{PlanStore as _, SqlitePlanStore, hold_of};
use serde::{Deserialize, Serialize};

use crate::cli::failure::Failure;
use crate::run::dir::RunDir;

/// What a plan's directory is called: this, and the plan's name.
pub(crate) const PREFIX: &str = "maintenance-";

/// The run whose nodes live on a plan's hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Link {
    /// The run.
    pub(crate) run: String,
    /// Its nodes there. Empty: all of them.
    pub(crate) nodes: Vec<LogicalNodeId>,
}

/// What plans hold of a run, and what its user should know of that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// What is to be held.
    pub(crate) held: Held,
    /// Plans of which too little can be read.
    pub(crate) warnings: Vec<String>,
}

/// What is held: a node, or for `None` all of them.
pub(crate) type Held = BTreeMap<Option<LogicalNodeId>, Hold>;

/// One change of a run's holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// From now on.
    Hold(Option<LogicalNodeId>, Hold),
    /// No longer.
    Release(Option<LogicalNodeId>),
}

impl Link {
    /// The file in a plan's directory in which it is kept.
    const FILE: &str = "cluster.json";

    /// Puts a plan's link in place, or removes it where the plan names no run.
    #[cfg(feature = "host-fake")]
    pub(crate) fn keep(link: Option<&Self>, plan: &RunDir) -> Result<(), Failure> {
        use std::fs::File;
        use std::io::Write as _;

        let path = plan.path().join(Self::FILE);
        let doing = format!("writing {}", path.display());
        let failed = |error: std::io::Error| Failure::while_doing(&doing, &error);
        let Some(link) = link else {
            return crate::run::state::remove_if_there(&path).map_err(failed);
        };
        let text = serde_json::to_string(link).map_err(|error| Failure::while_doing(&doing, &error))?;
        let new = path.with_extension("new");
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&new, &path)?;
            File::open(plan.path())?.sync_all()
        };
        write().map_err(failed)
    }

    /// A plan's link, if it has one.
    pub(crate) fn of(plan: &Path) -> Result<Option<Self>, Failure> {
        let path = plan.join(Self::FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(Failure::while_doing(format_args!("reading {}", path.display()), &error));
            }
        };
        let read = serde_json::from_str(&text);
        read.map(Some)
            .map_err(|error| Failure::while_doing(format_args!("reading {}", path.display()), &error))
    }
}

/// What plans hold of a run, by their records; `now` is what is held already. A plan that cannot be read holds what its
/// link names: nobody knows how far it is. One whose link cannot be read holds what it held, which the run has stored: no
/// plan touches anything before that.
pub(crate) fn wanted(run: &RunDir, now: &Held) -> Result<Wanted, Failure> {
    let mut wanted = Wanted::default();
    let Some(root) = run.path().parent() else { return Ok(wanted) };
    let doing = || format!("looking for plans of maintenance in {}", root.display());
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(wanted),
        Err(error) => return Err(Failure::while_doing(doing(), &error)),
    };
    for entry in entries {
        let plan = entry.map_err(|error| Failure::while_doing(doing(), &error))?;
        if !plan.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let plan = plan.path();
        let link = match Link::of(&plan) {
            Ok(None) => continue,
            Ok(Some(link)) if link.run != run.run() => continue,
            Ok(Some(link)) => Ok(link),
            Err(failure) => Err(failure),
        };
        let Some(hold) = hold_in(&plan) else { continue };
        let slots: Vec<_> = match link {
            Ok(link) if link.nodes.is_empty() => vec![None],
            Ok(link) => link.nodes.into_iter().map(Some).collect(),
            Err(failure) => {
                wanted.warnings.push(bad_link(&failure));
                now.iter().filter(|(_, hold)| is_of(hold, &plan)).map(|(slot, _)| slot.clone()).collect()
            }
        };
        for slot in slots {
            wanted.held.entry(slot).or_insert_with(|| hold.clone());
        }
    }
    Ok(wanted)
}

/// Whether a run held this for the plan in a directory.
fn is_of(hold: &Hold, plan: &Path) -> bool {
    let name = plan.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.strip_prefix(PREFIX).unwrap_or_default();
    let uid = hold.reason.strip_prefix("plan ").and_then(|rest| rest.split_once(' ')).map(|(uid, _)| uid);
    // A plan's uid is its name, and digits of its run.
    let named = uid.and_then(|uid| uid.rsplit_once('-')).is_some_and(|(of, _)| of == name);
    named || hold.reason.starts_with(&unread(plan))
}

/// The reason of a hold for a plan whose record cannot be read.
fn unread(plan: &Path) -> String {
    format!("the plan in {} cannot be read", plan.display())
}

fn bad_link(failure: &Failure) -> String {
    format!(
        "{}; which nodes its plan of maintenance names is not known, and those that it held stay held. `maintenance run \
         PLAN --approve --again` writes the file anew, `maintenance abort PLAN --give-up` ends a plan that nobody drives",
        failure.message
    )
}

/// What the plan in a directory holds.
fn hold_in(plan: &Path) -> Option<Hold> {
    let path = plan.join("plan.db");
    let unreadable = |error: &dyn std::error::Error| {
        let reason = format!("{}: {error}", unread(plan));
        Some(Hold { by: HoldBy::Maintenance, reason, since: SystemTime::now() })
    };
    match SqlitePlanStore::is_there(&path) {
        Ok(true) => {}
        Ok(false) => return None,
        Err(error) => return unreadable(&error),
    }
    match SqlitePlanStore::open_read_only(&path).and_then(|mut store| store.load()) {
        Ok(record) => record.and_then(|record| hold_of(&record.plan, &record.state)),
        Err(error) => unreadable(&error),
    }
}

/// What maintenance holds already.
pub(crate) fn held(holds: &Holds) -> Held {
    let cluster = holds.cluster.get(&HoldBy::Maintenance).map(|hold| (None, hold.clone()));
    let slots = holds
        .slots
        .iter()
        .filter_map(|(slot, holds)| Some((Some(slot.clone()), holds.get(&HoldBy::Maintenance)?.clone())));
    cluster.into_iter().chain(slots).collect()
}

/// The way from what is held to what should be, on which no node that is held before and after is free in between:
/// another reason is put over the former one, and only what is in force already makes room for a release.
pub(crate) fn changes(held: &Held, wanted: &Held) -> Vec<Change> {
    let new =
        wanted.iter().filter(|(slot, hold)| held.get(slot).is_none_or(|held| held.reason != hold.reason));
    let holds = new.map(|(slot, hold)| Change::Hold(slot.clone(), hold.clone()));
    let releases = held.keys().filter(|slot| !wanted.contains_key(slot)).cloned().map(Change::Release);
    holds.chain(releases).collect()
}

/// Makes the changes in stored holds.
pub(crate) fn make(changes: &[Change], holds: &mut Holds) {
    for change in changes {
        match change {
            Change::Hold(slot, hold) => holds.hold(slot.clone(), hold.clone()),
            Change::Release(slot) => {
                holds.release(slot.as_ref(), HoldBy::Maintenance);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(reason: &str) -> Hold {
        Hold { by: HoldBy::Maintenance, reason: reason.to_owned(), since: SystemTime::UNIX_EPOCH }
    }

    fn id(text: &str) -> LogicalNodeId {
        LogicalNodeId::parse(text).unwrap()
    }

    #[test]
    fn holds_follow_the_plans_and_leave_the_operators_alone() {
        let mut holds = Holds::default();
        holds.hold(Some(id("web-1")), Hold { by: HoldBy::Operator, ..hold("paused") });
        let first = Held::from([(Some(id("web-1")), hold("plan a")), (Some(id("web-2")), hold("plan a"))]);
        make(&changes(&held(&holds), &first), &mut holds);
        assert_eq!(held(&holds), first);
        assert_eq!(changes(&held(&holds), &first), []);
        let second = Held::from([(Some(id("web-2")), hold("plan b")), (None, hold("plan c"))]);
        make(&changes(&held(&holds), &second), &mut holds);
        assert_eq!(held(&holds), second);
        make(&changes(&held(&holds), &Held::new()), &mut holds);
        assert_eq!(held(&holds), Held::new());
        assert_eq!(holds.slots.len(), 1, "the operator's stands");
    }

    /// Makes the changes one after another, as a driver does with passes in between; each node that is held before and
    /// after must be held at every point.
    fn goes_without_a_gap(before: &Held, after: &Held) {
        let mut holds = Holds::default();
        for (slot, hold) in before {
            holds.hold(slot.clone(), hold.clone());
        }
        let on = |held: &Held, node: &LogicalNodeId| {
            held.contains_key(&None) || held.contains_key(&Some(node.clone()))
        };
        let nodes = ["web-1", "web-2", "web-3"].map(id);
        let throughout: Vec<_> = nodes.iter().filter(|node| on(before, node) && on(after, node)).collect();
        for change in changes(before, after) {
            make(std::slice::from_ref(&change), &mut holds);
            for node in &throughout {
                assert!(holds.on(node).is_some(), "{node} is free after {change:?}: {before:?} -> {after:?}");
            }
        }
        let reasons =
            |held: &Held| held.iter().map(|(on, hold)| (on.clone(), hold.reason.clone())).collect::<Vec<_>>();
        assert_eq!(reasons(&held(&holds)), reasons(after));
    }

    #[test]
    fn a_node_that_is_held_before_and_after_is_held_all_the_way() {
        let (one, two) = (Some(id("web-1")), Some(id("web-2")));
        let some = [
            Held::new(),
            Held::from([(one.clone(), hold("plan a"))]),
            Held::from([(one.clone(), hold("plan a cannot be read"))]),
            Held::from([(one.clone(), hold("plan b")), (two.clone(), hold("plan b"))]),
            Held::from([(None, hold("plan a"))]),
            Held::from([(None, hold("plan c")), (two, hold("plan a"))]),
        ];
        for before in &some {
            for after in &some {
                goes_without_a_gap(before, after);
            }
        }
        let (before, after) = (&some[1], &some[2]);
        assert_eq!(changes(before, after), [Change::Hold(one, hold("plan a cannot be read"))]);
    }

    #[test]
    fn a_plan_that_cannot_be_read_holds_the_nodes_that_it_names_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        let (run, other) = (RunDir::of(root.path(), "demo"), RunDir::of(root.path(), "other"));
        assert_eq!(held_of(&run, &Held::new()), Held::new());
        let plan = RunDir::of(root.path(), "maintenance-flip");
        plan.create().unwrap();
        let link = Link { run: "demo".to_owned(), nodes: vec![id("web-1")] };
        Link::keep(Some(&link), &plan).unwrap();
        assert_eq!(held_of(&run, &Held::new()), Held::new(), "nothing was filed yet");
        std::fs::write(plan.path().join("plan.db"), "no database").unwrap();
        let held = held_of(&run, &Held::new());
        assert_eq!(held.keys().collect::<Vec<_>>(), [&Some(id("web-1"))]);
        assert!(held[&Some(id("web-1"))].reason.contains("cannot be read"));
        assert_eq!(held_of(&other, &Held::new()), Held::new());
        Link::keep(None, &plan).unwrap();
        assert_eq!(held_of(&run, &Held::new()), Held::new());
    }

    fn held_of(run: &RunDir, now: &Held) -> Held {
        wanted(run, now).unwrap().held
    }

    #[test]
    fn a_link_that_cannot_be_read_keeps_what_its_plan_held_and_stops_no_run() {
        let root = tempfile::tempdir().unwrap();
        let (run, other) = (RunDir::of(root.path(), "demo"), RunDir::of(root.path(), "other"));
        let plan = RunDir::of(root.path(), "maintenance-flip");
        plan.create().unwrap();
        let link = plan.path().join("cluster.json");
        for torn in ["", "{ \"run\": \"de", "\0\0\0\0"] {
            std::fs::write(&link, torn).unwrap();
            assert_eq!(
                wanted(&run, &Held::new()).unwrap(),
                Wanted::default(),
                "nothing was filed, or it is over"
            );
        }
        std::fs::write(plan.path().join("plan.db"), "no database").unwrap();
        let held = Held::from([
            (Some(id("web-1")), hold("plan flip-00ff works on w1 and w2")),
            (Some(id("web-2")), hold("plan flip-two-00ff works on w3 and w4")),
            (Some(id("web-3")), hold(&format!("{}: no database", unread(plan.path())))),
        ]);
        let found = wanted(&run, &held).unwrap();
        assert_eq!(found.held.keys().flatten().collect::<Vec<_>>(), [&id("web-1"), &id("web-3")]);
        let [warning] = found.warnings.as_slice() else { panic!("{found:?}") };
        assert!(
            warning.contains("maintenance-flip/cluster.json") && warning.contains("--give-up"),
            "{warning}"
        );
        let found = wanted(&other, &Held::new()).unwrap();
        assert_eq!((found.held, found.warnings.len()), (Held::new(), 1), "told, and not stopped");
        Link::keep(Some(&Link { run: "demo".to_owned(), nodes: vec![id("web-2")] }), &plan).unwrap();
        let found = wanted(&run, &held).unwrap();
        assert_eq!(found.held.keys().flatten().collect::<Vec<_>>(), [&id("web-2")]);
        assert_eq!(found.warnings, [""; 0]);
        assert!(!plan.path().join("cluster.new").exists());
    }
}
