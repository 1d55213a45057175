//! The row of the EC2 provider: instances that start by themselves, from their image and user data, unless another
//! bootstrapper is named.

use std::sync::Arc;

use bootstrap_probe::{ProbeBoot, ProbeBootstrapper};
use executor_api::Executor;
use executor_ec2::{Ec2Config, Ec2Provider, settings::Ec2Shape};
use schemars::SchemaGenerator;

use super::{Provider, Settings, Site};

pub(super) const PROVIDER: Provider = Provider {
    name: Ec2Provider::NAME,
    about: "AWS EC2 instances, on demand or spot, with fallbacks of type and zone",
    build,
    settings: schemas,
};

fn build(site: &Site) -> Executor {
    let probe = ProbeBootstrapper::new(site.sessions.join("probe"));
    let config = Ec2Config { timer: Arc::clone(&site.timer), ..Ec2Config::default() };
    Executor::new(Arc::new(Ec2Provider::new(config)), Arc::new(probe))
}

fn schemas(generator: &mut SchemaGenerator) -> Settings {
    Settings { shape: generator.subschema_for::<Ec2Shape>(), boot: generator.subschema_for::<ProbeBoot>() }
}
