//! `reconciler replay`: let this program decide every pass of a tape again (`run --journal` writes one), and show
//! the first difference. Changes nothing; reads the tape and reaches no provider.

use std::path::PathBuf;
use std::sync::Arc;

use reconciler::providers;
use reconciler_driver::journal::{read_tape, tape_path};
use reconciler_driver::{Rules, TokioTimer, replay};

use super::args::Global;
use super::failure::{Code, Failure};
use super::output::line;
use super::view::rfc3339;
use crate::run::live::site;

/// `reconciler replay`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The tape [default: that of the run's latest driver].
    #[arg(value_name = "TAPE")]
    tape: Option<PathBuf>,
}

pub(super) fn run(global: &Global, args: &Args) -> Result<Code, Failure> {
    let dir = global.dir()?;
    let path = args.tape.clone().unwrap_or_else(|| tape_path(dir.path()));
    let tape = read_tape(&path)
        .map_err(|error| Failure::while_doing(format_args!("reading the tape {}", path.display()), &error))?;
    if tape.is_empty() {
        let tape = path.display();
        return Err(Failure::no_state(format!(
            "{tape} holds no tape; `reconciler run --journal` writes one"
        )));
    }
    let table = providers::executors(&site(&dir, Arc::new(TokioTimer::new()))?);
    let playback = replay(tape, &table, &Rules::default())
        .map_err(|error| Failure::while_doing(format_args!("playing {}", path.display()), &error))?;
    let Some(difference) = playback.difference else {
        if playback.passes == 0 {
            return Err(Failure::error(format!(
                "{} holds no pass: nothing was decided again",
                path.display()
            )));
        }
        line(format!("{} passes were decided as they were then", playback.passes))?;
        return Ok(Code::Done);
    };
    let nothing = || "nothing".to_owned();
    line(format!(
        "pass {} at {} differs; the {} before it were decided as they were then\n  then: {}\n  now:  {}",
        difference.pass,
        rfc3339(difference.at),
        playback.passes,
        difference.taped.unwrap_or_else(nothing),
        difference.played.unwrap_or_else(nothing)
    ))?;
    Err(Failure::error("a decision differs from the tape"))
}
