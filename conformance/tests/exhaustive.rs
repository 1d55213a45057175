//! Exhaustive search of small worlds on the real decider, fold and apply. The largest is searched only in the
//! optimised profile: `cargo test --profile checked -p conformance --test exhaustive -- --nocapture`.

use conformance::search::Search;
use reconciler_driver::Rules;

fn search(search: &Search) {
    let found = search.run(&Rules::default());
    println!(
        "{} nodes, {} faults, {} edits, crashes {}: {found}",
        search.nodes, search.faults, search.edits, search.crashes
    );
    assert!(found.violation.is_none() && !found.truncated);
    assert!(found.ends > 0, "the search never came to rest");
}

#[test]
fn one_node_with_two_faults_and_two_edits() {
    search(&Search::new(1, 2, 2));
}

#[test]
fn two_nodes_with_one_fault_and_one_edit() {
    search(&Search::new(2, 1, 1));
}

/// The big one belongs to the optimised run: unoptimised it would take many times as long.
#[cfg(optimised)]
#[test]
fn two_nodes_with_two_faults_and_one_edit() {
    search(&Search::new(2, 2, 1));
}
