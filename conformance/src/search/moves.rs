//! Everything that can happen next in a state.

use std::collections::BTreeSet;
use std::time::SystemTime;

use executor_api::{
    EffectFailure, EffectOutcome, EffectSuccess, ExecutorErrorKind, MemberFacts, NodeDeadline,
    OperationReport, RejectReason,
};
use reconciler_core::{Applied, LogicalNodeId, NodeAction, NodeManagerCommand, NodeObservation, NodeStage};
use reconciler_driver::Rules;

use super::Search;
use super::model::{Flight, Limbo, Model, Thing, VISIBILITY, expanded};

/// One step, and the state it leads to.
pub(super) struct Move {
    pub(super) label: String,
    /// A fault or an edit: the world may also stay at rest without it.
    pub(super) optional: bool,
    pub(super) result: Result<Model, String>,
}

/// What may become of an effect on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Honest,
    TwiceDelivered,
    ActedAnswerLost,
    NeverArrived,
    ActedAmbiguous,
    Late,
    Refused,
}

impl Model {
    pub(super) fn moves(&self, search: &Search, rules: &Rules) -> Vec<Move> {
        let mut moves = Vec::new();
        self.pass(rules, &mut moves);
        self.results(rules, &mut moves);
        self.landings(&mut moves);
        self.sessions_go_on(rules, &mut moves);
        self.deaths(rules, &mut moves);
        self.edit(search, &mut moves);
        self.crash(search, &mut moves);
        if moves.iter().all(|step| step.optional) {
            self.time(rules, &mut moves);
        }
        moves
    }

