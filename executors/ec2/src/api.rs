//! The few EC2 calls that are used, in plain types: the only thing between the provider and an SDK. Implementations
//! translate and keep time; they decide nothing and repeat no call that may have made something.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::settings::{Disk, Market, Metadata};

/// The EC2 API of one region.
///
/// Every call ends within `within`; dropping its future stops it.
#[async_trait]
pub(crate) trait Ec2Api: Send + Sync + fmt::Debug {
    /// `RunInstances` for exactly one instance. Never sent twice by itself.
    async fn run(&self, launch: &Launch, within: Duration) -> Result<Vec<Instance>, CallError>;

    /// `RunInstances` as a rehearsal: whether it would be allowed. Makes nothing.
    async fn rehearse(&self, launch: &Launch, within: Duration) -> Result<(), CallError>;

    /// `DescribeInstances`, all pages.
    async fn describe(&self, query: &Query, within: Duration) -> Result<Described, CallError>;

    /// `DescribeInstanceStatus` of one instance; `None` if EC2 has no status of it yet.
    async fn status(&self, id: &str, within: Duration) -> Result<Option<StatusChecks>, CallError>;

    /// `TerminateInstances` of one instance; the state that the answer gives it.
    async fn terminate(&self, id: &str, within: Duration) -> Result<Option<State>, CallError>;
}

/// Everything that is sent to launch one instance. A pure function of spec, attempt and candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) token: String,
    pub(crate) image: String,
    pub(crate) instance_type: String,
    pub(crate) place: Place,
    pub(crate) security_groups: Vec<String>,
    pub(crate) key_pair: Option<String>,
    pub(crate) instance_profile: Option<String>,
    pub(crate) public_ip: Option<bool>,
    pub(crate) disk: Option<Disk>,
    /// As the user wrote it, with placeholders filled in; not yet encoded.
    pub(crate) user_data: Option<String>,
    pub(crate) market: Market,
    pub(crate) spot_max_price: Option<String>,
    pub(crate) metadata: Metadata,
    pub(crate) tags: BTreeMap<String, String>,
}

/// Where an instance is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In this subnet.
    Subnet(String),
    /// In the default subnet of this zone.
    Zone(String),
    /// Wherever EC2 likes.
    Anywhere,
}

/// Which instances are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    /// Exactly this one.
    Id(String),
    /// Those that carry all of these tags.
    Tags(Vec<(String, String)>),
    /// Those launched with this client token.
    Token(String),
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) instances: Vec<Instance>,
    /// Whether every page was read.
    pub(crate) complete: bool,
}

/// One instance, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    /// Empty if the answer lacked it.
    pub(crate) id: String,
    pub(crate) state: State,
    pub(crate) launched_at: Option<SystemTime>,
    pub(crate) kind: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) private_ip: Option<String>,
    pub(crate) public_ip: Option<String>,
    pub(crate) client_token: Option<String>,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) spot: bool,
    /// Code and message of the last change of state.
    pub(crate) state_reason: Option<(String, String)>,
}

/// An instance's state, in EC2's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Running,
    Stopping,
    Stopped,
    ShuttingDown,
    Terminated,
    /// A word that this code does not know.
    Unknown,
}

/// What EC2's two status checks say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatusChecks {
    pub(crate) system: String,
    pub(crate) instance: String,
}

/// How far a failed call got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// The request could not even be put together.
    NotBuilt,
    /// There were no usable credentials to sign it with.
    NoCredentials,
    /// No connection came about.
    NotSent,
    /// It may have been sent; no answer came.
    NoAnswer,
    /// An answer came that could not be read.
    BrokenAnswer,
    /// EC2 answered with an error, or what looked like one.
    Answered,
}

/// One failed call.
#[derive(Debug)]
pub(crate) struct CallError {
    pub(crate) reached: Reached,
    /// HTTP status of the answer.
    pub(crate) status: Option<u16>,
    /// EC2's error code. An answer without one proves nothing.
    pub(crate) code: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) request_id: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) source: Option<Box<dyn Error + Send + Sync>>,
}

impl CallError {
    pub(crate) fn new(reached: Reached) -> Self {
        Self {
            reached,
            status: None,
            code: None,
            message: None,
            request_id: None,
            retry_after: None,
            source: None,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.reached, &self.code) {
            (Reached::NotBuilt, _) => f.write_str("the request could not be put together")?,
            (Reached::NoCredentials, _) => f.write_str("no usable AWS credentials were found")?,
            (Reached::NotSent, _) => f.write_str("no connection to EC2 came about")?,
            (Reached::NoAnswer, _) => f.write_str("no answer came from EC2")?,
            (Reached::BrokenAnswer, _) => f.write_str("the answer of EC2 was broken")?,
            (Reached::Answered, None) => f.write_str("EC2's answer carried no error code")?,
            (Reached::Answered, Some(code)) => write!(f, "EC2 answered {code}")?,
        }
        if let Some(message) = &self.message {
            write!(f, ": {message}")?;
        }
        match (self.status, &self.request_id) {
            (Some(status), Some(id)) => write!(f, " [HTTP {status}, request {id}]"),
            (Some(status), None) => write!(f, " [HTTP {status}]"),
            (None, _) => Ok(()),
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
