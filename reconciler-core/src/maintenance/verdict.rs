//! What a gate answers: a pass that cites its evidence, or a "no" with every reason. There is no third answer.

use std::fmt;
use std::time::SystemTime;

use executor_api::host::{Fingerprint, Source};
use serde::{Deserialize, Serialize};

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The lease or the hold.
    Lock,
    /// A host as such.
    Host,
    /// A bond.
    Bond,
    /// The link between the hosts.
    Link,
    /// Replicated storage.
    Storage,
    /// Storage pods.
    Satellite,
    /// Virtual machines.
    Vm,
}

/// In what way a finding is a "no". The order is that of gravity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// It was read and is not as it must be.
    Negative,
    /// It was not read in this pass, or too long ago, or in parts of different moments: read again.
    Stale,
    /// It could not be read, left something out, or said something that is not understood.
    Unknown,
    /// Two copies have diverged, or nothing shows that they have not.
    Diverged,
}

/// One reason for a "no".
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Finding {
    /// In what way.
    pub kind: FindingKind,
    /// About what.
    pub subject: Subject,
    /// In words, with the place first.
    pub what: String,
}

impl Finding {
    pub(crate) fn new(kind: FindingKind, subject: Subject, what: impl Into<String>) -> Self {
        Self { kind, subject, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// What a pass rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Which gate.
    pub gate: String,
    /// The evidence, whole. Computed by the gates whose proofs are kept.
    pub evidence: Option<Fingerprint>,
    /// Who was asked, and when.
    pub read: Vec<(Source, SystemTime)>,
}

impl Proof {
    /// The newest reading in it.
    pub fn newest(&self) -> Option<SystemTime> {
        self.read.iter().map(|(_, at)| *at).max()
    }
}

/// A gate's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Proved.
    Pass(Proof),
    /// Not proved, for these reasons. Never empty.
    No(Vec<Finding>),
}

impl Verdict {
    /// Whether it is a pass.
    pub fn passed(&self) -> bool {
        matches!(self, Self::Pass(_))
    }

    /// The reasons of a "no".
    pub fn findings(&self) -> &[Finding] {
        match self {
            Self::Pass(_) => &[],
            Self::No(findings) => findings,
        }
    }
}

/// The gravest kind among some findings.
pub(crate) fn gravest(findings: &[Finding]) -> Option<FindingKind> {
    findings.iter().map(|finding| finding.kind).max()
}
