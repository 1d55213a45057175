//! Random histories: the world is bent between passes, operations are lost, doubled or reported and not done, the
//! process restarts, people abort and reply. Whatever is sent is judged against the world at that moment.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test: a panic is a failed test"
)]

mod maintenance_support;

use std::collections::{BTreeMap, BTreeSet};

use executor_api::host::*;
use maintenance_support::*;
use proptest::prelude::*;
use proptest::sample::select;
use reconciler_core::maintenance::gate::Look;
use reconciler_core::maintenance::*;

/// What happens between two passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Nothing,
    PodReturns,
    StorageReconnects,
    LinkDrops,
    PinFadesOnTheInstance,
    PinIsBack,
    MachineMoves,
    MigrationAppears,
    MigrationEnds,
    PeerIsWritten,
    CountersDisagree,
    CountersAgree,
    MemberIsLost,
    MemberIsBack,
    HostReboots,
    LeaseIsStolen,
    LeaseIsFree,
    Restart,
    OperationLost,
    OperationDoneAndLost,
    OperationReportedNotDone,
    OperationFails,
    HostIsSilent,
    StatusIsTorn,
    ProbeLosesPackets,
    Abort,
    Reply,
}

const EVENTS: [Event; 27] = [
    Event::Nothing,
    Event::PodReturns,
    Event::StorageReconnects,
    Event::LinkDrops,
    Event::PinFadesOnTheInstance,
    Event::PinIsBack,
    Event::MachineMoves,
    Event::MigrationAppears,
    Event::MigrationEnds,
    Event::PeerIsWritten,
    Event::CountersDisagree,
    Event::CountersAgree,
    Event::MemberIsLost,
    Event::MemberIsBack,
    Event::HostReboots,
    Event::LeaseIsStolen,
    Event::LeaseIsFree,
    Event::Restart,
    Event::OperationLost,
    Event::OperationDoneAndLost,
    Event::OperationReportedNotDone,
    Event::OperationFails,
    Event::HostIsSilent,
    Event::StatusIsTorn,
    Event::ProbeLosesPackets,
    Event::Abort,
    Event::Reply,
];

fn bend(run: &mut Run, event: Event, node: &str) {
    let world = &mut run.world;
    match event {
        Event::PodReturns => {
            world.satellites.get_mut(&host(node)).unwrap().pods = Some(BTreeSet::from(["stray".to_owned()]));
        }
        Event::StorageReconnects => {
            for side in ["w1", "w2"] {
                if world.connection_mut(side, "r1").state == ConnectionState::StandAlone {
                    world.connect(side, "r1");
                }
            }
        }
        Event::LinkDrops => {
            if world.connection_mut(node, "r2").state == ConnectionState::Connected {
                world.disconnect(node, "r2");
            }
        }
        Event::PinFadesOnTheInstance => world.running_mut("v1").effective = EvictionSetting::Unset,
        Event::PinIsBack => world.running_mut("v1").effective = EvictionSetting::PINNED,
        Event::MachineMoves => world.running_mut("v2").node = host("w1"),
        Event::MigrationAppears | Event::MigrationEnds => {
            let over = event == Event::MigrationEnds;
            let phase = if over { MigrationPhase::Failed } else { MigrationPhase::Running };
            let reading = MigrationReading {
                vm: vm("v1"),
                phase,
                abort_requested: over,
                abort_status: None,
                post_copy: Some(false),
            };
            world.vms.migrations.insert(MigrationName::new("m1").unwrap(), reading);
        }
        Event::PeerIsWritten => {
            if world.connection_mut("w2", "r1").state != ConnectionState::Connected {
                world.write("w2", "r1", 8);
            }
        }
        Event::CountersDisagree => world.peer_volume_mut(node, "r1").out_of_sync_kib = Some(12),
        Event::CountersAgree => world.peer_volume_mut(node, "r1").out_of_sync_kib = Some(0),
        Event::MemberIsLost | Event::MemberIsBack => {
            let mii = if event == Event::MemberIsLost { MiiStatus::Down } else { MiiStatus::Up };
            for member in world.bond_mut(node).members.values_mut() {
                member.mii = mii.clone();
            }
        }
        Event::HostReboots => world.bond_mut(node).boot_id.push('+'),
        Event::LeaseIsStolen => {
            world.fences += 1;
            if let Some(lease) = &mut world.lock.lease {
                lease.holder = LeaseHolder::new("somebody").unwrap();
                lease.fence = FenceValue(world.fences);
            }
        }
        Event::LeaseIsFree => {
            let stolen = |lease: &LeaseRecord| lease.holder.as_str() == "somebody";
            if world.lock.lease.as_ref().is_some_and(stolen) {
                world.lock.lease = None;
            }
        }
        Event::Restart => {
            run.restart();
        }
        Event::Abort => run.fold(PlanObservation::AbortRequested(person("ann"))),
        Event::Nothing
        | Event::OperationLost
        | Event::OperationDoneAndLost
        | Event::OperationReportedNotDone
        | Event::OperationFails
        | Event::HostIsSilent
        | Event::StatusIsTorn
        | Event::ProbeLosesPackets
        | Event::Reply => {}
    }
}

