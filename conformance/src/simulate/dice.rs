//! Chance from a seed: splitmix64. The same seed gives the same draws on every machine and in every build.

use std::time::Duration;

/// A stream of draws.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give neighbouring streams.
        let mut dice = Self(seed ^ 0x5851_f42d_4c95_7f2d);
        dice.next();
        dice
    }

    /// A number below `limit`; zero for a limit of zero.
    pub(super) fn below(&mut self, limit: u32) -> u32 {
        u32::try_from(self.next() % u64::from(limit.max(1))).unwrap_or_default()
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// Whether something that happens `percent` times in a hundred happens now.
    pub(super) fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub(super) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(u32::try_from(of.len()).unwrap_or(u32::MAX)) as usize].clone()
    }

    /// A time from `low` to `high` milliseconds.
    pub(super) fn millis(&mut self, low: u32, high: u32) -> Duration {
        Duration::from_millis(u64::from(self.between(low, high)))
    }

    /// A time of so many whole seconds.
    pub(super) fn seconds(&mut self, of: &[u64]) -> Duration {
        Duration::from_secs(self.pick(of))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
