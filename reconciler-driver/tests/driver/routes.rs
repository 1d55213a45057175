//! Nodes whose bootstrapper is not built in (any more): what its half is not needed for goes on, and nothing is made
//! that nobody could bootstrap.

use std::sync::Arc;

use executor_api::{NodeTemplate, ProviderName};
use executor_fake::{CallKind, FakeBehaviour, Fault, Joining, Rule, Silence};
use reconciler_driver::{Runner, StateImage};

use crate::support::{Stage, group, policy, secs, shape, slot};
use crate::trust::{begin, image};

fn elsewhere(template: &mut Arc<NodeTemplate>) {
    Arc::make_mut(template).boot.via = Some(ProviderName::new("elsewhere").unwrap());
}

/// The state of this stage, as if its nodes had been bootstrapped by somebody who is gone.
fn orphaned(stage: &Stage) -> StateImage {
    let mut image = image(stage);
    image.state.nodes.values_mut().for_each(|node| elsewhere(&mut node.record.desired.template));
    image.desired.groups.iter_mut().for_each(|group| elsewhere(&mut group.template));
    image
}

fn why(runner: &Runner) -> String {
    runner.driver().status_of(&slot("n-0")).map(|status| status.why).unwrap_or_default()
}

#[test]
fn a_lost_create_is_adopted_and_destroyed_without_the_bootstrapper_of_its_node() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), FakeBehaviour::instant());
    stage.script(Rule::new(CallKind::Create, Fault::AnswerLost(Silence::Hangs)));
    stage.run_to(5);
    assert_eq!(stage.world.existing_leases().len(), 1);
    let mut runner = begin(&stage, Some(orphaned(&stage)), shape(2, vec![]));
    runner.run_until_settled(secs(120)).unwrap();
    assert!(runner.driver().is_converged(), "{}", why(&runner));
    assert_eq!(stage.world.existing_leases(), []);
}

#[test]
fn nothing_is_leased_that_nobody_could_bootstrap() {
    let mut group = group("n", 1, 1);
    elsewhere(&mut group.template);
    let mut stage = Stage::with(shape(1, vec![group]), policy(), FakeBehaviour::instant());
    stage.run_to(60);
    assert!(stage.world.creates_by_token().is_empty());
    let why = why(&stage.runner);
    assert!(why.contains("no bootstrapper \"elsewhere\"; there are fake"), "{why}");
    stage.ask(shape(2, vec![]));
    stage.settle(60);
}

#[test]
fn a_ready_node_is_destroyed_without_its_bootstrapper() {
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), FakeBehaviour::instant());
    stage.settle(60);
    let mut runner = begin(&stage, Some(orphaned(&stage)), shape(2, vec![]));
    runner.run_until_settled(secs(120)).unwrap();
    assert_eq!(stage.world.existing_leases(), [], "its session is over: {}", why(&runner));
}

#[test]
fn a_session_that_only_its_bootstrapper_can_end_keeps_its_lease_and_says_why() {
    let mut behaviour = FakeBehaviour::instant();
    behaviour.node.join = Joining::Never;
    let mut stage = Stage::with(shape(1, vec![group("n", 1, 1)]), policy(), behaviour);
    stage.run_to(5);
    let image = orphaned(&stage);
    let mut runner = begin(&stage, Some(image), shape(2, vec![]));
    runner.run_for(secs(300)).unwrap();
    assert_eq!((stage.calls(CallKind::Destroy), stage.world.existing_leases().len()), (0, 1));
    assert!(why(&runner).contains("no bootstrapper \"elsewhere\""), "{}", why(&runner));
    // Once it is back, all is cleaned up.
    let own = self::image(&stage);
    let mut runner = begin(&stage, Some(own), shape(2, vec![]));
    runner.run_until_settled(secs(120)).unwrap();
    assert_eq!(stage.world.existing_leases(), []);
}
