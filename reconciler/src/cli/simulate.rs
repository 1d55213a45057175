//! `reconciler simulate`: plays seeded schedules of the driver, with every fault there is, and tells the first one in
//! which something that must never happen did. Needs no run and no cluster file, and touches nothing.

use std::process::ExitCode;

use conformance::simulate::{Options, Summary, explain, run_many, tell};

use super::failure::{Code, Failure};
use super::output::{line, remark};

/// Smaller batches may miss a rare disturbance without that proving anything.
const ENOUGH: u64 = 20_000;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// How many schedules.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first seed; alone, only this one.
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Steps in which things go wrong, in each schedule.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Tell everything that happens in each schedule, up to the first in which something must not have.
    #[arg(long)]
    story: bool,
}

/// Runs outside of any runtime: time is virtual here.
pub(crate) fn run(args: &Args) -> ExitCode {
    match try_run(args) {
        Ok(code) => code.into(),
        Err(failure) => {
            remark(format!("error: {}", failure.message));
            failure.code.into()
        }
    }
}

fn try_run(args: &Args) -> Result<Code, Failure> {
    let options = Options { steps: args.steps, ..Options::default() };
    let first = args.seed.unwrap_or(1);
    let alone = if args.seed.is_some() || args.story { 1 } else { 1000 };
    let count = args.seeds.unwrap_or(alone);
    if args.story {
        return stories(first, count, &options);
    }
    let summary = run_many(first, count, &options);
    line(summary.to_string())?;
    if let Some(failure) = &summary.failure {
        line(failure.to_string())?;
        return Ok(Code::Error);
    }
    complete(&summary)
}

/// A batch that is large enough must have met everything; of a smaller one it is said what it did not.
fn complete(summary: &Summary) -> Result<Code, Failure> {
    let missed = summary.never_happened();
    if missed.is_empty() {
        return Ok(Code::Done);
    }
    let said = format!("these never happened, so nothing is proved about them: {}", missed.join(", "));
    if summary.schedules >= ENOUGH {
        return Err(Failure::error(said));
    }
    remark(format!("{said}; {ENOUGH} schedules meet everything"));
    Ok(Code::Done)
}

fn stories(first: u64, count: u64, options: &Options) -> Result<Code, Failure> {
    for seed in first..first.saturating_add(count) {
        let code = story(seed, options)?;
        if code != Code::Done {
            return Ok(code);
        }
    }
    Ok(Code::Done)
}

fn story(seed: u64, options: &Options) -> Result<Code, Failure> {
    let (plan, story, violation) = tell(seed, options);
    line(plan.to_string())?;
    for told in story {
        line(told)?;
    }
    if violation.is_none() {
        line("-> nothing that must not be")?;
        return Ok(Code::Done);
    }
    if let Some(failure) = explain(seed, options) {
        line(failure.to_string())?;
    }
    Ok(Code::Error)
}
