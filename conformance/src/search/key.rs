//! Tells states apart. Times count relative to now, and what can no longer matter does not count at all, so
//! that paths which differ only in their past meet again.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime};

use super::model::{Model, Thing};

impl Model {
    /// A fingerprint of everything that the future depends on.
    pub(super) fn key(&self) -> u128 {
        let mut one = DefaultHasher::new();
        self.feed(&mut one);
        let mut two = DefaultHasher::new();
        0x5eed_u64.hash(&mut two);
        self.feed(&mut two);
        (u128::from(one.finish()) << 64) | u128::from(two.finish())
    }

    fn feed(&self, hash: &mut DefaultHasher) {
        let rel = |at: Option<SystemTime>| {
            at.map(|at| at.duration_since(self.now).unwrap_or(Duration::ZERO).as_millis())
        };
        // Attempts and serials are renamed in order of slot: only their equality matters.
        let mut names: BTreeMap<u64, usize> = BTreeMap::new();
        (self.faults, self.edits, self.desired.generation).hash(hash);
        for (slot, node) in &self.state.nodes {
            let count = names.len();
            names.insert(node.attempt.0, count);
            slot.hash(hash);
            (node.intent, node.record.stage, node.record.handoff_complete).hash(hash);
            node.record.desired.template.shape.to_string().hash(hash);
            node.record.lease.as_ref().map(|l| Self::liveness(&self.leases, &l.lease_id.0, "l-")).hash(hash);
            node.record.connection.is_some().hash(hash);
            node.active_bootstrap.as_ref().map(|s| Self::liveness(&self.sessions, &s.0, "s-")).hash(hash);
            node.record.bootstrap.as_ref().map(|b| b.ended.is_some()).hash(hash);
            node.record.member.is_some().hash(hash);
            node.pending.as_ref().map(|p| (p.kind, p.extra.adopt_only, rel(Some(p.deadline)))).hash(hash);
            let retry = &node.retry;
            (retry.consecutive_failures, retry.ambiguous_operation, retry.extra.throttles).hash(hash);
            (rel(retry.next_effect_at), rel(retry.restart_at), rel(retry.extra.absent_counts_from))
                .hash(hash);
            (rel(node.extra.join_deadline), rel(node.extra.stable_at), node.extra.replace_requested)
                .hash(hash);
            let flying = self.flights.iter().find(|f| f.slot == *slot);
            flying
                .map(|f| (f.command.kind(), node.pending.as_ref().map(|p| p.id) == Some(f.operation)))
                .hash(hash);
        }
        for things in [&self.leases, &self.sessions] {
            for thing in things.iter().filter(|t| t.live) {
                let age = self.now.duration_since(thing.born).unwrap_or_default();
                let hidden = super::model::VISIBILITY.listing_lag.saturating_sub(age);
                (&thing.slot, names.get(&thing.attempt), hidden.as_millis()).hash(hash);
            }
            0_u8.hash(hash);
        }
        for limbo in self.limbo.iter().filter(|l| l.until >= self.now) {
            (&limbo.slot, names.get(&limbo.attempt), limbo.is_lease, rel(Some(limbo.until))).hash(hash);
        }
    }

    /// Whether the thing that an id names lives.
    fn liveness(things: &[Thing], id: &str, prefix: &str) -> bool {
        things.iter().any(|t| t.live && id.strip_prefix(prefix) == Some(t.serial.to_string().as_str()))
    }
}
