//! From settings and reservations to what a supervisor is ordered to run: placeholders rendered, the program
//! found, the environment put together. Pure but for reading secrets and looking for the program.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use executor_api::spec::pointer_key;
use executor_api::{AttemptKey, SecretError};

use crate::layout::{BootRecord, Check, ProbeRecord};
use crate::marker;
use crate::settings::{EnvValue, ProcessBoot, ReadyProbe};
use crate::supervisor::Launch;
use crate::template::{Scope, Template, TemplateError};

/// Entries of the driver's environment that a program needs to be at home on its machine.
pub(crate) const PASSED_ON: [&str; 9] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Why a node cannot be started as it is declared. Names the place in the group.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    #[error("{pointer}: a text cannot be rendered")]
    Template { pointer: String, source: TemplateError },
    #[error("{pointer}: a secret cannot be read")]
    Secret { pointer: String, source: SecretError },
    #[error("{pointer}: {source}")]
    Program { pointer: String, source: ProgramError },
}

/// Why a program cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("no program named {0:?} is in PATH; install it, or write its absolute path")]
    NotInPath(String),
    #[error("there is no program {0:?}; install it, or correct the path")]
    Missing(String),
    #[error("{0:?} is not an executable file; correct the path or its mode")]
    NotExecutable(String),
    #[error("the relative path {0:?} depends on where it is run; write an absolute one or {{dir}}/{0}")]
    Relative(String),
    #[error("the program's name is empty; write one")]
    Empty,
}

/// Everything a start needs.
pub(crate) struct Plan {
    pub(crate) launch: Launch,
    pub(crate) boot: BootRecord,
    /// Files to write, by absolute path.
    pub(crate) files: Vec<(PathBuf, String)>,
}

/// Renders the settings for one attempt. Reads the secrets.
pub(crate) fn plan(boot: &ProcessBoot, key: &AttemptKey, scope: &Scope) -> Result<Plan, PlanError> {
    let render = |pointer: String, text: &str| {
        Template::parse(text)
            .and_then(|template| template.render(scope))
            .map_err(|source| PlanError::Template { pointer, source })
    };
    let mut command = Vec::new();
    for (place, word) in boot.command.iter().enumerate() {
        command.push(render(format!("/boot/command/{place}"), word)?);
    }
    let mut words = command.into_iter();
    let program = words.next().unwrap_or_default();
    let program = find_program(&program)
        .map_err(|source| PlanError::Program { pointer: "/boot/command/0".to_owned(), source })?;

    let mut rendered = BTreeMap::new();
    for (name, value) in &boot.env {
        let value = match value {
            EnvValue::Text(text) => EnvValue::Text(render(format!("/boot/env{}", pointer_key(name)), text)?),
            EnvValue::Secret(reference) => EnvValue::Secret(reference.clone()),
        };
        rendered.insert(name.clone(), value);
    }
    let environment = environment(key, &rendered)?;

    let mut files = Vec::new();
    for (path, content) in &boot.files {
        files.push((
            Path::new(&scope.dir).join(path),
            render(format!("/boot/files{}", pointer_key(path)), content)?,
        ));
    }
    let workdir = match &boot.workdir {
        Some(text) => Path::new(&scope.dir).join(render("/boot/workdir".to_owned(), text)?),
        None => PathBuf::from(&scope.dir),
    };
    let probe = boot.ready.as_ref().map(|ready| render_probe(ready, render)).transpose()?.flatten();
    let marker = match &probe {
        Some(ProbeRecord { check: Check::Log(text), .. }) => Some(text.clone()),
        Some(_) | None => None,
    };
    Ok(Plan {
        launch: Launch {
            nonce: marker::nonce(key),
            program,
            args: words.collect(),
            env: environment.entries,
            workdir: workdir.clone(),
            max_bytes: boot.log.max_bytes,
            keep: boot.log.keep,
            marker,
            secrets: environment.secrets,
            grace: boot.stop.grace.0,
        },
        boot: BootRecord { probe, env: rendered, workdir, grace: boot.stop.grace.0 },
        files,
    })
}

