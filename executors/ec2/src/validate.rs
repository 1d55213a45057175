//! What can be known to be wrong with a group without asking anybody. Every problem has its place in the group as
//! the user wrote it.

use executor_api::SpecProblem;
use executor_api::spec::check_user_labels;
use serde_json::Value;

use crate::endpoint;
use crate::settings::{self, Ec2Shape, Market};

/// EC2's limit for user data before it is encoded.
const USER_DATA_LIMIT: usize = 16 * 1024;

/// EC2's limit of tags per resource, less those that are ours.
const USER_TAG_LIMIT: usize = 50 - 6;

/// Checks a `/shape` and hands it out. A create does the same: what is flawed is not launched, whoever let it pass.
pub(crate) fn shape(value: &Value) -> Result<Ec2Shape, Vec<SpecProblem>> {
    let shape = settings::read(value).map_err(|problem| vec![problem])?;
    let mut check = Checker::default();
    check.id("/shape/image", &shape.image, "ami-");
    if let Some(region) = &shape.region {
        check.region(region);
    }
    if let Some(url) = &shape.endpoint_url
        && !(url.starts_with("http://") || url.starts_with("https://"))
    {
        check.problem("/shape/endpoint_url", format!("{url:?} must start with https:// or http://"));
    }
    if shape.instance_types.is_empty() {
        check.problem("/shape/instance_types", "name at least one instance type, such as t3.small");
    }
    check.distinct("/shape/instance_types", &shape.instance_types, |name| {
        let legal =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'.' || byte == b'-';
        name.contains('.') && name.bytes().all(legal)
    });
    check.distinct("/shape/subnets", &shape.subnets, |name| is_id(name, "subnet-"));
    check.distinct("/shape/zones", &shape.zones, |name| {
        shape
            .region
            .as_ref()
            .is_none_or(|region| name.starts_with(region.as_str()) && name.len() > region.len())
    });
    if !shape.subnets.is_empty() && !shape.zones.is_empty() {
        check.problem("/shape/zones", "a subnet fixes the zone: give `subnets` or `zones`, not both");
    }
    check.distinct("/shape/security_groups", &shape.security_groups, |name| is_id(name, "sg-"));
    check.disk(&shape);
    check.spot(&shape);
    check.tags(&shape);
    let user_data = shape.user_data.as_ref().map_or(0, String::len);
    if user_data > USER_DATA_LIMIT {
        check.problem(
            "/shape/user_data",
            format!("{user_data} bytes; EC2 takes {USER_DATA_LIMIT}: let it fetch the rest itself"),
        );
    }
    if !(1..=64).contains(&shape.metadata.hop_limit) {
        check.problem("/shape/metadata/hop_limit", "must be from 1 to 64");
    }
    if shape.endpoint.port == 0 {
        check.problem("/shape/endpoint/port", "must be from 1 to 65535");
    }
    let encoded = endpoint::encode(&shape.endpoint).chars().count();
    if encoded > endpoint::TAG_VALUE_LIMIT {
        check.problem(
            "/shape/endpoint",
            format!(
                "takes {encoded} characters as a tag and {} fit: shorten the key's path or the names of ports",
                endpoint::TAG_VALUE_LIMIT
            ),
        );
    }
    if check.0.is_empty() { Ok(shape) } else { Err(check.0) }
}

#[derive(Default)]
struct Checker(Vec<SpecProblem>);

impl Checker {
    fn problem(&mut self, pointer: impl Into<String>, message: impl Into<String>) {
        self.0.push(SpecProblem::new(pointer, message));
    }

    fn id(&mut self, pointer: &str, value: &str, prefix: &str) {
        if !is_id(value, prefix) {
            self.problem(pointer, format!("{value:?} is no id; it must look like {prefix}0123456789abcdef0"));
        }
    }

