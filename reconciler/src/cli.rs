//! The command line: one command per file, and what they share.
//!
//! [`args`], [`failure`], [`output`] and [`view`] are shared; [`follow`] waits for convergence.

pub(crate) mod args;
pub(crate) mod failure;
pub(crate) mod follow;
pub(crate) mod output;
pub(crate) mod view;

#[cfg(feature = "agent")]
mod agent;
mod apply;
#[cfg(feature = "conformance")]
mod conformance;
mod demo_node;
mod destroy;
mod drive;
mod events;
mod explain;
mod holds;
mod logs;
#[cfg(feature = "host-fake")]
mod maintenance;
mod orphans;
mod plan;
mod replace;
mod replay;
mod run;
mod scale;
mod schema;
#[cfg(feature = "conformance")]
mod simulate;
mod status;
mod validate;
mod watch;

use std::process::ExitCode;

use args::{Global, With};
use clap::{CommandFactory, FromArgMatches};
use failure::{Code, EXIT_CODES, Failure};

/// Declare a cluster, get it, keep it.
#[derive(Debug, clap::Parser)]
#[command(name = "reconciler", version, about, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    before: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check the cluster file; change nothing.
    Validate(With<validate::Args>),
    /// Show what `apply` would do, by rehearsing it; change nothing. Exits with 2 if there is something to do.
    Plan(With<plan::Args>),
    /// Make the cluster as the file says, then exit and leave the nodes running.
    #[command(visible_alias = "up")]
    Apply(With<apply::Args>),
    /// Make the cluster as the file says and keep it so; reread the file whenever it changes.
    Run(With<run::Args>),
    /// Show the nodes.
    Status(With<status::Args>),
    /// Show what happens, as it happens.
    Watch(With<watch::Args>),
    /// Say what a node does, why, and what it waits for.
    Explain(With<explain::Args>),
    /// Show what happened to a node, or to all of them, across attempts and drivers.
    Events(With<events::Args>),
    /// Show leases of this run that belong to no node any more; with --destroy, end them. Exits with 2 if some are left.
    Orphans(With<orphans::Args>),
    /// Decide every pass of a tape again (`run --journal` writes one), and show the first difference.
    Replay(With<replay::Args>),
    /// Show a node's output.
    Logs(With<logs::Args>),
    /// Give a group another count, until the file changes its own.
    Scale(With<scale::Args>),
    /// Replace a node by a fresh attempt.
    Replace(With<replace::Args>),
    /// Leave a node, or all of them, alone from now on.
    Pause(With<holds::PauseArgs>),
    /// Go on after `pause`.
    Resume(With<holds::ResumeArgs>),
    /// Go on with a node that the driver itself stopped because of something that must not happen.
    Release(With<holds::ReleaseArgs>),
    /// Remove every node, then the run's state.
    #[command(visible_alias = "down")]
    Destroy(With<destroy::Args>),
    /// Carry out a gated plan on hosts that exist already, one proved step at a time.
    #[cfg(feature = "host-fake")]
    Maintenance(With<maintenance::Args>),
    /// Serve on a node what `boot: { via: agent }` asks for there: start, look at and cancel sessions.
    #[cfg(feature = "agent")]
    Agent(With<agent::Args>),
    /// Print the JSON Schema of the cluster file, for editors.
    Schema,
    /// Put a provider to the test: run the suite that every executor passes.
    #[cfg(feature = "conformance")]
    Conformance(conformance::Args),
    /// Play seeded schedules of the driver with every fault there is; tell the first that breaks a rule.
    #[cfg(feature = "conformance")]
    Simulate(simulate::Args),
    #[command(hide = true)]
    DemoNode(demo_node::Args),
}

