//! The supervisor as a program of its own, for users of the library who have no binary to re-execute.

use std::process::ExitCode;

fn main() -> ExitCode {
    executor_process::supervisor::main(std::env::args_os().skip(1))
}
