//! What two copies do when they meet: the decision table over their generation identifiers. Pure.

use executor_api::host::Generation;

/// What one side brings to a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) current: Generation,
    /// From where this side counts what the other lacks.
    pub(crate) bitmap: Generation,
    /// Newest first.
    pub(crate) history: Vec<Generation>,
    pub(crate) crashed_primary: bool,
    /// It counts blocks that the other lacks.
    pub(crate) has_bits: bool,
}

/// What comes of it, seen from the first side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// Nothing is copied, and counted blocks are forgotten.
    NoSync,
    /// The first side's counted blocks are copied to the second.
    FirstToSecond,
    /// The second side's counted blocks are copied to the first.
    SecondToFirst,
    /// Everything is copied to the second.
    AllToSecond,
    /// Everything is copied to the first.
    AllToFirst,
    /// Both were written since one generation.
    SplitBrain,
    /// They have only a distant past in common.
    SplitBrainFar,
    /// They have nothing in common.
    Unrelated,
}

impl Meeting {
    fn turned(self) -> Self {
        match self {
            Self::FirstToSecond => Self::SecondToFirst,
            Self::SecondToFirst => Self::FirstToSecond,
            Self::AllToSecond => Self::AllToFirst,
            Self::AllToFirst => Self::AllToSecond,
            other => other,
        }
    }
}

/// Decides. `careful` modules copy counted blocks although identifiers are equal; others drop them.
pub(crate) fn meet(first: &Card, second: &Card, careful: bool) -> Meeting {
    let fresh = |card: &Card| card.current.is_trivial();
    match (fresh(first), fresh(second)) {
        (true, true) => return Meeting::NoSync,
        (true, false) => return Meeting::AllToFirst,
        (false, true) => return Meeting::AllToSecond,
        (false, false) => {}
    }
    if first.current.same(second.current) {
        return match (first.crashed_primary, second.crashed_primary) {
            // Nobody can tell which of two crashed primaries is ahead; the first speaks.
            (true, _) => Meeting::FirstToSecond,
            (false, true) => Meeting::SecondToFirst,
            (false, false) if careful && first.has_bits && !second.has_bits => Meeting::FirstToSecond,
            (false, false) if careful && second.has_bits && !first.has_bits => Meeting::SecondToFirst,
            (false, false) => Meeting::NoSync,
        };
    }
    for (one, other, turned) in [(second, first, true), (first, second, false)] {
        let ahead = if !one.bitmap.is_trivial() && one.bitmap.same(other.current) {
            Some(Meeting::FirstToSecond)
        } else if knows(one, other.current) {
            Some(Meeting::AllToSecond)
        } else {
            None
        };
        if let Some(meeting) = ahead {
            return if turned { meeting.turned() } else { meeting };
        }
    }
    if !first.bitmap.is_trivial() && first.bitmap.same(second.bitmap) {
        return Meeting::SplitBrain;
    }
    let past = |card: &Card| card.history.clone().into_iter().chain([card.bitmap]).collect::<Vec<_>>();
    let common = past(first)
        .into_iter()
        .any(|one| !one.is_trivial() && past(second).into_iter().any(|other| one.same(other)));
    if common { Meeting::SplitBrainFar } else { Meeting::Unrelated }
}

fn knows(card: &Card, generation: Generation) -> bool {
    card.history.iter().any(|former| !former.is_trivial() && former.same(generation))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(current: u64, bitmap: u64, history: &[u64]) -> Card {
        Card {
            current: Generation(current),
            bitmap: Generation(bitmap),
            history: history.iter().copied().map(Generation).collect(),
            crashed_primary: false,
            has_bits: false,
        }
    }

    #[test]
    fn the_table_row_by_row() {
        let (a, b, c, old) = (0xA0, 0xB0, 0xC0, 0xD0);
        let rows = [
            (card(4, 0, &[]), card(4, 0, &[]), Meeting::NoSync),
            (card(4, 0, &[]), card(a, 0, &[]), Meeting::AllToFirst),
            (card(a, 0, &[]), card(5, 0, &[]), Meeting::AllToSecond),
            (card(a, 0, &[old]), card(a | 1, 0, &[old]), Meeting::NoSync),
            (card(b, a, &[]), card(a, 0, &[]), Meeting::FirstToSecond),
            (card(b, c, &[a]), card(a, 0, &[]), Meeting::AllToSecond),
            (card(b, a, &[]), card(c, a, &[]), Meeting::SplitBrain),
            (card(b, a, &[old]), card(c, 0, &[old]), Meeting::SplitBrainFar),
            (card(b, 0, &[]), card(c, 0, &[]), Meeting::Unrelated),
        ];
        for (first, second, wanted) in rows {
            assert_eq!(meet(&first, &second, true), wanted, "{first:?} meets {second:?}");
            assert_eq!(meet(&second, &first, true), wanted.turned(), "{second:?} meets {first:?}");
        }
    }

    #[test]
    fn equal_identifiers_with_leftover_bits_depend_on_the_module() {
        let ahead = Card { has_bits: true, ..card(0xA0, 0, &[0xD0]) };
        let other = card(0xA0, 0, &[0xD0]);
        assert_eq!(meet(&ahead, &other, false), Meeting::NoSync, "an old module drops them");
        assert_eq!(meet(&ahead, &other, true), Meeting::FirstToSecond);
        let both = Card { has_bits: true, ..other };
        assert_eq!(meet(&ahead, &both, true), Meeting::NoSync, "bits on both sides are still dropped");
    }

    #[test]
    fn a_crashed_primary_is_the_source() {
        let crashed = Card { crashed_primary: true, ..card(0xA0, 0, &[]) };
        assert_eq!(meet(&crashed, &card(0xA0, 0, &[]), true), Meeting::FirstToSecond);
        assert_eq!(meet(&card(0xA0, 0, &[]), &crashed, true), Meeting::SecondToFirst);
    }
}
