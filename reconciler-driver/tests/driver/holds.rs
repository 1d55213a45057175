//! A hold whose reason changes is never absent in between.

use reconciler_core::{Hold, HoldBy};
use reconciler_driver::{ClusterDriver, DriverInput, Happening};

use crate::support::{Stage, at, epoch, group, shape, slot};

fn hold(reason: &str, second: u64) -> Hold {
    Hold { by: HoldBy::Maintenance, reason: reason.to_owned(), since: at(second) }
}

/// What holds the node, by now.
fn held(driver: &ClusterDriver) -> Option<Hold> {
    driver.state().holds.on(&slot("web-0")).cloned()
}

#[test]
fn a_node_stays_held_while_the_reason_changes_whatever_pass_comes_in_between() {
    for on in [Some(slot("web-0")), None] {
        let mut stage = Stage::new(shape(1, vec![group("web", 1, 1)]));
        stage.settle(60);
        let (mut last, mut second) = (None, 60);
        // From the second reason on there is much to do: the spec is another one.
        for reason in ["plan a", "plan a cannot be read: locked", "plan a cannot be read: full", "plan a"] {
            second += 1;
            stage.runner.tell(DriverInput::Hold { slot: on.clone(), hold: hold(reason, second) });
            assert_eq!(held(stage.runner.driver()), Some(hold(reason, 61)), "before any pass");
            stage.run_to(second);
            assert_eq!(held(stage.runner.driver()), Some(hold(reason, 61)));
            if last.is_none() {
                stage.ask(shape(2, vec![group("web", 1, 2)]));
                stage.run_to(second);
            }
            last = Some(reason);
        }
        stage.run_to(200);
        assert_eq!((stage.steps("begin-delete"), stage.steps("released")), (0, 0), "{}", stage.trace());
        let reasons = stage.runner.events().iter().filter_map(|event| match &event.what {
            Happening::Held { reason, .. } => Some(reason.as_str()),
            _ => None,
        });
        assert_eq!(reasons.count(), 4, "each reason is told");
        assert_eq!(stage.attempt("web-0"), 1);
        stage.runner.tell(DriverInput::Release { slot: on, by: HoldBy::Maintenance });
        stage.settle(60);
        assert_eq!(stage.attempt("web-0"), 2, "one release ends it, whatever its reasons were");
    }
}

#[test]
fn what_is_stored_is_held_in_every_changeset_while_the_reason_changes() {
    let mut driver =
        ClusterDriver::new(shape(1, vec![group("web", 1, 1)]), crate::support::policy(), epoch()).unwrap();
    let mut reasons = Vec::new();
    for reason in ["plan a", "plan b", "plan c"] {
        driver.handle(DriverInput::Hold { slot: Some(slot("web-0")), hold: hold(reason, 1) }, at(1));
        while driver.needs_pass() {
            let Some(changes) = driver.pass(at(1)).unwrap().commit else { continue };
            let stored = changes.meta.holds.as_ref().and_then(|holds| holds.on(&slot("web-0")));
            reasons.extend(stored.map(|hold| hold.reason.clone()));
            assert!(changes.meta.holds.is_none() || stored.is_some());
            driver.handle(DriverInput::Committed(changes.seq), at(1));
        }
    }
    assert_eq!(reasons, ["plan a", "plan b", "plan c"]);
}
