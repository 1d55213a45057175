//! Replies to the question of a frozen plan: each quotes it, is offered by it, names its giver, and is void once anything
//! has moved.

use crate::desk::{Desk, until};

#[test]
fn a_reply_that_fits_is_taken_once_and_kept_with_who_and_when() {
    let desk = Desk::new();
    let plan = desk.broken("");
    let mut driving = desk.drive(&plan);
    let question = desk.question(&plan, 1);
    let respond = ["respond", &plan, "--question", &question[..16], "--answer", "hand-over", "--who", "ann"];
    let text = desk.ends(0, &respond);
    assert_eq!(text.trim(), "taken: hand-over");
    assert_eq!(driving.ends(), Some(2));
    let status = desk.status(&plan).unwrap();
    let reply = &status["replies"][0];
    assert_eq!((&reply["answer"], &reply["by"]["who"]), (&"hand-over".into(), &"ann".into()), "{reply}");
    let at = reply["by"]["at"].as_str().unwrap();
    assert!(at.starts_with('2') && at.ends_with('Z'), "{reply}");
    assert!(!status.to_string().contains("since_epoch"), "{status:#}");
    let text = desk.ends(2, &["status", &plan]);
    assert!(text.contains("question 1 was answered hand-over by ann at 2"), "{text}");
    assert!(!text.contains("answer with:"), "{text}");
    let text = desk.ends(3, &respond);
    assert!(text.contains("is over"), "a replay is refused: {text}");
}

#[test]
fn replies_that_are_made_up_not_offered_or_nobodys_are_refused_and_change_nothing() {
    let desk = Desk::new();
    let plan = desk.broken("");
    let _driving = desk.drive(&plan);
    let question = desk.question(&plan, 1);
    let respond = |question: &str, answer: &str, who: &str| {
        desk.ends(3, &["respond", &plan, "--question", question, "--answer", answer, "--who", who])
    };
    let text = respond(&"0".repeat(64), "hand-over", "ann");
    assert!(text.contains("the open question is"), "made up: {text}");
    let text = respond(&question[..7], "hand-over", "ann");
    assert!(text.contains("the open question is"), "seven digits are too few: {text}");
    let text = respond(&format!("{question}0"), "hand-over", "ann");
    assert!(text.contains("the open question is"), "more than the whole: {text}");
    let text = respond(&question, "roll-back", "ann");
    assert!(text.contains("roll-back is not offered"), "{text}");
    let text = respond(&question, "retry-step", "ann");
    assert!(text.contains("offered: look-again, hand-over"), "{text}");
    let text = respond(&question, "hand-over", " ");
    assert!(text.contains("--who"), "{text}");
    let text = desk.ends(1, &["respond", &plan, "--question", &question, "--answer", "go-on"]);
    assert!(text.contains("answers are look-again, retry-step, roll-back, hand-over"), "{text}");
    let text = desk.ends(3, &["abort", &plan]);
    assert!(text.contains("frozen"), "an abort is no reply: {text}");
    let status = desk.status(&plan).unwrap();
    assert_eq!(status["question"]["fingerprint"], question.as_str(), "the question stands");
    assert_eq!(status["replies"], serde_json::json!([]));
    assert_eq!(status["recovery"], "Escalated");
}

#[test]
fn a_reply_is_void_once_the_world_has_moved() {
    let desk = Desk::new();
    let plan = desk.broken("  - at: 9s\n    what: { routes_lost: { host: w1 } }\n  - at: 9s\n    what: { carrier_lost: { host: w1, interface: s1 } }\n");
    let _driving = desk.drive(&plan);
    let first = desk.question(&plan, 1);
    // A cable is pulled: the question is asked anew, about the world as it is now.
    let second = desk.question(&plan, 2);
    assert_ne!(first, second);
    let text = desk.ends(3, &["respond", &plan, "--question", &first, "--answer", "hand-over"]);
    assert!(text.contains("the open question is"), "{text}");
    let text = desk.ends(0, &["respond", &plan, "--question", &second, "--answer", "look-again"]);
    assert_eq!(text.trim(), "taken: look-again");
    // Nothing is provable now either: it asks again, and the reply before is of no use any more.
    let third = desk.question(&plan, 3);
    let text = desk.ends(3, &["respond", &plan, "--question", &second, "--answer", "look-again"]);
    assert!(text.contains("the open question is") && third != second, "{text}");
    until("the reply to be shown", || (desk.status(&plan)?["replies"].as_array()?.len() == 1).then_some(()));
}
