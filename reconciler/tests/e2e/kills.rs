//! `kill -9` at random instants, while real processes are scaled, healed and replaced: of the driver, and of the
//! commands that talk to it or drive themselves.
//!
//! `RECONCILER_KILLS=500 cargo test -p reconciler --test e2e kills -- --nocapture` for a long run, which prints its
//! figures; `RECONCILER_SEED` repeats one.

use std::time::Duration;

use crate::lab::{Lab, named_in_command_lines, processes, signal, wait_or, web};
use crate::watch::{Seen, Watch};

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

    fn instant(&mut self, bound: u64) {
        // The instant of the kill is what is tried: nothing is waited for here.
        std::thread::sleep(Duration::from_millis(self.below(bound)));
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn declared(run: &str, count: u64, variant: u64) -> String {
    // The role is part of the compared spec: another one replaces every node.
    let text = web(run, u32::try_from(count).unwrap_or(1), "");
    text.replace("role: worker", &format!("role: worker-{variant}"))
        .replace("retry: {", "retry: { operation_timeout: 3s, initial: 200ms, cap: 1s,")
}

fn kill_one_node(chance: &mut Chance, uid: &str) {
    let living = processes(uid, None);
    let index = usize::try_from(chance.below(living.len().max(1) as u64)).unwrap_or(0);
    if let Some(pid) = living.get(index) {
        // It may have ended since.
        let _ = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
}

fn uid_of(lab: &Lab) -> String {
    lab.status()["uid"].as_str().map(str::to_owned).unwrap_or_default()
}

fn is_as_declared(lab: &Lab, count: u64) -> bool {
    let status = lab.try_status().unwrap_or_default();
    let nodes = status["nodes"].as_array().map_or(0, Vec::len);
    status["converged"] == true && nodes as u64 == count
}

/// Removes everything; nothing of the run is left anywhere.
fn nothing_is_left(lab: &Lab, run: &str, uid: &str) {
    lab.destroy();
    assert_eq!(processes(uid, None), [0; 0], "processes are left over");
    let dir = lab.state_dir().join(run);
    assert_eq!(named_in_command_lines(&dir), [""; 0], "supervisors are left over");
    assert!(!dir.exists(), "files are left over");
}

fn print(what: &str, kills: u64, repairs: u64, seen: &Seen) {
    println!(
        "{what}: {kills} kills, {repairs} repairs seen to the end; {} looks at {} attempts, none doubled, none given \
         out twice; nothing left",
        seen.looks,
        seen.attempts.len()
    );
}

#[test]
fn a_driver_killed_at_any_instant_loses_and_doubles_nothing() {
    let kills = number("RECONCILER_KILLS", 15);
    let seed = number("RECONCILER_SEED", 1);
    println!("{kills} kills of drivers, seed {seed}");
    let mut chance = Chance(seed);
    let (mut count, mut variant) = (3, 0);
    let lab = Lab::with(&declared("kills", count, variant));
    lab.ok(&["apply", "-q", "--timeout", "60s"]);
    let uid = uid_of(&lab);
    let watch = Watch::of(&uid);
    let mut repairs = 0;
    for kill in 0..kills {
        let mut run = lab.background(&["run"]);
        match chance.below(4) {
            0 => count = 1 + chance.below(5),
            1 => variant += 1,
            2 => kill_one_node(&mut chance, &uid),
            _ => {}
        }
        lab.write(&declared("kills", count, variant));
        chance.instant(700);
        run.kill();
        watch.check();
        // Every few kills the next driver is left alone until it has repaired everything.
        if kill % 5 == 4 {
            let run = lab.run();
            let done = || {
                watch.check();
                is_as_declared(&lab, count)
            };
            wait_or("the cluster to be repaired", 60, done, || format!("{:#}", lab.status()));
            assert_eq!(processes(&uid, None).len() as u64, count, "one process for each slot");
            repairs += 1;
            signal(i32::try_from(run.child.id()).unwrap_or(0), "KILL");
        }
    }
    lab.ok(&["apply", "-q", "-y", "--timeout", "60s"]);
    assert_eq!(processes(&uid, None).len() as u64, count);
    nothing_is_left(&lab, "kills", &uid);
    print("drivers", kills, repairs, &watch.end());
}

#[test]
fn a_command_killed_at_any_instant_leaves_the_run_as_it_was_or_as_it_asked() {
    let kills = number("RECONCILER_KILLS", 15);
    let seed = number("RECONCILER_SEED", 2);
    println!("{kills} kills of commands, seed {seed}");
    let mut chance = Chance(seed);
    let (mut count, mut variant) = (2, 0);
    let lab = Lab::with(&declared("asked", count, variant));
    lab.ok(&["apply", "-q", "--timeout", "60s"]);
    let uid = uid_of(&lab);
    let watch = Watch::of(&uid);
    let mut repairs = 0;
    for kill in 0..kills {
        // Half of them talk to a driver, the others drive themselves.
        let driver = (chance.below(2) == 0).then(|| lab.run());
        let before = count;
        let mut command = match chance.below(3) {
            0 => {
                variant += 1;
                lab.write(&declared("asked", count, variant));
                lab.background(&["apply", "-q", "-y"])
            }
            1 => {
                count = 1 + chance.below(4);
                lab.background(&["scale", &format!("web={count}"), "-q"])
            }
            _ => {
                kill_one_node(&mut chance, &uid);
                lab.background(&["apply", "-q", "-y"])
            }
        };
        chance.instant(300);
        command.kill();
        watch.check();
        if let Some(driver) = &driver {
            let done = || {
                watch.check();
                is_as_declared(&lab, count) || is_as_declared(&lab, before)
            };
            wait_or(&format!("the driver to go on after kill {kill}"), 60, done, || {
                format!("{before} or {count} nodes: {:#}\n{}", lab.status(), driver.output())
            });
            assert!(!driver.output().contains("error"), "{}", driver.output());
            repairs += 1;
        }
        drop(driver);
        // What was cut short is asked for again, to the end.
        lab.ok(&["apply", "-q", "-y", "--timeout", "60s"]);
        lab.ok(&["scale", &format!("web={count}"), "-q", "--timeout", "60s"]);
        assert!(is_as_declared(&lab, count), "kill {kill}: {:#}", lab.status());
    }
    // Last, a removal that is cut short again and again.
    for round in 0..5 {
        let mut command = lab.background(&["destroy", "-y", "-q"]);
        chance.instant(20 + 60 * round);
        command.kill();
        watch.check();
    }
    if lab.state_dir().join("asked").exists() {
        nothing_is_left(&lab, "asked", &uid);
    }
    assert_eq!(processes(&uid, None), [0; 0], "processes are left over");
    print("commands", kills + 5, repairs, &watch.end());
}
