//! Output without end through the agent. Agent and client share this process: the memory of both is measured.

mod agents;
#[path = "../../bootstrap-hosted/tests/support/mod.rs"]
mod support;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_megabytes_of_output_do_not_grow_memory() {
    let world = agents::AgentWorld::new().await.expect("the agent needs nothing that could be missing");
    support::promises::a_hundred_megabytes_of_output_do_not_grow_memory(world).await;
}
