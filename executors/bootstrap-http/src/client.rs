//! The agent's client: a way to a host, over HTTP.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bootstrap_hosted::{
    CancelEnd, Content, Glimpse, Host, HostError, OutputWanted, Pin, Plan, Position, SessionName, Standing,
    Transport,
};
use executor_api::{Endpoint, EndpointAuth, ProviderName, Secret, SpecProblem};
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::api::{Cancel, FILE_LIMIT, Health, Joined, LookQuery, PROTOCOL, Problem, Start, Started};
use crate::settings::AgentConnect;
use crate::tls;

/// How long one request may take, apart from a cancel's grace.
const REQUEST: Duration = Duration::from_mins(1);

/// The way to a host through its agent.
#[derive(Clone, Copy, Debug, Default)]
pub struct AgentTransport {}

/// One agent.
struct AgentHost {
    client: Client,
    base: String,
    token: Secret,
}

impl fmt::Debug for AgentHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentHost").field("base", &self.base).finish_non_exhaustive()
    }
}

#[async_trait]
impl Transport for AgentTransport {
    type Settings = AgentConnect;

    fn name(&self) -> ProviderName {
        #[expect(clippy::expect_used, reason = "the text is a lowercase word")]
        ProviderName::new("agent").expect("`agent` is a provider name")
    }

    fn check(&self, settings: &AgentConnect) -> Vec<SpecProblem> {
        settings.problems()
    }

    async fn connect(
        &self,
        endpoint: &Endpoint,
        settings: &AgentConnect,
        // Who the host is follows from its certificate alone.
        _: Pin<'_>,
    ) -> Result<Box<dyn Host>, HostError> {
        let port = settings.port.unwrap_or(endpoint.port);
        let late = || {
            HostError::Unreachable(format!(
                "{}:{port} did not answer within {:?}",
                endpoint.host, settings.timeout.0
            ))
        };
        let entered = timeout(settings.timeout.0, enter(endpoint, port, settings)).await;
        entered.unwrap_or_else(|_| Err(late()))
    }
}

async fn enter(endpoint: &Endpoint, port: u16, settings: &AgentConnect) -> Result<Box<dyn Host>, HostError> {
    let named = match &endpoint.auth {
        EndpointAuth::Token(token) => Some(token),
        EndpointAuth::None | EndpointAuth::Key { .. } => None,
    };
    let token = settings.token.as_ref().or(named).ok_or_else(|| {
        HostError::Unfit("neither `boot/connect/token` nor the endpoint names a token".to_owned())
    })?;
    let token = token.resolve().map_err(|error| HostError::Unfit(error.to_string()))?;
    let (client, base) = client(endpoint, port, settings).await?;
    let host = AgentHost { client, base, token };
    let health: Health =
        host.ask(Method::GET, "/v1/health", |request| request).await.map_err(|error| match error {
            // Nothing was asked for yet, so nothing can have happened.
            HostError::Broken(reason) => HostError::Unreachable(reason),
            other => other,
        })?;
    if health.protocol != PROTOCOL {
        return Err(HostError::Unfit(format!(
            "the agent at {} speaks protocol {}, and this is {PROTOCOL}; bring both to one version",
            host.base, health.protocol
        )));
    }
    Ok(Box::new(host))
}

/// A client for one agent, and the beginning of its addresses.
async fn client(
    endpoint: &Endpoint,
    port: u16,
    settings: &AgentConnect,
) -> Result<(Client, String), HostError> {
    let builder = Client::builder()
        // A proxy or a redirect would carry the token to somebody else.
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(settings.timeout.0)
        .tcp_nodelay(true);
    let unfit = |error: &dyn fmt::Display| HostError::Unfit(format!("no client for the agent: {error}"));
    let bracketed = |host: &str| if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if settings.plain {
        // TLS that trusts nobody: it is never used, and without it the process's own choice would be asked for.
        let nobody = tls::trusting(rustls::RootCertStore::empty()).map_err(|error| unfit(&error))?;
        let client = builder.tls_backend_preconfigured(nobody).build().map_err(|error| unfit(&error))?;
        return Ok((client, format!("http://{}:{port}", bracketed(&endpoint.host))));
    }
    let Some(ca) = &settings.ca else {
        return Err(HostError::Unfit("`boot/connect` names neither `ca` nor `plain: true`".to_owned()));
    };
    let config = tls::client(ca).map_err(|error| unfit(&error))?;
    let mut builder = builder.tls_backend_preconfigured(config).https_only(true);
    let mut host = endpoint.host.clone();
    if let Some(name) = &settings.server_name {
        let unreachable =
            |error: std::io::Error| HostError::Unreachable(format!("{}: {error}", endpoint.host));
        let found: Vec<SocketAddr> =
            tokio::net::lookup_host((endpoint.host.as_str(), port)).await.map_err(unreachable)?.collect();
        builder = builder.resolve_to_addrs(name, &found);
        host.clone_from(name);
    }
    let client = builder.build().map_err(|error| unfit(&error))?;
    Ok((client, format!("https://{}:{port}", bracketed(&host))))
}

