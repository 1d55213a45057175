//! How two copies are related, by their generation identifiers alone.

use executor_api::host::GenerationIds;

/// How two copies are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinship {
    /// One generation.
    Same,
    /// The second is the first's ancestor.
    FirstAhead,
    /// The first is the second's ancestor.
    SecondAhead,
    /// Neither is the other's ancestor, as far as can be shown.
    Diverged(&'static str),
}

/// Compares identifiers, without their lowest bit.
pub fn kinship(first: &GenerationIds, second: &GenerationIds) -> Kinship {
    let counts_from = |one: &GenerationIds, other: &GenerationIds| {
        !one.bitmap.is_trivial() && one.bitmap.same(other.current)
    };
    if first.current.same(second.current) {
        return Kinship::Same;
    }
    match (counts_from(first, second), counts_from(second, first)) {
        (true, false) => Kinship::FirstAhead,
        (false, true) => Kinship::SecondAhead,
        (true, true) => Kinship::Diverged("each side claims to be ahead of the other"),
        (false, false) if !first.bitmap.is_none() && first.bitmap.same(second.bitmap) => {
            Kinship::Diverged("split brain: both were written since the same generation")
        }
        (false, false) => Kinship::Diverged("neither generation is the other's ancestor"),
    }
}
