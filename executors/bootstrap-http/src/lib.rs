//! Bootstraps any lease that runs the node agent: the agent itself, and the bootstrapper that asks it.
//!
//! ```text
//!   driving machine                                    the node
//!   client::AgentTransport ── HTTP, TLS, token ──►  agent::serve ──► session.sh
//!                   api: what both of them speak
//! ```
//!
//! The node calls nobody. The agent starts an attempt's session once, whatever it is asked how often; it holds no
//! state of its own, so that one that is killed and started again knows all sessions there are. Everything about a
//! session beyond its transport is in `bootstrap-hosted`.
//!
//! Whoever holds the token may run commands on the node with the agent's rights. The token is given by reference on
//! both sides, compared in constant time, and never logged; the agent keeps no more than its digest in memory.

pub mod agent;
pub mod api;
pub mod client;
pub mod settings;
mod tls;

use std::path::PathBuf;

use bootstrap_hosted::{BootSettings, HostedBootstrapper, HostedConfig};

pub use agent::{Agent, AgentConfig, AgentError, AgentTls, serve};
pub use client::AgentTransport;
pub use settings::AgentConnect;

/// The bootstrapper; specs ask for it as `agent`.
pub type AgentBootstrapper = HostedBootstrapper<AgentTransport>;

/// `boot:` of a group that is bootstrapped through the node agent.
pub type AgentBoot = BootSettings<AgentConnect>;

/// A bootstrapper through node agents whose sessions are on record in this directory of the run.
pub fn agent_bootstrapper(records: PathBuf) -> AgentBootstrapper {
    HostedBootstrapper::new(AgentTransport::default(), HostedConfig::new(records))
}
