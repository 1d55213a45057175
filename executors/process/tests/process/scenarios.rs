//! What has happened to people who run local nodes: descendants that survive, programs that ignore SIGTERM,
//! output that nobody reads, programs that exit at once.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use crate::support::{World, eventually, processes_of, shell};
use executor_api::{Bootstrapper, LeaseProvider, NodeObservation};
use executor_process::{log_files, processes};
use serde_json::{Value, json};

/// H16
#[tokio::test]
async fn descendants_that_escape_the_group_end_with_the_node() {
    let world = World::new(30_420);
    // In the background, in a session of its own, forked twice, and without its environment.
    let script = "sleep 1001 & setsid sleep 1002 & (setsid sh -c 'sleep 1003 & exit' &) ; \
                  env -i setsid sleep 1004 & echo all; wait";
    let mut boot = shell(script);
    boot["ready"] = json!({ "log": "all" });
    let mut node = world.node("n-0", 1, Value::Null, boot);
    world.up(&mut node).await;
    world.attach(&node).until_joined().await;
    let sleepers = || {
        let all = processes::table().unwrap();
        let found: Vec<_> = all
            .into_iter()
            .filter(|info| {
                fs::read(format!("/proc/{}/cmdline", info.id.pid)).is_ok_and(|line| {
                    ["1001", "1002", "1003", "1004"]
                        .iter()
                        .any(|n| line == format!("sleep\0{n}\0").into_bytes())
                })
            })
            .collect();
        found
    };
    eventually("the four sleepers", || (sleepers().len() == 4).then_some(())).await;
    let begun = Instant::now();
    world.leave_nothing(&[&node]).await;
    assert_eq!(sleepers(), []);
    assert!(begun.elapsed() < Duration::from_secs(4), "none of them needed SIGKILL: {:?}", begun.elapsed());
}

/// H16, the other way round: the program goes, its server stays.
#[tokio::test]
async fn what_a_program_leaves_behind_ends_with_it() {
    let world = World::new(30_440);
    let mut boot = shell("setsid sleep 1000 & exit 0");
    boot["ready"] = json!({ "log": "never" });
    let mut node = world.node("n-0", 1, Value::Null, boot);
    world.up(&mut node).await;
    let (_, reason) = world.attach(&node).until_failed().await;
    assert!(reason.contains("exited with status 0"), "{reason}");
    eventually("the rest to end", || processes_of(&node).is_empty().then_some(())).await;
    world.leave_nothing(&[&node]).await;
}

/// H17
#[tokio::test]
async fn ten_nodes_that_ignore_sigterm_are_stopped_side_by_side() {
    let world = World::new(30_460);
    let mut nodes = Vec::new();
    for index in 0..10 {
        let mut boot = shell("trap '' TERM; echo deaf; while :; do sleep 1000; done");
        boot["stop"]["grace"] = json!("1s");
        boot["ready"] = json!({ "log": "deaf" });
        let mut node = world.node(&format!("n-{index}"), index + 1, json!({ "ports": ["a"] }), boot);
        world.up(&mut node).await;
        world.attach(&node).until_joined().await;
        nodes.push(node);
    }
    let begun = Instant::now();
    let stops: Vec<_> = nodes
        .iter()
        .map(|node| {
            let (executor, node) = (world.another(), node.clone());
            tokio::spawn(async move { executor.cancel(&node.ctx, node.session.as_ref().unwrap()).await })
        })
        .collect();
    for stop in stops {
        stop.await.unwrap().unwrap();
    }
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(950), "the grace time was not given: {took:?}");
    assert!(took < Duration::from_secs(5), "one after the other: {took:?}");
    for node in &nodes {
        assert_eq!(processes_of(node), []);
        TcpListener::bind((Ipv4Addr::LOCALHOST, node.endpoint.as_ref().unwrap().port)).unwrap();
    }
    world.leave_nothing(&nodes.iter().collect::<Vec<_>>()).await;
}

/// H18
#[tokio::test]
async fn a_program_that_writes_without_end_is_never_held_up() {
    let world = World::new(30_480);
    let script = "head -c 1048576 /dev/zero | tr '\\0' x >&2; echo; echo written; \
                  while :; do echo more; echo more >&2; sleep 0.01; done";
    let mut boot = shell(script);
    boot["ready"] = json!({ "log": "written" });
    boot["log"] = json!({ "max_bytes": 300_000, "keep": 2 });
    let mut node = world.node("n-0", 1, Value::Null, boot);
    world.up(&mut node).await;
    let watched = world.attach(&node);
    watched.until_joined().await;
    let files = || log_files(&world.root(), &node.ctx.attempt);
    let length = || fs::metadata(files().current).map_or(0, |data| data.len());
    let before = length();
    eventually("more output", || (length() > before + 1000).then_some(())).await;
    assert_eq!(files().rotated.len(), 2, "older output is dropped");
    for path in files().rotated {
        assert!(fs::metadata(path).unwrap().len() <= 300_000);
    }
    assert!(!watched.all().iter().any(|seen| matches!(seen, NodeObservation::LeaseLost { .. })));
    watched.drop_it();
    world.leave_nothing(&[&node]).await;
}

