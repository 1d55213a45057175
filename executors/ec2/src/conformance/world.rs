//! The test world: one process of `tests/world/front.py` for the whole program, and one of its regions for each test.
//! Whoever calls has the rights that the README lists, and no others. Without Python or its packages tests are
//! reported as not run, and fail where `CI` is set.

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

#[derive(Debug)]
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

/// Starts the world, if it does not run yet.
///
/// # Errors
/// There is none, and why.
pub fn ready() -> Result<(), String> {
    world().map(|_| ()).map_err(str::to_owned)
}

fn start() -> Result<World, String> {
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests");
    let setup = Command::new(tests.join("setup")).stderr(Stdio::inherit()).output();
    let setup = setup.map_err(|error| {
        format!("cannot run {}: {error}; the world comes with the sources", tests.join("setup").display())
    })?;
    if !setup.status.success() {
        return Err(format!(
            "{} failed: python3 with venv, and PyPI or a mirror of it, are needed",
            tests.join("setup").display()
        ));
    }
    let python = String::from_utf8_lossy(&setup.stdout).trim().to_owned();
    let mut process = Command::new(python)
        // Nothing is written into the sources.
        .arg("-B")
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

/// The actions that the README's policy grants.
pub fn granted() -> Vec<String> {
    let readme = include_str!("../../README.md");
    let policy = readme.split_once("```json").and_then(|(_, rest)| rest.split_once("```"));
    let policy: Value = serde_json::from_str(policy.expect("the README shows the policy").0).unwrap();
    let statements = policy["Statement"].as_array().unwrap().iter();
    let actions = statements.flat_map(|statement| match &statement["Action"] {
        Value::Array(several) => several.clone(),
        one => vec![one.clone()],
    });
    actions.map(|action| action.as_str().unwrap().trim_start_matches("ec2:").to_owned()).collect()
}

/// One region, for one test; empty and well-behaved when taken.
#[derive(Debug)]
pub struct Region {
    /// Its name, such as `us-east-1`.
    pub name: &'static str,
    world: &'static World,
}

/// An instance as the world itself knows it.
#[derive(Clone, Debug)]
pub struct Truth {
    /// `i-...`.
    pub id: String,
    /// In EC2's words.
    pub state: String,
    /// Its instance type.
    pub kind: String,
    /// Its zone.
    pub zone: String,
    /// Whose it is, as its tags say.
    pub owner: Option<AttemptKey>,
    /// All of its tags.
    pub tags: Value,
    /// In base64, as it was sent.
    pub user_data: Option<String>,
}

impl Region {
    /// A region, once one is free. `None` if there is no world: the test is then reported as not run.
    ///
    /// # Panics
    /// There is no world, and `CI` is set.
    pub fn take() -> Option<Self> {
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
        region.reset();
        Some(region)
    }

    /// Empties the region; it behaves well again.
    pub fn reset(&self) {
        self.steer(&json!({ "reset": true, "config": { "allowed": granted() } }));
    }

    /// The address of its API.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.world.port)
    }

    /// Its port, which is also the one that booted instances answer on.
    pub fn port(&self) -> u16 {
        self.world.port
    }

    /// Steers the region; what it says. See `tests/world/front.py`.
    pub fn steer(&self, wish: &Value) -> Value {
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

    /// From now on running instances answer at their address, on [`port`](Self::port), with their own user data.
    pub fn boots(&self) {
        self.config(&json!({ "addresses": self.network(), "boot": true }));
    }

    /// The `nth` address, from 1, that instances get in a region that [boots](Self::boots) them.
    pub fn address(&self, nth: usize) -> String {
        format!("{}{nth}", self.network())
    }

    fn network(&self) -> String {
        let place = REGIONS.iter().position(|name| *name == self.name).unwrap();
        format!("127.77.{place}.")
    }

    /// Changes its nature, see `DEFAULTS` in `tests/world/nature.py`.
    pub fn config(&self, config: &Value) {
        self.steer(&json!({ "config": config }));
    }

    /// Replaces the faults.
    pub fn faults(&self, rules: &Value) {
        self.steer(&json!({ "rules": rules }));
    }

    /// Every instance that there is or was, whatever listings show.
    pub fn instances(&self) -> Vec<Truth> {
        let told = self.steer(&json!({}));
        told["instances"].as_array().unwrap().iter().map(truth).collect()
    }

    /// Those that still cost something.
    pub fn living(&self) -> Vec<Truth> {
        let mut living = self.instances();
        living.retain(|one| !matches!(one.state.as_str(), "terminated" | "shutting-down"));
        living
    }

    /// The one that lives.
    pub fn the_only_one(&self) -> Truth {
        let living = self.living();
        assert_eq!(living.len(), 1, "{living:?}");
        living.into_iter().next().unwrap()
    }

    /// How often each fault has happened, in their order.
    pub fn fired(&self) -> Vec<u64> {
        let told = self.steer(&json!({}));
        told["fired"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).collect()
    }

    /// How many calls of an action have come in.
    pub fn calls(&self, action: &str) -> usize {
        let told = self.steer(&json!({}));
        told["log"].as_array().unwrap().iter().filter(|entry| entry["action"] == action).count()
    }

    /// The different tokens of all launches, rehearsals left out.
    pub fn tokens(&self) -> std::collections::BTreeSet<String> {
        let told = self.steer(&json!({}));
        let log = told["log"].as_array().unwrap().iter();
        let launches = log.filter(|entry| entry["action"] == "RunInstances" && entry["dry"] == false);
        launches.filter_map(|entry| Some(entry["token"].as_str()?.to_owned())).collect()
    }

    /// Its subnets, in order of zone.
    pub fn subnets(&self) -> Vec<(String, String)> {
        let told = self.steer(&json!({ "subnets": true }));
        let subnets = told["subnets"].as_object().unwrap().iter();
        let mut subnets: Vec<_> =
            subnets.map(|(id, zone)| (id.clone(), zone.as_str().unwrap().to_owned())).collect();
        subnets.sort_by(|a, b| a.1.cmp(&b.1));
        subnets
    }

    /// A security group of its default network.
    pub fn security_group(&self) -> String {
        let told = self.steer(&json!({ "subnets": true }));
        told["security_group"].as_str().unwrap().to_owned()
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
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let _ = writeln!(std::io::stderr(), "NOT RUN: {test}: no EC2 test world: {why}");
    assert!(std::env::var_os("CI").is_none(), "{test} was not run, and this is CI: {why}");
}