fn render_probe(
    ready: &ReadyProbe,
    render: impl Fn(String, &str) -> Result<String, PlanError>,
) -> Result<Option<ProbeRecord>, PlanError> {
    let at = |kind: &str| format!("/boot/ready/{kind}");
    let check = if let Some(address) = &ready.tcp {
        Check::Tcp(render(at("tcp"), address)?)
    } else if let Some(url) = &ready.http {
        Check::Http(render(at("http"), url)?)
    } else if let Some(command) = &ready.exec {
        let words = command.iter().enumerate();
        Check::Exec(words.map(|(i, word)| render(at(&format!("exec/{i}")), word)).collect::<Result<_, _>>()?)
    } else if let Some(text) = &ready.log {
        Check::Log(render(at("log"), text)?)
    } else {
        // Refused by validation.
        return Ok(None);
    };
    Ok(Some(ProbeRecord { check, every: ready.every.0, timeout: ready.timeout.0 }))
}

/// The environment of a process of the node. Holds secrets; deliberately not `Debug`.
pub(crate) struct Environment {
    /// All of it.
    pub(crate) entries: Vec<(String, String)>,
    /// The secret values in it.
    pub(crate) secrets: Vec<String>,
}

/// The whole environment of a process of the node. Reads the secrets.
pub(crate) fn environment(
    key: &AttemptKey,
    declared: &BTreeMap<String, EnvValue>,
) -> Result<Environment, PlanError> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for name in PASSED_ON {
        if let Ok(value) = env::var(name) {
            all.insert(name.to_owned(), value);
        }
    }
    let mut secrets = BTreeSet::new();
    for (name, value) in declared {
        let value = match value {
            EnvValue::Text(text) => text.clone(),
            EnvValue::Secret(reference) => {
                let secret = reference.resolve().map_err(|source| PlanError::Secret {
                    pointer: format!("/boot/env{}", pointer_key(name)),
                    source,
                })?;
                secrets.insert(secret.expose().to_owned());
                secret.expose().to_owned()
            }
        };
        all.insert(name.clone(), value);
    }
    all.extend(marker::environment(key).map(|(name, value)| (name.to_owned(), value)));
    Ok(Environment { entries: all.into_iter().collect(), secrets: secrets.into_iter().collect() })
}

/// The absolute path of a program: as it stands, or from the driver's PATH.
pub(crate) fn find_program(name: &str) -> Result<PathBuf, ProgramError> {
    find_program_in(name, env::var_os("PATH").as_deref())
}

fn find_program_in(name: &str, path: Option<&OsStr>) -> Result<PathBuf, ProgramError> {
    if name.is_empty() {
        return Err(ProgramError::Empty);
    }
    let program = Path::new(name);
    if program.is_absolute() {
        return match program.metadata() {
            Err(_) => Err(ProgramError::Missing(name.to_owned())),
            Ok(_) if is_executable(program) => Ok(program.to_owned()),
            Ok(_) => Err(ProgramError::NotExecutable(name.to_owned())),
        };
    }
    if name.contains('/') {
        return Err(ProgramError::Relative(name.to_owned()));
    }
    path.into_iter()
        .flat_map(env::split_paths)
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_absolute() && is_executable(candidate))
        .ok_or_else(|| ProgramError::NotInPath(name.to_owned()))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// Whether a path stays below the directory that it is relative to.
pub(crate) fn is_inner_path(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_or_refused_with_what_to_do() {
        let find = |name: &str| find_program_in(name, Some(OsStr::new("/nowhere:/usr/bin:/bin")));
        assert!(find("sh").unwrap().ends_with("sh"));
        assert_eq!(find("no-such-program"), Err(ProgramError::NotInPath("no-such-program".into())));
        assert_eq!(find("/no/such"), Err(ProgramError::Missing("/no/such".into())));
        assert_eq!(find("/etc/passwd"), Err(ProgramError::NotExecutable("/etc/passwd".into())));
        assert_eq!(find("bin/x"), Err(ProgramError::Relative("bin/x".into())));
        assert_eq!(find(""), Err(ProgramError::Empty));
    }

    #[test]
    fn files_stay_within_the_node() {
        assert!(is_inner_path("conf/a.toml"));
        for bad in ["", "/etc/passwd", "../x", "a/../../x", "."] {
            assert!(!is_inner_path(bad), "{bad:?} was taken");
        }
    }
}
