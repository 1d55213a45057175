//! A cluster comes up, changes and goes.

use crate::support::{Stage, group, secs, shape};
use expect_test::expect;
use reconciler_driver::runner::Settled;

#[test]
fn a_cluster_comes_up_changes_and_goes() {
    let mut stage = Stage::new(shape(1, vec![group("web", 2, 1)]));
    assert_eq!(stage.runner.run_until_settled(secs(100)).unwrap(), Settled::Converged);
    stage.runner.set_desired(shape(2, vec![group("web", 1, 2)])).unwrap();
    assert_eq!(stage.runner.run_until_settled(secs(100)).unwrap(), Settled::Converged);
    stage.runner.set_desired(shape(3, vec![])).unwrap();
    assert_eq!(stage.runner.run_until_settled(secs(100)).unwrap(), Settled::Converged);
    expect![[r#"
        +0s  web-0 a1  insert              declared
        +0s  web-1 a2  insert              declared
        +0s  web-0 a1  create-lease        no lease
        +0s  web-1 a2  create-lease        no lease
        +2.1s  web-0 a1  lookup-endpoint     endpoint not known
        +2.1s  web-1 a2  lookup-endpoint     endpoint not known
        +7.2s  web-0 a1  lookup-endpoint     endpoint not known
        +7.2s  web-1 a2  lookup-endpoint     endpoint not known
        +7.3s  web-0 a1  start-bootstrap     no bootstrap session
        +7.3s  web-1 a2  start-bootstrap     no bootstrap session
        +10.9s  web-0 a1  complete-bootstrap  member joined
        +10.9s  web-1 a2  complete-bootstrap  member joined
        +11s  web-0 a1  begin-delete        spec changed: role
        +11s  web-1 a2  begin-delete        absent from desired
        +11s  web-0 a1  destroy-lease       lease i-1 held
        +11s  web-1 a2  destroy-lease       lease i-2 held
        +12s  web-0 a1  mark-destroyed      nothing left to clean
        +12s  web-1 a2  mark-destroyed      nothing left to clean
        +12s  web-0 a3  restart             slot free
        +12s  web-1 a2  reap                absent from desired
        +12s  web-0 a3  create-lease        no lease
        +14.1s  web-0 a3  lookup-endpoint     endpoint not known
        +19.2s  web-0 a3  lookup-endpoint     endpoint not known
        +19.3s  web-0 a3  start-bootstrap     no bootstrap session
        +22.9s  web-0 a3  complete-bootstrap  member joined
        +23s  web-0 a3  begin-delete        absent from desired
        +23s  web-0 a3  destroy-lease       lease i-3 held
        +24s  web-0 a3  mark-destroyed      nothing left to clean
        +24s  web-0 a3  reap                absent from desired"#]]
    .assert_eq(&stage.trace());
    assert_eq!(stage.world.existing_leases(), []);
}
