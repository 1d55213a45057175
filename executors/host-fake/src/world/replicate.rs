//! Connections between copies: how they come about, meet, part and break. Goes by the module's own rules, the ones
//! under which data can be lost included. Copying is in `resync`, writes from above in `writes`.

use executor_api::host::{AfterSplitBrain, ConnectionState, HostName, ReplicationState, ResourceName};

use super::handshake::{Meeting, meet};
use super::link::{Quality, quality};
use super::records::Place;
use super::replica::{Cause, Resource};
use super::state::{Due, State};
use crate::spec::Rotation;

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
    pub(crate) fn break_link(&mut self, name: &ResourceName, one: &HostName, other: &HostName) {
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
                // Where a disk is missing nothing is compared, and nothing copied.
                (a.is_there() && b.is_there()).then(|| (volume, meet(&a.card(other), &b.card(one), careful)))
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
            resource.apart_by_caller = false;
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
}
