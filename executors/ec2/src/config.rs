//! How this process talks to EC2, as opposed to what a spec asks of it. Changing it replaces no node.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::{Timer, Visibility};

use crate::targets::Target;

/// Settings of the provider itself.
#[derive(Clone, Debug)]
pub struct Ec2Config {
    /// How late and how hidden EC2's effects may be. EC2 promises no number; the default of a minute each is
    /// generous, and only lengthens how long an unanswered create is looked for before it counts as absent.
    pub visibility: Visibility,
    /// Whether the API keeps its promise about client tokens. EC2 does; some imitations do not.
    pub tokens: Tokens,
    /// Whether [`validate`](executor_api::LeaseProvider::validate) also rehearses each launch with `DryRun`.
    pub preflight: bool,
    /// Regions to look into from the start. Further ones are learned from the specs in force and from leases.
    pub targets: Vec<Target>,
    /// How long the parts of one call may take.
    pub timeouts: Timeouts,
    /// Who calls.
    pub credentials: Credentials,
    /// The driver's clock, by which deadlines and readings are told. A driver whose clock does not follow jumps of
    /// the machine's must hand its own over.
    pub timer: Arc<dyn Timer>,
    /// What is wrong with how this process was set up, in words for its operator. Every group is then refused with it
    /// before anything is made.
    pub flaw: Option<String>,
}

impl Default for Ec2Config {
    fn default() -> Self {
        Self {
            visibility: Visibility {
                listing_lag: Duration::from_mins(1),
                late_landing: Duration::from_mins(1),
            },
            tokens: Tokens::Honoured,
            preflight: true,
            targets: Vec::new(),
            timeouts: Timeouts::default(),
            credentials: Credentials::DefaultChain,
            timer: Arc::new(WallClock),
            flaw: None,
        }
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug)]
struct WallClock;

impl Timer for WallClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn sleep_until(&self, at: SystemTime) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            while let Ok(rest) = at.duration_since(SystemTime::now()) {
                if rest.is_zero() {
                    break;
                }
                tokio::time::sleep(rest).await;
            }
        })
    }
}

/// What a client token is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// A second launch with the token of a first one makes nothing and answers with the first one's instance.
    Honoured,
    /// It makes a second instance. A create is then repeated only once an earlier one must have become visible.
    Ignored,
}

/// Limits within the time that the driver allows a whole operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection stands.
    pub connect: Duration,
    /// Until the first byte of the answer.
    pub read: Duration,
    /// One try of a call.
    pub attempt: Duration,
    /// One call with all of its tries. Only reads are tried again.
    pub operation: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            read: Duration::from_secs(20),
            attempt: Duration::from_secs(20),
            operation: Duration::from_secs(25),
        }
    }
}

/// Who calls.
#[derive(Clone)]
pub enum Credentials {
    /// Whoever the AWS configuration of this process says: environment, profile, web identity, container or
    /// instance role.
    DefaultChain,
    /// A fixed pair of keys, for test worlds.
    Fixed {
        /// The public half.
        access_key_id: String,
        /// The secret half; never printed.
        secret_access_key: String,
    },
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DefaultChain => f.write_str("DefaultChain"),
            Self::Fixed { access_key_id, .. } => write!(f, "Fixed({access_key_id}, [secret])"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_key_is_never_printed() {
        let fixed = Credentials::Fixed { access_key_id: "AKIA1".into(), secret_access_key: "hunter2".into() };
        assert_eq!(format!("{fixed:?}"), "Fixed(AKIA1, [secret])");
    }
}
