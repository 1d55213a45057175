//! Builders that the unit tests share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use executor_api::{
    AttemptKey, BootSpec, CandidateIndex, GroupId, GroupPolicy, JoinSpec, LeaseFacts, LeaseId, LogicalNodeId,
    LogicalNodeSpec, NodeAttemptId, NodeRole, NodeTemplate, OperationContext, OperationId, ProviderName,
    RunId, RunNodeGroupSpec, SlotGroup, UpdatePolicy,
};
use serde_json::Value;

use crate::api::{CallError, Described, Ec2Api, Instance, Launch, Query, Reached, State, StatusChecks};
use crate::config::Ec2Config;
use crate::provider::Ec2Provider;
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

/// An API that answers by script, call by call, and remembers what was asked. A call beyond the script is a defect
/// of the test.
#[derive(Debug, Default)]
pub(crate) struct Scripted {
    pub(crate) described: Mutex<VecDeque<Result<Described, CallError>>>,
    pub(crate) rehearsed: Mutex<VecDeque<Result<(), CallError>>>,
    pub(crate) ran: Mutex<VecDeque<Result<Vec<Instance>, CallError>>>,
    pub(crate) terminated: Mutex<VecDeque<Result<Option<State>, CallError>>>,
    pub(crate) asked: Mutex<Vec<String>>,
}

impl Scripted {
    /// The next lookup shows these.
    pub(crate) fn shows(self, instances: Vec<Instance>) -> Self {
        self.described.lock().unwrap().push_back(Ok(Described { instances, complete: true }));
        self
    }

    /// The next lookup shows these, and is not the whole truth.
    pub(crate) fn shows_a_part(self, instances: Vec<Instance>) -> Self {
        self.described.lock().unwrap().push_back(Ok(Described { instances, complete: false }));
        self
    }

    /// The next lookup fails.
    pub(crate) fn hides(self, error: CallError) -> Self {
        self.described.lock().unwrap().push_back(Err(error));
        self
    }

    /// The next rehearsal is answered so; one beyond the script would be allowed.
    pub(crate) fn rehearses(self, answer: Result<(), CallError>) -> Self {
        self.rehearsed.lock().unwrap().push_back(answer);
        self
    }

    /// The next launch is answered so.
    pub(crate) fn launches(self, answer: Result<Vec<Instance>, CallError>) -> Self {
        self.ran.lock().unwrap().push_back(answer);
        self
    }

    /// The next termination is answered so.
    pub(crate) fn ends(self, answer: Result<Option<State>, CallError>) -> Self {
        self.terminated.lock().unwrap().push_back(answer);
        self
    }

    /// What was asked so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn note(&self, call: String) {
        self.asked.lock().unwrap().push(call);
    }
}

#[async_trait::async_trait]
impl Ec2Api for Scripted {
    async fn run(&self, launch: &Launch, _: Duration) -> Result<Vec<Instance>, CallError> {
        self.note(format!("run {}", launch.instance_type));
        self.ran.lock().unwrap().pop_front().expect("a launch that the test did not expect")
    }

    async fn rehearse(&self, launch: &Launch, _: Duration) -> Result<(), CallError> {
        self.note(format!("rehearse {}", launch.instance_type));
        self.rehearsed.lock().unwrap().pop_front().unwrap_or(Ok(()))
    }

    async fn describe(&self, query: &Query, _: Duration) -> Result<Described, CallError> {
        self.note(match query {
            Query::Id(id) => format!("describe {id}"),
            Query::Tags(tags) => format!("describe by {} tags", tags.len()),
            Query::Token(_) => "describe by token".to_owned(),
        });
        self.described.lock().unwrap().pop_front().expect("a lookup that the test did not expect")
    }

    async fn status(&self, id: &str, _: Duration) -> Result<Option<StatusChecks>, CallError> {
        self.note(format!("status {id}"));
        Ok(None)
    }

    async fn terminate(&self, id: &str, _: Duration) -> Result<Option<State>, CallError> {
        self.note(format!("terminate {id}"));
        self.terminated.lock().unwrap().pop_front().expect("a termination that the test did not expect")
    }
}

/// Reaches scripted APIs, each by its region.
#[derive(Debug)]
struct Scripts(BTreeMap<String, Arc<Scripted>>);

#[async_trait::async_trait]
impl Connect for Scripts {
    async fn connect(&self, target: &Target) -> Result<Arc<dyn Ec2Api>, CallError> {
        let api = target.region.as_ref().and_then(|region| self.0.get(region));
        Ok(Arc::clone(api.expect("a region that the test did not expect")) as _)
    }
}

/// A provider on scripted regions, all of which it knows.
pub(crate) fn provider(regions: &[(&str, &Arc<Scripted>)]) -> Ec2Provider {
    let known: Vec<_> = regions.iter().map(|(name, _)| *name).collect();
    provider_that_knows(&known, regions)
}

/// A provider on scripted regions, of which it knows these.
pub(crate) fn provider_that_knows(known: &[&str], regions: &[(&str, &Arc<Scripted>)]) -> Ec2Provider {
    let scripts = regions.iter().map(|(name, api)| ((*name).to_owned(), Arc::clone(api))).collect();
    let targets = known.iter().map(|name| Target { region: Some((*name).to_owned()), endpoint_url: None });
    let config = Ec2Config { targets: targets.collect(), ..Ec2Config::default() };
    Ec2Provider::with_connect(config, Arc::new(Scripts(scripts)))
}

/// What is wanted of the first slot, in the region `eu-west-1`.
pub(crate) fn wanted() -> LogicalNodeSpec {
    let shape =
        serde_json::json!({ "region": "eu-west-1", "image": "ami-1", "instance_types": ["t3.small"] });
    let group = group(shape);
    executor_api::expand_node_group(&group).next().expect("a group of one")
}

/// An instance that carries the identity of an operation's attempt.
pub(crate) fn owned(ctx: &OperationContext, id: &str, state: State) -> Instance {
    Instance { tags: ctx.identity().labels, ..crate::map::tests::instance(id, state) }
}

/// The same, launched this moment.
pub(crate) fn newborn(ctx: &OperationContext, id: &str, state: State) -> Instance {
    Instance { launched_at: Some(SystemTime::now()), ..owned(ctx, id, state) }
}

/// EC2's error of this code.
pub(crate) fn answered(code: &str) -> CallError {
    CallError { code: Some(code.to_owned()), ..CallError::new(Reached::Answered) }
}

/// How EC2 says that it knows no such instance.
pub(crate) fn not_found() -> CallError {
    answered("InvalidInstanceID.NotFound")
}

/// A lease made an hour ago.
pub(crate) fn lease(id: &str) -> LeaseFacts {
    LeaseFacts {
        lease_id: LeaseId(id.to_owned()),
        provider: ProviderName::new("ec2").unwrap(),
        created_at: SystemTime::now().checked_sub(Duration::from_hours(1)),
        attributes: BTreeMap::from([("region".to_owned(), "eu-west-1".to_owned())]),
    }
}
