//! The executor as the driver is given it: its configuration, and what both traits need of it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::{
    AttemptKey, Bootstrapper, Endpoint, EndpointAuth, Executor, LeaseFacts, LeaseId, LeaseProvider,
    ProviderName,
};

use crate::layout::{self, ExitRecord, LeaseRecord, NodePlace, SessionRecord, file};
use crate::lock;
use crate::ports::Ports;
use crate::template::HOST;

/// How a supervisor is started: a program, and the arguments after which its own follow. The program ends up
/// in [`supervisor::main`](crate::supervisor::main) with the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupervisorCommand {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Its leading arguments.
    pub args: Vec<OsString>,
}

/// Where nodes live and how they are supervised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessConfig {
    /// The run's own nodes directory.
    pub root: PathBuf,
    /// Where ports are claimed; shared by all runs of this user on this machine.
    pub port_registry: PathBuf,
    /// Where ports are taken from; below the range that the kernel gives to outgoing connections.
    pub port_range: std::ops::RangeInclusive<u16>,
    /// How a supervisor is started.
    pub supervisor: SupervisorCommand,
    /// What `{self}` means.
    pub self_program: PathBuf,
}

impl ProcessConfig {
    /// The range used unless there is reason for another.
    pub const DEFAULT_PORT_RANGE: std::ops::RangeInclusive<u16> = 20_000..=29_999;
}

/// The port registry that all of a user's runs share: in the user's runtime directory, or else in the
/// temporary directory under the user's id.
pub fn default_port_registry() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if Path::new(&dir).is_dir() => PathBuf::from(dir).join("reconciler").join("ports"),
        _ => {
            let user = rustix::process::getuid().as_raw();
            std::env::temp_dir().join(format!("reconciler-{user}")).join("ports")
        }
    }
}

/// Lease provider and bootstrapper over real local processes.
#[derive(Debug)]
pub struct ProcessExecutor {
    pub(crate) config: ProcessConfig,
    pub(crate) ports: Ports,
}

impl ProcessExecutor {
    /// An executor over a run's nodes directory. Makes nothing yet.
    pub fn new(mut config: ProcessConfig) -> Self {
        // Supervisors run in `/`, so that no path may depend on where the driver was started.
        for path in [&mut config.root, &mut config.port_registry, &mut config.self_program] {
            if let Ok(absolute) = std::path::absolute(&*path) {
                *path = absolute;
            }
        }
        let ports = Ports::new(config.port_registry.clone(), config.port_range.clone(), config.root.clone());
        Self { config, ports }
    }

    /// Both of its halves, as the driver calls them.
    pub fn executor(self: &Arc<Self>) -> Executor {
        let leases: Arc<dyn LeaseProvider> = Arc::clone(self) as _;
        let bootstrap: Arc<dyn Bootstrapper> = Arc::clone(self) as _;
        Executor::new(leases, bootstrap)
    }

    /// The nodes directory of the run.
    pub fn root(&self) -> &Path {
        &self.config.root
    }

    pub(crate) fn place(&self, key: &AttemptKey) -> NodePlace {
        NodePlace::of(&self.config.root, key)
    }
}

/// The name of both halves.
pub(crate) fn provider_name() -> ProviderName {
    #[expect(clippy::expect_used, reason = "the text is a lowercase word")]
    ProviderName::new("process").expect("`process` is a provider name")
}

/// What a lease record says, as the driver is told it.
pub(crate) fn lease_facts(place: &NodePlace, record: &LeaseRecord) -> LeaseFacts {
    LeaseFacts {
        lease_id: LeaseId(place.id.clone()),
        provider: provider_name(),
        created_at: Some(record.created_at),
        attributes: [("directory".to_owned(), place.dir.display().to_string())].into(),
    }
}

/// Where a lease can be reached: its first port, or port 0 if it has none.
pub(crate) fn endpoint(record: &LeaseRecord) -> Endpoint {
    Endpoint {
        host: HOST.to_owned(),
        port: record.ports.first().map_or(0, |(_, port)| *port),
        auth: EndpointAuth::None,
        ports: record.ports.iter().cloned().collect(),
    }
}

/// Where the session of an attempt is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionLife {
    /// None was ever started.
    None,
    /// It begins: the lock is held and nothing is recorded yet.
    Starting,
    /// Its supervisor lives, and so does the program as far as it has said.
    Live,
    /// The program ended.
    Ended(ExitRecord),
}

impl SessionLife {
    /// Reads it off an attempt's directory.
    pub(crate) fn read(dir: &Path) -> std::io::Result<Self> {
        // In this order: a session that is recorded holds the lock until it is over, and its last record is
        // written before it lets go. The other way round one that begins just now would look like a dead one.
        let session = layout::read_record::<SessionRecord>(dir, file::SESSION)?;
        let held = lock::is_held(dir)?;
        if let Some(exit) = layout::read_record::<ExitRecord>(dir, file::EXIT)? {
            return Ok(Self::Ended(exit));
        }
        Ok(match (session, held) {
            (None, false) => Self::None,
            (None, true) => Self::Starting,
            (Some(_), true) => Self::Live,
            (Some(session), false) => Self::Ended(ExitRecord {
                how: layout::Exit::Unseen,
                at: session.started_at,
                asked: false,
                tail: String::new(),
            }),
        })
    }
}

/// What is left of the time for a call.
pub(crate) fn time_left(deadline: SystemTime) -> Duration {
    deadline.duration_since(SystemTime::now()).unwrap_or_default()
}

/// Whether the time for a call is up.
pub(crate) fn is_over(deadline: SystemTime) -> bool {
    SystemTime::now() >= deadline
}
