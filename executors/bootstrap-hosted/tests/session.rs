//! Sessions on this very machine: the script, the bootstrapper and the following, with a transport that can be told
//! to fail.

mod local;
mod support;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use executor_api::{
    AttemptKey, Bootstrapper, CreateMode, ExecutorError, ExecutorErrorKind, NodeObservation, Reading,
    StartOutcome,
};
use local::LocalWorld;
use serde_json::{Value, json};
use support::{Attached, World as _, attempt, cancel, context, processes, request, start, until};

promises!(LocalWorld::new);

fn lives() -> Value {
    json!({ "start": ["sleep", "4321"], "stop": { "grace": "1s", "unreachable_for": "300ms" } })
}

#[tokio::test]
async fn secrets_touch_no_disk() {
    let world = LocalWorld::new().await.unwrap();
    let dirs = [world.dir.path().join("host"), world.dir.path().join("records")];
    support::promises::a_secret_is_in_the_environment_and_on_no_disk(world, &dirs).await;
}

#[tokio::test]
async fn instances_with_records_of_their_own_share_one_session() {
    let world = LocalWorld::new().await.unwrap();
    let key = attempt();
    for records in ["a", "b", "c"] {
        start(&world.with(records, Duration::ZERO), &world, &key, &lives()).await.unwrap();
    }
    until(|| (support::runners(&key) == 1).then_some(())).await.expect("the program never ran");
    assert_eq!(support::runners(&key), 1);
    cancel(&world.with("a", Duration::ZERO), &key).await.unwrap();
    assert_eq!(processes(&key), []);
    let error = start(&world.with("d", Duration::ZERO), &world, &key, &lives()).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Gone, "the host itself remembers: {error}");
}

#[tokio::test]
async fn a_host_that_is_not_up_yet_is_waited_for() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.instance(), attempt());
    world.faults.unreachable.store(true, Ordering::SeqCst);
    start(&boot, &world, &key, &lives()).await.unwrap();
    let attached = Attached::to(&boot, &key);
    let trying = |o: &NodeObservation| matches!(o, NodeObservation::BootstrapProgress { phase, .. } if phase.contains("trying to reach"));
    attached.heard.wait("that it tries", trying).await;
    assert_eq!(processes(&key), []);
    world.faults.unreachable.store(false, Ordering::SeqCst);
    attached.heard.joined().await;
    assert_eq!(support::runners(&key), 1);
    cancel(&boot, &key).await.unwrap();
}

#[tokio::test]
async fn a_refused_key_is_given_time_and_then_named() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.with("records", Duration::from_millis(500)), attempt());
    world.faults.denied.store(true, Ordering::SeqCst);
    start(&boot, &world, &key, &lives()).await.unwrap();
    let reason = Attached::to(&boot, &key).heard.failed().await;
    assert!(reason.contains("the key is refused"), "{reason}");
}

#[tokio::test]
async fn somebody_else_at_the_address_is_refused_at_once() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.instance(), attempt());
    world.faults.wrong_host.store(true, Ordering::SeqCst);
    let error = start(&boot, &world, &key, &lives()).await.unwrap_err();
    assert!(matches!(error.kind, ExecutorErrorKind::Rejected(_)), "{error}");
    assert!(error.summary().contains("another host answers"), "{}", error.summary());
}

#[tokio::test]
async fn a_session_that_never_reached_its_host_is_cancelled_at_once() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.instance(), attempt());
    world.faults.unreachable.store(true, Ordering::SeqCst);
    start(&boot, &world, &key, &lives()).await.unwrap();
    cancel(&boot, &key).await.unwrap();
    world.faults.unreachable.store(false, Ordering::SeqCst);
    let error = start(&boot, &world, &key, &lives()).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Gone);
}