    fn region(&mut self, region: &str) {
        // Such as eu-central-1 or us-gov-west-1. Whether it exists is only known by asking.
        let parts: Vec<_> = region.split('-').collect();
        let number =
            parts.last().is_some_and(|last| !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()));
        let words = parts
            .iter()
            .rev()
            .skip(1)
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase()));
        if parts.len() < 3 || !number || !words {
            self.problem("/shape/region", format!("{region:?} is no region; it must look like eu-central-1"));
        }
    }

    fn distinct(&mut self, pointer: &str, values: &[String], legal: impl Fn(&str) -> bool) {
        for (place, value) in values.iter().enumerate() {
            let at = format!("{pointer}/{place}");
            if !legal(value) {
                self.problem(at, format!("{value:?} is not one; correct it"));
            } else if values[..place].contains(value) {
                self.problem(at, format!("{value:?} is named twice; remove one"));
            }
        }
    }

    fn disk(&mut self, shape: &Ec2Shape) {
        let Some(disk) = &shape.disk else { return };
        if disk.size_gib == 0 {
            self.problem("/shape/disk/size_gib", "must be at least 1");
        }
        let kinds = ["gp2", "gp3", "io1", "io2", "st1", "sc1", "standard"];
        if !kinds.contains(&disk.kind.as_str()) {
            self.problem(
                "/shape/disk/kind",
                format!("{:?} is unknown; one of {}", disk.kind, kinds.join(", ")),
            );
        }
        if disk.iops.is_some() && !["gp3", "io1", "io2"].contains(&disk.kind.as_str()) {
            self.problem("/shape/disk/iops", format!("{} has no provisioned iops; leave it out", disk.kind));
        }
        if disk.iops.is_none() && ["io1", "io2"].contains(&disk.kind.as_str()) {
            self.problem("/shape/disk/iops", format!("{} needs it", disk.kind));
        }
        if disk.throughput.is_some() && disk.kind != "gp3" {
            self.problem("/shape/disk/throughput", "only gp3 has a provisioned throughput; leave it out");
        }
    }

    fn spot(&mut self, shape: &Ec2Shape) {
        let Some(price) = &shape.spot_max_price else { return };
        if shape.market != Market::Spot {
            self.problem("/shape/spot_max_price", "has a meaning only with `market: spot`");
        }
        if !price.parse::<f64>().is_ok_and(|price| price.is_finite() && price > 0.0) {
            self.problem("/shape/spot_max_price", format!("{price:?} is no price; write \"0.05\""));
        }
    }

    fn tags(&mut self, shape: &Ec2Shape) {
        self.0.extend(check_user_labels("/shape/tags", &shape.tags));
        if shape.tags.len() > USER_TAG_LIMIT {
            self.problem("/shape/tags", format!("{} tags; at most {USER_TAG_LIMIT} fit", shape.tags.len()));
        }
        for (key, value) in &shape.tags {
            let at = format!("/shape/tags/{}", key.replace('~', "~0").replace('/', "~1"));
            if key.is_empty() || key.chars().count() > 128 {
                self.problem(&at, "a tag's key has 1 to 128 characters");
            }
            if key.to_ascii_lowercase().starts_with("aws:") {
                self.problem(&at, "keys that start with aws: belong to AWS; choose another");
            }
            if value.chars().count() > endpoint::TAG_VALUE_LIMIT {
                self.problem(
                    &at,
                    format!("a tag's value has at most {} characters", endpoint::TAG_VALUE_LIMIT),
                );
            }
        }
    }
}

fn is_id(value: &str, prefix: &str) -> bool {
    value
        .strip_prefix(prefix)
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problems(changes: &Value) -> Vec<String> {
        let mut value = json!({ "image": "ami-0a", "instance_types": ["t3.small"] });
        for (key, change) in changes.as_object().unwrap() {
            value[key] = change.clone();
        }
        match shape(&value) {
            Ok(_) => Vec::new(),
            Err(found) => found.into_iter().map(|p| format!("{}: {}", p.pointer, p.message)).collect(),
        }
    }

    #[track_caller]
    fn says(changes: &Value, start: &str) {
        let found = problems(changes);
        assert!(found.iter().any(|text| text.starts_with(start)), "{found:?} has nothing like {start:?}");
    }

    #[test]
    fn a_plain_shape_is_fine() {
        assert!(problems(&json!({})).is_empty());
        let all = json!({
            "region": "us-gov-west-1", "zones": ["us-gov-west-1a"], "market": "spot", "spot_max_price": "0.05",
            "disk": { "size_gib": 20, "throughput": 250 }, "tags": { "team": "x" }
        });
        assert!(problems(&all).is_empty(), "{:?}", problems(&all));
    }

    #[test]
    fn a_reserved_tag_is_refused() {
        says(&json!({ "tags": { "reconciler/run": "x" } }), "/shape/tags/reconciler~1run: the key");
        says(&json!({ "tags": { "aws:x": "x" } }), "/shape/tags/aws:x: keys that start");
    }

    #[test]
    fn ids_regions_and_types_that_cannot_be_are_refused() {
        says(&json!({ "image": "debian-13" }), "/shape/image: \"debian-13\" is no id");
        says(&json!({ "region": "eu_central" }), "/shape/region: \"eu_central\" is no region");
        says(&json!({ "region": "eu-central" }), "/shape/region");
        says(&json!({ "instance_types": [] }), "/shape/instance_types: name at least one");
        says(&json!({ "instance_types": ["t3"] }), "/shape/instance_types/0");
        says(&json!({ "instance_types": ["a.b", "a.b"] }), "/shape/instance_types/1: \"a.b\" is named twice");
        says(&json!({ "subnets": ["10.0.0.0/8"] }), "/shape/subnets/0");
        says(&json!({ "security_groups": ["default"] }), "/shape/security_groups/0");
        says(&json!({ "region": "eu-central-1", "zones": ["us-east-1a"] }), "/shape/zones/0");
        says(&json!({ "endpoint_url": "localhost:1" }), "/shape/endpoint_url");
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        says(&json!({ "subnets": ["subnet-1"], "zones": ["us-east-1a"] }), "/shape/zones: a subnet fixes");
        says(&json!({ "spot_max_price": "1" }), "/shape/spot_max_price: has a meaning only");
        says(&json!({ "market": "spot", "spot_max_price": "cheap" }), "/shape/spot_max_price: \"cheap\"");
        says(&json!({ "disk": { "size_gib": 8, "kind": "gp2", "throughput": 1 } }), "/shape/disk/throughput");
        says(&json!({ "disk": { "size_gib": 8, "kind": "io2" } }), "/shape/disk/iops: io2 needs it");
    }

    #[test]
    fn what_ec2_has_no_room_for_is_refused() {
        says(&json!({ "user_data": "x".repeat(16 * 1024 + 1) }), "/shape/user_data: 16385 bytes");
        let path = "k".repeat(300);
        says(
            &json!({ "endpoint": { "login": { "user": "u", "key": { "from_file": path } } } }),
            "/shape/endpoint: takes",
        );
        says(&json!({ "endpoint": { "port": 0 } }), "/shape/endpoint/port");
    }
}
