//! Twenty instances under `reconciler run` while the world misbehaves: made, scaled, changed, lost, and through an
//! outage of capacity.

use serde_json::{Value, json};

use crate::fleet::{Fleet, LATE, SECRET, refusal};

/// Answers lost after the act, acts that come late, throttles, errors that prove nothing, capacity that is missing for
/// a moment; and listings in pages.
fn troubles() -> Value {
    let launch = |rule: Value| {
        let mut all = json!({ "action": "RunInstances", "dry": false, "times": -1 });
        all.as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
        all
    };
    json!([
        launch(json!({ "kind": "delay", "s": LATE, "every": 10 })),
        launch(json!({ "when": "after", "kind": "drop", "every": 3 })),
        launch(json!({ "kind": "error", "status": 503, "code": "RequestLimitExceeded", "every": 7 })),
        launch(json!({ "kind": "error", "status": 500, "code": "InternalError", "every": 11 })),
        launch(json!({ "kind": "error", "status": 500, "code": "InsufficientInstanceCapacity", "every": 6,
                       "match": { "InstanceType": "t3.small" } })),
        { "action": "DescribeInstances", "kind": "error", "status": 503, "code": "RequestLimitExceeded",
          "every": 13, "times": -1 },
        { "action": "DescribeInstances", "when": "after", "kind": "cut", "every": 17, "times": -1 },
        { "action": "TerminateInstances", "when": "after", "kind": "drop", "every": 4, "times": -1 },
    ])
}

#[test]
fn twenty_instances_are_what_is_declared_through_every_trouble() {
    let Some(fleet) = Fleet::new() else { return };
    let Fleet { lab, region } = &fleet;
    region.config(&json!({ "page": 7 }));
    region.faults(&troubles());
    lab.write(&fleet.file("fleet", 20, "t3.small, t3.large"));
    let _run = lab.background(&["run", "-vv"]);
    fleet.holds_exactly(20);
    assert!(region.fired()[..4].iter().all(|fired| *fired > 0), "troubles came: {:?}", region.fired());

    // Up and down again.
    lab.ok(&["scale", "web=24"]);
    fleet.holds_exactly(24);
    lab.ok(&["scale", "web=18"]);
    let before = fleet.holds_exactly(18);

    // One is ended behind everybody's back: it alone is replaced.
    let lost = before.keys().next().unwrap();
    fleet.kill(lost);
    crate::lab::wait("the loss to be seen", 60, || !fleet.leases().contains(lost));
    let after = fleet.holds_exactly(18);
    assert_eq!(before.keys().filter(|lease| !after.contains_key(*lease)).collect::<Vec<_>>(), [lost]);

    // Another spec: everything is replaced, in turns.
    let generation = lab.status()["generation"].as_u64();
    let changed = fleet.file("fleet", 18, "m5.large, t3.large");
    lab.write(&changed.replace("    boot:\n", "    update: { max_unavailable: 6 }\n    boot:\n"));
    crate::lab::wait("the change to be seen", 60, || lab.status()["generation"].as_u64() > generation);
    let changed = fleet.holds_exactly(18);
    assert!(changed.keys().all(|lease| !after.contains_key(lease)), "all are new");
    let of_tokens = region.tokens().len();
    assert!(of_tokens >= 18 + 24, "each attempt has a token of its own: {of_tokens}");
    let heap = lab.all_bytes();
    let secret = heap.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
    assert!(!secret, "the secret key is in the state or in the output");
    fleet.destroy();
}

#[test]
fn h14_an_outage_of_capacity_is_gone_around_and_come_back_from() {
    let Some(fleet) = Fleet::new() else { return };
    let Fleet { lab, region } = &fleet;
    lab.write(&fleet.file("outage", 4, "m5.large, t3.large"));
    let _run = lab.run();
    fleet.holds_exactly(4);
    assert_eq!(fleet.kinds()["m5.large"], 4);

    // No capacity of the first choice: whoever is new gets the second, and nobody else is touched.
    region.faults(&json!([refusal("InsufficientInstanceCapacity", Some("m5.large"))]));
    let before = fleet.lab.attempts();
    lab.ok(&["scale", "web=6"]);
    fleet.holds_exactly(6);
    assert_eq!((fleet.kinds()["m5.large"], fleet.kinds()["t3.large"]), (4, 2));

    // No capacity at all: said on the node, with EC2's code and what to do.
    region.faults(&json!([refusal("InsufficientInstanceCapacity", None)]));
    fleet.ask("web=8");
    let node = fleet.complains("InsufficientInstanceCapacity");
    let said = lab.ok(&["explain", &node]);
    assert!(said.contains("name further instance types"), "{said}");
    assert_eq!(region.living().len(), 6);

    // It comes back, in both: the first in line that has any is taken, with no attempt used up.
    region.faults(&json!([]));
    fleet.holds_exactly(8);
    let after = fleet.lab.attempts();
    assert!(before.iter().all(|(node, attempt)| after[node] == *attempt), "{before:?} {after:?}");
    assert_eq!(after.values().max(), Some(&8), "a refused create uses up no attempt: {after:?}");

    // And back to the first choice for whoever comes next.
    let first = fleet.kinds()["m5.large"];
    lab.ok(&["scale", "web=10"]);
    fleet.holds_exactly(10);
    assert_eq!(fleet.kinds()["m5.large"], first + 2);
    fleet.destroy();
}

#[test]
fn h07_expired_credentials_end_nothing_and_need_no_restart() {
    let Some(fleet) = Fleet::new() else { return };
    let Fleet { lab, region } = &fleet;
    lab.write(&fleet.file("expired", 4, "t3.small"));
    let run = lab.run();
    let before = fleet.holds_exactly(4);
    region.faults(
        &json!([{ "action": "*", "kind": "error", "status": 400, "times": -1, "code": "RequestExpired",
                            "message": "Request has expired." }]),
    );
    fleet.ask("web=3");
    let node = fleet.complains("RequestExpired");
    let said = lab.ok(&["explain", &node]);
    assert!(said.contains("renew the credentials; nothing has to be restarted"), "{said}");
    assert_eq!(region.living().len(), 4, "nothing was ended, and nothing was believed to be");
    region.faults(&json!([]));
    let after = fleet.holds_exactly(3);
    assert!(after.keys().all(|lease| before.contains_key(lease)), "the other three were left alone");
    assert_eq!(lab.status()["driver_pid"], run.child.id());
    fleet.destroy();
}

#[test]
fn where_tokens_are_ignored_and_the_environment_says_so_there_are_no_duplicates() {
    let Some(Fleet { lab, region }) = Fleet::new() else { return };
    let fleet = Fleet { lab: lab.env("RECONCILER_EC2_TOKENS", "ignored"), region };
    fleet.region.config(&json!({ "tokens": false, "lag_s": 0.8 }));
    fleet.region.faults(&json!([
        { "action": "RunInstances", "dry": false, "when": "after", "kind": "drop", "every": 2, "times": -1 },
    ]));
    fleet.lab.write(&fleet.file("tokenless", 6, "t3.small"));
    fleet.lab.ok(&["apply", "-q", "--timeout", "150s"]);
    fleet.holds_exactly(6);
    assert_eq!(fleet.region.instances().len(), 6, "never one too many");
    fleet.destroy();
}
