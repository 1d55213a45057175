//! A slot's behaviour as its spec declares it, so that `provider: fake` is usable from a cluster file.
//!
//! ```yaml
//! shape: { create: 2s, endpoint: 1s, destroy: 1s, dies_after: 30s }   # endpoint: also at-once, never
//! boot:  { start: 500ms, join: 3s, complete: 100ms, cancel: 500ms }   # join: also never
//! boot:  { exit: { after: 1s, status: 1 } }                           # exits instead of joining
//! shape: { labels: { team: blue } }                                   # beside those of its identity
//! boot:  { secret: { from_env: TOKEN } }                              # read at the start, told nowhere
//! ```
//!
//! Every key is optional. Durations are strings of numbers with units `ms`, `s`, `m`, `h`, such as `1m30s`.

use std::collections::BTreeMap;
use std::time::Duration;

use executor_api::spec::{NodeTemplate, check_user_labels};
use executor_api::{Secret, SecretError, SecretRef, SpecProblem};
use serde_json::{Map, Value};

use crate::behaviour::{EndpointTiming, Joining, NodeBehaviour};

/// Lays what a template says over `base`. What is wrong with it is reported, each problem at its place.
///
/// # Errors
/// Every unknown key and every value that cannot be read.
pub fn overlay(base: NodeBehaviour, template: &NodeTemplate) -> Result<NodeBehaviour, Vec<SpecProblem>> {
    let mut node = base;
    let mut problems = shape(&mut node, &template.shape);
    problems.extend(boot(&mut node, &template.boot.settings));
    if problems.is_empty() { Ok(node) } else { Err(problems) }
}

/// What the `shape` says of leases.
pub(crate) fn shape(node: &mut NodeBehaviour, value: &Value) -> Vec<SpecProblem> {
    let mut reader = Reader::new("/shape", value);
    reader.duration("create", &mut node.create);
    reader.duration("destroy", &mut node.destroy);
    if let Some(text) = reader.text("endpoint") {
        match text.as_str() {
            "at-once" => node.endpoint = EndpointTiming::AtOnce,
            "never" => node.endpoint = EndpointTiming::Never,
            other => match parse_duration(other) {
                Some(after) => node.endpoint = EndpointTiming::After(after),
                None => {
                    reader.problem("endpoint", "write a duration such as \"1s\", \"at-once\" or \"never\"");
                }
            },
        }
    }
    let mut dies_after = Duration::ZERO;
    if reader.duration("dies_after", &mut dies_after) {
        node.dies_after = Some(dies_after);
    }
    let mut labels = Vec::new();
    match value.get("labels").map(Value::as_object) {
        None => {}
        Some(Some(map)) if map.values().all(Value::is_string) => {
            labels = check_user_labels("/shape/labels", &user_labels(value));
        }
        Some(_) => reader.problem("labels", "write an object of strings"),
    }
    let mut problems = reader.finish(&["create", "destroy", "dies_after", "endpoint", "labels"]);
    problems.extend(labels);
    problems
}

/// The labels that a `shape` asks for.
pub(crate) fn user_labels(shape: &Value) -> BTreeMap<String, String> {
    let labels = shape.get("labels").and_then(Value::as_object).into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Reads the secret that `boot` refers to, if it does.
pub(crate) fn secret(boot: &Value) -> Result<Option<Secret>, SecretError> {
    let reference =
        boot.get("secret").and_then(|value| serde_json::from_value::<SecretRef>(value.clone()).ok());
    reference.map(|reference| reference.resolve()).transpose()
}

/// What `boot` says of sessions.
pub(crate) fn boot(node: &mut NodeBehaviour, value: &Value) -> Vec<SpecProblem> {
    let mut reader = Reader::new("/boot", value);
    reader.duration("start", &mut node.start);
    reader.duration("complete", &mut node.complete);
    reader.duration("cancel", &mut node.cancel);
    if let Some(text) = reader.text("join") {
        match (text.as_str(), parse_duration(&text)) {
            ("never", _) => node.join = Joining::Never,
            (_, Some(after)) => node.join = Joining::After(after),
            (_, None) => reader.problem("join", "write a duration such as \"3s\", or \"never\""),
        }
    }
    let exit = reader.map.and_then(|map| map.get("exit"));
    let mut nested = Vec::new();
    if let Some(exit) = exit {
        let mut inner = Reader::new("/boot/exit", exit);
        let mut after = Duration::ZERO;
        inner.duration("after", &mut after);
        let status = inner.status("status");
        nested = inner.finish(&["after", "status"]);
        node.join = Joining::Exits { after, status };
    }
    let reads = |secret: &Value| serde_json::from_value::<SecretRef>(secret.clone()).is_ok();
    if value.get("secret").is_some_and(|secret| !reads(secret)) {
        reader.problem("secret", "write { from_env: NAME } or { from_file: PATH }");
    }
    let mut problems = reader.finish(&["cancel", "complete", "exit", "join", "secret", "start"]);
    problems.extend(nested);
    problems
}

/// `1m30s` and the like. `None` for anything else, a missing unit included.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?;
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let part = match rest.get(..unit)? {
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            "m" => Duration::from_secs(number.checked_mul(60)?),
            "h" => Duration::from_secs(number.checked_mul(3600)?),
            _ => return None,
        };
        total = total.checked_add(part)?;
        rest = rest.get(unit..)?;
    }
    Some(total)
}

