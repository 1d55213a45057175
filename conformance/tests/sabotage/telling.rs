//! Sabotages of errors, endpoints, validation and reports, and the cases that each one fails.

use expect_test::expect;

use crate::fails;
use crate::how::How;

#[test]
fn an_executor_that_ignores_its_deadline() {
    fails(How::IgnoresItsDeadline, &expect!["cancellation::a_call_ends_by_its_deadline"]);
}

#[test]
fn an_executor_to_which_lost_answers_are_refusals() {
    fails(
        How::LostAnswersAreRefusals,
        &expect![[r#"
        adoption::a_lease_whose_answer_was_lost_is_adopted
        adoption::a_create_that_never_arrived_is_made_good
        adoption::a_lease_that_lands_late_is_adopted"#]],
    );
}

#[test]
fn an_executor_to_which_throttles_are_ambiguous() {
    fails(How::ThrottlesAreAmbiguous, &expect!["errors::a_throttle_says_how_long"]);
}

#[test]
fn an_executor_to_which_exit_zero_is_no_failure() {
    fails(
        How::ExitZeroIsNoFailure,
        &expect!["bootstrap_life::an_exit_with_success_before_the_join_is_a_failure"],
    );
}

#[test]
fn an_executor_that_forgets_loss_after_the_join() {
    fails(
        How::ForgetsLossAfterTheJoin,
        &expect![[r#"
            bootstrap_life::a_death_during_the_boot_is_told
            bootstrap_life::a_death_after_the_join_is_told
            bootstrap_life::a_death_after_completion_is_told"#]],
    );
}

#[test]
fn an_executor_that_shares_one_nonce() {
    fails(How::SharesOneNonce, &expect!["identity::the_node_quotes_its_attempts_nonce"]);
}

#[test]
fn an_executor_that_accepts_any_spec() {
    fails(
        How::AcceptsAnySpec,
        &expect![[r#"
        identity::a_reserved_label_is_refused
        errors::a_flawed_spec_is_refused_at_its_flaw"#]],
    );
}

#[test]
fn an_executor_that_tells_only_edges() {
    fails(How::TellsOnlyEdges, &expect!["adoption::a_new_instance_is_told_of_the_join_at_once"]);
}

#[test]
fn an_executor_that_never_finds_an_endpoint() {
    fails(
        How::NeverFindsAnEndpoint,
        &expect![[r#"
            dedup::a_session_is_started_once_however_often
            dedup::starts_at_once_make_one_session
            dedup::starts_of_two_instances_at_once_make_one_session
            adoption::a_session_whose_answer_was_lost_is_adopted
            adoption::a_new_instance_adopts_the_session
            adoption::a_new_instance_is_told_of_the_join_at_once
            adoption::adopt_only_finds_the_session
            adoption::adopt_only_starts_no_session
            absent::cancelling_twice_is_success
            absent::cancelling_what_was_removed_by_hand_is_success
            absent::completing_twice_is_success
            identity::a_cancel_touches_only_its_own_attempt
            identity::the_node_quotes_its_attempts_nonce
            lease_life::an_endpoint_is_found_in_time
            lease_life::a_dead_lease_is_never_returned
            lease_life::a_dead_lease_has_no_endpoint
            lease_life::a_dead_lease_does_not_read_as_alive
            lease_life::a_dead_lease_can_be_destroyed
            lease_life::a_moved_lease_is_listed_where_it_is
            lease_life::an_address_used_again_is_another_lease
            bootstrap_life::a_node_joins
            bootstrap_life::an_exit_with_an_error_before_the_join_is_a_failure
            bootstrap_life::an_exit_with_success_before_the_join_is_a_failure
            bootstrap_life::a_session_that_failed_is_not_adopted
            bootstrap_life::a_cancelled_session_runs_no_more
            bootstrap_life::a_cancel_leaves_the_lease
            bootstrap_life::a_session_that_never_was_tells_nothing
            bootstrap_life::cancelling_a_session_that_never_was_leaves_the_one_that_runs
            bootstrap_life::a_completed_node_lives_on
            bootstrap_life::a_death_during_the_boot_is_told
            bootstrap_life::a_death_after_the_join_is_told
            bootstrap_life::a_death_after_completion_is_told
            bootstrap_life::reports_are_numbered_upwards
            errors::no_text_tells_a_secret
            cancellation::a_dropped_start_leaves_one_session_or_none
            cancellation::a_dropped_destroy_can_be_repeated
            conservation::ten_lives_leave_nothing
            conservation::five_slots_at_once_leave_nothing"#]],
    );
}

#[test]
fn an_executor_that_remembers_endpoints() {
    fails(
        How::RemembersEndpoints,
        &expect![[r#"
            lease_life::a_dead_lease_has_no_endpoint
            lease_life::a_moved_lease_is_listed_where_it_is
            lease_life::an_address_used_again_is_another_lease"#]],
    );
}

#[test]
fn an_executor_that_numbers_downwards() {
    fails(How::NumbersDownwards, &expect!["bootstrap_life::reports_are_numbered_upwards"]);
}

#[test]
fn an_executor_that_refuses_any_spec() {
    fails(
        How::RefusesAnySpec,
        &expect![[r#"
        identity::a_reserved_label_is_refused
        errors::a_sound_spec_is_accepted"#]],
    );
}

#[test]
fn an_executor_that_never_tells_of_joins() {
    fails(
        How::NeverTellsOfJoins,
        &expect![[r#"
            adoption::a_new_instance_is_told_of_the_join_at_once
            absent::completing_twice_is_success
            identity::the_node_quotes_its_attempts_nonce
            bootstrap_life::a_node_joins
            bootstrap_life::a_session_that_never_was_tells_nothing
            bootstrap_life::a_completed_node_lives_on
            bootstrap_life::a_death_after_the_join_is_told
            bootstrap_life::a_death_after_completion_is_told
            bootstrap_life::reports_are_numbered_upwards
            conservation::ten_lives_leave_nothing
            conservation::five_slots_at_once_leave_nothing"#]],
    );
}

#[test]
fn an_executor_to_which_no_exit_is_a_failure() {
    fails(
        How::NoExitIsFailure,
        &expect![[r#"
            bootstrap_life::an_exit_with_an_error_before_the_join_is_a_failure
            bootstrap_life::an_exit_with_success_before_the_join_is_a_failure
            errors::no_text_tells_a_secret"#]],
    );
}

#[test]
fn an_executor_that_gives_up_on_endpoints() {
    fails(How::GivesUpOnEndpoints, &expect!["lease_life::an_endpoint_that_does_not_come_is_waited_for"]);
}

#[test]
fn an_executor_that_forgets_death_during_the_boot() {
    fails(How::ForgetsDeathDuringTheBoot, &expect!["bootstrap_life::a_death_during_the_boot_is_told"]);
}

#[test]
fn an_executor_that_follows_whatever_runs() {
    fails(How::FollowsWhateverRuns, &expect!["bootstrap_life::a_session_that_never_was_tells_nothing"]);
}

#[test]
fn an_executor_to_which_garbled_is_refused() {
    fails(
        How::GarbledIsRefused,
        &expect![[r#"
        adoption::a_repeat_with_another_body_makes_no_second_lease
        errors::an_answer_that_nobody_understands_is_ambiguous"#]],
    );
}

#[test]
fn an_executor_to_which_expired_is_ambiguous() {
    fails(
        How::ExpiredIsAmbiguous,
        &expect![[r#"
        errors::a_missing_right_is_told
        errors::expired_credentials_are_a_refusal"#]],
    );
}

#[test]
fn an_executor_that_tells_secrets() {
    fails(How::TellsSecrets, &expect!["errors::no_text_tells_a_secret"]);
}