/// H19
#[tokio::test]
async fn a_program_that_exits_at_once_has_failed_whatever_its_status() {
    let world = World::new(30_500);
    for (attempt, status) in [(1, 0), (2, 1)] {
        let mut boot = shell(&format!("echo going; exit {status}"));
        boot["ready"] = json!({ "tcp": "{host}:{port}" });
        let mut node = world.node("n-0", attempt, json!({ "ports": ["a"] }), boot);
        let begun = Instant::now();
        world.up(&mut node).await;
        let watched = world.attach(&node);
        let (told, reason) = watched.until_failed().await;
        assert!(told - begun < Duration::from_secs(1), "{:?}", told - begun);
        assert_eq!(reason, format!("the program exited with status {status}; last output: going"));
        let seen = watched.end().await;
        assert!(!seen.iter().any(|seen| matches!(seen, NodeObservation::MemberJoined { .. })), "{seen:?}");
        world.destroy(&node).await.unwrap();
        if attempt == 2 {
            world.leave_nothing(&[&node]).await;
        }
    }
}

/// H19, the variant: no zombie stays, neither with the supervisor nor after it.
#[tokio::test]
async fn two_hundred_short_lived_grandchildren_leave_no_zombie() {
    let world = World::new(30_520);
    let script = "i=0; while [ $i -lt 200 ]; do (true &) ; i=$((i+1)); done; echo done; exec sleep 1000";
    let mut boot = shell(script);
    boot["ready"] = json!({ "log": "done" });
    let mut node = world.node("n-0", 1, Value::Null, boot);
    world.up(&mut node).await;
    world.attach(&node).until_joined().await;
    let program = processes_of(&node).into_iter().find(|info| info.name == "sleep").unwrap();
    let supervisor = program.parent;
    let children = || {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            found.extend(processes::look(pid).filter(|info| info.parent == supervisor));
        }
        found
    };
    eventually("only the program to be left", || (children().len() == 1).then_some(())).await;
    world.leave_nothing(&[&node]).await;
    eventually("the supervisor to be gone, zombie and all", || {
        processes::look(supervisor).is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_program_that_vanished_after_validation_fails_with_its_name() {
    let world = World::new(30_540);
    let program = world.dir.path().join("program");
    fs::write(&program, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut node = world.node("n-0", 1, Value::Null, json!({ "command": [program] }));
    world.up(&mut node).await;
    let (_, reason) = world.attach(&node).until_failed().await;
    assert!(reason.contains("could not be started") && reason.contains("program"), "{reason}");
    world.leave_nothing(&[&node]).await;
}

#[tokio::test]
async fn secrets_reach_the_program_and_no_file_message_or_argument() {
    let world = World::new(30_560);
    let secret = "s3cr3t-value-of-the-test";
    let path = world.dir.path().join("secret");
    fs::write(&path, format!("{secret}\n")).unwrap();
    let boot = json!({
        "command": ["sh", "-c", "echo token=$TOKEN length=${{#TOKEN}}; sleep 0.2; exit 3"],
        "env": { "TOKEN": { "from_file": path } },
        "ready": { "log": "never" },
    });
    let mut node = world.node("n-0", 1, Value::Null, boot);
    world.up(&mut node).await;
    let (_, reason) = world.attach(&node).until_failed().await;
    assert!(reason.contains(&format!("token=[secret] length={}", secret.len())), "{reason}");
    let mut looked_at = 0;
    for file in world.files().into_iter().filter(|file| file.is_file()) {
        let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
        assert!(!text.contains(secret), "{} holds the secret", file.display());
        looked_at += 1;
    }
    assert!(looked_at >= 5);
    world.leave_nothing(&[&node]).await;
}

#[tokio::test]
async fn probes_of_each_kind_pass_when_the_node_is_ready_and_not_before() {
    let world = World::new(30_580);
    let server = "import http.server,sys,time\n\
                  class H(http.server.BaseHTTPRequestHandler):\n\
                  \x20def do_GET(s):\n\
                  \x20\x20s.send_response(200 if s.path=='/ok' else 500); s.end_headers()\n\
                  http.server.HTTPServer(('127.0.0.1',int(sys.argv[1])),H).serve_forever()\n";
    let cases = [
        (json!({ "tcp": "{host}:{port}" }), true),
        (json!({ "http": "http://{host}:{port}/ok", "every": "50ms" }), true),
        (json!({ "http": "http://{host}:{port}/bad", "every": "50ms" }), false),
        (json!({ "exec": ["sh", "-c", "test \"$WHO\" = n-0"], "every": "50ms" }), true),
        (json!({ "exec": ["sleep", "1000"], "every": "50ms", "timeout": "100ms" }), false),
    ];
    for (attempt, (ready, passes)) in cases.into_iter().enumerate() {
        let boot = json!({
            "command": ["python3", "{dir}/server.py", "{port}"],
            "files": { "server.py": server.replace('{', "{{").replace('}', "}}") },
            "env": { "WHO": "{node}" },
            "ready": ready,
        });
        let mut node = world.node("n-0", attempt as u64 + 1, json!({ "ports": ["http"] }), boot);
        world.up(&mut node).await;
        let watched = world.attach(&node);
        if passes {
            watched.until_joined().await;
        } else {
            let says = |text: &str| text.contains("answered 500") || text.contains("no answer within 100ms");
            watched
                .until("a reason for waiting", |seen| match seen {
                    NodeObservation::BootstrapProgress { phase, .. } if says(phase) => Some(()),
                    _ => None,
                })
                .await;
            assert!(!watched.all().iter().any(|seen| matches!(seen, NodeObservation::MemberJoined { .. })));
        }
        watched.drop_it();
        world.destroy(&node).await.unwrap();
        assert_eq!(processes_of(&node), []);
    }
    world.executor.retain_slots(&world.run(), &[]).await.unwrap();
    assert_eq!(world.files(), Vec::<std::path::PathBuf>::new());
}
