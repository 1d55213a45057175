//! What a user writes below `boot/connect` for SSH.

use bootstrap_hosted::settings::secret_schema;
use executor_api::{SecretRef, SpecProblem};
use executor_probe::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth;
use crate::hostkey::HostKey;

/// How to get in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SshConnect {
    /// The server's port; by default that of the lease's endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The account; by default the one that the lease's endpoint names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The private key, without a passphrase; by default the one that the lease's endpoint names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "secret_schema")]
    pub key: Option<SecretRef>,
    /// Whether to use the keys of the agent at `SSH_AUTH_SOCK` when there is no other key.
    pub agent: bool,
    /// The host's key as in `known_hosts` (`ssh-ed25519 AAAA...`), or its fingerprint (`SHA256:...`). Without it the
    /// key of the host that first lets the attempt in is kept to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_key: Option<String>,
    /// How long one try to connect may take.
    pub timeout: Span,
}

impl Default for SshConnect {
    fn default() -> Self {
        Self { port: None, user: None, key: None, agent: false, host_key: None, timeout: Span::secs(10) }
    }
}

impl SshConnect {
    /// What is wrong with them, as far as that shows without a connection.
    pub(crate) fn problems(&self) -> Vec<SpecProblem> {
        let mut problems = Vec::new();
        if let Some(key) = &self.key
            && let Err(error) = auth::load(key)
        {
            problems.push(SpecProblem::new("/boot/connect/key", error));
        }
        if let Some(Err(error)) = self.host_key.as_deref().map(HostKey::parse) {
            problems.push(SpecProblem::new("/boot/connect/host_key", error));
        }
        if self.user.as_ref().is_some_and(|user| user.is_empty() || user.contains(char::is_control)) {
            problems.push(SpecProblem::new("/boot/connect/user", "is no name of an account"));
        }
        if self.timeout.0.is_zero() {
            problems.push(SpecProblem::new("/boot/connect/timeout", "must be longer than nothing"));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flaw_is_named_at_its_place() {
        let connect = SshConnect {
            user: Some(String::new()),
            key: Some(SecretRef::FromFile("/nowhere/key".into())),
            host_key: Some("AAAA".into()),
            ..SshConnect::default()
        };
        let found: Vec<_> = connect.problems().into_iter().map(|p| p.pointer).collect();
        assert_eq!(found, ["/boot/connect/key", "/boot/connect/host_key", "/boot/connect/user"]);
        assert_eq!(SshConnect::default().problems(), []);
    }
}
