//! Instances that become nodes over SSH. One server answers at the addresses of all of them, so the sessions of every
//! instance are processes of this machine.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use crate::doors::{Door, left_of};
use crate::fleet::{Fleet, timing};
use crate::lab::{Lab, signal, wait};

/// The machines of a run. One that ends takes along what runs on it; all of these are this one, so the end of the test
/// does that.
struct Machines(String);

impl Drop for Machines {
    fn drop(&mut self) {
        for process in left_of(&self.0) {
            let pid = process.split(':').next().unwrap_or_default();
            let _gone_already = Command::new("kill").args(["-KILL", pid]).stderr(Stdio::null()).status();
        }
    }
}

/// Where the nodes' endpoints are.
fn hosts(lab: &Lab) -> BTreeSet<String> {
    let status = lab.status();
    let nodes = status["nodes"].as_array().unwrap().iter();
    nodes.filter_map(|node| Some(node["endpoint"].as_str()?.split(':').next()?.to_owned())).collect()
}

#[test]
fn instances_become_nodes_over_ssh() {
    let Some(fleet) = Fleet::new() else { return };
    let addresses: Vec<_> = (1..=12).map(|nth| fleet.region.address(nth)).collect();
    let Some(door) = Door::ssh_at(&addresses) else { return };
    let run = format!("over-ssh-{}", std::process::id());
    let _machines = Machines(run.clone());
    let lab = &fleet.lab;
    let declare = |count: usize, seconds: u32, awaits: &str| {
        let boot = format!(
            "{}\n      steps: [[sh, -c, 'echo $RECONCILER_NODE $RECONCILER_ATTEMPT >>{}']]\n      \
             start: [sh, -c, 'echo up; exec sleep {seconds}']\n      \
             ready: {{ log: {awaits} }}\n      \
             stop: {{ grace: 1s }}",
            door.way(),
            door.path("steps").display()
        );
        lab.write(&format!(
            "run: {run}\ngroups:\n{}{}",
            fleet.group_that_boots(count, "t3.small", &boot),
            timing()
        ));
    };
    declare(3, 4331, "up");
    let _run = lab.run();
    let held = fleet.holds_exactly(3);
    let hosts = hosts(lab);
    assert!(hosts.len() == 3 && hosts.iter().all(|host| addresses.contains(host)), "{hosts:?}");
    let programs = || ["web-0", "web-1", "web-2"].map(|node| lab.pids(node));
    let made = programs();
    assert!(made.iter().all(|pids| pids.len() == 1), "{made:?}");

    // A program that dies takes its instance with it, and no other.
    let before = lab.attempts();
    signal(made[0][0], "KILL");
    wait("the node without its program to be replaced", 90, || lab.attempts()["web-0"] > before["web-0"]);
    let healed = fleet.holds_exactly(3);
    assert_eq!(healed.keys().filter(|id| held.contains_key(*id)).count(), 2, "{held:?} {healed:?}");
    let now = programs();
    assert_eq!([&now[1], &now[2]], [&made[1], &made[2]], "the others were touched");

    // An instance that ends behind everybody's back is replaced.
    let before = lab.attempts();
    let (lost, node) = healed.first_key_value().unwrap();
    fleet.kill(lost);
    wait("the ended instance to be replaced", 90, || lab.attempts()[node] > before[node]);
    fleet.holds_exactly(3);

    // Another program on every one of them, and one of them less.
    let before = lab.attempts();
    declare(2, 4332, "up");
    wait("the new spec", 90, || {
        let now = lab.attempts();
        now.len() == 2 && now.iter().all(|(node, attempt)| *attempt > before[node])
    });
    fleet.holds_exactly(2);
    let steps = std::fs::read_to_string(door.path("steps")).unwrap();
    let once: BTreeSet<_> = steps.lines().collect();
    assert_eq!((once.len(), steps.lines().count()), (7, 7), "a step was done twice, or for nobody:\n{steps}");

    // One that has not become a node yet is called off before its instance is ended.
    declare(1, 4333, "never said");
    let on_its_way = || left_of(&run).iter().any(|process| process.contains("sleep 4333"));
    wait("a session that does not join", 90, on_its_way);
    fleet.destroy();
    assert!(!on_its_way(), "its session was left: {:#?}", left_of(&run));
}
