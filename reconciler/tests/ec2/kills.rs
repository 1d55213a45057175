//! SIGKILL of the driving process between a launch and its answer, again and again. Its state, its tokens and the tags
//! are what the next one goes by.

use serde_json::json;

use crate::fleet::Fleet;
use crate::lab::wait;

/// How often. `EC2_KILLS` changes it.
fn kills() -> usize {
    std::env::var("EC2_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(50)
}

#[test]
fn a_driver_killed_between_launch_and_answer_finds_its_instance_again() {
    let Some(fleet) = Fleet::new() else { return };
    let Fleet { lab, region } = &fleet;
    let mut killed = 0;
    for round in 0..kills() {
        // One more than there is; its launch is answered only after two more seconds.
        let text = fleet.file("killed", round + 1, "t3.small");
        // What a killed driver left under way is waited out, and must not be in the way of the next launch.
        lab.write(&text.replace("creates: 8", "creates: 64"));
        region.faults(
            &json!([{ "action": "RunInstances", "dry": false, "when": "after", "kind": "delay", "s": 2.0,
                                "times": -1 }]),
        );
        let mut run = lab.background(&["run"]);
        wait("the launch of one more", 60, || region.living().len() > round);
        // It is there, and its answer is still on its way.
        assert_eq!(region.living().len(), round + 1);
        run.kill();
        killed += 1;
    }
    region.faults(&json!([]));
    let _run = lab.run();
    let held = fleet.holds_exactly(killed);
    assert_eq!(held.len(), kills());
    // Not one attempt was given up for it, and never was there more than the one instance of each.
    let given_up = lab.attempts().into_iter().find(|(_, attempt)| *attempt > kills() as u64);
    let how = given_up.map(|(node, _)| lab.ok(&["events", &node]));
    assert_eq!(how, None, "an attempt was given up");
    assert_eq!(region.instances().len(), kills());
    assert_eq!(region.tokens().len(), kills());
    fleet.destroy();
}
