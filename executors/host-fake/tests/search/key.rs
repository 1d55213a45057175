//! Tells states apart: the world's key and whatever of the record and the operators the future depends on. Times count
//! from now, fences and operations by their order, readings by whether they still hold.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime};

use executor_api::host::{
    FenceValue, Fingerprint, HostAction, HostName, HostOperation, HostOperationId, LeaseWatch, ResourceName,
    Takeover,
};
use executor_host_fake::Naming;
use reconciler_core::maintenance::gate::bond;
use reconciler_core::maintenance::{Act, Answer, Effect, HaltReason, PlanState, Proof, Recovery, advance};

use crate::model::Model;

/// As the world has it.
const FAR_OFF: Duration = Duration::from_mins(5);

/// Two hashes at once, one of them salted: together they are as good as unique.
struct Twin(DefaultHasher, DefaultHasher);

impl Default for Twin {
    fn default() -> Self {
        let mut salted = DefaultHasher::new();
        0x5eed_u64.hash(&mut salted);
        Self(DefaultHasher::new(), salted)
    }
}

impl Twin {
    fn key(&self) -> u128 {
        (u128::from(self.0.finish()) << 64) | u128::from(self.1.finish())
    }
}

impl Hasher for Twin {
    fn finish(&self) -> u64 {
        self.0.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
        self.1.write(bytes);
    }
}

impl Model {
    pub(crate) fn key(&self) -> u128 {
        let open = self.open();
        let mut fences = self.world.fences();
        fences.extend(self.effects().filter_map(fence));
        fences.extend(self.letters.iter().map(executor_host_fake::Letter::fence));
        fences.extend(self.state.lease.as_ref().map(|lease| lease.fence));
        let names: Vec<_> = self.operators.iter().map(|operator| operator.name.as_str()).collect();
        let state = &self.state;
        let resyncs = |resource: &ResourceName, host: &HostName, volume: u16| {
            let before = state.pre_connect.get(resource).filter(|before| before.out_of_sync_kib > 0);
            let count = before.and_then(|before| before.resyncs_finished.get(host)?.get(&volume));
            count.map_or(usize::MAX, |count| usize::try_from(*count).unwrap())
        };
        let naming = Naming {
            fences: &fences,
            open: &open,
            operators: &names,
            letters: &self.letters,
            resyncs: &resyncs,
        };
        let mut hash = Twin::default();
        self.world.feed(&naming, &mut hash);
        self.feed_state(&naming, &mut hash);
        self.feed_operators(&naming, &mut hash);
        self.replies.hash(&mut hash);
        hash.key()
    }

    /// Every effect that may still be asked for or arrive.
    fn effects(&self) -> impl Iterator<Item = &Effect> {
        let pending = self.state.pending.as_ref().map(|pending| &pending.effect);
        let flights = self.operators.iter().filter_map(|operator| Some(&operator.flight.as_ref()?.effect));
        pending.into_iter().chain(&self.state.unsettled).chain(flights)
    }

    pub(crate) fn open(&self) -> BTreeSet<HostOperationId> {
        let effects = self.effects().flat_map(|effect| match effect {
            Effect::Settle { operation, .. } => vec![effect.id(), operation.id()],
            Effect::Host(_) | Effect::Vm(_) | Effect::Lock { .. } => vec![effect.id()],
        });
        effects.chain(self.letters.iter().map(executor_host_fake::Letter::id)).collect()
    }

    /// How long ago, up to what no probe may be old.
    fn age(&self, at: Option<SystemTime>) -> Option<Duration> {
        let longest = self.plan.pace.gate_max_age + Duration::from_secs(1);
        at.map(|at| self.now().duration_since(at).unwrap_or_default().min(longest))
    }

    fn until(&self, at: Option<SystemTime>) -> Option<Duration> {
        at.map(|at| at.duration_since(self.now()).unwrap_or_default().min(FAR_OFF))
    }

    fn feed_state(&self, naming: &Naming<'_>, hash: &mut Twin) {
        let state = &self.state;
        state.phase.hash(hash);
        self.feed_recovery(hash);
        let lease = state.lease.as_ref();
        lease.map(|lease| (rank(naming, lease.fence), operator(naming, lease.holder.as_str()))).hash(hash);
        (state.lease_lost.is_some(), state.hold_placed, state.hold_lifted, state.targets.is_some())
            .hash(hash);
        state.fenced.iter().for_each(|agent| agent.to_string().hash(hash));
        for (node, verified) in &state.verified_bonds {
            // As the driver reads it, so that a boot counts.
            let same = self.world.bond(node).is_some_and(|mut now| {
                now.boot_id = format!("{node}-{}", now.boot_id);
                now == *verified
            });
            let counted = self.world.bond(node).map(|now| bond::link_failures(&now));
            let settled = state.link_failures.get(node).map(|then| Some(then) == counted.as_ref());
            (node, verified.mode.to_string(), same, settled).hash(hash);
        }
        (&state.touched_bonds, state.placed, &state.disconnected, &state.reconnected, &state.drained)
            .hash(hash);
        let machines = self.world.vms();
        for (name, original) in &state.vm_originals {
            let place = machines.vms.get(name).and_then(|vm| vm.running.as_ref());
            let place = place.map(|running| (running.node.clone(), running.pod_uid.clone()));
            (name, original.declared.to_string(), place == original.placement).hash(hash);
        }
        self.until(state.io_suspended_until).hash(hash);
        // What follows its end may take as long again; longer ago is all the same.
        let ended = state.io_suspended_until.and_then(|until| self.now().duration_since(until).ok());
        ended.min(self.plan.io.suspend_for()).hash(hash);
        for probe in &state.probes {
            (&probe.from, probe.sent == probe.received).hash(hash);
        }
        self.age(state.probed_at).hash(hash);
        if let Some(Effect::Host(HostOperation { action: HostAction::ProbeLink { .. }, .. })) =
            &state.unsettled
        {
            self.age(state.unsettled_from).hash(hash);
        }
        self.feed_token(hash);
        for (name, before) in &state.pre_connect {
            (name, before.out_of_sync_kib > 0).hash(hash);
        }
        (self.until(state.connect_deadline), state.connect_rounds).hash(hash);
        self.until(state.not_before.filter(|at| *at > self.now())).hash(hash);
        let newest = state.restore_proof.as_ref().and_then(Proof::newest);
        (newest.map(|at| at >= self.now()), state.release_proof.is_some()).hash(hash);
        (state.retries, state.retries_granted, state.settles, state.abort.is_some(), state.handed_over)
            .hash(hash);
        state.going_back.hash(hash);
        self.feed_effects(naming, hash);
        self.until(Some(state.settle_until)).hash(hash);
        if let Some(open) = &state.escalation {
            open.answers.iter().for_each(|answer| answer.as_str().hash(hash));
            // A question about a world that has moved takes no reply until it is asked anew.
            let observed = self.fork().observe(0);
            let step = advance(&self.plan, &self.state, &observed, self.now());
            matches!(step.act, Act::Escalate(_)).hash(hash);
        }
    }

