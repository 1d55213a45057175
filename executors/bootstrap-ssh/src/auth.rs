//! Who we are: a key without a passphrase, or the keys of the user's agent. Never a password, never a prompt.

use std::sync::Arc;

use bootstrap_hosted::HostError;
use executor_api::{Endpoint, EndpointAuth, SecretRef};
use russh::client::{AuthResult, Handle, Handler};
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::{PrivateKey, PrivateKeyWithHashAlg, decode_secret_key};

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

/// Proves ourselves to the host.
pub(crate) async fn log_in<H: Handler>(
    handle: &mut Handle<H>,
    endpoint: &Endpoint,
    connect: &SshConnect,
) -> Result<(), HostError> {
    let user = user(endpoint, connect)?;
    let reference = connect.key.as_ref().or(match &endpoint.auth {
        EndpointAuth::Key { key, .. } => Some(key),
        EndpointAuth::None | EndpointAuth::Token(_) => None,
    });
    let result = match reference {
        Some(reference) => {
            let key = load(reference).map_err(HostError::Unfit)?;
            let hash = handle.best_supported_rsa_hash().await.map_err(|e| lost(&e))?.flatten();
            let key = PrivateKeyWithHashAlg::new(Arc::new(key), hash);
            handle.authenticate_publickey(user.clone(), key).await.map_err(|e| lost(&e))?
        }
        None if connect.agent => by_agent(handle, &user).await?,
        None => {
            return Err(HostError::Unfit(
                "there is no key: give `boot/connect/key`, `agent: true`, or a lease whose endpoint has one"
                    .to_owned(),
            ));
        }
    };
    match result {
        AuthResult::Success => Ok(()),
        AuthResult::Failure { remaining_methods, .. } => Err(HostError::Denied(format!(
            "{endpoint} does not let {user:?} in with this key (it would take: {remaining_methods:?})"
        ))),
    }
}

async fn by_agent<H: Handler>(handle: &mut Handle<H>, user: &str) -> Result<AuthResult, HostError> {
    let unfit = |what: &str, error: &dyn std::fmt::Display| {
        HostError::Unfit(format!("cannot {what} the agent at SSH_AUTH_SOCK: {error}"))
    };
    let mut agent = AgentClient::connect_env().await.map_err(|error| unfit("reach", &error))?;
    let identities = agent.request_identities().await.map_err(|error| unfit("ask", &error))?;
    let hash = handle.best_supported_rsa_hash().await.map_err(|error| lost(&error))?.flatten();
    let mut last = None;
    for identity in identities {
        let AgentIdentity::PublicKey { key, .. } = identity else { continue };
        let tried = handle.authenticate_publickey_with(user.to_owned(), key, hash, &mut agent).await;
        match tried.map_err(|error| unfit("sign with", &error))? {
            AuthResult::Success => return Ok(AuthResult::Success),
            failure @ AuthResult::Failure { .. } => last = Some(failure),
        }
    }
    last.ok_or_else(|| HostError::Unfit("the agent at SSH_AUTH_SOCK holds no key".to_owned()))
}

fn lost(error: &russh::Error) -> HostError {
    HostError::Unreachable(format!("the connection broke while logging in: {error}"))
}