impl AgentHost {
    /// Asks, and reads the answer.
    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        with: impl FnOnce(RequestBuilder) -> RequestBuilder + Send,
    ) -> Result<T, HostError> {
        let answer = self.send(method, path, with).await?;
        serde_json::from_slice(&answer)
            .map_err(|error| HostError::Broken(format!("{path} was answered with something else: {error}")))
    }

    /// Asks; the answer's bytes.
    async fn send(
        &self,
        method: Method,
        path: &str,
        with: impl FnOnce(RequestBuilder) -> RequestBuilder + Send,
    ) -> Result<Vec<u8>, HostError> {
        let request = self.client.request(method, format!("{}{path}", self.base));
        let request = with(request.timeout(REQUEST)).bearer_auth(self.token.expose());
        let response = request.send().await.map_err(|error| self.failed(&error))?;
        let status = response.status();
        let body = response.bytes().await.map_err(|error| self.failed(&error))?;
        if status.is_success() {
            return Ok(body.to_vec());
        }
        let problem: Option<Problem> = serde_json::from_slice(&body).ok();
        let reason = problem.map_or_else(|| format!("answered {status}"), |problem| problem.error);
        let reason = format!("{}: {reason}", self.base);
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => HostError::Denied(reason),
            StatusCode::SERVICE_UNAVAILABLE => HostError::Unreachable(reason),
            status if status.is_client_error() => HostError::Unfit(reason),
            _ => HostError::Broken(reason),
        })
    }

    /// Why there was no answer, and whether the request can have been carried out.
    fn failed(&self, error: &reqwest::Error) -> HostError {
        let mut reason = format!("{}: {error}", self.base);
        let mut cause = error.source();
        let mut wrong_host = false;
        while let Some(under) = cause {
            reason = format!("{reason}: {under}");
            wrong_host |= is_bad_certificate(under);
            cause = under.source();
        }
        if wrong_host {
            HostError::WrongHost(reason)
        } else if error.is_connect() {
            HostError::Unreachable(reason)
        } else {
            HostError::Broken(reason)
        }
    }
}

/// Whether the host could not prove who it is.
fn is_bad_certificate(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return matches!(
            error,
            rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented
        );
    }
    // An I/O error hides what it was made of from its chain of sources.
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    inner.is_some_and(|inner| is_bad_certificate(inner))
}

fn json<T: Serialize + Sync>(value: &T) -> impl FnOnce(RequestBuilder) -> RequestBuilder + Send + '_ {
    move |request| request.json(value)
}

#[async_trait]
impl Host for AgentHost {
    async fn look(
        &self,
        session: &SessionName,
        from: Position,
        output: OutputWanted,
    ) -> Result<Glimpse, HostError> {
        let Position { events, output: at } = from;
        let query = LookQuery { events, output: at, limit: output.limit, tail: output.tail };
        self.ask(Method::GET, &format!("/v1/sessions/{session}"), |request| request.query(&query)).await
    }

    async fn put_file(&self, session: &SessionName, index: usize, content: Content) -> Result<(), HostError> {
        let bytes = match content {
            Content::Text(text) => text.into_bytes(),
            Content::Bytes(bytes) => bytes,
            Content::File(path, size) if size > FILE_LIMIT as u64 => {
                return Err(HostError::Unfit(format!(
                    "{} has {size} bytes, and an agent takes {FILE_LIMIT} at most",
                    path.display()
                )));
            }
            Content::File(path, _) => tokio::fs::read(&path)
                .await
                .map_err(|error| HostError::Unfit(format!("cannot read {}: {error}", path.display())))?,
        };
        let path = format!("/v1/sessions/{session}/files/{index}");
        self.send(Method::PUT, &path, |request| request.body(bytes)).await.map(|_| ())
    }

    async fn stage(&self, session: &SessionName, plan: &Plan) -> Result<(), HostError> {
        self.send(Method::PUT, &format!("/v1/sessions/{session}/plan"), json(plan)).await.map(|_| ())
    }

    async fn launch(
        &self,
        session: &SessionName,
        environment: &[(String, String)],
    ) -> Result<Standing, HostError> {
        let start = Start { environment: environment.to_vec() };
        let path = format!("/v1/sessions/{session}/start");
        let started: Started = self.ask(Method::POST, &path, json(&start)).await?;
        Ok(started.standing)
    }

    async fn mark_joined(&self, session: &SessionName) -> Result<SystemTime, HostError> {
        let path = format!("/v1/sessions/{session}/joined");
        let joined: Joined = self.ask(Method::POST, &path, |request| request).await?;
        UNIX_EPOCH
            .checked_add(Duration::from_secs(joined.at))
            .ok_or_else(|| HostError::Broken("the agent's clock is out of all bounds".to_owned()))
    }

    async fn cancel(&self, session: &SessionName, grace: Duration) -> Result<CancelEnd, HostError> {
        let cancel = Cancel { grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX) };
        let path = format!("/v1/sessions/{session}/cancel");
        self.ask(Method::POST, &path, |request| request.timeout(grace + REQUEST).json(&cancel)).await
    }
}
