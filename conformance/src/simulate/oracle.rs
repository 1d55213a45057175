//! What a running schedule knows beside the driver: the first violation, how often each thing happened, what
//! is durable, and what was already sent. Shared by everything that watches; changes nothing it watches.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use executor_api::{
    BootstrapSessionId, LeaseOwner, Life, Listing, LogicalNodeId, NodeAttemptId, OperationId, OperationReport,
};
use reconciler_driver::StateImage;
use reconciler_driver::runner::CrashPoint;

use super::plan::{Clock, Disk, Disturbance, Fate, Plan, ShapePlan, WriteFault, run};

/// The rules that are watched, each with what it says.
pub const RULES: &[(&str, &str)] = &[
    ("S1", "folds and applications depend on nothing but what they are given"),
    ("S2", "equal states give equal plans, whatever led to them and whoever read them back"),
    ("S3", "only the latest declared spec is ever acted on, and an attempt never changes its spec"),
    ("S4", "the state changes only with the driver's own count of changes"),
    ("S5", "a fold takes in facts, truthfully, and decides nothing"),
    ("S6", "at most one action for a slot, in order; a fresh plan is never stale"),
    ("S7", "nothing is sent that is not recorded durably"),
    ("S8", "a stale result changes nothing"),
    ("S9", "nothing rests that could take a step, and no stored time is slept past"),
    (
        "S10",
        "nothing is given up while something of it exists or can still come; deleting is never taken back",
    ),
    ("S11", "attempt and operation ids are given out once"),
    ("S12", "a slot that fails for ever keeps no other from converging"),
    ("S13", "a pass waits for no executor, and looks at no more than what changed"),
    ("S14", "acknowledged is not ready; ready is only who joined"),
    ("S15", "equal inputs give equal plans"),
    ("P1", "one live lease and one live session for an attempt, one lease for a slot"),
    ("P2", "nothing lives that the state does not refer to"),
    ("P3", "nothing is ended that is to live, belongs to another run, or is held"),
    ("P4", "an unknown outcome stays marked until it is adopted or proved absent"),
    ("P5", "an operation reaches its executor once"),
    ("P6", "what a restarted driver knows is what was stored last"),
    (
        "P7",
        "after a failed write nothing new is sent, and nothing is written until the store was opened anew",
    ),
    ("P8", "a state that is old, lost or unreadable changes nothing while the world contradicts it"),
    ("P9", "time never goes back, and every operation gets its time"),
    ("P10", "no hot loop: a wait after every failure, and no wait cut short"),
    ("P11", "every attempt given out is there or was retired"),
    ("L1", "when disturbances end, the world becomes what is declared, and stays so"),
    ("L2", "the same without any safety tick"),
    ("L3", "the same after a crash at any store write"),
    ("L4", "whoever is not steady waits for something that has a time or a name"),
    ("L5", "under permanent trouble nodes are still ready for most of the time"),
];

/// Something that must never happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which of the [`RULES`], or `panic`.
    pub rule: &'static str,
    /// The slot, if it is about one.
    pub node: Option<LogicalNodeId>,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.rule)?;
        if let Some(node) = &self.node {
            write!(f, "{node}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// The handle to the shared knowledge.
#[derive(Clone, Debug)]
pub(super) struct Watch(Arc<Mutex<Oracle>>);

/// A state that is not the newest: an older one, or none at all.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Astray {
    pub(super) image: Option<StateImage>,
}

/// The shared knowledge.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and they come in all combinations"
)]
pub(super) struct Oracle {
    pub(super) violation: Option<Violation>,
    /// How often each thing happened.
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// What happened, for a story; `None` when nobody asked for one.
    pub(super) story: Option<Vec<String>>,
    pub(super) start: Option<SystemTime>,
    /// No more disturbances.
    pub(super) calm: bool,

    // What is still to go wrong.
    pub(super) deliveries: BTreeMap<(Option<LogicalNodeId>, u64), Fate>,
    pub(super) delivered: BTreeMap<Option<LogicalNodeId>, u64>,
    pub(super) delayed_until: BTreeMap<Option<LogicalNodeId>, SystemTime>,
    pub(super) crash_points: BTreeMap<u64, Vec<(CrashPoint, Clock, Disk)>>,
    pub(super) failing_commits: BTreeMap<u64, WriteFault>,
    /// How many states before the newest one are kept, to be put back.
    pub(super) kept: usize,
    pub(super) commits: u64,
    pub(super) behind: Option<(Duration, u32)>,
    /// What the wall clock says at the next load.
    pub(super) clock: Option<Clock>,
    /// What the disk holds at the next load.
    pub(super) disk: Option<Disk>,
    /// The state of this process is not the newest.
    pub(super) astray: Option<Astray>,
    /// What nobody could have known: nothing that follows proves anything.
    pub(super) void: bool,

    // What is durable.
    /// The pending operation of each slot in the store.
    pub(super) durable: BTreeMap<LogicalNodeId, OperationId>,
    pub(super) durable_generation: u64,
    pub(super) durable_next_attempt: u64,
    pub(super) store_failed: bool,
    /// What the last restart found.
    pub(super) loaded: Option<StateImage>,

    // What was sent.
    pub(super) entries: u64,
    pub(super) entered: BTreeSet<OperationId>,
    pub(super) owners: BTreeMap<NodeAttemptId, (LogicalNodeId, String)>,
    pub(super) recent: BTreeMap<LogicalNodeId, VecDeque<SystemTime>>,
    /// Specs that were in force for no pass.
    pub(super) skipped: BTreeSet<String>,
    pub(super) in_force: BTreeSet<String>,

