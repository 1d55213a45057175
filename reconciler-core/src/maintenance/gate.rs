//! Gates: functions from evidence to a verdict. Whatever is missing, stale, contradictory or not understood is
//! a "no", with its reason.
//!
//! [`sync`]: may two copies be called identical, or one the other's ancestor; have they diverged. [`kinship`]: how identifiers are related.
//! [`storage`]: is replication apart and are storage pods gone. [`bond`]: is a bond as it must be, are both
//! alike, did a probe pass. [`mod@host`]: may the hosts be worked on. [`vm`]: is every machine pinned where it was. [`lock`]: is the lease ours.

pub mod bond;
pub mod host;
pub mod kinship;
pub mod lock;
pub(crate) mod pair;
pub mod storage;
pub mod sync;
pub mod vm;

use std::time::SystemTime;

use executor_api::host::{Evidence, Fingerprint, HostName, Read, Source};
use serde::Serialize;

use crate::maintenance::observed::Observed;
use crate::maintenance::plan::BondFlipPlan;
use crate::maintenance::state::PlanState;
use crate::maintenance::verdict::{Finding, FindingKind, Proof, Subject, Verdict};

/// One look at the world by one plan at one time: all that a gate may use.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// The plan.
    pub plan: &'a BondFlipPlan,
    /// How far it is.
    pub state: &'a PlanState,
    /// What was read.
    pub observed: &'a Observed,
    /// Now.
    pub now: SystemTime,
}

/// What every gate says of the world as it is, asked or not. For people who want to see before they let a plan run,
/// and for status.
pub fn survey(look: Look<'_>) -> Vec<(&'static str, Verdict)> {
    let resources = &look.plan.resources;
    vec![
        ("hosts ready", host::ready(look)),
        ("bonds sound in the mode to leave", bond::untouched(look)),
        ("bonds as last verified", bond::as_verified(look, &look.plan.nodes)),
        ("bonds alike in the mode to reach", bond::symmetric(look, &look.plan.to)),
        ("machines pinned", vm::pinned(look)),
        ("nobody writes", storage::quiet(look)),
        ("replication apart", storage::apart(look, resources)),
        ("storage pods gone", storage::drained(look, &look.plan.nodes)),
        ("storage pods running", storage::serving(look)),
        ("copies not diverged", sync::not_diverged(look)),
        ("copies may meet again", sync::may_reconnect(look, resources)),
        ("copies identical", sync::identical(look, resources, sync::Demand::FINISH)),
        ("lock held", lock::held(look)),
    ]
}

/// Gathers the findings and the sources of one gate.
pub(crate) struct Gathering<'a> {
    pub(crate) look: Look<'a>,
    pub(crate) findings: Vec<Finding>,
    read: Vec<(Source, SystemTime)>,
    /// The evidence in digests, for the gates whose proofs are kept; a digest for each gate of each pass would
    /// cost more than all the decisions.
    evidence: Option<Vec<Fingerprint>>,
}

impl<'a> Gathering<'a> {
    pub(crate) fn new(look: Look<'a>) -> Self {
        Self { look, findings: Vec::new(), read: Vec::new(), evidence: None }
    }

    /// As `new`, for a gate whose proof cites its evidence.
    pub(crate) fn citing(look: Look<'a>) -> Self {
        Self { evidence: Some(Vec::new()), ..Self::new(look) }
    }

    /// The value of a reading, if it is from the right source, new enough, and was seen. Otherwise a finding.
    pub(crate) fn take<T: Serialize>(
        &mut self,
        subject: Subject,
        source: &Source,
        evidence: Option<&'a Evidence<T>>,
    ) -> Option<&'a T> {
        let place = name(subject);
        let Some(evidence) = evidence else {
            self.no(FindingKind::Stale, subject, format!("{source}: {place} not read"));
            return None;
        };
        if evidence.source != *source {
            let what = format!("{source}: {place} was read from {}", evidence.source);
            self.no(FindingKind::Unknown, subject, what);
            return None;
        }
        let fresh = evidence.is_fresh(self.look.now, self.look.plan.pace.evidence_max_age);
        if !fresh || evidence.read_at < self.look.state.fresh_from {
            self.no(FindingKind::Stale, subject, format!("{source}: {place} read too long ago"));
            return None;
        }
        match &evidence.read {
            Read::Unknown(reason) => {
                self.no(FindingKind::Unknown, subject, format!("{source}: {place} unreadable: {reason}"));
                None
            }
            Read::Seen(value) => {
                self.read.push((source.clone(), evidence.read_at));
                if let Some(evidence) = &mut self.evidence {
                    evidence.push(Fingerprint::of(place, value));
                }
                Some(value)
            }
        }
    }

    /// A reading from a host.
    pub(crate) fn take_host<T: Serialize>(
        &mut self,
        subject: Subject,
        node: &HostName,
        evidence: Option<&'a Evidence<T>>,
    ) -> Option<&'a T> {
        self.take(subject, &Source::Host(node.clone()), evidence)
    }

    pub(crate) fn no(&mut self, kind: FindingKind, subject: Subject, what: impl Into<String>) {
        self.findings.push(Finding::new(kind, subject, what));
    }

    /// Another gate's findings.
    pub(crate) fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        self.findings.extend(findings);
    }

    /// The verdict. A gate that looked at nothing proved nothing.
    pub(crate) fn verdict(mut self, gate: &str) -> Verdict {
        if self.findings.is_empty() && self.read.is_empty() {
            self.no(FindingKind::Stale, Subject::Host, format!("{gate}: nothing was looked at"));
        }
        if self.findings.is_empty() {
            let evidence = self.evidence.map(|evidence| Fingerprint::of(gate, &evidence));
            return Verdict::Pass(Proof { gate: gate.to_owned(), evidence, read: self.read });
        }
        self.findings.sort();
        self.findings.dedup();
        Verdict::No(self.findings)
    }
}

fn name(subject: Subject) -> &'static str {
    match subject {
        Subject::Lock => "lock",
        Subject::Host => "host",
        Subject::Bond => "bond",
        Subject::Link => "link",
        Subject::Storage => "storage",
        Subject::Satellite => "storage pods",
        Subject::Vm => "virtual machines",
    }
}

/// Collects findings about one thing, with its place in front.
pub(crate) struct Place<'f> {
    pub(crate) at: String,
    pub(crate) subject: Subject,
    pub(crate) findings: &'f mut Vec<Finding>,
}

impl Place<'_> {
    /// A value that must be there and equal.
    pub(crate) fn must_be<T: PartialEq + std::fmt::Display>(
        &mut self,
        what: &str,
        found: Option<&T>,
        wanted: &T,
    ) {
        match found {
            Some(found) if found == wanted => {}
            Some(found) => {
                self.push(FindingKind::Negative, format!("{what} is {found}, must be {wanted}"));
            }
            None => self.push(FindingKind::Unknown, format!("{what} was not reported")),
        }
    }

    pub(crate) fn push(&mut self, kind: FindingKind, what: impl Into<String>) {
        let what = format!("{} {}", self.at, what.into());
        self.findings.push(Finding::new(kind, self.subject, what));
    }
}
