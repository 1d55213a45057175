//! What happens between copies: connections, handshakes, resyncs, writes. Goes by the module's own rules, the ones
//! under which data can be lost included.

use std::collections::BTreeSet;
use std::time::SystemTime;

use executor_api::host::{
    AfterSplitBrain, ConnectionState, DiskState, HostName, Protocol, ReplicationState, ResourceName,
};

use super::handshake::{Meeting, meet};
use super::link::{Quality, quality};
use super::records::{BreachKind, Place};
use super::replica::{Cause, Copy, Resource, Suspension};
use super::state::{Due, State};
use crate::spec::Rotation;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// It is acknowledged.
    Done,
    /// It waits.
    Waits,
    /// It fails.
    Fails,
}

impl State {
    /// How good the link between two hosts is now.
    pub(crate) fn link(&self, one: &HostName, other: &HostName) -> Quality {
        self.links.get(one).and_then(|to| to.get(other)).copied().unwrap_or(Quality::Dead)
    }

    fn measure_links(&mut self) {
        let alive: Vec<_> = self.hosts.iter().filter(|(_, host)| host.alive).collect();
        let from = |one: &super::state::Host| {
            alive
                .iter()
                .map(|(name, other)| ((*name).clone(), quality(&self.cabling, &one.bond, &other.bond)))
                .collect()
        };
        self.links = alive.iter().map(|(name, host)| ((*name).clone(), from(host))).collect();
    }

    /// A bond, a wire or a host changed: some connections will break, others can be made.
    pub(crate) fn links_changed(&mut self) {
        self.measure_links();
        let pairs: Vec<_> = self.pairs();
        for (resource, one, other) in pairs {
            let dead = self.link(&one, &other) == Quality::Dead;
            let Some(replicated) = self.resources.get(&resource) else { continue };
            if replicated.connected(&one, &other) || replicated.connected(&other, &one) {
                if dead {
                    self.once_after(self.pace.ping_timeout, Due::PingTimeout { resource, one, other });
                } else {
                    self.kick(&resource, &one, &other);
                    self.wake_writers(&resource);
                }
            } else if !dead {
                self.try_meet(&resource, &one, &other);
            }
        }
    }

    fn pairs(&self) -> Vec<(ResourceName, HostName, HostName)> {
        let mut pairs = Vec::new();
        for (name, resource) in &self.resources {
            for (one, side) in &resource.sides {
                for other in side.links.keys().filter(|other| *other > one) {
                    pairs.push((name.clone(), one.clone(), other.clone()));
                }
            }
        }
        pairs
    }

    pub(crate) fn ping_timeout(&mut self, resource: &ResourceName, one: &HostName, other: &HostName) {
        if self.link(one, other) == Quality::Dead {
            self.break_link(resource, one, other);
        }
    }

    /// A connection breaks; whoever is alive goes on trying.
    fn break_link(&mut self, name: &ResourceName, one: &HostName, other: &HostName) {
        let Some(resource) = self.resources.get_mut(name) else { return };
        let mut broke = false;
        for (host, peer) in [(one, other), (other, one)] {
            let link = resource.sides.get_mut(host).and_then(|side| side.links.get_mut(peer));
            if let Some(link) = link
                && link.state == ConnectionState::Connected
            {
                link.state = ConnectionState::Connecting;
                broke = true;
            }
        }
        if broke {
            self.note(Place::Resource(name.clone()), format!("{one} and {other} lost each other"));
            self.part(name, one, other);
            self.try_meet(name, one, other);
        }
    }

    /// One side takes its connection down and does not try again. The other side goes on trying.
    pub(crate) fn stand_alone(&mut self, name: &ResourceName, host: &HostName, peer: &HostName) {
        let Some(resource) = self.resources.get_mut(name) else { return };
        let Some(link) = resource.sides.get_mut(host).and_then(|side| side.links.get_mut(peer)) else {
            return;
        };
        if link.state == ConnectionState::StandAlone {
            return;
        }
        let was_connected = link.state == ConnectionState::Connected;
        link.state = ConnectionState::StandAlone;
        link.cause = Cause::World;
        if let Some(link) = resource.sides.get_mut(peer).and_then(|side| side.links.get_mut(host)) {
            link.cause = Cause::World;
            if link.state == ConnectionState::Connected {
                link.state = ConnectionState::Connecting;
            }
        }
        self.note(Place::Resource(name.clone()), format!("{host} stands alone from {peer}"));
        if was_connected {
            self.part(name, host, peer);
        }
    }

