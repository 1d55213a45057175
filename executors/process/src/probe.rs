//! One try of a readiness probe, from the driver's side. Says why it failed; leaves nothing behind when it is
//! dropped at its timeout.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use executor_api::AttemptKey;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time;

use crate::layout::{BootRecord, Check};
use crate::plan;
use crate::settings::EnvValue;

/// How much of an answer is read to find its status.
const STATUS_LINE_LIMIT: u64 = 1024;

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
            Check::Tcp(address) => connect(address).await.map(drop),
            Check::Http(url) => get(url).await,
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

async fn connect(address: &str) -> Result<TcpStream, String> {
    TcpStream::connect(address).await.map_err(|error| error.to_string())
}

/// A GET of which only the status matters.
async fn get(url: &str) -> Result<(), String> {
    let rest = url.strip_prefix("http://").ok_or_else(|| format!("{url:?} is no http:// address"))?;
    let (authority, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let has_port =
        authority.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    let address = if has_port { authority.to_owned() } else { format!("{authority}:80") };
    let mut stream = connect(&address).await?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: reconciler-probe\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut head = Vec::new();
    let mut answer = stream.take(STATUS_LINE_LIMIT);
    while !head.contains(&b'\n') {
        if answer.read_buf(&mut head).await.map_err(|error| error.to_string())? == 0 {
            break;
        }
    }
    match status_of(&head) {
        Some(200..400) => Ok(()),
        Some(status) => Err(format!("answered with status {status}")),
        None => Err("answered with something that is not HTTP".to_owned()),
    }
}

/// The status in `HTTP/1.1 200 OK`.
fn status_of(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let (version, rest) = line.split_once(' ')?;
    let status = rest.get(..3)?;
    version.starts_with("HTTP/1.").then(|| status.parse().ok()).flatten()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_is_read_or_refused() {
        assert_eq!(status_of(b"HTTP/1.1 204 No Content\r\n"), Some(204));
        assert_eq!(status_of(b"HTTP/1.0 503"), Some(503));
        for bad in [&b""[..], b"SSH-2.0-x\r\n", b"HTTP/1.1 2", b"HTTP/1.1 abc", b"HTTP/2 200"] {
            assert_eq!(status_of(bad), None);
        }
    }
}
