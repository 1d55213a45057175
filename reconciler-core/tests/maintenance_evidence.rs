//! Any one field of passing evidence garbled, dropped or aged makes the gate say no. The fields are found by
//! walking the evidence, so that a field added later is under test at once.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test: a panic is a failed test"
)]

mod maintenance_support;

use std::time::Duration;

use executor_api::host::*;
use expect_test::expect;
use maintenance_support::*;
use reconciler_core::maintenance::gate::sync::{Demand, Wire};
use reconciler_core::maintenance::gate::{Look, bond, host as hosts, lock, storage, survey, sync, vm};
use reconciler_core::maintenance::*;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Every way to spoil one place of a value: another value of the same kind, nothing, or the place left out.
fn spoiled(value: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    walk(value, &mut String::new(), &mut |path, change| found.push((path.to_owned(), change)), value);
    found
}

fn walk(whole: &Value, path: &mut String, found: &mut impl FnMut(&str, Value), here: &Value) {
    let mut offer = |what: &str, replacement: Option<Value>| {
        let mut copy = whole.clone();
        match replacement {
            Some(value) => *copy.pointer_mut(path).unwrap() = value,
            None => remove(&mut copy, path),
        }
        found(&format!("{path} {what}"), copy);
    };
    if !path.is_empty() {
        offer("left out", None);
        if !here.is_null() {
            offer("null", Some(Value::Null));
        }
    }
    match here {
        Value::Null => {}
        Value::Bool(value) => offer("turned", Some(Value::Bool(!value))),
        Value::Number(number) => offer("one more", Some(Value::from(number.as_u64().unwrap() + 1))),
        Value::String(text) => {
            // A digit changed in an identifier, a word made one that nobody knows.
            let garbled = match text.as_bytes().first() {
                Some(digit) if text.len() == 16 && digit.is_ascii_hexdigit() => {
                    let other = if *digit == b'A' { 'B' } else { 'A' };
                    format!("{other}{}", &text[1..])
                }
                _ => format!("{text}?"),
            };
            offer("garbled", Some(Value::String(garbled)));
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                descend(whole, path, found, &index.to_string(), item);
            }
        }
        Value::Object(fields) => {
            for (name, item) in fields {
                descend(whole, path, found, name, item);
            }
        }
    }
}

fn descend(whole: &Value, path: &mut String, found: &mut impl FnMut(&str, Value), name: &str, item: &Value) {
    let length = path.len();
    path.push('/');
    path.push_str(&name.replace('~', "~0").replace('/', "~1"));
    walk(whole, path, found, item);
    path.truncate(length);
}

fn remove(value: &mut Value, path: &str) {
    let (parent, name) = path.rsplit_once('/').unwrap();
    match value.pointer_mut(parent).unwrap() {
        Value::Object(fields) => {
            fields.remove(&name.replace("~1", "/").replace("~0", "~"));
        }
        Value::Array(items) => {
            items.remove(name.parse().unwrap());
        }
        _ => panic!("{path} has no parent"),
    }
}

/// Spoils one reading at every place; answers the places at which the gate still passed. A reading that cannot be
/// read any more is what a driver reports as unknown, and so is handed to the gate.
fn survivors<T: Serialize + DeserializeOwned + Clone>(
    evidence: &Evidence<T>,
    mut passes: impl FnMut(Evidence<T>) -> bool,
) -> (usize, Vec<String>) {
    assert!(passes(evidence.clone()), "the evidence does not pass to begin with");
    let mut aged = evidence.clone();
    aged.read_at -= Duration::from_hours(1);
    assert!(!passes(aged), "old evidence passed");
    let mut early = evidence.clone();
    early.read_at += Duration::from_hours(1);
    assert!(!passes(early), "evidence from the future passed");
    let mut elsewhere = evidence.clone();
    elsewhere.source = Source::Host(host("w9"));
    assert!(!passes(elsewhere), "evidence from another source passed");
    assert!(!passes(Evidence::unknown(evidence.source.clone(), evidence.read_at, "no answer")));

    let value = serde_json::to_value(evidence.value().unwrap()).unwrap();
    let spoiled = spoiled(&value);
    let count = spoiled.len();
    let still = spoiled.into_iter().filter(|(_, change)| {
        let read = match serde_json::from_value(change.clone()) {
            Ok(value) => Evidence::seen(evidence.source.clone(), evidence.read_at, value),
            Err(error) => Evidence::unknown(evidence.source.clone(), evidence.read_at, error.to_string()),
        };
        passes(read)
    });
    (count, still.map(|(path, _)| path).collect())
}

fn run_to(io: IoPolicy, step: &str) -> Run {
    let mut run = Run::new(io);
    run.until(step);
    run
}

