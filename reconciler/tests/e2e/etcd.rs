//! Somebody else's server, as the example declares it: three etcd members, one of which is killed.

use crate::lab::{Lab, attempts, get, signal, wait};

/// Whether etcd is there. In CI it must be.
fn is_installed() -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|dir| dir.join("etcd").exists());
    assert!(
        found || std::env::var("CI").as_deref() != Ok("true"),
        "CI must have etcd: apt-get install etcd-server"
    );
    found
}

#[test]
fn a_killed_etcd_member_comes_back_and_the_other_two_are_untouched() {
    if !is_installed() {
        eprintln!("SKIPPED: etcd is not installed (Debian: apt-get install etcd-server)");
        return;
    }
    let example =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/etcd.yaml")).unwrap();
    // As declared, but healed without the wait for ten seconds of good behaviour.
    let lab = Lab::with(&(example + "\nretry: { stable_after: 1s }\n"));
    let _run = lab.run();
    wait("three members", 60, || lab.try_status().is_some_and(|status| status["converged"] == true));
    let status = lab.converged(3);
    let before = attempts(&status);
    let client = |index: usize| status["nodes"][index]["endpoint"].as_str().unwrap().to_owned();
    let untouched = [lab.pids("etcd-0"), lab.pids("etcd-2")];
    let members =
        |endpoint: &str| get(endpoint, "/metrics").map(|text| text.contains("etcd_server_has_leader 1"));
    assert_eq!(members(&client(0)), Some(true));

    signal(lab.pids("etcd-1")[0], "KILL");
    wait("a fresh attempt", 20, || lab.attempts()["etcd-1"] > before["etcd-1"]);
    wait("three members again", 60, || lab.try_status().is_some_and(|status| status["converged"] == true));
    let after = attempts(&lab.converged(3));
    assert_eq!((after["etcd-0"], after["etcd-2"]), (before["etcd-0"], before["etcd-2"]));
    assert_eq!([lab.pids("etcd-0"), lab.pids("etcd-2")], untouched);
    for index in 0..3 {
        assert!(
            get(&client(index), "/health").is_some_and(|text| text.contains("true")),
            "member {index} is not healthy"
        );
        assert_eq!(members(&client(index)), Some(true), "member {index} has no leader");
    }
    lab.destroy();
    assert!(!lab.state_dir().join("etcd").exists());
}
