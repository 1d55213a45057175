//! Sabotages of ending, and the cases that each one fails.

use expect_test::expect;

use crate::fails;
use crate::how::How;

#[test]
fn an_executor_to_which_absent_is_an_error() {
    fails(
        How::AbsentIsAnError,
        &expect![[r#"
            absent::destroying_twice_is_success
            absent::destroying_what_was_removed_by_hand_is_success
            absent::destroying_what_never_was_is_success
            absent::cancelling_twice_is_success
            absent::cancelling_what_never_was_is_success
            absent::cancelling_what_was_removed_by_hand_is_success
            lease_life::a_dead_lease_can_be_destroyed
            lease_life::an_address_used_again_is_another_lease
            bootstrap_life::cancelling_a_session_that_never_was_leaves_the_one_that_runs
            cancellation::a_dropped_destroy_can_be_repeated
            conservation::ten_lives_leave_nothing
            conservation::five_slots_at_once_leave_nothing"#]],
    );
}

#[test]
fn an_executor_to_which_unknown_is_absent() {
    fails(
        How::UnknownIsAbsent,
        &expect![[r#"
            absent::what_cannot_be_read_is_not_absent
            absent::what_cannot_be_listed_is_not_absent
            absent::expired_credentials_prove_no_absence
            absent::a_throttled_read_proves_no_absence"#]],
    );
}

#[test]
fn an_executor_that_destroys_for_anybody() {
    fails(
        How::DestroysForAnybody,
        &expect![[r#"
        identity::a_destroy_touches_only_its_own_attempt
        identity::a_cancel_touches_only_its_own_attempt"#]],
    );
}

#[test]
fn an_executor_whose_destroy_returns_early() {
    fails(
        How::DestroyReturnsEarly,
        &expect![[r#"
            dedup::the_same_operation_after_its_end_is_replayed
            absent::a_destroyed_lease_is_gone_from_the_world
            absent::destroying_right_after_the_create_leaves_nothing
            absent::expired_credentials_prove_no_absence
            identity::runs_of_one_name_are_kept_apart
            cancellation::a_dropped_destroy_can_be_repeated
            conservation::ten_lives_leave_nothing
            conservation::five_slots_at_once_leave_nothing"#]],
    );
}

#[test]
fn an_executor_whose_destroy_forgets_the_young() {
    fails(How::DestroyForgetsTheYoung, &expect!["absent::destroying_right_after_the_create_leaves_nothing"]);
}

#[test]
fn an_executor_whose_cancel_only_says_so() {
    fails(How::CancelOnlySaysSo, &expect!["bootstrap_life::a_cancelled_session_runs_no_more"]);
}

#[test]
fn an_executor_whose_completion_ends_the_node() {
    fails(How::CompletingEndsTheNode, &expect!["bootstrap_life::a_completed_node_lives_on"]);
}

#[test]
fn an_executor_that_completes_only_once() {
    fails(How::CompletesOnlyOnce, &expect!["absent::completing_twice_is_success"]);
}

/// As one does that ends a process by its id: by then the number may be another's.
#[test]
fn an_executor_that_kills_by_what_is_used_again() {
    fails(How::KillsByAddress, &expect!["lease_life::an_address_used_again_is_another_lease"]);
}

#[test]
fn an_executor_that_destroys_before_it_cancels() {
    fails(
        How::DestroysBeforeCancelling,
        &expect![[r#"
        bootstrap_life::a_cancel_leaves_the_lease
        bootstrap_life::cancelling_a_session_that_never_was_leaves_the_one_that_runs"#]],
    );
}

#[test]
fn an_executor_that_cancels_whatever_runs() {
    fails(
        How::CancelsWhateverRuns,
        &expect!["bootstrap_life::cancelling_a_session_that_never_was_leaves_the_one_that_runs"],
    );
}

#[test]
fn an_executor_to_which_a_refused_destroy_is_done() {
    fails(How::ExpiredIsDone, &expect!["absent::expired_credentials_prove_no_absence"]);
}
