//! What becomes of a pending operation when the process that sent it is gone. Called once for each stored node by
//! the driver that goes on, and by the searches that let drivers die; emits no effect and reads no clock.
//!
//! A process that is gone drives no call any more: for what may have been made it is as if every call had been given
//! up at this very moment. So there is no deadline to wait out. What the call made is looked up first, and what may
//! still land or show late has its whole time from now on.

use std::time::SystemTime;

use executor_api::Visibility;

use crate::cluster::fold::mark;
use crate::cluster::state::{ManagedNode, PendingOperation};

/// Settles the pending operation of a node whose driver is gone; `now` is no earlier than that. Says which one it
/// was.
///
/// A create or start leaves the mark of an unknown outcome: it is adopted, or proved absent. Everything else may be
/// done again. It is no failure of the node: nothing is counted, and nothing is delayed by it.
pub fn interrupt(
    node: &mut ManagedNode,
    visibility: Visibility,
    now: SystemTime,
) -> Option<PendingOperation> {
    let pending = node.pending.take()?;
    if pending.kind.is_creating() && !pending.extra.adopt_only {
        mark(node, pending.kind, visibility, now);
    }
    Some(pending)
}