    // This life of the process.
    /// It asks what there is before it trusts its state.
    pub(super) guarded: bool,
    /// It was told everything that its provider holds.
    pub(super) asked: bool,
    /// What it was told that its state cannot explain.
    pub(super) contradicted: Option<String>,
    pub(super) last_now: Option<SystemTime>,
    pub(super) last_generation: u64,
    pub(super) next_attempt: u64,
    pub(super) retired: u64,
    pub(super) base: Option<u64>,
    pub(super) passes: u64,
    /// Folds and applications so far.
    pub(super) turns: u64,
    /// Results that were repeated or late, to be tried on the fold once they are stale.
    pub(super) reports: BTreeMap<OperationId, OperationReport>,
    /// Sessions whose node joined, in the world.
    pub(super) joined: BTreeSet<BootstrapSessionId>,
}

impl Watch {
    pub(super) fn new(plan: &Plan, story: bool) -> Self {
        let mut oracle = Oracle { story: story.then(Vec::new), guarded: plan.guarded, ..Oracle::default() };
        for disturbance in &plan.disturbances {
            match disturbance {
                Disturbance::Delivery { node, nth, fate } => {
                    oracle.deliveries.insert((node.clone(), *nth), *fate);
                }
                Disturbance::Crash { commit, point, clock, disk } => {
                    oracle.crash_points.entry(*commit).or_default().push((*point, *clock, *disk));
                    if let Disk::Older { writes } = disk {
                        oracle.kept = oracle.kept.max(*writes);
                    }
                }
                Disturbance::CommitFails { commit, how } => {
                    oracle.failing_commits.insert(*commit, *how);
                }
                Disturbance::Call { .. } | Disturbance::Act { .. } => {}
            }
        }
        Self(Arc::new(Mutex::new(oracle)))
    }

    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Oracle) -> R) -> R {
        // A planted bug may panic half-way through a check; what was known until then still counts.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Oracle {
    /// Something must not be. Only the first is kept: the rest may follow from it.
    pub(super) fn violated(
        &mut self,
        rule: &'static str,
        node: Option<&LogicalNodeId>,
        what: impl FnOnce() -> String,
    ) {
        if self.violation.is_none() && !self.void {
            self.violation = Some(Violation { rule, node: node.cloned(), what: what() });
        }
    }

    /// Something must be.
    pub(super) fn demand(
        &mut self,
        holds: bool,
        rule: &'static str,
        node: Option<&LogicalNodeId>,
        what: impl FnOnce() -> String,
    ) {
        if !holds {
            self.violated(rule, node, what);
        }
    }

    /// The driver took this for the present.
    pub(super) fn clock(&mut self, now: SystemTime) {
        let earlier = self.last_now.replace(now);
        self.demand(earlier.is_none_or(|last| last <= now), "P9", None, || {
            "the driver's time went back".to_owned()
        });
    }

    pub(super) fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    /// Adds a line to the story, if there is one.
    pub(super) fn tell(&mut self, now: SystemTime, line: impl FnOnce() -> String) {
        let start = self.start.unwrap_or(now);
        if let Some(story) = &mut self.story {
            let at = now.duration_since(start).unwrap_or_default();
            let at = format!("{}.{:03}s", at.as_secs(), at.subsec_millis());
            story.push(format!("+{at:<10} {}", line()));
        }
    }

    /// A new process starts from what is durable.
    pub(super) fn reborn(&mut self) {
        self.last_now = None;
        self.last_generation = 0;
        self.next_attempt = self.durable_next_attempt;
        self.base = None;
        self.retired = 0;
        self.reports.clear();
        self.delayed_until.clear();
        self.store_failed = false;
        self.asked = false;
        self.contradicted = None;
    }

    /// The driver was told what its provider holds.
    pub(super) fn listed(&mut self, listing: &Listing) {
        self.asked |= listing.complete;
        let Some(Astray { image }) = &self.astray else { return };
        let next = image.as_ref().map_or(1, |image| image.state.next_attempt_id);
        let newer = listing.leases.iter().find(|listed| {
            let LeaseOwner::Attempt(key) = &listed.owner else { return false };
            let lives = matches!(listed.life, Life::Pending | Life::Live);
            key.run == run() && key.attempt.0 >= next && (lives || image.is_some())
        });
        if let (Some(newer), None) = (newer, &self.contradicted) {
            self.contradicted = Some(newer.lease.lease_id.to_string());
        }
    }

    /// A process whose state is not the newest goes on from it. Whether that is its fault depends on what it was
    /// shown.
    pub(super) fn goes_on_astray(&mut self, what: &str) {
        if let Some(lease) = self.contradicted.clone() {
            self.violated("P8", None, || {
                format!("{what}, although {lease} is of an attempt it never gave out")
            });
        } else if self.guarded && !self.asked {
            self.violated("P8", None, || format!("{what} before anybody was asked what there is"));
        } else {
            self.count("old state that nothing shown contradicts");
            self.void = true;
        }
    }

    pub(super) fn force(&mut self, shape: &ShapePlan) {
        for group in &shape.0 {
            let version = format!("v{}", group.version);
            self.skipped.remove(&version);
            self.in_force.insert(version);
        }
    }

    pub(super) fn skip(&mut self, shape: &ShapePlan) {
        for group in shape.0.iter().filter(|group| group.count > 0) {
            let version = format!("v{}", group.version);
            if !self.in_force.contains(&version) {
                self.skipped.insert(version);
            }
        }
    }
}
