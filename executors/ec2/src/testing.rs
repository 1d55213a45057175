//! Builders that the unit tests share.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::{
    AttemptKey, BootSpec, CandidateIndex, GroupId, GroupPolicy, JoinSpec, LogicalNodeId, NodeAttemptId,
    NodeRole, NodeTemplate, OperationContext, OperationId, ProviderName, RunId, RunNodeGroupSpec, SlotGroup,
    UpdatePolicy,
};
use serde_json::Value;

use crate::api::{CallError, Ec2Api, Reached};
use crate::targets::{Connect, Target};

/// Where nobody can be reached.
#[derive(Debug)]
pub(crate) struct NoConnection;

#[async_trait::async_trait]
impl Connect for NoConnection {
    async fn connect(&self, _: &Target) -> Result<Arc<dyn Ec2Api>, CallError> {
        Err(CallError::new(Reached::NotSent))
    }
}

/// A group of one with this shape.
pub(crate) fn group(shape: Value) -> RunNodeGroupSpec {
    RunNodeGroupSpec {
        run_id: RunId::new("demo", "u1").unwrap(),
        group_id: GroupId::new("web").unwrap(),
        count: 1,
        template: Arc::new(NodeTemplate {
            role: NodeRole("worker".into()),
            provider: ProviderName::new("ec2").unwrap(),
            shape,
            boot: BootSpec::default(),
            join: JoinSpec::default(),
        }),
        policy: GroupPolicy::default(),
        update: UpdatePolicy::default(),
    }
}

/// The first attempt of a slot, at its operation of this number, with half a minute of time.
pub(crate) fn context(node: &str, sequence: u64) -> OperationContext {
    let node = LogicalNodeId::parse(node).unwrap();
    OperationContext {
        attempt: AttemptKey {
            run: RunId::new("demo", "u1").unwrap(),
            node: node.clone(),
            attempt: NodeAttemptId(1),
        },
        operation: OperationId { attempt: NodeAttemptId(1), sequence },
        candidate: CandidateIndex(0),
        deadline: SystemTime::now() + Duration::from_secs(30),
        group: SlotGroup { group: GroupId::new("web").unwrap(), slots: Arc::from([node]) },
    }
}
