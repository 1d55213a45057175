//! The promises of a session over a real SSH server, and what is particular to SSH: who the host is, who we are,
//! and connections that break.

mod sshd;
#[path = "../../bootstrap-hosted/tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bootstrap_hosted::{HostError, Pin, Transport as _};
use bootstrap_ssh::SshTransport;
use executor_api::{
    AttemptKey, BootstrapSessionId, Bootstrapper, ExecutorError, ExecutorErrorKind, NodeObservation,
    RejectReason,
};
use serde_json::{Value, json};
use sshd::SshWorld;
use support::{Attached, World as _, attempt, cancel, processes, runners, sh, start, until};

promises!(SshWorld::new);

fn lives() -> Value {
    json!({ "start": ["sleep", "4321"], "stop": { "grace": "1s", "unreachable_for": "60s" } })
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_touch_no_disk() {
    let Some(world) = SshWorld::new().await else { return };
    let dirs = [world.dir.path().to_owned()];
    support::promises::a_secret_is_in_the_environment_and_on_no_disk(world, &dirs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_key_other_than_the_one_given_is_refused() {
    let Some(mut world) = SshWorld::new().await else { return };
    let other = std::fs::read_to_string(world.key("other").with_extension("pub")).unwrap();
    world.connect = json!({ "host_key": other });
    let (boot, key) = (world.instance(), attempt());
    let error = start(&boot, &world, &key, &lives()).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Rejected(RejectReason::Authorisation), "{}", error.summary());
    assert!(error.summary().contains("showed the host key SHA256:"), "{}", error.summary());
    assert_eq!(processes(&key), []);
    // The right one is let through, as a key and as a fingerprint.
    world.connect = json!({ "host_key": world.public_host_key() });
    let key = attempt();
    start(&boot, &world, &key, &lives()).await.unwrap();
    cancel(&boot, &key).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_key_that_changes_within_an_attempt_is_refused() {
    let Some(mut world) = SshWorld::new().await else { return };
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &lives()).await.unwrap();
    world.stop();
    world.change_host_key();
    world.serve().await;
    // Neither this instance nor a later one of the same attempt talks to it.
    for boot in [boot, world.instance()] {
        let error = start(&boot, &world, &key, &lives()).await.unwrap_err();
        assert_eq!(
            error.kind,
            ExecutorErrorKind::Rejected(RejectReason::Authorisation),
            "{}",
            error.summary()
        );
    }
    let other = attempt();
    start(&world.instance(), &world, &other, &lives()).await.unwrap();
    cancel(&world.instance(), &other).await.unwrap();
    for (pid, _) in processes(&key) {
        let _ = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_kept_to_before_it_was_asked_for_anything() {
    let Some(mut world) = SshWorld::new().await else { return };
    let (boot, key) = (world.instance(), attempt());
    // The very first command of a session finds no room for its script.
    let place = world.dir.path().join("host/.reconciler");
    std::fs::write(&place, "").unwrap();
    let error = start(&boot, &world, &key, &lives()).await.unwrap_err();
    assert!(error.summary().contains("session script"), "{}", error.summary());
    std::fs::remove_file(&place).unwrap();
    world.stop();
    world.change_host_key();
    world.serve().await;
    let error = start(&world.instance(), &world, &key, &lives()).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Rejected(RejectReason::Authorisation), "{}", error.summary());
    assert!(!place.exists(), "something was sent to another host");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_lets_nobody_in_yet_may_still_be_given_its_own_key() {
    let Some(mut world) = SshWorld::new().await else { return };
    let (boot, key) = (world.instance(), attempt());
    let known = std::fs::read(world.dir.path().join("authorized")).unwrap();
    std::fs::write(world.dir.path().join("authorized"), "").unwrap();
    start(&boot, &world, &key, &lives()).await.unwrap();
    world.stop();
    world.change_host_key();
    std::fs::write(world.dir.path().join("authorized"), known).unwrap();
    world.serve().await;
    Attached::to(&boot, &key).heard.joined().await;
    cancel(&boot, &key).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_the_host_refuses_is_named_and_nobody_is_prompted() {
    for configuration in ["", "PubkeyAuthentication no\nKbdInteractiveAuthentication yes"] {
        let Some(mut world) = SshWorld::with(configuration).await else { return };
        world.denied_for = Duration::from_millis(500);
        world.connect = json!({ "key": { "from_file": world.key("stranger") } });
        let (boot, key) = (world.instance(), attempt());
        let began = Instant::now();
        start(&boot, &world, &key, &lives()).await.unwrap();
        let reason = Attached::to(&boot, &key).heard.failed().await;
        assert!(reason.contains(&format!("does not let {:?} in", world.account)), "{reason}");
        assert!(began.elapsed() < Duration::from_secs(20), "something waited for an answer");
        cancel(&boot, &key).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_cannot_be_used_is_refused_before_anything_is_sent() {
    let Some(mut world) = SshWorld::new().await else { return };
    let path = world.key("locked");
    let locked = std::process::Command::new("ssh-keygen")
        .args(["-q", "-p", "-P", "", "-N", "a passphrase", "-f"])
        .arg(&path)
        .status();
    assert!(locked.unwrap().success());
    for (file, expected) in [(path, "has a passphrase"), ("/nowhere/key".into(), "cannot read")] {
        world.connect = json!({ "key": { "from_file": file } });
        let error = start(&world.instance(), &world, &attempt(), &lives()).await.unwrap_err();
        assert_eq!(error.kind, ExecutorErrorKind::Rejected(RejectReason::Validation), "{}", error.summary());
        assert!(error.summary().contains(expected), "{}", error.summary());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_rsa_key_is_as_good_as_any() {
    let Some(mut world) = SshWorld::new().await else { return };
    let key = world.key("rsa");
    std::fs::copy(key.with_extension("pub"), world.dir.path().join("authorized")).unwrap();
    world.connect = json!({ "key": { "from_file": key } });
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &json!({ "steps": [["true"]] })).await.unwrap();
    Attached::to(&boot, &key).heard.joined().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_that_the_host_knows_is_found_among_the_agents() {
    if !sshd::has_agent("the_key_that_the_host_knows_is_found_among_the_agents") {
        return;
    }
    let Some(world) = SshWorld::by_agent().await else { return };
    for name in ["stranger", "other", "user_key"] {
        sshd::add_to_agent(&world.key(name));
    }
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &lives()).await.unwrap();
    until(|| (runners(&key) == 1).then_some(())).await.expect("the program never ran");
    cancel(&boot, &key).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_more_keys_than_the_host_looks_at_is_a_refusal_that_says_what_to_do() {
    let own = "an_agent_with_more_keys_than_the_host_looks_at_is_a_refusal_that_says_what_to_do";
    if !sshd::has_agent(own) {
        return;
    }
    let Some(mut world) = SshWorld::by_agent().await else { return };
    world.denied_for = Duration::from_millis(500);
    for n in 0..8 {
        sshd::add_to_agent(&world.key(&format!("stranger{n}")));
    }
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &lives()).await.unwrap();
    let attached = Attached::to(&boot, &key);
    let reason = attached.heard.failed().await;
    for part in ["6 of the agent's 8 keys", "Too many authentication failures", "`boot/connect/key`"] {
        assert!(reason.contains(part), "{reason}");
    }
    let tried = |o: &NodeObservation| matches!(o, NodeObservation::BootstrapProgress { phase, .. } if phase.contains("trying"));
    assert!(attached.heard.all().iter().any(tried), "a host may learn of the key yet");
    cancel(&boot, &key).await.unwrap();
}

/// Breaks connections after ever more bytes, as far as the login goes.
async fn a_connect_breaks_at_any_moment(world: &SshWorld) {
    let settings = world.connect_settings();
    for bytes in (100..4000).step_by(300) {
        world.break_after(bytes);
        let broken =
            SshTransport::default().connect(&world.endpoint(), &settings, Pin::new(None, &|_| Ok(()))).await;
        let harmless = matches!(broken, Err(HostError::Unreachable(_) | HostError::Broken(_)));
        assert!(harmless, "after {bytes} bytes: {broken:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_breaks_is_no_refusal() {
    let Some(world) = SshWorld::new().await else { return };
    a_connect_breaks_at_any_moment(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_by_agent_that_breaks_is_no_refusal() {
    if !sshd::has_agent("a_login_by_agent_that_breaks_is_no_refusal") {
        return;
    }
    let Some(world) = SshWorld::by_agent().await else { return };
    for name in ["stranger", "user_key"] {
        sshd::add_to_agent(&world.key(name));
    }
    a_connect_breaks_at_any_moment(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_in_the_middle_of_a_step_is_taken_up_again() {
    let Some(world) = SshWorld::new().await else { return };
    let (boot, key) = (world.instance(), attempt());
    let settings = json!({
        "steps": [sh("i=0; while [ $i -lt 40 ]; do echo line $i; i=$((i+1)); sleep 0.05; done; echo x >>count")],
        "verify": [sh("[ $(wc -l <count) = 1 ]")],
        "start": sh("echo it is up; exec sleep 4321"),
        "ready": { "log": "it is up" },
        "stop": { "grace": "1s" },
    });
    start(&boot, &world, &key, &settings).await.unwrap();
    let attached = Attached::to(&boot, &key);
    let in_step = |o: &NodeObservation| matches!(o, NodeObservation::BootstrapProgress { phase, .. } if phase.contains("line"));
    attached.heard.wait("output of the step", in_step).await;
    for _ in 0..3 {
        world.cut();
        tokio::task::yield_now().await;
    }
    attached.heard.joined().await;
    assert_eq!(runners(&key), 1);
    let all = attached.heard.all();
    assert!(!all.iter().any(|o| matches!(o, NodeObservation::BootstrapFailed { .. })), "{all:#?}");
    cancel(&boot, &key).await.unwrap();
    assert_eq!(processes(&key), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cable_that_is_cut_at_any_moment_of_a_start_leaves_one_session() {
    for millis in [5, 20, 40, 60, 80, 120, 200] {
        let Some(world) = SshWorld::new().await else { return };
        let (boot, key) = (world.instance(), attempt());
        let settings = lives();
        let cutting = async {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            world.cut();
        };
        let (started, ()) = tokio::join!(start(&boot, &world, &key, &settings), cutting);
        one_session_after(started, &boot, &world, &key, &format!("cut after {millis} ms")).await;
    }
}

/// The same by what has gone over instead of by the clock: the login, the script, the plan and the launch.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_breaks_after_any_number_of_bytes_leaves_one_session() {
    let mut broken_off = 0;
    for bytes in (2000..30_000).step_by(2500) {
        let Some(world) = SshWorld::new().await else { return };
        let (boot, key) = (world.instance(), attempt());
        world.break_after(bytes);
        let started = start(&boot, &world, &key, &lives()).await;
        broken_off += u32::from(started.is_err());
        one_session_after(started, &boot, &world, &key, &format!("broken after {bytes} bytes")).await;
    }
    assert!(broken_off > 0, "every start came through");
}

/// What an interrupted start claimed is true, and the next one ends with one session.
#[expect(clippy::unwrap_used, clippy::expect_used, reason = "a part of two tests")]
async fn one_session_after(
    started: Result<BootstrapSessionId, ExecutorError>,
    boot: &Arc<dyn Bootstrapper>,
    world: &SshWorld,
    key: &AttemptKey,
    what: &str,
) {
    if let Err(error) = started {
        match error.kind {
            // Broken between two commands: the launch had not been sent.
            ExecutorErrorKind::Unavailable => assert_eq!(runners(key), 0, "{what}: {}", error.summary()),
            kind => assert_eq!(kind, ExecutorErrorKind::Ambiguous, "{what}: {}", error.summary()),
        }
    }
    world.break_after(u64::MAX);
    start(boot, world, key, &lives()).await.unwrap();
    until(|| (runners(key) == 1).then_some(())).await.expect("the program never ran");
    cancel(boot, key).await.unwrap();
    assert_eq!(processes(key), [], "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_changes_nothing() {
    let Some(mut world) = SshWorld::new().await else { return };
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &lives()).await.unwrap();
    let attached = Attached::to(&boot, &key);
    attached.heard.joined().await;
    world.stop();
    world.cut();
    attached.heard.wait("suspicion", |o| matches!(o, NodeObservation::Suspected { .. })).await;
    world.serve().await;
    attached.heard.wait("its end", |o| matches!(o, NodeObservation::SeenAlive)).await;
    assert_eq!(runners(&key), 1);
    cancel(&boot, &key).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_up_yet_is_waited_for() {
    let Some(mut world) = SshWorld::new().await else { return };
    world.stop();
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &lives()).await.unwrap();
    let attached = Attached::to(&boot, &key);
    let trying = |o: &NodeObservation| matches!(o, NodeObservation::BootstrapProgress { phase, .. } if phase.contains("trying"));
    attached.heard.wait("that it tries", trying).await;
    world.serve().await;
    attached.heard.joined().await;
    cancel(&boot, &key).await.unwrap();
}

/// A local file goes over as it is, whole or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_arrives_whole() {
    let Some(world) = SshWorld::new().await else { return };
    let bytes: Vec<u8> = (0..20_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let path = world.dir.path().join("large");
    std::fs::write(&path, &bytes).unwrap();
    let (boot, key) = (world.instance(), attempt());
    let there = world.dir.path().join("arrived");
    let settings = json!({
        "files": [{ "path": there, "from": path, "mode": "0600" }],
        "steps": [["cmp", path, there]],
    });
    start(&boot, &world, &key, &settings).await.unwrap();
    Attached::to(&boot, &key).heard.joined().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_without_rights_is_enough() {
    let Some(world) = SshWorld::unprivileged().await else { return };
    let (boot, key) = (world.instance(), attempt());
    let settings = json!({
        "steps": [sh(&format!("[ $(id -un) = {} ] && [ $(id -u) != 0 ]", world.account))],
        "start": sh("setsid sleep 4322 & echo it is up; exec sleep 4321"),
        "ready": { "log": "it is up" },
        "stop": { "grace": "1s" },
    });
    start(&boot, &world, &key, &settings).await.unwrap();
    let attached = Attached::to(&boot, &key);
    attached.heard.joined().await;
    start(&world.instance(), &world, &key, &settings).await.unwrap();
    assert_eq!(processes(&key).iter().filter(|(_, line)| line.contains("sleep 4321")).count(), 1);
    cancel(&boot, &key).await.unwrap();
    assert_eq!(processes(&key), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_does_not_exist_is_named() {
    let Some(mut world) = SshWorld::new().await else { return };
    world.denied_for = Duration::from_millis(300);
    world.connect = json!({ "user": "no-such-account" });
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &lives()).await.unwrap();
    let reason = Attached::to(&boot, &key).heard.failed().await;
    assert!(reason.contains("no-such-account"), "{reason}");
    cancel(&boot, &key).await.unwrap();
}
