//! The promises of a session, over whatever transport: each is a function that a test crate runs in its own world.

use std::sync::Arc;
use std::time::Duration;

use executor_api::{CreateMode, ExecutorErrorKind, Life, NodeObservation, Reading, StartOutcome};
use serde_json::{Value, json};

use super::{
    Attached, World, attempt, cancel, context, processes, processes_with, request, runners, session, sh,
    start, until,
};

/// A program that lives until it is ended, and says so.
fn lives() -> Value {
    json!({ "start": sh("echo it is up; exec sleep 4321"), "ready": { "log": "it is up" }, "stop": { "grace": "1s" } })
}

pub async fn files_environment_steps_and_program_do_what_was_declared(world: impl World) {
    let (boot, key) = (world.instance(), attempt());
    let settings = json!({
        "files": [{ "path": "conf/it's.txt", "content": "of {node}, {{braces}} $HOME 'quoted'\n", "mode": "0640" }],
        "env": { "GREETING": "it's \"$HOME\" `id`\nsecond line", "name": "mine", "n": "7", "dir": "d" },
        "steps": [
            ["/bin/sh", "-c", "printf '%s|' \"$@\" >args", "sh", "a b", "$(id)", "*", "'", ""],
            sh("printf '%s;%s;%s;%s' \"$GREETING\" \"$name\" \"$n\" \"$dir\" >env"),
        ],
        "verify": [
            sh("[ \"$(cat args)\" = \"a b|\\$(id)|*|'||\" ]"),
            sh("[ \"$(cat env)\" = \"it's \\\"\\$HOME\\\" \\`id\\`\nsecond line;mine;7;d\" ]"),
            sh("[ \"$(cat \"conf/it's.txt\")\" = \"of web-0, {{braces}} \\$HOME 'quoted'\" ]"),
            sh("[ \"$(stat -c %a \"conf/it's.txt\")\" = 640 ]"),
            sh("[ $RECONCILER_NODE = web-0 ] && [ $RECONCILER_NONCE = {nonce} ]"),
        ],
        "start": sh("echo nonce {nonce} is up; exec sleep 4322"),
        "ready": { "log": "nonce {nonce} is up" },
        "stop": { "grace": "1s" },
    });
    start(&boot, &world, &key, &settings).await.unwrap();
    let attached = Attached::to(&boot, &key);
    attached.heard.joined().await;
    let nonce = context(&key, 0).identity().nonce;
    let told = attached.heard.all();
    assert!(
        told.iter()
            .any(|o| matches!(o, NodeObservation::MemberJoined { member, .. } if member.nonce == nonce))
    );
    cancel(&boot, &key).await.unwrap();
    assert!(attached.over().await);
}

pub async fn whoever_starts_and_however_often_there_is_one_session(world: impl World) {
    let (world, key) = (Arc::new(world), attempt());
    let starts: Vec<_> = (0..6)
        .map(|_| {
            let (world, key) = (Arc::clone(&world), key.clone());
            tokio::spawn(async move { start(&world.instance(), &*world, &key, &lives()).await.unwrap() })
        })
        .collect();
    for started in starts {
        assert_eq!(started.await.unwrap(), session(&key));
    }
    let boot = world.instance();
    until(|| (runners(&key) == 1).then_some(())).await.expect("the program never ran");
    // Once more, long after the others.
    start(&boot, &*world, &key, &lives()).await.unwrap();
    assert_eq!(runners(&key), 1, "{:?}", processes(&key));
    let found = boot.find(&key).await;
    assert!(matches!(found, Reading::Present { life: Life::Live, .. }), "{found:?}");
    cancel(&boot, &key).await.unwrap();
}

pub async fn adopt_only_never_starts_anything(world: impl World) {
    let (boot, key) = (world.instance(), attempt());
    let ask = request(&world, &key, lives());
    let answer = boot.start(&context(&key, 0), &ask, CreateMode::AdoptOnly).await.unwrap();
    assert!(matches!(answer, StartOutcome::Absent { .. }), "{answer:?}");
    assert!(matches!(boot.find(&key).await, Reading::Absent { .. }));
    assert_eq!(processes(&key), []);
    start(&boot, &world, &key, &lives()).await.unwrap();
    let adopted = world.instance().start(&context(&key, 1), &ask, CreateMode::AdoptOnly).await.unwrap();
    assert_eq!(adopted, StartOutcome::Started { session: session(&key) });
    cancel(&boot, &key).await.unwrap();
}

pub async fn a_later_instance_is_told_of_the_join_at_once(world: impl World) {
    let key = attempt();
    let boot = world.instance();
    start(&boot, &world, &key, &lives()).await.unwrap();
    Attached::to(&boot, &key).heard.joined().await;
    drop(boot);
    let later = world.instance();
    let attached = Attached::to(&later, &key);
    attached.heard.joined().await;
    later.complete(&context(&key, 2), &session(&key)).await.unwrap();
    assert_eq!(runners(&key), 1, "the node lives on");
    cancel(&later, &key).await.unwrap();
}

