//! How much time is left for the next call of an operation.

use std::time::{Duration, SystemTime};

/// What an operation has left, and the most that one call of it may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    deadline: SystemTime,
    per_call: Duration,
}

impl Budget {
    /// Until the driver's deadline. A tenth of what is left, at most a second, is kept back: an answer that we
    /// give ourselves says more than a call that was given up.
    pub(crate) fn until(deadline: SystemTime, per_call: Duration, now: SystemTime) -> Self {
        let left = deadline.duration_since(now).unwrap_or_default();
        let kept_back = (left / 10).min(Duration::from_secs(1));
        Self { deadline: deadline.checked_sub(kept_back).unwrap_or(deadline), per_call }
    }

    /// For one call without a deadline of its own.
    pub(crate) fn single(per_call: Duration, now: SystemTime) -> Self {
        Self { deadline: now.checked_add(per_call).unwrap_or(now), per_call }
    }

    /// How long a call that begins now may take; `None` once there is no time for any.
    pub(crate) fn next(&self, now: SystemTime) -> Option<Duration> {
        let left = self.deadline.duration_since(now).ok()?;
        (!left.is_zero()).then(|| left.min(self.per_call))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_call_gets_what_is_left_and_never_more_than_its_share() {
        let budget = Budget::until(at(30), Duration::from_secs(25), at(0));
        assert_eq!(budget.next(at(0)), Some(Duration::from_secs(25)));
        assert_eq!(budget.next(at(20)), Some(Duration::from_secs(9)));
        assert_eq!(budget.next(at(29)), None);
        assert_eq!(budget.next(at(99)), None);
    }

    #[test]
    fn a_deadline_in_the_past_allows_no_call() {
        assert_eq!(Budget::until(at(1), Duration::from_secs(25), at(5)).next(at(5)), None);
    }
}
