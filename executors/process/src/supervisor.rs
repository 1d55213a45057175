//! The supervisor of one node: parent and sub-reaper of its program, in a session of its own, so that the
//! node outlives the driver. It writes the program's output and end into the node directory and answers on a
//! socket there. It ends when the program and all of its descendants have.
//!
//! A driver starts it as `PROGRAM ARGS... detach DIR PROGRAM ARGS...`; that process starts the same program
//! again as `PROGRAM ARGS... serve DIR` and exits, so that the supervisor proper is nobody's child. Standard
//! input brings the launch order, secrets included, and standard output *is* the session lock: an open file
//! that stays locked for as long as the supervisor lives. A driver that dies before the order is complete
//! leaves a supervisor that reads half an order and exits without a trace.

mod output;
mod program;
mod reap;
mod socket;
mod state;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use socket::{Request, short_path};
pub(crate) use state::Status;

/// First word of the arguments: start the supervisor proper and exit.
pub(crate) const DETACH: &str = "detach";
/// First word of the arguments: be the supervisor.
const SERVE: &str = "serve";

/// What the supervisor is to run. Travels through a pipe only, for it holds secrets; deliberately not `Debug`.
#[derive(Serialize, Deserialize)]
pub(crate) struct Launch {
    /// The attempt's nonce, for the last search for processes.
    pub(crate) nonce: String,
    /// Absolute path of the program.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) args: Vec<String>,
    /// Its whole environment.
    pub(crate) env: Vec<(String, String)>,
    /// Its working directory.
    pub(crate) workdir: PathBuf,
    /// Size at which the log is rotated.
    pub(crate) max_bytes: u64,
    /// How many rotated files are kept.
    pub(crate) keep: u32,
    /// The text whose appearance in a line of the output is to be told.
    pub(crate) marker: Option<String>,
    /// Values to black out of the output.
    pub(crate) secrets: Vec<String>,
    /// Time between SIGTERM and SIGKILL when the program ends on its own and leaves others behind.
    pub(crate) grace: Duration,
}

/// Entry point: `args` are those that follow the supervisor command's own. Exits with 2 when it was called by
/// hand, with 1 when it could not do its work; what went wrong then stands on standard error.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let done = match args.split_first() {
        Some((mode, rest)) if mode == DETACH && rest.len() >= 2 => detach(rest),
        Some((mode, [dir])) if mode == SERVE => serve(&PathBuf::from(dir)),
        _ => {
            eprintln!("this is the supervisor of a node; it is started by the reconciler, not by hand");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("supervisor: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the supervisor proper and leaves it: it becomes a child of init.
fn detach(rest: &[OsString]) -> io::Result<()> {
    let (dir, command) = (&rest[0], &rest[1..]);
    // Standard input, output and error go on as they are.
    let _child =
        Command::new(&command[0]).args(&command[1..]).arg(SERVE).arg(dir).current_dir("/").spawn()?;
    Ok(())
}

fn serve(dir: &std::path::Path) -> io::Result<()> {
    // Both before anything is started: signals of the driver's terminal do not reach this session, and an
    // orphaned descendant becomes a child of this process rather than of init.
    rustix::process::setsid()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let Some(launch) = read_order(io::stdin().lock())? else { return Ok(()) };
    reap::supervise(dir, launch)
}

/// The order, if it came complete: its last byte is a line break.
fn read_order(mut from: impl io::Read) -> io::Result<Option<Launch>> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes)?;
    if bytes.last() != Some(&b'\n') {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&bytes)?))
}

/// A child that inherits nothing of the supervisor: not the lock on standard output, not the environment.
fn bare_command(program: &std::path::Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_an_order_is_no_order() {
        let launch = Launch {
            nonce: "n".into(),
            program: "/bin/true".into(),
            args: Vec::new(),
            env: Vec::new(),
            workdir: "/".into(),
            max_bytes: 1,
            keep: 0,
            marker: None,
            secrets: Vec::new(),
            grace: Duration::ZERO,
        };
        let mut text = serde_json::to_vec(&launch).unwrap();
        assert!(read_order(&text[..]).unwrap().is_none(), "the last byte is missing");
        assert!(read_order(&text[..10]).unwrap().is_none());
        assert!(read_order(&b""[..]).unwrap().is_none());
        text.push(b'\n');
        assert_eq!(read_order(&text[..]).unwrap().unwrap().program, PathBuf::from("/bin/true"));
    }
}
