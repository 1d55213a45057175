//! Copying between two sides that have met, block by block, and what it destroys.

use std::collections::BTreeSet;

use executor_api::host::{DiskState, Generation, HostName, ReplicationState, ResourceName};

use super::link::Quality;
use super::records::{BreachKind, Place};
use super::replica::Copy;
use super::state::{Due, State};

impl State {
    /// Nothing is copied. What either side counted is forgotten.
    pub(crate) fn no_sync(&mut self, name: &ResourceName, volume: u16, one: &HostName, other: &HostName) {
        let Some(resource) = self.resources.get_mut(name) else { return };
        for (host, peer) in [(one, other), (other, one)] {
            let Some(copy) = resource.copy_mut(host, volume) else { continue };
            copy.rotates = false;
            if let Some(toward) = copy.toward.get_mut(peer) {
                toward.bits.clear();
                toward.bitmap = Generation::NONE;
                toward.replication = ReplicationState::Established;
            }
        }
        // From here on nothing shows where the copies differ.
        self.hide_differences(name, volume);
    }

    /// Remembers the blocks that differ without anything to show it.
    pub(crate) fn hide_differences(&mut self, name: &ResourceName, volume: u16) {
        let Some(resource) = self.resources.get(name) else { return };
        let copies: Vec<_> = resource.sides.values().filter_map(|side| side.copies.get(&volume)).collect();
        let Some(first) = copies.first() else { return };
        let differs = |block: &usize| copies.iter().any(|copy| copy.blocks[*block] != first.blocks[*block]);
        let hidden: Vec<_> = (0..first.blocks.len()).filter(differs).collect();
        for block in hidden {
            self.hidden.insert((name.clone(), volume, u32::try_from(block).unwrap_or(u32::MAX)));
        }
    }

    /// Remembers the blocks that differ and that neither side counts.
    pub(crate) fn hide_uncounted(&mut self, name: &ResourceName) {
        let Some(resource) = self.resources.get(name) else { return };
        let mut hidden = Vec::new();
        for volume in resource.volumes() {
            let sides =
                || resource.sides.iter().filter_map(|(host, side)| Some((host, side.copies.get(&volume)?)));
            for (one, a) in sides() {
                for (other, b) in sides().filter(|(other, _)| *other > one) {
                    let counts = |copy: &Copy, peer: &HostName, block: u32| {
                        copy.toward.get(peer).is_some_and(|toward| toward.bits.contains(&block))
                    };
                    let blocks = (0..).zip(a.blocks.iter().zip(&b.blocks));
                    let differing =
                        blocks.filter(|(_, (ours, theirs))| ours != theirs).map(|(block, _)| block);
                    let uncounted = differing
                        .filter(|block| !counts(a, other, *block) && !counts(b, one, *block))
                        .map(|block| (name.clone(), volume, block));
                    hidden.extend(uncounted);
                }
            }
        }
        self.hidden.extend(hidden);
    }

    pub(crate) fn begin_sync(
        &mut self,
        name: &ResourceName,
        volume: u16,
        source: &HostName,
        target: &HostName,
        all: bool,
    ) {
        let Some(resource) = self.resources.get_mut(name) else { return };
        let (Some(from), Some(to)) = (resource.copy(source, volume), resource.copy(target, volume)) else {
            return;
        };
        let old = to.current;
        let hot: &[u32] = if from.crashed_primary { &from.hot } else { &[] };
        let mut bits: BTreeSet<u32> = match (from.toward.get(target), to.toward.get(source)) {
            (Some(ours), Some(theirs)) => {
                ours.bits.union(&theirs.bits).copied().chain(hot.iter().copied()).collect()
            }
            _ => BTreeSet::new(),
        };
        if all {
            bits = (0..u32::try_from(from.blocks.len()).unwrap_or(u32::MAX)).collect();
        }
        let same = old.same(from.current);
        if let Some(copy) = resource.copy_mut(target, volume) {
            if !bits.is_empty() {
                copy.disk = DiskState::Inconsistent;
                copy.consistent = false;
                copy.was_up_to_date = false;
            }
            if let Some(toward) = copy.toward.get_mut(source) {
                toward.bits.clear();
                toward.replication = ReplicationState::SyncTarget;
            }
        }
        if let Some(copy) = resource.copy_mut(source, volume) {
            copy.rotates = false;
            if let Some(toward) = copy.toward.get_mut(target) {
                toward.bits = bits;
                toward.replication = ReplicationState::SyncSource;
                // Counted from what the target has, so that an interrupted resync is taken up where it stopped.
                if !same {
                    toward.bitmap = old;
                }
            }
        }
        self.note(Place::Resource(name.clone()), format!("{source} begins to copy to {target}"));
        self.kick(name, source, target);
    }

