//! One resource: its copies block by block, what each counts the others to lack, its identifiers and connections.
//! What happens between copies is in `replicate`, `resync` and `writes`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use executor_api::host::{
    AfterSplitBrain, ConnectionState, DiskState, Generation, HostName, NetOptions, ReplicationState, Role,
};

use crate::spec::ResourceSpec;
use crate::world::handshake::Card;

/// Who set something in motion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    /// Nobody who could be asked.
    World,
    /// An operation, and when its caller last looked at storage.
    Caller { what: String, since: u64 },
}

/// One resource on all its hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Resource {
    pub(crate) sides: BTreeMap<HostName, Side>,
    pub(crate) net: Net,
    /// Handshakes do not come to an end.
    pub(crate) blocked: bool,
    /// Its copies were together until an operation took them apart.
    pub(crate) apart_by_caller: bool,
}

/// [`NetOptions`], which cannot be hashed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Net {
    pub(crate) protocol: executor_api::host::Protocol,
    pub(crate) after_split_brain: AfterSplitBrain,
    pub(crate) allow_two_primaries: bool,
}

impl Net {
    pub(crate) fn options(&self) -> NetOptions {
        NetOptions {
            protocol: self.protocol.clone(),
            after_sb_0pri: self.after_split_brain.clone(),
            after_sb_1pri: self.after_split_brain.clone(),
            after_sb_2pri: self.after_split_brain.clone(),
            allow_two_primaries: Some(self.allow_two_primaries),
        }
    }
}

/// One host's side of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Side {
    /// The kernel knows the resource. Not so after a boot, until a storage pod brings it up.
    pub(crate) configured: bool,
    pub(crate) primary: bool,
    /// I/O stands still.
    pub(crate) suspended: Option<Suspension>,
    pub(crate) copies: BTreeMap<u16, Copy>,
    pub(crate) links: BTreeMap<HostName, Link>,
    /// When a split brain was announced here.
    pub(crate) announced: Vec<SystemTime>,
}

/// Until when I/O stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Suspension {
    /// By an operation, at the longest until then.
    Until(SystemTime),
    /// Until told otherwise.
    ByHand,
}

/// One connection as one side has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    pub(crate) state: ConnectionState,
    pub(crate) cause: Cause,
    /// Writes acknowledged here that the other side has not got yet (protocol A): volume, block, content.
    pub(crate) unsent: Vec<(u16, u32, u64)>,
}

/// One copy of one volume.
#[expect(clippy::struct_excessive_bools, reason = "the flags that the module keeps, one by one")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Copy {
    pub(crate) blocks: Vec<u64>,
    pub(crate) disk: DiskState,
    pub(crate) current: Generation,
    /// Newest first.
    pub(crate) history: Vec<Generation>,
    pub(crate) consistent: bool,
    pub(crate) was_up_to_date: bool,
    pub(crate) crashed_primary: bool,
    /// A new generation begins with the next write.
    pub(crate) rotates: bool,
    pub(crate) toward: BTreeMap<HostName, Toward>,
    /// The blocks written last: what a crash makes doubtful.
    pub(crate) hot: Vec<u32>,
    /// What the world made of blocks by itself, with what was there: whoever writes on top replaces that.
    pub(crate) lapsed: BTreeMap<u32, u64>,
}

/// What one copy knows and does about another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Toward {
    pub(crate) bitmap: Generation,
    /// The blocks that the other lacks, as far as this side knows.
    pub(crate) bits: BTreeSet<u32>,
    pub(crate) outdated: bool,
    pub(crate) full_sync: bool,
    pub(crate) replication: ReplicationState,
    pub(crate) held: bool,
    /// When resyncs ran to their end.
    pub(crate) finished: Vec<SystemTime>,
}

impl Resource {
    pub(crate) fn new(spec: &ResourceSpec, current: Generation, former: Generation) -> Self {
        let side = |host: &HostName| {
            let peers: Vec<_> = spec.on.iter().filter(|other| *other != host).collect();
            let copy = |count: u32| Copy {
                blocks: vec![0; count as usize],
                disk: DiskState::UpToDate,
                current,
                history: vec![former],
                consistent: true,
                was_up_to_date: true,
                crashed_primary: false,
                rotates: false,
                toward: peers.iter().map(|peer| ((*peer).clone(), Toward::established())).collect(),
                hot: Vec::new(),
                lapsed: BTreeMap::new(),
            };
            let link = Link { state: ConnectionState::Connected, cause: Cause::World, unsent: Vec::new() };
            Side {
                configured: true,
                primary: false,
                suspended: None,
                copies: (0..).zip(spec.blocks.iter().map(|count| copy(*count))).collect(),
                links: peers.iter().map(|peer| ((*peer).clone(), link.clone())).collect(),
                announced: Vec::new(),
            }
        };
        Self {
            sides: spec.on.iter().map(|host| (host.clone(), side(host))).collect(),
            net: Net {
                protocol: spec.protocol.clone(),
                after_split_brain: spec.after_split_brain.clone(),
                allow_two_primaries: spec.allow_two_primaries,
            },
            blocked: false,
            apart_by_caller: false,
        }
    }

