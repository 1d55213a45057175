//! Bootstraps any lease that has an SSH server.
//!
//! ```text
//!   settings ──► hostkey (who is there?) ──► transport ──► runner ── exec ──► session.sh on the host
//!   `connect:`   auth    (who are we?)       one connection  one channel per command
//! ```
//!
//! Everything about a session beyond its connection is in `bootstrap-hosted`: it goes on by itself when the
//! connection drops, and whoever connects next finds it. Nothing here ever asks for a password: keys and the
//! user's agent are all there is, so that no run ever waits for somebody to type.
//!
//! The host's key is the one in the settings or, without one, the key of the host that first let the attempt in. That
//! one is kept in the attempt's record before the host is given the first command, and from then on no other key is
//! accepted for this attempt. A host that refuses our key is not kept to: its first boot may not have given it its own.

mod auth;
pub mod hostkey;
mod runner;
pub mod settings;
mod transport;

use std::path::PathBuf;

use bootstrap_hosted::{BootSettings, HostedBootstrapper, HostedConfig};

pub use settings::SshConnect;
pub use transport::SshTransport;

/// The bootstrapper; specs ask for it as `ssh`.
pub type SshBootstrapper = HostedBootstrapper<SshTransport>;

/// `boot:` of a group that is bootstrapped over SSH.
pub type SshBoot = BootSettings<SshConnect>;

/// A bootstrapper over SSH whose sessions are on record in this directory of the run.
pub fn ssh_bootstrapper(records: PathBuf) -> SshBootstrapper {
    HostedBootstrapper::new(SshTransport::default(), HostedConfig::new(records))
}