    /// Lets a resync between two hosts go on, in either direction, if one is under way and not held.
    pub(crate) fn kick(&mut self, name: &ResourceName, one: &HostName, other: &HostName) {
        let Some(resource) = self.resources.get(name) else { return };
        let mut due = Vec::new();
        for volume in resource.volumes() {
            for (source, target) in [(one, other), (other, one)] {
                let state = resource.copy(source, volume).and_then(|copy| copy.toward.get(target));
                if state.is_some_and(|toward| toward.replication == ReplicationState::SyncSource) {
                    let (resource, source, target) = (name.clone(), source.clone(), target.clone());
                    due.push(Due::Resync { resource, volume, source, target });
                }
            }
        }
        for due in due {
            self.once_after(self.pace.resync_block, due);
        }
    }

    /// One block of a resync.
    pub(crate) fn resync_block(
        &mut self,
        name: &ResourceName,
        volume: u16,
        source: &HostName,
        target: &HostName,
    ) {
        let link = self.link(source, target);
        let Some(resource) = self.resources.get(name) else { return };
        let (Some(from), Some(to)) = (resource.copy(source, volume), resource.copy(target, volume)) else {
            return;
        };
        let (Some(ours), Some(theirs)) = (from.toward.get(target), to.toward.get(source)) else { return };
        let under_way =
            ours.replication == ReplicationState::SyncSource && resource.connected(source, target);
        let there = from.is_there() && to.is_there();
        if !under_way || !there || ours.held || theirs.held || link == Quality::Dead {
            return;
        }
        let Some(block) = ours.bits.first().copied() else {
            self.end_sync(name, volume, source, target);
            return;
        };
        let content = from.blocks[block as usize];
        self.overwrite(name, volume, source, target, block, content);
        let Some(resource) = self.resources.get_mut(name) else { return };
        let Some(toward) = resource.copy_mut(source, volume).and_then(|copy| copy.toward.get_mut(target))
        else {
            return;
        };
        toward.bits.remove(&block);
        let left = toward.bits.len();
        if left == 0 {
            self.end_sync(name, volume, source, target);
        } else if link == Quality::Marginal && left % 3 == 0 {
            // Over a bad link nothing lasts: it breaks, is made again, and goes on where it stopped.
            self.break_link(name, source, target);
        } else {
            self.kick(name, source, target);
        }
    }

    /// A block of the target becomes the source's. Says so when something promised goes with it.
    fn overwrite(
        &mut self,
        name: &ResourceName,
        volume: u16,
        source: &HostName,
        target: &HostName,
        block: u32,
        content: u64,
    ) {
        let place = (name.clone(), volume, block);
        let Some(resource) = self.resources.get_mut(name) else { return };
        let Some(copy) = resource.copy_mut(target, volume) else { return };
        let before = copy.blocks[block as usize];
        copy.set(block, content);
        let destroyed: Vec<_> = self
            .ledger
            .owed(&place)
            .filter(|write| self.ledger.holds(before, *write) && !self.holds(&place, *write))
            .collect();
        let unknown = self.nobody_could_know(name, source, target);
        for write in destroyed {
            let what = format!("write {write} of block {block} on {target} was overwritten from {source}");
            let excused = unknown || self.hidden.contains(&place);
            self.breach(BreachKind::DataDestroyed, Place::Resource(name.clone()), what, excused);
            if excused {
                self.ledger.take(place.clone(), write);
            }
        }
    }

    fn end_sync(&mut self, name: &ResourceName, volume: u16, source: &HostName, target: &HostName) {
        let now = self.now;
        let keeps_flag = self.manner.module.major < 9;
        let Some(resource) = self.resources.get_mut(name) else { return };
        let Some(current) = resource.copy(source, volume).map(|copy| copy.current) else { return };
        for (host, peer) in [(source, target), (target, source)] {
            let Some(copy) = resource.copy_mut(host, volume) else { continue };
            if host == target {
                copy.follow(current);
                copy.disk = DiskState::UpToDate;
                copy.consistent = true;
                copy.was_up_to_date = true;
            }
            if !keeps_flag {
                copy.crashed_primary = false;
            }
            if let Some(toward) = copy.toward.get_mut(peer) {
                toward.bits.clear();
                toward.bitmap = Generation::NONE;
                toward.full_sync = false;
                toward.outdated = false;
                toward.replication = ReplicationState::Established;
                toward.finished.push(now);
            }
        }
        self.note(Place::Resource(name.clone()), format!("{target} is in sync with {source}"));
    }
}
