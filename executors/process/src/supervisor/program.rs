//! Starting the program: its own process group, its declared environment and nothing else, its output in one
//! pipe.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use super::{Launch, bare_command};
use crate::processes::{self, ProcessId};

/// Starts the program; its process and the pipe that both of its outputs write to.
pub(crate) fn start(launch: &Launch) -> io::Result<(ProcessId, io::PipeReader)> {
    let (reader, writer) = io::pipe()?;
    let mut command = bare_command(&launch.program);
    command
        .args(&launch.args)
        .envs(launch.env.iter().map(|(key, value)| (key, value)))
        .current_dir(&launch.workdir)
        .process_group(0)
        .stdout(Stdio::from(writer.try_clone()?))
        .stderr(Stdio::from(writer));
    let child = command.spawn()?;
    // The command holds the writing ends: the pipe ends with the program's last process, not with this one.
    drop(command);
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    // Nobody has waited for it yet, so that its entry is there even if it has ended already.
    let id = processes::look(pid).map_or(ProcessId { pid, start: 0 }, |info| info.id);
    Ok((id, reader))
}