/// Reads the keys of one JSON object and remembers what was wrong.
struct Reader<'a> {
    at: &'static str,
    map: Option<&'a Map<String, Value>>,
    problems: Vec<SpecProblem>,
}

impl<'a> Reader<'a> {
    fn new(at: &'static str, value: &'a Value) -> Self {
        let mut reader = Self { at, map: value.as_object(), problems: Vec::new() };
        if reader.map.is_none() && !value.is_null() {
            reader
                .problems
                .push(SpecProblem::new(at, "write an object with named settings, or leave it out"));
        }
        reader
    }

    fn problem(&mut self, key: &str, message: &str) {
        self.problems.push(SpecProblem::new(format!("{}/{}", self.at, escape(key)), message));
    }

    fn text(&mut self, key: &str) -> Option<String> {
        let text = self.map?.get(key)?.as_str();
        if text.is_none() {
            self.problem(key, "write a string such as \"1s\"");
        }
        text.map(str::to_owned)
    }

    /// Sets `into` if the key is there and reads well.
    fn duration(&mut self, key: &str, into: &mut Duration) -> bool {
        let Some(text) = self.text(key) else { return false };
        if let Some(duration) = parse_duration(&text) {
            *into = duration;
            return true;
        }
        self.problem(key, "write a duration such as \"200ms\", \"2s\" or \"1m30s\"");
        false
    }

    fn status(&mut self, key: &str) -> i32 {
        match self.map.and_then(|map| map.get(key)) {
            None => 0,
            Some(value) => {
                if let Some(status) = value.as_i64().and_then(|n| i32::try_from(n).ok()) {
                    return status;
                }
                self.problem(key, "write the exit status as a number");
                0
            }
        }
    }

    fn finish(mut self, known: &[&str]) -> Vec<SpecProblem> {
        for key in self.map.into_iter().flat_map(Map::keys) {
            if !known.contains(&key.as_str()) {
                let message = format!("the fake knows no setting {key:?}; it knows {}", known.join(", "));
                self.problem(key, &message);
            }
        }
        self.problems
    }
}

fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::json;

    #[test]
    fn durations_need_units_and_may_be_combined() {
        assert_eq!(parse_duration("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
        for bad in ["", "3", "s", "3 s", "-1s", "1.5s", "1d", "99999999999999999999s"] {
            assert_eq!(parse_duration(bad), None, "{bad:?} was taken");
        }
    }

    #[test]
    fn each_problem_points_at_its_place() {
        let mut node = NodeBehaviour::default();
        let mut problems = shape(&mut node, &json!({ "create": 2, "endpoint": "soon", "a/b": true }));
        problems.extend(boot(&mut node, &json!({ "join": "3", "exit": { "status": "x", "why": 1 } })));
        problems.extend(boot(&mut node, &json!("sleep 5")));
        let lines: Vec<_> = problems.iter().map(|p| format!("{}: {}", p.pointer, p.message)).collect();
        expect![[r#"
            /shape/create: write a string such as "1s"
            /shape/endpoint: write a duration such as "1s", "at-once" or "never"
            /shape/a~1b: the fake knows no setting "a/b"; it knows create, destroy, dies_after, endpoint, labels
            /boot/join: write a duration such as "3s", or "never"
            /boot/exit/status: write the exit status as a number
            /boot/exit/why: the fake knows no setting "why"; it knows after, status
            /boot: write an object with named settings, or leave it out"#]]
        .assert_eq(&lines.join("\n"));
    }

    #[test]
    fn a_spec_overrides_only_what_it_names() {
        let mut node = NodeBehaviour::default();
        assert!(shape(&mut node, &json!({ "create": "9s", "endpoint": "never" })).is_empty());
        assert!(boot(&mut node, &json!({ "exit": { "after": "2s", "status": 7 } })).is_empty());
        let expected = NodeBehaviour {
            create: Duration::from_secs(9),
            endpoint: EndpointTiming::Never,
            join: Joining::Exits { after: Duration::from_secs(2), status: 7 },
            ..NodeBehaviour::default()
        };
        assert_eq!(node, expected);
    }
}
