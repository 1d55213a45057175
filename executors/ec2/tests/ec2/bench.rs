//! How the tests call the provider: as the driver does, each call under its own operation and deadline, with all
//! times scaled to hundreds of milliseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use executor_api::{
    AttemptKey, CandidateIndex, CreateMode, CreateOutcome, ExecutorError, ExecutorErrorKind, GroupId,
    GroupPolicy, LeaseFacts, LeaseProvider, Life, LogicalNodeId, LogicalNodeSpec, NodeAttemptId,
    OperationContext, OperationId, RunId, RunNodeGroupSpec, SlotGroup, UpdatePolicy,
};
pub(crate) use executor_ec2::conformance::{CALL, VISIBILITY, shape, template};
use executor_ec2::{Ec2Config, Ec2Provider, Target};
use serde_json::Value;

use crate::world::Region;

/// How long, in seconds, an act is held up so that it lands just after its call was given up.
pub(crate) const LATE: f64 = 2.1;

/// The provider's own settings, scaled.
pub(crate) fn config() -> Ec2Config {
    // Kept by the test harness, and shown with a test that fails.
    let _ = tracing_subscriber::fmt().with_test_writer().try_init();
    executor_ec2::conformance::config()
}

/// A provider that remembers nothing: what a restart looks like.
pub(crate) fn provider() -> Ec2Provider {
    Ec2Provider::new(config())
}

/// The run that all tests play in; each has a region of its own.
pub(crate) fn run() -> RunId {
    RunId::new("demo", "u1").unwrap()
}

/// What is wanted of a slot.
pub(crate) fn desired(node: &str, shape: Value) -> LogicalNodeSpec {
    let (group, index) = node.rsplit_once('-').unwrap();
    LogicalNodeSpec {
        id: LogicalNodeId::parse(node).unwrap(),
        group: GroupId::new(group).unwrap(),
        index: index.parse().unwrap(),
        template: Arc::new(template(shape)),
    }
}

pub(crate) fn group(shape: Value) -> RunNodeGroupSpec {
    RunNodeGroupSpec {
        run_id: run(),
        group_id: GroupId::new("web").unwrap(),
        count: 1,
        template: Arc::new(template(shape)),
        policy: GroupPolicy::default(),
        update: UpdatePolicy::default(),
    }
}

pub(crate) fn key(node: &str, attempt: u64) -> AttemptKey {
    AttemptKey { run: run(), node: LogicalNodeId::parse(node).unwrap(), attempt: NodeAttemptId(attempt) }
}

/// The context of a new operation.
pub(crate) fn ctx(key: &AttemptKey) -> OperationContext {
    static SEQUENCE: AtomicU64 = AtomicU64::new(0);
    let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
    OperationContext {
        attempt: key.clone(),
        operation: OperationId { attempt: key.attempt, sequence },
        candidate: CandidateIndex(0),
        deadline: SystemTime::now() + CALL,
        group: SlotGroup { group: GroupId::new("web").unwrap(), slots: Arc::from([key.node.clone()]) },
    }
}

/// One create, given up at its deadline as the driver does.
pub(crate) async fn create(
    provider: &Ec2Provider,
    ctx: &OperationContext,
    desired: &LogicalNodeSpec,
    mode: CreateMode,
) -> Result<CreateOutcome, ExecutorError> {
    match tokio::time::timeout(CALL, provider.create(ctx, desired, mode)).await {
        Ok(ended) => ended,
        Err(_) => Err(ExecutorError::ambiguous(
            executor_api::OperationKind::CreateLease,
            "given up at its deadline",
        )),
    }
}

/// One create that may make something.
pub(crate) async fn try_create(
    provider: &Ec2Provider,
    key: &AttemptKey,
    shape: &Value,
) -> Result<LeaseFacts, ExecutorError> {
    let desired = desired(key.node.as_str(), shape.clone());
    match create(provider, &ctx(key), &desired, CreateMode::CreateOrAdopt).await? {
        CreateOutcome::Leased { lease, .. } => Ok(lease),
        CreateOutcome::Absent { .. } => panic!("a create that may make something made nothing"),
    }
}

/// How one create failed.
pub(crate) async fn failure(provider: &Ec2Provider, key: &AttemptKey, shape: &Value) -> ExecutorError {
    try_create(provider, key, shape).await.expect_err("the create succeeded")
}

/// Creates until there is a lease, as the driver does: again after whatever is not the attempt's end, with a pause
/// between two tries.
pub(crate) async fn persist(provider: &Ec2Provider, key: &AttemptKey, shape: &Value) -> LeaseFacts {
    let mut last = None;
    for _ in 0..40 {
        match try_create(provider, key, shape).await {
            Ok(lease) => return lease,
            Err(error) => {
                assert_ne!(error.kind, ExecutorErrorKind::Gone, "{}", error.summary());
                last = Some(error.summary());
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{key} has no lease after 40 tries; the last: {last:?}");
}

/// Ends a lease, as the driver does: again until it succeeds.
pub(crate) async fn destroy(provider: &Ec2Provider, key: &AttemptKey, lease: &LeaseFacts) {
    let mut last = None;
    for _ in 0..40 {
        match provider.destroy(&ctx(key), lease).await {
            Ok(()) => return,
            Err(error) => last = Some(error.summary()),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{key} still has its lease after 40 tries; the last: {last:?}");
}

/// A region where lookups and listings look from the start.
pub(crate) fn target(region: &Region) -> Target {
    Target { region: Some(region.name.to_owned()), endpoint_url: Some(region.url()) }
}

/// The world holds exactly these instances, and `DescribeInstances` shows exactly them.
pub(crate) async fn holds_exactly(region: &Region, ids: &[&str]) {
    let mut living: Vec<_> = region.living().into_iter().map(|one| one.id).collect();
    let looking = Ec2Provider::new(Ec2Config { targets: vec![target(region)], ..config() });
    let listing = looking.list(&run()).await.unwrap();
    let shown = listing.leases.into_iter().filter(|one| one.life < Life::Ending);
    let mut shown: Vec<_> = shown.map(|one| one.lease.lease_id.0).collect();
    let mut ids = ids.to_vec();
    living.sort();
    shown.sort();
    ids.sort_unstable();
    assert_eq!(living, ids, "the world holds what it should");
    assert!(listing.complete);
    assert_eq!(shown, ids, "it is shown as it is");
}

/// Lets everything that could still land or show up do so.
pub(crate) async fn allowance() {
    tokio::time::sleep(VISIBILITY.late_landing + VISIBILITY.listing_lag).await;
}
