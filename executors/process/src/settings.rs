//! What a user writes for a process node: `shape` (ports, data) and `boot` (program, readiness, stopping).
//! Reading them is all that happens here; what they mean together is checked in `validate`.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use executor_api::{SecretRef, SpecProblem};
use executor_probe::Span;
use executor_probe::read::read;
use schemars::JsonSchema;
use serde::de::{MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// `shape:` of a group of process nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessShape {
    /// Names of the ports each node needs; the first is the node's endpoint. A slot keeps its ports from one
    /// attempt to the next.
    pub ports: Vec<String>,
    /// Whether `{data}` outlives an attempt.
    pub data: DataPolicy,
}

/// What happens to a slot's data directory between two attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DataPolicy {
    /// Each attempt starts with an empty one.
    #[default]
    Discard,
    /// The next attempt of the slot finds it as it was left; it is removed with the slot.
    Keep,
}

/// `boot:` of a group of process nodes.
///
/// Placeholders such as `{port.http}` may be used in the command, in texts of the environment, in the working
/// directory, in files and in the readiness probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessBoot {
    /// The program and its arguments; never a shell line. A name without a slash is looked up in PATH.
    pub command: Vec<String>,
    /// The environment, besides `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `LANG`, `LC_ALL`, `TZ` and
    /// `TMPDIR`, which are passed on. A secret is given by reference.
    #[serde(default)]
    pub env: BTreeMap<String, EnvValue>,
    /// Working directory; by default the node's own, `{dir}`.
    #[serde(default)]
    pub workdir: Option<String>,
    /// Files to write below `{dir}` before the program starts, by relative path.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// When the node counts as ready. Without it: as soon as the program runs.
    #[serde(default)]
    pub ready: Option<ReadyProbe>,
    /// How the node is stopped.
    #[serde(default)]
    pub stop: StopSettings,
    /// How much output is kept.
    #[serde(default)]
    pub log: LogSettings,
}

/// How readiness is found out; exactly one of `tcp`, `http`, `exec` and `log`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadyProbe {
    /// `HOST:PORT` that must accept a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<String>,
    /// `http://` address that must answer with a status from 200 to 399.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// Program and arguments that must exit with 0; runs with the node's environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<Vec<String>>,
    /// Text that must appear within one line of the program's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// Time between two tries.
    #[serde(default = "ReadyProbe::default_every")]
    pub every: Span,
    /// How long one try may take.
    #[serde(default = "ReadyProbe::default_timeout")]
    pub timeout: Span,
}

impl ReadyProbe {
    fn default_every() -> Span {
        Span(Duration::from_millis(200))
    }

    fn default_timeout() -> Span {
        Span(Duration::from_secs(1))
    }
}

/// How a node is stopped: SIGTERM to all of its processes, SIGKILL after the grace time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StopSettings {
    /// Time between SIGTERM and SIGKILL.
    pub grace: Span,
}

impl Default for StopSettings {
    fn default() -> Self {
        Self { grace: Span(Duration::from_secs(5)) }
    }
}

/// How much of a node's output is kept on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// Size in bytes at which the log file is rotated.
    pub max_bytes: u64,
    /// How many rotated files are kept.
    pub keep: u32,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { max_bytes: 10 * 1024 * 1024, keep: 1 }
    }
}

/// The value of one environment variable: a text, `{ from_env: NAME }` or `{ from_file: PATH }`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum EnvValue {
    /// A text, with placeholders.
    Text(String),
    /// A secret, read when the node is started and stored nowhere.
    Secret(SecretRef),
}

impl<'de> Deserialize<'de> for EnvValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrReference;
        impl<'de> Visitor<'de> for TextOrReference {
            type Value = EnvValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text in quotes, { from_env: NAME } or { from_file: PATH }")
            }
            fn visit_str<E>(self, text: &str) -> Result<EnvValue, E> {
                Ok(EnvValue::Text(text.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<EnvValue, A::Error> {
                SecretRef::deserialize(MapAccessDeserializer::new(map)).map(EnvValue::Secret)
            }
        }
        deserializer.deserialize_any(TextOrReference)
    }
}

