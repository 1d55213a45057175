//! What belongs to a slot rather than to an attempt: ports, peers, kept data.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};

use crate::support::{World, eventually, shell};
use executor_api::{ExecutorErrorKind, LeaseProvider, RejectReason};
use executor_process::log_files;
use serde_json::{Value, json};

#[tokio::test]
async fn a_slot_keeps_its_ports_from_attempt_to_attempt_and_frees_them_when_it_goes() {
    let world = World::new(30_600);
    let shape = json!({ "ports": ["client", "peer"] });
    let mut first = world.node("n-0", 1, shape.clone(), shell("exec sleep 1000"));
    world.up(&mut first).await;
    let run = first.ctx.attempt.run.clone();
    world.executor.retain_slots(&run, &[]).await.unwrap();
    world.destroy(&first).await.unwrap();
    let mut second = world.node("n-0", 2, shape, shell("exec sleep 1000"));
    world.executor.retain_slots(&run, &[second.spec.id.clone()]).await.unwrap();
    world.up(&mut second).await;
    assert_eq!(first.endpoint, second.endpoint);
    assert_eq!(second.endpoint.as_ref().unwrap().ports.len(), 2);
    world.leave_nothing(&[&second]).await;
}

#[tokio::test]
async fn what_a_create_that_was_cut_short_left_goes_with_its_slot() {
    let world = World::new(30_610);
    let node = world.node("n-0", 1, json!({}), shell("exec sleep 1000"));
    let place = world.place(&node);
    let attempt = place.dir.file_name().unwrap().to_str().unwrap();
    let left = place.slot.join(format!(".new-{attempt}.1-0"));
    fs::create_dir_all(left.join("work")).unwrap();
    let run = node.ctx.attempt.run.clone();
    world.executor.retain_slots(&run, std::slice::from_ref(&node.spec.id)).await.unwrap();
    assert!(left.exists(), "the slot is wanted");
    world.executor.retain_slots(&run, &[]).await.unwrap();
    assert!(!place.slot.exists());
}

#[tokio::test]
async fn peers_are_named_before_they_exist_and_keep_what_they_were_promised() {
    let world = World::new(30_620);
    let group = ["n-0", "n-1", "n-2"];
    let boot =
        json!({ "command": ["sh", "-c", "echo {peers:{node}=http://{host}:{port.peer}}; exec sleep 1000"] });
    let shape = json!({ "ports": ["client", "peer"] });
    let mut nodes = Vec::new();
    for (attempt, name) in group.iter().enumerate() {
        let mut node = world.node_in(&group, name, attempt as u64 + 1, shape.clone(), boot.clone());
        world.up(&mut node).await;
        nodes.push(node);
    }
    let expected: Vec<String> = nodes
        .iter()
        .map(|node| {
            let endpoint = node.endpoint.as_ref().unwrap();
            format!("{}=http://127.0.0.1:{}", node.spec.id, endpoint.ports["peer"])
        })
        .collect();
    for node in &nodes {
        let log = log_files(&world.root(), &node.ctx.attempt).current;
        let text = eventually("output", || fs::read_to_string(&log).ok().filter(|t| t.ends_with('\n'))).await;
        assert_eq!(text.trim_end(), expected.join(","));
    }
    world.leave_nothing(&nodes.iter().collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn a_stranger_on_a_reserved_port_is_a_clear_refusal_and_passes_with_the_stranger() {
    let world = World::new(30_640);
    let mut node = world.node("n-0", 1, json!({ "ports": ["http"] }), shell("exec sleep 1000"));
    world.create(&mut node).await.unwrap();
    let port = node.endpoint.as_ref().unwrap().port;
    let stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let error = world.start(&mut node).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Rejected(RejectReason::Capacity));
    let text = error.summary();
    assert!(text.contains(&format!("port {port} (http), reserved for slot n-0, is in use")), "{text}");
    drop(stranger);
    world.start(&mut node).await.unwrap();
    world.leave_nothing(&[&node]).await;
}

#[tokio::test]
async fn kept_data_is_found_by_the_next_attempt_and_goes_with_the_slot() {
    let world = World::new(30_660);
    let boot = json!({ "command": ["sh", "-c", "cat {data}/x; echo {attempt} >> {data}/x; echo end; exec sleep 1000"] });
    let output = async |policy: &str, attempt: u64| {
        let mut node = world.node("n-0", attempt, json!({ "data": policy }), boot.clone());
        world.up(&mut node).await;
        let log = log_files(&world.root(), &node.ctx.attempt).current;
        let text =
            eventually("output", || fs::read_to_string(&log).ok().filter(|t| t.ends_with("end\n"))).await;
        world.destroy(&node).await.unwrap();
        (node, text)
    };
    output("keep", 1).await;
    let (_, text) = output("keep", 2).await;
    assert!(text.starts_with("1\n"), "{text}");
    let (_, text) = output("discard", 3).await;
    assert!(!text.contains("1\n"), "{text}");
    let (node, text) = output("keep", 4).await;
    assert!(text.starts_with("1\n2\n"), "{text}");
    world.leave_nothing(&[&node]).await;
}

#[tokio::test]
async fn a_very_long_path_still_has_a_socket() {
    let world = World::new(30_680);
    let deep = world.dir.path().join("d".repeat(120));
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir_all(world.root().parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&deep, world.root()).unwrap();
    let mut node = world.node("n-0", 1, Value::Null, shell("exec sleep 1000"));
    world.up(&mut node).await;
    world.attach(&node).until_joined().await;
    world.leave_nothing(&[&node]).await;
}
