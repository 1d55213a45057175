//! One node from lease to nothing, adopted, started twice, and lost, over real processes.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use crate::support::{World, attach_with, eventually, processes_of, shell, start_with};
use executor_api::{
    Bootstrapper, CreateMode, CreateOutcome, ExecutorErrorKind, LeaseOwner, LeaseProvider, Life,
    NodeObservation, Reading, RunId, StartOutcome, StartRequest,
};
use executor_process::layout::{self, SessionRecord};
use executor_process::{log_files, processes};
use serde_json::{Value, json};

const WITHIN_A_SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_node_joins_and_destroy_leaves_nothing() {
    let world = World::new(30_200);
    let boot = json!({
        "command": ["sh", "-c", "echo up at $PORT in $(pwd); echo ready to serve; exec sleep 1000"],
        "env": { "PORT": "{port}" },
        "ready": { "log": "ready to serve" },
    });
    let mut node = world.node("n-0", 1, json!({ "ports": ["http"] }), boot);
    world.up(&mut node).await;
    let port = node.endpoint.as_ref().unwrap().port;
    assert!(world.range.contains(&port));
    let watched = world.attach(&node);
    watched.until_joined().await;
    let log = log_files(&world.root(), &node.ctx.attempt);
    let text = fs::read_to_string(&log.current).unwrap();
    assert!(text.starts_with(&format!("up at {port} in ")), "{text}");

    world.executor.complete(&node.ctx, node.session.as_ref().unwrap()).await.unwrap();
    world.executor.cancel(&node.ctx, node.session.as_ref().unwrap()).await.unwrap();
    assert_eq!(processes_of(&node), []);
    let seen = watched.end().await;
    assert!(
        !seen.iter().any(|seen| matches!(seen, NodeObservation::LeaseLost { .. })),
        "an end that was asked for is no loss: {seen:?}"
    );
    world.destroy(&node).await.unwrap();
    assert_eq!(fs::read_to_string(&log.previous).unwrap(), text, "the output outlives the attempt");
    world.destroy(&node).await.unwrap();
    assert!(matches!(LeaseProvider::find(&*world.executor, &node.ctx.attempt).await, Reading::Absent { .. }));
    world.leave_nothing(&[&node]).await;
}

