//! One try of a readiness probe, from the driver's side. Says why it failed; leaves nothing behind when it is
//! dropped at its timeout.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use executor_api::AttemptKey;
use executor_probe::probe::{HttpTarget, TcpTarget};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;
use tokio::time;

use crate::layout::{BootRecord, Check};
use crate::plan;
use crate::settings::EnvValue;

/// Tries once; the reason if the node is not ready. A log marker is the supervisor's to see: `marker_seen`.
pub(crate) async fn try_once(
    check: &Check,
    timeout: Duration,
    marker_seen: bool,
    key: &AttemptKey,
    boot: &BootRecord,
) -> Result<(), String> {
    let attempt = async {
        match check {
            Check::Tcp(address) => TcpTarget::parse(address)?.accepts().await,
            Check::Http(url) => HttpTarget::parse(url)?.answers(None).await,
            Check::Exec(command) => run(command, key, &boot.env, &boot.workdir).await,
            Check::Log(_) if marker_seen => Ok(()),
            Check::Log(text) => Err(format!("no line of the output holds {text:?} yet")),
        }
    };
    match time::timeout(timeout, attempt).await {
        Ok(result) => result,
        Err(_) => Err(format!("no answer within {timeout:?}")),
    }
}

/// What is tried, for an operator.
pub(crate) fn describe(check: &Check) -> String {
    match check {
        Check::Tcp(address) => format!("tcp {address}"),
        Check::Http(url) => url.clone(),
        Check::Exec(command) => format!("exec {}", command.first().map_or("", String::as_str)),
        Check::Log(text) => format!("log {text:?}"),
    }
}

async fn run(
    command: &[String],
    key: &AttemptKey,
    env: &BTreeMap<String, EnvValue>,
    workdir: &Path,
) -> Result<(), String> {
    let (name, args) = command.split_first().ok_or("there is no command to run")?;
    let program = plan::find_program(name).map_err(|error| error.to_string())?;
    let environment = plan::environment(key, env).map_err(|error| error.to_string())?;
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .envs(environment.entries)
        .current_dir(workdir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let group = Group(child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw));
    let status = child.wait().await;
    // Once it is reaped its id may be another's.
    std::mem::forget(group);
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name} ended with {status}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Kills the process group of a probe that is given up: its leader has not been reaped, so that the id is
/// still its own.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}
