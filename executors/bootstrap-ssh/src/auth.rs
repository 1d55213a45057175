//! Who we are: a key without a passphrase, or the keys of the user's agent. Never a password, never a prompt.

use std::sync::{Arc, Mutex, PoisonError};

use bootstrap_hosted::HostError;
use executor_api::{Endpoint, EndpointAuth, SecretRef};
use executor_probe::tell::printable;
use russh::client::{AuthResult, Handle, Handler, RemoteDisconnectInfo};
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::{PrivateKey, PrivateKeyWithHashAlg, decode_secret_key};
use russh::{AgentAuthError, Disconnect, MethodSet};

use crate::settings::SshConnect;

/// Reads a private key now.
///
/// # Errors
/// Why it cannot be used, in words; never any of its text.
pub(crate) fn load(reference: &SecretRef) -> Result<PrivateKey, String> {
    let text = reference.resolve().map_err(|error| match std::error::Error::source(&error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    })?;
    decode_secret_key(text.expose(), None).map_err(|error| match error {
        russh::keys::Error::KeyIsEncrypted => {
            "the private key has a passphrase, and nobody is asked for one; use a key without, or `agent: true`"
                .to_owned()
        }
        other => format!("this is no private key that can be used: {other}"),
    })
}

/// The account at the endpoint.
pub(crate) fn user(endpoint: &Endpoint, connect: &SshConnect) -> Result<String, HostError> {
    let named = match &endpoint.auth {
        EndpointAuth::Key { user, .. } => Some(user),
        EndpointAuth::None | EndpointAuth::Token(_) => None,
    };
    connect.user.as_ref().or(named).cloned().ok_or_else(|| {
        HostError::Unfit(
            "neither `boot/connect/user` nor the endpoint names an account to log in to".to_owned(),
        )
    })
}

/// What a host said as it ended the connection, if it said anything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Farewell(Arc<Mutex<Option<RemoteDisconnectInfo>>>);

impl Farewell {
    pub(crate) fn set(&self, said: RemoteDisconnectInfo) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(said);
    }

    fn take(&self) -> Option<RemoteDisconnectInfo> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What became of one key.
enum Offer {
    Taken,
    /// Refused; these are the methods the host would take.
    Refused(MethodSet),
    /// The connection ended before the answer.
    BrokenOff,
}

/// Proves ourselves to the host.
pub(crate) async fn log_in<H: Handler>(
    handle: &mut Handle<H>,
    farewell: &Farewell,
    endpoint: &Endpoint,
    connect: &SshConnect,
) -> Result<(), HostError> {
    let user = user(endpoint, connect)?;
    let reference = connect.key.as_ref().or(match &endpoint.auth {
        EndpointAuth::Key { key, .. } => Some(key),
        EndpointAuth::None | EndpointAuth::Token(_) => None,
    });
    let (offer, keys) = match reference {
        Some(reference) => (with_key(handle, &user, reference).await?, "this key".to_owned()),
        None if connect.agent => by_agent(handle, &user).await?,
        None => {
            return Err(HostError::Unfit(
                "there is no key: give `boot/connect/key`, `agent: true`, or a lease whose endpoint has one"
                    .to_owned(),
            ));
        }
    };
    match offer {
        Offer::Taken => Ok(()),
        Offer::Refused(methods) => Err(HostError::Denied(format!(
            "{endpoint} does not let {user:?} in with {keys} (it would take: {methods:?})"
        ))),
        Offer::BrokenOff => {
            // What it said is known once the session has ended.
            let _ = handle.await;
            Err(broken_off(endpoint, &user, &keys, farewell.take()))
        }
    }
}

async fn with_key<H: Handler>(
    handle: &mut Handle<H>,
    user: &str,
    reference: &SecretRef,
) -> Result<Offer, HostError> {
    let key = load(reference).map_err(HostError::Unfit)?;
    let Ok(hash) = handle.best_supported_rsa_hash().await else { return Ok(Offer::BrokenOff) };
    let key = PrivateKeyWithHashAlg::new(Arc::new(key), hash.flatten());
    match handle.authenticate_publickey(user.to_owned(), key).await {
        Ok(answer) => Ok(offer(handle, answer)),
        Err(_) => Ok(Offer::BrokenOff),
    }
}

/// Offers the agent's keys one after the other; what became of the last, and in words which those were.
async fn by_agent<H: Handler>(handle: &mut Handle<H>, user: &str) -> Result<(Offer, String), HostError> {
    let unfit = |what: &str, error: &dyn std::fmt::Display| {
        HostError::Unfit(format!("cannot {what} the agent at SSH_AUTH_SOCK: {error}"))
    };
    let mut agent = AgentClient::connect_env().await.map_err(|error| unfit("reach", &error))?;
    let identities = agent.request_identities().await.map_err(|error| unfit("ask", &error))?;
    let keys: Vec<_> = identities
        .into_iter()
        .filter_map(|identity| match identity {
            AgentIdentity::PublicKey { key, .. } => Some(key),
            AgentIdentity::Certificate { .. } => None,
        })
        .collect();
    let held = keys.len();
    let offered = |n: usize| format!("{n} of the agent's {held} keys");
    let Ok(hash) = handle.best_supported_rsa_hash().await else { return Ok((Offer::BrokenOff, offered(0))) };
    let mut last = None;
    for (n, key) in keys.into_iter().enumerate() {
        let tried =
            handle.authenticate_publickey_with(user.to_owned(), key, hash.flatten(), &mut agent).await;
        let became = match tried {
            Ok(answer) => offer(handle, answer),
            Err(AgentAuthError::Send(_)) => Offer::BrokenOff,
            Err(AgentAuthError::Key(error)) => return Err(unfit("sign with", &error)),
        };
        let words = offered(n + 1);
        match became {
            Offer::Taken | Offer::BrokenOff => return Ok((became, words)),
            Offer::Refused(_) => last = Some((became, words)),
        }
    }
    last.ok_or_else(|| HostError::Unfit("the agent at SSH_AUTH_SOCK holds no key".to_owned()))
}

fn offer<H: Handler>(handle: &Handle<H>, answer: AuthResult) -> Offer {
    match answer {
        AuthResult::Success => Offer::Taken,
        // The library's word for a connection that ended; a host that refuses a key names what it would take.
        AuthResult::Failure { remaining_methods, .. }
            if remaining_methods.is_empty() && handle.is_closed() =>
        {
            Offer::BrokenOff
        }
        AuthResult::Failure { remaining_methods, .. } => Offer::Refused(remaining_methods),
    }
}

/// A login without an answer. A host that has seen enough keys says so and hangs up, which is a refusal; a
/// connection that just broke says nothing about any key.
fn broken_off(endpoint: &Endpoint, user: &str, keys: &str, said: Option<RemoteDisconnectInfo>) -> HostError {
    let Some(RemoteDisconnectInfo { reason_code, message, .. }) = said else {
        return HostError::Unreachable(format!(
            "the connection broke while logging in to {endpoint} as {user:?} with {keys}"
        ));
    };
    let words = printable(&message);
    match reason_code {
        Disconnect::ServiceNotAvailable
        | Disconnect::ConnectionLost
        | Disconnect::ByApplication
        | Disconnect::TooManyConnections => {
            HostError::Unreachable(format!("{endpoint} ended the login of {user:?}: {words}"))
        }
        _ => HostError::Denied(format!(
            "{endpoint} does not let {user:?} in with {keys} and hung up ({words}); give the key that it knows as \
             `boot/connect/key`"
        )),
    }
}