#[tokio::test]
async fn a_repeat_adopts_and_adopt_only_makes_nothing() {
    let world = World::new(30_220);
    let mut node = world.node("n-0", 1, Value::Null, shell("sleep 1000"));
    let found = world.executor.create(&node.ctx, &node.spec, CreateMode::AdoptOnly).await.unwrap();
    assert!(matches!(found, CreateOutcome::Absent { .. }));
    assert_eq!(world.files().len(), 0);

    world.create(&mut node).await.unwrap();
    let request = StartRequest {
        desired: node.spec.clone(),
        lease: node.lease.clone().unwrap(),
        endpoint: node.endpoint.clone().unwrap(),
    };
    let found = world.executor.start(&node.ctx, &request, CreateMode::AdoptOnly).await.unwrap();
    assert!(matches!(found, StartOutcome::Absent { .. }));
    assert_eq!(processes_of(&node), []);

    world.start(&mut node).await.unwrap();
    let other = world.another();
    let again = other.create(&node.ctx, &node.spec, CreateMode::AdoptOnly).await.unwrap();
    let CreateOutcome::Leased { lease, endpoint } = again else { panic!("{again:?}") };
    assert_eq!((Some(lease), endpoint), (node.lease.clone(), node.endpoint.clone()));
    let found = other.start(&node.ctx, &request, CreateMode::AdoptOnly).await.unwrap();
    assert_eq!(found, StartOutcome::Started { session: node.session.clone().unwrap() });
    world.leave_nothing(&[&node]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_creates_and_starts_from_two_instances_make_one_of_each() {
    let world = World::new(30_240);
    let mut node = world.node("n-0", 1, json!({ "ports": ["a"] }), shell("echo started; sleep 1000"));
    let creates: Vec<_> = (0..8)
        .map(|_| {
            let (executor, node) = (world.another(), node.clone());
            tokio::spawn(
                async move { executor.create(&node.ctx, &node.spec, CreateMode::CreateOrAdopt).await },
            )
        })
        .collect();
    for create in creates {
        assert!(matches!(create.await.unwrap().unwrap(), CreateOutcome::Leased { .. }));
    }
    world.create(&mut node).await.unwrap();
    let starts: Vec<_> = (0..8)
        .map(|_| {
            let (executor, node) = (world.another(), node.clone());
            tokio::spawn(async move { start_with(&executor, &node).await })
        })
        .collect();
    for start in starts {
        node.session = Some(start.await.unwrap().unwrap());
    }
    let log = log_files(&world.root(), &node.ctx.attempt).current;
    eventually("output", || fs::read_to_string(&log).ok().filter(|text| !text.is_empty())).await;
    assert_eq!(fs::read_to_string(&log).unwrap(), "started\n", "one program was started");
    let names: Vec<String> = processes_of(&node).into_iter().map(|info| info.name).collect();
    assert!(names.iter().filter(|name| *name == "sh").count() <= 1, "{names:?}");
    let listing = world.executor.list(&node.ctx.attempt.run).await.unwrap();
    assert_eq!(listing.leases.len(), 1);
    world.leave_nothing(&[&node]).await;
}

#[tokio::test]
async fn a_dropped_start_leaves_nothing_or_what_can_be_adopted() {
    let world = World::new(30_260);
    let mut attempt = 0;
    // Cut off ever later, until a start comes through.
    for micros in (0..).map(|step| step * 700) {
        attempt += 1;
        let mut node = world.node("n-0", attempt, Value::Null, shell("echo started; sleep 1000"));
        world.create(&mut node).await.unwrap();
        let cut =
            tokio::time::timeout(Duration::from_micros(micros), start_with(&world.executor, &node)).await;
        world.start(&mut node).await.unwrap();
        let log = log_files(&world.root(), &node.ctx.attempt).current;
        eventually("output", || fs::read_to_string(&log).ok().filter(|text| !text.is_empty())).await;
        assert_eq!(fs::read_to_string(&log).unwrap(), "started\n");
        world.leave_nothing(&[&node]).await;
        if cut.is_ok() {
            break;
        }
    }
}

#[tokio::test]
async fn the_end_of_a_ready_node_is_told_within_a_second_to_a_later_driver_too() {
    let world = World::new(30_280);
    let mut node = world.node("n-0", 1, Value::Null, shell("exec sleep 1000"));
    world.up(&mut node).await;
    let first = world.attach(&node);
    first.until_joined().await;
    first.drop_it();

    let other = world.another();
    let watched = attach_with(&other, &node);
    watched.until_joined().await;
    let program = processes_of(&node).remove(0);
    let killed = Instant::now();
    assert!(processes::kill(program.id).unwrap());
    let (told, reason) = watched.until_lost().await;
    assert!(told - killed < WITHIN_A_SECOND, "{:?}", told - killed);
    assert!(reason.contains("signal 9"), "{reason}");
    watched.end().await;

    let listing = other.list(&node.ctx.attempt.run).await.unwrap();
    assert_eq!(listing.leases[0].life, Life::Dead);
    assert!(listing.leases[0].reason.as_ref().unwrap().contains("signal 9"));
    // One that attaches after the fact is told as well; a start or a create finds the attempt over, and the
    // create leaves nothing that somebody would have to destroy.
    attach_with(&other, &node).until_lost().await;
    assert_eq!(start_with(&other, &node).await.unwrap_err().kind, ExecutorErrorKind::Gone);
    let gone = other.create(&node.ctx, &node.spec, CreateMode::CreateOrAdopt).await.unwrap_err();
    assert_eq!(gone.kind, ExecutorErrorKind::Gone);
    assert!(!world.place(&node).dir.exists());
    world.leave_nothing(&[&node]).await;
}

#[tokio::test]
async fn ten_nodes_that_die_at_once_are_all_told_within_a_second() {
    let world = World::new(30_300);
    let mut nodes = Vec::new();
    for index in 0..10 {
        let mut node = world.node(&format!("n-{index}"), index + 1, Value::Null, shell("exec sleep 1000"));
        world.up(&mut node).await;
        let watched = world.attach(&node);
        watched.until_joined().await;
        nodes.push((node, watched));
    }
    let killed = Instant::now();
    for (node, _) in &nodes {
        processes::kill(processes_of(node)[0].id).unwrap();
    }
    for (_, watched) in &nodes {
        let (told, _) = watched.until_lost().await;
        assert!(told - killed < WITHIN_A_SECOND, "{:?}", told - killed);
    }
    world.leave_nothing(&nodes.iter().map(|(node, _)| node).collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn a_killed_supervisor_is_a_loss_and_destroy_still_ends_the_program() {
    let world = World::new(30_320);
    let script = "setsid sleep 1000 & sh -c 'trap \"\" TERM; sleep 1000 & wait'";
    let mut node = world.node("n-0", 1, Value::Null, shell(script));
    world.up(&mut node).await;
    let watched = world.attach(&node);
    watched.until_joined().await;
    eventually("three processes", || (processes_of(&node).len() >= 3).then_some(())).await;

    let session: SessionRecord =
        serde_json::from_slice(&fs::read(world.place(&node).dir.join(layout::file::SESSION)).unwrap())
            .unwrap();
    let killed = Instant::now();
    assert!(processes::kill(session.supervisor).unwrap());
    let (told, reason) = watched.until_lost().await;
    assert!(told - killed < WITHIN_A_SECOND);
    assert!(reason.contains("supervisor was killed"), "{reason}");
    assert!(!processes_of(&node).is_empty(), "the program is an orphan now");
    world.leave_nothing(&[&node]).await;
}

#[tokio::test]
async fn a_stopped_supervisor_does_not_keep_a_node_alive() {
    let world = World::new(30_340);
    let mut boot = shell("exec sleep 1000");
    boot["stop"]["grace"] = json!("10ms");
    let mut node = world.node("n-0", 1, Value::Null, boot);
    world.up(&mut node).await;
    let session: SessionRecord =
        serde_json::from_slice(&fs::read(world.place(&node).dir.join(layout::file::SESSION)).unwrap())
            .unwrap();
    let pid = rustix::process::Pid::from_raw(session.supervisor.pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    world.leave_nothing(&[&node]).await;
    eventually("the supervisor to go", || (!processes::is_alive(session.supervisor)).then_some(())).await;
}

#[tokio::test]
async fn a_node_whose_socket_was_removed_can_still_be_destroyed() {
    let world = World::new(30_700);
    let mut boot = shell("exec sleep 1000");
    boot["stop"]["grace"] = json!("10ms");
    let mut node = world.node("n-0", 1, Value::Null, boot);
    world.up(&mut node).await;
    fs::remove_file(world.place(&node).dir.join(layout::file::SOCKET)).unwrap();
    world.leave_nothing(&[&node]).await;
}

#[tokio::test]
async fn a_reused_process_id_in_the_record_is_never_signalled() {
    let world = World::new(30_360);
    let mut node = world.node("n-0", 1, Value::Null, shell("exec sleep 1000"));
    world.up(&mut node).await;
    let dir = world.place(&node).dir;
    let mut session: SessionRecord =
        serde_json::from_slice(&fs::read(dir.join(layout::file::SESSION)).unwrap()).unwrap();
    // As after the ids were given to a stranger: same ids, another start time.
    let mut stranger = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let id = processes::look(i32::try_from(stranger.id()).unwrap()).unwrap().id;
    processes::kill(session.supervisor).unwrap();
    for program in processes_of(&node) {
        processes::kill(program.id).unwrap();
    }
    let reused = processes::ProcessId { start: id.start - 1, ..id };
    session.supervisor = reused;
    session.program = Some(reused);
    fs::write(dir.join(layout::file::SESSION), serde_json::to_vec(&session).unwrap()).unwrap();
    world.leave_nothing(&[&node]).await;
    assert!(processes::is_alive(id), "the stranger was killed");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn another_uid_of_the_same_name_is_listed_and_left_alone() {
    let world = World::new(30_380);
    let mut mine = world.node("n-0", 1, json!({ "ports": ["a"] }), shell("exec sleep 1000"));
    let mut theirs = mine.clone();
    theirs.ctx.attempt.run = RunId::new("demo", "u2").unwrap();
    world.up(&mut mine).await;
    world.up(&mut theirs).await;
    assert_ne!(mine.endpoint, theirs.endpoint);
    let listing = world.executor.list(&mine.ctx.attempt.run).await.unwrap();
    let owners: Vec<_> = listing
        .leases
        .iter()
        .map(|lease| match &lease.owner {
            LeaseOwner::Attempt(key) => key.run.uid().to_owned(),
            LeaseOwner::Incomplete => panic!("{lease:?}"),
        })
        .collect();
    assert_eq!(owners.len(), 2);
    world.destroy(&mine).await.unwrap();
    world.executor.retain_slots(&mine.ctx.attempt.run, &[]).await.unwrap();
    let life = Bootstrapper::find(&*world.executor, &theirs.ctx.attempt).await;
    assert!(matches!(life, Reading::Present { life: Life::Live, .. }), "{life:?}");
    assert_eq!(processes_of(&theirs).len(), 1);
    world.leave_nothing(&[&theirs]).await;
}

#[tokio::test]
async fn a_node_directory_removed_by_hand_is_a_loss() {
    let world = World::new(30_400);
    let mut node = world.node("n-0", 1, Value::Null, shell("exec sleep 1000"));
    world.up(&mut node).await;
    fs::remove_dir_all(world.place(&node).dir).unwrap();
    let (_, reason) = world.attach(&node).until_lost().await;
    assert!(reason.contains("is gone"), "{reason}");
    node.ctx.deadline = SystemTime::now() + crate::support::LIMIT;
    world.leave_nothing(&[&node]).await;
}