#[tokio::test]
async fn an_unreachable_host_holds_a_cancel_up_for_a_while_and_not_for_ever() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &lives()).await.unwrap();
    world.faults.unreachable.store(true, Ordering::SeqCst);
    let error = cancel(&boot, &key).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Unavailable, "{error}");
    let began = Instant::now();
    while cancel(&boot, &key).await.is_err() {
        assert!(began.elapsed() < support::PATIENCE, "it is never given up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // What the host still runs belongs to a lease that is destroyed next. Here that is done by an instance with
    // records of its own, which adopts the session before it cancels it.
    world.faults.unreachable.store(false, Ordering::SeqCst);
    let other = world.with("others", Duration::ZERO);
    start(&other, &world, &key, &lives()).await.unwrap();
    cancel(&other, &key).await.unwrap();
    assert_eq!(processes(&key), []);
}

/// A program on a host that is given up as soon as it may be.
fn given_up_at_once() -> Value {
    json!({ "start": ["sleep", "4321"], "stop": { "grace": "1s", "unreachable_for": "1ms" } })
}

async fn adopt(
    boot: &std::sync::Arc<dyn Bootstrapper>,
    world: &LocalWorld,
    key: &AttemptKey,
) -> Result<StartOutcome, ExecutorError> {
    boot.start(&context(key, 3), &request(world, key, given_up_at_once()), CreateMode::AdoptOnly).await
}

#[tokio::test]
async fn the_patience_with_a_host_begins_anew_whenever_it_was_reached() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &given_up_at_once()).await.unwrap();
    for _ in 0..2 {
        world.faults.unreachable.store(true, Ordering::SeqCst);
        let error = adopt(&boot, &world, &key).await.unwrap_err();
        assert_eq!(error.kind, ExecutorErrorKind::Unavailable, "one blip is no end: {error}");
        world.faults.unreachable.store(false, Ordering::SeqCst);
        assert!(matches!(adopt(&boot, &world, &key).await, Ok(StartOutcome::Started { .. })));
    }
    world.faults.lose_answers.store(1, Ordering::SeqCst);
    let error = cancel(&boot, &key).await.expect_err("a cancel whose first answer was lost is not over");
    assert_eq!(error.kind, ExecutorErrorKind::Ambiguous, "{error}");
    cancel(&boot, &key).await.unwrap();
    assert_eq!(processes(&key), []);
}

#[tokio::test]
async fn a_cancel_has_all_of_its_time_whatever_an_adoption_waited_for() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &given_up_at_once()).await.unwrap();
    world.faults.unreachable.store(true, Ordering::SeqCst);
    adopt(&boot, &world, &key).await.unwrap_err();
    let error = cancel(&boot, &key).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Unavailable, "{error}");
    world.faults.unreachable.store(false, Ordering::SeqCst);
    cancel(&boot, &key).await.unwrap();
    assert_eq!(processes(&key), []);
}

#[tokio::test]
async fn a_host_that_is_reached_is_never_given_up() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &given_up_at_once()).await.unwrap();
    until(|| (support::runners(&key) == 1).then_some(())).await.expect("the program never ran");
    world.faults.lose_cancels.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        let error = cancel(&boot, &key).await.unwrap_err();
        assert_eq!(error.kind, ExecutorErrorKind::Ambiguous, "{error}");
    }
    assert_eq!(support::runners(&key), 1);
    world.faults.lose_cancels.store(false, Ordering::SeqCst);
    cancel(&boot, &key).await.unwrap();
    assert_eq!(processes(&key), []);
}

#[tokio::test]
async fn a_cancel_ends_what_runs_also_where_nothing_can_be_written() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &lives()).await.unwrap();
    until(|| (support::runners(&key) == 1).then_some(())).await.expect("the program never ran");
    let dir = world.dir.path().join("host/.reconciler").join(support::session(&key).0);
    std::os::unix::fs::symlink("/nowhere/mark", dir.join("cancelled")).unwrap();
    cancel(&boot, &key).await.unwrap();
    assert_eq!(processes(&key), []);
    let error = start(&world.with("others", Duration::ZERO), &world, &key, &lives()).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Gone, "{error}");
}

#[tokio::test]
async fn a_lost_answer_of_any_call_leaves_one_session() {
    for lost in 1..=4 {
        let world = LocalWorld::new().await.unwrap();
        let (boot, key) = (world.instance(), attempt());
        // The answers to the script, the look, the plan and the launch, in turn.
        world.faults.lose_answers.store(lost, Ordering::SeqCst);
        let mut started = start(&boot, &world, &key, &lives()).await;
        let mut tries = 0;
        while started.is_err() && tries < 10 {
            let kind = started.unwrap_err().kind;
            assert_eq!(kind, ExecutorErrorKind::Ambiguous);
            started = start(&boot, &world, &key, &lives()).await;
            tries += 1;
        }
        started.unwrap();
        until(|| (support::runners(&key) == 1).then_some(())).await.expect("the program never ran");
        cancel(&boot, &key).await.unwrap();
        assert_eq!(processes(&key), []);
    }
}

