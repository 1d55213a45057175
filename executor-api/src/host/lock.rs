//! Who may act: the lease, which says who drives, and the plan hold, which says what for. Two records, because
//! a lease runs out and a half-done plan must not.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::host::identity::{FenceValue, LeaseHolder, PlanUid};

/// The version of the lock's record. Changes with every write to it, a renewal included. Compared for equality
/// only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecordVersion(pub String);

/// Who drives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// Who holds it.
    pub holder: LeaseHolder,
    /// For how long a renewal counts. The duration *in the record* is the one that everybody judges by.
    pub ttl: Duration,
    /// The fence of this acquisition. A renewal keeps it.
    pub fence: FenceValue,
    /// The version of the record.
    pub version: RecordVersion,
}

/// What the cluster is held for. Has no duration: it ends by a deliberate act and never by time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanHold {
    /// The plan that owns the cluster.
    pub plan: PlanUid,
    /// When it was placed, by the clock of the one who placed it.
    pub since: SystemTime,
}

/// Both records, read together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRecords {
    /// The lease, if there is one.
    pub lease: Option<LeaseRecord>,
    /// The hold, if there is one.
    pub hold: Option<PlanHold>,
}

/// Whether a candidate may take the lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Takeover {
    /// There is no lease.
    Free,
    /// The lease is alive as far as this candidate can tell.
    Held {
        /// How long it must yet be seen unchanged before it may be taken.
        remaining: Duration,
    },
    /// The record did not change for its own duration while this candidate watched.
    Expired {
        /// The version that was watched; the take-over must be conditional on it.
        version: RecordVersion,
    },
}

/// A candidate's own watch of the lease record. Times are readings of the candidate's monotonic clock from any
/// fixed start; neither the holder's clock nor the wall clock plays a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseWatch {
    seen: Option<(LeaseHolder, RecordVersion, Duration)>,
}

impl LeaseWatch {
    /// A watch that has seen nothing: a lease it meets first counts as renewed just then.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one look at the record.
    pub fn look(&mut self, lease: Option<&LeaseRecord>, at: Duration) -> Takeover {
        let Some(lease) = lease else {
            self.seen = None;
            return Takeover::Free;
        };
        let since = match &self.seen {
            Some((holder, version, since)) if *holder == lease.holder && *version == lease.version => *since,
            Some(_) | None => {
                self.seen = Some((lease.holder.clone(), lease.version.clone(), at));
                at
            }
        };
        let unchanged = at.saturating_sub(since);
        if unchanged < lease.ttl {
            return Takeover::Held { remaining: lease.ttl.saturating_sub(unchanged) };
        }
        Takeover::Expired { version: lease.version.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(version: &str) -> LeaseRecord {
        LeaseRecord {
            holder: LeaseHolder::new("a-1").unwrap(),
            ttl: Duration::from_mins(1),
            fence: FenceValue(1),
            version: RecordVersion(version.to_owned()),
        }
    }

    #[test]
    fn h26_expiry_is_counted_by_the_watcher_against_the_duration_in_the_record() {
        let at = Duration::from_secs;
        let mut watch = LeaseWatch::new();
        for seconds in (0..=100).step_by(5) {
            let record = lease(&seconds.to_string());
            assert_eq!(watch.look(Some(&record), at(seconds)), Takeover::Held { remaining: at(60) });
        }
        // The holder died right after its renewal at 100.
        assert_eq!(watch.look(Some(&lease("100")), at(159)), Takeover::Held { remaining: at(1) });
        let expired = Takeover::Expired { version: RecordVersion("100".to_owned()) };
        assert_eq!(watch.look(Some(&lease("100")), at(160)), expired);
        // One renewal more, and everything counts anew.
        assert_eq!(watch.look(Some(&lease("161")), at(161)), Takeover::Held { remaining: at(60) });
        assert_eq!(watch.look(None, at(162)), Takeover::Free);
    }
}
