//! The table of cases. One module per promise; a case that is not in the table does not exist.

pub(crate) mod absent;
pub(crate) mod adoption;
pub(crate) mod bootstrap_life;
pub(crate) mod cancellation;
pub(crate) mod conservation;
pub(crate) mod dedup;
pub(crate) mod errors;
pub(crate) mod identity;
pub(crate) mod lease_life;
pub(crate) mod listing;

use crate::bench::Bench;
use crate::case::{Case, table};

table! { $
    /// Every case, grouped by promise.
    CASES: Bench,
    /// One `#[test]` per case, in a module per promise. Takes what makes a harness: a function or a closure
    /// without arguments.
    suite: run_named,
    dedup {
        a_lease_is_made_once_however_often_it_is_created,
        creates_at_once_make_one_lease,
        creates_of_two_instances_at_once_make_one_lease,
        a_session_is_started_once_however_often,
        starts_at_once_make_one_session,
        starts_of_two_instances_at_once_make_one_session,
        different_slots_hold_different_leases,
        the_same_operation_at_once_acts_once,
        the_same_operation_after_its_end_is_replayed,
        the_same_operation_with_other_input_is_refused,
        the_same_operation_across_a_timeout_does_not_act_again,
    }
    adoption {
        a_lease_whose_answer_was_lost_is_adopted,
        a_repeat_with_another_body_makes_no_second_lease,
        a_create_that_never_arrived_is_made_good,
        a_lease_that_lands_late_is_adopted,
        of_two_leases_one_is_kept,
        a_new_instance_adopts_the_lease,
        a_session_whose_answer_was_lost_is_adopted,
        a_new_instance_adopts_the_session,
        a_new_instance_is_told_of_the_join_at_once,
        adopt_only_finds_the_lease,
        adopt_only_makes_no_lease,
        adopt_only_finds_the_session,
        adopt_only_starts_no_session,
    }
    absent {
        a_destroyed_lease_is_gone_from_the_world,
        destroying_twice_is_success,
        destroying_what_was_removed_by_hand_is_success,
        destroying_what_never_was_is_success,
        destroying_right_after_the_create_leaves_nothing,
        cancelling_twice_is_success,
        cancelling_what_never_was_is_success,
        cancelling_what_was_removed_by_hand_is_success,
        completing_twice_is_success,
        what_cannot_be_read_is_not_absent,
        what_cannot_be_listed_is_not_absent,
        expired_credentials_prove_no_absence,
        a_throttled_read_proves_no_absence,
    }
    identity {
        the_longest_names_are_kept_apart,
        similar_slots_are_kept_apart,
        runs_of_one_name_are_kept_apart,
        a_lease_of_another_candidate_is_adopted,
        a_reserved_label_is_refused,
        a_lease_of_an_earlier_attempt_is_not_adopted,
        a_destroy_touches_only_its_own_attempt,
        a_cancel_touches_only_its_own_attempt,
        the_node_quotes_its_attempts_nonce,
    }
    lease_life {
        an_endpoint_is_found_in_time,
        an_endpoint_that_does_not_come_is_waited_for,
        a_dead_lease_is_never_returned,
        a_dead_lease_has_no_endpoint,
        a_dead_lease_does_not_read_as_alive,
        a_dead_lease_can_be_destroyed,
        the_next_attempt_gets_a_lease_of_its_own,
        a_moved_lease_is_listed_where_it_is,
        an_address_used_again_is_another_lease,
    }
    bootstrap_life {
        a_node_joins,
        an_exit_with_an_error_before_the_join_is_a_failure,
        an_exit_with_success_before_the_join_is_a_failure,
        a_session_that_failed_is_not_adopted,
        a_cancelled_session_runs_no_more,
        a_cancel_leaves_the_lease,
        a_session_that_never_was_tells_nothing,
        cancelling_a_session_that_never_was_leaves_the_one_that_runs,
        a_completed_node_lives_on,
        a_death_during_the_boot_is_told,
        a_death_after_the_join_is_told,
        a_death_after_completion_is_told,
        reports_are_numbered_upwards,
    }
    errors {
        an_invalid_request_is_told,
        a_used_up_quota_is_told,
        a_missing_right_is_told,
        a_lack_of_capacity_is_told,
        an_unreachable_provider_is_told,
        a_throttle_says_how_long,
        expired_credentials_are_a_refusal,
        an_answer_that_nobody_understands_is_ambiguous,
        a_refused_create_made_nothing,
        a_flawed_spec_is_refused_at_its_flaw,
        a_flawed_spec_is_not_leased,
        a_sound_spec_is_accepted,
        no_text_tells_a_secret,
    }
    listing {
        a_listing_shows_every_lease,
        a_listing_shows_nothing_destroyed_as_alive,
        a_listing_leaves_other_runs_out,
        a_listing_shows_another_uid_of_the_run_as_foreign,
        an_incomplete_listing_says_so,
        every_page_is_read,
        a_page_with_nothing_on_it_is_not_the_last,
        pages_that_shift_hide_nothing,
    }
    cancellation {
        a_call_ends_by_its_deadline,
        a_dropped_create_leaves_one_lease_or_none,
        a_dropped_start_leaves_one_session_or_none,
        a_dropped_destroy_can_be_repeated,
        nothing_lands_after_the_declared_time,
    }
    conservation {
        ten_lives_leave_nothing,
        five_slots_at_once_leave_nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_name_stands_twice() {
        let names: BTreeSet<_> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
    }
}