pub async fn a_cancel_leaves_no_process_and_no_way_back(world: impl World) {
    let (boot, key) = (world.instance(), attempt());
    // A program that ignores SIGTERM, one that left the session, and one that forgot its environment.
    let mark = format!("mark-{}", session(&key));
    let line = format!(
        "trap '' TERM; setsid sleep 4321 & env -i /bin/sh -c 'sleep 4322 # {mark}' & env -i sleep 4323.{} & \
         echo it is up; while :; do sleep 1; done",
        std::process::id()
    );
    let settings =
        json!({ "start": sh(&line), "ready": { "log": "it is up" }, "stop": { "grace": "300ms" } });
    start(&boot, &world, &key, &settings).await.unwrap();
    let attached = Attached::to(&boot, &key);
    attached.heard.joined().await;
    assert_ne!(processes_with(&mark), []);
    cancel(&boot, &key).await.unwrap();
    assert_eq!(processes(&key), []);
    assert_eq!(processes_with(&mark), []);
    assert!(attached.over().await, "following ends with the attempt");
    // Again is success, and nothing starts any more, from here or from anywhere.
    cancel(&boot, &key).await.unwrap();
    cancel(&world.instance(), &key).await.unwrap();
    let error = start(&world.instance(), &world, &key, &settings).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Gone, "{error}");
    let found = boot.find(&key).await;
    assert!(matches!(found, Reading::Present { life: Life::Dead, .. } | Reading::Absent { .. }), "{found:?}");
    assert_eq!(processes(&key), []);
}

pub async fn a_failed_step_is_told_with_its_last_words_and_not_adopted(world: impl World) {
    let (boot, key) = (world.instance(), attempt());
    let settings = json!({
        "steps": [sh("true"), sh("echo no space left; exit 7"), sh("touch never")],
        "start": ["sleep", "4321"],
    });
    start(&boot, &world, &key, &settings).await.unwrap();
    let attached = Attached::to(&boot, &key);
    let reason = attached.heard.failed().await;
    assert!(reason.contains("step 2 of 3") && reason.contains("status 7"), "{reason}");
    assert!(reason.contains("no space left"), "{reason}");
    assert!(attached.over().await);
    let error = start(&world.instance(), &world, &key, &settings).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Gone, "{error}");
    cancel(&boot, &key).await.unwrap();
    assert_eq!(processes(&key), []);
}

pub async fn an_exit_before_the_join_is_a_failure_whatever_the_status(world: impl World) {
    for status in [0, 3] {
        let (boot, key) = (world.instance(), attempt());
        let settings = json!({ "start": sh(&format!("exit {status}")), "ready": { "log": "never" } });
        start(&boot, &world, &key, &settings).await.unwrap();
        let attached = Attached::to(&boot, &key);
        let reason = attached.heard.failed().await;
        assert!(reason.contains(&format!("status {status}")), "{reason}");
    }
}

pub async fn a_death_after_the_join_is_a_loss(world: impl World) {
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &lives()).await.unwrap();
    let attached = Attached::to(&boot, &key);
    attached.heard.joined().await;
    for (pid, _) in processes(&key).iter().filter(|(_, line)| line.contains("sleep 4321")) {
        std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
    }
    let lost = attached.heard.wait("the loss", |o| matches!(o, NodeObservation::LeaseLost { .. })).await;
    let NodeObservation::LeaseLost { lease, reason } = lost else { unreachable!() };
    assert_eq!(lease.0, "lease-1");
    assert!(reason.contains("signal 9"), "{reason}");
}

pub async fn steps_alone_join_when_they_are_done(world: impl World) {
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &json!({ "steps": [sh("echo done")] })).await.unwrap();
    let attached = Attached::to(&boot, &key);
    attached.heard.joined().await;
    // Done is not dead: the session can still be adopted.
    start(&world.instance(), &world, &key, &json!({ "steps": [sh("echo done")] })).await.unwrap();
    cancel(&boot, &key).await.unwrap();
}

pub async fn a_secret_is_in_the_environment_and_on_no_disk(world: impl World, dirs: &[std::path::PathBuf]) {
    let (boot, key) = (world.instance(), attempt());
    let holder = tempfile::NamedTempFile::new().unwrap();
    let secret = format!("s3cret-{}", session(&key));
    std::fs::write(holder.path(), &secret).unwrap();
    let settings = json!({
        "env": { "TOKEN": { "from_file": holder.path() } },
        "steps": [sh("case $TOKEN in s3cret-test*) echo the token is there;; *) exit 9;; esac")],
        "start": sh("exec sleep 4321"),
        "stop": { "grace": "1s" },
    });
    start(&boot, &world, &key, &settings).await.unwrap();
    let attached = Attached::to(&boot, &key);
    attached.heard.joined().await;
    for dir in dirs {
        let found = std::process::Command::new("grep").args(["-rl", &secret]).arg(dir).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&found.stdout), "", "the secret lies on a disk");
    }
    assert!(!format!("{:?}", attached.heard.all()).contains(&secret));
    cancel(&boot, &key).await.unwrap();
}

/// Peak resident memory of this process in MiB.
fn resident_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

