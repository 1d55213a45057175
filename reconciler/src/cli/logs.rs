//! `reconciler logs NODE`: the output of a node of the process provider, straight from its files.

use executor_api::LogicalNodeId;

use super::args::{Global, node_id};
use super::failure::{Code, Failure};

/// `reconciler logs`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The node, such as web-1.
    #[arg(value_parser = node_id)]
    node: LogicalNodeId,
    /// Go on with what the node writes from now on, through its next attempts too.
    #[arg(short, long, conflicts_with = "previous")]
    follow: bool,
    /// The output of the attempt before this one.
    #[arg(long)]
    previous: bool,
}

#[cfg(not(feature = "process"))]
pub(super) async fn run(_: &Global, args: &Args) -> Result<Code, Failure> {
    Err(Failure::error(format!(
        "the output of {} is not kept here: the process provider is not built in",
        args.node
    )))
}

#[cfg(feature = "process")]
pub(super) use local::run;

#[cfg(feature = "process")]
mod local {
    use std::fs::File;
    use std::io::{self, Read};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::time::Duration;

    use executor_api::AttemptKey;
    use executor_process::log_files;

    use super::super::follow::Interrupt;
    use super::super::output::{print, remark};
    use super::{Args, Code, Failure, Global};
    use crate::run::dir::RunDir;
    use crate::run::state::Stored;
    use crate::run::status::unknown;

    pub(in super::super) async fn run(global: &Global, args: &Args) -> Result<Code, Failure> {
        let dir = global.dir()?;
        let key = attempt(&dir, args)?;
        let files = log_files(&dir.nodes(), &key);
        if args.previous {
            if !files.previous.exists() {
                return Err(Failure::error(format!("{} has no output of an earlier attempt", args.node)));
            }
            copy(&files.previous)?;
            return Ok(Code::Done);
        }
        for path in &files.rotated {
            copy(path)?;
        }
        if args.follow {
            return follow(&dir, args, key).await;
        }
        copy(&files.current)?;
        Ok(Code::Done)
    }

    /// The node's present attempt, as stored: one is never acted for before it is stored.
    fn attempt(dir: &RunDir, args: &Args) -> Result<AttemptKey, Failure> {
        let stored = Stored::expect(dir)?;
        let node = stored.image.state.nodes.get(&args.node).ok_or_else(|| unknown(&args.node))?;
        let provider = &node.record.desired.template.provider;
        if provider.as_str() != "process" {
            return Err(Failure::error(format!(
                "{} is a node of provider {provider}, which keeps no output on this machine",
                args.node
            )));
        }
        Ok(AttemptKey { run: stored.image.run, node: args.node.clone(), attempt: node.attempt })
    }

    /// Follows the current file through rotations and through attempts, until Ctrl-C or until the node is gone.
    async fn follow(dir: &RunDir, args: &Args, mut key: AttemptKey) -> Result<Code, Failure> {
        let mut interrupt = Interrupt::new()?;
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
                pour(file).map_err(|error| {
                    Failure::while_doing(format_args!("reading {}", current.display()), &error)
                })?;
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
            let Ok(now) = attempt(dir, args) else {
                remark(format!("{} is gone", args.node));
                return Ok(Code::Done);
            };
            if now != key {
                if let Some(file) = &mut open {
                    // The last words of the attempt that ended.
                    let _ = pour(file);
                }
                remark(format!("--- {} goes on as attempt {}", args.node, now.attempt));
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

    fn copy(path: &Path) -> Result<(), Failure> {
        let doing =
            |error: io::Error| Failure::while_doing(format_args!("reading {}", path.display()), &error);
        match File::open(path) {
            Ok(mut file) => pour(&mut file).map_err(doing),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(doing(error)),
        }
    }

    fn pour(file: &mut File) -> io::Result<()> {
        let mut part = [0; 16 * 1024];
        loop {
            match file.read(&mut part)? {
                0 => return Ok(()),
                count => print(&String::from_utf8_lossy(&part[..count]))
                    .map_err(|f| io::Error::other(f.message))?,
            }
        }
    }
}