#[tokio::test]
async fn an_unreachable_host_says_nothing_about_its_sessions() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &lives()).await.unwrap();
    world.faults.unreachable.store(true, Ordering::SeqCst);
    assert!(matches!(boot.find(&key).await, Reading::Unknown { .. }));
    let ask = request(&world, &key, lives());
    let error = boot.start(&context(&key, 3), &ask, CreateMode::AdoptOnly).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Unavailable);
    world.faults.unreachable.store(false, Ordering::SeqCst);
    cancel(&boot, &key).await.unwrap();
}

/// What somebody shows who folds the reports of these followings, one after the other.
fn shown(followings: &[&Attached]) -> String {
    let (mut last, mut shown) = (0, String::new());
    for told in followings.iter().flat_map(|attached| attached.heard.all()) {
        if let NodeObservation::BootstrapProgress { sequence, phase, .. } = told
            && sequence > last
        {
            (last, shown) = (sequence, phase);
        }
    }
    shown
}

async fn shows(followings: &[&Attached], part: &str) {
    let level = until(|| shown(followings).contains(part).then_some(())).await;
    assert!(level.is_some(), "never shown: {part}; shown at last: {}", shown(followings));
}

#[tokio::test]
async fn trouble_in_the_middle_of_a_step_is_told_and_so_is_its_end_to_the_next_driver_too() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.instance(), attempt());
    let settings =
        json!({ "steps": [support::sh("echo installing; exec sleep 4321")], "stop": { "grace": "1s" } });
    start(&boot, &world, &key, &settings).await.unwrap();
    let break_off = || {
        world.faults.unreachable.store(true, Ordering::SeqCst);
        world.faults.lose_answers.store(1, Ordering::SeqCst);
    };
    let first = Attached::to(&boot, &key);
    shows(&[&first], "step 1 of 1").await;
    break_off();
    shows(&[&first], "trying to reach the host").await;
    world.faults.unreachable.store(false, Ordering::SeqCst);
    shows(&[&first], "installing").await;
    first.stop();
    // Another driver, whose clock is behind what was told before.
    let record = world.dir.path().join("records").join(key.run.uid()).join("web-0/a1.json");
    let mut kept: Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    let ahead = kept["told"].as_u64().unwrap() + 86_400_000;
    kept["told"] = ahead.into();
    std::fs::write(&record, kept.to_string()).unwrap();
    world.faults.unreachable.store(true, Ordering::SeqCst);
    let second = Attached::to(&world.instance(), &key);
    shows(&[&first, &second], "trying to reach the host").await;
    world.faults.unreachable.store(false, Ordering::SeqCst);
    shows(&[&first, &second], "installing").await;
    let above = |o: &NodeObservation| matches!(o, NodeObservation::BootstrapProgress { sequence, .. } if *sequence > ahead);
    assert!(second.heard.all().iter().all(above), "{:#?}", second.heard.all());
    world.faults.lose_answers.store(0, Ordering::SeqCst);
    cancel(&boot, &key).await.unwrap();
}

#[tokio::test]
async fn silence_after_the_join_is_suspicion_and_its_end_is_told() {
    let world = LocalWorld::new().await.unwrap();
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &lives()).await.unwrap();
    let attached = Attached::to(&boot, &key);
    attached.heard.joined().await;
    world.faults.lose_answers.store(3, Ordering::SeqCst);
    attached.heard.wait("suspicion", |o| matches!(o, NodeObservation::Suspected { .. })).await;
    attached.heard.wait("its end", |o| matches!(o, NodeObservation::SeenAlive)).await;
    let ends = attached.heard.all().into_iter().filter(|o| matches!(o, NodeObservation::LeaseLost { .. }));
    assert_eq!(ends.count(), 0);
    cancel(&boot, &key).await.unwrap();
}