fn observed(run: &Run, event: Event, node: &str) -> Observed {
    let mut observed = run.observed();
    if event == Event::HostIsSilent {
        let silent = Evidence::unknown(Source::Host(host(node)), at(run.now), "no answer");
        observed.storage.insert(host(node), silent);
    }
    if event == Event::StatusIsTorn {
        let mut torn = run.world.storage[&host(node)].clone();
        torn.stable = false;
        let source = Source::Host(host(node));
        observed.storage.insert(host(node), Evidence::seen(source, at(run.now), torn));
    }
    observed
}

/// What must be true of the world at the moment an effect is sent.
fn judge(run: &mut Run, effect: &Effect) {
    let world = &mut run.world;
    let is_ours = |lock: &LockRecords, me: &LeaseHolder| {
        lock.lease.as_ref().is_some_and(|lease| lease.holder == *me)
            && lock.hold.as_ref().is_some_and(|hold| hold.plan.as_str() == "p-1")
    };
    let frozen = run.state.recovery == Recovery::Escalated && !run.state.handed_over;
    assert!(!frozen, "sent while frozen: {effect}");
    if !matches!(effect, Effect::Lock { .. }) {
        assert!(is_ours(&world.lock, &run.me), "sent without the lock: {effect}");
        assert!(!run.state.handed_over, "sent after a person took over: {effect}");
    }
    let pinned = world.vms.vms.iter().all(|(name, vm)| {
        let original = run.state.vm_originals.get(name);
        let place = vm.running.as_ref().map(|running| (running.node.clone(), running.pod_uid.clone()));
        let effective = vm.running.as_ref().is_none_or(|r| r.effective == EvictionSetting::PINNED);
        effective && vm.shield.is_up() && original.is_some_and(|original| original.placement == place)
    }) && world.vms.unfinished().next().is_none();
    let mut apart = true;
    let mut identical = true;
    let mut split = false;
    for name in ["r1", "r2"] {
        let states = ["w1", "w2"].map(|node| world.connection_mut(node, name).state.clone());
        apart &= states.iter().all(|state| *state == ConnectionState::StandAlone);
        identical &= states.iter().all(|state| *state == ConnectionState::Connected);
        identical &= ["w1", "w2"].iter().all(|n| world.peer_volume_mut(n, name).out_of_sync_kib == Some(0));
        let (one, two) = (world.ids_mut("w1", name).clone(), world.ids_mut("w2", name).clone());
        identical &= one.current.same(two.current);
        split |= !one.current.same(two.current) && !one.bitmap.is_none() && !two.bitmap.is_none();
    }
    let drained = world.satellites.values().all(SatelliteReading::is_drained);
    let modes: BTreeMap<_, _> =
        world.bonds.iter().map(|(node, bond)| (node.as_str().to_owned(), bond.mode.clone())).collect();
    match effect {
        Effect::Host(operation) => match &operation.action {
            HostAction::SetBondMode { mode, .. } => {
                assert!(
                    pinned && apart && drained,
                    "{effect}: pinned {pinned} apart {apart} drained {drained}"
                );
                let back = matches!(run.state.recovery, Recovery::Rollback(_));
                assert_eq!(*mode == BondMode::ActiveBackup, back, "{effect}");
                if !back && operation.node == host("w2") {
                    assert_eq!(modes["w1"], BondMode::BalanceRr, "{effect}");
                }
            }
            HostAction::ConnectResource { gates, .. } => {
                assert!(pinned && !split, "{effect}: pinned {pinned} split {split}");
                assert_eq!(modes["w1"], modes["w2"], "{effect}");
                assert_eq!(Some(gates.fence), run.state.lease.as_ref().map(|lease| lease.fence));
                let up = world
                    .bonds
                    .values()
                    .flat_map(|bond| bond.members.values())
                    .all(|m| m.mii == MiiStatus::Up);
                assert!(up, "{effect}: over a link that is down");
            }
            HostAction::UndrainSatellite { .. } => assert!(pinned && !split, "{effect}"),
            HostAction::DrainSatellite => assert!(pinned && apart, "{effect}"),
            HostAction::DisconnectResource { .. } | HostAction::SuspendIo { .. } => {
                assert!(pinned, "{effect}");
            }
            HostAction::ProbeLink { .. } | HostAction::ResumeIo { .. } => {}
        },
        Effect::Vm(operation) => {
            if let VmAction::Restore { original } = &operation.action {
                assert!(identical || run.state.disconnected.is_empty(), "{effect}: copies not in sync");
                let saved = &run.state.vm_originals[&operation.vm].declared;
                assert_eq!(original, saved);
            }
        }
        Effect::Lock { action: LockAction::LiftHold, .. } => {
            let untouched = run.state.disconnected.is_empty();
            assert!(
                identical || untouched || run.state.handed_over,
                "the hold is lifted over copies out of sync"
            );
        }
        Effect::Lock { .. } | Effect::Settle { .. } => {}
    }
}

