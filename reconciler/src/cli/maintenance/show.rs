//! What people and programs are shown of a plan. What was observed, never what was wanted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use reconciler_core::maintenance::{BondFlipPlan, Escalation, PlanState, Verdict};
use reconciler_driver::maintenance::{LogLine, MaintenanceDriver, PlanStore as _};
use serde::Serialize;

use super::{StatusArgs, file, site};
use crate::cli::args::Global;
use crate::cli::failure::{Code, Failure};
use crate::cli::output::document;
use crate::run::lock::holder;

/// A plan, how far it is, and what happened.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    plan: BondFlipPlan,
    label: String,
    over: bool,
    retries: u32,
    question: Option<Escalation>,
    timeline: Vec<LogLine>,
    driver_pid: Option<u32>,
    #[serde(skip)]
    state: PlanState,
}

impl Report {
    pub(super) fn of(plan: &BondFlipPlan, state: &PlanState, timeline: Vec<LogLine>) -> Self {
        Self {
            plan: plan.clone(),
            label: state.label(),
            over: state.is_over(),
            retries: state.retries,
            question: state.escalation.clone(),
            timeline,
            driver_pid: None,
            state: state.clone(),
        }
    }
}

/// `reconciler maintenance status`
pub(super) fn status(global: &Global, args: &StatusArgs) -> Result<Code, Failure> {
    let loaded = file::load(&args.plan)?;
    let dir = site::dir(global, &loaded.file.name)?;
    let missing = || Failure::no_state(format!("plan {} was never run", loaded.file.name));
    let reading = |error| Failure::while_doing("reading the plan", &error);
    let mut store = site::existing(&dir)?.ok_or_else(missing)?;
    let record = store.load().map_err(reading)?.ok_or_else(missing)?;
    let mut report = Report::of(&record.plan, &record.state, store.log().map_err(reading)?);
    report.driver_pid = holder(&dir).map(|holder| holder.pid);
    document(args.output, &report, || {
        let mut text = if args.timeline { timeline(&report) } else { heading(&report) };
        if report.question.is_some() {
            text.push_str(&question(&report.state, &args.plan));
        }
        text
    })?;
    Ok(if report.over { Code::Done } else { Code::Pending })
}

fn heading(report: &Report) -> String {
    let driven = report
        .driver_pid
        .map_or_else(|| "nobody drives it".to_owned(), |pid| format!("driven by process {pid}"));
    let last = report.timeline.last().map_or("", |line| line.what.as_str());
    format!("plan {}: {}, {driven}\nlast: {last}\n", report.plan.uid, report.label)
}

/// Everything that happened, a line each, after so many seconds.
pub(super) fn timeline(report: &Report) -> String {
    let mut text = String::new();
    let begun = report.timeline.first().map(|line| line.at);
    for line in &report.timeline {
        let since = begun.and_then(|begun| line.at.duration_since(begun).ok()).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "+{:>7.1}s  {:<20} {}", since.as_secs_f64(), line.phase, line.what);
    }
    let _ = write!(text, "plan {}: {}", report.plan.uid, report.label);
    text.push('\n');
    text
}

/// The open question, and how to answer it.
pub(super) fn question(state: &PlanState, plan: &Path) -> String {
    let Some(open) = &state.escalation else { return String::new() };
    let mut text = format!("question {}: {}\n", open.sequence, open.reason);
    for (thing, seen) in &open.world {
        let _ = writeln!(text, "  {thing}: {seen}");
    }
    let answers: Vec<_> = open.answers.iter().map(|answer| answer.as_str()).collect();
    let _ = writeln!(
        text,
        "answer with: reconciler maintenance respond {} --question {} --answer {}",
        plan.display(),
        open.fingerprint.short(),
        answers.join("|")
    );
    text
}

/// One look.
#[derive(Debug, Serialize)]
pub(super) struct Seen {
    label: String,
    gates: BTreeMap<&'static str, Verdict>,
    next: String,
}

impl Seen {
    pub(super) fn of(driver: &MaintenanceDriver) -> Self {
        Self {
            label: driver.state().label(),
            gates: driver.survey().into_iter().collect(),
            next: driver.next_step().to_string(),
        }
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!("{}\n", self.label);
        for (gate, verdict) in &self.gates {
            let _ = writeln!(text, "  {} {gate}", if verdict.passed() { "yes" } else { "no " });
            for finding in verdict.findings() {
                let _ = writeln!(text, "        {finding}");
            }
        }
        let _ = writeln!(text, "next: {}", self.next);
        text
    }
}
