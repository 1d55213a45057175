//! The row of the agent bootstrapper: declared steps and a program, carried out by the agent that runs on the node
//! (`reconciler agent`).

use std::sync::Arc;

use bootstrap_http::{AgentBoot, AgentBootstrapper, agent_bootstrapper};
use schemars::JsonSchema as _;

use super::{BootstrapperRow, Site};

pub(super) const BOOTSTRAPPER: BootstrapperRow = BootstrapperRow {
    name: "agent",
    about: "runs the declared steps and the program on the node, through the agent there",
    build: |site| Arc::new(build(site)),
    boot: AgentBoot::json_schema,
    output: Some(|site| Arc::new(build(site))),
};

fn build(site: &Site) -> AgentBootstrapper {
    agent_bootstrapper(site.sessions.join("agent"))
}
