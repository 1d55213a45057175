//! `reconciler run`: drive, and reread the file whenever it changes. An edit that is wrong changes nothing: the
//! last good shape stays in force, loudly.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reconciler::file;

use super::args::Global;
use super::failure::{Code, Failure};
use super::follow::{Interrupt, Progress};
use super::output::remark;
use crate::run::adopt::adopt;
use crate::run::live::{Aim, Live};

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// `reconciler run`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Hand the run over to this file, if it was made from another one.
    #[arg(long)]
    rebind: bool,
    /// The run's state was lost or is too old: make it anew from its nodes of this uid, for this file.
    #[arg(long, value_name = "UID")]
    adopt: Option<String>,
    /// Keep a tape of every decision, for `replay`.
    #[arg(long)]
    journal: bool,
    /// Show no progress.
    #[arg(short, long)]
    quiet: bool,
}

pub(super) async fn run(global: &Global, args: &Args) -> Result<Code, Failure> {
    let loaded = file::load(global.file())?;
    let dir = global.dir_of(&loaded.declared.run)?;
    let path = global.file_path()?;
    let mut watcher = FileWatcher::of(path.clone(), loaded.text());
    let mut interrupt = Interrupt::new()?;
    if let Some(uid) = &args.adopt {
        let Some(adopted) = interrupt.unless(adopt(&dir, &loaded, &path, uid)).await else {
            remark(format!("nothing was adopted; what is stored of run {} is as it was", dir.run()));
            return Ok(Code::Pending);
        };
        remark(adopted?);
    }
    let aim = Aim::File { loaded: Box::new(loaded), path, rebind: args.rebind };
    let (live, notices) = Live::open_taped(&dir, aim, args.journal).await?;
    notices.iter().for_each(remark);
    let mut statuses = live.watch();
    let mut progress = Progress::new(args.quiet);
    let stopped = live.stopped();
    let asked = live.asked_to_stop();
    tokio::pin!(stopped, asked);
    let mut look = tokio::time::interval(LOOK_EVERY);
    let ended = loop {
        tokio::select! {
            failure = &mut stopped => break Err(failure),
            () = interrupt.wait() => {
                remark(format!("stopped driving run {}; its nodes are left running", dir.run()));
                break Ok(Code::Done);
            }
            () = &mut asked => {
                remark(format!("stopped driving run {}: another command asked for it", dir.run()));
                break Ok(Code::Done);
            }
            Some(status) = statuses.recv() => progress.show(&status)?,
            _ = look.tick() => {
                if let Some(path) = live.file().await
                    && let Some(change) = watcher.look(path)
                {
                    take_over(&live, &watcher.path, change).await;
                    progress.leave_standing();
                }
            }
        }
    };
    live.close().await?;
    ended
}

async fn take_over(live: &Arc<Live>, path: &Path, change: Result<String, String>) {
    let submitted = match change {
        Ok(text) => live.submit(path, text, false).await,
        Err(error) => Err(Failure::error(format!("cannot read {}: {error}", path.display()))),
    };
    let generation = live.generation().await;
    match submitted {
        Ok(notices) => {
            notices.iter().for_each(remark);
            remark(format!("{} was read again; generation {generation} is in force", path.display()));
        }
        Err(failure) => {
            remark(format!("error: {}", failure.message));
            remark(format!("the last good shape (generation {generation}) stays in force"));
        }
    }
}

/// Notices when a file's content has changed and rests: an editor that writes in pieces is never caught halfway,
/// unless it pauses in between.
#[derive(Debug)]
struct FileWatcher {
    path: PathBuf,
    taken: Result<String, String>,
    seen: Result<String, String>,
}

impl FileWatcher {
    fn of(path: PathBuf, text: &str) -> Self {
        Self { path, taken: Ok(text.to_owned()), seen: Ok(text.to_owned()) }
    }

    /// The new content, once two looks in a row found the same.
    fn look(&mut self, path: PathBuf) -> Option<Result<String, String>> {
        let found = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        let rests = found == self.seen && path == self.path;
        if path != self.path {
            // Another file was handed over: its text is in force already.
            (self.path, self.taken) = (path, found.clone());
        }
        self.seen = found;
        if !rests || self.seen == self.taken {
            return None;
        }
        self.taken = self.seen.clone();
        Some(self.taken.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_taken_once_it_rests_and_only_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cluster.yaml");
        std::fs::write(&path, "a").unwrap();
        let mut watcher = FileWatcher::of(path.clone(), "a");
        let mut look = || watcher.look(path.clone());
        assert_eq!(look(), None);
        std::fs::write(&path, "").unwrap();
        assert_eq!(look(), None, "halfway through being written");
        std::fs::write(&path, "b").unwrap();
        assert_eq!(look(), None);
        assert_eq!(look(), Some(Ok("b".to_owned())));
        assert_eq!(look(), None);
        std::fs::remove_file(&path).unwrap();
        look();
        assert!(matches!(look(), Some(Err(_))), "a file that is gone is said once");
        assert_eq!(look(), None);
    }
}