fn look<'a>(run: &'a Run, observed: &'a Observed) -> Look<'a> {
    Look { plan: &run.plan, state: &run.state, observed, now: at(run.now) }
}

fn storage_survivors(run: &Run, node: &str, gate: impl Fn(Look<'_>) -> Verdict) -> Vec<String> {
    let observed = run.observed();
    let node = host(node);
    let (count, survivors) = survivors(&observed.storage[&node], |evidence| {
        let mut changed = observed.clone();
        changed.storage.insert(node.clone(), evidence);
        gate(look(run, &changed)).passed()
    });
    assert!(count > 200, "only {count} ways to spoil storage evidence were found");
    survivors
}

#[test]
fn identical_while_connected_needs_every_field_of_both_hosts() {
    let run = run_to(IoPolicy::Continue, "enter DisconnectDRBD");
    // What is left: a newer module, other former generations (they serve only to show that identifiers were ever
    // rotated), a resync more (judged by a rule of its own), and an announcement list that never held anything.
    for node in ["w1", "w2"] {
        let survivors =
            storage_survivors(&run, node, |look| sync::identical(look, &look.plan.resources, Demand::FINISH));
        assert!(survivors.iter().all(|path| is_harmless(path)), "{node}: {survivors:#?}");
    }
}

#[test]
fn identical_while_apart_needs_every_field_of_both_hosts() {
    let run = run_to(quiesce(), "stamp gates");
    for node in ["w1", "w2"] {
        let demand = Demand { wire: Wire::Apart, own_suspension: false };
        let mut run = run.clone();
        for side in ["w1", "w2"] {
            for name in ["r1", "r2"] {
                run.world.resource_mut(side, name).suspended.user = Some(false);
            }
        }
        let gate = |look: Look<'_>| sync::identical(look, &look.plan.resources, demand);
        let survivors = storage_survivors(&run, node, gate);
        assert!(
            survivors.iter().all(|path| is_harmless(path) || is_primary_at_work(path)),
            "{node}: {survivors:#?}"
        );
    }
}

#[test]
fn an_ancestor_is_proved_by_every_field_of_both_hosts() {
    let run = run_to(IoPolicy::Continue, "stamp gates");
    let mut all = Vec::new();
    for node in ["w1", "w2"] {
        let survivors = storage_survivors(&run, node, |look| sync::may_reconnect(look, &look.plan.resources));
        let left = survivors.into_iter().filter(|path| !is_harmless(path) && !is_primary_at_work(path));
        all.extend(left.map(|path| format!("{node} {path}")));
    }
    // The side that is ahead may count any number of blocks, and its own new generation may be any; what it says
    // about the peer being outdated changes nothing about the peer's ancestry.
    expect![[r#"
        w1 /resources/r1/connections/w2/volumes/0/generation/current garbled
        w1 /resources/r1/connections/w2/volumes/0/generation/peer_outdated turned
        w1 /resources/r1/connections/w2/volumes/0/out_of_sync_kib one more
        w2 /resources/r2/connections/w1/volumes/0/generation/current garbled
        w2 /resources/r2/connections/w1/volumes/0/generation/peer_outdated turned
        w2 /resources/r2/connections/w1/volumes/0/out_of_sync_kib one more"#]]
    .assert_eq(&all.join("\n"));
}

/// Changes that leave the proof whole.
fn is_harmless(path: &str) -> bool {
    path.contains("/generation/history/") && path.ends_with(" garbled") || path.contains("/resyncs_finished")
}

/// A primary that is apart may have writes of its own under way.
fn is_primary_at_work(path: &str) -> bool {
    path.contains("_pending one more")
}

#[test]
fn a_host_that_is_not_read_is_a_no() {
    let run = run_to(IoPolicy::Continue, "enter DisconnectDRBD");
    let mut observed = run.observed();
    observed.storage.remove(&host("w2"));
    let verdict = sync::identical(look(&run, &observed), &run.plan.resources, Demand::FINISH);
    assert!(!verdict.passed());
}

#[test]
fn the_pin_gate_needs_every_field() {
    let run = run_to(IoPolicy::Continue, "enter DisconnectDRBD");
    let observed = run.observed();
    let (count, survivors) = survivors(observed.vms.as_ref().unwrap(), |evidence| {
        let mut changed = observed.clone();
        changed.vms = Some(evidence);
        vm::pinned(look(&run, &changed)).passed()
    });
    assert!(count > 30, "only {count} ways to spoil the picture of machines were found");
    // Which resources a machine uses is why it is in the picture at all.
    let left: Vec<_> = survivors.into_iter().filter(|path| !path.contains("/resources")).collect();
    expect![""].assert_eq(&left.join("\n"));
}

#[test]
fn the_bond_gates_need_every_field() {
    let before = run_to(IoPolicy::Continue, "enter DisconnectDRBD");
    let after = run_to(IoPolicy::Continue, "enter ResumeDRBD");
    for node in ["w1", "w2"].map(host) {
        let spoil = |run: &Run, gate: &dyn Fn(Look<'_>) -> Verdict| {
            let observed = run.observed();
            let (count, survivors) = survivors(&observed.bonds[&node], |evidence| {
                let mut changed = observed.clone();
                changed.bonds.insert(node.clone(), evidence);
                gate(look(run, &changed)).passed()
            });
            assert!(count > 40, "only {count} ways to spoil a bond were found");
            survivors
        };
        let both = [host("w1"), host("w2")];
        let none = Vec::<String>::new();
        assert_eq!(spoil(&before, &|look| bond::as_verified(look, &both)), none);
        assert_eq!(spoil(&after, &|look| bond::symmetric(look, &BondMode::BalanceRr)), none);
    }
}

#[test]
fn the_storage_pod_and_disconnected_gates_need_every_field() {
    let run = run_to(IoPolicy::Continue, "enter FlipNode1");
    let observed = run.observed();
    for node in ["w1", "w2"].map(host) {
        let (_, survivors) = survivors(&observed.satellites[&node], |evidence| {
            let mut changed = observed.clone();
            changed.satellites.insert(node.clone(), evidence);
            storage::drained(look(&run, &changed), &run.plan.nodes).passed()
        });
        assert_eq!(survivors, Vec::<String>::new());
    }
    let gate = |look: Look<'_>| storage::apart(look, &look.plan.resources);
    for node in ["w1", "w2"] {
        let left: Vec<_> = storage_survivors(&run, node, gate)
            .into_iter()
            .filter(|path| {
                path.contains("/state ") || path.contains("/connections ") || path.contains("/stable")
            })
            .collect();
        assert_eq!(left, Vec::<String>::new(), "{node}");
    }
}

#[test]
fn the_lock_gate_needs_holder_fence_and_plan() {
    let run = run_to(IoPolicy::Continue, "enter FlipNode1");
    let observed = run.observed();
    let (_, survivors) = survivors(observed.lock.as_ref().unwrap(), |evidence| {
        let mut changed = observed.clone();
        changed.lock = Some(evidence);
        lock::held(look(&run, &changed)).passed()
    });
    // Renewals move the version; the durations are for candidates; the time of the hold is for people.
    expect![[r#"
        /hold/since/nanos_since_epoch one more
        /hold/since/secs_since_epoch one more
        /lease/ttl/nanos one more
        /lease/ttl/secs one more
        /lease/version garbled"#]]
    .assert_eq(&survivors.join("\n"));
}

#[test]
fn every_field_of_a_probe_counts() {
    let mut run = Run::new(IoPolicy::Continue);
    run.until("send w2: probe");
    let probe = run.state.probes[0].clone();
    let passes = |probe: &LinkProbe| {
        let observed = run.observed();
        bond::probe_faults(look(&run, &observed), probe).is_empty()
    };
    assert!(passes(&probe));
    let value = serde_json::to_value(&probe).unwrap();
    let left: Vec<_> = spoiled(&value)
        .into_iter()
        .filter(|(_, change)| serde_json::from_value(change.clone()).is_ok_and(|probe| passes(&probe)))
        .map(|(path, _)| path)
        .collect();
    expect![[r#"
        /frame_bytes one more
        /receiver/s0/rx one more
        /receiver/s0/tx one more
        /receiver/s1/rx one more
        /receiver/s1/tx one more
        /sender/s0/rx one more
        /sender/s0/rx_nohandler one more
        /sender/s0/tx one more
        /sender/s1/rx one more
        /sender/s1/rx_nohandler one more
        /sender/s1/tx one more"#]]
    .assert_eq(&left.join("\n"));
}

#[test]
fn the_gates_of_the_beginning_need_every_field() {
    let run = run_to(IoPolicy::Quiesce { suspend_for: None }, "enter PreconditionsCheck");
    let observed = run.observed();
    let mut all = Vec::new();
    for node in ["w1", "w2"].map(host) {
        let (_, left) = survivors(&observed.hosts[&node], |evidence| {
            let mut changed = observed.clone();
            changed.hosts.insert(node.clone(), evidence);
            hosts::ready(look(&run, &changed)).passed()
        });
        all.extend(left.into_iter().map(|path| format!("host {node} {path}")));
        let (_, left) = survivors(&observed.bonds[&node], |evidence| {
            let mut changed = observed.clone();
            changed.bonds.insert(node.clone(), evidence);
            bond::untouched(look(&run, &changed)).passed()
        });
        all.extend(left.into_iter().map(|path| format!("bond {node} {path}")));
        let (_, left) = survivors(&observed.satellites[&node], |evidence| {
            let mut changed = observed.clone();
            changed.satellites.insert(node.clone(), evidence);
            storage::serving(look(&run, &changed)).passed()
        });
        all.extend(left.into_iter().map(|path| format!("pods {node} {path}")));
        let role = |path: &String| path.contains("/role ") || path.contains("/stable ");
        let left = storage_survivors(&run, node.as_str(), storage::quiet).into_iter().filter(role);
        all.extend(left.map(|path| format!("quiet {node} {path}")));
        // Who has diverged is asked of the identifiers and the announcements, and of nothing else.
        let told = |path: &String| {
            path.contains("/generation/current")
                || path.contains("/split_brain_seen")
                || path.contains("/module ")
        };
        let left = storage_survivors(&run, node.as_str(), sync::not_diverged).into_iter().filter(told);
        all.extend(left.map(|path| format!("diverged {node} {path}")));
    }
    // What a bond has no right value for before it was ever recorded may be anything, and is recorded as it is found;
    // a storage pod may have any name.
    expect![[r#"
        bond w1 /addresses/0 left out
        bond w1 /addresses/0 garbled
        bond w1 /boot_id garbled
        bond w1 /mac garbled
        bond w1 /members/s0/link_failures one more
        bond w1 /members/s1/link_failures one more
        bond w1 /mtu one more
        bond w1 /routes/0 left out
        bond w1 /routes/0 garbled
        pods w1 /pods/0 garbled
        bond w2 /addresses/0 left out
        bond w2 /addresses/0 garbled
        bond w2 /boot_id garbled
        bond w2 /mac garbled
        bond w2 /members/s0/link_failures one more
        bond w2 /members/s1/link_failures one more
        bond w2 /mtu one more
        bond w2 /routes/0 left out
        bond w2 /routes/0 garbled
        pods w2 /pods/0 garbled"#]]
    .assert_eq(&all.join("\n"));
}

/// The gates whose evidence is spoiled field by field in this file. A gate that is new is missing here.
#[test]
fn every_gate_there_is_has_its_evidence_spoiled() {
    let run = run_to(IoPolicy::Continue, "enter DisconnectDRBD");
    let observed = run.observed();
    let names: Vec<_> = survey(look(&run, &observed)).into_iter().map(|(name, _)| name).collect();
    expect![[r#"
        hosts ready
        bonds sound in the mode to leave
        bonds as last verified
        bonds alike in the mode to reach
        machines pinned
        nobody writes
        replication apart
        storage pods gone
        storage pods running
        copies not diverged
        copies may meet again
        copies identical
        lock held"#]]
    .assert_eq(&names.join("\n"));
}

/// A field that the passing evidence leaves empty is spoiled in no way but one: each is named here, with its reason.
#[test]
fn no_field_of_passing_evidence_is_empty_but_those_that_must_be() {
    let run = run_to(IoPolicy::Continue, "stamp gates");
    let value = serde_json::to_value(run.observed()).unwrap();
    let mut empty = Vec::new();
    nothing_in(&value, &mut String::new(), &mut empty);
    // Nothing moves, nothing has been announced, and nothing of a pod is left on a drained host: what a value in
    // these places leads to is tested one by one, in the tests of the guards.
    expect![[r#"
        /satellites/w1/read/seen/pods (list)
        /satellites/w2/read/seen/pods (list)
        /storage/w1/read/seen/split_brain_seen (list)
        /storage/w2/read/seen/split_brain_seen (list)
        /vms/read/seen/migrations (map)
        /vms/read/seen/vms/v1/running/evacuating_from
        /vms/read/seen/vms/v2/running/evacuating_from"#]]
    .assert_eq(&empty.join("\n"));
}

fn nothing_in(value: &Value, path: &mut String, found: &mut Vec<String>) {
    let length = path.len();
    match value {
        Value::Null => found.push(path.clone()),
        Value::Array(items) if items.is_empty() => found.push(format!("{path} (list)")),
        Value::Object(fields) if fields.is_empty() => found.push(format!("{path} (map)")),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push('/');
                path.push_str(&index.to_string());
                nothing_in(item, path, found);
                path.truncate(length);
            }
        }
        Value::Object(fields) => {
            for (name, item) in fields {
                path.push('/');
                path.push_str(name);
                nothing_in(item, path, found);
                path.truncate(length);
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
