//! One bug for each rule, planted in the deciding functions or in an agent, each found by a small search and
//! reported as a breach of that rule before any other. The same searches on the real functions find nothing.

use std::time::SystemTime;

use executor_api::host::{
    BondMode, ConnectionState, Fingerprint, GateToken, HostAction, HostOperation, PinShield, ResourceName,
};
use executor_host_fake::Incident;
use expect_test::expect;
use reconciler_core::maintenance::gate::Look;
use reconciler_core::maintenance::{
    Act, Applied, BondFlipPlan, Effect, LockAction, Move as Change, Observed, Phase, PlanState, Recovery,
    Reply, ReplyRefused, Step, StepRefused, Why, advance, apply,
};

use crate::faults::w;
use crate::model::Model;
use crate::moves::{Rules, Setting};
use crate::runs::{asked_twice, setting};
use crate::walk::search;

/// What is planted, and in which search it is to be found.
struct Bug {
    rule: &'static str,
    what: &'static str,
    plant: fn(&mut Setting),
}

fn bugs() -> Vec<Bug> {
    let bug = |rule, what, plant| Bug { rule, what, plant };
    vec![
        bug("M0", "an agent that connects rewrites both copies", |s| s.agent = Some(rewrites)),
        bug("M1", "the second flip begins before the first is read back", |s| s.rules.advance = hasty),
        bug("M2", "a probe that lost packets counts as one that did not", |s| s.rules.advance = deaf),
        bug("M3", "a machine that was pinned once counts as pinned", |s| s.rules.advance = trusting),
        bug("M4", "a lease that is not ours counts as ours", |s| s.rules.advance = presumptuous),
        bug("M5", "one sync gate serves for both", |s| s.rules.advance = single),
        bug("M6", "UpToDate is believed, blocks out of sync or not", |s| s.rules.advance = credulous),
        bug("M7", "a reconnect goes out before the copies are judged", |s| s.rules.advance = unproved),
        bug("R1", "a halted plan goes on", |s| s.rules.advance = unstoppable),
        bug("R2", "the dwell ends at once", |s| s.rules.advance = restless),
        bug("R3", "no cap on tries", |s| {
            s.rules.advance = stubborn;
            s.faults = 2;
            s.incidents = 0;
        }),
        bug("R4", "the way back leads forward", |s| {
            s.rules.advance = lost;
            s.retry_cap = 1;
        }),
        bug("R4", "a reply on the way back leads forward", |s| {
            *s = Setting { watchful: true, limit: s.limit, ..asked_twice() };
            s.rules.advance = turncoat;
        }),
        bug("R5", "copies that diverged are a halt like any other", |s| s.rules.advance = casual),
        bug("R6", "a frozen plan goes on", |s| s.rules.advance = thawing),
        bug("R7", "any reply will do", |s| {
            s.rules.respond = gullible;
            s.replies = 1;
        }),
        bug("R8", "the way back ends on one copy", |s| {
            s.rules.advance = lander;
            s.retry_cap = 1;
        }),
        bug("R9", "tries are not counted", |s| {
            s.rules.apply = forgetful;
            s.restful = true;
        }),
        bug("R10", "a stamp outlives the lease it was made under", |s| s.rules.apply = retentive),
        bug("R11", "a bond is noted as it was wanted", |s| s.rules.advance = hopeful),
    ]
}

