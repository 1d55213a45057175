//! State held against the world at start, leases without an attempt, and tapes that are played again.

use std::sync::Arc;

use executor_api::{
    AttemptKey, CreateMode, LeaseId, LeaseProvider, Listing, NodeAttemptId, NodeManagerCommand, NodeRole,
    NodeTemplate, ProviderName, RunId, Timer, Visibility,
};
use executor_fake::{CallKind, FakeBehaviour, FakeWorld, Fault, Rule};
use reconciler_core::{ClusterShape, Expanded, OrphanPolicy, PolicyExtra, RetryPolicy};
use reconciler_driver::adopt::{AdoptError, Shown, state_from_listings};
use reconciler_driver::runner::Settled;
use reconciler_driver::{
    ClusterDriver, Distrusted, DriverError, ExecutorTable, MemoryStore, OrphanAge, Rules, Runner, StateImage,
    TapeBegin, TapeEntry, find_orphans, replay,
};

use crate::support::{Stage, epoch, group, policy, run, secs, shape, slot};

fn key(node: &str, attempt: u64) -> AttemptKey {
    AttemptKey { run: run(), node: slot(node), attempt: NodeAttemptId(attempt) }
}

/// Another driver of the same world, with this state.
pub(crate) fn begin(stage: &Stage, image: Option<StateImage>, desired: ClusterShape) -> Runner {
    let store = image.map_or_else(MemoryStore::new, MemoryStore::holding);
    let executors = ExecutorTable::new().with_executor(stage.world.executor());
    let timer = stage.timer.clone();
    Runner::open(Box::new(store), desired, policy(), executors, timer, Rules::default()).unwrap().guarded()
}

pub(crate) fn image(stage: &Stage) -> StateImage {
    let driver = stage.runner.driver();
    StateImage {
        run: run(),
        state: driver.state().clone(),
        desired: driver.desired().as_ref().clone(),
        annotations: std::collections::BTreeMap::new(),
    }
}

fn distrust(runner: &mut Runner) -> (Distrusted, String) {
    match runner.run_until_settled(secs(300)) {
        Err(DriverError::Distrusted(distrust)) => (distrust.what, distrust.to_string()),
        other => panic!("trusted: {other:?}"),
    }
}

