//! What people and programs are shown of a plan: how far it is, what it asks, what happened. What was observed, never what
//! was wanted.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use reconciler_core::maintenance::{Answer, BondFlipPlan, Escalation, Phase, PlanState, Recorded, Recovery};
use reconciler_driver::maintenance::{LogLine, PlanStore as _};
use serde::Serialize;

use super::plain::plain;
use super::{StatusArgs, file, site, timeline};
use crate::cli::args::Global;
use crate::cli::failure::{Code, Failure};
use crate::cli::output::{document, print, remark};
use crate::run::dir::RunDir;
use crate::run::lock::holder;
use crate::run::plans::Link;

/// How often a plan that is watched is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// A plan, how far it is, and what happened.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    plan: BondFlipPlan,
    label: String,
    /// The phase, in recovery the one in which it stopped.
    phase: Phase,
    /// Whether it runs or recovers; empty on the forward path.
    recovery: &'static str,
    over: bool,
    retries: u32,
    question: Option<Escalation>,
    /// Replies that were taken: which question, which answer, by whom, when.
    replies: Vec<Recorded>,
    /// The run that leaves the plan's nodes alone.
    cluster: Option<Link>,
    timeline: Vec<LogLine>,
    driver_pid: Option<u32>,
    /// The process that had the simulated hosts is gone, and they with it: the plan cannot go on.
    hosts_gone: bool,
    #[serde(skip)]
    state: PlanState,
}

impl Report {
    pub(super) fn of(plan: &BondFlipPlan, state: &PlanState, timeline: Vec<LogLine>) -> Self {
        Self {
            plan: plan.clone(),
            label: state.label(),
            phase: state.phase,
            recovery: state.recovery.as_str(),
            over: state.is_over(),
            retries: state.retries,
            question: state.escalation.clone(),
            replies: state.replies.clone(),
            cluster: None,
            timeline,
            driver_pid: None,
            hosts_gone: false,
            state: state.clone(),
        }
    }

    fn read(dir: &RunDir, name: &str) -> Result<Self, Failure> {
        let missing =
            || Failure::no_state(format!("plan {name} has no run; `reconciler maintenance run` begins one"));
        let reading = |error| site::failed("reading the plan", &error);
        let mut store = site::look(dir)?.ok_or_else(missing)?;
        let record = store.load().map_err(reading)?.ok_or_else(missing)?;
        let mut report = Self::of(&record.plan, &record.state, store.log().map_err(reading)?);
        report.driver_pid = holder(dir).map(|holder| holder.pid);
        report.hosts_gone = report.driver_pid.is_none() && !report.over;
        report.cluster = Link::of(dir.path())?;
        Ok(report)
    }

    /// As it is written for programs.
    pub(super) fn plain(&self) -> Result<serde_json::Value, Failure> {
        plain(self)
    }

    /// The picture of what happened.
    pub(super) fn svg(&self) -> String {
        timeline::svg(&format!("plan {}: {}", self.plan.uid, self.label), &self.timeline)
    }

    /// Everything that happened, and where that led.
    pub(super) fn told(&self) -> String {
        format!("{}plan {}: {}\n", timeline::text(&self.timeline), self.plan.uid, self.label)
    }

    fn heading(&self) -> String {
        let driven = match (self.driver_pid, self.over) {
            (Some(pid), _) => format!("driven by process {pid}"),
            (None, true) => "over".to_owned(),
            (None, false) => "nobody drives it".to_owned(),
        };
        let mut text = format!("plan {}: {}, {driven}\n{}\n", self.plan.uid, self.label, phases(&self.state));
        if let Some(last) = self.timeline.last() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "last: {}", last.what);
        }
        if let (Some(link), false) = (&self.cluster, self.over) {
            let nodes: Vec<_> = link.nodes.iter().map(ToString::to_string).collect();
            let nodes = if nodes.is_empty() { "every node".to_owned() } else { nodes.join(", ") };
            let _ = writeln!(text, "run {} leaves {nodes} alone until the plan is over", link.run);
        }
        for reply in &self.replies {
            let at = jiff::Timestamp::try_from(reply.by.at).unwrap_or_default();
            let at = at.strftime("%Y-%m-%dT%H:%M:%SZ");
            let _ = writeln!(
                text,
                "question {} was answered {} by {} at {at}",
                reply.sequence, reply.answer, reply.by.who
            );
        }
        text
    }
}

