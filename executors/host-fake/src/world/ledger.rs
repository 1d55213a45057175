//! Every acknowledged write, so that "data was lost" is a fact. A block's content is the number of the write that
//! made it; a write on top of another replaces it, two writes on top of one are both owed.

use std::collections::{BTreeMap, BTreeSet};

use executor_api::host::ResourceName;

/// One block of one volume.
pub(crate) type Place = (ResourceName, u16, u32);

/// What was promised to those who write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ledger {
    /// The newest acknowledged writes by block: more than one after writes on two sides.
    heads: BTreeMap<Place, BTreeSet<u64>>,
    /// Writes that reached a disk and were never acknowledged, with what they replaced.
    unacknowledged: BTreeMap<u64, u64>,
    /// Acknowledged writes that the world destroyed by itself: nobody owes them any more.
    taken: BTreeSet<(Place, u64)>,
    count: u64,
    next: u64,
}

impl Ledger {
    /// A number for content that was never there before.
    pub(crate) fn mint(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A write is acknowledged that replaced `before`.
    pub(crate) fn acknowledge(&mut self, place: Place, version: u64, before: u64) {
        let replaced = self.base(before);
        let heads = self.heads.entry(place).or_default();
        heads.remove(&replaced);
        heads.insert(version);
        self.count += 1;
    }

    /// A write reached a disk and will never be acknowledged.
    pub(crate) fn torn(&mut self, version: u64, before: u64) {
        let base = self.base(before);
        self.unacknowledged.insert(version, base);
    }

    /// What a write replaced that was never acknowledged.
    pub(crate) fn replaced_by(&self, content: u64) -> Option<u64> {
        self.unacknowledged.get(&content).copied()
    }

    /// How many writes were acknowledged.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The world destroyed an acknowledged write by itself.
    pub(crate) fn take(&mut self, place: Place, write: u64) {
        self.taken.insert((place, write));
    }

    /// Whether the world destroyed this write by itself.
    pub(crate) fn is_taken(&self, place: &Place, write: u64) -> bool {
        self.taken.contains(&(place.clone(), write))
    }

    /// Whether content holds everything that is owed of a block.
    pub(crate) fn is_whole(&self, place: &Place, content: u64) -> bool {
        let base = self.base(content);
        self.owed(place).all(|head| head == base)
    }

    /// Whether content holds one certain write.
    pub(crate) fn holds(&self, content: u64, write: u64) -> bool {
        self.base(content) == write
    }

    /// The promised writes of a block that are still owed.
    pub(crate) fn owed(&self, place: &Place) -> impl Iterator<Item = u64> {
        let heads = self.heads.get(place).into_iter().flatten().copied();
        heads.filter(|head| !self.is_taken(place, *head))
    }

    /// The newest promised writes.
    pub(crate) fn heads(&self) -> impl Iterator<Item = (&Place, &BTreeSet<u64>)> {
        self.heads.iter()
    }

    fn base(&self, content: u64) -> u64 {
        self.unacknowledged.get(&content).copied().unwrap_or(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_on_two_sides_are_both_owed() {
        let mut ledger = Ledger::default();
        let place = (ResourceName::new("r1").unwrap(), 0, 3);
        let first = ledger.mint();
        ledger.acknowledge(place.clone(), first, 0);
        assert!(ledger.is_whole(&place, first) && !ledger.is_whole(&place, 0));
        let (here, there) = (ledger.mint(), ledger.mint());
        ledger.acknowledge(place.clone(), here, first);
        ledger.acknowledge(place.clone(), there, first);
        assert!(!ledger.is_whole(&place, here) && !ledger.is_whole(&place, there));
        assert_eq!(ledger.owed(&place).collect::<Vec<_>>(), [here, there]);
    }

    #[test]
    fn what_the_world_took_is_owed_no_more() {
        let mut ledger = Ledger::default();
        let place = (ResourceName::new("r1").unwrap(), 0, 3);
        let first = ledger.mint();
        ledger.acknowledge(place.clone(), first, 0);
        ledger.take(place.clone(), first);
        assert!(ledger.is_whole(&place, 0) && ledger.is_taken(&place, first));
        let next = ledger.mint();
        ledger.acknowledge(place.clone(), next, first);
        assert!(!ledger.is_whole(&place, 0), "what was written since is");
    }

    #[test]
    fn a_torn_write_hides_nothing_that_was_promised() {
        let mut ledger = Ledger::default();
        let place = (ResourceName::new("r1").unwrap(), 0, 3);
        let first = ledger.mint();
        ledger.acknowledge(place.clone(), first, 0);
        let torn = ledger.mint();
        ledger.torn(torn, first);
        assert!(ledger.is_whole(&place, torn), "whoever has the torn write has what came before");
    }
}
