//! A frozen plan, as whoever is woken by it sees it, and what is left when its process dies.

use std::process::Stdio;

use crate::desk::{Desk, Driving, until};

#[test]
fn a_frozen_plan_shows_its_question_its_answers_and_what_they_mean_in_both_places() {
    let desk = Desk::new();
    let plan = desk.broken("");
    let log = desk.path("log");
    let out = std::fs::File::create(&log).unwrap();
    let mut command = desk.command(&["run", &plan, "--approve"]);
    let _driving = Driving(command.stdout(out).stderr(Stdio::null()).spawn().unwrap());
    let question = desk.question(&plan, 1);
    let status = desk.ends(2, &["status", &plan]);
    let live = until("the question where it is driven", || {
        std::fs::read_to_string(&log).ok().filter(|text| text.contains("answer with:"))
    });
    for text in [&status, &live] {
        for part in ["FROZEN", "split brain", "machine v1: None", "look-again", "hand-over", &question[..12]]
        {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
        assert!(!text.contains("  roll-back"), "what is not offered is not shown: {text}");
    }
    assert!(status.contains("[x] DisconnectDRBD") && status.contains("[?] "), "{status}");
    assert!(status.contains("driven by process"), "{status}");
    let text = desk.ends(2, &["status", &plan, "--watch"]);
    assert!(text.contains("FROZEN"), "{text}");
}

#[test]
fn a_plan_whose_process_was_killed_says_that_its_hosts_are_gone_and_what_can_be_done() {
    let desk = Desk::new();
    let plan = desk.broken("");
    let mut driving = desk.drive(&plan);
    let question = desk.question(&plan, 1);
    driving.kill();
    let text = desk.ends(2, &["status", &plan]);
    assert!(text.contains("nobody drives it") && text.contains("are gone"), "{text}");
    assert!(
        text.contains("--again") && text.contains("--give-up") && !text.contains("answer with:"),
        "{text}"
    );
    assert_eq!(desk.status(&plan).unwrap()["hosts_gone"], true);
    for asked in [
        &["respond", &plan, "--question", &question, "--answer", "hand-over"][..],
        &["abort", &plan],
        &["run", &plan, "--approve"],
    ] {
        let text = desk.ends(3, asked);
        assert!(text.contains("gain"), "what to do instead: {text}");
    }
    desk.ends(0, &["abort", &plan, "--give-up"]);
    desk.ends(4, &["status", &plan]);
    desk.ends(4, &["abort", &plan, "--give-up"]);
    let kept = std::fs::read_dir(desk.path("state/maintenance-bond-flip-broken")).unwrap();
    let kept =
        kept.filter_map(Result::ok).any(|file| file.file_name().to_string_lossy().starts_with("given-up-"));
    assert!(kept, "what was stored is put aside, not thrown away");
    // It can be begun anew, and one that is driven cannot be given up.
    let mut driving = desk.drive(&plan);
    until("a new run", || desk.status(&plan)?["driver_pid"].as_u64());
    let text = desk.ends(3, &["abort", &plan, "--give-up"]);
    assert!(text.contains("is being driven"), "{text}");
    driving.kill();
    desk.ends(2, &["run", &plan, "--approve", "--again", "--fast"]);
}
