//! The process executor passes the suite, on real processes in real time. What is skipped cannot happen on a
//! single machine; the harness lists it, and each skip says why.

use executor_process::SupervisorCommand;
use executor_process::conformance::ProcessHarness;

fn harness() -> ProcessHarness {
    ProcessHarness::new(SupervisorCommand {
        program: env!("CARGO_BIN_EXE_executor-process-supervisor").into(),
        args: Vec::new(),
    })
}

conformance::suite!(harness);
