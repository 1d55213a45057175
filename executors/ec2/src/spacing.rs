//! Creates against an API that ignores client tokens. There only the listing keeps a repeat from making a second
//! instance, so a repeat waits until whatever an earlier create made must have become visible.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use executor_api::{AttemptKey, OperationContext, Visibility};

/// When each attempt last sent a launch that may have made something.
#[derive(Debug)]
pub(crate) struct Spacing {
    /// Launches of an earlier process are not remembered; they all went out before this.
    started: SystemTime,
    sent: Mutex<BTreeMap<AttemptKey, SystemTime>>,
}

impl Spacing {
    pub(crate) fn new(started: SystemTime) -> Self {
        Self { started, sent: Mutex::default() }
    }

    /// Takes the attempt's turn to launch, or says from when on it may be taken.
    pub(crate) fn claim(
        &self,
        ctx: &OperationContext,
        visibility: Visibility,
        now: SystemTime,
    ) -> Result<(), SystemTime> {
        let mut sent = self.lock();
        // What is long visible needs no memory: the table is bounded by the creates of one allowance.
        sent.retain(|_, at| visibility.absent_counts_from(*at) > now);
        let here = sent.get(&ctx.attempt).copied();
        // The first operation of an attempt has no predecessor, in this process or in another.
        let elsewhere = (ctx.operation.sequence > 0).then_some(self.started);
        let free = here.or(elsewhere).map(|at| visibility.absent_counts_from(at));
        match free {
            Some(free) if free > now => Err(free),
            _ => {
                sent.insert(ctx.attempt.clone(), now);
                Ok(())
            }
        }
    }

    /// The launch was refused and made nothing: the next may follow at once.
    pub(crate) fn give_back(&self, attempt: &AttemptKey) {
        self.lock().remove(attempt);
    }

    /// The call that may have launched has only now come to an end: the wait counts from here.
    pub(crate) fn ended(&self, attempt: &AttemptKey, now: SystemTime) {
        self.lock().insert(attempt.clone(), now);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AttemptKey, SystemTime>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::context;
    use std::time::Duration;

    const LAG: Visibility =
        Visibility { listing_lag: Duration::from_secs(10), late_landing: Duration::from_secs(5) };

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_repeat_waits_until_the_first_must_be_visible() {
        let spacing = Spacing::new(at(0));
        assert_eq!(spacing.claim(&context("web-0", 0), LAG, at(0)), Ok(()));
        assert_eq!(spacing.claim(&context("web-0", 1), LAG, at(1)), Err(at(15)));
        assert_eq!(spacing.claim(&context("web-1", 0), LAG, at(1)), Ok(()), "another attempt does not wait");
        spacing.ended(&context("web-0", 0).attempt, at(3));
        assert_eq!(spacing.claim(&context("web-0", 1), LAG, at(15)), Err(at(18)));
        assert_eq!(spacing.claim(&context("web-0", 1), LAG, at(18)), Ok(()));
    }

    #[test]
    fn a_new_process_waits_for_what_an_earlier_one_may_have_sent() {
        let spacing = Spacing::new(at(100));
        assert_eq!(spacing.claim(&context("web-0", 3), LAG, at(100)), Err(at(115)));
        assert_eq!(spacing.claim(&context("web-1", 0), LAG, at(100)), Ok(()));
    }

    #[test]
    fn a_refused_launch_makes_nobody_wait() {
        let spacing = Spacing::new(at(0));
        assert_eq!(spacing.claim(&context("web-0", 0), LAG, at(50)), Ok(()));
        spacing.give_back(&context("web-0", 0).attempt);
        assert_eq!(spacing.claim(&context("web-0", 1), LAG, at(51)), Ok(()));
    }
}
