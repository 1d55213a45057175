//! Between the reconciler's words and EC2's: the launch that stands for a spec, and what an instance means. Pure;
//! no call, no clock.

use std::collections::BTreeMap;

use executor_api::{
    AttemptIdentity, AttemptKey, LeaseFacts, LeaseId, LeaseOwner, Life, ListedLease, LogicalNodeId,
    NodeAttemptId, ProviderName, RunId, labels,
};

use crate::api::{Instance, Launch, Query, State};
use crate::candidate::Candidate;
use crate::endpoint;
use crate::settings::Ec2Shape;
use crate::targets::Target;

/// The tag that the AWS console shows as an instance's name.
const NAME_TAG: &str = "Name";

/// The one launch of an attempt and a candidate. The same arguments give the same launch, to the last byte:
/// whatever differed under one token would be refused.
pub(crate) fn launch(
    shape: &Ec2Shape,
    candidate: &Candidate,
    attempt: &AttemptKey,
    identity: &AttemptIdentity,
) -> Launch {
    let mut tags = BTreeMap::from([
        (NAME_TAG.to_owned(), identity.resource_name.clone()),
        (endpoint::TAG.to_owned(), endpoint::encode(&shape.endpoint)),
    ]);
    // A user may name the instance; the identity always stands.
    tags.extend(shape.tags.clone());
    tags.extend(identity.labels.clone());
    Launch {
        token: identity.token.clone(),
        image: shape.image.clone(),
        instance_type: candidate.instance_type.clone(),
        place: candidate.place.clone(),
        security_groups: shape.security_groups.clone(),
        key_pair: shape.key_pair.clone(),
        instance_profile: shape.instance_profile.clone(),
        public_ip: shape.public_ip,
        disk: shape.disk.clone(),
        user_data: shape.user_data.as_deref().map(|text| fill_in(text, attempt, identity)),
        market: shape.market,
        spot_max_price: shape.spot_max_price.clone(),
        metadata: shape.metadata,
        tags,
    }
}

/// The text of the user data for an attempt.
fn fill_in(text: &str, attempt: &AttemptKey, identity: &AttemptIdentity) -> String {
    text.replace("{{reconciler.run}}", attempt.run.name())
        .replace("{{reconciler.node}}", attempt.node.as_str())
        .replace("{{reconciler.attempt}}", &attempt.attempt.0.to_string())
        .replace("{{reconciler.nonce}}", &identity.nonce)
}

/// The instances of one attempt, whichever candidate they were launched for.
pub(crate) fn of_attempt(identity: &AttemptIdentity) -> Query {
    Query::Tags(identity.labels.clone().into_iter().collect())
}

/// The instances that carry a run's name, those of another uid included.
pub(crate) fn of_run(run: &RunId) -> Query {
    Query::Tags(vec![(labels::RUN.to_owned(), run.name().to_owned())])
}

/// Whose an instance is, as its tags say.
pub(crate) fn owner(instance: &Instance) -> LeaseOwner {
    let tag = |key: &str| instance.tags.get(key).cloned();
    let read = || -> Option<AttemptKey> {
        Some(AttemptKey {
            run: RunId::new(tag(labels::RUN)?, tag(labels::RUN_UID)?).ok()?,
            node: LogicalNodeId::parse(tag(labels::NODE)?).ok()?,
            attempt: NodeAttemptId(tag(labels::ATTEMPT)?.parse().ok()?),
        })
    };
    read().map_or(LeaseOwner::Incomplete, LeaseOwner::Attempt)
}

/// Where an instance is in its life.
pub(crate) fn life(state: State) -> Life {
    match state {
        // A state that is not known yet is no proof of an end.
        State::Pending | State::Unknown => Life::Pending,
        State::Running => Life::Live,
        // A node that somebody stopped is no node any more: it is reported lost, ended and replaced.
        State::Stopping | State::Stopped | State::ShuttingDown => Life::Ending,
        State::Terminated => Life::Dead,
    }
}

/// Whether an instance still has to be ended by somebody: everything that is not irrevocably on its way out.
pub(crate) fn needs_ending(state: State) -> bool {
    !matches!(state, State::ShuttingDown | State::Terminated)
}

