//! What a user writes for an EC2 node under `shape:`. Reading it is all that happens here; what it means together
//! is checked in `validate`, and what is sent for it is put together in `map`.

use std::collections::BTreeMap;

use executor_api::{SecretRef, SpecProblem};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// `shape:` of a group of EC2 nodes. Any difference in it means replacement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ec2Shape {
    /// The region, such as `eu-central-1`. Without it: the one that the AWS configuration of the driving process
    /// names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Another address of the EC2 API, for test worlds and private endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_url: Option<String>,
    /// The machine image, `ami-...`.
    pub image: String,
    /// Instance types in order of preference. The next is tried only after a proved lack of capacity or quota.
    pub instance_types: Vec<String>,
    /// Subnets in order of preference, `subnet-...`. Not together with `zones`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<String>,
    /// Availability zones in order of preference, for accounts with a default subnet in each. Not together with
    /// `subnets`. Without both, EC2 chooses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// Security groups, `sg-...`. Without any: the default group of the network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<String>,
    /// Name of the key pair put onto the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_pair: Option<String>,
    /// Name or ARN of the instance profile: the rights of the instance itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// Whether the instance gets a public address. Without it: as the subnet says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_ip: Option<bool>,
    /// The root disk. Without it: as the image says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
    /// Given to the instance at its first boot, at most 16 KiB. `{{reconciler.run}}`, `{{reconciler.node}}`,
    /// `{{reconciler.attempt}}` and `{{reconciler.nonce}}` are replaced. Everybody on the instance can read it:
    /// no place for a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// How the instance is bought.
    #[serde(default)]
    pub market: Market,
    /// Highest price per hour for a spot instance, in US dollars, as a text. Without it: the on-demand price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot_max_price: Option<String>,
    /// The instance's metadata service.
    #[serde(default)]
    pub metadata: Metadata,
    /// Further tags for the instance and its volumes. Keys that start with `reconciler/` are reserved.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Where the node can be reached.
    #[serde(default)]
    pub endpoint: EndpointPolicy,
}

/// The root disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Device name of the image's root volume.
    #[serde(default = "Disk::default_device")]
    pub device: String,
    /// Size in GiB.
    pub size_gib: u16,
    /// Volume type.
    #[serde(default = "Disk::default_kind")]
    pub kind: String,
    /// Provisioned operations per second, for types that have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u32>,
    /// Provisioned throughput in MiB per second, for `gp3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<u32>,
    /// Whether it is encrypted. Without it: as the account says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
}

impl Disk {
    fn default_device() -> String {
        "/dev/xvda".to_owned()
    }

    fn default_kind() -> String {
        "gp3".to_owned()
    }
}

/// How an instance is bought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Market {
    /// At the list price, for as long as it is wanted.
    #[default]
    OnDemand,
    /// From spare capacity; EC2 may take it back, and then the node is lost and replaced.
    Spot,
}

/// The instance's metadata service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Metadata {
    /// Whether version 2, with session tokens, is required.
    pub tokens: MetadataTokens,
    /// How many network hops an answer may take: 1 keeps it from containers, 2 lets them in.
    pub hop_limit: u8,
}

impl Default for Metadata {
    fn default() -> Self {
        Self { tokens: MetadataTokens::Required, hop_limit: 1 }
    }
}

/// Whether the metadata service demands session tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MetadataTokens {
    /// It does (IMDSv2 only).
    #[default]
    Required,
    /// It also answers without one.
    Optional,
}

/// Where a node can be reached, and from when on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EndpointPolicy {
    /// Which of the instance's addresses.
    pub address: Address,
    /// The port that the bootstrapper talks to.
    pub port: u16,
    /// Further named ports.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, u16>,
    /// How to log in there. The key is given by reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login: Option<Login>,
    /// What must be true before the endpoint is given out.
    pub after: EndpointAfter,
}

impl Default for EndpointPolicy {
    fn default() -> Self {
        Self {
            address: Address::default(),
            port: 22,
            ports: BTreeMap::new(),
            login: None,
            after: EndpointAfter::default(),
        }
    }
}

/// Which of an instance's addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Address {
    /// The one within its network.
    #[default]
    Private,
    /// The one that the internet sees.
    Public,
}

