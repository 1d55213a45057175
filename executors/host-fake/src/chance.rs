//! Chance from a seed: splitmix64. The same seed gives the same draws on every machine and in every build.

/// A stream of draws.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Whether something that happens `per_mille` times in a thousand happens now.
    pub(crate) fn hits(&mut self, per_mille: u32) -> bool {
        self.0 = self.0.wrapping_add(STEP);
        scatter(self.0) % 1000 < u64::from(per_mille)
    }
}

/// A number that looks like no other, from a count.
pub(crate) fn mix(count: u64) -> u64 {
    scatter(count.wrapping_mul(STEP))
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn scatter(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same() {
        let draw = |seed| {
            let mut dice = Dice::new(seed);
            (0..64).map(|_| dice.hits(300)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let mut dice = Dice::new(1);
        assert!((0..100).all(|_| !dice.hits(0)) && (0..100).all(|_| dice.hits(1000)));
    }
}
