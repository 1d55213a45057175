//! A place to try the real binary: a state directory of its own, a cluster file, and eyes for processes and ports.
//! Waits are bounded and end as soon as the level is reached. Whatever is left is ended on drop.
#![expect(clippy::unwrap_used, reason = "a test that cannot look has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct Lab {
    dir: TempDir,
    state: PathBuf,
    env: Vec<(String, String)>,
    backgrounds: AtomicU32,
}

/// A `reconciler` process in the background, its output in files.
pub(crate) struct Background {
    pub(crate) child: Child,
    out: PathBuf,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        Self { dir, state, env: Vec::new(), backgrounds: AtomicU32::new(0) }
    }

    /// A lab in which the cluster file says this.
    pub(crate) fn with(text: &str) -> Self {
        let lab = Self::new();
        lab.write(text);
        lab
    }

    pub(crate) fn env(mut self, key: &str, value: &str) -> Self {
        self.env.push((key.to_owned(), value.to_owned()));
        self
    }

    /// With its state somewhere else.
    pub(crate) fn keeping_state_in(mut self, state: PathBuf) -> Self {
        self.state = state;
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn state_dir(&self) -> &Path {
        &self.state
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("cluster.yaml")
    }

    /// Replaces the cluster file in one step, as careful editors do.
    pub(crate) fn write(&self, text: &str) {
        let new = self.dir.path().join("cluster.yaml.new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.file()).unwrap();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_reconciler"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("RECONCILER_STATE_DIR", &self.state)
            // One registry for all tests: they run at the same time and must not pick each other's ports.
            .env("RECONCILER_PORTS_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("ports"))
            .envs(self.env.iter().map(|(key, value)| (key, value)))
            .env_remove("RUST_LOG")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that must end with this code; both of its outputs.
    pub(crate) fn ends(&self, code: i32, args: &[&str]) -> String {
        let output = self.output(args);
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "reconciler {}: {text}", args.join(" "));
        text
    }

    pub(crate) fn ok(&self, args: &[&str]) -> String {
        self.ends(0, args)
    }

    pub(crate) fn background(&self, args: &[&str]) -> Background {
        let out = self.dir.path().join(format!("out-{}", self.backgrounds.fetch_add(1, Ordering::Relaxed)));
        let file = fs::File::create(&out).unwrap();
        let child = self.command(args).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Background { child, out }
    }

    /// `run` in the background, driving already.
    pub(crate) fn run(&self) -> Background {
        let background = self.background(&["run"]);
        let drives = || self.try_status().is_some_and(|status| status["driver_pid"] == background.child.id());
        wait_or("run to drive", 10, drives, || background.output());
        background
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&self.ok(&["status", "-o", "json"])).unwrap()
    }

    pub(crate) fn try_status(&self) -> Option<Value> {
        serde_json::from_slice(&self.output(&["status", "-o", "json"]).stdout).ok()
    }

    pub(crate) fn explain(&self, node: &str) -> Value {
        serde_json::from_str(&self.ok(&["explain", node, "-o", "json"])).unwrap()
    }

    /// Waits until this many nodes exist, all ready, and the run has converged on its latest generation.
    pub(crate) fn converged(&self, nodes: usize) -> Value {
        let mut last = Value::Null;
        wait_or(
            &format!("{nodes} nodes to be ready"),
            30,
            || {
                last = self.try_status().unwrap_or_default();
                let all = last["nodes"].as_array().cloned().unwrap_or_default();
                last["converged"] == true
                    && all.len() == nodes
                    && all.iter().all(|node| node["ready"] == true)
            },
            || format!("{:#}", self.try_status().unwrap_or_default()),
        );
        last
    }

    /// Attempt by node.
    pub(crate) fn attempts(&self) -> BTreeMap<String, u64> {
        attempts(&self.status())
    }

    /// The processes of a node, its supervisor not counted.
    pub(crate) fn pids(&self, node: &str) -> Vec<i32> {
        let uid = self.status()["uid"].as_str().unwrap().to_owned();
        processes(&uid, Some(node))
    }

    pub(crate) fn destroy(&self) {
        self.ok(&["destroy", "-y", "-q", "--timeout", "30s"]);
    }

    /// Everything below the state directory and in the outputs, as one heap of bytes.
    pub(crate) fn all_bytes(&self) -> Vec<u8> {
        fn collect(path: &Path, into: &mut Vec<u8>) {
            for entry in fs::read_dir(path).into_iter().flatten().flatten() {
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    collect(&entry.path(), into);
                } else if kind.is_file() {
                    into.extend(fs::read(entry.path()).unwrap_or_default());
                }
            }
        }
        let mut heap = Vec::new();
        collect(self.dir.path(), &mut heap);
        heap
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A failed test leaves nodes; they must not outlive it.
        for run in fs::read_dir(&self.state).into_iter().flatten().flatten() {
            let name = run.file_name().to_string_lossy().into_owned();
            if name.starts_with("maintenance-") {
                // A plan has no nodes.
                continue;
            }
            // An operation that a killed driver left is waited out in full: half a minute.
            let output = self.output(&["--run", &name, "destroy", "-y", "-q", "--timeout", "60s"]);
            assert!(
                output.status.success() || std::thread::panicking(),
                "nodes of {name} are left: {output:?}"
            );
        }
    }
}

