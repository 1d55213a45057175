//! What a user writes below `boot` for a session that lives on its host, whichever transport leads there.
//! Reading and checking; what it means for one attempt is [`BootSettings::resolve`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use executor_api::{JoinSpec, Secret, SecretRef, SpecProblem};
use executor_probe::{Names, Probe, ProbeSettings, Span, read, text};
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::plan::{Plan, PlannedFile};

/// `boot:` of a group whose nodes are bootstrapped through a session on the node. `C` is what the transport needs
/// to know.
///
/// Placeholders such as `{host}` or `{nonce}` may be used in commands, in texts of the environment, in files and
/// in the probe; `{{` and `}}` are braces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BootSettings<C: Default> {
    /// How to get there.
    #[serde(default)]
    pub connect: C,
    /// Files to put in place first.
    #[serde(default)]
    pub files: Vec<FileSettings>,
    /// The environment of all commands. A secret is given by reference and is never written to a disk.
    #[serde(default)]
    pub env: BTreeMap<String, EnvValue>,
    /// Commands that must succeed, one after the other: each a program and its arguments, never a shell line.
    #[serde(default)]
    pub steps: Vec<Vec<String>>,
    /// Commands that must succeed after the steps.
    #[serde(default)]
    pub verify: Vec<Vec<String>>,
    /// The program that is the node. It is watched for as long as it lives: its end is the node's.
    #[serde(default)]
    pub start: Option<Vec<String>>,
    /// When the node counts as joined. Without it: once the steps are done and the program runs.
    #[serde(default)]
    pub ready: Option<ReadySettings>,
    /// How a cancelled session is ended.
    #[serde(default)]
    pub stop: StopSettings,
    /// How much output the host keeps.
    #[serde(default)]
    pub log: LogSettings,
}

/// One file to put in place: its text, or a file of the driving machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSettings {
    /// Where, on the host: absolute, or below the session's working directory.
    pub path: String,
    /// The text, with placeholders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The file to copy, as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
    /// Permissions in octal, `"0644"` by default.
    #[serde(default = "FileSettings::default_mode")]
    pub mode: String,
}

impl FileSettings {
    fn default_mode() -> String {
        "0644".to_owned()
    }
}

/// When a node counts as joined: at most one of `tcp`, `http` and `log`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadySettings {
    /// `HOST:PORT` that must accept a connection from the driving machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<String>,
    /// `http://` address that must answer the driving machine with a status from 200 to 399.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// Text that the answer to `http` must hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// Text that must appear in the session's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// Time between two tries of `tcp` or `http`.
    #[serde(default = "ReadySettings::default_every")]
    pub every: Span,
    /// How long one try of `tcp` or `http` may take.
    #[serde(default = "ReadySettings::default_timeout")]
    pub timeout: Span,
}

impl ReadySettings {
    const fn default_every() -> Span {
        Span::secs(1)
    }

    const fn default_timeout() -> Span {
        Span::secs(2)
    }
}

/// How a cancelled session is ended: SIGTERM to all of its processes, SIGKILL after the grace time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StopSettings {
    /// Time between SIGTERM and SIGKILL.
    pub grace: Span,
    /// A host that stays unreachable for so long after a cancel was first tried, or after it was last reached, counts as
    /// gone: what is left of the session ends with its lease.
    pub unreachable_for: Span,
}

impl Default for StopSettings {
    fn default() -> Self {
        Self { grace: Span::secs(5), unreachable_for: Span::secs(60) }
    }
}

/// How much output the host keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// What is written beyond so many bytes is dropped.
    pub max_bytes: u64,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { max_bytes: 64 * 1024 * 1024 }
    }
}

/// The value of one environment variable: a text, `{ from_env: NAME }` or `{ from_file: PATH }`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum EnvValue {
    /// A text, with placeholders.
    Text(String),
    /// A secret, read when the session is started and kept nowhere.
    Secret(SecretRef),
}

