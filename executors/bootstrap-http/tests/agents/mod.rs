//! A node agent on loopback: in this process, or in one of its own that can be killed.

#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    unreachable_pub,
    reason = "test code, of which each test crate uses its own part"
)]

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bootstrap_hosted::{HostedBootstrapper, HostedConfig};
use bootstrap_http::{Agent, AgentConfig, AgentTls, AgentTransport};
use executor_api::{Bootstrapper, Endpoint, EndpointAuth, SecretRef};
use serde_json::{Value, json};

use crate::support::World;

pub const TOKEN: &str = "a-token-that-only-tests-know";

pub struct AgentWorld {
    pub dir: tempfile::TempDir,
    pub address: SocketAddr,
    /// Added to every `connect`.
    pub connect: Value,
    pub denied_for: Duration,
    task: Option<tokio::task::JoinHandle<()>>,
    process: Option<Child>,
}

impl AgentWorld {
    /// An agent with a certificate, in this process.
    pub async fn new() -> Option<Self> {
        let mut world = Self::empty();
        let agent = Agent::bind(world.config("127.0.0.1:0".parse().unwrap(), true)).await.unwrap();
        world.address = agent.address();
        world.connect = json!({ "ca": world.path("cert.pem"), "server_name": "agent.test" });
        world.task = Some(tokio::spawn(async move { agent.run().await.unwrap() }));
        Some(world)
    }

    /// An agent without TLS, in a process of its own.
    pub fn process() -> Self {
        let mut world = Self::empty();
        world.connect = json!({ "plain": true });
        world.spawn("127.0.0.1:0");
        world
    }

    fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), format!("{TOKEN}\n")).unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["agent.test".to_owned()]).unwrap();
        std::fs::write(dir.path().join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(dir.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        Self {
            dir,
            address: "127.0.0.1:1".parse().unwrap(),
            connect: json!({}),
            denied_for: Duration::from_secs(90),
            task: None,
            process: None,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn config(&self, listen: SocketAddr, tls: bool) -> AgentConfig {
        let tls = tls.then(|| AgentTls { certificate: self.path("cert.pem"), key: self.path("key.pem") });
        AgentConfig {
            listen,
            dir: self.path("host"),
            token: SecretRef::FromFile(self.path("token")),
            tls,
            plain: false,
        }
    }

    /// Starts the agent's process, and waits until it listens.
    pub fn spawn(&mut self, listen: &str) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bootstrap-agent"))
            .arg(listen)
            .args([self.path("host"), self.path("token")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.address = line.trim().strip_prefix("listening on ").expect("the agent listens").parse().unwrap();
        self.process = Some(child);
    }

    /// Kills the agent's process with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

impl World for AgentWorld {
    fn instance(&self) -> Arc<dyn Bootstrapper> {
        let config = HostedConfig {
            poll: Duration::from_millis(100),
            watch: Duration::from_millis(300),
            denied_for: self.denied_for,
            late_landing: Duration::from_secs(2),
            ..HostedConfig::new(self.dir.path().join("records"))
        };
        Arc::new(HostedBootstrapper::new(AgentTransport::default(), config))
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint {
            host: self.address.ip().to_string(),
            port: self.address.port(),
            auth: EndpointAuth::Token(SecretRef::FromFile(self.path("token"))),
            ports: [].into(),
        }
    }

    fn settings(&self, mut boot: Value) -> Value {
        boot["connect"] = self.connect.clone();
        boot
    }
}

impl Drop for AgentWorld {
    fn drop(&mut self) {
        self.kill();
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}
