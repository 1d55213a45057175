//! `kill -9` of the driving process at random instants, while it scales, heals and replaces real processes.
//! `RECONCILER_KILLS=500 cargo test -p reconciler --test e2e kills -- --nocapture` for a long run;
//! `RECONCILER_SEED` repeats one.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::lab::{Lab, is_alive, processes, signal, wait, web};

/// `SplitMix64`: the instants and the edits follow from the seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn declared(count: u64, variant: u64) -> String {
    // The role is part of the compared spec: another one replaces every node.
    let text = web("kills", u32::try_from(count).unwrap_or(1), "");
    text.replace("role: worker", &format!("role: worker-{variant}"))
        .replace("retry: {", "retry: { operation_timeout: 3s, initial: 200ms, cap: 1s,")
}

/// The node that a process belongs to, as its environment says.
fn node_of(pid: i32) -> Option<String> {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let environ = String::from_utf8_lossy(&environ).into_owned();
    environ.split('\0').find_map(|var| var.strip_prefix("RECONCILER_NODE=")).map(str::to_owned)
}

/// A slot never has two processes at one time.
fn no_slot_is_doubled(uid: &str) {
    let mut by_node: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for pid in processes(uid, None) {
        if let Some(node) = node_of(pid) {
            by_node.entry(node).or_default().push(pid);
        }
    }
    for (node, pids) in by_node {
        // The table is read one entry after the other: what was seen may have ended since.
        let together = pids.iter().filter(|pid| is_alive(**pid) && node_of(**pid).as_ref() == Some(&node));
        assert!(together.count() < 2, "{node} has processes {pids:?}");
    }
}

#[test]
fn a_driver_killed_at_any_instant_loses_and_doubles_nothing() {
    let kills = number("RECONCILER_KILLS", 15);
    let seed = number("RECONCILER_SEED", 1);
    println!("{kills} kills, seed {seed}");
    let mut chance = Chance(seed);
    let (mut count, mut variant) = (3, 0);
    let lab = Lab::with(&declared(count, variant));
    lab.ok(&["apply", "-q", "--timeout", "60s"]);
    let uid = lab.status()["uid"].as_str().map(str::to_owned).unwrap_or_default();
    let mut restarts_that_converged = 0;
    for kill in 0..kills {
        let mut run = lab.background(&["run"]);
        match chance.below(4) {
            0 => count = 1 + chance.below(5),
            1 => variant += 1,
            2 => {
                let living = processes(&uid, None);
                if !living.is_empty() {
                    let index = chance.below(living.len() as u64);
                    if let Some(pid) = usize::try_from(index).ok().and_then(|index| living.get(index)) {
                        let _ = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
                    }
                }
            }
            _ => {}
        }
        lab.write(&declared(count, variant));
        // The instant of the kill is what is tried: nothing is waited for here.
        std::thread::sleep(Duration::from_millis(chance.below(700)));
        no_slot_is_doubled(&uid);
        run.kill();
        no_slot_is_doubled(&uid);
        // Every few kills the next driver is left alone until it has repaired everything.
        if kill % 5 == 4 {
            let run = lab.run();
            wait("the cluster to be repaired", 60, || {
                no_slot_is_doubled(&uid);
                let status = lab.try_status().unwrap_or_default();
                let nodes = status["nodes"].as_array().map_or(0, Vec::len);
                status["converged"] == true && nodes as u64 == count
            });
            assert_eq!(processes(&uid, None).len() as u64, count, "one process for each slot");
            restarts_that_converged += 1;
            signal(i32::try_from(run.child.id()).unwrap_or(0), "KILL");
        }
    }
    lab.ok(&["apply", "-q", "--timeout", "60s"]);
    assert_eq!(processes(&uid, None).len() as u64, count);
    lab.destroy();
    assert_eq!(processes(&uid, None), [0; 0], "processes are left over");
    println!(
        "{kills} kills, {restarts_that_converged} repairs seen to the end, nothing doubled, nothing left"
    );
}