/// The settings, checked and rendered for one attempt. Holds references to secrets only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// What the session does.
    pub plan: Plan,
    /// Where the plan's files come from, in its order.
    pub sources: Vec<FileSource>,
    /// The environment, secrets by reference.
    pub env: Vec<(String, EnvValue)>,
    /// When the node counts as joined.
    pub ready: Ready,
    /// How a cancelled session is ended.
    pub stop: StopTimes,
}

/// Where a file comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileSource {
    /// This text.
    Text(String),
    /// A file of the driving machine.
    Local(PathBuf),
}

/// When a node counts as joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ready {
    /// Once the steps are done and the program runs.
    Begun,
    /// Once this probe passes.
    Probe(Probe),
    /// Once the output holds this text.
    Log(String),
}

/// [`StopSettings`] as times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopTimes {
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// How long an unreachable host is waited for.
    pub unreachable_for: Duration,
}

impl<C: Default + for<'de> Deserialize<'de>> BootSettings<C> {
    /// Reads the settings and checks what can be checked before there is an attempt.
    ///
    /// # Errors
    /// What is wrong, each at its place below `/boot`.
    pub fn parse(settings: &Value) -> Result<Self, Vec<SpecProblem>> {
        let boot: Self = read::read("/boot", settings).map_err(|problem| vec![problem])?;
        boot.resolve(&Names::any(), &JoinSpec::default()).map(|_| boot)
    }
}

impl<C: Default> BootSettings<C> {
    /// What the settings mean for one attempt.
    ///
    /// # Errors
    /// What is wrong, each at its place below `/boot`.
    pub fn resolve(&self, names: &Names, join: &JoinSpec) -> Result<Resolved, Vec<SpecProblem>> {
        let mut check = Check { names, problems: Vec::new() };
        if self.steps.is_empty() && self.start.is_none() && self.ready.is_none() {
            check.problem("", "nothing is to be done: give `steps`, `start` or `ready`");
        }
        let (mut files, mut sources) = (Vec::new(), Vec::new());
        for (n, file) in self.files.iter().enumerate() {
            let (planned, source) = check.file(&format!("/files/{n}"), file);
            files.push(planned);
            sources.push(source);
        }
        let plan = Plan {
            files,
            steps: check.commands("/steps", &self.steps),
            verify: check.commands("/verify", &self.verify),
            program: self.start.as_ref().map(|command| check.command("/start", command)),
            output_limit: self.log.max_bytes.max(1),
        };
        let mut env: Vec<_> =
            self.env.iter().map(|(name, value)| (name.clone(), check.env(name, value))).collect();
        if !join.0.is_null() {
            env.push(("RECONCILER_JOIN".to_owned(), EnvValue::Text(join.0.to_string())));
        }
        let ready = self.ready.as_ref().map_or(Some(Ready::Begun), |ready| check.ready(ready));
        let stop = StopTimes { grace: self.stop.grace.0, unreachable_for: self.stop.unreachable_for.0 };
        match ready {
            Some(ready) if check.problems.is_empty() => Ok(Resolved { plan, sources, env, ready, stop }),
            _ => Err(check.problems),
        }
    }
}

impl Resolved {
    /// The environment with its secrets, read now.
    ///
    /// # Errors
    /// A secret that cannot be read, in words; never its value.
    pub fn environment(&self) -> Result<Vec<(String, String)>, String> {
        let value = |name: &String, value: &EnvValue| match value {
            EnvValue::Text(text) => Ok(text.clone()),
            EnvValue::Secret(reference) => reference
                .resolve()
                .map_err(|error| format!("env {name}: {error}"))
                .and_then(|secret: Secret| {
                    let text = secret.expose().to_owned();
                    if text.contains('\0') {
                        Err(format!("env {name}: a secret holds a NUL"))
                    } else {
                        Ok(text)
                    }
                }),
        };
        self.env.iter().map(|(name, given)| Ok((name.clone(), value(name, given)?))).collect()
    }
}

/// Renders and collects what is wrong.
struct Check<'a> {
    names: &'a Names,
    problems: Vec<SpecProblem>,
}

