//! The state of a run is lost, its instances are not: nothing is made beside them, and they are taken over by their tags
//! alone.

use crate::fleet::Fleet;

#[test]
fn instances_whose_state_was_lost_are_left_alone_until_they_are_adopted_by_their_uid() {
    let Some(fleet) = Fleet::new() else { return };
    let Fleet { lab, region } = &fleet;
    lab.write(&fleet.file("lost", 3, "t3.small"));
    lab.ok(&["apply", "-q", "--timeout", "120s"]);
    let before = fleet.holds_exactly(3);
    let uid = lab.status()["uid"].as_str().unwrap().to_owned();
    std::fs::remove_dir_all(lab.state_dir()).unwrap();

    let said = lab.ends(4, &["apply", "-q", "--timeout", "120s"]);
    assert!(said.contains(&format!("--adopt {uid}")), "{said}");
    assert_eq!(region.instances().len(), 3, "nothing was made beside them");

    lab.ok(&["apply", "-q", "--timeout", "120s", "--adopt", &uid]);
    assert_eq!(fleet.holds_exactly(3), before, "the very same instances, each in its slot");
    assert_eq!(region.instances().len(), 3);
    fleet.destroy();
}