pub async fn a_hundred_megabytes_of_output_do_not_grow_memory(world: impl World) {
    let (boot, key) = (world.instance(), attempt());
    let settings = json!({
        "steps": [sh("yes 'a line of output that nobody will ever read' | head -c 104857600; echo; echo all is said")],
        "start": ["sleep", "4321"],
        "ready": { "log": "all is said" },
        "log": { "max_bytes": 200_000_000 },
        "stop": { "grace": "1s" },
    });
    start(&boot, &world, &key, &settings).await.unwrap();
    let before = resident_peak();
    let attached = Attached::to(&boot, &key);
    let joined = |o: &NodeObservation| matches!(o, NodeObservation::MemberJoined { .. });
    attached.heard.wait_for(8 * super::PATIENCE, "that it joined", joined).await;
    let grown = resident_peak() - before;
    assert!(grown < 40, "memory grew by {grown} MiB");
    let told = attached.heard.all().len();
    assert!(told < 200, "{told} reports");
    cancel(&boot, &key).await.unwrap();
}

pub async fn a_program_that_writes_more_than_is_kept_is_not_held_up(world: impl World) {
    let (boot, key) = (world.instance(), attempt());
    let settings = json!({
        "steps": [sh("yes | head -c 3000000")],
        "start": ["sleep", "4321"],
        "log": { "max_bytes": 100_000 },
        "stop": { "grace": "1s" },
    });
    start(&boot, &world, &key, &settings).await.unwrap();
    let attached = Attached::to(&boot, &key);
    attached.heard.joined().await;
    cancel(&boot, &key).await.unwrap();
}

pub async fn a_driver_that_goes_away_in_the_middle_of_a_step_changes_nothing(world: impl World) {
    let key = attempt();
    let settings = json!({
        "steps": [sh("echo begun; until [ -e go ]; do sleep 0.05; done; echo once >>count")],
        "verify": [sh("[ $(wc -l <count) = 1 ]")],
        "start": sh("echo it is up; exec sleep 4321"),
        "ready": { "log": "it is up" },
        "stop": { "grace": "1s" },
    });
    let boot = world.instance();
    start(&boot, &world, &key, &settings).await.unwrap();
    let first = Attached::to(&boot, &key);
    let begun = |o: &NodeObservation| matches!(o, NodeObservation::BootstrapProgress { phase, .. } if phase.contains("step 1"));
    first.heard.wait("that the step runs", begun).await;
    drop(first);
    drop(boot);
    let step =
        processes(&key).into_iter().find(|(_, line)| line.contains("until")).expect("the step goes on");
    let work = std::fs::read_link(format!("/proc/{}/cwd", step.0)).unwrap();
    std::fs::write(work.join("go"), "").unwrap();
    let later = world.instance();
    let attached = Attached::to(&later, &key);
    attached.heard.joined().await;
    let numbers: Vec<u64> = attached
        .heard
        .all()
        .iter()
        .filter_map(|o| match o {
            NodeObservation::BootstrapProgress { sequence, .. } => Some(*sequence),
            _ => None,
        })
        .collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    cancel(&later, &key).await.unwrap();
}

/// A start that is given up at any moment leaves one session or none, and a cancel after it none for ever.
pub async fn a_start_that_is_given_up_can_be_adopted_or_cancelled(world: impl World) {
    for millis in [0, 5, 20, 60, 150, 400] {
        let (boot, key) = (world.instance(), attempt());
        let settings = lives();
        let given_up = start(&boot, &world, &key, &settings);
        let _ = tokio::time::timeout(Duration::from_millis(millis), given_up).await;
        if millis % 10 == 0 {
            let later = world.instance();
            start(&later, &world, &key, &lives()).await.unwrap();
            until(|| (runners(&key) == 1).then_some(())).await.expect("the program never ran");
        }
        cancel(&world.instance(), &key).await.unwrap();
        assert_eq!(processes(&key), [], "given up after {millis} ms");
        let gone = until(|| processes(&key).is_empty().then_some(())).await;
        assert!(gone.is_some());
    }
}

/// One test per promise, each in a world of its own.
#[macro_export]
macro_rules! promises {
    ($world:expr) => {
        $crate::promises!($world;
            files_environment_steps_and_program_do_what_was_declared
            whoever_starts_and_however_often_there_is_one_session
            adopt_only_never_starts_anything
            a_later_instance_is_told_of_the_join_at_once
            a_cancel_leaves_no_process_and_no_way_back
            a_failed_step_is_told_with_its_last_words_and_not_adopted
            an_exit_before_the_join_is_a_failure_whatever_the_status
            a_death_after_the_join_is_a_loss
            steps_alone_join_when_they_are_done
            a_program_that_writes_more_than_is_kept_is_not_held_up
            a_driver_that_goes_away_in_the_middle_of_a_step_changes_nothing
            a_start_that_is_given_up_can_be_adopted_or_cancelled
        );
    };
    ($world:expr; $($name:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(world) = $world().await {
                    support::promises::$name(world).await;
                }
            }
        )*
    };
}
