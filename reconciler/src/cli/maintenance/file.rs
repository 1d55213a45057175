//! The plan file: a bond flip as people write it. Durations are texts, `io` has no default. What is wrong with it is told
//! with its line, as of a cluster file.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use executor_api::LogicalNodeId;
use executor_api::host::{BondMode, BondName, HostName, LinkProbeSpec, ModuleVersion, PlanUid, ResourceName};
use executor_host_fake::Scenario;
use reconciler::file::positions::Positions;
use reconciler::file::{DurationText, Problems, parse_as};
use reconciler_core::maintenance::{BondFlipPlan, IoPolicy, Pace};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::de::{self, DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;

use crate::cli::failure::Failure;
use crate::run::plans::Link;

/// A plan that flips a bond on two hosts, one after the other.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanFile {
    /// The plan's name: lowercase letters, digits and '-'. Its state is kept under it.
    pub(super) name: String,
    /// The two hosts, in the order in which they are flipped.
    #[schemars(with = "[String; 2]")]
    nodes: [HostName; 2],
    /// The bond, by the same name on both.
    #[schemars(with = "String")]
    bond: BondName,
    /// The mode that it has: active-backup or balance-rr.
    #[schemars(with = "String")]
    from: BondMode,
    /// The mode that it is to have.
    #[schemars(with = "String")]
    to: BondMode,
    /// The resources that replicate over it.
    #[schemars(with = "BTreeSet<String>")]
    resources: BTreeSet<ResourceName>,
    /// What machines may do while the copies are apart. There is no default.
    #[schemars(with = "Io", required)]
    io: Option<Io>,
    /// It may run. Counts only together with --approve on the command line.
    #[serde(default)]
    pub(super) approved: bool,
    /// The oldest storage module whose word is taken. Default 9.2.19.
    #[serde(default = "floor")]
    #[schemars(with = "String")]
    module_floor: ModuleVersion,
    /// How the link is probed before replication is resumed. Default: 100 packets of 1514 bytes.
    #[serde(default = "probe")]
    #[schemars(with = "Probe")]
    probe: LinkProbeSpec,
    /// How long things may take and how often they are tried, where that differs from the usual.
    #[serde(default)]
    pace: PaceText,
    /// Which hosts.
    hosts: Hosts,
    /// The run whose nodes live on these hosts: it leaves them alone until the plan is over.
    #[serde(default)]
    cluster: Option<Cluster>,
}

/// What machines may do meanwhile.
#[derive(Debug, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Io {
    /// They go on writing; before the copies meet again one must be provably the other's ancestor.
    Continue,
    /// Nobody writes, and the copies must be identical before they meet again.
    Quiesce(Quiesce),
}

/// How writers are stopped.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Quiesce {
    /// Where somebody may write, I/O stands still for at most this long. Left out: such a plan is refused.
    #[serde(default)]
    suspend_for: Option<DurationText>,
}

/// `continue`, `quiesce`, or `quiesce` with its settings.
impl<'de> Deserialize<'de> for Io {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;

        impl<'de> Visitor<'de> for Words {
            type Value = Io;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`continue`, `quiesce` or `quiesce: { suspend_for: 10m }`")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Io, E> {
                match word {
                    "continue" => Ok(Io::Continue),
                    "quiesce" => Ok(Io::Quiesce(Quiesce::default())),
                    other => Err(E::unknown_variant(other, IO)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Io, A::Error> {
                let Some(word) = map.next_key::<String>()? else {
                    return Err(de::Error::invalid_length(0, &self));
                };
                if word != "quiesce" {
                    return Err(de::Error::unknown_variant(&word, &["quiesce"]));
                }
                let quiesce: Option<Quiesce> = map.next_value()?;
                Ok(Io::Quiesce(quiesce.unwrap_or_default()))
            }
        }

        deserializer.deserialize_any(Words)
    }
}

/// The words of [`Io`].
const IO: &[&str] = &["continue", "quiesce"];

/// Which hosts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Hosts {
    /// Simulated ones, as a scenario file describes them. Relative to the plan.
    simulated: PathBuf,
}

/// A run of the cluster reconciler, and its nodes on these hosts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Cluster {
    /// The run by name, in the same state directory.
    run: String,
    /// Its nodes on these hosts, such as web-1. Left out: all of its nodes.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    nodes: Vec<LogicalNodeId>,
}

/// How the link is probed.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Probe {
    /// How many packets in each direction, at least 10.
    packets: u32,
    /// Bytes on the wire of each, headers included.
    frame_bytes: u32,
}

