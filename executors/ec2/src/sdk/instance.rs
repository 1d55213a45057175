//! An instance of the SDK, as a plain one. What is missing stays missing.

use std::time::SystemTime;

use aws_sdk_ec2::types::{Instance as Seen, InstanceLifecycleType, InstanceType};

use crate::api::{Instance, State};

/// Reads one instance.
pub(super) fn read(seen: &Seen) -> Instance {
    let text = |value: Option<&str>| value.filter(|text| !text.is_empty()).map(str::to_owned);
    let state = seen.state().and_then(|state| state.name());
    let tags = seen.tags().iter();
    Instance {
        id: seen.instance_id().unwrap_or_default().to_owned(),
        state: state.map_or(State::Unknown, |name| State::from_name(name.as_str())),
        launched_at: seen.launch_time().and_then(|time| SystemTime::try_from(*time).ok()),
        kind: seen.instance_type().map(InstanceType::as_str).map(str::to_owned),
        zone: seen.placement().and_then(|placement| text(placement.availability_zone())),
        private_ip: text(seen.private_ip_address()),
        public_ip: text(seen.public_ip_address()),
        client_token: text(seen.client_token()),
        tags: tags.filter_map(|tag| Some((tag.key()?.to_owned(), tag.value()?.to_owned()))).collect(),
        spot: seen.instance_lifecycle() == Some(&InstanceLifecycleType::Spot),
        state_reason: seen.state_reason().and_then(|reason| {
            let message = reason.message().unwrap_or_default();
            Some((text(reason.code())?, message.to_owned()))
        }),
    }
}