    /// What the end of a connection does to both copies.
    fn part(&mut self, name: &ResourceName, one: &HostName, other: &HostName) {
        let at_once = self.manner.rotation == Rotation::AtOnce;
        let mut rotate = Vec::new();
        if let Some(resource) = self.resources.get_mut(name) {
            for (host, peer) in [(one, other), (other, one)] {
                let Some(side) = resource.sides.get_mut(host) else { continue };
                let unsent =
                    side.links.get_mut(peer).map(|link| std::mem::take(&mut link.unsent)).unwrap_or_default();
                for (number, copy) in &mut side.copies {
                    if let Some(toward) = copy.toward.get_mut(peer) {
                        toward.replication = ReplicationState::Off;
                        let lost =
                            unsent.iter().filter(|(volume, ..)| volume == number).map(|(_, block, _)| *block);
                        toward.bits.extend(lost);
                    }
                    if side.primary && side.configured {
                        copy.rotates = true;
                    }
                }
                if side.primary && side.configured {
                    rotate.push(host.clone());
                }
            }
        }
        if at_once {
            for host in &rotate {
                self.rotate(name, host);
            }
        }
        self.wake_writers(name);
    }

    /// A primary begins a new generation in every volume, and so does whoever is connected to it.
    pub(crate) fn rotate(&mut self, name: &ResourceName, host: &HostName) {
        let volumes = self.resources.get(name).map(Resource::volumes).unwrap_or_default();
        for volume in volumes {
            let fresh = self.generation();
            let Some(resource) = self.resources.get_mut(name) else { return };
            let connected = resource.peers_connected(host);
            let apart: Vec<_> = resource
                .sides
                .keys()
                .filter(|peer| *peer != host && !connected.contains(peer))
                .cloned()
                .collect();
            for who in connected.iter().chain([host]) {
                if let Some(copy) = resource.copy_mut(who, volume) {
                    copy.rotate(fresh, &apart);
                }
            }
        }
    }

    /// One side begins to try, if it does not already.
    pub(crate) fn connect(&mut self, name: &ResourceName, host: &HostName, peer: &HostName, cause: &Cause) {
        let Some(resource) = self.resources.get_mut(name) else { return };
        let Some(side) = resource.sides.get_mut(host) else { return };
        side.configured = true;
        let Some(link) = side.links.get_mut(peer) else { return };
        if link.state == ConnectionState::StandAlone {
            link.state = ConnectionState::Connecting;
            link.cause = cause.clone();
            self.note(Place::Resource(name.clone()), format!("{host} begins to look for {peer}"));
        }
        self.try_meet(name, host, peer);
    }

    /// What a storage pod does when it comes: every resource of its host is brought up.
    pub(crate) fn adjust(&mut self, host: &HostName, cause: &Cause) {
        let mut links = Vec::new();
        for (name, resource) in &self.resources {
            if let Some(side) = resource.sides.get(host) {
                links.extend(side.links.keys().map(|peer| (name.clone(), peer.clone())));
            }
        }
        for (name, peer) in links {
            self.connect(&name, host, &peer, cause);
        }
    }

    pub(crate) fn try_meet(&mut self, name: &ResourceName, one: &HostName, other: &HostName) {
        if self.can_meet(name, one, other) {
            let (one, other) = if one < other { (one, other) } else { (other, one) };
            let due = Due::Handshake { resource: name.clone(), one: one.clone(), other: other.clone() };
            self.once_after(self.pace.handshake, due);
        }
    }

    fn can_meet(&self, name: &ResourceName, one: &HostName, other: &HostName) -> bool {
        let Some(resource) = self.resources.get(name) else { return false };
        let trying = |host, peer| resource.state(host, peer) == Some(&ConnectionState::Connecting);
        !resource.blocked
            && trying(one, other)
            && trying(other, one)
            && [one, other].into_iter().all(|host| resource.sides[host].configured)
            && self.link(one, other) != Quality::Dead
    }

