//! The output of a node of the process provider, straight from its files.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use executor_api::{AttemptKey, LogicalNodeId};
use executor_process::log_files;

use super::super::follow::Interrupt;
use super::super::output::remark;
use super::{Args, Attempts, Code, Failure, goes_on, tell};
use crate::run::dir::RunDir;

pub(super) async fn run(dir: &RunDir, args: &Args, key: AttemptKey) -> Result<Code, Failure> {
    let files = log_files(&dir.nodes(), &key);
    if args.previous {
        if !files.previous.exists() {
            return Err(Failure::error(format!("{} has no output of an earlier attempt", args.node)));
        }
        copy(&files.previous)?;
        return Ok(Code::Done);
    }
    for path in &files.rotated {
        if !copy(path)? {
            return Ok(Code::Done);
        }
    }
    if args.follow {
        return follow(dir, &args.node, key).await;
    }
    copy(&files.current)?;
    Ok(Code::Done)
}

/// Follows the current file through rotations and through attempts, until Ctrl-C or until the node is gone.
async fn follow(dir: &RunDir, node: &LogicalNodeId, mut key: AttemptKey) -> Result<Code, Failure> {
    let mut interrupt = Interrupt::new()?;
    let mut attempts = Attempts::new(dir, node, key.clone());
    let mut open: Option<File> = None;
    loop {
        let current = log_files(&dir.nodes(), &key).current;
        if open.is_none() {
            open = File::open(&current).ok();
        }
        let mut ended = false;
        if let Some(file) = &mut open {
            // Looked at before reading: what is written into a file that was renamed meanwhile is still read.
            ended = !is_same(file, &current);
            if !pour(file, &current)? {
                return Ok(Code::Done);
            }
        }
        if ended {
            open = None;
            if current.exists() {
                continue;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
            () = interrupt.wait() => return Ok(Code::Done),
        }
        let Some(now) = attempts.look()? else {
            remark(format!("{node} is gone"));
            return Ok(Code::Done);
        };
        if now != key {
            if let Some(file) = &mut open {
                // The last words of the attempt that ended.
                let _ = pour(file, &current);
            }
            remark(goes_on(node, &now));
            (key, open) = (now, None);
        }
    }
}

fn is_same(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(ours), Ok(there)) => ours.ino() == there.ino() && ours.dev() == there.dev(),
        _ => false,
    }
}

/// Shows a file, if it is there; whether anybody still reads.
fn copy(path: &Path) -> Result<bool, Failure> {
    match File::open(path) {
        Ok(mut file) => pour(&mut file, path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(unreadable(path, &error)),
    }
}

/// Shows what is left of a file; whether anybody still reads.
fn pour(file: &mut File, path: &Path) -> Result<bool, Failure> {
    let mut part = [0; 16 * 1024];
    loop {
        match file.read(&mut part).map_err(|error| unreadable(path, &error))? {
            0 => return Ok(true),
            count if !tell(&part[..count])? => return Ok(false),
            _ => {}
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::while_doing(format_args!("reading {}", path.display()), error)
}
