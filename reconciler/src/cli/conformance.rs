//! `reconciler conformance PROVIDER`: runs the suite that every executor passes against a provider that is built in,
//! or that of gated maintenance against the simulated hosts, and prints a line per case. Needs no run and no cluster file; whatever a case makes is removed again.

use std::process::ExitCode;

use conformance::fake::FakeHarness;
#[cfg(feature = "host-fake")]
use conformance::hosts::{SimulatedHosts, run_host_suite_telling};
use conformance::{Report, UnknownCase, Verdict, run_suite_telling};
use serde::Serialize;

use super::args::Format;
use super::failure::{Code, Failure};
use super::output::{document, line, remark};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The provider by name.
    provider: String,
    /// Only this case, such as `adoption::a_new_instance_adopts_the_lease`, or only the cases of one promise, such as
    /// `adoption`.
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// How the result is written.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// The result as a document.
#[derive(Serialize)]
struct Summary<'a> {
    provider: &'a str,
    ok: usize,
    failed: usize,
    skipped: usize,
    cases: Vec<Line<'a>>,
}

/// One case in it.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

/// Runs outside of any runtime: each case brings its own.
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
    let mut lost = None;
    let report = suite(args, |name, verdict| {
        if args.output == Format::Table
            && let Err(failure) = line(verdict.line(name))
        {
            lost = Some(failure);
        }
    })?;
    if let Some(failure) = lost {
        return Err(failure);
    }
    document(args.output, &summary(&args.provider, &report), || report.sums() + "\n")?;
    Ok(if report.is_pass() { Code::Done } else { Code::Error })
}

/// Runs the suite on the provider's own harness.
fn suite(args: &Args, tell: impl FnMut(&'static str, &Verdict)) -> Result<Report, Failure> {
    let only = args.case.as_deref();
    let ran: Result<Report, UnknownCase> = match args.provider.as_str() {
        // The world in which everything that can go wrong does.
        "fake" => run_suite_telling(FakeHarness::hazy, only, tell),
        #[cfg(feature = "process")]
        "process" => {
            let program = std::env::current_exe().map_err(|error| {
                Failure::while_doing("finding this program, which supervises nodes", &error)
            })?;
            let args = vec![reconciler::providers::SUPERVISE.into()];
            let supervisor = executor_process::SupervisorCommand { program, args };
            let make = || executor_process::conformance::ProcessHarness::new(supervisor.clone());
            run_suite_telling(make, only, tell)
        }
        // Not nodes but hosts under maintenance: the other suite.
        #[cfg(feature = "host-fake")]
        "host-fake" => run_host_suite_telling(SimulatedHosts::new, only, tell),
        // Nobody's provider, but what an author starts from.
        "template" => run_suite_telling(executor_template::conformance::TemplateHarness::new, only, tell),
        #[cfg(feature = "ec2")]
        "ec2" => {
            // EC2 itself cannot be asked to lose an answer or to be late.
            executor_ec2::conformance::world::ready().map_err(|why| {
                Failure::error(format!(
                    "the suite runs against a test world of EC2 on loopback, which could not be started: {why}"
                ))
            })?;
            run_suite_telling(executor_ec2::conformance::Ec2Harness::new, only, tell)
        }
        "agent" | "ssh" => {
            let suite = if args.provider == "ssh" { "bootstrap-ssh" } else { "bootstrap-http" };
            return Err(Failure::error(format!(
                "a bootstrapper needs a host to be put to the test on, which this program does not set up; in the \
                 sources, `cargo test -p {suite} --test conformance` does"
            )));
        }
        other => {
            return Err(Failure::error(format!(
                "no provider {other:?} can be put to the test by this program; it knows {}",
                KNOWN.join(", ")
            )));
        }
    };
    ran.map_err(|unknown| Failure::error(unknown.to_string()))
}

const KNOWN: &[&str] = &[
    #[cfg(feature = "ec2")]
    "ec2",
    "fake",
    #[cfg(feature = "process")]
    "process",
    #[cfg(feature = "host-fake")]
    "host-fake",
    "template",
];

fn summary<'a>(provider: &'a str, report: &'a Report) -> Summary<'a> {
    let (failed, skipped) = (report.failed().len(), report.skipped().len());
    let cases = report.verdicts.iter().map(|(name, verdict)| {
        let (verdict, why) = match verdict {
            Verdict::Ok => ("ok", None),
            Verdict::Failed(why) => ("failed", Some(why.as_str())),
            Verdict::Skipped(why) => ("skipped", Some(why.as_str())),
        };
        Line { name, verdict, why }
    });
    let ok = report.verdicts.len() - failed - skipped;
    Summary { provider, ok, failed, skipped, cases: cases.collect() }
}