    pub(crate) fn copy(&self, host: &HostName, volume: u16) -> Option<&Copy> {
        self.sides.get(host)?.copies.get(&volume)
    }

    pub(crate) fn copy_mut(&mut self, host: &HostName, volume: u16) -> Option<&mut Copy> {
        self.sides.get_mut(host)?.copies.get_mut(&volume)
    }

    pub(crate) fn state(&self, host: &HostName, peer: &HostName) -> Option<&ConnectionState> {
        self.sides.get(host)?.links.get(peer).map(|link| &link.state)
    }

    pub(crate) fn connected(&self, host: &HostName, peer: &HostName) -> bool {
        self.state(host, peer) == Some(&ConnectionState::Connected)
    }

    /// The hosts that a host's side is connected to.
    pub(crate) fn peers_connected(&self, host: &HostName) -> Vec<HostName> {
        let Some(side) = self.sides.get(host) else { return Vec::new() };
        let connected = side.links.iter().filter(|(_, link)| link.state == ConnectionState::Connected);
        connected.map(|(peer, _)| peer.clone()).collect()
    }

    pub(crate) fn volumes(&self) -> Vec<u16> {
        self.sides.values().next().map(|side| side.copies.keys().copied().collect()).unwrap_or_default()
    }
}

impl Side {
    pub(crate) fn role(&self) -> Role {
        if self.primary { Role::Primary } else { Role::Secondary }
    }

    /// Neither connected nor trying to be, toward anybody.
    pub(crate) fn is_apart(&self) -> bool {
        !self.configured || self.links.values().all(|link| link.state == ConnectionState::StandAlone)
    }
}

impl Copy {
    /// Begins a new generation: everybody who is not connected is counted against the old one.
    pub(crate) fn rotate(&mut self, fresh: Generation, apart: &[HostName]) {
        let old = self.current;
        for peer in apart {
            if let Some(toward) = self.toward.get_mut(peer)
                && toward.bitmap.is_none()
            {
                toward.bitmap = old;
            }
        }
        self.retire(old);
        self.current = fresh;
        self.rotates = false;
    }

    /// Takes another generation over, as it is.
    pub(crate) fn follow(&mut self, generation: Generation) {
        if !self.current.same(generation) {
            self.retire(self.current);
            self.current = generation;
        }
    }

    fn retire(&mut self, old: Generation) {
        if !old.is_trivial() && !self.history.first().is_some_and(|newest| newest.same(old)) {
            self.history.insert(0, old);
            self.history.truncate(32);
        }
    }

    pub(crate) fn card(&self, peer: &HostName) -> Card {
        let toward = self.toward.get(peer);
        Card {
            current: self.current,
            bitmap: toward.map_or(Generation::NONE, |toward| toward.bitmap),
            history: self.history.clone(),
            crashed_primary: self.crashed_primary,
            has_bits: toward.is_some_and(|toward| !toward.bits.is_empty()),
        }
    }

    /// Puts content into a block. What it replaces.
    pub(crate) fn set(&mut self, block: u32, content: u64) -> u64 {
        let before = std::mem::replace(&mut self.blocks[block as usize], content);
        self.lapsed.remove(&block).unwrap_or(before)
    }

    /// A block's content becomes another by itself.
    pub(crate) fn lapse(&mut self, block: u32, content: u64) {
        let before = self.set(block, content);
        self.lapsed.insert(block, before);
    }

    /// Whether there is anything to read and to write.
    pub(crate) fn is_there(&self) -> bool {
        self.disk != DiskState::Diskless
    }

    /// Remembers which blocks are being written.
    pub(crate) fn heat(&mut self, block: u32) {
        self.hot.retain(|other| *other != block);
        self.hot.push(block);
        if self.hot.len() > 4 {
            self.hot.remove(0);
        }
    }
}

impl Toward {
    fn established() -> Self {
        Self {
            bitmap: Generation::NONE,
            bits: BTreeSet::new(),
            outdated: false,
            full_sync: false,
            replication: ReplicationState::Established,
            held: false,
            finished: Vec::new(),
        }
    }
}