#[tokio::test]
async fn a_host_does_not_fill_up_with_the_sessions_of_former_attempts() {
    let world = LocalWorld::new().await.unwrap();
    let boot = world.instance();
    let sessions = world.dir.path().join("host/.reconciler");
    let (mut cancelled, mut ended) = (Vec::new(), Vec::new());
    for n in 0..12 {
        let key = attempt();
        let line = if n % 2 == 0 { "echo words; exec sleep 4321" } else { "echo words; exit 1" };
        let settings =
            json!({ "start": support::sh(line), "ready": { "log": "words" }, "stop": { "grace": "1s" } });
        start(&boot, &world, &key, &settings).await.unwrap();
        if n % 2 == 0 {
            Attached::to(&boot, &key).heard.joined().await;
            cancel(&boot, &key).await.unwrap();
            cancelled.push(support::session(&key).0);
        } else {
            until(|| processes(&key).is_empty().then_some(())).await.expect("the program ended");
            ended.push(support::session(&key).0);
        }
    }
    // One that has steps only is not over when they are done: its node may live.
    let steps = attempt();
    start(&boot, &world, &steps, &json!({ "steps": [["echo", "words"]] })).await.unwrap();
    Attached::to(&boot, &steps).heard.joined().await;
    let forgotten = sessions.join(&cancelled[5]).join("cancelled");
    support::long_ago(std::slice::from_ref(&forgotten));
    let key = attempt();
    start(&boot, &world, &key, &lives()).await.unwrap();
    until(|| (support::runners(&key) == 1).then_some(())).await.expect("the program never ran");
    let with = |names: &[String], file: &str| {
        names.iter().filter(|name| sessions.join(name).join(file).exists()).count()
    };
    let names = [&cancelled[..5], &ended[..]].concat();
    assert!(with(&names, "out") <= 8 && with(&names, "work") <= 8, "{} outputs", with(&names, "out"));
    assert!(with(&names, "out") >= 7, "the latest are kept: {}", with(&names, "out"));
    assert_eq!(with(&names, "launched"), 11, "what was launched once never is again");
    assert_eq!(with(&[support::session(&steps).0], "out"), 1);
    assert!(!forgotten.exists(), "a mark of long ago is still there");
    cancel(&boot, &key).await.unwrap();
}

#[tokio::test]
async fn a_launch_touches_nothing_of_a_neighbour_that_lives_whatever_it_calls_its_files() {
    let world = LocalWorld::new().await.unwrap();
    let boot = world.instance();
    let marks = "mkdir -p queue/new queue/cancelled queue/launched; touch queue/new/job cancelled launched";
    let settings =
        json!({ "steps": [support::sh(marks)], "start": ["sleep", "4321"], "stop": { "grace": "1s" } });
    let node = attempt();
    start(&boot, &world, &node, &settings).await.unwrap();
    Attached::to(&boot, &node).heard.joined().await;
    let work = world.dir.path().join("host/.reconciler").join(support::session(&node).0).join("work");
    let own = ["queue/cancelled", "queue/launched", "queue/new/job", "cancelled", "launched"];
    let own = own.map(|name| work.join(name));
    support::long_ago(&own);
    let next = attempt();
    start(&boot, &world, &next, &lives()).await.unwrap();
    for path in &own {
        assert!(path.exists(), "{} is gone", path.display());
    }
    for key in [node, next] {
        assert_eq!(support::runners(&key), 1);
        cancel(&boot, &key).await.unwrap();
    }
}

#[tokio::test]
async fn a_session_is_swept_neither_with_its_runner_nor_with_what_outlived_that() {
    let world = LocalWorld::new().await.unwrap();
    let boot = world.instance();
    let (runs, survives) = (attempt(), attempt());
    let dir = |key| world.dir.path().join("host/.reconciler").join(support::session(key).0);
    for key in [&runs, &survives] {
        start(&boot, &world, key, &lives()).await.unwrap();
        Attached::to(&boot, key).heard.joined().await;
    }
    let runner = std::fs::read_to_string(dir(&survives).join("pid")).unwrap();
    assert!(std::process::Command::new("kill").args(["-KILL", runner.trim()]).status().unwrap().success());
    // As after a cancel, long ago, that could end neither.
    for key in [&runs, &survives] {
        std::fs::write(dir(key).join("cancelled"), "").unwrap();
        support::long_ago(&[dir(key).join("cancelled")]);
    }
    let next = attempt();
    start(&boot, &world, &next, &lives()).await.unwrap();
    for key in [&runs, &survives] {
        assert!(dir(key).join("work").exists() && support::runners(key) == 1, "{}", dir(key).display());
    }
    for key in [&runs, &survives] {
        cancel(&boot, key).await.unwrap();
    }
    let last = attempt();
    support::long_ago(&[dir(&runs).join("cancelled"), dir(&survives).join("cancelled")]);
    start(&boot, &world, &last, &lives()).await.unwrap();
    assert!(!dir(&runs).exists() && !dir(&survives).exists(), "marks of long ago are still there");
    for key in [&next, &last] {
        cancel(&boot, key).await.unwrap();
    }
}
