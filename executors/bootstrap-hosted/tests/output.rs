//! Output without end, in a process of its own: its memory is what is measured.

mod local;
mod support;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_megabytes_of_output_do_not_grow_memory() {
    let world = local::LocalWorld::new().await.expect("this machine is always there");
    support::promises::a_hundred_megabytes_of_output_do_not_grow_memory(world).await;
}
