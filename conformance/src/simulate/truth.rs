//! What exists in the world, kept up from the world's own log, and held against the driver's state: nothing
//! lives that nobody knows of, and at rest there is exactly what was declared.

use std::collections::BTreeMap;

use executor_api::{AttemptKey, BootstrapSessionId, LeaseId, LeaseOwner, Life, LogicalNodeId, OperationKind};
use executor_fake::{FakeWorld, Happened, LeaseTruth};
use reconciler_core::{ClusterState, Expanded, ManagedNode};

use super::oracle::Oracle;
use super::plan::run;

/// What exists.
#[derive(Debug, Default)]
pub(super) struct Truth {
    seen: usize,
    leases: BTreeMap<LeaseId, AttemptKey>,
    sessions: BTreeMap<BootstrapSessionId, AttemptKey>,
    /// Attempts of which the world itself made two leases.
    doubled: Vec<AttemptKey>,
}

impl Truth {
    /// Takes in what happened since. Says whether anything did.
    pub(super) fn update(&mut self, world: &FakeWorld, oracle: &mut Oracle) -> bool {
        let news = world.log_from(self.seen);
        self.seen += news.len();
        for event in &news {
            let Some(node) = &event.node else { continue };
            match &event.what {
                Happened::LeaseMade(id) => {
                    let there = world.leases_of_slot(&run(), node);
                    let made = there.into_iter().find(|lease| lease.id == *id);
                    if let Some(LeaseTruth { owner: LeaseOwner::Attempt(key), .. }) = made {
                        if self.leases.values().any(|other| *other == key) {
                            self.doubled.push(key.clone());
                        }
                        self.leases.insert(id.clone(), key);
                    }
                }
                Happened::LeaseDead(id, _) => {
                    self.leases.remove(id);
                }
                Happened::SessionStarted(id) => {
                    let owners: Vec<_> = self.leases.values().filter(|key| key.node == *node).collect();
                    let owner = owners
                        .into_iter()
                        .find(|key| world.sessions_of(key).iter().any(|session| session.id == *id));
                    if let Some(owner) = owner.cloned() {
                        self.sessions.insert(id.clone(), owner);
                    }
                }
                Happened::SessionJoined(id) => {
                    oracle.joined.insert(id.clone());
                }
                Happened::SessionOver(id, _) => {
                    self.sessions.remove(id);
                }
                Happened::LeaseLive(_) | Happened::LeaseEnding(_) | Happened::LeaseMoved(_) => {}
            }
            oracle.tell(event.at, || format!("  {node} world: {}", event.what));
        }
        !news.is_empty()
    }

    /// Nothing lives that the state does not refer to.
    pub(super) fn check_known(&self, state: &ClusterState, oracle: &mut Oracle) {
        for (lease, key) in &self.leases {
            let known = known(state, key, OperationKind::CreateLease, |node| {
                node.record.lease.as_ref().is_some_and(|facts| facts.lease_id == *lease)
                    || self.doubled.contains(key)
            });
            oracle
                .demand(known, "P2", Some(&key.node), || format!("{lease} of {} is an orphan", key.attempt));
        }
        for (session, key) in &self.sessions {
            let known = known(state, key, OperationKind::StartBootstrap, |node| {
                node.record.bootstrap.as_ref().is_some_and(|facts| facts.session == *session)
            });
            oracle.demand(known, "P2", Some(&key.node), || {
                format!("{session} of {} is an orphan", key.attempt)
            });
        }
    }

    /// The first way in which the world is not what was declared; `spared` is not looked at.
    pub(super) fn differs(
        &self,
        world: &FakeWorld,
        state: &ClusterState,
        desired: &Expanded,
        spared: Option<&LogicalNodeId>,
    ) -> Option<String> {
        for (lease, key) in &self.leases {
            if spared != Some(&key.node) && !desired.specs.contains_key(&key.node) {
                return Some(format!("{lease} of {} {} is left", key.node, key.attempt));
            }
        }
        for slot in desired.specs.keys().filter(|slot| spared != Some(*slot)) {
            let Some(node) = state.nodes.get(slot) else {
                return Some(format!("{slot} has no attempt"));
            };
            let there = world.leases_of_slot(&run(), slot);
            let [lease] = there.as_slice() else {
                return Some(format!("{slot} has {} leases", there.len()));
            };
            let held = node.record.lease.as_ref().map(|facts| &facts.lease_id);
            if held != Some(&lease.id) || lease.life != Life::Live {
                return Some(format!("{slot} holds {held:?}, the world has {} {:?}", lease.id, lease.life));
            }
            if node.record.connection != lease.endpoint {
                return Some(format!("{slot} is looked for at another address than {:?}", lease.endpoint));
            }
            if let Some(running) = self.sessions.iter().find(|(_, key)| key.node == *slot) {
                return Some(format!("{slot} has {} open", running.0));
            }
        }
        None
    }

    /// The leases of an attempt beside the one that its slot holds.
    pub(super) fn beside(&self, slot: &LogicalNodeId, held: Option<&LeaseId>) -> Vec<LeaseId> {
        let of_slot = self.leases.iter().filter(|(_, key)| key.node == *slot);
        of_slot.map(|(id, _)| id).filter(|id| Some(*id) != held).cloned().collect()
    }
}

/// Whether the state refers to something of this attempt: recorded, awaited, or marked as unknown.
fn known(
    state: &ClusterState,
    key: &AttemptKey,
    kind: OperationKind,
    recorded: impl FnOnce(&ManagedNode) -> bool,
) -> bool {
    state.nodes.get(&key.node).filter(|node| node.attempt == key.attempt).is_some_and(|node| {
        recorded(node)
            || node.pending.as_ref().is_some_and(|pending| pending.kind == kind)
            || node.retry.ambiguous_operation == Some(kind)
    })
}

/// Leases that never became reachable: with a fault that lasts, nobody can wait it out.
pub(super) fn unreachable_leases(world: &FakeWorld) -> Vec<LeaseId> {
    let stuck = |lease: &LeaseTruth| lease.life == Life::Pending;
    world.existing_leases().into_iter().filter(stuck).map(|lease| lease.id).collect()
}
