//! What is kept on the driving machine of one session: how to get there, what it does, and how far its life has
//! come as seen from here. References to secrets only.

use std::time::SystemTime;

use executor_api::{AttemptKey, Endpoint, LeaseId};
use serde::{Deserialize, Serialize};

use crate::settings::Resolved;

/// One session, as it outlives the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionRecord<S> {
    /// Whose it is.
    pub(crate) attempt: AttemptKey,
    /// The lease it runs on.
    pub(crate) lease: LeaseId,
    /// Where that can be reached.
    pub(crate) endpoint: Endpoint,
    /// How to get in.
    pub(crate) connect: S,
    /// What the session does.
    pub(crate) resolved: Resolved,
    /// Who the host is, from the first contact on.
    pub(crate) pin: Option<String>,
    /// Whether a launch was ever sent. Until then nothing can run.
    pub(crate) launch_tried: bool,
    /// The number of the last report of progress, so that the next is above it whoever tells it.
    #[serde(default)]
    pub(crate) told: u64,
    /// When the node joined.
    pub(crate) joined_at: Option<SystemTime>,
    /// When the host could not be reached for the first time since it last was: by a cancel or, before the first of
    /// those, by an adoption.
    pub(crate) unreachable_since: Option<SystemTime>,
    /// No launch is sent any more.
    pub(crate) cancelled: bool,
    /// The cancel succeeded, or its host is gone.
    pub(crate) over: bool,
}