    /// Two sides meet.
    pub(crate) fn handshake(&mut self, name: &ResourceName, one: &HostName, other: &HostName) {
        if !self.can_meet(name, one, other) {
            return;
        }
        let place = Place::Resource(name.clone());
        let Some(resource) = self.resources.get(name) else { return };
        let module = self.manner.module;
        let careful = (module.major, module.minor, module.patch) >= (9, 2, 19);
        let meetings: Vec<_> = resource
            .volumes()
            .into_iter()
            .filter_map(|volume| {
                let (a, b) = (resource.copy(one, volume)?, resource.copy(other, volume)?);
                Some((volume, meet(&a.card(other), &b.card(one), careful)))
            })
            .collect();
        let two_primaries =
            resource.sides[one].primary && resource.sides[other].primary && !resource.net.allow_two_primaries;
        let unasked = resource.net.after_split_brain != AfterSplitBrain::Disconnect;
        let split = meetings.iter().any(|(_, meeting)| *meeting == Meeting::SplitBrain);
        let far = meetings.iter().any(|(_, meeting)| *meeting == Meeting::SplitBrainFar);
        let unrelated = meetings.iter().any(|(_, meeting)| *meeting == Meeting::Unrelated);
        self.judge_meeting(name, one, other);
        if unrelated || far || two_primaries || (split && !unasked) {
            let announced = split || far;
            let what = if announced {
                "split brain"
            } else if unrelated {
                "unrelated data"
            } else {
                "two primaries"
            };
            self.note(place, format!("{one} meets {other}: {what}; connection dropped"));
            self.drop_meeting(name, one, other, announced);
            return;
        }
        if split {
            for host in [one, other] {
                self.announce(name, host);
            }
            self.note(place.clone(), format!("{one} meets {other}: split brain, resolved by itself"));
        }
        if let Some(resource) = self.resources.get_mut(name) {
            for (host, peer) in [(one, other), (other, one)] {
                let side = resource.sides.get_mut(host);
                if let Some(link) = side.and_then(|side| side.links.get_mut(peer)) {
                    link.state = ConnectionState::Connected;
                }
            }
        }
        self.note(place, format!("{one} and {other} are connected"));
        for (volume, meeting) in meetings {
            match meeting {
                Meeting::FirstToSecond => self.begin_sync(name, volume, one, other, false),
                Meeting::SecondToFirst => self.begin_sync(name, volume, other, one, false),
                Meeting::AllToSecond => self.begin_sync(name, volume, one, other, true),
                Meeting::AllToFirst => self.begin_sync(name, volume, other, one, true),
                Meeting::SplitBrain | Meeting::SplitBrainFar | Meeting::Unrelated => {
                    let (source, target) = self.survivor(name, volume, one, other);
                    self.begin_sync(name, volume, &source, &target, false);
                }
                Meeting::NoSync => self.no_sync(name, volume, one, other),
            }
        }
        self.wake_writers(name);
    }

    fn drop_meeting(&mut self, name: &ResourceName, one: &HostName, other: &HostName, announced: bool) {
        let one_sided = announced && self.manner.one_sided_split_brain;
        for (host, peer) in [(one, other), (other, one)] {
            if one_sided && host == other {
                continue;
            }
            if announced {
                self.announce(name, host);
            }
            let resource = self.resources.get_mut(name);
            let side = resource.and_then(|resource| resource.sides.get_mut(host));
            if let Some(link) = side.and_then(|side| side.links.get_mut(peer)) {
                link.state = ConnectionState::StandAlone;
            }
        }
    }

    pub(crate) fn announce(&mut self, name: &ResourceName, host: &HostName) {
        let now = self.now;
        if let Some(side) = self.resources.get_mut(name).and_then(|resource| resource.sides.get_mut(host)) {
            side.announced.push(now);
        }
    }

    /// Who is kept when a split brain resolves itself: the primary, or whoever changed more.
    fn survivor(
        &self,
        name: &ResourceName,
        volume: u16,
        one: &HostName,
        other: &HostName,
    ) -> (HostName, HostName) {
        let weight = |host: &HostName, peer: &HostName| {
            let resource = self.resources.get(name)?;
            let bits = resource.copy(host, volume)?.toward.get(peer)?.bits.len();
            Some((resource.sides.get(host)?.primary, bits))
        };
        if weight(one, other) >= weight(other, one) {
            (one.clone(), other.clone())
        } else {
            (other.clone(), one.clone())
        }
    }