/// Of several instances of one attempt the one to keep: the oldest, and of equals the one with the smallest id.
/// Everybody who sees the same instances keeps the same one.
pub(crate) fn keep(instances: &[Instance]) -> Option<&Instance> {
    instances.iter().filter(|found| needs_ending(found.state)).min_by(|a, b| {
        let key = |found: &Instance| (found.launched_at.is_none(), found.launched_at);
        key(a).cmp(&key(b)).then_with(|| a.id.cmp(&b.id))
    })
}

/// What is worth keeping of an instance.
pub(crate) fn lease_facts(provider: &ProviderName, target: &Target, instance: &Instance) -> LeaseFacts {
    let mut attributes = target.attributes();
    let mut note = |key: &str, value: &Option<String>| {
        if let Some(value) = value {
            attributes.insert(key.to_owned(), value.clone());
        }
    };
    note("zone", &instance.zone);
    note("instance_type", &instance.kind);
    if instance.spot {
        attributes.insert("market".to_owned(), "spot".to_owned());
    }
    LeaseFacts {
        lease_id: LeaseId(instance.id.clone()),
        provider: provider.clone(),
        created_at: instance.launched_at,
        attributes,
    }
}

/// One instance in a listing.
pub(crate) fn listed(provider: &ProviderName, target: &Target, instance: &Instance) -> ListedLease {
    let life = life(instance.state);
    ListedLease {
        owner: owner(instance),
        lease: lease_facts(provider, target, instance),
        endpoint: endpoint::of(instance).ok(),
        life,
        reason: (life != Life::Live).then(|| reason(instance)),
    }
}

/// Why an instance is in its state, in EC2's words, and what that means where it is not obvious.
pub(crate) fn reason(instance: &Instance) -> String {
    let state = instance.state.as_str();
    let Some((code, message)) = &instance.state_reason else {
        return format!("{} is {state}", instance.id);
    };
    let meaning = match code.as_str() {
        "Server.SpotInstanceTermination" | "Server.SpotInstanceShutdown" => {
            "; EC2 took the spot capacity back"
        }
        "Client.InstanceInitiatedShutdown" => "; it shut itself down",
        "Client.UserInitiatedShutdown" => "; somebody ended it through the API",
        "Client.VolumeLimitExceeded" => "; raise the account's volume quota",
        "Client.InternalError" => "; often a disk whose key this account may not use",
        _ => "",
    };
    if message.is_empty() || message == code {
        format!("{} is {state}: {code}{meaning}", instance.id)
    } else {
        // EC2 repeats the code in front of the message.
        let message = message.strip_prefix(code.as_str()).unwrap_or(message).trim_start_matches([':', ' ']);
        format!("{} is {state}: {code}: {message}{meaning}", instance.id)
    }
}

