//! `reconciler events NODE` or `--all`: what happened, across attempts and drivers, as the run's journal has it.

use executor_api::LogicalNodeId;
use reconciler_driver::journal::read_events;
use serde::Serialize;

use super::args::{Format, Global, node_id};
use super::failure::{Code, Failure};
use super::output::document;
use super::view::rfc3339;
use crate::run::status;

/// `reconciler events`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The node, such as web-1.
    #[arg(value_parser = node_id, required_unless_present = "all")]
    node: Option<LogicalNodeId>,
    /// Of all nodes, and of the run itself.
    #[arg(long, conflicts_with = "node")]
    all: bool,
    /// How to write it.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// One event, as it is written for programs.
#[derive(Debug, Serialize)]
struct View {
    at: String,
    node: Option<String>,
    attempt: Option<u64>,
    what: String,
    text: String,
}

pub(super) fn run(global: &Global, args: &Args) -> Result<Code, Failure> {
    let dir = global.dir()?;
    let mut events = read_events(dir.path()).map_err(|error| {
        Failure::while_doing(format_args!("reading the journal in {}", dir.path().display()), &error)
    })?;
    if !args.all {
        events.retain(|event| event.node == args.node);
    }
    if events.is_empty() {
        let whose = args.node.as_ref().map_or_else(|| "the run".to_owned(), ToString::to_string);
        return Err(Failure::no_state(format!(
            "the journal in {} has nothing of {whose}; it begins with the first apply or run",
            dir.path().display()
        )));
    }
    let views: Vec<_> = events
        .iter()
        .map(|event| View {
            at: rfc3339(event.at),
            node: event.node.as_ref().map(ToString::to_string),
            attempt: event.attempt.map(|attempt| attempt.0),
            what: event.what.name().to_owned(),
            text: event.what.to_string(),
        })
        .collect();
    let lines = || events.iter().map(|event| status::event(event) + "\n").collect();
    document(args.output, &views, lines)?;
    Ok(Code::Done)
}