impl Cli {
    /// Reads this process's arguments; a mistake in them ends it.
    pub(crate) fn read() -> Self {
        // After `logs`, `-f` means "follow", as people expect.
        let command =
            Self::command().mut_subcommand("logs", |logs| logs.mut_arg("file", |file| file.short(None)));
        let read = command.try_get_matches().and_then(|matches| Self::from_arg_matches(&matches));
        read.unwrap_or_else(|error| {
            // Nothing to be done about an output that is gone.
            let _ = error.print();
            // Asked-for help is no mistake; a mistake is an error like any other, and 2 means something else here.
            std::process::exit(i32::from(error.use_stderr()))
        })
    }
}

/// Runs a command to its exit code.
pub(crate) fn main(cli: Cli) -> ExitCode {
    if let Command::DemoNode(args) = &cli.command {
        return demo_node::run(args);
    }
    #[cfg(feature = "conformance")]
    if let Command::Conformance(args) = &cli.command {
        return conformance::run(args);
    }
    #[cfg(feature = "conformance")]
    if let Command::Simulate(args) = &cli.command {
        return simulate::run(args);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(dispatch(cli));
            // A read of a terminal or a slow name lookup must not hold up the exit.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(Failure::while_doing("starting the runtime", &error)),
    };
    match ended {
        Ok(code) => code.into(),
        Err(failure) => {
            output::remark(format!("error: {}", failure.message));
            failure.code.into()
        }
    }
}

async fn dispatch(cli: Cli) -> Result<Code, Failure> {
    let before = &cli.before;
    match cli.command {
        Command::Validate(with) => validate::run(&with.global.settle(before), &with.args).await,
        Command::Plan(with) => plan::run(&with.global.settle(before), &with.args).await,
        Command::Apply(with) => apply::run(&with.global.settle(before), &with.args).await,
        Command::Run(with) => run::run(&with.global.settle(before), &with.args).await,
        Command::Status(with) => status::run(&with.global.settle(before), &with.args).await,
        Command::Watch(with) => watch::run(&with.global.settle(before), &with.args).await,
        Command::Explain(with) => explain::run(&with.global.settle(before), &with.args).await,
        Command::Events(with) => events::run(&with.global.settle(before), &with.args),
        Command::Orphans(with) => orphans::run(&with.global.settle(before), &with.args).await,
        Command::Replay(with) => replay::run(&with.global.settle(before), &with.args),
        Command::Logs(with) => logs::run(&with.global.settle(before), &with.args).await,
        Command::Scale(with) => scale::run(&with.global.settle(before), &with.args).await,
        Command::Replace(with) => replace::run(&with.global.settle(before), &with.args).await,
        Command::Pause(with) => holds::pause(&with.global.settle(before), with.args).await,
        Command::Resume(with) => holds::resume(&with.global.settle(before), with.args).await,
        Command::Release(with) => holds::release(&with.global.settle(before), with.args).await,
        Command::Destroy(with) => destroy::run(&with.global.settle(before), &with.args).await,
        #[cfg(feature = "host-fake")]
        Command::Maintenance(with) => maintenance::run(&with.global.settle(before), with.args).await,
        #[cfg(feature = "agent")]
        Command::Agent(with) => {
            with.global.settle(before);
            agent::run(&with.args).await
        }
        Command::Schema => schema::run(),
        #[cfg(feature = "conformance")]
        Command::Conformance(args) => Err(Failure::error(format!("runs outside of the runtime: {args:?}"))),
        #[cfg(feature = "conformance")]
        Command::Simulate(args) => Err(Failure::error(format!("runs outside of the runtime: {args:?}"))),
        Command::DemoNode(args) => Err(Failure::error(format!("not a command of its own: {args:?}"))),
    }
}

impl Global {
    /// The arguments of before and after the command together; diagnostics begin here, at their level.
    fn settle(self, before: &Self) -> Self {
        let global = self.or(before);
        log_to_stderr(global.verbose);
        global
    }
}

/// Diagnostics go to standard error: warnings by default, more with `-v`, anything with `RUST_LOG`.
fn log_to_stderr(verbose: u8) {
    use std::io::IsTerminal;
    use tracing_subscriber::EnvFilter;
    let default = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && !no_color)
        .init();
}