/// What a decision is shown instead of what was read: the seeded bugs of this file.
type Blindfold = fn(&Run, &mut Observed);

fn open_eyes(_: &Run, _: &mut Observed) {}

fn pass(run: &mut Run, event: Event, node: &str, answer: usize, blindfold: Blindfold) {
    bend(run, event, node);
    let mut observed = observed(run, event, node);
    blindfold(run, &mut observed);
    if event == Event::Reply
        && let Some(open) = run.state.escalation.clone()
    {
        let answers: Vec<_> = open.answers.iter().copied().collect();
        let reply = Reply {
            fingerprint: open.fingerprint,
            answer: answers[answer % answers.len()],
            who: "ann".to_owned(),
        };
        let look = Look { plan: &run.plan, state: &run.state, observed: &observed, now: at(run.now) };
        if let Ok(step) = respond(look, reply) {
            run.take(&step);
        }
        return;
    }
    let step = run.decide_on(&observed);
    if let Act::Wait { until: Some(until) } = &step.act {
        run.now = run.now.max(until.duration_since(at(0)).unwrap().as_secs());
    }
    let frozen = run.state.recovery == Recovery::Escalated && !run.state.handed_over;
    let before = (run.state.phase, run.state.retries);
    let sent = apply(&run.plan, &mut run.state, &step, at(run.now)).unwrap();
    run.steps.push(step.to_string());
    if frozen {
        assert_eq!((run.state.phase, run.state.retries), before);
        assert_eq!(run.state.recovery, Recovery::Escalated);
    }
    if let Applied::Send { effect, .. } = sent {
        judge(run, &effect);
        run.deeds.push(effect.to_string());
        let id = effect.id();
        let failure = |kind| HostFailure { kind, message: "so it was decided".to_owned() };
        let fact = match event {
            Event::OperationLost => PlanObservation::Lost { id },
            Event::OperationDoneAndLost => {
                run.world.perform(&effect, &run.me.clone(), at(run.now));
                PlanObservation::Lost { id }
            }
            Event::OperationReportedNotDone
                if !matches!(*effect, Effect::Lock { .. } | Effect::Settle { .. }) =>
            {
                PlanObservation::Ended { id, outcome: Ok(EffectDone::Host(HostReport::Done)) }
            }
            Event::OperationFails => {
                PlanObservation::Ended { id, outcome: Err(failure(HostErrorKind::Failed)) }
            }
            _ => {
                let mut done = run.world.perform(&effect, &run.me.clone(), at(run.now));
                if let (EffectDone::Host(HostReport::Probed(probe)), Event::ProbeLosesPackets) =
                    (&mut done, event)
                {
                    probe.received -= 1;
                }
                PlanObservation::Ended { id, outcome: Ok(done) }
            }
        };
        run.fold(fact);
    }
    assert_eq!(check::violations(&run.plan, &run.state), Vec::<&str>::new(), "{}", run.all_steps());
    run.now += 1;
}

