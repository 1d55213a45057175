//! The example file as it stands, with nothing changed but the names of what an account owns: it comes up.

use std::path::Path;

use crate::fleet::{CALL, Fleet};

#[test]
fn the_example_comes_up_in_an_account_that_has_what_it_names() {
    let Some(fleet) = Fleet::new() else { return };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/ec2.yaml");
    let mut text = std::fs::read_to_string(path).unwrap();
    let subnets = fleet.region.subnets();
    let at = format!("region: {}\n      endpoint_url: {}", fleet.region.name, fleet.region.url());
    for (example, own) in [
        ("region: eu-central-1", at.as_str()),
        ("subnet-0123456789abcdef0", &subnets[0].0),
        ("subnet-0fedcba9876543210", &subnets[1].0),
        ("sg-0123456789abcdef0", &fleet.region.security_group()),
        ("port: 8080", &format!("port: {}", fleet.region.port())),
        // A test has no half minute to wait for a lost answer.
        ("operation_timeout: 30s", &format!("operation_timeout: {CALL}s")),
    ] {
        assert!(text.contains(example), "the example names {example}");
        text = text.replace(example, own);
    }
    fleet.lab.write(&text);
    fleet.lab.ok(&["validate"]);
    fleet.lab.ok(&["apply", "-q", "--timeout", "120s"]);
    fleet.holds_exactly(3);
    assert!(fleet.region.living().iter().all(|one| one.tags["team"] == "shop" && one.kind == "t3.small"));
    fleet.destroy();
}
