//! What exists: leases, endpoints, sessions, members, and how a reading of them is stated.
//! A reading is never a bare boolean: it says what was seen, or that nothing could be said.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::identity::{AttemptKey, ProviderName};
use crate::secret::SecretRef;

/// Defines a newtype over an identifier that a provider chose.
macro_rules! foreign_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

foreign_id!(
    /// The provider's own name for a lease (an instance id, a directory). Never empty in a fact.
    LeaseId
);
foreign_id!(
    /// The bootstrapper's own name for a session.
    BootstrapSessionId
);

/// What is known of a lease that the provider holds for an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseFacts {
    /// The provider's own name for it.
    pub lease_id: LeaseId,
    /// Who leases it.
    pub provider: ProviderName,
    /// When the provider says it was made, if it says.
    pub created_at: Option<SystemTime>,
    /// Provider-specific facts worth keeping (zone, directory). Never a secret.
    pub attributes: BTreeMap<String, String>,
}

/// How to prove oneself at an endpoint. By reference only: a secret is never stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndpointAuth {
    /// Nothing is needed.
    #[default]
    None,
    /// A private key.
    Key {
        /// The account at the endpoint.
        user: String,
        /// Where the key is.
        key: SecretRef,
    },
    /// A bearer token.
    Token(SecretRef),
}

/// Where a node can be reached. An address, never an identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// How to authenticate.
    pub auth: EndpointAuth,
    /// Further named ports of the node.
    pub ports: BTreeMap<String, u16>,
}

impl Endpoint {
    /// An address that needs no proof and has no further ports.
    pub fn at(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port, auth: EndpointAuth::None, ports: BTreeMap::new() }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// What is known of an attempt's bootstrap session. Facts outlive the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapFacts {
    /// The session.
    pub session: BootstrapSessionId,
    /// When its start was folded.
    pub started_at: SystemTime,
    /// Highest sequence number seen; an older one is a repeat.
    pub last_sequence: u64,
    /// What it is doing, in its own words.
    pub phase: Option<String>,
    /// How it ended, once it has.
    pub ended: Option<String>,
}

/// What is known of a node that joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberFacts {
    /// The member's own name for itself.
    pub member_id: String,
    /// The nonce it was given at bootstrap, quoted back.
    pub nonce: String,
    /// When it joined.
    pub joined_at: SystemTime,
}

/// Where a resource is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// Being made.
    Pending,
    /// Usable.
    Live,
    /// Being ended; cannot come back.
    Ending,
    /// Ended; only its name is left.
    Dead,
}

/// What a read found.
///
/// `Unknown` is never `Absent`: an error, a throttle, an expired credential, an empty page, or a "not found"
/// for something younger than the visibility allowance says nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading<T> {
    /// It is there.
    Present {
        /// What was seen.
        facts: T,
        /// Where it is in its life.
        life: Life,
        /// The time that the reading describes.
        as_of: SystemTime,
    },
    /// Proved not to be there, as of that time.
    Absent {
        /// The time that the reading describes.
        as_of: SystemTime,
    },
    /// Nothing can be said.
    Unknown {
        /// Why not.
        reason: String,
        /// When the attempt to read was made.
        as_of: SystemTime,
    },
}

/// Whose a listed resource is, as its labels say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseOwner {
    /// An attempt; its run may be another uid of the same name, and then it is foreign.
    Attempt(AttemptKey),
    /// It carries the run's name but no complete identity.
    Incomplete,
}

/// One lease in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedLease {
    /// Whose it is.
    pub owner: LeaseOwner,
    /// What it is.
    pub lease: LeaseFacts,
    /// Where it can be reached, if the listing says.
    pub endpoint: Option<Endpoint>,
    /// Where it is in its life.
    pub life: Life,
    /// Why it is not live, in the provider's words.
    pub reason: Option<String>,
}

/// All leases that carry a run's name, those of other uids included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// The time that the listing describes.
    pub as_of: SystemTime,
    /// Whether every page was read. A lease missing from an incomplete listing means nothing.
    pub complete: bool,
    /// The leases.
    pub leases: Vec<ListedLease>,
}
