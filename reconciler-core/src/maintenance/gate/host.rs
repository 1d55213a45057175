//! May the hosts be worked on at all.

use crate::maintenance::gate::{Gathering, Look};
use crate::maintenance::verdict::{FindingKind, Subject, Verdict};

/// Both hosts may hold replicas and answer.
pub fn ready(look: Look<'_>) -> Verdict {
    let mut gathering = Gathering::new(look);
    for node in &look.plan.nodes {
        let evidence = look.observed.hosts.get(node);
        let Some(facts) = gathering.take_host(Subject::Host, node, evidence) else { continue };
        for (what, found) in [("eligible", facts.eligible), ("live", facts.live)] {
            match found {
                Some(true) => {}
                Some(false) => {
                    gathering.no(FindingKind::Negative, Subject::Host, format!("{node}: not {what}"));
                }
                None => {
                    gathering.no(
                        FindingKind::Unknown,
                        Subject::Host,
                        format!("{node}: whether {what} is not known"),
                    );
                }
            }
        }
    }
    gathering.verdict("host gate")
}