impl JsonSchema for EnvValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "EnvValue".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let reference = |key: &str, what: &str| {
            serde_json::json!({
                "type": "object",
                "description": what,
                "properties": { key: { "type": "string" } },
                "required": [key],
                "additionalProperties": false
            })
        };
        schemars::json_schema!({
            "description": "A text with placeholders, or a secret by reference.",
            "oneOf": [
                { "type": "string" },
                reference("from_env", "An environment variable of the driving process."),
                reference("from_file", "A file; one trailing line break is not part of the secret."),
            ]
        })
    }
}

/// Reads a shape; nothing at all means the default.
pub(crate) fn read_shape(value: &Value) -> Result<ProcessShape, SpecProblem> {
    if value.is_null() { Ok(ProcessShape::default()) } else { read("/shape", value) }
}

/// Reads boot settings.
pub(crate) fn read_boot(value: &Value) -> Result<ProcessBoot, SpecProblem> {
    if value.is_null() {
        return Err(SpecProblem::new("/boot", "a process node needs `command: [PROGRAM, ARGUMENTS...]`"));
    }
    read("/boot", value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn boot_problem(value: &Value) -> String {
        let problem = read_boot(value).unwrap_err();
        format!("{}: {}", problem.pointer, problem.message)
    }

    #[test]
    fn what_is_left_out_has_its_documented_default() {
        let boot = read_boot(&json!({ "command": ["x"], "ready": { "tcp": "127.0.0.1:1" } })).unwrap();
        assert_eq!(boot.stop.grace.0, Duration::from_secs(5));
        assert_eq!(boot.log, LogSettings { max_bytes: 10 * 1024 * 1024, keep: 1 });
        let ready = boot.ready.unwrap();
        assert_eq!((ready.every.0, ready.timeout.0), (Duration::from_millis(200), Duration::from_secs(1)));
        assert_eq!(read_shape(&Value::Null).unwrap(), ProcessShape::default());
    }

    #[test]
    fn an_unknown_key_is_named_at_its_place() {
        let text = boot_problem(&json!({ "command": ["x"], "ready": { "tpc": "h:1" } }));
        assert!(text.starts_with("/boot/ready/tpc: unknown field `tpc`"), "{text}");
        let text = boot_problem(&json!({ "command": ["x"], "comand": [] }));
        assert!(text.starts_with("/boot/comand: unknown field"), "{text}");
    }

    #[test]
    fn wrong_types_and_times_are_named_at_their_place() {
        let text = boot_problem(&json!({ "command": ["x", 1] }));
        assert!(text.starts_with("/boot/command/1: invalid type: integer `1`"), "{text}");
        let text = boot_problem(&json!({ "command": ["x"], "env": { "PORT": 80 } }));
        assert!(text.starts_with("/boot/env/PORT:") && text.contains("a text in quotes"), "{text}");
        let text = boot_problem(&json!({ "command": ["x"], "env": { "A": { "from_evn": "B" } } }));
        assert!(text.starts_with("/boot/env/A") && text.contains("from_evn"), "{text}");
        for bad in ["5", "-1s", "soon", ""] {
            let text = boot_problem(&json!({ "command": ["x"], "stop": { "grace": bad } }));
            assert!(text.starts_with("/boot/stop/grace:"), "{bad:?}: {text}");
        }
    }

    #[test]
    fn settings_survive_a_round_trip() {
        let value = json!({
            "command": ["{self}", "node"],
            "env": { "A": "text", "B": { "from_env": "C" }, "D": { "from_file": "/e" } },
            "ready": { "log": "up", "every": "50ms" },
            "stop": { "grace": "1m 30s" },
        });
        let boot = read_boot(&value).unwrap();
        assert_eq!(boot.stop.grace.0, Duration::from_secs(90));
        assert_eq!(read_boot(&serde_json::to_value(&boot).unwrap()).unwrap(), boot);
    }
}
