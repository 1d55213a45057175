//! The calls through the AWS SDK, and nothing else: time limits, retries, pages. What is asked and what an answer
//! means is decided elsewhere.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::retry::RetryPartition;
use aws_sdk_ec2::config::{Builder, Credentials as Keys, SharedCredentialsProvider};
use aws_sdk_ec2::types::{Filter, InstanceStateName};

use crate::api::{CallError, Described, Ec2Api, Instance, Launch, Query, Reached, State, StatusChecks};
use crate::config::{Credentials, Ec2Config, Timeouts};
use crate::targets::{Connect, Target};

mod failure;
mod instance;
mod request;
mod whole;

/// How often a read is tried in all.
const READ_TRIES: u32 = 3;

/// Instances per page. EC2 takes up to 1,000; smaller pages keep one answer within its time.
const PAGE: i32 = 500;

/// Most pages that one reading takes. More than this is reported as incomplete.
const PAGES: usize = 400;

/// Makes SDK clients.
#[derive(Debug)]
pub(crate) struct SdkConnect {
    timeouts: Timeouts,
    credentials: Credentials,
}

impl SdkConnect {
    pub(crate) fn new(config: &Ec2Config) -> Self {
        Self { timeouts: config.timeouts, credentials: config.credentials.clone() }
    }
}

#[async_trait]
impl Connect for SdkConnect {
    async fn connect(&self, target: &Target) -> Result<Arc<dyn Ec2Api>, CallError> {
        let mut loader = aws_config::defaults(BehaviorVersion::latest());
        if let Some(region) = &target.region {
            loader = loader.region(Region::new(region.clone()));
        }
        if let Credentials::Fixed { access_key_id, secret_access_key } = &self.credentials {
            let keys = Keys::new(access_key_id, secret_access_key, None, None, "fixed");
            loader = loader.credentials_provider(SharedCredentialsProvider::new(keys));
        }
        let shared = loader.load().await;
        if shared.region().is_none() {
            return Err(CallError {
                message: Some("no region is configured; write shape.region or set AWS_REGION".to_owned()),
                ..CallError::new(Reached::NotBuilt)
            });
        }
        // The SDK's token bucket for retries is one per process and service unless it is told otherwise: a region in
        // trouble would spend the retries of the others.
        let partition = RetryPartition::new(format!("reconciler {target}"));
        let mut config = Builder::from(&shared).retry_partition(partition).interceptor(whole::WholeAnswers);
        if let Some(url) = &target.endpoint_url {
            config = config.endpoint_url(url);
        }
        config = config.timeout_config(limits(&self.timeouts, self.timeouts.operation));
        Ok(Arc::new(SdkApi { client: Client::from_conf(config.build()), timeouts: self.timeouts }))
    }
}

/// The API of one region.
#[derive(Debug)]
struct SdkApi {
    client: Client,
    timeouts: Timeouts,
}

/// All four of the SDK's limits: it has none for reading, trying and operating unless it is told.
fn limits(timeouts: &Timeouts, within: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(timeouts.connect.min(within))
        .read_timeout(timeouts.read.min(within))
        .operation_attempt_timeout(timeouts.attempt.min(within))
        .operation_timeout(within)
        .build()
}

impl SdkApi {
    /// For a call that changes something: one try. A repeat is the driver's decision, after a lookup.
    fn once(&self, within: Duration) -> Builder {
        Builder::new().timeout_config(limits(&self.timeouts, within)).retry_config(RetryConfig::disabled())
    }

    /// For a call that changes nothing: a few tries, within the same time.
    fn reading(&self, within: Duration) -> Builder {
        let tries = RetryConfig::standard()
            .with_max_attempts(READ_TRIES)
            .with_initial_backoff(Duration::from_millis(200))
            .with_max_backoff(Duration::from_secs(2));
        Builder::new().timeout_config(limits(&self.timeouts, within)).retry_config(tries)
    }
}

#[async_trait]
impl Ec2Api for SdkApi {
    async fn run(&self, launch: &Launch, within: Duration) -> Result<Vec<Instance>, CallError> {
        let call = request::run(self.client.run_instances(), launch).client_token(&launch.token);
        let sent = call.customize().config_override(self.once(within)).send();
        let answer = sent.await.map_err(failure::read)?;
        Ok(answer.instances().iter().map(instance::read).collect())
    }

    async fn rehearse(&self, launch: &Launch, within: Duration) -> Result<(), CallError> {
        let call = request::run(self.client.run_instances(), launch).dry_run(true);
        let sent = call.customize().config_override(self.reading(within)).send();
        match sent.await.map_err(failure::read) {
            Ok(_) => Ok(()),
            // How EC2 says that it would have been allowed.
            Err(error) if error.code.as_deref() == Some("DryRunOperation") => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn describe(&self, query: &Query, within: Duration) -> Result<Described, CallError> {
        let filter = |name: String, value: &str| Filter::builder().name(name).values(value).build();
        let mut call = self.client.describe_instances();
        call = match query {
            // EC2 refuses a page size together with ids.
            Query::Id(id) => call.instance_ids(id),
            Query::Tags(tags) => tags
                .iter()
                .fold(call, |call, (key, value)| call.filters(filter(format!("tag:{key}"), value)))
                .max_results(PAGE),
            Query::Token(token) => call.filters(filter("client-token".to_owned(), token)),
        };
        let begun = tokio::time::Instant::now();
        let mut found = Described { instances: Vec::new(), complete: true };
        let mut next: Option<String> = None;
        for _ in 0..PAGES {
            let left = within.saturating_sub(begun.elapsed());
            let page = call.clone().set_next_token(next.take());
            let page = page.customize().config_override(self.reading(left)).send();
            let page = page.await.map_err(failure::read)?;
            let instances = page.reservations().iter().flat_map(aws_sdk_ec2::types::Reservation::instances);
            found.instances.extend(instances.map(instance::read));
            // A page may be empty and still not the last.
            match page.next_token().filter(|token| !token.is_empty()) {
                Some(token) => next = Some(token.to_owned()),
                None => return Ok(found),
            }
        }
        found.complete = false;
        Ok(found)
    }

    async fn status(&self, id: &str, within: Duration) -> Result<Option<StatusChecks>, CallError> {
        let call = self.client.describe_instance_status().instance_ids(id);
        let sent = call.customize().config_override(self.reading(within)).send();
        let answer = sent.await.map_err(failure::read)?;
        Ok(answer.instance_statuses().first().map(|status| {
            let word = |summary: Option<&aws_sdk_ec2::types::InstanceStatusSummary>| {
                summary
                    .and_then(|one| one.status())
                    .map_or_else(|| "unknown".to_owned(), |one| one.as_str().to_owned())
            };
            StatusChecks { system: word(status.system_status()), instance: word(status.instance_status()) }
        }))
    }

    async fn terminate(&self, id: &str, within: Duration) -> Result<Option<State>, CallError> {
        let call = self.client.terminate_instances().instance_ids(id);
        let sent = call.customize().config_override(self.once(within)).send();
        let answer = sent.await.map_err(failure::read)?;
        let ours = answer.terminating_instances().iter().find(|change| change.instance_id() == Some(id));
        let name = ours.and_then(|change| change.current_state()?.name().map(InstanceStateName::as_str));
        Ok(name.map(State::from_name))
    }
}
