//! What is refused on the way to a node: keys, tokens, certificates, hosts. Before anything is made where it can be
//! known; else on the node, in words that say what to do. And no secret in any of it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::Value;

use crate::doors::{Door, TOKEN, account, far, run_of};
use crate::lab::{Lab, wait};

const SECRET: &str = "hunter3-Rr5vB9-never-to-be-seen";

/// Drives until the node's words hold this, and removes everything.
fn says(lab: &Lab, expected: &str) {
    let driver = lab.run();
    let mut last = Value::Null;
    let mut told = false;
    let end = std::time::Instant::now() + std::time::Duration::from_secs(40);
    while !told && std::time::Instant::now() < end {
        last = serde_json::from_slice(&lab.output(&["explain", "far-0", "-o", "json"]).stdout)
            .unwrap_or_default();
        told = last.to_string().contains(expected);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(told, "{expected:?} was never said: {last:#}\n{}", driver.output());
    lab.destroy();
}

/// The file is refused with these words, and nothing was made.
fn refused(way: &str, expected: &[&str]) {
    let lab = Lab::with(&far("refused", 1, way, ""));
    let said = lab.ends(1, &["apply"]);
    for expected in expected {
        assert!(said.contains(expected), "{expected:?} is not in: {said}");
    }
    assert_eq!(lab.ends(1, &["validate"]), said);
    assert!(!lab.state_dir().exists(), "something was made");
}

#[test]
fn what_can_be_known_beforehand_is_refused_before_anything_is_made() {
    let door = Door::agent();
    let way = |via: &str, connect: &str| format!("via: {via}\n      connect: {{ {connect} }}");
    fs::write(door.path("garbage"), "not a key").unwrap();
    let garbage = door.path("garbage").display().to_string();
    refused(
        &way("ssh", "user: x, key: { from_file: /nowhere/id }"),
        &["boot.connect.key: cannot read the secret file /nowhere/id: No such file"],
    );
    refused(&way("ssh", &format!("user: x, key: {{ from_file: {garbage} }}")), &["this is no private key"]);
    refused(
        &way("ssh", "user: x, key: { from_env: NO_SUCH_KEY_HERE }"),
        &["NO_SUCH_KEY_HERE", "driving process"],
    );
    refused(
        &way("ssh", "user: x, agent: true, host_key: AAAA"),
        &["boot.connect.host_key", "ssh-ed25519 AAAA"],
    );
    refused(&way("ssh", "usr: x"), &["boot.connect.usr: unknown field"]);
    refused(
        &way("agent", "plain: true, token: { from_file: /nowhere/token }"),
        &["boot.connect.token: cannot read the secret file /nowhere/token: No such file"],
    );
    refused(&way("agent", "token: { from_env: PATH }"), &["needs `ca: FILE`", "plain: true"]);
    refused(
        &way("agent", &format!("token: {{ from_env: PATH }}, ca: {garbage}")),
        &["boot.connect.ca: no certificates in"],
    );
}

#[test]
fn a_key_account_host_key_or_server_that_is_wrong_is_named_on_the_node() {
    let Some(mut door) = Door::ssh() else { return };
    let stranger = format!("user: {}, key: {{ from_file: {} }}", account(), door.path("stranger").display());
    says(&Lab::with(&far("wrong-key", 1, &door.way_with(&stranger), "")), "does not let");
    let nobody = format!("user: no-such-account, key: {{ from_file: {} }}", door.path("user_key").display());
    says(&Lab::with(&far("wrong-user", 1, &door.way_with(&nobody), "")), "no-such-account");
    let other = fs::read_to_string(door.path("stranger.pub")).unwrap();
    let pinned = format!(
        "user: {}, key: {{ from_file: {} }}, host_key: {}",
        account(),
        door.path("user_key").display(),
        other.trim()
    );
    says(&Lab::with(&far("wrong-host", 1, &door.way_with(&pinned), "")), "nothing was sent there");
    says(&Lab::with(&far("no-key", 1, &door.way_with("agent: false"), "")), "names an account to log in to");
    door.close();
    says(&Lab::with(&far("nobody", 1, &door.way(), "")), "Connection refused");
}

#[test]
fn a_token_that_is_wrong_and_an_agent_of_another_version_are_named_on_the_node() {
    let door = Door::agent();
    fs::write(door.path("other"), "another-token-altogether").unwrap();
    let wrong = format!("token: {{ from_file: {} }}, plain: true", door.path("other").display());
    says(&Lab::with(&far("wrong-token", 1, &door.way_with(&wrong), "")), "token is missing or wrong");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Ends with this process.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let body = "{\"protocol\":99}";
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    let way = door.way().replace(&format!("port: {}", door.port()), &format!("port: {port}"));
    says(
        &Lab::with(&far("other-version", 1, &way, "")),
        "speaks protocol 99, and this is 1; bring both to one version",
    );
}

#[test]
fn an_agent_is_believed_by_its_certificate_alone() {
    let door = Door::agent_until(2999);
    let lab = Lab::with(&far("certified", 1, &door.way(), ""));
    lab.ok(&["apply", "-q", "--timeout", "60s"]);
    lab.destroy();
    let renamed = door.way().replace("agent.test", "somebody.test");
    says(&Lab::with(&far("renamed", 1, &renamed, "")), "nothing was sent there");
    let other = Door::agent_until(2999);
    let impostor = door.way().replace(&format!("port: {}", door.port()), &format!("port: {}", other.port()));
    says(&Lab::with(&far("impostor", 1, &impostor, "")), "nothing was sent there");
    let expired = Door::agent_until(2020);
    says(&Lab::with(&far("expired", 1, &expired.way(), "")), "expired");
}

#[test]
fn an_agent_says_why_it_does_not_start() {
    let door = Door::agent();
    let lab = Lab::new();
    fs::write(door.path("short"), "short").unwrap();
    let path = |name: &str| door.path(name).display().to_string();
    let (dir, token, short) = (path("elsewhere"), path("token"), path("short"));
    let agent = |more: &[&str]| {
        let mut args = vec!["agent", "--dir", &dir];
        args.extend(more);
        lab.ends(1, &args)
    };
    assert!(agent(&["--token-file", "/nowhere/token"]).contains("No such file"));
    assert!(agent(&["--token-file", &short]).contains("openssl rand"));
    assert!(agent(&["--token-env", "NO_SUCH_TOKEN"]).contains("NO_SUCH_TOKEN"));
    assert!(agent(&["--token-file", &token, "--listen", "0.0.0.0:0"]).contains("can be reached by others"));
    let occupied = format!("127.0.0.1:{}", door.port());
    assert!(agent(&["--token-file", &token, "--listen", &occupied]).contains("in use"));
    let certificate = ["--token-file", &token, "--certificate", &short, "--key", &short];
    assert!(agent(&certificate).contains("no certificates in"));
    assert!(agent(&[]).contains("--token-file"), "a token is required");
}

#[test]
fn no_secret_is_in_any_file_output_or_error() {
    for door in Door::all() {
        let run = run_of("hush", &door);
        let more = "      env: { TOKEN: { from_env: FAR_TOKEN } }\n      \
                    steps: [[sh, -c, 'echo the token is $TOKEN; echo \"$TOKEN\" >&2']]";
        let lab = Lab::with(&far(&run, 1, &door.way(), more)).env("FAR_TOKEN", SECRET);
        let mut driver = lab.background(&["-vv", "run"]);
        lab.converged(1);
        let environ = fs::read_to_string(format!("/proc/{}/environ", lab.pids("far-0")[0])).unwrap();
        assert!(environ.contains(&format!("TOKEN={SECRET}")), "the program did not get it");
        let mut heap = Vec::new();
        for args in [
            &["status", "-o", "json"][..],
            &["plan", "-o", "json"],
            &["explain", "far-0", "-o", "yaml"],
            &["events"],
            &["logs", "far-0"],
            &["validate"],
        ] {
            let output = lab.output(args);
            heap.extend(output.stdout);
            heap.extend(output.stderr);
        }
        let shown = lab.ok(&["logs", "far-0"]);
        assert!(shown.contains("the token is [secret]"), "{shown}");
        // Whoever does not know the secret cannot take it out, and is shown nothing.
        let output = lab.command(&["logs", "far-0"]).env_remove("FAR_TOKEN").output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(output.stdout, b"");
        assert!(String::from_utf8_lossy(&output.stderr).contains("FAR_TOKEN is not set"), "{output:?}");
        assert_eq!(driver.terminate(), 0);
        // A driver without the secret adopts the session, and tells none of its output.
        let mut blind = lab.command(&["-vv", "scale", "far=1", "--timeout", "30s"]);
        let output = blind.env_remove("FAR_TOKEN").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        heap.extend(output.stdout);
        heap.extend(output.stderr);
        heap.extend(driver.output().into_bytes());
        heap.extend(lab.all_bytes());
        heap.extend(door.log().into_bytes());
        let heap = String::from_utf8_lossy(&heap);
        assert!(heap.contains("FAR_TOKEN"), "the reference is what is stored");
        let key = fs::read_to_string(door.path("user_key")).unwrap_or_else(|_| TOKEN.to_owned());
        let key = key.lines().nth(1).unwrap_or(TOKEN);
        assert!(!heap.contains(SECRET) && !heap.contains(key) && !heap.contains(TOKEN), "a secret was seen");
        wait("the run to be free", 10, || lab.status()["driver_pid"].is_null());
        lab.destroy();
    }
}