/// What must be true before an endpoint is given out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndpointAfter {
    /// The instance runs and has the address.
    #[default]
    Running,
    /// Both of EC2's status checks have passed as well. Takes minutes.
    StatusChecks,
}

/// An account and the reference of its private key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// The account.
    pub user: String,
    /// `{ from_env: NAME }` or `{ from_file: PATH }`.
    #[schemars(with = "SecretReference")]
    pub key: SecretRef,
}

/// The schema of a secret by reference.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "stands for SecretRef in the schema and is never built")]
enum SecretReference {
    /// An environment variable of the driving process.
    FromEnv(String),
    /// A file; one trailing line break is not part of the secret.
    FromFile(String),
}

/// Reads a shape; what is wrong is a problem at its place.
pub(crate) fn read(value: &Value) -> Result<Ec2Shape, SpecProblem> {
    if value.is_null() {
        return Err(SpecProblem::new(
            "/shape",
            "an EC2 node needs at least `image: ami-...` and `instance_types: [...]`",
        ));
    }
    read_at("/shape", value)
}

fn read_at<T: DeserializeOwned>(pointer: &str, value: &Value) -> Result<T, SpecProblem> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let pointer = format!("{pointer}{}", json_pointer(error.path()));
        SpecProblem::new(pointer, error.into_inner().to_string())
    })
}

fn json_pointer(path: &Path) -> String {
    path.iter()
        .map(|segment| match segment {
            Segment::Seq { index } => format!("/{index}"),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                format!("/{}", key.replace('~', "~0").replace('/', "~1"))
            }
            // An unknown segment has no name.
            Segment::Unknown => String::new(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problem(value: &Value) -> String {
        let problem = read(value).unwrap_err();
        format!("{}: {}", problem.pointer, problem.message)
    }

    #[test]
    fn what_is_left_out_has_its_documented_default() {
        let shape = read(&json!({ "image": "ami-1", "instance_types": ["t3.small"] })).unwrap();
        assert_eq!(shape.market, Market::OnDemand);
        assert_eq!(shape.metadata, Metadata { tokens: MetadataTokens::Required, hop_limit: 1 });
        assert_eq!((shape.endpoint.address, shape.endpoint.port), (Address::Private, 22));
        assert_eq!(shape.endpoint.after, EndpointAfter::Running);
    }

    #[test]
    fn unknown_keys_and_wrong_types_are_named_at_their_place() {
        let base = |key: &str, value: Value| {
            let mut shape = json!({ "image": "ami-1", "instance_types": ["t3.small"] });
            shape[key] = value;
            shape
        };
        assert!(problem(&Value::Null).starts_with("/shape: an EC2 node needs"));
        assert!(problem(&json!({ "image": "ami-1" })).contains("instance_types"));
        assert!(problem(&base("imgae", json!(1))).starts_with("/shape/imgae: unknown field"));
        assert!(problem(&base("market", json!("cheap"))).starts_with("/shape/market"));
        let text = problem(&base("endpoint", json!({ "adress": "public" })));
        assert!(text.starts_with("/shape/endpoint/adress: unknown field"), "{text}");
        let text = problem(&base("disk", json!({ "size_gib": "8" })));
        assert!(text.starts_with("/shape/disk/size_gib"), "{text}");
    }

    #[test]
    fn settings_survive_a_round_trip() {
        let value = json!({
            "region": "eu-central-1", "image": "ami-1", "instance_types": ["a", "b"], "subnets": ["subnet-1"],
            "security_groups": ["sg-1"], "key_pair": "k", "instance_profile": "p", "public_ip": true,
            "disk": { "size_gib": 20 }, "user_data": "#!/bin/sh\n", "market": "spot", "spot_max_price": "0.05",
            "metadata": { "tokens": "optional", "hop_limit": 2 }, "tags": { "team": "x" },
            "endpoint": { "address": "public", "port": 2222, "ports": { "http": 80 },
                          "login": { "user": "admin", "key": { "from_file": "/k" } }, "after": "status_checks" }
        });
        let shape = read(&value).unwrap();
        assert_eq!(read(&serde_json::to_value(&shape).unwrap()).unwrap(), shape);
    }
}