impl Check<'_> {
    fn problem(&mut self, place: &str, message: impl Into<String>) {
        self.problems.push(SpecProblem::new(format!("/boot{place}"), message));
    }

    fn text(&mut self, place: &str, text: &str) -> String {
        if text.contains('\0') {
            self.problem(place, "holds a NUL character");
        }
        text::render(text, self.names).unwrap_or_else(|error| {
            self.problem(place, error.to_string());
            String::new()
        })
    }

    fn command(&mut self, place: &str, command: &[String]) -> Vec<String> {
        match command.first() {
            None => self.problem(place, "names no program; write [PROGRAM, ARGUMENTS...]"),
            Some(program) if program.is_empty() || program.starts_with('-') => {
                self.problem(&format!("{place}/0"), format!("{program:?} is no program"));
            }
            Some(_) => {}
        }
        command.iter().enumerate().map(|(n, word)| self.text(&format!("{place}/{n}"), word)).collect()
    }

    fn commands(&mut self, place: &str, commands: &[Vec<String>]) -> Vec<Vec<String>> {
        let each = commands.iter().enumerate();
        each.map(|(n, command)| self.command(&format!("{place}/{n}"), command)).collect()
    }

    fn file(&mut self, place: &str, file: &FileSettings) -> (PlannedFile, FileSource) {
        let path = self.text(&format!("{place}/path"), &file.path);
        if path.is_empty() || path.ends_with('/') || path.split('/').any(|part| part == "..") {
            self.problem(&format!("{place}/path"), "must name a file, without `..`");
        }
        let mode = u32::from_str_radix(&file.mode, 8).ok().filter(|mode| *mode <= 0o7777);
        if mode.is_none() {
            self.problem(&format!("{place}/mode"), format!("{:?} is no mode; write \"0644\"", file.mode));
        }
        let source = match (&file.content, &file.from) {
            (Some(content), None) => FileSource::Text(self.text(&format!("{place}/content"), content)),
            (None, Some(path)) => FileSource::Local(path.clone()),
            (Some(_), Some(_)) | (None, None) => {
                self.problem(place, "needs exactly one of `content` and `from`");
                FileSource::Text(String::new())
            }
        };
        (PlannedFile { path, mode: mode.unwrap_or(0o644) }, source)
    }

    fn env(&mut self, name: &str, value: &EnvValue) -> EnvValue {
        let place = format!("/env{}", read::pointer_key(name));
        let mut bytes = name.bytes();
        let first = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        if !first || !bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            self.problem(&place, format!("{name:?} is no name of a variable"));
        } else if name.starts_with("RECONCILER_") {
            self.problem(&place, "names that begin with RECONCILER_ are reserved");
        }
        match value {
            EnvValue::Text(text) => EnvValue::Text(self.text(&place, text)),
            EnvValue::Secret(reference) => EnvValue::Secret(reference.clone()),
        }
    }

    fn ready(&mut self, ready: &ReadySettings) -> Option<Ready> {
        let probe = ready.tcp.is_some() || ready.http.is_some();
        match &ready.log {
            Some(_) if probe || ready.contains.is_some() => {
                self.problem("/ready", "log excludes tcp and http; keep one");
                None
            }
            Some(text) => {
                let text = self.text("/ready/log", text);
                if text.is_empty() {
                    self.problem("/ready/log", "an empty text is in every output");
                }
                Some(Ready::Log(text))
            }
            None if !probe => {
                self.problem("/ready", "needs `tcp: HOST:PORT`, `http: URL` or `log: TEXT`");
                None
            }
            None => {
                let settings = ProbeSettings {
                    tcp: ready.tcp.clone(),
                    http: ready.http.clone(),
                    contains: ready.contains.clone(),
                    every: ready.every,
                    timeout: ready.timeout,
                };
                let probe = settings.resolve("/boot/ready", self.names);
                probe.map(Ready::Probe).map_err(|problems| self.problems.extend(problems)).ok()
            }
        }
    }
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

