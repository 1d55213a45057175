//! What one node says about its replicated storage. Every value that the node may leave out is an `Option`, and
//! every word is kept when it is not understood: absent is unknown, and unknown is "no".
//!
//! Only what a gate looks at is here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host::generation::GenerationIds;
use crate::host::identity::{HostName, ResourceName};
use crate::host::words::words;

words!(
    /// Whether a node may write.
    Role {
        /// May write.
        Primary = "Primary",
        /// May not.
        Secondary = "Secondary",
    }
);

words!(
    /// The state of a connection to a peer.
    ConnectionState {
        /// Not connected and not trying. Also how a split brain looks.
        StandAlone = "StandAlone",
        /// Being taken down.
        Disconnecting = "Disconnecting",
        /// Between tries.
        Unconnected = "Unconnected",
        /// No answer in time.
        Timeout = "Timeout",
        /// The link broke.
        BrokenPipe = "BrokenPipe",
        /// The network failed.
        NetworkFailure = "NetworkFailure",
        /// The peer spoke another language.
        ProtocolError = "ProtocolError",
        /// The peer is taking it down.
        TearDown = "TearDown",
        /// Waiting for the peer: connects by itself as soon as the peer does.
        Connecting = "Connecting",
        /// Connected.
        Connected = "Connected",
    }
);

words!(
    /// What goes on between two copies of a volume.
    ReplicationState {
        /// Nothing.
        Off = "Off",
        /// Writes are mirrored.
        Established = "Established",
        /// A full copy to the peer begins.
        StartingSyncS = "StartingSyncS",
        /// A full copy from the peer begins.
        StartingSyncT = "StartingSyncT",
        /// Bitmaps are being exchanged, toward the peer.
        WFBitMapS = "WFBitMapS",
        /// Bitmaps are being exchanged, from the peer.
        WFBitMapT = "WFBitMapT",
        /// Identifiers are awaited.
        WFSyncUUID = "WFSyncUUID",
        /// Copying to the peer.
        SyncSource = "SyncSource",
        /// Being copied to.
        SyncTarget = "SyncTarget",
        /// Comparing, this side leads.
        VerifyS = "VerifyS",
        /// Comparing, the peer leads.
        VerifyT = "VerifyT",
        /// Copying to the peer, paused.
        PausedSyncS = "PausedSyncS",
        /// Being copied to, paused.
        PausedSyncT = "PausedSyncT",
        /// Writing ahead of the peer.
        Ahead = "Ahead",
        /// Left behind by the peer.
        Behind = "Behind",
    }
);

words!(
    /// The state of a copy.
    DiskState {
        /// No disk.
        Diskless = "Diskless",
        /// Coming.
        Attaching = "Attaching",
        /// Going.
        Detaching = "Detaching",
        /// Failed.
        Failed = "Failed",
        /// Not yet compared.
        Negotiating = "Negotiating",
        /// Half copied.
        Inconsistent = "Inconsistent",
        /// Consistent and known to be old.
        Outdated = "Outdated",
        /// Not known, for lack of a connection.
        DUnknown = "DUnknown",
        /// Consistent; whether it is current is not known.
        Consistent = "Consistent",
        /// Said to be current. Proves nothing by itself.
        UpToDate = "UpToDate",
    }
);

words!(
    /// When a write counts as done.
    Protocol {
        /// Once it is on the local disk.
        A = "A",
        /// Once the peer has received it.
        B = "B",
        /// Once it is on both disks.
        C = "C",
    }
);

words!(
    /// What is done by itself after a split brain.
    AfterSplitBrain {
        /// Nothing: disconnect. The only setting under which no side is discarded unasked.
        Disconnect = "disconnect",
    }
);

words!(
    /// Whether and why a resync is held.
    ResyncSuspended {
        /// It is not.
        No = "no",
        /// By the user.
        User = "user",
        /// By the peer.
        Peer = "peer",
        /// By an order between resources.
        Dependency = "dependency",
    }
);

/// The version of the storage module in a node's kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModuleVersion {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub patch: u32,
}

impl fmt::Display for ModuleVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Why a text is no module version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no module version: it must be three numbers with dots between")]
pub struct ModuleVersionError(String);

impl TryFrom<String> for ModuleVersion {
    type Error = ModuleVersionError;
    fn try_from(text: String) -> Result<Self, ModuleVersionError> {
        let numbers: Result<Vec<u32>, _> = text.split('.').map(str::parse).collect();
        match numbers.as_deref() {
            Ok([major, minor, patch]) => Ok(Self { major: *major, minor: *minor, patch: *patch }),
            Ok(_) | Err(_) => Err(ModuleVersionError(text)),
        }
    }
}

