//! A secret given by reference reaches its program and nothing else. Searched for, everywhere.

use crate::lab::{Lab, wait};

const SECRET: &str = "hunter2-Zq8xW1-never-to-be-seen";

fn contains(heap: &[u8], needle: &str) -> bool {
    heap.windows(needle.len()).any(|window| window == needle.as_bytes())
}

#[test]
fn a_secret_reaches_its_program_and_no_file_output_or_error() {
    let text = r#"run: secret
groups:
  - name: web
    count: 1
    provider: process
    shape: { ports: [http] }
    boot:
      command: ["{self}", "demo-node", "--port", "{port.http}"]
      env: { TOKEN: { from_env: DEMO_TOKEN } }
      ready: { http: "http://127.0.0.1:{port.http}/healthz", every: 50ms }
  - name: leak
    count: 1
    provider: process
    boot:
      command: [sh, -c, 'echo "token is $TOKEN"; echo "again $TOKEN" >&2; exit 3']
      env: { TOKEN: { from_env: DEMO_TOKEN } }
      ready: { log: never-said }
retry: { initial: 200ms }
"#;
    let lab = Lab::with(text).env("DEMO_TOKEN", SECRET);
    let run = lab.background(&["-vv", "run"]);
    wait("the good node, and two failures of the leaking one", 20, || {
        lab.try_status().is_some_and(|status| {
            let nodes = status["nodes"].as_array().unwrap();
            nodes.iter().any(|n| n["id"] == "web-0" && n["ready"] == true)
                && nodes.iter().any(|n| n["id"] == "leak-0" && n["failures"].as_u64() >= Some(2))
        })
    });
    let pid = lab.pids("web-0")[0];
    let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    assert!(contains(&environ, &format!("TOKEN={SECRET}")), "the program did not get it");

    let mut heap = Vec::new();
    for args in [
        &["status", "-o", "json"][..],
        &["status"],
        &["plan"],
        &["plan", "-o", "json"],
        &["explain", "leak-0"],
        &["explain", "web-0", "-o", "yaml"],
        &["logs", "web-0"],
        &["logs", "leak-0"],
        &["logs", "leak-0", "--previous"],
        &["validate"],
    ] {
        let output = lab.output(args);
        heap.extend(output.stdout);
        heap.extend(output.stderr);
    }
    heap.extend(run.output().into_bytes());
    heap.extend(lab.all_bytes());
    assert!(contains(&heap, "DEMO_TOKEN"), "the reference is what is stored");
    assert!(!contains(&heap, SECRET), "the secret was seen");
}

#[test]
fn a_missing_secret_names_its_reference() {
    let text = "run: unset\ngroups:\n  - name: web\n    count: 1\n    provider: process\n    boot:\n      \
                command: [sleep, '100']\n      env: { TOKEN: { from_env: RECONCILER_TEST_UNSET } }\n";
    let lab = Lab::with(text);
    let said = lab.output(&["apply", "-q", "--timeout", "2s"]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("RECONCILER_TEST_UNSET"), "{said}");
}
