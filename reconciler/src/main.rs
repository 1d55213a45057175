//! The `reconciler` program: arguments in, exit code out. Two hidden subcommands come first, because they are
//! other programs in the same file: a node's supervisor, and the demo node.

mod cli;
mod run;

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "process")]
    {
        let mut args = std::env::args_os().skip(1);
        if args.next().is_some_and(|first| first == reconciler::providers::SUPERVISE) {
            return executor_process::supervisor::main(args);
        }
    }
    cli::main(cli::Cli::read())
}
