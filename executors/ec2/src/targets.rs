//! The regions this process has to do with, and one API client for each. A region is learned from every shape in force
//! and from every create and lease that names it, so that a lookup which has only an attempt to go by asks all of them.
//! It is never forgotten: nothing here can prove that no launch will still land there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use executor_api::LeaseFacts;

use crate::api::{CallError, Ec2Api};
use crate::settings::Ec2Shape;

/// One EC2 API: a region, at its own or another address.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The region; `None` is the one that the AWS configuration names.
    pub region: Option<String>,
    /// Another address of the API.
    pub endpoint_url: Option<String>,
}

const REGION: &str = "region";
const ENDPOINT_URL: &str = "endpoint_url";

impl Target {
    /// Where a shape wants its instances.
    pub(crate) fn of_shape(shape: &Ec2Shape) -> Self {
        Self { region: shape.region.clone(), endpoint_url: shape.endpoint_url.clone() }
    }

    /// The same as facts of a lease.
    pub(crate) fn attributes(&self) -> BTreeMap<String, String> {
        let pairs = [(REGION, &self.region), (ENDPOINT_URL, &self.endpoint_url)];
        pairs.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?))).collect()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.region {
            Some(region) => write!(f, "region {region}")?,
            None => f.write_str("the default region")?,
        }
        match &self.endpoint_url {
            Some(url) => write!(f, " at {url}"),
            None => Ok(()),
        }
    }
}

/// Makes a client for a region.
#[async_trait]
pub(crate) trait Connect: Send + Sync + fmt::Debug {
    /// A client. Asks nobody yet, unless finding the configuration needs it.
    async fn connect(&self, target: &Target) -> Result<Arc<dyn Ec2Api>, CallError>;
}

/// The regions and clients that there are.
#[derive(Debug)]
pub(crate) struct Targets {
    connect: Arc<dyn Connect>,
    places: Mutex<Places>,
}

#[derive(Debug)]
struct Places {
    /// Where lookups and listings look.
    known: BTreeSet<Target>,
    /// Of known regions, and of those that were merely asked about a spec.
    clients: BTreeMap<Target, Arc<dyn Ec2Api>>,
}

impl Targets {
    pub(crate) fn new(connect: Arc<dyn Connect>, known: impl IntoIterator<Item = Target>) -> Self {
        let places = Places { known: known.into_iter().collect(), clients: BTreeMap::new() };
        Self { connect, places: Mutex::new(places) }
    }

    /// The client of a region where something is or is about to be: it is known from now on.
    pub(crate) async fn api(&self, target: &Target) -> Result<Arc<dyn Ec2Api>, CallError> {
        self.learn(target);
        self.client(target).await
    }

    /// The client of a region, which need not exist; made at the first call, and made again if that failed.
    pub(crate) async fn client(&self, target: &Target) -> Result<Arc<dyn Ec2Api>, CallError> {
        if let Some(api) = self.lock().clients.get(target) {
            return Ok(Arc::clone(api));
        }
        let api = self.connect.connect(target).await?;
        // Two callers may have come this far; the first one's client stays.
        Ok(Arc::clone(self.lock().clients.entry(target.clone()).or_insert(api)))
    }

    /// Where a lease is, as its facts say. Facts that say nothing mean the default region, or the only one that
    /// there is.
    pub(crate) fn of_lease(&self, lease: &LeaseFacts) -> Target {
        let attribute = |key: &str| lease.attributes.get(key).cloned();
        let told = Target { region: attribute(REGION), endpoint_url: attribute(ENDPOINT_URL) };
        let known = &self.lock().known;
        match known.first() {
            Some(only) if told == Target::default() && known.len() == 1 => only.clone(),
            _ => told,
        }
    }

    /// Remembers a region for lookups and listings.
    pub(crate) fn learn(&self, target: &Target) {
        self.lock().known.insert(target.clone());
    }

    /// All regions known; the default one if none is.
    pub(crate) fn all(&self) -> Vec<Target> {
        let known: Vec<_> = self.lock().known.iter().cloned().collect();
        if known.is_empty() { vec![Target::default()] } else { known }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Places> {
        // Both are whole between any two statements: a panic elsewhere leaves nothing half done.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::NoConnection;
    use executor_api::{LeaseId, ProviderName};

    fn lease(attributes: BTreeMap<String, String>) -> LeaseFacts {
        let provider = ProviderName::new("ec2").unwrap();
        LeaseFacts { lease_id: LeaseId("i-1".into()), provider, created_at: None, attributes }
    }

    #[test]
    fn a_lease_is_where_its_facts_say() {
        let there = Target { region: Some("eu-central-1".into()), endpoint_url: Some("http://h:1".into()) };
        let targets = Targets::new(Arc::new(NoConnection), [Target::default()]);
        assert_eq!(targets.of_lease(&lease(there.attributes())), there);
    }

    #[test]
    fn facts_that_say_nothing_mean_the_only_region_that_there_is() {
        let only = Target { region: Some("eu-central-1".into()), endpoint_url: None };
        let targets = Targets::new(Arc::new(NoConnection), [only.clone()]);
        assert_eq!(targets.of_lease(&lease(BTreeMap::new())), only);
        targets.learn(&Target { region: Some("eu-west-1".into()), endpoint_url: None });
        assert_eq!(targets.of_lease(&lease(BTreeMap::new())), Target::default());
        assert_eq!(targets.all().len(), 2);
    }

    #[test]
    fn with_no_region_known_the_default_one_is_asked() {
        assert_eq!(Targets::new(Arc::new(NoConnection), []).all(), [Target::default()]);
    }
}
