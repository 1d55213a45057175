//! What a user writes below `boot/connect` for the node agent.

use std::path::PathBuf;

use bootstrap_hosted::settings::secret_schema;
use executor_api::{SecretRef, SpecProblem};
use executor_probe::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tls;

/// How to get to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConnect {
    /// The agent's port; by default that of the lease's endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The token; by default the one that the lease's endpoint names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "secret_schema")]
    pub token: Option<SecretRef>,
    /// PEM file with the authorities that may have signed the agent's certificate, or with that certificate itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The name in the agent's certificate; by default the endpoint's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Whether to speak without TLS: the token and every secret then cross the network as they are.
    pub plain: bool,
    /// How long one try to connect may take.
    pub timeout: Span,
}

impl Default for AgentConnect {
    fn default() -> Self {
        Self { port: None, token: None, ca: None, server_name: None, plain: false, timeout: Span::secs(10) }
    }
}

impl AgentConnect {
    /// What is wrong with them, as far as that shows without a connection.
    pub(crate) fn problems(&self) -> Vec<SpecProblem> {
        let mut problems = Vec::new();
        match &self.ca {
            Some(_) if self.plain => {
                problems.push(SpecProblem::new("/boot/connect/ca", "is of no use with `plain: true`"));
            }
            Some(ca) => {
                if let Err(error) = tls::roots(ca) {
                    problems.push(SpecProblem::new("/boot/connect/ca", error));
                }
            }
            None if !self.plain => problems.push(SpecProblem::new(
                "/boot/connect",
                "needs `ca: FILE` with the agent's certificate or its authority, or `plain: true` for no TLS at all",
            )),
            None => {}
        }
        if let Some(Err(error)) = self.token.as_ref().map(SecretRef::resolve) {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            let message = format!("{error}{}", cause.unwrap_or_default());
            problems.push(SpecProblem::new("/boot/connect/token", message));
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
    fn no_tls_must_be_said_aloud() {
        let problems = AgentConnect::default().problems();
        assert!(problems[0].message.contains("plain: true"), "{problems:?}");
        assert_eq!(AgentConnect { plain: true, ..AgentConnect::default() }.problems(), []);
    }

    #[test]
    fn every_flaw_is_named_at_its_place() {
        let connect = AgentConnect {
            ca: Some("/nowhere/ca.pem".into()),
            token: Some(SecretRef::FromFile("/nowhere/token".into())),
            ..AgentConnect::default()
        };
        let found: Vec<_> = connect.problems().into_iter().map(|p| p.pointer).collect();
        assert_eq!(found, ["/boot/connect/ca", "/boot/connect/token"]);
    }
}