/// Whatever differs from the usual pace.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct PaceText {
    /// Older evidence is no evidence. Default 10s.
    evidence_max_age: Option<DurationText>,
    /// How long after the resume gates passed a reconnect may be sent. Default 30s.
    gate_max_age: Option<DurationText>,
    /// How long a halted plan lets things settle, and the space between tries. Default 30s.
    dwell: Option<DurationText>,
    /// How long an effect may take to be seen after its operation ended. Default 1m.
    settle: Option<DurationText>,
    /// How long a resource may take to be connected. Default 1m.
    connect_within: Option<DurationText>,
    /// How often a step may be tried in all, the first time included. Default 3.
    retry_cap: Option<u32>,
    /// How often a rollback may try to reconnect. Default 3.
    connect_attempts: Option<u32>,
    /// When an operation is given up and its outcome must be settled. Default 2m.
    operation_timeout: Option<DurationText>,
    /// For how long a renewal of the lease counts. Default 1m.
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
    text: String,
    positions: Positions,
}

/// Reads a plan and its hosts' file.
pub(super) fn load(path: &Path) -> Result<Loaded, Failure> {
    let text = read(path, "the plan")?;
    let (file, positions): (PlanFile, _) = parse(path, &text)?;
    let hosts = path.parent().unwrap_or_else(|| Path::new("")).join(&file.hosts.simulated);
    let (scenario, _) = parse(&hosts, &read(&hosts, "the simulated hosts of the plan")?)?;
    Ok(Loaded { scenario, file, path: path.to_owned(), text, positions })
}

/// The schema, for editors and other tools.
pub(super) fn schema() -> Schema {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut root = PlanFile::json_schema(&mut generator);
    root.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    root.insert("title".to_owned(), json!("Maintenance plan"));
    root.insert("$defs".to_owned(), generator.take_definitions(true).into());
    root
}

impl Loaded {
    /// The plan under this identity, checked.
    pub(super) fn plan(&self, uid: &str) -> Result<BondFlipPlan, Failure> {
        let file = &self.file;
        let uid = PlanUid::new(uid).map_err(|error| Failure::error(error.to_string()))?;
        let Some(io) = &file.io else {
            let what = "what machines may do meanwhile has no default; write `io: continue`, or `io: { quiesce: { \
                        suspend_for: 10m } }`";
            return Err(self.problems([("/io".to_owned(), what.to_owned())]).into());
        };
        let plan = BondFlipPlan {
            uid,
            nodes: file.nodes.clone(),
            bond: file.bond.clone(),
            from: file.from.clone(),
            to: file.to.clone(),
            resources: file.resources.clone(),
            io: match io {
                Io::Continue => IoPolicy::Continue,
                Io::Quiesce(quiesce) => {
                    IoPolicy::Quiesce { suspend_for: quiesce.suspend_for.map(|text| text.0) }
                }
            },
            approved: file.approved,
            module_floor: file.module_floor,
            probe: file.probe,
            pace: file.pace.over(&Pace::default()),
        };
        let found: Vec<_> = plan
            .problems()
            .into_iter()
            .map(|problem| (format!("/{}", problem.field), problem.what.to_owned()))
            .collect();
        if found.is_empty() {
            return Ok(plan);
        }
        Err(self.problems(found).into())
    }

    /// The run that leaves the plan's hosts alone meanwhile, if the plan names one.
    pub(super) fn link(&self) -> Option<Link> {
        let cluster = self.file.cluster.as_ref()?;
        Some(Link { run: cluster.run.clone(), nodes: cluster.nodes.clone() })
    }

    /// Problems at their places in the plan.
    pub(super) fn problems(&self, found: impl IntoIterator<Item = (String, String)>) -> Problems {
        Problems::at_pointers(&self.path, &self.text, &self.positions, found)
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

fn read(path: &Path, what: &str) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::while_doing(format_args!("reading {what} from {}", path.display()), &error))
}

fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<(T, Positions), Failure> {
    Ok(parse_as(path, text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn the_schema_has_every_key_of_the_plan_and_resolves_every_reference() {
        let text = serde_json::to_value(schema()).unwrap();
        let keys: BTreeSet<_> = text["properties"].as_object().unwrap().keys().cloned().collect();
        let known = [
            "approved",
            "bond",
            "cluster",
            "from",
            "hosts",
            "io",
            "module_floor",
            "name",
            "nodes",
            "pace",
            "probe",
            "resources",
            "to",
        ];
        assert_eq!(keys, known.map(str::to_owned).into());
        assert!(text["required"].as_array().unwrap().contains(&json!("io")), "it has no default");
        assert!(!text["required"].as_array().unwrap().contains(&json!("approved")));
        let mut pending = vec![&text];
        while let Some(value) = pending.pop() {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(reference)) = map.get("$ref") {
                        let name = reference.strip_prefix("#/$defs/").expect("a local reference");
                        assert!(text["$defs"].get(name).is_some(), "{reference} leads nowhere");
                    }
                    pending.extend(map.values());
                }
                Value::Array(items) => pending.extend(items),
                _ => {}
            }
        }
    }
}