impl Background {
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, at once.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; the exit code.
    pub(crate) fn terminate(&mut self) -> i32 {
        signal(i32::try_from(self.child.id()).unwrap(), "TERM");
        self.wait()
    }

    /// The exit code, within a bound.
    pub(crate) fn wait(&mut self) -> i32 {
        let mut code = None;
        wait("a background command to end", 30, || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        code.unwrap().code().unwrap()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // In good order, so that the next driver need not wait out what this one was doing.
        if let Ok(None) = self.child.try_wait() {
            let _ = Command::new("kill").arg(self.child.id().to_string()).status();
            let deadline = Instant::now() + Duration::from_secs(5);
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn attempts(status: &Value) -> BTreeMap<String, u64> {
    let nodes = status["nodes"].as_array().unwrap();
    nodes
        .iter()
        .filter_map(|node| Some((node["id"].as_str().unwrap().to_owned(), node["attempt"].as_u64()?)))
        .collect()
}

/// Waits for a level, within a bound of seconds.
pub(crate) fn wait(what: &str, seconds: u64, reached: impl FnMut() -> bool) {
    wait_or(what, seconds, reached, String::new);
}

/// As [`wait`]; says what was there instead.
pub(crate) fn wait_or(
    what: &str,
    seconds: u64,
    mut reached: impl FnMut() -> bool,
    instead: impl FnOnce() -> String,
) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while !reached() {
        assert!(Instant::now() < deadline, "waited {seconds} s in vain for {what}; {}", instead());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The living processes that carry a run's uid, and a node's name if given. Zombies are not alive; supervisors
/// carry no marker in their environment.
pub(crate) fn processes(uid: &str, node: Option<&str>) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let Ok(environ) = fs::read(entry.path().join("environ")) else { continue };
        let environ = String::from_utf8_lossy(&environ).into_owned();
        let mut vars = environ.split('\0');
        let of_run = vars.clone().any(|var| var == format!("RECONCILER_RUN_UID={uid}"));
        let of_node = node.is_none_or(|node| vars.any(|var| var == format!("RECONCILER_NODE={node}")));
        if of_run && of_node && is_alive(pid) {
            found.push(pid);
        }
    }
    found
}

pub(crate) fn is_alive(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim().starts_with('Z'))
}

/// Everything alive whose command line names this path: supervisors among them.
pub(crate) fn named_in_command_lines(path: &Path) -> Vec<String> {
    let needle = path.to_string_lossy().into_owned();
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if name != own && line.contains(&needle) {
            found.push(format!("{name}: {line}"));
        }
    }
    found
}

pub(crate) fn signal(pid: i32, name: &str) {
    let done = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(done.success(), "kill -{name} {pid}");
}

/// The body of a plain HTTP answer, or nothing.
pub(crate) fn get(endpoint: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(endpoint).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {endpoint}\r\nconnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

/// A group of demo nodes, with quick probes and no wait before healing. `more` is added to the group.
pub(crate) fn web(run: &str, count: u32, more: &str) -> String {
    format!(
        r#"run: {run}
groups:
  - name: web
    count: {count}
    role: worker
    provider: process
    shape: {{ ports: [http] }}
    boot:
      command: ["{{self}}", "demo-node", "--port", "{{port.http}}"]
      ready: {{ http: "http://127.0.0.1:{{port.http}}/healthz", every: 50ms }}
      stop: {{ grace: 2s }}
    join: {{ within: 20s }}
{more}
retry: {{ stable_after: 0s }}
"#
    )
}