    fn feed_recovery(&self, hash: &mut Twin) {
        let recovery = &self.state.recovery;
        recovery.as_str().hash(hash);
        match recovery {
            Recovery::Halted(reason) => again(reason).hash(hash),
            Recovery::Dwell { until, reason } => (self.until(Some(*until)), again(reason)).hash(hash),
            Recovery::Rollback(stage) => format!("{stage:?}").hash(hash),
            Recovery::Forward
            | Recovery::Retry
            | Recovery::Resumed
            | Recovery::RevertedSafe
            | Recovery::Escalated => {}
        }
    }

    fn feed_token(&self, hash: &mut Twin) {
        let Some(token) = &self.state.token else { return };
        let age = self.now().duration_since(token.resume_gates_passed_at).unwrap_or_default();
        let bonds = token.bonds == Fingerprint::of("bonds", &self.state.verified_bonds);
        let lease = self.state.lease.as_ref().is_some_and(|lease| lease.fence == token.fence);
        let oldest = self.plan.pace.gate_max_age + Duration::from_secs(1);
        ("token", age.min(oldest), bonds, lease).hash(hash);
    }

    fn feed_effects(&self, naming: &Naming<'_>, hash: &mut Twin) {
        let PlanState { pending, unsettled, ended, .. } = &self.state;
        if let Some(pending) = pending {
            (effect(naming, &pending.effect), self.until(Some(pending.deadline))).hash(hash);
        }
        unsettled.as_ref().map(|unsettled| effect(naming, unsettled)).hash(hash);
        let mut deeds: Vec<_> =
            ended.iter().map(|ended| (ended.effect.to_string(), ended.failure.is_some())).collect();
        deeds.sort();
        deeds.dedup();
        deeds.hash(hash);
    }

    fn feed_operators(&self, naming: &Naming<'_>, hash: &mut Twin) {
        for operator in &self.operators {
            (operator.seq == self.seq, operator.asleep).hash(hash);
            if let Some(flight) = &operator.flight {
                (effect(naming, &flight.effect), flight.seq == self.seq).hash(hash);
            }
            let mut watch: LeaseWatch = operator.watch.clone();
            let lease = self.world.lock().lease;
            let epoch = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
            let at = self.now().duration_since(epoch).unwrap();
            match watch.look(lease.as_ref(), at) {
                Takeover::Free => "free".hash(hash),
                Takeover::Held { remaining } => remaining.hash(hash),
                Takeover::Expired { .. } => "expired".hash(hash),
            }
        }
    }
}

fn rank(naming: &Naming<'_>, fence: FenceValue) -> Option<usize> {
    naming.fences.iter().position(|other| *other == fence)
}

fn operator(naming: &Naming<'_>, name: &str) -> Option<usize> {
    naming.operators.iter().position(|other| *other == name)
}

fn fence(effect: &Effect) -> Option<FenceValue> {
    match effect {
        Effect::Host(operation) => Some(operation.fence),
        Effect::Vm(operation) => Some(operation.fence),
        Effect::Settle { fence, .. } => Some(*fence),
        Effect::Lock { .. } => None,
    }
}

fn effect(naming: &Naming<'_>, effect: &Effect) -> (String, Option<usize>, Option<usize>) {
    // A settling names the number of what it settles, which differs from history to history.
    let words = match effect {
        Effect::Settle { operation, .. } => format!("settle {operation}"),
        Effect::Host(_) | Effect::Vm(_) | Effect::Lock { .. } => effect.to_string(),
    };
    let place = naming.open.iter().position(|id| *id == effect.id());
    (words, fence(effect).and_then(|fence| rank(naming, fence)), place)
}

/// What of a reason decides what follows.
fn again(reason: &HaltReason) -> bool {
    !matches!(
        reason,
        HaltReason::Refused(_)
            | HaltReason::SuspensionExceeded
            | HaltReason::Aborted { .. }
            | HaltReason::Replied(Answer::RollBack)
    )
}
