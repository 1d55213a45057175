//! The providers that are built in: one row each, behind one Cargo feature each. A new provider is a row here, a
//! feature in `Cargo.toml` and a line in the README; everything else finds it through this table.

use std::path::PathBuf;
use std::sync::Arc;

use executor_api::{Bootstrapper, Executor, RunNodeGroupSpec, SpecProblem, Timer};
use reconciler_core::ClusterShape;
use reconciler_driver::ExecutorTable;
use schemars::{Schema, SchemaGenerator};

#[cfg(feature = "agent")]
mod agent;
#[cfg(feature = "ec2")]
mod ec2;
#[cfg(feature = "fake")]
mod fake;
#[cfg(feature = "bootstrap-probe")]
mod probe;
#[cfg(feature = "process")]
mod process;
#[cfg(feature = "ssh")]
mod ssh;

#[cfg(feature = "process")]
pub use process::SUPERVISE;

/// The rows, in order of name.
pub const PROVIDERS: &[Provider] = &[
    #[cfg(feature = "ec2")]
    ec2::PROVIDER,
    #[cfg(feature = "fake")]
    fake::PROVIDER,
    #[cfg(feature = "process")]
    process::PROVIDER,
];

/// Bootstrappers that any provider's leases may use (`boot: { via: NAME }`), in order of name.
pub const BOOTSTRAPPERS: &[BootstrapperRow] = &[
    #[cfg(feature = "agent")]
    agent::BOOTSTRAPPER,
    #[cfg(feature = "bootstrap-probe")]
    probe::BOOTSTRAPPER,
    #[cfg(feature = "ssh")]
    ssh::BOOTSTRAPPER,
];

/// One bootstrapper that comes without a provider.
#[derive(Clone, Copy, Debug)]
pub struct BootstrapperRow {
    /// The name under which specs ask for it.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Makes it for one run. Reaches nothing yet.
    pub build: fn(&Site) -> Arc<dyn Bootstrapper>,
    /// The schema of the `boot` settings that it takes, without `via`.
    pub boot: fn(&mut SchemaGenerator) -> Schema,
    /// What can show its sessions' output, if they live on their nodes and keep it there.
    #[cfg(any(feature = "agent", feature = "ssh"))]
    pub output: Option<Output>,
}

/// Makes what shows the output of a bootstrapper's sessions, for one run.
#[cfg(any(feature = "agent", feature = "ssh"))]
pub type Output = fn(&Site) -> Arc<dyn bootstrap_hosted::SessionOutput>;

/// One provider.
#[derive(Clone, Copy, Debug)]
pub struct Provider {
    /// The name under which specs ask for it.
    pub name: &'static str,
    /// What its nodes are, in one line.
    pub about: &'static str,
    /// Makes its executor for one run. Reaches nothing yet.
    pub build: fn(&Site) -> Executor,
    /// The schemas of its `shape` and `boot` settings.
    pub settings: fn(&mut SchemaGenerator) -> Settings,
}

/// The schemas of a provider's own settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of `shape`.
    pub shape: Schema,
    /// Of `boot`, without `via`.
    pub boot: Schema,
}

/// Where a run's providers keep what they need on this machine.
#[derive(Clone, Debug)]
pub struct Site {
    /// The run's own directory for local nodes.
    pub nodes: PathBuf,
    /// The run's own directory for the records of bootstrap sessions; each bootstrapper has one of its own in it.
    pub sessions: PathBuf,
    /// Where ports are reserved; one for all runs of a user.
    pub ports: PathBuf,
    /// This program: what `{self}` means, and what supervises local nodes when called with `__supervise`.
    pub program: PathBuf,
    /// The driver's clock.
    pub timer: Arc<dyn Timer>,
}

/// The executors of all providers and bootstrappers that are built in.
pub fn executors(site: &Site) -> ExecutorTable {
    let providers = PROVIDERS.iter().map(|provider| (provider.build)(site));
    let table = providers.fold(ExecutorTable::new(), ExecutorTable::with_executor);
    let bootstrappers = BOOTSTRAPPERS.iter().map(|row| (row.build)(site));
    bootstrappers.fold(table, ExecutorTable::with_bootstrapper)
}

/// What the providers find wrong with a shape, with the index of the group. Makes nothing. A provider or a
/// bootstrapper that is not built in is a problem too, and the message lists those that are.
pub async fn validate(table: &ExecutorTable, shape: &ClusterShape) -> Vec<(usize, SpecProblem)> {
    let mut found = Vec::new();
    for (index, group) in shape.groups.iter().enumerate() {
        found.extend(group_problems(table, group).await.into_iter().map(|problem| (index, problem)));
    }
    found
}

async fn group_problems(table: &ExecutorTable, group: &RunNodeGroupSpec) -> Vec<SpecProblem> {
    let name = group.template.provider.as_str();
    if !PROVIDERS.iter().any(|provider| provider.name == name)
        && table.provider(&group.template.provider).is_none()
    {
        let built_in: Vec<_> = PROVIDERS.iter().map(|provider| provider.name).collect();
        let built_in = if built_in.is_empty() { "none".to_owned() } else { built_in.join(", ") };
        let message = format!(
            "provider {name:?} is unknown or not built in; built in: {built_in} (others need a build with their Cargo \
             feature)"
        );
        return vec![SpecProblem::new("/provider", message)];
    }
    table.validate(group).await.err().unwrap_or_default()
}