#[test]
fn an_old_copy_of_the_state_changes_nothing_and_says_so() {
    let mut stage = Stage::with(shape(1, vec![group("n", 2, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    let old = image(&stage);
    stage.ask(shape(2, vec![group("n", 3, 2)]));
    stage.settle(60);
    let before = stage.world.mutations();
    let mut runner = begin(&stage, Some(old), shape(2, vec![group("n", 3, 2)]));
    let (what, said) = distrust(&mut runner);
    assert_eq!(what, Distrusted::Older);
    assert!(said.contains("older than its nodes") && said.contains("--adopt u1"), "{said}");
    assert_eq!(stage.world.mutations(), before);
}

#[test]
fn a_state_that_is_not_trusted_yet_has_not_converged_and_learns_nothing() {
    let mut stage = Stage::with(shape(1, vec![group("n", 2, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    let old = image(&stage);
    let replaced = stage.world.existing_leases().first().map(|lease| lease.id.clone()).unwrap();
    stage.world.kill(&replaced, "replaced");
    stage.settle(60);
    // The old copy says that everything is as declared; one of its nodes is gone.
    let mut runner = begin(&stage, Some(old.clone()), shape(1, vec![group("n", 2, 1)]));
    // A process that starts again is guarded before it listens to anybody.
    runner.crash().unwrap();
    assert!(!runner.driver().is_converged());
    assert_eq!(distrust(&mut runner).0, Distrusted::Older);
    assert!(!runner.driver().is_converged());
    let nodes = |state: &reconciler_core::ClusterState| state.nodes.clone();
    assert_eq!(nodes(runner.driver().state()), nodes(&old.state));
}

#[test]
fn an_empty_state_beside_living_nodes_of_the_name_changes_nothing() {
    let mut stage = Stage::with(shape(1, vec![group("n", 2, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    let before = stage.world.mutations();
    // The new state has a uid of its own, as every new state has.
    let mut desired = shape(1, vec![group("n", 2, 1)]);
    desired.run_id = RunId::new("demo", "u2").unwrap();
    desired.groups.iter_mut().for_each(|group| group.run_id = desired.run_id.clone());
    let mut runner = begin(&stage, None, desired);
    let (what, said) = distrust(&mut runner);
    assert_eq!(what, Distrusted::Empty);
    assert!(said.contains("n-0 a1 uid u1") && said.contains("--adopt u1"), "{said}");
    assert_eq!(stage.world.mutations(), before);
}

#[test]
fn nothing_begins_before_the_provider_could_be_listed() {
    let stage = Stage::with(shape(1, vec![]), policy(), FakeBehaviour::instant());
    stage.script(Rule::new(CallKind::List, Fault::Unknown).always().until(epoch() + secs(60)));
    let mut runner = begin(&stage, None, shape(1, vec![group("n", 2, 1)]));
    runner.run_for(secs(50)).unwrap();
    assert_eq!(stage.world.existing_leases().len(), 0);
    assert!(!runner.driver().waits_for().is_empty());
    let told = runner.driver().explain(&slot("n-0")).unwrap();
    assert_eq!(told.step, "wait");
    let why = told.status.why;
    assert!(why.starts_with("nothing is decided before fake was listed: "), "{why}");
    assert_eq!(runner.events().iter().filter(|event| event.what.name() == "listing-failed").count(), 1);
    assert_eq!(runner.run_until_settled(secs(60)).unwrap(), Settled::Converged);
}

#[test]
fn a_shape_without_nodes_is_converged_once_its_provider_was_listed() {
    let stage = Stage::with(shape(1, vec![]), policy(), FakeBehaviour::instant());
    let mut runner = begin(&stage, None, shape(1, vec![group("n", 1, 1)]));
    // The only group goes before anybody was asked what there is.
    runner.set_desired(shape(2, vec![])).unwrap();
    assert!(!runner.driver().is_converged());
    assert_eq!(runner.run_until_settled(secs(60)).unwrap(), Settled::Converged);
}

#[test]
fn a_state_that_nobody_could_bear_out_at_start_is_held_against_the_first_provider_in_use() {
    let mut stage = Stage::with(shape(1, vec![group("n", 2, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    let before = stage.world.mutations();
    let mut runner = begin(&stage, None, shape(1, vec![]));
    assert_eq!(runner.run_until_settled(secs(60)).unwrap(), Settled::Converged);
    runner.set_desired(shape(2, vec![group("n", 2, 1)])).unwrap();
    assert_eq!(distrust(&mut runner).0, Distrusted::Older);
    assert_eq!(stage.world.mutations(), before);
}

#[test]
fn a_lost_state_is_noticed_by_a_shape_that_wants_no_nodes() {
    let mut stage = Stage::with(shape(1, vec![group("n", 2, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    let mut runner = begin(&stage, None, shape(1, vec![group("n", 0, 1)]));
    assert_eq!(distrust(&mut runner).0, Distrusted::Older);
}

#[test]
fn the_count_of_changes_rises_with_an_acknowledged_generation() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    let before = stage.runner.driver().revision();
    // The same nodes under a newer generation: nothing else changes.
    stage.ask(shape(2, vec![group("n", 1, 1)]));
    stage.settle(60);
    assert_eq!(stage.runner.driver().state().observed_generation, 2);
    assert!(stage.runner.driver().revision() > before);
}

#[test]
fn true_state_goes_on_as_if_nobody_had_looked() {
    let mut stage = Stage::with(shape(1, vec![group("n", 3, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    let mut runner = begin(&stage, Some(image(&stage)), shape(2, vec![group("n", 1, 1)]));
    assert_eq!(runner.run_until_settled(secs(60)).unwrap(), Settled::Converged);
    assert_eq!(stage.world.existing_leases().len(), 1);
}

#[test]
fn lost_state_is_made_anew_from_the_nodes_and_harms_none() {
    let mut stage = Stage::with(shape(1, vec![group("n", 3, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    stage.runner.tell(reconciler_driver::DriverInput::Replace { slot: slot("n-1") });
    stage.settle(60);
    let before: Vec<_> = stage.world.existing_leases().iter().map(|lease| lease.id.clone()).collect();
    let desired = shape(1, vec![group("n", 3, 1)]);
    let expanded = Expanded::of(&desired).unwrap();
    let now = stage.timer.now();
    let adopted = state_from_listings(&run(), &expanded, &shown(&stage), now, now).unwrap();
    assert!(adopted.next_attempt_id > 4);
    let image = StateImage { state: adopted, desired: desired.clone(), ..image(&stage) };
    let mut runner = begin(&stage, Some(image), desired);
    assert_eq!(runner.run_until_settled(secs(60)).unwrap(), Settled::Converged);
    let after: Vec<_> = stage.world.existing_leases().iter().map(|lease| lease.id.clone()).collect();
    assert_eq!(after, before, "the same leases, and no other");
    assert_eq!(stage.world.breaches(), []);
    assert_eq!(runner.driver().state().nodes[&slot("n-1")].attempt.0, 4);
}

#[test]
fn a_node_that_is_not_declared_is_not_adopted_to_be_removed() {
    let mut stage = Stage::with(shape(1, vec![group("n", 3, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    let expanded = Expanded::of(&shape(1, vec![group("n", 2, 1)])).unwrap();
    let now = stage.timer.now();
    let error = state_from_listings(&run(), &expanded, &shown(&stage), now, now).unwrap_err();
    assert!(error.to_string().starts_with("n-2 lives at fake but is not declared"), "{error}");
}

#[test]
fn a_node_that_no_listing_shows_yet_is_adopted_and_not_made_twice() {
    let visibility = Visibility { listing_lag: secs(60), late_landing: secs(5) };
    let behaviour = FakeBehaviour { visibility, ..FakeBehaviour::instant() };
    let mut stage = Stage::with(shape(1, vec![group("n", 2, 1)]), policy(), behaviour);
    stage.settle(600);
    stage.runner.run_for(secs(300)).unwrap();
    stage.runner.tell(reconciler_driver::DriverInput::Replace { slot: slot("n-1") });
    stage.settle(600);
    let before: Vec<_> = stage.world.existing_leases().iter().map(|lease| lease.id.clone()).collect();
    let desired = shape(1, vec![group("n", 2, 1)]);
    let expanded = Expanded::of(&desired).unwrap();
    let began = stage.timer.now();
    let adopt =
        |stage: &Stage| state_from_listings(&run(), &expanded, &shown(stage), began, stage.timer.now());
    let hidden = |id: &LeaseId| !listed(&stage).leases.iter().any(|listed| listed.lease.lease_id == *id);
    assert_eq!(before.iter().filter(|id| hidden(id)).count(), 1, "the young node");
    for wait in [secs(0), secs(64)] {
        stage.timer.advance_to(began + wait);
        let error = adopt(&stage).unwrap_err();
        assert!(
            matches!(error, AdoptError::TooEarly { counts_from, .. } if counts_from == began + secs(65)),
            "{error}"
        );
    }
    stage.timer.advance_to(began + secs(65));
    let image = StateImage { state: adopt(&stage).unwrap(), desired: desired.clone(), ..image(&stage) };
    let mut runner = begin(&stage, Some(image), desired);
    assert_eq!(runner.run_until_settled(secs(600)).unwrap(), Settled::Converged);
    runner.run_for(secs(300)).unwrap();
    let after: Vec<_> = stage.world.existing_leases().iter().map(|lease| lease.id.clone()).collect();
    assert_eq!(after, before, "the same leases, and no other");
    assert_eq!(stage.world.breaches(), []);
}

/// What the world's provider shows now.
fn shown(stage: &Stage) -> std::collections::BTreeMap<ProviderName, Shown> {
    let (asked_at, visibility) = (stage.timer.now(), stage.world.provider().visibility());
    [(ProviderName::new("fake").unwrap(), Shown { asked_at, visibility, listing: listed(stage) })].into()
}

fn listed(stage: &Stage) -> Listing {
    let provider = stage.world.provider();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { provider.list(&run()).await }).unwrap()
}

/// The orphans of the stage as its provider lists them now.
fn orphans(stage: &Stage) -> Vec<(String, OrphanAge)> {
    let list = listed(stage);
    let visibility = Visibility { listing_lag: secs(5), late_landing: secs(5) };
    let now = stage.timer.now();
    find_orphans(&run(), stage.runner.driver().state(), &list, secs(30), visibility, now)
        .into_iter()
        .map(|orphan| (format!("{} {}", orphan.attempt.node, orphan.attempt.attempt), orphan.age))
        .collect()
}

#[test]
fn a_lease_is_an_orphan_when_its_attempt_is_over_and_may_go_when_it_is_old_enough() {
    let mut stage = Stage::with(shape(1, vec![group("n", 2, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    stage.ask(shape(2, vec![group("n", 2, 2)]));
    stage.settle(60);
    assert_eq!(orphans(&stage), []);
    stage.world.plant(&key("n-0", 1));
    stage.world.plant(&AttemptKey { run: RunId::new("demo", "u2").unwrap(), ..key("n-0", 1) });
    let until = stage.timer.now() + secs(50);
    assert_eq!(orphans(&stage), [("n-0 a1".to_owned(), OrphanAge::TooYoung { until })]);
    stage.runner.run_for(secs(50)).unwrap();
    assert_eq!(orphans(&stage), [("n-0 a1".to_owned(), OrphanAge::Enough)]);
}

/// A run whose a1 and a2 are over and whose leases were planted again: one of its own, one of another uid.
fn with_strays(orphans: OrphanPolicy) -> (Stage, LeaseId, LeaseId) {
    let extra = PolicyExtra { orphans, ..policy().extra };
    let mut stage = Stage::with(
        shape(1, vec![group("n", 2, 1)]),
        RetryPolicy { extra, ..policy() },
        FakeBehaviour::instant(),
    );
    stage.settle(60);
    stage.ask(shape(2, vec![group("n", 2, 2)]));
    stage.settle(60);
    let own = stage.world.plant(&key("n-0", 1));
    let other = stage.world.plant(&AttemptKey { run: RunId::new("demo", "u2").unwrap(), ..key("n-0", 1) });
    (stage, own, other)
}

fn exist(stage: &Stage, lease: &LeaseId) -> bool {
    stage.world.existing_leases().iter().any(|found| found.id == *lease)
}

#[test]
fn a_sweep_reports_an_orphan_and_by_default_destroys_none() {
    let (mut stage, own, other) = with_strays(OrphanPolicy::Report);
    stage.runner.run_for(secs(3600)).unwrap();
    assert!(exist(&stage, &own) && exist(&stage, &other));
    assert_eq!((stage.steps("orphan"), stage.steps("orphan-destroyed")), (1, 0));
}

#[test]
fn a_sweep_that_may_destroys_an_orphan_that_is_old_enough_and_was_seen_twice_and_no_other() {
    let (mut stage, own, other) = with_strays(OrphanPolicy::Destroy);
    // Too young until its create could neither land nor show any more: the timeout of a call here.
    stage.runner.run_for(secs(30)).unwrap();
    assert!(exist(&stage, &own), "{}", stage.trace());
    stage.runner.run_for(secs(180)).unwrap();
    assert!(!exist(&stage, &own), "{}", stage.trace());
    assert!(exist(&stage, &other), "another run's is never touched");
    assert_eq!(stage.steps("orphan-destroyed"), 1);
    assert_eq!(stage.world.existing_leases().len(), 3);
    // The sweep of a driver that has just begun does not count for two.
    let stray = stage.world.plant(&key("n-1", 2));
    stage.runner.run_for(secs(45)).unwrap();
    stage.runner.crash().unwrap();
    stage.runner.run_for(secs(30)).unwrap();
    assert!(exist(&stage, &stray), "{}", stage.trace());
    stage.runner.run_for(secs(120)).unwrap();
    assert!(!exist(&stage, &stray), "{}", stage.trace());
    assert_eq!(stage.world.breaches(), []);
}

#[test]
fn a_sweep_that_could_not_destroy_says_so_and_tries_again() {
    let (mut stage, own, _) = with_strays(OrphanPolicy::Destroy);
    stage.script(
        Rule::new(CallKind::Destroy, Fault::Unavailable).always().until(stage.timer.now() + secs(300)),
    );
    stage.runner.run_for(secs(290)).unwrap();
    assert!(exist(&stage, &own) && stage.steps("orphan-left") >= 2, "{}", stage.trace());
    stage.runner.run_for(secs(120)).unwrap();
    assert!(!exist(&stage, &own), "{}", stage.trace());
}

#[test]
fn state_that_has_forgotten_attempts_knows_no_orphans() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    stage.world.plant(&key("n-0", 77));
    stage.world.plant(&key("n-1", 1));
    stage.runner.run_for(secs(300)).unwrap();
    assert_eq!(orphans(&stage), []);
}

/// A run with faults, on tape.
fn taped() -> Vec<TapeEntry> {
    let desired = shape(1, vec![group("n", 4, 1)]);
    let (now, policy) = (epoch(), policy());
    let version = "test".to_owned();
    let begin = TapeBegin {
        version,
        now,
        image: None,
        desired: desired.clone(),
        policy: policy.clone(),
        guard: false,
    };
    let mut stage = Stage::new(desired);
    stage.runner.keep_tape();
    stage.script(Rule::new(CallKind::Create, Fault::Unavailable).times(3));
    stage.settle(200);
    stage.ask(shape(2, vec![group("n", 3, 2)]));
    stage.settle(200);
    let mut tape = vec![TapeEntry::Begin(Box::new(begin))];
    tape.extend(stage.runner.take_tape());
    // As it is kept: in JSON.
    let text: Vec<_> = tape.iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
    text.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn table() -> ExecutorTable {
    let world =
        FakeWorld::new(Arc::new(reconciler_driver::VirtualTimer::new(epoch())), FakeBehaviour::default());
    ExecutorTable::new().with_executor(world.executor())
}

#[test]
fn a_tape_is_decided_again_as_it_was() {
    let tape = taped();
    let passes = tape.iter().filter(|entry| matches!(entry, TapeEntry::Pass { .. })).count();
    assert!(passes > 20, "{passes}");
    let playback = replay(tape, &table(), &Rules::default()).unwrap();
    assert_eq!((playback.difference, playback.passes), (None, passes as u64));
}

#[test]
fn another_decision_is_shown_where_it_first_differs() {
    let rules = Rules {
        reconcile: Arc::new(|state, desired, slots, now| {
            let mut plan = reconciler_core::reconcile_slots(state, desired, slots, now)?;
            let destroys = |action: &reconciler_core::NodeAction| action.name() == "destroy-lease";
            plan.actions.retain(|action| !destroys(action));
            Ok(plan)
        }),
        ..Rules::default()
    };
    let difference = replay(taped(), &table(), &rules).unwrap().difference.unwrap();
    let taped = difference.taped.unwrap();
    assert!(taped.contains("destroy-lease"), "{taped}");
}

#[test]
fn another_command_under_the_same_id_is_a_difference() {
    use reconciler_core::NodeAction;
    type Change = fn(&mut NodeManagerCommand) -> bool;
    let changes: [(&str, Change); 3] = [
        ("send n-", |command| match command {
            NodeManagerCommand::DestroyLease { lease, .. } => {
                lease.lease_id = LeaseId("somebody-elses".to_owned());
                true
            }
            _ => false,
        }),
        ("send n-", |command| match command {
            NodeManagerCommand::CreateLease { desired, .. } => {
                let template =
                    NodeTemplate { role: NodeRole("other".to_owned()), ..(*desired.template).clone() };
                desired.template = Arc::new(template);
                true
            }
            _ => false,
        }),
        ("store n-0: /pending/extra/adopt_only is true", |command| match command {
            NodeManagerCommand::CreateLease { mode, .. } => {
                *mode = CreateMode::AdoptOnly;
                true
            }
            _ => false,
        }),
    ];
    for (place, change) in changes {
        let hit = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = Arc::clone(&hit);
        let rules = Rules {
            reconcile: Arc::new(move |state, desired, slots, now| {
                let mut plan = reconciler_core::reconcile_slots(state, desired, slots, now)?;
                for action in &mut plan.actions {
                    if let NodeAction::Dispatch(effect) = action
                        && change(&mut effect.command)
                    {
                        seen.store(true, std::sync::atomic::Ordering::Relaxed);
                    }
                }
                Ok(plan)
            }),
            ..Rules::default()
        };
        let difference = replay(taped(), &table(), &rules).unwrap().difference;
        assert!(hit.load(std::sync::atomic::Ordering::Relaxed), "{place}: nothing was changed");
        let Some(difference) = difference else { panic!("{place}: no difference") };
        let played = difference.played.unwrap();
        assert!(played.starts_with(place), "{place}: {played}");
    }
}

#[test]
fn another_stored_value_is_a_difference() {
    let mut tape = taped();
    let (slot, node) = tape
        .iter_mut()
        .find_map(|entry| match entry {
            TapeEntry::Pass { asked, .. } => asked.commit.as_mut()?.upserted.first_mut(),
            _ => None,
        })
        .unwrap();
    let name = format!("store {slot}: /attempt is ");
    node.attempt.0 += 1;
    let difference = replay(tape, &table(), &Rules::default()).unwrap().difference.unwrap();
    let (taped, played) = (difference.taped.unwrap(), difference.played.unwrap());
    assert!(taped.starts_with(&name) && played.starts_with(&name) && taped != played, "{taped}, {played}");
}

#[test]
fn a_driver_without_a_tape_keeps_none() {
    let mut driver = ClusterDriver::new(shape(1, vec![group("n", 1, 1)]), policy(), epoch()).unwrap();
    driver.pass(epoch()).unwrap();
    assert_eq!(driver.take_tape(), []);
}