impl State {
    /// The state in EC2's words.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::ShuttingDown => "shutting-down",
            Self::Terminated => "terminated",
            Self::Unknown => "in a state without a name",
        }
    }

    /// Reads EC2's word.
    pub(crate) fn from_name(name: &str) -> Self {
        match name {
            "pending" => Self::Pending,
            "running" => Self::Running,
            "stopping" => Self::Stopping,
            "stopped" => Self::Stopped,
            "shutting-down" => Self::ShuttingDown,
            "terminated" => Self::Terminated,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::candidate::candidate;
    use executor_api::CandidateIndex;
    use expect_test::expect;
    use serde_json::json;
    use std::time::{Duration, SystemTime};

    /// An instance without tags.
    pub(crate) fn instance(id: &str, state: State) -> Instance {
        Instance {
            id: id.into(),
            state,
            launched_at: Some(SystemTime::UNIX_EPOCH),
            kind: Some("t3.small".into()),
            zone: Some("us-east-1a".into()),
            private_ip: None,
            public_ip: None,
            client_token: None,
            tags: BTreeMap::new(),
            spot: false,
            state_reason: None,
        }
    }

    fn key() -> AttemptKey {
        AttemptKey {
            run: RunId::new("demo", "u1").unwrap(),
            node: LogicalNodeId::parse("web-1").unwrap(),
            attempt: NodeAttemptId(7),
        }
    }

    fn launched(candidate_index: u32) -> Launch {
        let shape = crate::settings::read(&json!({
            "image": "ami-1", "instance_types": ["a", "b"], "subnets": ["subnet-1"],
            "user_data": "join {{reconciler.node}} of {{reconciler.run}} as {{reconciler.attempt}}: {{reconciler.nonce}} ${HOME}",
            "tags": { "team": "x", "Name": "mine" }
        }))
        .unwrap();
        let index = CandidateIndex(candidate_index);
        let identity = AttemptIdentity::derive(&key(), index);
        launch(&shape, &candidate(&shape, index).unwrap(), &key(), &identity)
    }

    #[test]
    fn a_launch_carries_the_identity_in_token_and_tags() {
        let launch = launched(0);
        assert_eq!(launch.token, AttemptIdentity::derive(&key(), CandidateIndex(0)).token);
        expect![[r#"
            {
                "Name": "mine",
                "reconciler/attempt": "7",
                "reconciler/endpoint": "{\"address\":\"private\",\"port\":22,\"after\":\"running\"}",
                "reconciler/node": "web-1",
                "reconciler/run": "demo",
                "reconciler/run-uid": "u1",
                "team": "x",
            }
        "#]]
        .assert_debug_eq(&launch.tags);
    }

    #[test]
    fn a_launch_is_a_pure_function_and_another_candidate_has_another_token() {
        assert_eq!(launched(0), launched(0));
        let other = launched(1);
        assert_eq!(other.instance_type, "b");
        assert_ne!(other.token, launched(0).token);
        assert_eq!(other.tags, launched(0).tags);
    }

    #[test]
    fn placeholders_are_filled_in_and_the_rest_of_the_script_stands() {
        let nonce = AttemptIdentity::derive(&key(), CandidateIndex(0)).nonce;
        assert_eq!(launched(0).user_data.unwrap(), format!("join web-1 of demo as 7: {nonce} ${{HOME}}"));
    }

    #[test]
    fn an_owner_is_read_back_from_the_tags_of_a_launch() {
        let mut found = instance("i-1", State::Running);
        assert_eq!(owner(&found), LeaseOwner::Incomplete);
        found.tags = launched(0).tags;
        assert_eq!(owner(&found), LeaseOwner::Attempt(key()));
        found.tags.insert(labels::ATTEMPT.into(), "seven".into());
        assert_eq!(owner(&found), LeaseOwner::Incomplete);
    }

    #[test]
    fn of_several_the_oldest_living_one_is_kept_and_then_the_smallest_id() {
        let at = |id: &str, seconds: u64, state: State| Instance {
            launched_at: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)),
            ..instance(id, state)
        };
        let all = [
            at("i-1", 1, State::Terminated),
            at("i-4", 2, State::Pending),
            at("i-3", 2, State::Running),
            at("i-2", 3, State::Running),
            Instance { launched_at: None, ..instance("i-0", State::Running) },
        ];
        assert_eq!(keep(&all).unwrap().id, "i-3");
        assert_eq!(keep(&all[..1]), None);
    }

    #[test]
    fn a_stopped_instance_is_lost_but_still_has_to_be_ended() {
        assert_eq!(life(State::Stopped), Life::Ending);
        assert!(needs_ending(State::Stopped) && !needs_ending(State::ShuttingDown));
        assert_eq!(life(State::Unknown), Life::Pending);
    }

    #[test]
    fn the_reason_of_an_end_is_told_in_words() {
        let mut found = instance("i-1", State::Terminated);
        assert_eq!(reason(&found), "i-1 is terminated");
        let mut told = |code: &str, message: &str| {
            found.state_reason = Some((code.into(), message.into()));
            reason(&found)
        };
        assert_eq!(
            told(
                "Server.SpotInstanceTermination",
                "Server.SpotInstanceTermination: Spot instance termination"
            ),
            "i-1 is terminated: Server.SpotInstanceTermination: Spot instance termination; EC2 took the spot capacity back"
        );
        assert_eq!(
            told("Client.VolumeLimitExceeded", "Client.VolumeLimitExceeded"),
            "i-1 is terminated: Client.VolumeLimitExceeded; raise the account's volume quota"
        );
        assert_eq!(told("pending", "pending"), "i-1 is terminated: pending");
    }
}
