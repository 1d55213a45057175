//! Sabotages of making and adopting, and the cases that each one fails.

use expect_test::expect;

use crate::fails;
use crate::how::How;

#[test]
fn an_executor_that_never_looks_first() {
    fails(
        How::NeverLooksFirst,
        &expect![[r#"
            dedup::a_lease_is_made_once_however_often_it_is_created
            dedup::creates_at_once_make_one_lease
            dedup::creates_of_two_instances_at_once_make_one_lease
            dedup::the_same_operation_with_other_input_is_refused
            dedup::the_same_operation_across_a_timeout_does_not_act_again
            adoption::a_lease_whose_answer_was_lost_is_adopted
            adoption::a_repeat_with_another_body_makes_no_second_lease
            adoption::a_create_that_never_arrived_is_made_good
            adoption::a_lease_that_lands_late_is_adopted
            adoption::of_two_leases_one_is_kept
            adoption::a_new_instance_adopts_the_lease
            identity::a_lease_of_another_candidate_is_adopted
            lease_life::an_endpoint_that_does_not_come_is_waited_for
            lease_life::a_dead_lease_is_never_returned
            errors::an_invalid_request_is_told
            errors::a_used_up_quota_is_told
            errors::a_missing_right_is_told
            errors::a_lack_of_capacity_is_told
            errors::an_unreachable_provider_is_told
            errors::a_throttle_says_how_long
            errors::expired_credentials_are_a_refusal
            errors::an_answer_that_nobody_understands_is_ambiguous
            errors::a_refused_create_made_nothing
            errors::a_flawed_spec_is_not_leased
            cancellation::a_call_ends_by_its_deadline
            cancellation::a_dropped_create_leaves_one_lease_or_none"#]],
    );
}

#[test]
fn an_executor_whose_token_comes_from_the_clock() {
    fails(
        How::TokenFromTheClock,
        &expect![[r#"
            dedup::a_lease_is_made_once_however_often_it_is_created
            dedup::creates_at_once_make_one_lease
            dedup::creates_of_two_instances_at_once_make_one_lease
            dedup::the_same_operation_with_other_input_is_refused
            dedup::the_same_operation_across_a_timeout_does_not_act_again
            adoption::a_lease_whose_answer_was_lost_is_adopted
            adoption::a_repeat_with_another_body_makes_no_second_lease
            adoption::a_create_that_never_arrived_is_made_good
            adoption::a_lease_that_lands_late_is_adopted
            adoption::a_new_instance_adopts_the_lease
            lease_life::an_endpoint_that_does_not_come_is_waited_for
            errors::an_invalid_request_is_told
            errors::a_used_up_quota_is_told
            errors::a_missing_right_is_told
            errors::a_lack_of_capacity_is_told
            errors::an_unreachable_provider_is_told
            errors::a_throttle_says_how_long
            errors::an_answer_that_nobody_understands_is_ambiguous
            errors::a_refused_create_made_nothing
            errors::a_flawed_spec_is_not_leased
            cancellation::a_call_ends_by_its_deadline"#]],
    );
}

#[test]
fn an_executor_that_adopts_by_name_only() {
    fails(
        How::AdoptsByNameOnly,
        &expect![[r#"
            adoption::of_two_leases_one_is_kept
            identity::runs_of_one_name_are_kept_apart
            identity::a_lease_of_an_earlier_attempt_is_not_adopted"#]],
    );
}

#[test]
fn an_executor_that_creates_under_adopt_only() {
    fails(
        How::CreatesUnderAdoptOnly,
        &expect![[r#"
        adoption::a_create_that_never_arrived_is_made_good
        adoption::adopt_only_makes_no_lease
        identity::a_lease_of_an_earlier_attempt_is_not_adopted"#]],
    );
}

#[test]
fn an_executor_that_starts_under_adopt_only() {
    fails(How::StartsUnderAdoptOnly, &expect!["adoption::adopt_only_starts_no_session"]);
}

#[test]
fn an_executor_that_returns_dead_leases() {
    fails(How::ReturnsDeadLeases, &expect!["lease_life::a_dead_lease_is_never_returned"]);
}

#[test]
fn an_executor_that_remembers_only_in_memory() {
    fails(
        How::RemembersOnlyInMemory,
        &expect![[r#"
            dedup::a_lease_is_made_once_however_often_it_is_created
            dedup::creates_at_once_make_one_lease
            dedup::creates_of_two_instances_at_once_make_one_lease
            dedup::the_same_operation_with_other_input_is_refused
            dedup::the_same_operation_across_a_timeout_does_not_act_again
            adoption::a_lease_whose_answer_was_lost_is_adopted
            adoption::a_repeat_with_another_body_makes_no_second_lease
            adoption::a_create_that_never_arrived_is_made_good
            adoption::a_lease_that_lands_late_is_adopted
            adoption::a_new_instance_adopts_the_lease
            adoption::adopt_only_finds_the_lease
            adoption::adopt_only_makes_no_lease
            identity::a_lease_of_an_earlier_attempt_is_not_adopted
            lease_life::an_endpoint_that_does_not_come_is_waited_for
            errors::an_invalid_request_is_told
            errors::a_used_up_quota_is_told
            errors::a_missing_right_is_told
            errors::a_lack_of_capacity_is_told
            errors::an_unreachable_provider_is_told
            errors::a_throttle_says_how_long
            errors::expired_credentials_are_a_refusal
            errors::an_answer_that_nobody_understands_is_ambiguous
            errors::a_refused_create_made_nothing
            errors::a_flawed_spec_is_not_leased
            cancellation::a_call_ends_by_its_deadline"#]],
    );
}

#[test]
fn an_executor_that_forgets_its_sessions() {
    fails(
        How::ForgetsItsSessions,
        &expect![[r#"
            dedup::a_session_is_started_once_however_often
            dedup::starts_at_once_make_one_session
            dedup::starts_of_two_instances_at_once_make_one_session
            adoption::a_session_whose_answer_was_lost_is_adopted
            adoption::a_new_instance_adopts_the_session
            adoption::a_new_instance_is_told_of_the_join_at_once
            adoption::adopt_only_finds_the_session
            absent::completing_twice_is_success
            identity::the_node_quotes_its_attempts_nonce
            bootstrap_life::a_node_joins
            bootstrap_life::an_exit_with_an_error_before_the_join_is_a_failure
            bootstrap_life::an_exit_with_success_before_the_join_is_a_failure
            bootstrap_life::a_session_that_failed_is_not_adopted
            bootstrap_life::a_session_that_never_was_tells_nothing
            bootstrap_life::a_completed_node_lives_on
            bootstrap_life::a_death_after_the_join_is_told
            bootstrap_life::a_death_after_completion_is_told
            bootstrap_life::reports_are_numbered_upwards
            errors::no_text_tells_a_secret
            cancellation::a_dropped_start_leaves_one_session_or_none
            conservation::ten_lives_leave_nothing
            conservation::five_slots_at_once_leave_nothing"#]],
    );
}

#[test]
fn an_executor_that_shares_one_lease() {
    fails(
        How::SharesOneLease,
        &expect![[r#"
            dedup::different_slots_hold_different_leases
            adoption::of_two_leases_one_is_kept
            identity::the_longest_names_are_kept_apart
            identity::similar_slots_are_kept_apart
            identity::runs_of_one_name_are_kept_apart
            identity::a_lease_of_an_earlier_attempt_is_not_adopted
            lease_life::a_dead_lease_is_never_returned
            lease_life::the_next_attempt_gets_a_lease_of_its_own
            lease_life::an_address_used_again_is_another_lease
            listing::a_listing_shows_every_lease
            cancellation::a_dropped_create_leaves_one_lease_or_none
            cancellation::a_dropped_start_leaves_one_session_or_none
            cancellation::a_dropped_destroy_can_be_repeated
            conservation::ten_lives_leave_nothing"#]],
    );
}

#[test]
fn an_executor_that_adopts_failed_sessions() {
    fails(How::AdoptsFailedSessions, &expect!["bootstrap_life::a_session_that_failed_is_not_adopted"]);
}

#[test]
fn an_executor_that_adopts_the_dead_of_the_slot() {
    fails(
        How::AdoptsTheDeadOfTheSlot,
        &expect![[r#"
            adoption::of_two_leases_one_is_kept
            identity::runs_of_one_name_are_kept_apart
            identity::a_lease_of_an_earlier_attempt_is_not_adopted
            lease_life::a_dead_lease_is_never_returned
            lease_life::the_next_attempt_gets_a_lease_of_its_own
            lease_life::an_address_used_again_is_another_lease
            conservation::ten_lives_leave_nothing"#]],
    );
}

#[test]
fn an_executor_that_declares_no_delay() {
    fails(
        How::DeclaresNoDelay,
        &expect![[r#"
            dedup::the_same_operation_after_its_end_is_replayed
            adoption::a_repeat_with_another_body_makes_no_second_lease
            adoption::a_lease_that_lands_late_is_adopted
            adoption::of_two_leases_one_is_kept
            adoption::adopt_only_finds_the_lease
            absent::a_destroyed_lease_is_gone_from_the_world
            absent::destroying_twice_is_success
            absent::destroying_what_was_removed_by_hand_is_success
            absent::destroying_right_after_the_create_leaves_nothing
            identity::runs_of_one_name_are_kept_apart
            identity::a_lease_of_another_candidate_is_adopted
            lease_life::the_next_attempt_gets_a_lease_of_its_own
            listing::a_listing_shows_every_lease
            listing::a_listing_shows_nothing_destroyed_as_alive
            listing::a_listing_shows_another_uid_of_the_run_as_foreign
            listing::every_page_is_read
            listing::a_page_with_nothing_on_it_is_not_the_last
            listing::pages_that_shift_hide_nothing
            cancellation::nothing_lands_after_the_declared_time"#]],
    );
}

#[test]
fn an_executor_that_makes_two() {
    fails(
        How::MakesTwo,
        &expect![[r#"
            dedup::a_lease_is_made_once_however_often_it_is_created
            dedup::creates_at_once_make_one_lease
            dedup::creates_of_two_instances_at_once_make_one_lease
            dedup::the_same_operation_at_once_acts_once
            dedup::the_same_operation_with_other_input_is_refused
            dedup::the_same_operation_across_a_timeout_does_not_act_again
            adoption::a_lease_whose_answer_was_lost_is_adopted
            adoption::a_repeat_with_another_body_makes_no_second_lease
            adoption::a_create_that_never_arrived_is_made_good
            adoption::of_two_leases_one_is_kept
            adoption::a_new_instance_adopts_the_lease
            adoption::adopt_only_finds_the_lease
            absent::cancelling_what_was_removed_by_hand_is_success
            identity::the_longest_names_are_kept_apart
            identity::similar_slots_are_kept_apart
            identity::runs_of_one_name_are_kept_apart
            identity::a_lease_of_another_candidate_is_adopted
            identity::a_lease_of_an_earlier_attempt_is_not_adopted
            identity::a_destroy_touches_only_its_own_attempt
            lease_life::an_endpoint_that_does_not_come_is_waited_for
            lease_life::a_dead_lease_is_never_returned
            lease_life::a_dead_lease_does_not_read_as_alive
            lease_life::the_next_attempt_gets_a_lease_of_its_own
            lease_life::an_address_used_again_is_another_lease
            bootstrap_life::a_cancel_leaves_the_lease
            bootstrap_life::a_completed_node_lives_on
            errors::expired_credentials_are_a_refusal
            errors::a_refused_create_made_nothing
            errors::a_flawed_spec_is_not_leased
            listing::a_listing_shows_every_lease
            cancellation::a_dropped_create_leaves_one_lease_or_none"#]],
    );
}

#[test]
fn an_executor_that_adopts_only_its_candidate() {
    fails(How::AdoptsOnlyItsCandidate, &expect!["identity::a_lease_of_another_candidate_is_adopted"]);
}

#[test]
fn an_executor_that_leases_any_spec() {
    fails(How::LeasesAnySpec, &expect!["errors::a_flawed_spec_is_not_leased"]);
}

#[test]
fn an_executor_that_takes_reserved_labels() {
    fails(How::TakesReservedLabels, &expect!["identity::a_reserved_label_is_refused"]);
}

#[test]
fn an_executor_that_takes_another_token_when_an_answer_is_unclear() {
    fails(
        How::TakesAnotherToken,
        &expect![[r#"
            adoption::a_repeat_with_another_body_makes_no_second_lease
            errors::an_answer_that_nobody_understands_is_ambiguous
            cancellation::a_call_ends_by_its_deadline"#]],
    );
}
