//! How long to wait. Pure arithmetic on durations; every step saturates.

use std::time::{Duration, SystemTime};

use executor_api::{GroupPolicy, LogicalNodeId, NodeAttemptId};
use serde::{Deserialize, Serialize};

/// The driver's timing for one run. Never part of a compared spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Delay after the first failure; doubles with each further one.
    pub initial_delay: Duration,
    /// Longest delay.
    pub cap: Duration,
    /// How much of a delay is up to the jitter, in thousandths: 0 for none, 1000 for all of it.
    pub jitter_per_mille: u16,
    /// How long one executor call may take.
    pub operation_timeout: Duration,
    /// Time between two endpoint lookups, and between two lookups for something to adopt.
    pub endpoint_probe_interval: Duration,
    /// Additions to the source text.
    pub extra: PolicyExtra,
}

/// Additions to [`RetryPolicy`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyExtra {
    /// Feeds the jitter; two runs with different seeds do not retry in step.
    pub seed: u64,
    /// How long a bootstrap may run before its node must have joined.
    pub join_within: Duration,
    /// How long a node may stay suspect before its attempt is ended. `None`: silence never ends it.
    pub loss_timeout: Option<Duration>,
    /// How long a node must have been ready before its failures are forgotten and a loss restarts at once.
    pub stable_after: Duration,
    /// Time between two listings of each provider.
    pub observe_every: Duration,
    /// Time between two passes that nothing asked for.
    pub tick_every: Duration,
    /// Time between two sweeps for leases of attempts that are over.
    #[serde(default = "sweep_every")]
    pub sweep_every: Duration,
    /// What becomes of such a lease.
    #[serde(default)]
    pub orphans: OrphanPolicy,
    /// How many creates, lookups and starts one provider is given at once.
    pub create_share: u32,
    /// How many cancels and destroys one provider is given at once.
    pub cleanup_share: u32,
}

/// What becomes of a lease whose attempt is over and that nobody will ever ask for again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrphanPolicy {
    /// It is reported.
    #[default]
    Report,
    /// It is reported, and destroyed once it is old enough and was seen in several sweeps in a row.
    Destroy,
}

/// Not often: an orphan costs money, not correctness.
fn sweep_every() -> Duration {
    Duration::from_mins(1)
}

impl Default for PolicyExtra {
    fn default() -> Self {
        Self {
            seed: 0,
            join_within: Duration::from_mins(10),
            loss_timeout: None,
            stable_after: Duration::ZERO,
            observe_every: Duration::from_secs(10),
            tick_every: Duration::from_secs(10),
            sweep_every: sweep_every(),
            orphans: OrphanPolicy::default(),
            create_share: 64,
            cleanup_share: 64,
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            initial_delay: Duration::from_secs(1),
            cap: Duration::from_mins(1),
            jitter_per_mille: 0,
            operation_timeout: Duration::from_secs(30),
            endpoint_probe_interval: Duration::from_secs(5),
            extra: PolicyExtra::default(),
        }
    }
}

impl RetryPolicy {
    /// This policy with a group's own values put in.
    #[must_use]
    pub fn with(&self, group: &GroupPolicy) -> Self {
        let mut policy = self.clone();
        let put = |place: &mut Duration, value: Option<Duration>| {
            if let Some(value) = value {
                *place = value;
            }
        };
        put(&mut policy.initial_delay, group.initial_delay);
        put(&mut policy.cap, group.cap);
        put(&mut policy.operation_timeout, group.operation_timeout);
        put(&mut policy.endpoint_probe_interval, group.endpoint_probe_interval);
        put(&mut policy.extra.join_within, group.join_within);
        put(&mut policy.extra.stable_after, group.stable_after);
        policy.extra.loss_timeout = group.loss_timeout.or(policy.extra.loss_timeout);
        policy
    }

    /// The delay after `failures` failures in a row, jitter included. Zero failures: no delay.
    pub fn backoff(&self, slot: &LogicalNodeId, attempt: NodeAttemptId, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else {
            return Duration::ZERO;
        };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let delay = self.initial_delay.saturating_mul(factor).min(self.cap);
        let ratio = u64::from(self.jitter_per_mille.min(1000));
        if ratio == 0 {
            return delay;
        }
        // A fixed hash instead of a random number, so that the same history gives the same delay.
        let chance = mix(&[self.extra.seed, hash(slot.as_str()), attempt.0, u64::from(failures)]) % 1000;
        let millionths = u32::try_from(ratio * chance).unwrap_or(u32::MAX);
        delay.saturating_sub((delay / 1_000_000).saturating_mul(millionths))
    }
}

/// `at + delay`, or the time itself where the calendar ends.
pub(crate) fn later(at: SystemTime, delay: Duration) -> SystemTime {
    at.checked_add(delay).unwrap_or(at)
}

/// FNV-1a: a fixed hash of a text.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// `SplitMix64` over a few numbers.
fn mix(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |state: u64, number| {
        let mut z = (state ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(policy: &RetryPolicy, failures: &[u32]) -> Vec<u64> {
        let slot = LogicalNodeId::parse("n-0").unwrap();
        failures.iter().map(|f| policy.backoff(&slot, NodeAttemptId(1), *f).as_secs()).collect()
    }

    #[test]
    fn delays_double_up_to_the_cap_and_stay_there() {
        let policy = RetryPolicy::default();
        assert_eq!(
            delays(&policy, &[0, 1, 2, 3, 6, 7, 8, 32, 33, 70, u32::MAX]),
            [0, 1, 2, 4, 32, 60, 60, 60, 60, 60, 60]
        );
    }

    #[test]
    fn jitter_repeats_for_the_same_history_and_only_shortens() {
        let policy = RetryPolicy { jitter_per_mille: 500, ..RetryPolicy::default() };
        let slot = LogicalNodeId::parse("n-0").unwrap();
        for failures in 1..20 {
            let plain = RetryPolicy::default().backoff(&slot, NodeAttemptId(1), failures);
            let one = policy.backoff(&slot, NodeAttemptId(1), failures);
            assert_eq!(one, policy.backoff(&slot, NodeAttemptId(1), failures));
            assert!(one <= plain && one >= plain / 2, "{one:?} of {plain:?}");
        }
        let spread: std::collections::BTreeSet<_> =
            (0..50).map(|attempt| policy.backoff(&slot, NodeAttemptId(attempt), 5)).collect();
        assert!(spread.len() > 40, "attempts retry in step");
    }

    #[test]
    fn the_calendar_does_not_overflow() {
        let slot = LogicalNodeId::parse("n-0").unwrap();
        let policy =
            RetryPolicy { cap: Duration::MAX, initial_delay: Duration::MAX, ..RetryPolicy::default() };
        assert_eq!(policy.backoff(&slot, NodeAttemptId(1), u32::MAX), Duration::MAX);
        assert_eq!(later(SystemTime::UNIX_EPOCH, Duration::MAX), SystemTime::UNIX_EPOCH);
    }
}
