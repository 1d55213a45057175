//! The test world: one process of `tests/world/front.py` for the whole test program, and one of its regions for
//! each test. Without Python or its packages the tests are reported as not run, and fail where `CI` is set.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::Duration;

use executor_api::{AttemptKey, LogicalNodeId, NodeAttemptId, RunId, labels};
use serde_json::{Value, json};

/// Regions that tests take turns in.
const REGIONS: [&str; 8] = [
    "us-east-1",
    "us-east-2",
    "us-west-1",
    "us-west-2",
    "eu-west-1",
    "eu-central-1",
    "ap-south-1",
    "ap-northeast-1",
];

struct World {
    /// Ends when its standard input closes, which is when this process ends.
    _process: Child,
    port: u16,
    free: Mutex<Vec<&'static str>>,
    returned: Condvar,
}

/// The world of this process, or why there is none.
fn world() -> Result<&'static World, &'static str> {
    static WORLD: OnceLock<Result<World, String>> = OnceLock::new();
    WORLD.get_or_init(start).as_ref().map_err(String::as_str)
}

fn start() -> Result<World, String> {
    // Kept by the test harness, and shown with a test that fails.
    let _ = tracing_subscriber::fmt().with_test_writer().try_init();
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests");
    let setup = Command::new(tests.join("setup")).stderr(Stdio::inherit()).output();
    let setup = setup.map_err(|error| format!("cannot run tests/setup: {error}"))?;
    if !setup.status.success() {
        return Err("tests/setup failed: python3 with venv and PyPI are needed".to_owned());
    }
    let python = String::from_utf8_lossy(&setup.stdout).trim().to_owned();
    let mut process = Command::new(python)
        .arg(tests.join("world/front.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start the world: {error}"))?;
    let mut line = String::new();
    let output = process.stdout.take().ok_or("the world has no output")?;
    BufReader::new(output)
        .read_line(&mut line)
        .map_err(|error| format!("the world says nothing: {error}"))?;
    let port = line.trim().strip_prefix("ready ").and_then(|port| port.parse().ok());
    let port = port.ok_or_else(|| format!("the world said {line:?} instead of `ready PORT`"))?;
    Ok(World { _process: process, port, free: Mutex::new(REGIONS.to_vec()), returned: Condvar::new() })
}

/// One region, for one test; empty and well-behaved when taken.
pub(crate) struct Region {
    pub(crate) name: &'static str,
    world: &'static World,
}

/// An instance as the world itself knows it.
#[derive(Clone, Debug)]
pub(crate) struct Truth {
    pub(crate) id: String,
    pub(crate) state: String,
    pub(crate) kind: String,
    pub(crate) zone: String,
    pub(crate) owner: Option<AttemptKey>,
    pub(crate) tags: Value,
    pub(crate) user_data: Option<String>,
}

impl Region {
    /// A region, once one is free. `None` if there is no world: the test is then reported as not run.
    pub(crate) fn take() -> Option<Self> {
        let world = match world() {
            Ok(world) => world,
            Err(why) => {
                not_run(why);
                return None;
            }
        };
        let mut free = world.free.lock().unwrap();
        let name = loop {
            match free.pop() {
                Some(name) => break name,
                None => free = world.returned.wait(free).unwrap(),
            }
        };
        drop(free);
        let region = Self { name, world };
        region.steer(&json!({ "reset": true }));
        Some(region)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.world.port)
    }

    /// Steers the region; what it says.
    pub(crate) fn steer(&self, wish: &Value) -> Value {
        let body = wish.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.world.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        write!(
            stream,
            "POST /_world/{} HTTP/1.1\r\nHost: world\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.name,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "the world refused {wish}: {answer}");
        serde_json::from_str(body).unwrap()
    }

    pub(crate) fn config(&self, config: &Value) {
        self.steer(&json!({ "config": config }));
    }

    /// Replaces the faults.
    pub(crate) fn faults(&self, rules: &Value) {
        self.steer(&json!({ "rules": rules }));
    }

    /// Every instance that there is or was, whatever listings show.
    pub(crate) fn instances(&self) -> Vec<Truth> {
        let told = self.steer(&json!({}));
        told["instances"].as_array().unwrap().iter().map(truth).collect()
    }

    /// Those that still cost something.
    pub(crate) fn living(&self) -> Vec<Truth> {
        let mut living = self.instances();
        living.retain(|one| !matches!(one.state.as_str(), "terminated" | "shutting-down"));
        living
    }

    /// The one that lives.
    pub(crate) fn the_only_one(&self) -> Truth {
        let living = self.living();
        assert_eq!(living.len(), 1, "{living:?}");
        living.into_iter().next().unwrap()
    }

    /// How many calls of an action have come in.
    pub(crate) fn calls(&self, action: &str) -> usize {
        let told = self.steer(&json!({}));
        told["log"].as_array().unwrap().iter().filter(|entry| entry["action"] == action).count()
    }

    /// The different tokens of all launches.
    pub(crate) fn tokens(&self) -> std::collections::BTreeSet<String> {
        let told = self.steer(&json!({}));
        let log = told["log"].as_array().unwrap().iter();
        let launches = log.filter(|entry| entry["action"] == "RunInstances");
        launches.filter_map(|entry| Some(entry["token"].as_str()?.to_owned())).collect()
    }

    /// Its subnets, in order of zone.
    pub(crate) fn subnets(&self) -> Vec<(String, String)> {
        let told = self.steer(&json!({ "subnets": true }));
        let subnets = told["subnets"].as_object().unwrap().iter();
        let mut subnets: Vec<_> =
            subnets.map(|(id, zone)| (id.clone(), zone.as_str().unwrap().to_owned())).collect();
        subnets.sort_by(|a, b| a.1.cmp(&b.1));
        subnets
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.world.free.lock().unwrap().push(self.name);
        self.world.returned.notify_one();
    }
}

fn truth(value: &Value) -> Truth {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let tag = |key: &str| value["tags"][key].as_str().map(str::to_owned);
    let owner = || {
        Some(AttemptKey {
            run: RunId::new(tag(labels::RUN)?, tag(labels::RUN_UID)?).ok()?,
            node: LogicalNodeId::parse(tag(labels::NODE)?).ok()?,
            attempt: NodeAttemptId(tag(labels::ATTEMPT)?.parse().ok()?),
        })
    };
    Truth {
        id: text("id"),
        state: text("state"),
        kind: text("type"),
        zone: text("zone"),
        owner: owner(),
        tags: value["tags"].clone(),
        user_data: value["user_data"].as_str().map(str::to_owned),
    }
}

/// Says so past the test harness, which keeps the words of passing tests to itself.
fn not_run(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "NOT RUN: {test}: no EC2 test world: {why}");
    assert!(std::env::var_os("CI").is_none(), "{test} was not run, and this is CI: {why}");
}