#[cfg_attr(not(optimised), ignore = "twenty searches: optimised profile only")]
#[test]
fn each_rule_has_a_bug_that_it_reports_first() {
    let (mut table, mut missed) = (Vec::new(), Vec::new());
    for bug in bugs() {
        let mut planted = Setting { watchful: true, limit: 200_000, ..setting() };
        (bug.plant)(&mut planted);
        let found = search(&planted);
        let story = found.violation.clone().unwrap_or_else(|| format!("! not caught: {found}"));
        let last = story.lines().last().unwrap_or_default();
        let reported = last.rsplit_once("! ").map_or(last, |(_, reported)| reported);
        if reported.split(':').next() != Some(bug.rule) {
            missed.push(format!("{} {}: {story}", bug.rule, bug.what));
        }
        table.push(format!("{:<4} {}\n", bug.rule, bug.what));
    }
    let table = table.concat();
    println!("{table}");
    assert!(missed.is_empty(), "{}", missed.join("\n\n"));
    expect![[r#"
        M0   an agent that connects rewrites both copies
        M1   the second flip begins before the first is read back
        M2   a probe that lost packets counts as one that did not
        M3   a machine that was pinned once counts as pinned
        M4   a lease that is not ours counts as ours
        M5   one sync gate serves for both
        M6   UpToDate is believed, blocks out of sync or not
        M7   a reconnect goes out before the copies are judged
        R1   a halted plan goes on
        R2   the dwell ends at once
        R3   no cap on tries
        R4   the way back leads forward
        R4   a reply on the way back leads forward
        R5   copies that diverged are a halt like any other
        R6   a frozen plan goes on
        R7   any reply will do
        R8   the way back ends on one copy
        R9   tries are not counted
        R10  a stamp outlives the lease it was made under
        R11  a bond is noted as it was wanted
    "#]]
    .assert_eq(&table);
}

fn phase(state: &PlanState, phase: Phase) -> bool {
    state.phase == phase && matches!(state.recovery, Recovery::Forward | Recovery::Retry | Recovery::Resumed)
}

fn step(act: Act) -> Step {
    Step { act, why: Why::Plain("a planted bug".to_owned()) }
}

/// What was read, made to look better.
fn better(observed: &Observed, polish: impl FnOnce(&mut Observed)) -> Observed {
    let mut observed = observed.clone();
    polish(&mut observed);
    observed
}

fn rewrites(model: &Model, effect: &Effect) {
    if let Effect::Host(operation) = effect
        && let HostAction::ConnectResource { resource, .. } = &operation.action
    {
        for host in [w(1), w(2)] {
            model.world.befall(&Incident::Rots { resource: resource.clone(), host, block: 0 });
        }
    }
}

fn hasty(plan: &BondFlipPlan, state: &PlanState, observed: &Observed, now: SystemTime) -> Step {
    if phase(state, Phase::FlipNode1) && !state.touched_bonds.is_empty() && state.pending.is_none() {
        return step(Act::Move(Change::Enter { phase: Phase::FlipNode2, proof: None }));
    }
    advance(plan, state, observed, now)
}

fn deaf(plan: &BondFlipPlan, state: &PlanState, observed: &Observed, now: SystemTime) -> Step {
    let mut state = state.clone();
    for probe in &mut state.probes {
        probe.received = probe.sent;
        for counters in probe.sender.values_mut().chain(probe.receiver.values_mut()) {
            counters.tx = counters.tx.max(1);
            counters.rx = counters.rx.max(1);
            counters.rx_nohandler = 0;
        }
    }
    advance(plan, &state, observed, now)
}

fn trusting(plan: &BondFlipPlan, state: &PlanState, observed: &Observed, now: SystemTime) -> Step {
    if state.phase <= Phase::SuspendMigration {
        return advance(plan, state, observed, now);
    }
    let observed = better(observed, |observed| {
        let picture = observed.vms.as_mut().and_then(|vms| match &mut vms.read {
            executor_api::host::Read::Seen(picture) => Some(picture),
            executor_api::host::Read::Unknown(_) => None,
        });
        for vm in picture.into_iter().flat_map(|picture| picture.vms.values_mut()) {
            vm.shield = PinShield { eviction_refused: Some(true), migration_refused: Some(true) };
        }
    });
    advance(plan, state, &observed, now)
}

fn presumptuous(plan: &BondFlipPlan, state: &PlanState, observed: &Observed, now: SystemTime) -> Step {
    let mut trusting = state.clone();
    trusting.lease_lost = None;
    if state.phase >= Phase::RestoreMigration {
        return advance(plan, state, observed, now);
    }
    let observed = better(observed, |observed| {
        if let Some(lock) = &mut observed.lock
            && let executor_api::host::Read::Seen(records) = &mut lock.read
            && state.lease.is_some()
        {
            records.lease.clone_from(&state.lease);
        }
    });
    advance(plan, &trusting, &observed, now)
}

fn single(plan: &BondFlipPlan, state: &PlanState, observed: &Observed, now: SystemTime) -> Step {
    if phase(state, Phase::ReleaseLock)
        && state.release_proof.is_none()
        && let Some(proof) = &state.restore_proof
    {
        return step(Act::Move(Change::KeepReleaseProof(proof.clone())));
    }
    advance(plan, state, observed, now)
}

fn credulous(plan: &BondFlipPlan, state: &PlanState, observed: &Observed, now: SystemTime) -> Step {
    let observed = better(observed, |observed| {
        for storage in observed.storage.values_mut() {
            let executor_api::host::Read::Seen(storage) = &mut storage.read else { continue };
            let connections =
                storage.resources.values_mut().flat_map(|resource| resource.connections.values_mut());
            let connected = connections.filter(|connection| connection.state == ConnectionState::Connected);
            for volume in connected.flat_map(|connection| connection.volumes.values_mut()) {
                volume.out_of_sync_kib = volume.out_of_sync_kib.map(|_| 0);
            }
        }
    });
    advance(plan, state, &observed, now)
}

fn unproved(plan: &BondFlipPlan, state: &PlanState, observed: &Observed, now: SystemTime) -> Step {
    let open = state.disconnected.iter().find(|name| !state.reconnected.contains(*name));
    let ready = phase(state, Phase::ResumeDrbd) && state.pending.is_none() && state.unsettled.is_none();
    let (Some(resource), Some(lease), true) = (open, &state.lease, ready && state.probes.len() == 2) else {
        return advance(plan, state, observed, now);
    };
    match &state.token {
        None => step(Act::Move(stamp(plan, state, lease.fence, now))),
        Some(token) => step(Act::Dispatch(connect(plan, state, resource, token))),
    }
}

fn stamp(
    plan: &BondFlipPlan,
    state: &PlanState,
    fence: executor_api::host::FenceValue,
    now: SystemTime,
) -> Change {
    let token = GateToken {
        plan: plan.uid.clone(),
        fence,
        resume_gates_passed_at: now,
        evidence: Fingerprint::of("nothing", &0),
        bonds: Fingerprint::of("bonds", &state.verified_bonds),
    };
    Change::StampGates { token, pre_connect: std::collections::BTreeMap::new() }
}

fn connect(plan: &BondFlipPlan, state: &PlanState, resource: &ResourceName, token: &GateToken) -> Effect {
    Effect::Host(HostOperation {
        id: state.next_id(),
        plan: plan.uid.clone(),
        node: plan.nodes[0].clone(),
        fence: token.fence,
        action: HostAction::ConnectResource {
            resource: resource.clone(),
            peer: plan.nodes[1].clone(),
            gates: token.clone(),
        },
    })
}

fn unstoppable(plan: &BondFlipPlan, state: &PlanState, observed: &Observed, now: SystemTime) -> Step {
    let mut going = state.clone();
    if matches!(state.recovery, Recovery::Halted(_)) {
        going.recovery = Recovery::Forward;
        going.ended.clear();
    }
    advance(plan, &going, observed, now)
}

fn restless(plan: &BondFlipPlan, state: &PlanState, observed: &Observed, now: SystemTime) -> Step {
    let mut going = state.clone();
    if let Recovery::Dwell { until, .. } = &mut going.recovery {
        *until = now;
    }
    advance(plan, &going, observed, now)
}

fn stubborn(plan: &BondFlipPlan, state: &PlanState, observed: &Observed, now: SystemTime) -> Step {
    let mut plan = plan.clone();
    plan.pace.retry_cap = 99;
    advance(&plan, state, observed, now)
}

fn lost(plan: &BondFlipPlan, state: &PlanState, observed: &Observed, now: SystemTime) -> Step {
    let mut plan = plan.clone();
    if matches!(state.recovery, Recovery::Rollback(_)) {
        plan.from = BondMode::BalanceRr;
    }
    advance(&plan, state, observed, now)
}

fn turncoat(plan: &BondFlipPlan, state: &PlanState, observed: &Observed, now: SystemTime) -> Step {
    let state = PlanState { going_back: false, ..state.clone() };
    advance(plan, &state, observed, now)
}

fn casual(plan: &BondFlipPlan, state: &PlanState, observed: &Observed, now: SystemTime) -> Step {
    let decided = advance(plan, state, observed, now);
    match decided.act {
        Act::Escalate(escalation) if matches!(state.recovery, Recovery::Forward | Recovery::Resumed) => {
            Step { act: Act::Halt(escalation.reason), why: decided.why }
        }
        act => Step { act, why: decided.why },
    }
}

fn thawing(plan: &BondFlipPlan, state: &PlanState, observed: &Observed, now: SystemTime) -> Step {
    let mut going = state.clone();
    if state.recovery == Recovery::Escalated && state.phase >= Phase::DisconnectDrbd {
        going.recovery = Recovery::Forward;
        going.escalation = None;
        going.ended.clear();
    }
    let decided = advance(plan, &going, observed, now);
    match (&state.recovery, &decided.act) {
        // Asked again and again would be a freeze of a kind.
        (Recovery::Escalated, Act::Escalate(_)) => advance(plan, state, observed, now),
        _ => decided,
    }
}

fn gullible(look: Look<'_>, reply: Reply) -> Result<Step, ReplyRefused> {
    let open = look.state.escalation.as_ref();
    let fingerprint = open.map_or_else(|| reply.fingerprint.clone(), |open| open.fingerprint.clone());
    reconciler_core::maintenance::respond(look, Reply { fingerprint, ..reply })
}

fn lander(plan: &BondFlipPlan, state: &PlanState, observed: &Observed, now: SystemTime) -> Step {
    let apart = !state.disconnected.is_subset(&state.reconnected);
    if matches!(state.recovery, Recovery::Rollback(_))
        && apart
        && state.pending.is_none()
        && state.lease.is_some()
    {
        let action = LockAction::LiftHold;
        return step(Act::Dispatch(Effect::Lock { id: state.next_id(), action }));
    }
    advance(plan, state, observed, now)
}

fn forgetful(
    plan: &BondFlipPlan,
    state: &mut PlanState,
    step: &Step,
    now: SystemTime,
) -> Result<Applied, StepRefused> {
    let applied = apply(plan, state, step, now);
    state.retries = 0;
    applied
}

fn retentive(
    plan: &BondFlipPlan,
    state: &mut PlanState,
    step: &Step,
    now: SystemTime,
) -> Result<Applied, StepRefused> {
    let token = state.token.clone();
    let applied = apply(plan, state, step, now);
    if matches!(step.act, Act::Move(Change::AdoptLease(_))) {
        state.token = token;
    }
    applied
}

fn hopeful(plan: &BondFlipPlan, state: &PlanState, observed: &Observed, now: SystemTime) -> Step {
    let node = &plan.nodes[0];
    let decided = advance(plan, state, observed, now);
    let flipping = phase(state, Phase::FlipNode1) && state.touched_bonds.contains(node);
    if flipping
        && matches!(decided.act, Act::Halt(_))
        && let Some(bond) = observed.bonds.get(node).and_then(|bond| bond.value())
    {
        let mut reading = bond.clone();
        reading.mode = plan.to.clone();
        return step(Act::Move(Change::VerifyBond { node: node.clone(), reading }));
    }
    decided
}

#[test]
fn the_same_searches_find_nothing_in_the_real_functions() {
    for retry_cap in [1, 2] {
        let found = search(&Setting { watchful: true, restful: true, retry_cap, replies: 1, ..setting() });
        assert!(found.violation.is_none() && !found.truncated, "{found}");
        println!("cap of {retry_cap}: {found}");
    }
    let _: Rules = setting().rules;
}