/// `reconciler maintenance status`
pub(super) async fn status(global: &Global, args: &StatusArgs) -> Result<Code, Failure> {
    let loaded = file::load(&args.plan)?;
    let dir = site::dir(global, &loaded.file.name)?;
    let report = Report::read(&dir, &loaded.file.name)?;
    if let Some(path) = &args.svg {
        std::fs::write(path, report.svg())
            .map_err(|error| Failure::while_doing(format_args!("writing {}", path.display()), &error))?;
        remark(format!("the timeline is in {}", path.display()));
        return Ok(code(&report.state));
    }
    if args.watch {
        return watch(&dir, &loaded.file.name, &args.plan).await;
    }
    document(args.output, &report.plain()?, || page(&report, &args.plan, args.timeline))?;
    Ok(code(&report.state))
}

fn page(report: &Report, plan: &Path, whole: bool) -> String {
    let mut text = if whole { report.told() } else { report.heading() };
    if report.hosts_gone {
        let _ = write!(text, "{}", gone(plan));
    } else if report.question.is_some() {
        text.push_str(&question(&report.state, plan));
    }
    text
}

/// Shows the phases as they come, until the plan is over, asks, or is left by its driver.
async fn watch(dir: &RunDir, name: &str, plan: &Path) -> Result<Code, Failure> {
    let mut shown = String::new();
    loop {
        let report = Report::read(dir, name)?;
        let now = page(&report, plan, false);
        if now != shown {
            print(&format!("{now}\n"))?;
            shown = now;
        }
        if report.over || report.question.is_some() || report.hosts_gone {
            return Ok(code(&report.state));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// How a plan's commands end: well only where the plan has reached its end. One that went back, or that a person took
/// over, is over as well, and has not done what it was for.
pub(super) fn code(state: &PlanState) -> Code {
    match (&state.recovery, state.phase) {
        (Recovery::Forward | Recovery::Resumed, Phase::Complete) if !state.handed_over => Code::Done,
        _ => Code::Pending,
    }
}

/// What is left of a plan whose simulated hosts are gone.
pub(super) fn gone(plan: &Path) -> String {
    let plan = plan.display();
    format!(
        "its simulated hosts lived in the process that drove it and are gone: it cannot go on, and nothing can be \
         answered.\nbegin anew with: reconciler maintenance run {plan} --approve --again\nor give it up with: \
         reconciler maintenance abort {plan} --give-up\n"
    )
}

/// The forward path, and where the plan is on it.
pub(super) fn phases(state: &PlanState) -> String {
    let mark = |phase: Phase| match &state.recovery {
        _ if phase < state.phase => 'x',
        _ if phase > state.phase => ' ',
        Recovery::Forward | Recovery::Resumed if phase == Phase::Complete => 'x',
        Recovery::Forward | Recovery::Resumed => '>',
        Recovery::Halted(_) | Recovery::Dwell { .. } | Recovery::Retry => '!',
        Recovery::Rollback(_) | Recovery::RevertedSafe => '<',
        Recovery::Escalated => '?',
    };
    let shown = Phase::ALL.into_iter().filter(|phase| *phase != Phase::Idle);
    let parts: Vec<_> = shown.map(|phase| format!("[{}] {phase}", mark(phase))).collect();
    let (first, second) = parts.split_at(6);
    format!("  {}\n  {}", first.join("  "), second.join("  "))
}

/// The open question, and how to answer it.
pub(super) fn question(state: &PlanState, plan: &Path) -> String {
    let Some(open) = &state.escalation else { return String::new() };
    let mut text = format!(
        "\nFROZEN. Nothing is touched until somebody answers: the lock is kept, machines stay pinned where they \
         run.\nquestion {}: {}\nthe world as it was read:\n",
        open.sequence, open.reason
    );
    for (thing, seen) in &open.world {
        let _ = writeln!(text, "  {thing}: {seen}");
    }
    text.push_str("answers (each of them is void once any of this has moved):\n");
    for answer in &open.answers {
        let _ = writeln!(text, "  {:<11} {}", answer.as_str(), meaning(*answer));
    }
    if !open.answers.contains(&Answer::RollBack) && open.reason.to_string().contains("split brain") {
        text.push_str(
            "  (going on or back is not offered: both end in a reconnect, and which copy counts is for a person to \
             settle first)\n",
        );
    }
    let _ = writeln!(
        text,
        "answer with: reconciler maintenance respond {} --question {} --answer ANSWER",
        plan.display(),
        open.fingerprint.short(),
    );
    text
}

/// What an answer comes to.
fn meaning(answer: Answer) -> &'static str {
    match answer {
        Answer::LookAgain => "let things settle, look again, and go on with whatever can be proved then",
        Answer::RetryStep => "one more try of this phase, through every gate",
        Answer::RollBack => "back to the mode before, one host at a time, through every gate",
        Answer::HandOver => {
            "you take over: the lock is given up, machines stay pinned, the plan does nothing more"
        }
    }
}
