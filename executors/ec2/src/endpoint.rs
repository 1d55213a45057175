//! Where an instance can be reached. The policy is written onto the instance as a tag at launch, so that a lookup,
//! a listing and another process all state the same endpoint without the spec.

use executor_api::{Endpoint, EndpointAuth};

use crate::api::{Instance, State};
use crate::settings::{Address, EndpointPolicy};

/// The tag that carries the policy.
pub(crate) const TAG: &str = "reconciler/endpoint";

/// Longest value of a tag in characters.
pub(crate) const TAG_VALUE_LIMIT: usize = 256;

/// The policy as one line of JSON.
pub(crate) fn encode(policy: &EndpointPolicy) -> String {
    serde_json::to_string(policy).unwrap_or_default()
}

/// The policy that an instance carries; the default one if it carries none that can be read.
pub(crate) fn decode(instance: &Instance) -> EndpointPolicy {
    instance.tags.get(TAG).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The endpoint of a running instance, or what it is still waiting for.
pub(crate) fn of(instance: &Instance) -> Result<Endpoint, String> {
    let policy = decode(instance);
    if instance.state != State::Running {
        return Err(format!("{} is {}", instance.id, instance.state.as_str()));
    }
    let (host, what) = match policy.address {
        Address::Private => (&instance.private_ip, "private"),
        Address::Public => (&instance.public_ip, "public"),
    };
    let Some(host) = host.clone().filter(|host| !host.is_empty()) else {
        return Err(format!("{} runs and has no {what} address yet", instance.id));
    };
    let auth = policy
        .login
        .map_or(EndpointAuth::None, |login| EndpointAuth::Key { user: login.user, key: login.key });
    Ok(Endpoint { host, port: policy.port, auth, ports: policy.ports })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::tests::instance;
    use executor_api::SecretRef;

    fn with_policy(json: &str) -> Instance {
        let mut found = instance("i-1", State::Running);
        found.private_ip = Some("10.0.0.1".into());
        found.tags.insert(TAG.into(), json.into());
        found
    }

    #[test]
    fn the_policy_chooses_address_port_and_login() {
        let mut found = with_policy(r#"{"address":"private","port":22}"#);
        assert_eq!(of(&found).unwrap().to_string(), "10.0.0.1:22");
        found.tags.insert(
            TAG.into(),
            r#"{"address":"public","port":443,"ports":{"api":1},"login":{"user":"u","key":{"from_env":"K"}}}"#.into(),
        );
        assert_eq!(of(&found).unwrap_err(), "i-1 runs and has no public address yet");
        found.public_ip = Some("1.2.3.4".into());
        let endpoint = of(&found).unwrap();
        assert_eq!(endpoint.to_string(), "1.2.3.4:443");
        assert_eq!(endpoint.ports["api"], 1);
        assert_eq!(
            endpoint.auth,
            EndpointAuth::Key { user: "u".into(), key: SecretRef::FromEnv("K".into()) }
        );
    }

    #[test]
    fn an_instance_that_does_not_run_has_no_endpoint_yet() {
        let mut found = with_policy("{}");
        found.state = State::Pending;
        assert_eq!(of(&found).unwrap_err(), "i-1 is pending");
    }

    #[test]
    fn a_policy_survives_its_tag() {
        let policy = EndpointPolicy { address: Address::Public, port: 8022, ..Default::default() };
        let mut found = instance("i-1", State::Running);
        found.tags.insert(TAG.into(), encode(&policy));
        assert_eq!(decode(&found), policy);
    }
}
