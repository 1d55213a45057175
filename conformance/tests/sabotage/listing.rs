//! Sabotages of reading and listing, and the cases that each one fails.

use expect_test::expect;

use crate::fails;
use crate::how::How;

#[test]
fn an_executor_to_which_half_a_listing_is_whole() {
    fails(How::HalfAListingIsWhole, &expect!["listing::an_incomplete_listing_says_so"]);
}

#[test]
fn an_executor_that_lists_only_its_own_uid() {
    fails(How::ListsOnlyItsOwnUid, &expect!["listing::a_listing_shows_another_uid_of_the_run_as_foreign"]);
}

#[test]
fn an_executor_to_which_the_dead_read_as_alive() {
    fails(
        How::DeadReadsAsAlive,
        &expect![[r#"
        lease_life::a_dead_lease_does_not_read_as_alive
        listing::a_listing_shows_nothing_destroyed_as_alive"#]],
    );
}

#[test]
fn an_executor_that_lists_nothing() {
    fails(
        How::ListsNothing,
        &expect![[r#"
            listing::a_listing_shows_every_lease
            listing::a_listing_shows_another_uid_of_the_run_as_foreign
            listing::every_page_is_read
            listing::a_page_with_nothing_on_it_is_not_the_last
            listing::pages_that_shift_hide_nothing"#]],
    );
}

#[test]
fn an_executor_that_lists_by_prefix() {
    fails(How::ListsByPrefix, &expect!["listing::a_listing_leaves_other_runs_out"]);
}

#[test]
fn an_executor_that_reads_one_page() {
    fails(
        How::ReadsOnePage,
        &expect![[r#"
            listing::every_page_is_read
            listing::a_page_with_nothing_on_it_is_not_the_last
            listing::pages_that_shift_hide_nothing"#]],
    );
}

#[test]
fn an_executor_that_trusts_shifting_pages() {
    fails(How::TrustsShiftingPages, &expect!["listing::pages_that_shift_hide_nothing"]);
}

#[test]
fn an_executor_to_which_an_empty_page_is_the_last() {
    fails(
        How::StopsAtAnEmptyPage,
        &expect![[r#"
        listing::a_page_with_nothing_on_it_is_not_the_last
        listing::pages_that_shift_hide_nothing"#]],
    );
}
