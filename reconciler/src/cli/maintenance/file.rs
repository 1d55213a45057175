//! The plan file: a bond flip as people write it. Durations are texts, `io` has no default.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use executor_api::host::{BondMode, BondName, HostName, LinkProbeSpec, ModuleVersion, PlanUid, ResourceName};
use executor_host_fake::Scenario;
use reconciler::file::DurationText;
use reconciler_core::maintenance::{BondFlipPlan, IoPolicy, Pace};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::cli::failure::Failure;

/// A plan as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanFile {
    /// The plan's name: its state is kept under it.
    pub(super) name: String,
    nodes: [HostName; 2],
    bond: BondName,
    from: BondMode,
    to: BondMode,
    resources: BTreeSet<ResourceName>,
    io: Io,
    #[serde(default)]
    pub(super) approved: bool,
    #[serde(default = "floor")]
    module_floor: ModuleVersion,
    #[serde(default = "probe")]
    probe: LinkProbeSpec,
    #[serde(default)]
    pace: PaceText,
    hosts: Hosts,
}

/// What machines may do meanwhile.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Io {
    Continue,
    Quiesce {
        #[serde(default)]
        suspend_for: Option<DurationText>,
    },
}

/// Which hosts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hosts {
    /// Simulated ones, as a scenario file describes them. Relative to the plan.
    simulated: PathBuf,
}

/// Whatever differs from the usual pace.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PaceText {
    evidence_max_age: Option<DurationText>,
    gate_max_age: Option<DurationText>,
    dwell: Option<DurationText>,
    settle: Option<DurationText>,
    connect_within: Option<DurationText>,
    retry_cap: Option<u32>,
    connect_attempts: Option<u32>,
    operation_timeout: Option<DurationText>,
    lease_ttl: Option<DurationText>,
}

fn floor() -> ModuleVersion {
    ModuleVersion { major: 9, minor: 2, patch: 19 }
}

fn probe() -> LinkProbeSpec {
    LinkProbeSpec { packets: 100, frame_bytes: 1514 }
}

/// A plan that was read, and the hosts it is for.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) file: PlanFile,
    pub(super) scenario: Scenario,
    path: PathBuf,
}

/// Reads a plan and its hosts' file.
pub(super) fn load(path: &Path) -> Result<Loaded, Failure> {
    let file: PlanFile = read(path)?;
    let hosts = path.parent().unwrap_or_else(|| Path::new("")).join(&file.hosts.simulated);
    Ok(Loaded { scenario: read(&hosts)?, file, path: path.to_owned() })
}

impl Loaded {
    /// The plan under this identity, checked.
    pub(super) fn plan(&self, uid: &str) -> Result<BondFlipPlan, Failure> {
        let file = &self.file;
        let uid = PlanUid::new(uid).map_err(|error| Failure::error(error.to_string()))?;
        let plan = BondFlipPlan {
            uid,
            nodes: file.nodes.clone(),
            bond: file.bond.clone(),
            from: file.from.clone(),
            to: file.to.clone(),
            resources: file.resources.clone(),
            io: match &file.io {
                Io::Continue => IoPolicy::Continue,
                Io::Quiesce { suspend_for } => {
                    IoPolicy::Quiesce { suspend_for: suspend_for.map(|text| text.0) }
                }
            },
            approved: file.approved,
            module_floor: file.module_floor,
            probe: file.probe,
            pace: file.pace.over(&Pace::default()),
        };
        let problems: Vec<_> = plan.problems().iter().map(ToString::to_string).collect();
        if problems.is_empty() {
            return Ok(plan);
        }
        Err(Failure::error(format!("{}: {}", self.path.display(), problems.join("; "))))
    }
}

impl PaceText {
    fn over(&self, usual: &Pace) -> Pace {
        let or = |text: Option<DurationText>, usual: Duration| text.map_or(usual, |text| text.0);
        Pace {
            evidence_max_age: or(self.evidence_max_age, usual.evidence_max_age),
            gate_max_age: or(self.gate_max_age, usual.gate_max_age),
            dwell: or(self.dwell, usual.dwell),
            settle: or(self.settle, usual.settle),
            connect_within: or(self.connect_within, usual.connect_within),
            retry_cap: self.retry_cap.unwrap_or(usual.retry_cap),
            connect_attempts: self.connect_attempts.unwrap_or(usual.connect_attempts),
            operation_timeout: or(self.operation_timeout, usual.operation_timeout),
            lease_ttl: or(self.lease_ttl, usual.lease_ttl),
        }
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::while_doing(format_args!("reading {}", path.display()), &error))?;
    serde_saphyr::from_str(&text).map_err(|error| Failure::error(format!("{}: {error}", path.display())))
}
