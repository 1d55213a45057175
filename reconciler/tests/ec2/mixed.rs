//! One cluster of two kinds: instances, and programs on this machine. Neither waits for the other.

use serde_json::json;

use crate::fleet::{Fleet, timing};
use crate::lab::{processes, signal, wait};

fn local(count: usize) -> String {
    format!(
        r#"  - name: local
    count: {count}
    role: worker
    provider: process
    shape: {{ ports: [http] }}
    boot:
      command: ["{{self}}", "demo-node", "--port", "{{port.http}}"]
      ready: {{ http: "http://127.0.0.1:{{port.http}}/healthz", every: 100ms }}
      stop: {{ grace: 2s }}
    join: {{ within: 30s }}
"#
    )
}

#[test]
fn instances_and_local_programs_are_one_cluster() {
    let Some(fleet) = Fleet::new() else { return };
    let Fleet { lab, region } = &fleet;
    let declare = |programs: usize| {
        lab.write(&format!(
            "run: mixed\ngroups:\n{}{}{}",
            fleet.group(3, "t3.small"),
            local(programs),
            timing()
        ));
    };
    declare(2);
    let _run = lab.run();
    let before = fleet.holds_exactly_the_ec2_nodes_of(5, 3);
    let uid = lab.status()["uid"].as_str().unwrap().to_owned();

    // One of each is lost, and only those two are replaced.
    let attempts = lab.attempts();
    let lost = before.keys().next().unwrap();
    fleet.kill(lost);
    signal(lab.pids("local-0")[0], "KILL");
    wait("both losses to be healed", 90, || {
        let now = lab.attempts();
        now.get(&before[lost]) > attempts.get(&before[lost]) && now.get("local-0") > attempts.get("local-0")
    });
    fleet.holds_exactly_the_ec2_nodes_of(5, 3);
    let moved = lab.attempts().into_iter().filter(|(node, attempt)| attempts[node] != *attempt);
    assert_eq!(moved.map(|(node, _)| node).collect::<Vec<_>>(), ["local-0", &before[lost]]);

    // EC2 answers nothing any more. Programs come and go all the same.
    region.faults(
        &json!([{ "action": "*", "kind": "error", "status": 503, "code": "Unavailable", "times": -1 }]),
    );
    fleet.ask("local=3");
    let ready = || {
        let status = lab.try_status().unwrap_or_default();
        let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
        nodes.iter().filter(|node| node["group"] == "local" && node["ready"] == true).count()
    };
    wait("a third program while EC2 is away", 60, || ready() == 3);
    assert_eq!(region.living().len(), 3);
    region.faults(&json!([]));
    fleet.holds_exactly_the_ec2_nodes_of(6, 3);

    fleet.destroy();
    assert_eq!(processes(&uid, None), [0; 0], "no program is left");
}
