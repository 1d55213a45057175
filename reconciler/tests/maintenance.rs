//! `reconciler maintenance` as a person uses it, on the simulated hosts of `examples/`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Desk {
    state: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        Self { state: tempfile::tempdir().unwrap() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_reconciler"));
        command.arg("maintenance").args(args).env("RECONCILER_STATE_DIR", self.state.path());
        command.env("USER", "tester").stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> (i32, String) {
        let Output { status, stdout, stderr } = self.command(args).output().unwrap();
        let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        (status.code().unwrap(), text)
    }
}

fn example(name: &str) -> String {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    root.join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_plan_is_rehearsed_looked_at_refused_without_approval_and_carried_out() {
    let (desk, plan) = (Desk::new(), example("bond-flip.yaml"));
    let (code, text) = desk.run(&["plan", &plan]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("Complete") && text.contains("0 lost, 0 breaches"), "{text}");
    let (code, text) = desk.run(&["run", &plan, "--observe", "--fast"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("yes hosts ready") && text.contains("next: enter PreconditionsCheck"), "{text}");
    let (code, text) = desk.run(&["run", &plan, "--fast"]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("--approve"), "{text}");
    assert_eq!(desk.run(&["status", &plan]).0, 4, "nothing was begun");
    let (code, text) = desk.run(&["run", &plan, "--fast", "--approve", "-o", "json"]);
    assert_eq!(code, 0, "{text}");
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["phase"], "Complete", "{text}");
    let (code, text) = desk.run(&["status", &plan, "-o", "json"]);
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &status["label"]), (0, &serde_json::json!("Complete")));
    assert!(status["timeline"].as_array().unwrap().len() > 30);
    let (code, text) = desk.run(&["run", &plan, "--fast", "--approve"]);
    assert_eq!(code, 3, "{text}");
    assert_eq!(desk.run(&["run", &plan, "--fast", "--approve", "--again"]).0, 0);
}

#[test]
fn a_plan_without_an_io_policy_is_refused() {
    let desk = Desk::new();
    let plan = desk.state.path().join("plan.yaml");
    let text = std::fs::read_to_string(example("bond-flip.yaml")).unwrap();
    let text: Vec<_> = text.lines().filter(|line| !line.starts_with("io:")).collect();
    std::fs::write(&plan, text.join("\n")).unwrap();
    let (code, text) = desk.run(&["plan", plan.to_str().unwrap()]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("io"), "{text}");
}

#[test]
fn a_frozen_plan_asks_and_is_answered_from_another_process() {
    let (desk, plan) = (Desk::new(), example("bond-flip-broken.yaml"));
    let mut driving = desk.command(&["run", &plan, "--approve"]).stdout(Stdio::null()).spawn().unwrap();
    let fingerprint = until("a question", || {
        let (_, text) = desk.run(&["status", &plan, "-o", "json"]);
        let status: serde_json::Value = serde_json::from_str(&text).ok()?;
        status["question"]["fingerprint"].as_str().map(str::to_owned)
    });
    let (code, text) = desk.run(&["status", &plan]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("answer with:") && text.contains("driven by process"), "{text}");
    let wrong = ["respond", &plan, "--question", "0000000000", "--answer", "hand-over"];
    let (code, text) = desk.run(&wrong);
    assert_eq!(code, 3, "{text}");
    let (code, text) = desk.run(&["respond", &plan, "--question", &fingerprint, "--answer", "roll-back"]);
    assert_eq!(code, 3, "copies that have diverged are not brought together: {text}");
    let (code, text) =
        desk.run(&["respond", &plan, "--question", &fingerprint[..16], "--answer", "hand-over"]);
    assert_eq!((code, text.trim()), (0, "taken: hand-over"));
    let ended = until("the end", || driving.try_wait().unwrap());
    assert_eq!(ended.code(), Some(2));
    let (code, text) = desk.run(&["abort", &plan]);
    assert_eq!(code, 3, "{text}");
}

/// Looks again and again, for two minutes at most.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_mins(2);
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
