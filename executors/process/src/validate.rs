//! What can be known to be wrong with a group before anything is made. Reads only; every problem has its
//! place in the group as the user wrote it.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use executor_api::spec::pointer_key;
use executor_api::{RunNodeGroupSpec, SpecProblem};

use crate::executor::provider_name;
use crate::marker;
use crate::plan::{find_program, is_inner_path};
use crate::settings::{self, EnvValue, ProcessBoot, ProcessShape, ReadyProbe};
use crate::template::Template;

/// Longest name of a port.
const PORT_NAME_LIMIT: usize = 40;

/// Checks `/shape`.
pub(crate) fn shape(group: &RunNodeGroupSpec, range: &RangeInclusive<u16>) -> Result<(), Vec<SpecProblem>> {
    let shape = settings::read_shape(&group.template.shape).map_err(|problem| vec![problem])?;
    let mut problems = port_names(&shape);
    let wanted = u64::from(group.count) * shape.ports.len() as u64;
    let available = u64::from(range.end().saturating_sub(*range.start())) + 1;
    if wanted > available {
        problems.push(SpecProblem::new(
            "/shape/ports",
            format!(
                "{} nodes with {} ports each need {wanted} ports, and the range {}-{} has {available}; lower the count",
                group.count,
                shape.ports.len(),
                range.start(),
                range.end()
            ),
        ));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// What is wrong with the names of ports. A create looks for itself, for who validated its spec is not known to it.
pub(crate) fn port_names(shape: &ProcessShape) -> Vec<SpecProblem> {
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for (place, name) in shape.ports.iter().enumerate() {
        let pointer = format!("/shape/ports/{place}");
        let fits = !name.is_empty()
            && name.len() <= PORT_NAME_LIMIT
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_');
        if !fits {
            problems.push(SpecProblem::new(
                pointer,
                format!("{name:?} is no port name; use up to {PORT_NAME_LIMIT} lowercase letters, digits, '-' and '_'"),
            ));
        } else if !seen.insert(name) {
            problems.push(SpecProblem::new(pointer, format!("the port {name:?} is named twice; remove one")));
        }
    }
    problems
}

/// Checks `/boot` and `/join`.
pub(crate) fn boot(group: &RunNodeGroupSpec, self_program: &Path) -> Result<(), Vec<SpecProblem>> {
    let boot = settings::read_boot(&group.template.boot.settings).map_err(|problem| vec![problem])?;
    // Which ports there are is known only of our own leases; a broken shape is reported by `shape`.
    let ports = if group.template.provider == provider_name() {
        settings::read_shape(&group.template.shape).ok()
    } else {
        None
    };
    let mut check = Checker { ports: ports.as_ref(), self_program, problems: Vec::new() };
    check.command("/boot/command", &boot.command);
    check.environment(&boot);
    if let Some(workdir) = &boot.workdir {
        check.template("/boot/workdir", workdir);
    }
    for (path, content) in &boot.files {
        let pointer = format!("/boot/files{}", pointer_key(path));
        if !is_inner_path(path) {
            check.problem(&pointer, format!("{path:?} must be a relative path without '..'"));
        }
        check.template(&pointer, content);
    }
    if let Some(ready) = &boot.ready {
        check.ready(ready);
    }
    if boot.log.max_bytes == 0 {
        check.problem("/boot/log/max_bytes", "at least one byte of output must fit; write 1048576 or more");
    }
    let join = &group.template.join.0;
    if !join.is_null() && !join.as_object().is_some_and(serde_json::Map::is_empty) {
        check.problem(
            "/join",
            "a process node is told nothing about joining; put it into boot.env or boot.files",
        );
    }
    if check.problems.is_empty() { Ok(()) } else { Err(check.problems) }
}

struct Checker<'a> {
    ports: Option<&'a ProcessShape>,
    self_program: &'a Path,
    problems: Vec<SpecProblem>,
}

impl Checker<'_> {
    fn problem(&mut self, pointer: &str, message: impl Into<String>) {
        self.problems.push(SpecProblem::new(pointer, message));
    }

    /// Checks a text; what it is, if it can be read.
    fn template(&mut self, pointer: &str, text: &str) -> Option<Template> {
        let parsed = Template::parse(text).and_then(|template| {
            if let Some(shape) = self.ports {
                template.check_ports(&shape.ports)?;
            }
            Ok(template)
        });
        match parsed {
            Ok(template) => Some(template),
            Err(error) => {
                self.problem(pointer, error.to_string());
                None
            }
        }
    }

    fn command(&mut self, pointer: &str, command: &[String]) {
        if command.is_empty() {
            self.problem(pointer, "a program is needed: write [PROGRAM, ARGUMENTS...]");
        }
        for (place, word) in command.iter().enumerate() {
            let pointer = format!("{pointer}/{place}");
            if word.contains('\0') {
                self.problem(&pointer, "an argument cannot hold a NUL byte");
            }
            let template = self.template(&pointer, word);
            // A program that a file of the node brings along is not there yet.
            if place == 0 && template.is_some_and(|template| template.is_fixed()) {
                let name = word.replace("{self}", &self.self_program.to_string_lossy());
                if let Err(error) = find_program(&name) {
                    self.problem(&pointer, error.to_string());
                }
            }
        }
    }

    fn environment(&mut self, boot: &ProcessBoot) {
        for (name, value) in &boot.env {
            let pointer = format!("/boot/env{}", pointer_key(name));
            if name.is_empty() || name.contains(['=', '\0']) {
                self.problem(&pointer, format!("{name:?} is no name of an environment variable"));
            }
            if marker::is_reserved(name) {
                self.problem(&pointer, format!("{name} is set by the reconciler; choose another name"));
            }
            match value {
                EnvValue::Text(text) => {
                    self.template(&pointer, text);
                }
                EnvValue::Secret(reference) => {
                    if let Err(error) = reference.resolve() {
                        self.problem(&pointer, error.to_string());
                    }
                }
            }
        }
    }

    fn ready(&mut self, ready: &ReadyProbe) {
        let given = [ready.tcp.is_some(), ready.http.is_some(), ready.exec.is_some(), ready.log.is_some()];
        if given.iter().filter(|given| **given).count() != 1 {
            self.problem("/boot/ready", "exactly one of tcp, http, exec and log is needed");
        }
        if let Some(address) = &ready.tcp
            && self.template("/boot/ready/tcp", address).is_some()
            && !address.contains(':')
        {
            self.problem(
                "/boot/ready/tcp",
                format!("{address:?} has no port; write HOST:PORT, as in {{host}}:{{port}}"),
            );
        }
        if let Some(url) = &ready.http
            && self.template("/boot/ready/http", url).is_some()
            && !url.starts_with("http://")
        {
            self.problem(
                "/boot/ready/http",
                format!("{url:?} is no http:// address (TLS is not spoken here)"),
            );
        }
        if let Some(command) = &ready.exec {
            self.command("/boot/ready/exec", command);
        }
        if let Some(text) = &ready.log {
            self.template("/boot/ready/log", text);
            if text.is_empty() || text.contains('\n') {
                self.problem("/boot/ready/log", "the text must lie within one line and not be empty");
            }
        }
        if ready.every.0.is_zero() {
            self.problem("/boot/ready/every", "the time between two tries cannot be nothing; write 200ms");
        }
        if ready.timeout.0.is_zero() {
            self.problem("/boot/ready/timeout", "a try needs some time; write 1s");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use executor_api::{
        BootSpec, GroupId, GroupPolicy, JoinSpec, NodeRole, NodeTemplate, ProviderName, RunId, UpdatePolicy,
    };
    use expect_test::expect;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn problems(shape: Value, settings: Value) -> String {
        let group = RunNodeGroupSpec {
            run_id: RunId::new("demo", "u").unwrap(),
            group_id: GroupId::new("n").unwrap(),
            count: 3,
            template: Arc::new(NodeTemplate {
                role: NodeRole::default(),
                provider: ProviderName::new("process").unwrap(),
                shape,
                boot: BootSpec { via: None, settings },
                join: JoinSpec::default(),
            }),
            policy: GroupPolicy::default(),
            update: UpdatePolicy::default(),
        };
        let found = [super::shape(&group, &(20_000..=20_004)), boot(&group, Path::new("/bin/sh"))];
        let lines = found.into_iter().filter_map(Result::err).flatten();
        let lines: Vec<String> = lines.map(|p| format!("{}: {}", p.pointer, p.message)).collect();
        lines.join("\n")
    }

    #[test]
    fn a_sound_group_has_no_problem() {
        let found = problems(
            json!({ "ports": ["http"], "data": "keep" }),
            json!({
                "command": ["{self}", "--port", "{port.http}"],
                "env": { "PEERS": "{peers:{host}:{port}}" },
                "files": { "conf/a": "{{x}}" },
                "ready": { "http": "http://{host}:{port}/healthz" },
            }),
        );
        assert_eq!(found, "");
    }

    #[test]
    fn everything_wrong_is_named_at_once_and_at_its_place() {
        let found = problems(
            json!({ "ports": ["http", "http", "A B"] }),
            json!({
                "command": ["no-such-program-here", "{prot}", "{port.raft}"],
                "env": { "RECONCILER_NODE": "x", "A": { "from_env": "RECONCILER_TEST_UNSET" } },
                "files": { "../x": "" },
                "ready": { "tcp": "localhost", "http": "https://x/", "every": "0s" },
                "log": { "max_bytes": 0 },
            }),
        );
        expect![[r#"
            /shape/ports/1: the port "http" is named twice; remove one
            /shape/ports/2: "A B" is no port name; use up to 40 lowercase letters, digits, '-' and '_'
            /shape/ports: 3 nodes with 3 ports each need 9 ports, and the range 20000-20004 has 5; lower the count
            /boot/command/0: no program named "no-such-program-here" is in PATH; install it, or write its absolute path
            /boot/command/1: unknown placeholder {prot}; known are {self}, {port.NAME}, {host}, {node}, {index}, {group}, {run}, {attempt}, {dir}, {data}, {count}, {peers:ITEM} and {others:ITEM}; a brace itself is written twice
            /boot/command/2: there is no port "raft"; shape.ports names ["http", "http", "A B"]
            /boot/env/A: environment variable RECONCILER_TEST_UNSET is not set to valid text; set it in the driving process
            /boot/env/RECONCILER_NODE: RECONCILER_NODE is set by the reconciler; choose another name
            /boot/files/..~1x: "../x" must be a relative path without '..'
            /boot/ready: exactly one of tcp, http, exec and log is needed
            /boot/ready/tcp: "localhost" has no port; write HOST:PORT, as in {host}:{port}
            /boot/ready/http: "https://x/" is no http:// address (TLS is not spoken here)
            /boot/ready/every: the time between two tries cannot be nothing; write 200ms
            /boot/log/max_bytes: at least one byte of output must fit; write 1048576 or more"#]]
        .assert_eq(&found);
    }

    #[test]
    fn a_group_without_boot_settings_is_told_what_it_needs() {
        assert_eq!(
            problems(Value::Null, Value::Null),
            "/boot: a process node needs `command: [PROGRAM, ARGUMENTS...]`"
        );
    }
}
