//! A desk to work at: a state directory of its own, plans beside their hosts, and the real binary.
#![expect(clippy::unwrap_used, reason = "a test that cannot look has failed")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Everything happens quickly, so that a run in real time takes a few seconds.
const QUICK: &str =
    "  pace: { operation: 50ms, flip_step: 50ms, pods: 300ms, probe: 100ms, handshake: 100ms }\n";

pub(crate) struct Desk {
    dir: tempfile::TempDir,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_reconciler"));
        command.arg("maintenance").args(args).env("RECONCILER_STATE_DIR", self.path("state"));
        command.env("USER", "tester").stdin(Stdio::null());
        command
    }

    /// Exit code, and both outputs.
    pub(crate) fn run(&self, args: &[&str]) -> (i32, String) {
        let Output { status, stdout, stderr } = self.command(args).output().unwrap();
        let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        (status.code().unwrap(), text)
    }

    /// A command that must end with this code.
    pub(crate) fn ends(&self, code: i32, args: &[&str]) -> String {
        let (found, text) = self.run(args);
        assert_eq!(found, code, "maintenance {}: {text}", args.join(" "));
        text
    }

    /// A plan as the example of this name, on hosts that are quick, with these lines changed.
    pub(crate) fn plan(&self, example: &str, edit: impl Fn(&str) -> String) -> String {
        self.plan_on(example, edit, str::to_owned)
    }

    /// The same, with the hosts' file changed as well.
    pub(crate) fn plan_on(
        &self,
        name: &str,
        edit: impl Fn(&str) -> String,
        hosts: impl Fn(&str) -> String,
    ) -> String {
        let text = std::fs::read_to_string(example(&format!("{name}-hosts.yaml"))).unwrap();
        let text = hosts(&text.replacen("world:\n", &format!("world:\n{QUICK}"), 1));
        std::fs::write(self.path(&format!("{name}-hosts.yaml")), text).unwrap();
        let text = edit(&std::fs::read_to_string(example(&format!("{name}.yaml"))).unwrap());
        let path = self.path("plan.yaml");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The plan that freezes: one copy is written to behind its back, once the copies are apart.
    pub(crate) fn broken(&self, incidents: &str) -> String {
        self.plan_on("bond-flip-broken", str::to_owned, |hosts| {
            // Long after the disconnects, and before the pods are gone.
            let hosts = hosts.replace("pods: 300ms", "pods: 1s").replace("at: 12s", "at: 3s");
            format!("{hosts}{incidents}")
        })
    }

    pub(crate) fn drive(&self, plan: &str) -> Driving {
        let mut command = self.command(&["run", plan, "--approve"]);
        Driving(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn status(&self, plan: &str) -> Option<Value> {
        let (_, text) = self.run(&["status", plan, "-o", "json"]);
        serde_json::from_str(&text).ok()
    }

    /// The fingerprint of the open question of this number, once it is asked.
    pub(crate) fn question(&self, plan: &str, number: u64) -> String {
        until("a question", || {
            let question = &self.status(plan)?["question"];
            (question["sequence"] == number).then(|| question["fingerprint"].as_str().map(str::to_owned))?
        })
    }
}

/// A process that drives a plan. Ended at the latest with the test.
pub(crate) struct Driving(pub(crate) Child);

impl Driving {
    pub(crate) fn ends(&mut self) -> Option<i32> {
        until("the driving process to end", || self.0.try_wait().unwrap()).code()
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn example(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    root.join(name).to_str().unwrap().to_owned()
}

/// Looks again and again, for two minutes at most.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_mins(2);
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
