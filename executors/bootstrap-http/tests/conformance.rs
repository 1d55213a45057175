//! The shared suite's cases of sessions, through an agent in a process of its own.

mod agents;
#[path = "../../bootstrap-hosted/tests/support/suite.rs"]
mod suite;
#[path = "../../bootstrap-hosted/tests/support/mod.rs"]
mod support;

#[test]
fn sessions_through_the_agent_pass_the_suite() {
    suite::run(agents::AgentWorld::process);
}
