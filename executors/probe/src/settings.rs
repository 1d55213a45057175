//! A probe as a user writes it, and what it becomes for one attempt.

use std::time::Duration;

use executor_api::SpecProblem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::probe::{Check, HttpTarget, Probe, TcpTarget};
use crate::span::Span;
use crate::text::{self, Names};

/// How readiness is found out from outside: exactly one of `tcp` and `http`.
///
/// Placeholders: `{host}`, `{port}`, `{port.NAME}`, `{node}`, `{index}`, `{group}`, `{run}`, `{attempt}` and
/// `{nonce}`; `{{` and `}}` are braces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbeSettings {
    /// `HOST:PORT` that must accept a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<String>,
    /// `http://` address that must answer with a status from 200 to 399.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// Text that the first 64 KiB of the answer must hold. With `{nonce}` in it, only a node that was started for
    /// this very attempt passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// Time between two tries.
    #[serde(default = "ProbeSettings::default_every")]
    pub every: Span,
    /// How long one try may take.
    #[serde(default = "ProbeSettings::default_timeout")]
    pub timeout: Span,
}

impl ProbeSettings {
    const fn default_every() -> Span {
        Span::secs(1)
    }

    const fn default_timeout() -> Span {
        Span::secs(2)
    }

    /// What is wrong with it, each at its place below `pointer`; placeholders may use every name there is.
    pub fn problems(&self, pointer: &str) -> Vec<SpecProblem> {
        match self.resolve(pointer, &Names::any()) {
            Ok(_) => Vec::new(),
            Err(problems) => problems,
        }
    }

    /// The probe for one attempt.
    ///
    /// # Errors
    /// What is wrong with it, each at its place below `pointer`.
    pub fn resolve(&self, pointer: &str, names: &Names) -> Result<Probe, Vec<SpecProblem>> {
        let mut problems = Vec::new();
        let mut at = |key: &str, message: String| {
            problems.push(SpecProblem::new(format!("{pointer}{key}"), message));
        };
        let mut render = |key: &str, text: &str| match text::render(text, names) {
            Ok(text) => Some(text),
            Err(error) => {
                at(key, error.to_string());
                None
            }
        };
        let tcp = self.tcp.as_deref().and_then(|tcp| render("/tcp", tcp));
        let http = self.http.as_deref().and_then(|http| render("/http", http));
        let contains = self.contains.as_deref().and_then(|text| render("/contains", text));
        let mut check = None;
        match (&self.tcp, &self.http) {
            (Some(_), Some(_)) => at("", "tcp and http exclude each other; keep one".to_owned()),
            (None, None) => at("", "a probe needs `tcp: HOST:PORT` or `http: URL`".to_owned()),
            (Some(_), None) => match tcp.map(|text| TcpTarget::parse(&text)) {
                Some(Ok(target)) => check = Some(Check::Tcp(target)),
                Some(Err(message)) => at("/tcp", message),
                None => {}
            },
            (None, Some(_)) => match http.map(|text| HttpTarget::parse(&text)) {
                Some(Ok(target)) => check = Some(Check::Http { target, contains: contains.clone() }),
                Some(Err(message)) => at("/http", message),
                None => {}
            },
        }
        if self.http.is_none() && self.contains.is_some() {
            at("/contains", "only an http probe can look for a text".to_owned());
        }
        for (key, span) in [("/every", self.every), ("/timeout", self.timeout)] {
            if span.0 < Duration::from_millis(1) {
                at(key, "must be at least 1ms".to_owned());
            }
        }
        match check {
            Some(check) if problems.is_empty() => {
                Ok(Probe { check, every: self.every.0, timeout: self.timeout.0 })
            }
            _ => Err(problems),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::read;
    use serde_json::{Value, json};

    fn problems(value: &Value) -> Vec<String> {
        let settings: ProbeSettings = read("/boot/ready", value).unwrap();
        let problems = settings.problems("/boot/ready");
        problems.into_iter().map(|p| format!("{}: {}", p.pointer, p.message)).collect()
    }

    #[test]
    fn one_of_tcp_and_http_is_enough() {
        assert_eq!(problems(&json!({ "tcp": "{host}:{port.http}" })), [""; 0]);
        assert_eq!(problems(&json!({ "http": "http://{host}:80/x", "contains": "{nonce}" })), [""; 0]);
    }

    #[test]
    fn every_flaw_is_named_at_its_place() {
        let found = problems(&json!({ "every": "0s" }));
        assert_eq!(
            found,
            [
                "/boot/ready: a probe needs `tcp: HOST:PORT` or `http: URL`",
                "/boot/ready/every: must be at least 1ms"
            ]
        );
        let found = problems(&json!({ "tcp": "nowhere", "contains": "x" }));
        assert!(found[0].starts_with("/boot/ready/tcp: "), "{found:?}");
        assert!(found[1].starts_with("/boot/ready/contains: "), "{found:?}");
        let found = problems(&json!({ "http": "https://{hots}/" }));
        assert!(found[0].contains("unknown placeholder {hots}"), "{found:?}");
        let found = problems(&json!({ "http": "https://{host}/" }));
        assert!(found[0].contains("http://"), "{found:?}");
    }
}
