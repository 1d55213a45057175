//! The row of the EC2 provider: instances that start by themselves, from their image and user data, unless another
//! bootstrapper is named. What the API is like can be said in the environment, for APIs that are not AWS.

use std::sync::Arc;

use bootstrap_probe::{ProbeBoot, ProbeBootstrapper};
use executor_api::Executor;
use executor_ec2::{Ec2Config, Ec2Provider, Tokens, settings::Ec2Shape};
use schemars::SchemaGenerator;

use super::{Provider, Settings, Site};
use crate::file::parse_duration;

pub(super) const PROVIDER: Provider = Provider {
    name: Ec2Provider::NAME,
    about: "AWS EC2 instances, on demand or spot, with fallbacks of type and zone",
    build,
    settings: schemas,
};

/// How long a new instance may be missing from what the API shows.
const LISTING_LAG: &str = "RECONCILER_EC2_LISTING_LAG";

/// How long after a call was given up it may still act.
const LATE_LANDING: &str = "RECONCILER_EC2_LATE_LANDING";

/// Whether the API keeps client tokens: `honoured` or `ignored`.
const TOKENS: &str = "RECONCILER_EC2_TOKENS";

fn build(site: &Site) -> Executor {
    let probe = ProbeBootstrapper::new(site.sessions.join("probe"));
    let config = configured(|name| std::env::var(name).ok());
    let config = Ec2Config { timer: Arc::clone(&site.timer), ..config };
    Executor::new(Arc::new(Ec2Provider::new(config)), Arc::new(probe))
}

/// The provider's settings as the environment has them. What cannot be read refuses every group.
fn configured(variable: impl Fn(&str) -> Option<String>) -> Ec2Config {
    let mut config = Ec2Config::default();
    let mut flaws = Vec::new();
    let times = [
        (LISTING_LAG, &mut config.visibility.listing_lag),
        (LATE_LANDING, &mut config.visibility.late_landing),
    ];
    for (name, time) in times {
        match variable(name).map(|text| parse_duration(&text)) {
            Some(Ok(given)) => *time = given,
            Some(Err(why)) => flaws.push(format!("{name}: {why}")),
            None => {}
        }
    }
    match variable(TOKENS).as_deref() {
        None | Some("honoured") => {}
        Some("ignored") => config.tokens = Tokens::Ignored,
        Some(other) => flaws.push(format!("{TOKENS}: {other:?} is neither \"honoured\" nor \"ignored\"")),
    }
    config.flaw = (!flaws.is_empty()).then(|| flaws.join("; "));
    config
}

fn schemas(generator: &mut SchemaGenerator) -> Settings {
    Settings { shape: generator.subschema_for::<Ec2Shape>(), boot: generator.subschema_for::<ProbeBoot>() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn with(set: &[(&str, &str)]) -> Ec2Config {
        configured(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_environment_says_what_the_api_is_like_and_without_it_the_api_is_aws() {
        let aws = with(&[]);
        assert_eq!((aws.tokens, aws.visibility), (Tokens::Honoured, Ec2Config::default().visibility));
        let other = with(&[(LISTING_LAG, "600ms"), (LATE_LANDING, "2s"), (TOKENS, "ignored")]);
        assert_eq!(other.tokens, Tokens::Ignored);
        assert_eq!(other.visibility.listing_lag, Duration::from_millis(600));
        assert_eq!(other.visibility.late_landing, Duration::from_secs(2));
        assert_eq!(other.flaw, None);
    }

    #[test]
    fn what_cannot_be_read_is_never_taken_for_the_default() {
        let flaw = with(&[(LISTING_LAG, "soon"), (TOKENS, "no")]).flaw.unwrap();
        assert!(flaw.contains("RECONCILER_EC2_LISTING_LAG: \"soon\" is no duration"), "{flaw}");
        assert!(flaw.contains("RECONCILER_EC2_TOKENS: \"no\" is neither"), "{flaw}");
    }
}
