//! The row of the process provider: real programs on this machine.

use std::sync::Arc;

use executor_api::Executor;
use executor_process::{ProcessConfig, ProcessExecutor, SupervisorCommand, settings};
use schemars::SchemaGenerator;

use super::{Provider, Settings, Site};

/// The hidden subcommand under which this program supervises one node.
pub const SUPERVISE: &str = "__supervise";

pub(super) const PROVIDER: Provider = Provider {
    name: "process",
    about: "programs on this machine, each under a small supervisor of its own",
    build,
    settings: schemas,
};

fn build(site: &Site) -> Executor {
    Arc::new(ProcessExecutor::new(ProcessConfig {
        root: site.nodes.clone(),
        port_registry: site.ports.clone(),
        port_range: 20000..=29999,
        supervisor: SupervisorCommand { program: site.program.clone(), args: vec![SUPERVISE.into()] },
        self_program: site.program.clone(),
    }))
    .executor()
}

fn schemas(generator: &mut SchemaGenerator) -> Settings {
    Settings {
        shape: generator.subschema_for::<settings::ProcessShape>(),
        boot: generator.subschema_for::<settings::ProcessBoot>(),
    }
}
