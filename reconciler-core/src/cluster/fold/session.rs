//! What a bootstrap session does to its node. Every fact names the session; a foreign one is dropped.

use std::time::SystemTime;

use super::{
    BootstrapFacts, BootstrapSessionId, Dropped, Fact, Folded, MemberFacts, advance, failure, later,
};
use crate::cluster::policy::RetryPolicy;
use crate::cluster::state::{ManagedNode, NodeIntent, NodeStage};

/// The session was started or adopted.
pub(super) fn started(
    node: &mut ManagedNode,
    session: BootstrapSessionId,
    now: SystemTime,
    retry: &RetryPolicy,
) -> Folded {
    node.active_bootstrap = Some(session.clone());
    node.record.bootstrap = Some(BootstrapFacts {
        session: session.clone(),
        started_at: now,
        last_sequence: 0,
        phase: None,
        ended: None,
    });
    advance(node, NodeStage::BootstrapRunning);
    if node.record.stage == NodeStage::BootstrapRunning && node.intent == NodeIntent::Active {
        node.extra.join_deadline = Some(later(now, retry.extra.join_within));
    }
    Folded::Applied(Fact::SessionStarted { session })
}

/// The session's own report. Changes no stage.
pub(super) fn progress(
    node: &mut ManagedNode,
    session: &BootstrapSessionId,
    sequence: u64,
    phase: String,
) -> Folded {
    let facts = match own(node, session) {
        Ok(facts) => facts,
        Err(dropped) => return Folded::Dropped(dropped),
    };
    if sequence <= facts.last_sequence {
        let last = facts.last_sequence;
        return Folded::Dropped(Dropped::OldReport { sequence, last });
    }
    facts.last_sequence = sequence;
    facts.phase = Some(phase.clone());
    Folded::Applied(Fact::SessionProgress { phase })
}

/// The node joined. Ready at once if the session is closed already.
pub(super) fn joined(
    node: &mut ManagedNode,
    session: &BootstrapSessionId,
    member: MemberFacts,
    now: SystemTime,
    retry: &RetryPolicy,
) -> Folded {
    if let Err(dropped) = own(node, session) {
        return Folded::Dropped(dropped);
    }
    let stage = node.record.stage;
    if node.intent == NodeIntent::Deleting {
        return Folded::Dropped(Dropped::NotInThisStage { stage, what: "a join while deleting" });
    }
    match stage {
        NodeStage::BootstrapRunning => {}
        NodeStage::Joined | NodeStage::HandedOff | NodeStage::Dormant => return Folded::Nothing,
        NodeStage::New
        | NodeStage::LeaseRequested
        | NodeStage::LeaseCreated
        | NodeStage::EndpointKnown
        | NodeStage::Failed
        | NodeStage::Destroyed => {
            return Folded::Dropped(Dropped::NotInThisStage { stage, what: "a join" });
        }
    }
    let id = member.member_id.clone();
    node.record.member = Some(member);
    node.extra.join_deadline = None;
    advance(node, NodeStage::Joined);
    if node.active_bootstrap.is_none() {
        return become_ready(node, now, retry);
    }
    Folded::Applied(Fact::MemberJoined { member: id })
}

/// The session ended in good order without being told to.
pub(super) fn converged(
    node: &mut ManagedNode,
    session: &BootstrapSessionId,
    now: SystemTime,
    retry: &RetryPolicy,
) -> Folded {
    if let Err(dropped) = own(node, session) {
        return Folded::Dropped(dropped);
    }
    if node.active_bootstrap.is_none() {
        return Folded::Nothing;
    }
    closed(node, now, retry)
}

/// The session is closed in good order.
pub(super) fn closed(node: &mut ManagedNode, now: SystemTime, retry: &RetryPolicy) -> Folded {
    let session = node.active_bootstrap.take();
    node.record.handoff_complete = true;
    end_facts(node, "closed");
    if node.record.stage == NodeStage::Joined && node.intent == NodeIntent::Active {
        return become_ready(node, now, retry);
    }
    // Closed before the join: the join is awaited until its deadline.
    session.map_or(Folded::Nothing, |session| Folded::Applied(Fact::SessionClosed { session }))
}

/// No session is left. Its facts stay for observability.
pub(super) fn cancelled(node: &mut ManagedNode) -> Folded {
    let Some(session) = node.active_bootstrap.take() else {
        return Folded::Nothing;
    };
    end_facts(node, "cancelled");
    Folded::Applied(Fact::SessionClosed { session })
}

/// The session failed: the attempt is over, unless the node was handed over before.
pub(super) fn failed(
    node: &mut ManagedNode,
    session: &BootstrapSessionId,
    reason: &str,
    now: SystemTime,
    retry: &RetryPolicy,
) -> Folded {
    match own(node, session) {
        Ok(facts) if facts.ended.is_some() => return Folded::Nothing,
        Ok(_) => {}
        Err(dropped) => return Folded::Dropped(dropped),
    }
    let stage = node.record.stage;
    if node.intent == NodeIntent::Deleting {
        return Folded::Nothing;
    }
    match stage {
        NodeStage::BootstrapRunning | NodeStage::Joined => {
            end_facts(node, reason);
            failure::end_attempt(node, reason, now, retry)
        }
        NodeStage::Failed => Folded::Nothing,
        NodeStage::New
        | NodeStage::LeaseRequested
        | NodeStage::LeaseCreated
        | NodeStage::EndpointKnown
        | NodeStage::HandedOff
        | NodeStage::Dormant
        | NodeStage::Destroyed => {
            Folded::Dropped(Dropped::NotInThisStage { stage, what: "a failed bootstrap" })
        }
    }
}

/// How the session ended, kept for observability; the first word stands.
fn end_facts(node: &mut ManagedNode, how: &str) {
    if let Some(facts) = node.record.bootstrap.as_mut() {
        facts.ended.get_or_insert_with(|| how.to_owned());
    }
}

fn become_ready(node: &mut ManagedNode, now: SystemTime, retry: &RetryPolicy) -> Folded {
    advance(node, NodeStage::Dormant);
    node.record.handoff_complete = true;
    node.extra.ready_at = Some(now);
    if retry.extra.stable_after.is_zero() {
        node.retry.consecutive_failures = 0;
        node.retry.last_error = None;
    } else {
        node.extra.stable_at = Some(later(now, retry.extra.stable_after));
    }
    Folded::Applied(Fact::Ready)
}

/// The facts of this attempt's session, if that is the one meant.
fn own<'a>(
    node: &'a mut ManagedNode,
    session: &BootstrapSessionId,
) -> Result<&'a mut BootstrapFacts, Dropped> {
    match node.record.bootstrap.as_mut() {
        Some(facts) if facts.session == *session => Ok(facts),
        Some(_) | None => Err(Dropped::ForeignSession { session: session.clone() }),
    }
}
