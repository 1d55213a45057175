//! Output without end over SSH, in a process of its own: its memory is what is measured.

mod sshd;
#[path = "../../bootstrap-hosted/tests/support/mod.rs"]
mod support;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_megabytes_of_output_do_not_grow_memory() {
    let Some(world) = sshd::SshWorld::new().await else { return };
    support::promises::a_hundred_megabytes_of_output_do_not_grow_memory(world).await;
}
