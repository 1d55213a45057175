//! The promises of a session through a real agent, and what is particular to it: the token, the certificate, and an
//! agent that is killed.

mod agents;
#[path = "../../bootstrap-hosted/tests/support/mod.rs"]
mod support;

use std::time::Duration;

use agents::{AgentWorld, TOKEN};
use bootstrap_http::{Agent, AgentError};
use executor_api::{ExecutorErrorKind, Life, NodeObservation, Reading, RejectReason};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use support::{Attached, World as _, attempt, cancel, processes, runners, session, start, until};

promises!(AgentWorld::new);

fn lives() -> Value {
    json!({ "start": ["sleep", "4321"], "stop": { "grace": "1s" } })
}

/// What a plain request is answered with.
#[expect(clippy::unwrap_used, reason = "a test: a panic is a failed test")]
async fn status(world: &AgentWorld, method: &str, path: &str, token: Option<&str>) -> u16 {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("{method} {path} HTTP/1.0\r\n{authorization}Content-Length: 0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_touch_no_disk() {
    let world = AgentWorld::new().await.unwrap();
    let dirs = [world.path("host"), world.path("records")];
    support::promises::a_secret_is_in_the_environment_and_on_no_disk(world, &dirs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_finds_its_sessions_again() {
    let mut world = AgentWorld::process();
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &lives()).await.unwrap();
    let attached = Attached::to(&boot, &key);
    attached.heard.joined().await;
    let before = processes(&key);
    world.kill();
    attached.heard.wait("suspicion", |o| matches!(o, NodeObservation::Suspected { .. })).await;
    assert!(matches!(boot.find(&key).await, Reading::Unknown { .. }), "silence is not absence");
    let address = world.address.to_string();
    world.spawn(&address);
    attached.heard.wait("its end", |o| matches!(o, NodeObservation::SeenAlive)).await;
    let later = world.instance();
    assert_eq!(start(&later, &world, &key, &lives()).await.unwrap(), session(&key));
    assert!(matches!(later.find(&key).await, Reading::Present { life: Life::Live, .. }));
    let after = processes(&key);
    assert_eq!(before, after, "the node did not notice");
    cancel(&later, &key).await.unwrap();
    assert_eq!(processes(&key), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_at_any_moment_of_a_start_leaves_one_session() {
    for millis in [5, 15, 30, 60, 100] {
        let mut world = AgentWorld::process();
        let (boot, key) = (world.instance(), attempt());
        let settings = lives();
        let given_up = start(&boot, &world, &key, &settings);
        let _ = tokio::time::timeout(Duration::from_millis(millis), given_up).await;
        world.kill();
        let address = world.address.to_string();
        world.spawn(&address);
        start(&boot, &world, &key, &settings).await.unwrap();
        until(|| (runners(&key) == 1).then_some(())).await.expect("the program never ran");
        cancel(&boot, &key).await.unwrap();
        assert_eq!(processes(&key), [], "killed after {millis} ms");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_refused_and_named() {
    let mut world = AgentWorld::new().await.unwrap();
    world.denied_for = Duration::from_millis(300);
    std::fs::write(world.path("wrong"), "another-token-entirely").unwrap();
    world.connect["token"] = json!({ "from_file": world.path("wrong") });
    let (boot, key) = (world.instance(), attempt());
    start(&boot, &world, &key, &lives()).await.unwrap();
    let reason = Attached::to(&boot, &key).heard.failed().await;
    assert!(reason.contains("token is missing or wrong") && !reason.contains("another-token"), "{reason}");
    assert_eq!(processes(&key), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_answered_without_the_token() {
    let world = AgentWorld::process();
    let name = session(&attempt());
    for (method, path) in [
        ("GET", "/v1/health".to_owned()),
        ("GET", format!("/v1/sessions/{name}?events=0&output=0&limit=0&tail=true")),
        ("PUT", format!("/v1/sessions/{name}/plan")),
        ("POST", format!("/v1/sessions/{name}/start")),
        ("POST", format!("/v1/sessions/{name}/cancel")),
        ("GET", "/v1/anything".to_owned()),
    ] {
        for token in [None, Some(""), Some("x"), Some(&TOKEN[..TOKEN.len() - 1])] {
            assert_eq!(status(&world, method, &path, token).await, 401, "{method} {path} with {token:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_lead_elsewhere_are_refused() {
    let world = AgentWorld::process();
    for name in ["..%2F..%2Fetc", "a%20b", "A", "a;id", "-x"] {
        let path = format!("/v1/sessions/{name}/joined");
        assert_eq!(status(&world, "POST", &path, Some(TOKEN)).await, 400, "{name}");
    }
    assert!(!world.path("etc").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_another_certificate_is_refused() {
    let world = AgentWorld::new().await.unwrap();
    let mut other = AgentWorld::new().await.unwrap();
    other.connect["ca"] = json!(world.path("cert.pem"));
    let error = start(&other.instance(), &other, &attempt(), &lives()).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Rejected(RejectReason::Authorisation), "{}", error.summary());
    other.connect = json!({ "ca": other.path("cert.pem"), "server_name": "somebody.else" });
    let error = start(&other.instance(), &other, &attempt(), &lives()).await.unwrap_err();
    assert_eq!(error.kind, ExecutorErrorKind::Rejected(RejectReason::Authorisation), "{}", error.summary());
}

#[tokio::test]
async fn an_agent_refuses_to_run_where_its_token_is_not_safe() {
    let world = AgentWorld::process();
    let anywhere = "0.0.0.0:0".parse().unwrap();
    let error = Agent::bind(world.config(anywhere, false)).await.unwrap_err();
    assert!(matches!(error, AgentError::PlainText { .. }), "{error}");
    std::fs::write(world.path("token"), "short").unwrap();
    let error = Agent::bind(world.config(anywhere, true)).await.unwrap_err();
    assert!(matches!(error, AgentError::WeakToken), "{error}");
    std::fs::remove_file(world.path("token")).unwrap();
    let error = Agent::bind(world.config(anywhere, true)).await.unwrap_err();
    assert!(matches!(error, AgentError::Token(_)), "{error}");
}
