//! One SSH connection: reach the host, see that it is the one meant, log in.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bootstrap_hosted::host::script::ScriptHost;
use bootstrap_hosted::{Host, HostError, Pin, Transport};
use executor_api::{Endpoint, ProviderName, SpecProblem};
use russh::client::{self, DisconnectReason, Handler};
use russh::keys::{PublicKey, PublicKeyOrCertificate};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::auth::{self, Farewell};
use crate::hostkey::{HostKey, fingerprint_of, pin_of};
use crate::runner::SshRunner;
use crate::settings::SshConnect;

/// The way to a host over SSH.
#[derive(Clone, Copy, Debug, Default)]
pub struct SshTransport {}

/// Compares the host's key with the one that it must show, and remembers what it showed and how it took its leave.
#[derive(Debug)]
struct Doorkeeper {
    expected: Option<HostKey>,
    shown: Arc<Mutex<Option<PublicKey>>>,
    farewell: Farewell,
}

impl Handler for Doorkeeper {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        // Certificates were not asked for: nobody here knows an authority to trust.
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else { return Ok(false) };
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(key.clone());
        Ok(self.expected.as_ref().is_none_or(|expected| expected.matches(key)))
    }

    async fn disconnected(&mut self, reason: DisconnectReason<russh::Error>) -> Result<(), russh::Error> {
        match reason {
            DisconnectReason::ReceivedDisconnect(said) => {
                self.farewell.set(said);
                Ok(())
            }
            DisconnectReason::Error(error) => Err(error),
        }
    }
}

#[async_trait]
impl Transport for SshTransport {
    type Settings = SshConnect;

    fn name(&self) -> ProviderName {
        #[expect(clippy::expect_used, reason = "the text is a lowercase word")]
        ProviderName::new("ssh").expect("`ssh` is a provider name")
    }

    fn check(&self, settings: &SshConnect) -> Vec<SpecProblem> {
        settings.problems()
    }

    async fn connect(
        &self,
        endpoint: &Endpoint,
        settings: &SshConnect,
        pin: Pin<'_>,
    ) -> Result<Box<dyn Host>, HostError> {
        let endpoint = Endpoint { port: settings.port.unwrap_or(endpoint.port), ..endpoint.clone() };
        let late =
            || HostError::Unreachable(format!("{endpoint} did not answer within {:?}", settings.timeout.0));
        timeout(settings.timeout.0, enter(&endpoint, settings, pin)).await.unwrap_or_else(|_| Err(late()))
    }
}

async fn enter(endpoint: &Endpoint, settings: &SshConnect, pin: Pin<'_>) -> Result<Box<dyn Host>, HostError> {
    let expected = settings.host_key.as_deref().or_else(|| pin.known()).map(HostKey::parse).transpose();
    let expected = expected.map_err(HostError::Unfit)?;
    // Asked first: a missing account or key is no reason to knock.
    auth::user(endpoint, settings)?;
    let config = client::Config {
        preferred: expected.as_ref().map(HostKey::preferred).unwrap_or_default(),
        // A connection that died without a word is noticed within a minute.
        keepalive_interval: Some(Duration::from_secs(15)),
        keepalive_max: 3,
        nodelay: true,
        ..client::Config::default()
    };
    let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await;
    let stream = stream.map_err(|error| HostError::Unreachable(format!("{endpoint}: {error}")))?;
    let shown = Arc::new(Mutex::new(None));
    let farewell = Farewell::default();
    let doorkeeper =
        Doorkeeper { expected: expected.clone(), shown: Arc::clone(&shown), farewell: farewell.clone() };
    let connected = client::connect_stream(Arc::new(config), stream, doorkeeper).await;
    let shown = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut handle =
        connected.map_err(|error| refused(endpoint, expected.as_ref(), shown.as_ref(), &error))?;
    let Some(shown) = shown else {
        return Err(HostError::WrongHost(format!("{endpoint} showed no host key")));
    };
    auth::log_in(&mut handle, &farewell, endpoint, settings).await?;
    // Kept before the first command, and not before the login: a host that lets nobody in yet may still be given its
    // keys, its own among them, and nobody can use the signature it saw for anything else.
    if let Some(learnt) = pin_of(&shown) {
        pin.keep(&learnt)?;
    }
    Ok(Box::new(ScriptHost::install(SshRunner::new(handle)).await?))
}

/// Why there is no connection.
fn refused(
    endpoint: &Endpoint,
    expected: Option<&HostKey>,
    shown: Option<&PublicKey>,
    error: &russh::Error,
) -> HostError {
    match (error, expected, shown) {
        (russh::Error::UnknownKey, Some(expected), Some(shown)) => {
            let expected = match expected {
                HostKey::Key(key) => fingerprint_of(key),
                HostKey::Fingerprint(text) => text.clone(),
            };
            HostError::WrongHost(format!(
                "{endpoint} showed the host key {}, and this attempt's host has {expected}",
                fingerprint_of(shown)
            ))
        }
        (russh::Error::UnknownKey, _, _) => {
            HostError::WrongHost(format!("{endpoint} showed no plain host key"))
        }
        // Also a host that no longer has a key of the pinned kind: it is another one.
        (russh::Error::NoCommonAlgo { .. }, Some(_), _) => {
            HostError::WrongHost(format!("{endpoint} has no host key of the kind that is known: {error}"))
        }
        (russh::Error::NoCommonAlgo { .. }, None, _) => HostError::Unfit(format!("{endpoint}: {error}")),
        _ => HostError::Unreachable(format!("{endpoint}: no SSH connection: {error}")),
    }
}
