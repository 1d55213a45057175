//! `reconciler maintenance`: gated plans from the command line. One file per thing to do: [`file`] reads the plan,
//! [`site`] finds its state and its hosts, [`drive`] carries it out, [`arbiter`] has the run on its hosts stand back,
//! [`seen`], [`show`] and [`timeline`] print, [`plain`] writes for programs, [`ask`] speaks to the process that drives.
//!
//! Off by default: nothing runs unless the plan says `approved: true` *and* the command line says `--approve`.

mod arbiter;
mod ask;
mod drive;
mod file;
mod plain;
mod seen;
mod show;
mod site;
mod timeline;

use std::path::PathBuf;

use reconciler_core::maintenance::Answer;

use super::args::{Format, Global};
use super::failure::{Code, Failure};
use super::output::{line, to_json};

/// `reconciler maintenance`
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Command {
    /// Check a plan and rehearse it to its end on a copy of its hosts; change nothing.
    Plan(PlanArgs),
    /// Carry a plan out. Needs `approved: true` in the plan and `--approve` here.
    Run(RunArgs),
    /// Show how far a plan is, what it asks, and what happened.
    Status(StatusArgs),
    /// Answer the question of a frozen plan.
    Respond(RespondArgs),
    /// Ask a running plan to go back to where it began.
    Abort(AbortArgs),
    /// Print the JSON Schema of the plan file, for editors.
    Schema,
}

/// `reconciler maintenance plan`
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PlanArgs {
    /// The plan's file.
    plan: PathBuf,
    /// Write the timeline of the rehearsal as a picture, too.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// How the result is written.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// `reconciler maintenance run`
#[derive(Debug, Clone, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct RunArgs {
    /// The plan's file.
    plan: PathBuf,
    /// Let it run. Counts only together with `approved: true` in the plan.
    #[arg(long)]
    approve: bool,
    /// Only look: show what each gate sees and what would come next; change nothing.
    #[arg(long, conflicts_with = "approve")]
    observe: bool,
    /// Begin anew where the plan is over, or where its simulated hosts ended with their process.
    #[arg(long)]
    again: bool,
    /// Do not wait for the clock: simulated hosts live as fast as they can. A frozen plan ends the command.
    #[arg(long)]
    fast: bool,
    /// Who lets it run.
    #[arg(long, env = "USER", default_value = "somebody")]
    who: String,
    /// How steps are written: lines for people, one JSON value a line, or one YAML document each.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// `reconciler maintenance status`
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StatusArgs {
    /// The plan's file.
    plan: PathBuf,
    /// Show everything that happened.
    #[arg(long)]
    timeline: bool,
    /// Write everything that happened as a picture.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Show the phases as they come, until the plan is over or asks.
    #[arg(short, long, conflicts_with_all = ["svg", "timeline", "output"])]
    watch: bool,
    /// How the result is written.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// `reconciler maintenance respond`
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RespondArgs {
    /// The plan's file.
    plan: PathBuf,
    /// The question's fingerprint, or at least its first eight digits.
    #[arg(long, value_name = "FINGERPRINT")]
    question: String,
    /// One of the answers that the question offers.
    #[arg(long, value_parser = answer)]
    answer: Answer,
    /// Who answers.
    #[arg(long, env = "USER", default_value = "")]
    who: String,
    /// How the result is written.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// `reconciler maintenance abort`
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AbortArgs {
    /// The plan's file.
    plan: PathBuf,
    /// Who asks.
    #[arg(long, env = "USER", default_value = "somebody")]
    who: String,
    /// Give up a plan that nobody drives any more and whose simulated hosts are gone: what is stored of it is put
    /// aside, and the run on its hosts takes its nodes back.
    #[arg(long)]
    give_up: bool,
    /// How the result is written.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(crate) async fn run(global: &Global, args: Args) -> Result<Code, Failure> {
    match args.command {
        Command::Plan(args) => drive::rehearse(&args),
        Command::Run(args) => drive::run(global, args).await,
        Command::Status(args) => show::status(global, &args).await,
        Command::Respond(args) => ask::respond(global, args).await,
        Command::Abort(args) => ask::abort(global, args).await,
        Command::Schema => {
            line(to_json(&file::schema())?)?;
            Ok(Code::Done)
        }
    }
}

fn answer(text: &str) -> Result<Answer, String> {
    let known = [Answer::LookAgain, Answer::RetryStep, Answer::RollBack, Answer::HandOver];
    known.into_iter().find(|answer| answer.as_str() == text).ok_or_else(|| {
        let known: Vec<_> = known.iter().map(|answer| answer.as_str()).collect();
        format!("answers are {}", known.join(", "))
    })
}