    fn step(
        &self,
        label: String,
        optional: bool,
        change: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Move {
        let mut model = self.clone();
        let result = change(&mut model).and_then(|()| model.check()).map(|()| model);
        Move { label, optional, result }
    }

    /// A pass, if it would do anything.
    fn pass(&self, rules: &Rules, moves: &mut Vec<Move>) {
        let slots: BTreeSet<LogicalNodeId> =
            self.state.nodes.keys().chain(self.desired.specs.keys()).cloned().collect();
        let plan = match (rules.reconcile)(&self.state, &self.desired, &slots, self.now) {
            Ok(plan) if plan.actions.is_empty() => return,
            Ok(plan) => plan,
            Err(error) => {
                moves.push(Move { label: "pass".into(), optional: false, result: Err(error.to_string()) });
                return;
            }
        };
        let names: Vec<_> =
            plan.actions.iter().map(|a| format!("{} {} {}", a.node(), a.attempt(), a.name())).collect();
        moves.push(self.step(format!("pass: {}", names.join("; ")), false, |model| {
            let policy = Search::policy();
            for action in &plan.actions {
                if let NodeAction::MarkDestroyed { node, expected_attempt }
                | NodeAction::Reap { node, expected_attempt }
                | NodeAction::Restart { node, expected_attempt, .. } = action
                {
                    model.check_retired(node, expected_attempt.0)?;
                }
                let applied = (rules.apply)(&mut model.state, action, model.now, &policy)
                    .map_err(|stale| format!("a fresh plan was stale: {stale}"))?;
                if let (Applied::Recorded { .. }, NodeAction::Dispatch(effect)) = (applied, action) {
                    model.flights.push(Flight {
                        slot: effect.node.clone(),
                        operation: effect.operation,
                        command: effect.command.clone(),
                    });
                }
            }
            model.state.observed_generation = plan.observed_generation;
            Ok(())
        }));
    }

    /// Each effect on its way meets each fate.
    fn results(&self, rules: &Rules, moves: &mut Vec<Move>) {
        for (index, flight) in self.flights.iter().enumerate() {
            let creating = flight.command.kind().is_creating();
            let fates = [
                (Fate::Honest, "succeeds", true),
                (Fate::TwiceDelivered, "succeeds, answered twice", self.faults > 0),
                (Fate::ActedAnswerLost, "acts, answer lost", self.faults > 0),
                (Fate::NeverArrived, "never arrives", self.faults > 0),
                (Fate::ActedAmbiguous, "acts, answered as unknown", self.faults > 0),
                (Fate::Late, "acts late", self.faults > 0 && creating && flight.command.may_create()),
                (Fate::Refused, "is refused", self.faults > 0),
            ];
            for (fate, words, _) in fates.into_iter().filter(|(_, _, possible)| *possible) {
                let label = format!("{} {} {} {words}", flight.slot, flight.operation, flight.command.kind());
                moves.push(self.step(label, fate != Fate::Honest, |model| {
                    let flight = model.flights.remove(index);
                    if fate != Fate::Honest {
                        model.faults -= 1;
                    }
                    model.meet(&flight, fate, rules)
                }));
            }
        }
    }

    fn meet(&mut self, flight: &Flight, fate: Fate, rules: &Rules) -> Result<(), String> {
        let fail = |kind| Err(EffectFailure { kind, message: "injected".into() });
        match fate {
            Fate::Honest => {
                let outcome = self.act(flight)?;
                self.answer(flight, outcome, rules);
            }
            Fate::TwiceDelivered => {
                let outcome = self.act(flight)?;
                self.answer(flight, outcome.clone(), rules);
                let before = self.state.clone();
                self.answer(flight, outcome, rules);
                if self.state != before {
                    return Err("S8: a repeated answer changed the state".into());
                }
            }
            Fate::ActedAnswerLost => {
                let _ = self.act(flight)?;
            }
            Fate::NeverArrived => {}
            Fate::ActedAmbiguous => {
                let _ = self.act(flight)?;
                self.answer(flight, fail(ExecutorErrorKind::Ambiguous), rules);
            }
            Fate::Late => {
                let stopped = self
                    .state
                    .nodes
                    .get(&flight.slot)
                    .and_then(|node| node.pending.as_ref())
                    .map_or(self.now, |pending| pending.deadline);
                self.may_land(flight, stopped);
            }
            Fate::Refused => {
                self.answer(flight, fail(ExecutorErrorKind::Rejected(RejectReason::Capacity)), rules);
            }
        }
        Ok(())
    }

    /// The effect of a call stopped then may still come, as long as there is something for it to land on.
    fn may_land(&mut self, flight: &Flight, stopped: SystemTime) {
        let is_lease = match &flight.command {
            NodeManagerCommand::StartBootstrap { lease, .. } => {
                if !self.leases.iter().any(|t| t.live && Self::lease_facts(t.serial) == *lease) {
                    return;
                }
                false
            }
            _ => true,
        };
        self.limbo.push(Limbo {
            slot: flight.slot.clone(),
            attempt: flight.operation.attempt.0,
            is_lease,
            until: stopped + VISIBILITY.late_landing,
        });
    }

    /// What a provider without tokens does: adopts what it can see, else makes what may be made.
    fn act(&mut self, flight: &Flight) -> Result<EffectOutcome, String> {
        let attempt = flight.operation.attempt.0;
        let slot = flight.slot.clone();
        let visible = |things: &[Thing], now: SystemTime| {
            things
                .iter()
                .find(|t| {
                    t.live
                        && t.slot == slot
                        && t.attempt == attempt
                        && now.duration_since(t.born).unwrap_or_default() >= VISIBILITY.listing_lag
                })
                .map(|t| t.serial)
        };
        let success = match &flight.command {
            NodeManagerCommand::CreateLease { .. } => {
                let serial = match visible(&self.leases, self.now) {
                    Some(serial) => serial,
                    None if flight.command.may_create() => self.make(&flight.slot, attempt, true),
                    None => return Ok(Ok(EffectSuccess::NothingToAdopt { as_of: self.now })),
                };
                let endpoint = serial.is_multiple_of(2).then(Self::endpoint);
                EffectSuccess::LeaseCreated { lease: Self::lease_facts(serial), endpoint }
            }
            NodeManagerCommand::StartBootstrap { lease, .. } => {
                let serial = match visible(&self.sessions, self.now) {
                    Some(serial) => serial,
                    None if !self.leases.iter().any(|t| t.live && Self::lease_facts(t.serial) == *lease) => {
                        let message = "the lease is dead".to_owned();
                        return Ok(Err(EffectFailure { kind: ExecutorErrorKind::Gone, message }));
                    }
                    None if flight.command.may_create() => self.make(&flight.slot, attempt, false),
                    None => return Ok(Ok(EffectSuccess::NothingToAdopt { as_of: self.now })),
                };
                EffectSuccess::BootstrapStarted { session: Self::session_id(serial) }
            }
            NodeManagerCommand::LookupEndpoint { lease } => {
                if !self.leases.iter().any(|t| t.live && Self::lease_facts(t.serial) == *lease) {
                    let message = "the lease is dead".to_owned();
                    return Ok(Err(EffectFailure { kind: ExecutorErrorKind::Gone, message }));
                }
                EffectSuccess::EndpointFound { endpoint: Self::endpoint() }
            }
            NodeManagerCommand::BootstrapConvergenceObserved { .. } => EffectSuccess::BootstrapCompleted,
            NodeManagerCommand::CancelBootstrap { session } => {
                self.only_when_deleting(flight)?;
                for thing in &mut self.sessions {
                    thing.live &= Self::session_id(thing.serial) != *session;
                }
                EffectSuccess::BootstrapCancelled
            }
            NodeManagerCommand::DestroyLease { lease } => {
                self.only_when_deleting(flight)?;
                for thing in &mut self.leases {
                    thing.live &= Self::lease_facts(thing.serial) != *lease;
                }
                self.sessions_end_with_lease(&flight.slot, attempt);
                EffectSuccess::LeaseDestroyed
            }
        };
        Ok(Ok(success))
    }

    /// A lease takes its sessions with it, and no start can land on it any more.
    fn sessions_end_with_lease(&mut self, slot: &LogicalNodeId, attempt: u64) {
        for thing in &mut self.sessions {
            thing.live &= thing.slot != *slot || thing.attempt != attempt;
        }
        self.limbo.retain(|limbo| limbo.is_lease || limbo.slot != *slot || limbo.attempt != attempt);
    }

    fn only_when_deleting(&self, flight: &Flight) -> Result<(), String> {
        let living = self.state.nodes.get(&flight.slot).is_some_and(|node| {
            node.attempt == flight.operation.attempt && node.intent == reconciler_core::NodeIntent::Active
        });
        if living {
            Err(format!("P3: {} of an attempt that is to live", flight.command.kind()))
        } else {
            Ok(())
        }
    }

    fn answer(&mut self, flight: &Flight, outcome: EffectOutcome, rules: &Rules) {
        let report = OperationReport { operation: flight.operation, outcome, visibility: VISIBILITY };
        self.fold(&flight.slot, NodeObservation::Completed(report), rules);
    }

    fn fold(&mut self, slot: &LogicalNodeId, observation: NodeObservation, rules: &Rules) {
        if let Some(node) = self.state.nodes.get_mut(slot) {
            let _ = (rules.fold)(node, observation, self.now, &Search::policy());
        }
    }

    /// What was given up acts after all.
    fn landings(&self, moves: &mut Vec<Move>) {
        for (index, limbo) in self.limbo.iter().enumerate().filter(|(_, l)| l.until >= self.now) {
            let what = if limbo.is_lease { "lease" } else { "session" };
            let label = format!("{} a{} {what} lands late", limbo.slot, limbo.attempt);
            moves.push(self.step(label, true, |model| {
                let limbo = model.limbo.remove(index);
                model.make(&limbo.slot, limbo.attempt, limbo.is_lease);
                Ok(())
            }));
        }
    }

    /// Each session joins; or, as a fault, fails.
    fn sessions_go_on(&self, rules: &Rules, moves: &mut Vec<Move>) {
        for (slot, node) in &self.state.nodes {
            if node.record.stage != NodeStage::BootstrapRunning {
                continue;
            }
            let Some(session) = node.record.bootstrap.as_ref().map(|facts| facts.session.clone()) else {
                continue;
            };
            if !self.sessions.iter().any(|t| t.live && Self::session_id(t.serial) == session) {
                continue;
            }
            let operation = reconciler_core::OperationId { attempt: node.attempt, sequence: 0 };
            let key = self.attempt_key(slot, operation);
            let member =
                MemberFacts { member_id: slot.to_string(), nonce: key.identity().nonce, joined_at: self.now };
            let joined = NodeObservation::MemberJoined { session: session.clone(), member };
            moves.push(self.step(format!("{slot} joins"), false, |model| {
                model.fold(slot, joined, rules);
                Ok(())
            }));
            if self.faults > 0 {
                moves.push(self.step(format!("{slot} exits before its join"), true, |model| {
                    model.faults -= 1;
                    for thing in &mut model.sessions {
                        thing.live &= Self::session_id(thing.serial) != session;
                    }
                    let reason = "exited".to_owned();
                    model.fold(slot, NodeObservation::BootstrapFailed { session, reason }, rules);
                    Ok(())
                }));
            }
        }
    }

    /// Each lease that a node holds dies.
    fn deaths(&self, rules: &Rules, moves: &mut Vec<Move>) {
        if self.faults == 0 {
            return;
        }
        for (slot, node) in &self.state.nodes {
            let Some(lease) = &node.record.lease else { continue };
            if !self.leases.iter().any(|t| t.live && Self::lease_facts(t.serial) == *lease) {
                continue;
            }
            moves.push(self.step(format!("{slot} {} dies", lease.lease_id), true, |model| {
                model.faults -= 1;
                for thing in &mut model.leases {
                    thing.live &= Self::lease_facts(thing.serial) != *lease;
                }
                model.sessions_end_with_lease(slot, node.attempt.0);
                let lost =
                    NodeObservation::LeaseLost { lease: lease.lease_id.clone(), reason: "died".into() };
                model.fold(slot, lost, rules);
                Ok(())
            }));
        }
    }

    fn edit(&self, search: &Search, moves: &mut Vec<Move>) {
        let index = usize::try_from(self.edits).unwrap_or(usize::MAX);
        let Some((count, spec)) = search.shapes.get(index).filter(|_| self.edits < search.edits) else {
            return;
        };
        moves.push(self.step(format!("edit: {count} of {spec}"), true, |model| {
            model.edits += 1;
            model.desired = expanded(&model.desired.run_id, model.desired.generation + 1, *count, *spec);
            Ok(())
        }));
    }

    /// The driver dies with everything on its way, and starts again from what it had recorded: every pending
    /// operation is interrupted, and what it may have made is looked up.
    fn crash(&self, search: &Search, moves: &mut Vec<Move>) {
        if self.faults == 0 || !search.crashes || self.flights.is_empty() {
            return;
        }
        moves.push(self.step("crash and restart".into(), true, |model| {
            model.faults -= 1;
            // Its calls are stopped with it, also those that would have had time until their deadline.
            let latest = model.now + VISIBILITY.late_landing;
            for limbo in &mut model.limbo {
                limbo.until = limbo.until.min(latest);
            }
            for flight in std::mem::take(&mut model.flights) {
                if flight.command.may_create() {
                    model.may_land(&flight, model.now);
                }
            }
            for node in model.state.nodes.values_mut() {
                reconciler_core::interrupt(node, VISIBILITY, model.now);
            }
            Ok(())
        }));
    }

    /// Nothing is under way: the clock goes to the next deadline, and the driver settles what is due.
    fn time(&self, rules: &Rules, moves: &mut Vec<Move>) {
        let stored = self.state.nodes.values().flat_map(|node| {
            [
                node.earliest_deadline(),
                node.retry.next_effect_at,
                node.retry.restart_at.filter(|_| node.record.stage == NodeStage::Destroyed),
                node.retry.extra.absent_counts_from,
            ]
        });
        let Some(at) = stored.flatten().filter(|at| *at > self.now).min() else {
            return;
        };
        let waited = at.duration_since(self.now).unwrap_or_default();
        moves.push(self.step(format!("{}s pass", waited.as_secs_f64()), false, |model| {
            model.now = at;
            model.limbo.retain(|limbo| limbo.until >= at);
            for slot in model.state.nodes.keys().cloned().collect::<Vec<_>>() {
                let pending = model.state.nodes.get(&slot).and_then(|node| node.pending.clone());
                if let Some(pending) = pending.filter(|pending| pending.deadline <= at) {
                    let operation = pending.id;
                    model.flights.retain(|flight| flight.operation != operation);
                    let stopped = NodeObservation::TimedOut { operation, visibility: VISIBILITY };
                    model.fold(&slot, stopped, rules);
                }
                for which in [NodeDeadline::Join, NodeDeadline::Loss, NodeDeadline::Stable] {
                    model.fold(&slot, NodeObservation::DeadlinePassed(which), rules);
                }
            }
            Ok(())
        }));
    }
}
