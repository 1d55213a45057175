//! What a run of the suite found, one line per case.

use std::fmt;

/// How one case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The promise holds.
    Ok,
    /// The promise is broken; how.
    Failed(String),
    /// The promise was not put to the test; why.
    Skipped(String),
}

/// What a run found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Each case by name, in the order of the table.
    pub verdicts: Vec<(&'static str, Verdict)>,
}

impl Report {
    /// The names of the cases that failed.
    pub fn failed(&self) -> Vec<&'static str> {
        self.names(|verdict| matches!(verdict, Verdict::Failed(_)))
    }

    /// The names of the cases that were skipped.
    pub fn skipped(&self) -> Vec<&'static str> {
        self.names(|verdict| matches!(verdict, Verdict::Skipped(_)))
    }

    /// Whether no case failed.
    pub fn is_pass(&self) -> bool {
        self.failed().is_empty()
    }

    fn names(&self, which: impl Fn(&Verdict) -> bool) -> Vec<&'static str> {
        self.verdicts.iter().filter(|(_, verdict)| which(verdict)).map(|(name, _)| *name).collect()
    }
}

impl Verdict {
    /// The line of a case: `ok NAME`, `FAILED NAME: why` or `skipped NAME: why`.
    pub fn line(&self, name: &str) -> String {
        match self {
            Self::Ok => format!("ok {name}"),
            Self::Failed(why) => format!("FAILED {name}: {why}"),
            Self::Skipped(why) => format!("skipped {name}: {why}"),
        }
    }
}

impl Report {
    /// The sums in one line.
    pub fn sums(&self) -> String {
        let (failed, skipped) = (self.failed().len(), self.skipped().len());
        let ok = self.verdicts.len() - failed - skipped;
        format!("{ok} ok, {failed} failed, {skipped} skipped")
    }
}

/// A line per case, and the sums.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, verdict) in &self.verdicts {
            writeln!(f, "{}", verdict.line(name))?;
        }
        f.write_str(&self.sums())
    }
}