type History = Vec<(Event, &'static str, usize)>;

fn history() -> impl Strategy<Value = History> {
    // Mostly quiet, or nothing would ever get far.
    let event = prop_oneof![12 => Just(Event::Nothing), 1 => select(&EVENTS[..])];
    proptest::collection::vec((event, select(&["w1", "w2"][..]), 0usize..4), 40..140)
}

fn policy() -> impl Strategy<Value = IoPolicy> {
    prop_oneof![Just(IoPolicy::Continue), Just(quiesce()), Just(IoPolicy::Quiesce { suspend_for: None })]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_sent_that_the_world_does_not_bear(history in history(), io in policy()) {
        let mut run = Run::new(io);
        run.thorough = false;
        for (event, node, answer) in history {
            pass(&mut run, event, node, answer, open_eyes);
        }
        let state = &run.state;
        let granted = run.plan.pace.retry_cap + state.retries_granted;
        prop_assert!(state.retries < granted.max(1), "{} retries of {granted}", state.retries);
        // Once nothing bends it any more, it comes to an end or to a question.
        let mut quiet = run.clone();
        for _ in 0..300 {
            pass(&mut quiet, Event::LeaseIsFree, "w1", 0, open_eyes);
            if quiet.state.is_over() || quiet.state.recovery == Recovery::Escalated {
                break;
            }
        }
        let waits = quiet.decide();
        let settled = quiet.state.is_over() || quiet.state.recovery == Recovery::Escalated;
        // What defers without end says so: only gates over storage may.
        let defers = matches!((&waits.act, &waits.why), (Act::Wait { until: None }, Why::Unproved { .. }));
        prop_assert!(settled || defers, "no end: {}\n{}", waits, quiet.all_steps());
    }
}

/// The same histories in every run.
fn fixed_histories(count: usize) -> Vec<(History, IoPolicy)> {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    (0..count).map(|_| (history(), policy()).new_tree(&mut runner).unwrap().current()).collect()
}

#[test]
fn the_histories_get_everywhere() {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for (history, io) in fixed_histories(250) {
        let mut run = Run::new(io);
        run.thorough = false;
        for (event, node, answer) in history {
            let label = run.state.label();
            *seen.entry(format!("event {event:?}")).or_default() += 1;
            pass(&mut run, event, node, answer, open_eyes);
            let word =
                run.steps.last().map_or(String::new(), |step| step.split(' ').next().unwrap().to_owned());
            *seen.entry(format!("step {word}")).or_default() += 1;
            if run.state.label() != label {
                *seen.entry(run.state.label()).or_default() += 1;
            }
        }
    }
    let wanted = Phase::ALL.iter().skip(1).map(ToString::to_string);
    let wanted = wanted.chain(EVENTS.iter().map(|event| format!("event {event:?}")));
    let wanted = wanted.chain(["step send", "step halt", "step escalate", "step take"].map(str::to_owned));
    let missing: Vec<_> = wanted.filter(|what| seen.get(what).is_none_or(|count| *count < 3)).collect();
    assert!(missing.is_empty(), "never or hardly seen: {missing:?}\n{seen:#?}");
    for rung in
        ["Halted in", "Dwell in", "Retry in", "Resumed in", "Rollback in", "RevertedSafe in", "Escalated in"]
    {
        let count: u32 =
            seen.iter().filter(|(label, _)| label.starts_with(rung)).map(|(_, count)| count).sum();
        assert!(count >= 3, "{rung} seen {count} times\n{seen:#?}");
    }
}

fn sees_every_machine_pinned(run: &Run, observed: &mut Observed) {
    let Some(Evidence { read: Read::Seen(picture), .. }) = &mut observed.vms else { return };
    picture.migrations.clear();
    for (name, vm) in &mut picture.vms {
        let original = run.state.vm_originals.get(name).and_then(|original| original.placement.clone());
        if let (true, Some(running), Some((node, pod))) = (run.state.placed, &mut vm.running, original) {
            running.effective = EvictionSetting::PINNED;
            running.node = node;
            running.pod_uid = pod;
        }
    }
}

fn sees_storage_drained(run: &Run, observed: &mut Observed) {
    if run.state.phase < Phase::FlipNode1 || run.state.phase >= Phase::ResumeDrbd {
        return;
    }
    for evidence in observed.satellites.values_mut() {
        if let Read::Seen(reading) = &mut evidence.read {
            reading.pods = Some(BTreeSet::new());
            reading.kept_away = Some(true);
        }
    }
}

fn sees_storage_apart(run: &Run, observed: &mut Observed) {
    if run.state.phase < Phase::FlipNode1 || run.state.phase >= Phase::ResumeDrbd {
        return;
    }
    for evidence in observed.storage.values_mut() {
        let Read::Seen(storage) = &mut evidence.read else { continue };
        for connection in
            storage.resources.values_mut().flat_map(|resource| resource.connections.values_mut())
        {
            connection.state = ConnectionState::StandAlone;
        }
    }
}

fn sees_no_block_out_of_sync(_: &Run, observed: &mut Observed) {
    for evidence in observed.storage.values_mut() {
        let Read::Seen(storage) = &mut evidence.read else { continue };
        let connections =
            storage.resources.values_mut().flat_map(|resource| resource.connections.values_mut());
        for volume in connections.flat_map(|connection| connection.volumes.values_mut()) {
            volume.out_of_sync_kib = Some(0);
        }
    }
}

fn sees_the_lock_as_its_own(run: &Run, observed: &mut Observed) {
    let Some(Evidence { read: Read::Seen(lock), .. }) = &mut observed.lock else { return };
    if let Some(known) = &run.state.lease {
        lock.lease = Some(LeaseRecord { holder: observed.me.clone(), ..known.clone() });
    }
}

fn sees_every_member_up(run: &Run, observed: &mut Observed) {
    for (node, evidence) in &mut observed.bonds {
        if let (Read::Seen(bond), Some(verified)) = (&mut evidence.read, run.state.verified_bonds.get(node)) {
            bond.members.clone_from(&verified.members);
        }
    }
}

#[test]
fn the_judge_catches_every_blindfold() {
    let blindfolds: [(&str, Blindfold); 6] = [
        ("pins", sees_every_machine_pinned),
        ("pods", sees_storage_drained),
        ("connections", sees_storage_apart),
        ("blocks", sees_no_block_out_of_sync),
        ("lock", sees_the_lock_as_its_own),
        ("members", sees_every_member_up),
    ];
    let histories = fixed_histories(300);
    let escaped: Vec<_> = blindfolds
        .into_iter()
        .filter(|(_, blindfold)| {
            !histories.iter().any(|(history, io)| {
                let caught = std::panic::catch_unwind(|| {
                    let mut run = Run::new(io.clone());
                    run.thorough = false;
                    for (event, node, answer) in history {
                        pass(&mut run, *event, node, *answer, *blindfold);
                    }
                });
                caught.is_err()
            })
        })
        .map(|(name, _)| name)
        .collect();
    assert!(escaped.is_empty(), "not caught: {escaped:?}");
}
