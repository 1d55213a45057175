//! What is wrong is told before anything is made, at its place in the file, where that can be known; else on the node.
//! Always with EC2's own code and with what to do.

use serde_json::json;

use crate::fleet::{Fleet, SECRET, nobodys_lab, refusal};
use crate::lab::wait;

/// `validate` and `apply` say the same, and nothing is made.
fn refused(fleet: &Fleet, text: &str, says: &[&str]) {
    fleet.lab.write(text);
    for command in ["validate", "apply"] {
        let said = fleet.lab.ends(1, &[command]);
        for part in says {
            assert!(said.contains(part), "{command} says no {part:?}: {said}");
        }
    }
    assert!(fleet.region.instances().is_empty(), "something was made");
    assert!(!fleet.lab.state_dir().exists(), "something was kept");
}

#[test]
fn an_unknown_instance_type_is_named_at_its_place() {
    let Some(fleet) = Fleet::new() else { return };
    let text = fleet.file("bad", 1, "t3.small, t9.huge");
    refused(
        &fleet,
        &text,
        &[
            "cluster.yaml:11:34: groups[0].shape.instance_types[1]",
            "InvalidInstanceType",
            "correct shape.instance_types",
        ],
    );
}

#[test]
fn an_image_that_does_not_exist_is_named_at_its_place() {
    let Some(fleet) = Fleet::new() else { return };
    fleet.region.config(&json!({ "images": ["ami-1"] }));
    let text = fleet.file("bad", 1, "t3.small");
    refused(
        &fleet,
        &text,
        &[
            "cluster.yaml:10:7: groups[0].shape.image",
            "InvalidAMIID.NotFound",
            "write an image of this very region",
        ],
    );
}

#[test]
fn a_misspelt_region_is_told_whether_or_not_anybody_answers_for_it() {
    let Some(fleet) = Fleet::new() else { return };
    let (name, url) = (fleet.region.name, fleet.region.url());
    let text = fleet.file("bad", 1, "t3.small").replace(&format!("region: {name}"), "region: eu-cental-1");
    refused(&fleet, &text, &["groups[0].shape.region", "AuthFailure", "correct shape.region"]);

    // Nobody answers: the name of such a region leads nowhere.
    let lab = nobodys_lab()
        .env("AWS_ACCESS_KEY_ID", "AKIATEST")
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
        .env("AWS_ENDPOINT_URL", &nobody_there());
    lab.write(&text.replace(&format!("      endpoint_url: {url}\n"), ""));
    let said = lab.ends(1, &["validate"]);
    assert!(said.contains("groups[0].shape.region") && said.contains("did you mean eu-central-1?"), "{said}");
}

#[test]
fn a_misspelt_region_in_an_edit_blinds_nobody() {
    let Some(fleet) = Fleet::new() else { return };
    let Fleet { lab, region } = &fleet;
    let text = fleet.file("edit", 2, "t3.small");
    lab.write(&text);
    let run = lab.run();
    let before = fleet.holds_exactly(2);
    lab.write(&text.replace(&format!("region: {}", region.name), "region: eu-cental-1"));
    wait("the edit to be refused", 60, || run.output().contains("stays in force"));
    assert!(run.output().contains("groups[0].shape.region"), "{}", run.output());

    // What was accepted is driven on: a loss is seen and made good.
    let lost = before.keys().next().unwrap();
    fleet.kill(lost);
    wait("the loss to be seen", 60, || !fleet.leases().contains(lost));
    let after = fleet.holds_exactly(2);
    assert!(before.keys().all(|lease| (lease == lost) != after.contains_key(lease)), "{before:?} {after:?}");
    drop(run);
    lab.write(&text);
    fleet.destroy();
}

#[test]
fn without_credentials_nothing_begins() {
    let Some(mut fleet) = Fleet::new() else { return };
    fleet.lab = nobodys_lab();
    let text = fleet.file("bad", 1, "t3.small");
    refused(&fleet, &text, &["no usable AWS credentials were found", "set AWS_PROFILE"]);
}

