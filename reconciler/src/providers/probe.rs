//! The row of the probe bootstrapper: nodes that start by themselves, and join when a probe passes.

use std::sync::Arc;

use bootstrap_probe::{ProbeBoot, ProbeBootstrapper};
use schemars::JsonSchema as _;

use super::BootstrapperRow;

pub(super) const BOOTSTRAPPER: BootstrapperRow = BootstrapperRow {
    name: "probe",
    about: "starts nothing; a node joins when a probe of its endpoint passes",
    build: |site| Arc::new(ProbeBootstrapper::new(site.sessions.join("probe"))),
    boot: ProbeBoot::json_schema,
    #[cfg(any(feature = "agent", feature = "ssh"))]
    output: None,
};