impl From<ModuleVersion> for String {
    fn from(value: ModuleVersion) -> Self {
        value.to_string()
    }
}

/// Everything that one node says about the asked resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageReading {
    /// The node's module.
    pub module: Option<ModuleVersion>,
    /// Status, then identifiers, then status again were read, and both status readings were equal. They come
    /// from separate queries: without this the parts may be from different moments.
    pub stable: bool,
    /// The resources that the node has configured, of those asked for.
    pub resources: BTreeMap<ResourceName, ResourceReading>,
    /// Resources for which a split brain was announced since the plan began, also one that resolved itself.
    /// `None` when the node cannot tell.
    pub split_brain_seen: Option<BTreeSet<ResourceName>>,
}

/// One resource on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceReading {
    /// Whether this node may write.
    pub role: Role,
    /// Why I/O stands still, if it does.
    pub suspended: Suspensions,
    /// I/O is made to fail.
    pub force_io_failures: Option<bool>,
    /// The copies on this node, by volume number.
    pub volumes: BTreeMap<u16, VolumeReading>,
    /// The connections to peers.
    pub connections: BTreeMap<HostName, ConnectionReading>,
}

/// Why I/O on a resource stands still.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspensions {
    /// Because it was asked for.
    pub user: Option<bool>,
    /// Because no copy can be reached.
    pub no_data: Option<bool>,
    /// Because a peer is being fenced.
    pub fencing: Option<bool>,
    /// Because quorum was lost.
    pub quorum: Option<bool>,
}

/// One copy on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeReading {
    /// The state of the copy.
    pub disk: DiskState,
    /// This node has no copy by intent.
    pub client: Option<bool>,
    /// This node has quorum.
    pub quorum: Option<bool>,
    /// Size in KiB.
    pub size_kib: Option<u64>,
    /// Writes from above that are not done.
    pub upper_pending: Option<u64>,
    /// Writes below that are not done.
    pub lower_pending: Option<u64>,
}

/// One connection as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionReading {
    /// The state of the connection.
    pub state: ConnectionState,
    /// Whether the peer may write.
    pub peer_role: Role,
    /// For each path of the connection, whether it is established.
    pub paths: Vec<Option<bool>>,
    /// How the connection is configured, defaults included.
    pub net: NetOptions,
    /// The peer's copies, by volume number.
    pub volumes: BTreeMap<u16, PeerVolumeReading>,
}

/// The options of a connection that decide what a reconnect may do by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetOptions {
    /// When a write counts as done.
    pub protocol: Protocol,
    /// After a split brain with no primary.
    pub after_sb_0pri: AfterSplitBrain,
    /// After a split brain with one primary.
    pub after_sb_1pri: AfterSplitBrain,
    /// After a split brain with two primaries.
    pub after_sb_2pri: AfterSplitBrain,
    /// Two nodes may write at once.
    pub allow_two_primaries: Option<bool>,
}

/// The peer's copy of a volume, and what lies between, as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerVolumeReading {
    /// What goes on between the copies.
    pub replication: ReplicationState,
    /// The state of the peer's copy.
    pub peer_disk: DiskState,
    /// The peer has no copy by intent.
    pub peer_client: Option<bool>,
    /// Whether a resync is held.
    pub resync_suspended: ResyncSuspended,
    /// How much this node knows the peer to lack, in KiB. One-sided: the stale side says 0. `None` when it was
    /// not reported, which is not 0.
    pub out_of_sync_kib: Option<u64>,
    /// Requests to the peer without an answer.
    pub pending: Option<u64>,
    /// Requests from the peer not answered.
    pub unacked: Option<u64>,
    /// How many resyncs between these copies the node has seen run to their end since the plan began, from its
    /// stream of events. `None` when it cannot tell.
    pub resyncs_finished: Option<u64>,
    /// The identifiers of the volume toward this peer.
    pub generation: Option<GenerationIds>,
}

/// The storage pods of one node, as the cluster's records show them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SatelliteReading {
    /// The node is marked so that storage pods stay away.
    pub kept_away: Option<bool>,
    /// The storage pods on the node that have not ended. `None` when the list is not known to be whole.
    pub pods: Option<BTreeSet<String>>,
}

impl SatelliteReading {
    /// No storage pod is on the node and none will come.
    pub fn is_drained(&self) -> bool {
        self.kept_away == Some(true) && self.pods.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// Storage pods are allowed on the node and at least one runs there.
    pub fn is_serving(&self) -> bool {
        self.kept_away == Some(false) && self.pods.as_ref().is_some_and(|pods| !pods.is_empty())
    }
}