#[test]
fn expired_and_wrong_credentials_are_told_with_what_to_do() {
    let Some(fleet) = Fleet::new() else { return };
    let text = fleet.file("bad", 1, "t3.small");
    for (code, advice) in [
        ("RequestExpired", "renew the credentials"),
        ("AuthFailure", "correct the credentials or the clock of this machine"),
    ] {
        fleet
            .region
            .faults(&json!([{ "action": "*", "kind": "error", "status": 401, "code": code, "times": -1 }]));
        refused(&fleet, &text, &[code, advice]);
    }
}

#[test]
fn a_missing_right_is_one_message_before_anything_is_made() {
    let Some(fleet) = Fleet::new() else { return };
    for granted in [
        &["DescribeInstances", "CreateTags"][..],
        &["RunInstances", "CreateTags"],
        &["RunInstances", "DescribeInstances"],
    ] {
        fleet.region.config(&json!({ "allowed": granted }));
        let text = fleet.file("bad", 1, "t3.small, t3.large");
        refused(
            &fleet,
            &text,
            &["UnauthorizedOperation", "grant the rights listed in executors/ec2/README.md"],
        );
        let said = fleet.lab.ends(1, &["validate"]);
        assert_eq!(said.matches("UnauthorizedOperation").count(), 1, "{said}");
    }
}

#[test]
fn a_tag_that_is_ours_is_refused_without_asking_anybody() {
    let Some(fleet) = Fleet::new() else { return };
    let text = fleet.file("bad", 1, "t3.small").replace("team: shop", "reconciler/node: web-7");
    refused(&fleet, &text, &["groups[0].shape.tags", "reconciler/node", "reserved"]);
    assert_eq!(fleet.region.calls("RunInstances"), 0);
}

#[test]
fn an_environment_that_cannot_be_read_refuses_every_group() {
    let Some(mut fleet) = Fleet::new() else { return };
    fleet.lab = nobodys_lab().env("RECONCILER_EC2_TOKENS", "maybe");
    let text = fleet.file("bad", 1, "t3.small");
    refused(&fleet, &text, &["groups[0].provider", "RECONCILER_EC2_TOKENS", "honoured"]);
}

#[test]
fn an_api_out_of_reach_is_told_at_once_and_on_the_node() {
    let Some(fleet) = Fleet::new() else { return };
    let text = fleet.file("unreachable", 1, "t3.small").replace(&fleet.region.url(), &nobody_there());
    fleet.lab.write(&text);
    // Out of reach for now is not the file's fault; but nobody has to wait for the first node to find out.
    let said = fleet.lab.ok(&["validate"]);
    assert!(said.contains("could not be finished") && said.contains("no connection to EC2"), "{said}");
    let run = fleet.lab.run();
    let mut said = String::new();
    wait("the node to say so", 60, || {
        said = fleet.lab.ok(&["explain", "web-0"]);
        said.contains("no connection to EC2 came about")
    });
    assert!(said.contains("check the region's name, the endpoint_url and the network"), "{said}");
    drop(run);
    // Nobody can say what may be left there, so the state is kept; here it is known that nothing is.
    let said = fleet.lab.ends(1, &["destroy", "-y", "-q", "--timeout", "60s"]);
    assert!(said.contains("no connection to EC2 came about"), "{said}");
    std::fs::remove_dir_all(fleet.lab.state_dir()).unwrap();
}

#[test]
fn what_only_a_launch_finds_out_is_on_the_node() {
    let Some(fleet) = Fleet::new() else { return };
    for (code, advice) in [
        ("VcpuLimitExceeded", "raise the quota or name further instance types"),
        ("InvalidAMIID.Unavailable", "write an image of this very region"),
        ("UnauthorizedOperation", "grant the rights listed"),
    ] {
        fleet.region.faults(&json!([refusal(code, None)]));
        fleet.lab.write(&fleet.file("late", 1, "t3.small"));
        let run = fleet.lab.run();
        let node = fleet.complains(code);
        let said = fleet.lab.ok(&["explain", &node]);
        assert!(said.contains(&format!("{code} in words")) && said.contains(advice), "{said}");
        assert!(fleet.region.instances().is_empty());
        drop(run);
        fleet.destroy();
    }
}

/// An address on loopback where nobody listens.
fn nobody_there() -> String {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    format!("http://{closed}")
}
