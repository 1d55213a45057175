//! The table of cases of hosts. One module per promise; a case that is not in the table does not exist.

pub(crate) mod behaviour;
pub(crate) mod bounds;
pub(crate) mod dedup;
pub(crate) mod exactness;
pub(crate) mod fencing;
pub(crate) mod host_reads;
pub(crate) mod lock_behaviour;
pub(crate) mod lock_fencing;
pub(crate) mod lock_hold;
pub(crate) mod machine_reads;
pub(crate) mod settling;
pub(crate) mod storage_reads;

use crate::case::{Case, table};
use crate::hosts::bench::HostBench;

table! { $
    /// Every case, grouped by promise.
    HOST_CASES: HostBench,
    /// One `#[test]` per case of hosts, in a module per promise. Takes what makes a harness: a function or a
    /// closure without arguments.
    host_suite: run_host_named,
    behaviour {
        success_means_that_it_is_over,
        a_flip_brings_everything_into_the_new_mode,
        a_flip_back_puts_the_original_back,
        a_disconnected_resource_stays_apart,
        a_connected_resource_catches_up,
        a_drain_keeps_pods_away,
        an_undrain_lets_pods_back,
        suspended_io_stands_and_resumed_io_goes_on,
        a_probe_counts_every_packet,
        a_probe_tells_of_a_link_that_loses,
        a_call_ends_by_its_deadline,
        what_comes_after_its_deadline_does_nothing,
        an_agent_that_died_in_the_middle_reports_no_success,
    }
    dedup {
        the_same_operation_twice_acts_once,
        the_same_operation_at_once_is_answered_alike,
        a_new_instance_repeats_nothing,
        a_restarted_agent_remembers_what_it_did,
        the_same_id_with_other_content_is_refused,
        another_plan_has_ids_of_its_own,
        an_operation_that_arrives_twice_acts_once,
        the_same_machine_operation_twice_acts_once,
        the_same_machine_id_with_other_content_is_refused,
    }
    fencing {
        a_former_holder_is_refused_and_nothing_is_done,
        a_former_holder_is_refused_whatever_its_plan,
        a_former_holder_is_not_even_answered_from_memory,
        a_restarted_agent_remembers_the_fence,
        a_settling_raises_the_fence,
        what_was_let_through_is_over_before_the_next_holder_is_let_in,
        a_former_holder_is_refused_at_the_machines,
    }
    settling {
        what_was_done_is_said_to_be_done,
        what_never_came_never_acts,
        what_lands_after_it_was_settled_does_nothing,
        what_is_under_way_is_waited_for,
        what_was_settled_stays_so,
        a_former_holder_settles_nothing,
        a_settling_changes_nothing,
        a_machine_operation_that_was_done_is_said_to_be_done,
        a_machine_operation_that_never_came_never_acts,
    }
    bounds {
        a_suspension_ends_by_itself,
        a_drain_touches_no_machine,
        a_drain_touches_one_host,
        a_flip_touches_one_host,
        a_disconnect_touches_one_resource,
        a_probe_changes_nothing,
        a_connect_discards_nothing,
        gates_of_another_lease_are_refused,
    }
    host_reads {
        a_bond_is_read_as_it_is_not_as_it_was_asked_for,
        the_next_boot_is_read_from_the_configuration,
        a_member_without_carrier_shows,
        a_member_that_left_is_not_shown,
        routes_that_are_gone_are_not_shown,
        a_list_of_members_cut_short_says_so,
        a_state_that_nobody_knows_is_kept_as_it_was_read,
        a_configuration_that_cannot_be_read_is_not_made_up,
        a_boot_shows,
        what_cannot_be_read_is_an_error,
    }
    storage_reads {
        each_host_tells_its_own_view,
        a_counter_that_is_not_reported_is_absent,
        identifiers_that_are_not_reported_are_absent,
        events_that_cannot_be_told_are_unknown,
        status_that_changed_meanwhile_is_not_stable,
        a_word_that_nobody_knows_is_kept_as_it_was_read,
        a_split_brain_that_was_announced_is_told,
        only_what_was_asked_for_is_shown,
        a_connection_is_read_as_it_is_not_as_it_was_asked_for,
        a_pod_that_comes_back_shows,
        a_list_of_pods_cut_short_is_not_empty,
        what_cannot_be_read_is_an_error,
    }
    machine_reads {
        what_runs_is_read_apart_from_what_is_declared,
        left_out_is_not_none,
        a_migration_shows_whoever_asked_for_it,
        an_abort_that_lost_the_race_shows_the_machine_where_it_is,
        a_mark_for_evacuation_shows,
        machines_of_other_resources_are_left_out,
        a_lowered_shield_shows,
        what_cannot_be_read_is_an_error,
    }
    exactness {
        a_pin_reaches_the_running_machine_and_raises_the_shield,
        a_pinned_machine_is_neither_evicted_nor_moved,
        a_setting_is_given_back_as_it_was,
        a_setting_that_was_left_out_is_left_out_again,
        a_restore_lowers_the_shield,
        an_abort_ends_the_migration,
        no_pod_is_replaced_by_pinning_and_restoring,
        a_pin_touches_one_machine,
    }
    lock_behaviour {
        a_free_lease_is_taken_by_one_of_two,
        a_lease_that_moved_is_not_taken,
        a_lease_that_is_there_is_not_made_anew,
        every_write_changes_the_version,
        the_duration_is_that_of_the_holder,
        a_lease_that_was_taken_cannot_be_renewed,
        a_lease_that_was_taken_cannot_be_released,
        a_released_lease_is_free,
        a_write_shows_at_once_to_everybody,
        an_answer_that_was_lost_is_not_told_as_a_refusal,
        what_cannot_be_read_is_an_error,
    }
    lock_fencing {
        a_takeover_raises_the_fence,
        the_same_holder_gets_a_higher_fence_too,
        a_renewal_keeps_the_fence,
        the_fence_rises_also_after_a_release,
        the_fence_rises_also_after_the_record_was_deleted,
    }
    lock_hold {
        a_hold_outlives_its_lease,
        a_hold_keeps_other_plans_out,
        only_the_holder_places_a_hold,
        only_the_holder_lifts_a_hold,
        a_hold_is_placed_and_lifted_once,
        a_hold_renews_nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_name_stands_twice() {
        let names: BTreeSet<_> = HOST_CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), HOST_CASES.len());
    }
}