    /// Nothing is copied. What either side counted is forgotten.
    fn no_sync(&mut self, name: &ResourceName, volume: u16, one: &HostName, other: &HostName) {
        let Some(resource) = self.resources.get_mut(name) else { return };
        for (host, peer) in [(one, other), (other, one)] {
            let Some(copy) = resource.copy_mut(host, volume) else { continue };
            copy.rotates = false;
            if let Some(toward) = copy.toward.get_mut(peer) {
                toward.bits.clear();
                toward.bitmap = executor_api::host::Generation::NONE;
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

    fn begin_sync(
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
        if !under_way || ours.held || theirs.held || link == Quality::Dead {
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
        let before = std::mem::replace(&mut copy.blocks[block as usize], content);
        let elsewhere = |write: u64| {
            let mut copies = resource.sides.values().filter_map(|side| side.copies.get(&volume));
            copies.any(|copy| self.ledger.holds(copy.blocks[block as usize], write))
        };
        let destroyed: Vec<_> = self
            .ledger
            .owed(&place)
            .filter(|write| self.ledger.holds(before, *write) && !elsewhere(*write))
            .collect();
        let asked = self.asked_by(name, source, target);
        for write in destroyed {
            let what = format!("write {write} of block {block} on {target} was overwritten from {source}");
            let excused = asked.is_none() || self.hidden.contains(&place);
            self.breach(BreachKind::DataDestroyed, Place::Resource(name.clone()), what, excused);
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
                toward.bitmap = executor_api::host::Generation::NONE;
                toward.full_sync = false;
                toward.outdated = false;
                toward.replication = ReplicationState::Established;
                toward.finished.push(now);
            }
        }
        self.note(Place::Resource(name.clone()), format!("{target} is in sync with {source}"));
    }

    /// A host becomes primary. Not possible while a connected peer is, unless two are allowed.
    pub(crate) fn promote(&mut self, name: &ResourceName, host: &HostName) -> bool {
        let at_once = self.manner.rotation == Rotation::AtOnce;
        let Some(resource) = self.resources.get_mut(name) else { return false };
        let connected = resource.peers_connected(host);
        let other = connected.iter().any(|peer| resource.sides[peer].primary);
        if other && !resource.net.allow_two_primaries {
            return false;
        }
        let good = |host: &HostName, resource: &Resource| {
            resource.sides.get(host).is_some_and(|side| {
                side.configured && side.copies.values().all(|copy| copy.disk == DiskState::UpToDate)
            })
        };
        let can = good(host, resource) || connected.iter().any(|peer| good(peer, resource));
        let alone = resource.sides.len() > connected.len() + 1;
        let Some(side) = resource.sides.get_mut(host) else { return false };
        if !can || !side.configured {
            return false;
        }
        if side.primary {
            return true;
        }
        side.primary = true;
        if alone {
            side.copies.values_mut().for_each(|copy| copy.rotates = true);
        }
        if alone && at_once {
            self.rotate(name, host);
        }
        true
    }

    /// A host becomes secondary.
    pub(crate) fn demote(&mut self, name: &ResourceName, host: &HostName) {
        let side = self.resources.get_mut(name).and_then(|resource| resource.sides.get_mut(host));
        if let Some(side) = side {
            side.primary = false;
            side.copies.values_mut().for_each(|copy| copy.rotates = false);
        }
    }

    /// A write from above on a host.
    pub(crate) fn write(&mut self, name: &ResourceName, host: &HostName, volume: u16, block: u32) -> Wrote {
        let Some(resource) = self.resources.get(name) else { return Wrote::Fails };
        let Some(side) = resource.sides.get(host) else { return Wrote::Fails };
        if !side.primary || !side.configured {
            return Wrote::Fails;
        }
        let connected = resource.peers_connected(host);
        if side.suspended.is_some() || connected.iter().any(|peer| self.link(host, peer) == Quality::Dead) {
            return Wrote::Waits;
        }
        let Some(copy) = side.copies.get(&volume) else { return Wrote::Fails };
        let up = |copy: Option<&Copy>| copy.is_some_and(|copy| copy.disk == DiskState::UpToDate);
        if !up(Some(copy)) && !connected.iter().any(|peer| up(resource.copy(peer, volume))) {
            return Wrote::Fails;
        }
        let apart: Vec<_> = side.links.keys().filter(|peer| !connected.contains(peer)).cloned().collect();
        if copy.rotates && !apart.is_empty() {
            self.rotate(name, host);
        }
        self.put(name, host, volume, block, &connected, &apart);
        Wrote::Done
    }

    fn put(
        &mut self,
        name: &ResourceName,
        host: &HostName,
        volume: u16,
        block: u32,
        connected: &[HostName],
        apart: &[HostName],
    ) {
        let version = self.ledger.mint();
        let Some(resource) = self.resources.get_mut(name) else { return };
        let later = resource.net.protocol == Protocol::A;
        let Some(copy) = resource.copy_mut(host, volume) else { return };
        let before = std::mem::replace(&mut copy.blocks[block as usize], version);
        copy.heat(block);
        for peer in apart {
            if let Some(toward) = copy.toward.get_mut(peer) {
                toward.bits.insert(block);
            }
        }
        for peer in connected {
            if later {
                let side = resource.sides.get_mut(host);
                if let Some(link) = side.and_then(|side| side.links.get_mut(peer)) {
                    link.unsent.push((volume, block, version));
                }
                continue;
            }
            if let Some(copy) = resource.copy_mut(peer, volume) {
                copy.blocks[block as usize] = version;
                copy.toward.iter_mut().filter(|(other, _)| apart.contains(other)).for_each(|(_, toward)| {
                    toward.bits.insert(block);
                });
            }
            // Both have it now, whichever of them was behind.
            for (one, other) in [(host, peer), (peer, host)] {
                if let Some(toward) =
                    resource.copy_mut(one, volume).and_then(|copy| copy.toward.get_mut(other))
                    && toward.replication != ReplicationState::Established
                {
                    toward.bits.remove(&block);
                }
            }
        }
        self.hidden.remove(&(name.clone(), volume, block));
        self.ledger.acknowledge((name.clone(), volume, block), version, before);
        if later {
            for peer in connected {
                let due = Due::Flush { resource: name.clone(), host: host.clone(), peer: peer.clone() };
                self.once_after(self.pace.handshake, due);
            }
        }
    }

    /// What was acknowledged early reaches the other side.
    pub(crate) fn flush(&mut self, name: &ResourceName, host: &HostName, peer: &HostName) {
        if self.link(host, peer) == Quality::Dead {
            return;
        }
        let Some(resource) = self.resources.get_mut(name) else { return };
        if !resource.connected(host, peer) {
            return;
        }
        let side = resource.sides.get_mut(host);
        let link = side.and_then(|side| side.links.get_mut(peer));
        let unsent = link.map(|link| std::mem::take(&mut link.unsent)).unwrap_or_default();
        for (volume, block, version) in unsent {
            if let Some(copy) = resource.copy_mut(peer, volume) {
                copy.blocks[block as usize] = version;
            }
        }
    }

    /// I/O on a host stands still from now on.
    pub(crate) fn suspend(&mut self, name: &ResourceName, host: &HostName, until: Suspension) {
        let side = self.resources.get_mut(name).and_then(|resource| resource.sides.get_mut(host));
        if let Some(side) = side {
            side.suspended = Some(until);
            self.note(Place::Resource(name.clone()), format!("I/O on {host} is suspended"));
        }
        if let Suspension::Until(until) = until {
            self.at(until, Due::SuspensionEnds { resource: name.clone(), host: host.clone(), until });
        }
    }

    /// I/O on a host goes on.
    pub(crate) fn resume(&mut self, name: &ResourceName, host: &HostName) {
        let side = self.resources.get_mut(name).and_then(|resource| resource.sides.get_mut(host));
        if let Some(side) = side
            && side.suspended.take().is_some()
        {
            self.note(Place::Resource(name.clone()), format!("I/O on {host} goes on"));
            self.wake_writers(name);
        }
    }

    pub(crate) fn suspension_ends(&mut self, name: &ResourceName, host: &HostName, until: SystemTime) {
        let side = self.resources.get(name).and_then(|resource| resource.sides.get(host));
        if side.is_some_and(|side| side.suspended == Some(Suspension::Until(until))) {
            self.resume(name, host);
        }
    }

    /// Whether the host's copy, or a good one that it is connected to, holds everything promised.
    pub(crate) fn serves_whole(&self, name: &ResourceName, host: &HostName) -> bool {
        let Some(resource) = self.resources.get(name) else { return true };
        let up = |host: &HostName| {
            resource.sides[host].copies.values().all(|copy| copy.disk == DiskState::UpToDate)
        };
        let Some(side) = resource.sides.get(host) else { return false };
        if side.configured && up(host) {
            return self.is_whole(name, host);
        }
        resource.peers_connected(host).iter().any(|peer| up(peer) && self.is_whole(name, peer))
    }

    /// Whether the host's copy holds everything promised.
    pub(crate) fn is_whole(&self, name: &ResourceName, host: &HostName) -> bool {
        let Some(side) = self.resources.get(name).and_then(|resource| resource.sides.get(host)) else {
            return false;
        };
        self.ledger.heads().filter(|((resource, ..), _)| resource == name).all(|(place, _)| {
            let copy = side.copies.get(&place.1);
            copy.is_some_and(|copy| self.ledger.is_whole(place, copy.blocks[place.2 as usize]))
        })
    }
}
