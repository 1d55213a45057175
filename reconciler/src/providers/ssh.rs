//! The row of the SSH bootstrapper: declared steps and a program, carried out on the node over SSH.

use std::sync::Arc;

use bootstrap_ssh::{SshBoot, SshBootstrapper, ssh_bootstrapper};
use schemars::JsonSchema as _;

use super::{BootstrapperRow, Site};

pub(super) const BOOTSTRAPPER: BootstrapperRow = BootstrapperRow {
    name: "ssh",
    about: "runs the declared steps and the program on the node, over SSH",
    build: |site| Arc::new(build(site)),
    boot: SshBoot::json_schema,
    output: Some(|site| Arc::new(build(site))),
};

fn build(site: &Site) -> SshBootstrapper {
    ssh_bootstrapper(site.sessions.join("ssh"))
}
