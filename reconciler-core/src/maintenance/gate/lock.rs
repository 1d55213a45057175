//! Is the lease ours, and is the cluster held for this plan.

use executor_api::host::{LockRecords, Source};

use crate::maintenance::gate::{Gathering, Look};
use crate::maintenance::verdict::{FindingKind, Subject, Verdict};

/// The lease is this process's own, under the fence that was recorded, and the hold is this plan's.
pub fn held(look: Look<'_>) -> Verdict {
    let mut gathering = Gathering::new(look);
    if let Some(records) = records(&mut gathering) {
        let ours = records.lease.as_ref().is_some_and(|lease| {
            lease.holder == look.observed.me
                && look
                    .state
                    .lease
                    .as_ref()
                    .is_some_and(|known| known.holder == lease.holder && known.fence == lease.fence)
        });
        if !ours {
            gathering.no(FindingKind::Negative, Subject::Lock, "the lease is not ours");
        }
        if records.hold.as_ref().is_none_or(|hold| hold.plan != look.plan.uid) {
            gathering.no(FindingKind::Negative, Subject::Lock, "the cluster is not held for this plan");
        }
    }
    gathering.verdict("lock gate")
}

/// The records, or a finding.
pub(crate) fn records<'a>(gathering: &mut Gathering<'a>) -> Option<&'a LockRecords> {
    let evidence = gathering.look.observed.lock.as_ref();
    gathering.take(Subject::Lock, &Source::Cluster, evidence)
}
