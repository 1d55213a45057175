//! A transport to this very machine that can be told to fail.

#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    unreachable_pub,
    reason = "test code, of which each test crate uses its own part"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bootstrap_hosted::host::local::LocalRunner;
use bootstrap_hosted::host::script::{Ran, Runner, ScriptHost};
use bootstrap_hosted::{Content, Host, HostError, HostedBootstrapper, HostedConfig, Pin, Transport};
use executor_api::{Bootstrapper, Endpoint, EndpointAuth, ProviderName, SpecProblem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::support::World;

/// What goes wrong on the way to the host.
#[derive(Debug, Default)]
pub struct Faults {
    pub unreachable: AtomicBool,
    pub denied: AtomicBool,
    pub wrong_host: AtomicBool,
    /// So many answers are lost after the act.
    pub lose_answers: AtomicU32,
    /// The host answers, and cancels get nowhere.
    pub lose_cancels: AtomicBool,
}

#[derive(Debug)]
struct Local {
    root: PathBuf,
    faults: Arc<Faults>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Debug)]
struct Faulty {
    runner: LocalRunner,
    faults: Arc<Faults>,
}

#[async_trait]
impl Runner for Faulty {
    async fn run(&self, command: &str, input: Content, limit: usize) -> Result<Ran, HostError> {
        if self.faults.lose_cancels.load(Ordering::SeqCst) && command.contains(" cancel ") {
            return Err(HostError::Broken("the cancel was lost".into()));
        }
        let ran = self.runner.run(command, input, limit).await;
        let lost = |left: u32| left.checked_sub(1);
        if self.faults.lose_answers.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lost).is_ok() {
            return Err(HostError::Broken("the answer was lost".into()));
        }
        ran
    }
}

#[async_trait]
impl Transport for Local {
    type Settings = Nothing;

    fn name(&self) -> ProviderName {
        ProviderName::new("local").unwrap()
    }

    fn check(&self, _: &Nothing) -> Vec<SpecProblem> {
        Vec::new()
    }

    async fn connect(&self, _: &Endpoint, _: &Nothing, _: Pin<'_>) -> Result<Box<dyn Host>, HostError> {
        if self.faults.unreachable.load(Ordering::SeqCst) {
            return Err(HostError::Unreachable("nobody answers".into()));
        }
        if self.faults.denied.load(Ordering::SeqCst) {
            return Err(HostError::Denied("the key is refused".into()));
        }
        if self.faults.wrong_host.load(Ordering::SeqCst) {
            return Err(HostError::WrongHost("another host answers".into()));
        }
        let runner = Faulty { runner: LocalRunner::new(self.root.clone()), faults: Arc::clone(&self.faults) };
        Ok(Box::new(ScriptHost::install(runner).await?))
    }
}

pub struct LocalWorld {
    pub dir: tempfile::TempDir,
    pub faults: Arc<Faults>,
}

impl LocalWorld {
    #[expect(clippy::unused_async, reason = "worlds are made asynchronously")]
    pub async fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("host")).unwrap();
        Some(Self { dir, faults: Arc::default() })
    }

    pub fn with(&self, records: &str, denied_for: Duration) -> Arc<dyn Bootstrapper> {
        let transport = Local { root: self.dir.path().join("host"), faults: Arc::clone(&self.faults) };
        let config = HostedConfig {
            poll: Duration::from_millis(50),
            watch: Duration::from_millis(200),
            denied_for,
            ..HostedConfig::new(self.dir.path().join(records))
        };
        Arc::new(HostedBootstrapper::new(transport, config))
    }
}

impl World for LocalWorld {
    fn instance(&self) -> Arc<dyn Bootstrapper> {
        self.with("records", Duration::from_secs(90))
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint { host: "localhost".into(), port: 22, auth: EndpointAuth::None, ports: [].into() }
    }

    fn settings(&self, boot: Value) -> Value {
        boot
    }
}