/// A secret's reference in a settings schema, for fields of type [`SecretRef`].
pub fn secret_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
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
        "description": "A secret by reference.",
        "oneOf": [
            reference("from_env", "An environment variable of the driving process."),
            reference("from_file", "A file; one trailing line break is not part of the secret."),
        ]
    })
}

impl JsonSchema for EnvValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "EnvValue".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let secret = secret_schema(generator);
        schemars::json_schema!({
            "description": "A text with placeholders, or a secret by reference.",
            "anyOf": [{ "type": "string" }, secret]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}

    fn problems(settings: &Value) -> Vec<String> {
        let Err(problems) = BootSettings::<Nothing>::parse(settings) else { return Vec::new() };
        problems.into_iter().map(|p| format!("{}: {}", p.pointer, p.message)).collect()
    }

    #[test]
    fn every_flaw_is_named_at_its_place() {
        let table = [
            (json!({}), "/boot: nothing is to be done"),
            (json!({ "step": [] }), "/boot/step: unknown field"),
            (json!({ "steps": ["ls -l"] }), "/boot/steps/0: invalid type: string"),
            (json!({ "steps": [[]] }), "/boot/steps/0: names no program"),
            (json!({ "steps": [["-x"]] }), "/boot/steps/0/0: "),
            (json!({ "start": ["x", "{prot}"] }), "/boot/start/1: unknown placeholder {prot}"),
            (json!({ "start": ["x"], "env": { "A-B": "" } }), "/boot/env/A-B: "),
            (json!({ "start": ["x"], "env": { "RECONCILER_RUN": "" } }), "/boot/env/RECONCILER_RUN: "),
            (json!({ "start": ["x"], "env": { "A": 1 } }), "/boot/env/A: "),
            (json!({ "start": ["x"], "ready": {} }), "/boot/ready: needs"),
            (json!({ "start": ["x"], "ready": { "log": "x", "tcp": "h:1" } }), "/boot/ready: log excludes"),
            (json!({ "start": ["x"], "ready": { "http": "ftp://x" } }), "/boot/ready/http: "),
            (json!({ "start": ["x"], "files": [{ "path": "a" }] }), "/boot/files/0: needs exactly one"),
            (json!({ "start": ["x"], "files": [{ "path": "../a", "content": "" }] }), "/boot/files/0/path: "),
            (
                json!({ "start": ["x"], "files": [{ "path": "a", "content": "", "mode": "rw" }] }),
                "/boot/files/0/mode: ",
            ),
            (json!({ "start": ["x"], "stop": { "grace": "5" } }), "/boot/stop/grace: "),
            (json!({ "start": ["x"], "connect": { "y": 1 } }), "/boot/connect/y: unknown field"),
        ];
        for (settings, expected) in table {
            let found = problems(&settings);
            assert!(found.iter().any(|p| p.starts_with(expected)), "{settings}: {found:?}");
        }
    }

    #[test]
    fn a_secret_is_kept_as_a_reference_only() {
        let settings = json!({ "start": ["x"], "env": { "T": { "from_env": "PATH" } } });
        let boot = BootSettings::<Nothing>::parse(&settings).unwrap();
        let resolved = boot.resolve(&Names::any(), &JoinSpec::default()).unwrap();
        let kept = serde_json::to_string(&resolved).unwrap();
        assert!(kept.contains("\"from_env\":\"PATH\""), "{kept}");
        let value = &resolved.environment().unwrap()[0].1;
        assert!(!value.is_empty() && !kept.contains(value.as_str()));
    }

    #[test]
    fn what_a_node_is_told_about_joining_is_in_its_environment() {
        let boot = BootSettings::<Nothing>::parse(&json!({ "start": ["x"] })).unwrap();
        let resolved = boot.resolve(&Names::any(), &JoinSpec(json!({ "seed": "a" }))).unwrap();
        let environment = resolved.environment().unwrap();
        assert_eq!(environment, [("RECONCILER_JOIN".to_owned(), "{\"seed\":\"a\"}".to_owned())]);
    }
}
