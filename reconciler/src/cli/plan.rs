//! `reconciler plan`: what `apply` would do. The changes are read off the state; the way there is rehearsed with
//! the real driver in virtual time, so that the plan cannot say anything that the driver would not do.

mod changes;
mod rehearsal;

use reconciler::file;
use reconciler_driver::runner::Settled;
use serde::Serialize;

pub(super) use changes::{Change, Changes};

use super::args::{Format, Global};
use super::failure::{Code, Failure};
use super::output::document;
use reconciler::file::format_duration;

/// `reconciler plan`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How to write it.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// As for `apply`: take the run over from another file.
    #[arg(long)]
    rebind: bool,
}

/// How much of the way is printed for people.
const LINES: usize = 200;

/// What would happen.
#[derive(Debug, Serialize)]
struct Plan {
    run: String,
    /// The generation in force; 0 for a run that does not exist yet.
    accepted_generation: u64,
    /// The generation that `apply` would put in force.
    planned_generation: u64,
    /// The nodes that change.
    changes: Vec<Change>,
    /// How many nodes of each group are replaced, and how many at once.
    replacements: Vec<changes::Replacement>,
    /// Whether only timing or limits differ, which touches no node.
    settings_change: bool,
    /// What the user should know.
    notices: Vec<String>,
    /// Every step of the rehearsal, in which each provider takes the time of the imaginary one.
    trajectory: Vec<String>,
    /// How the rehearsal ended: `converged`, `stuck` or `unfinished`.
    outcome: &'static str,
}

pub(super) async fn run(global: &Global, args: &Args) -> Result<Code, Failure> {
    let loaded = file::load(global.file())?;
    let dir = global.dir_of(&loaded.declared.run)?;
    let changes = Changes::of(&dir, &loaded, &global.file_path()?, args.rebind).await?;
    let (settled, trajectory) = rehearsal::rehearse(&changes)?;
    let plan = Plan {
        run: dir.run().to_owned(),
        accepted_generation: changes.accepted_generation(),
        planned_generation: changes.intent.shape.generation,
        replacements: changes.replacements(),
        settings_change: changes.settings_change(),
        notices: changes.intent.notices.clone(),
        trajectory,
        outcome: match settled {
            Settled::Converged => "converged",
            Settled::Stuck => "stuck",
            Settled::Limit => "unfinished",
        },
        changes: changes.list,
    };
    document(args.output, &plan, || text(&plan))?;
    let pending = !plan.changes.is_empty() || plan.settings_change;
    Ok(if pending { Code::Pending } else { Code::Done })
}

fn text(plan: &Plan) -> String {
    let mut lines = vec![match plan.accepted_generation {
        0 => format!("run {} is new", plan.run),
        accepted if accepted == plan.planned_generation => format!("run {}, generation {accepted}", plan.run),
        accepted => format!("run {}, generation {accepted} -> {}", plan.run, plan.planned_generation),
    }];
    lines.extend(plan.notices.iter().map(|notice| format!("note: {notice}")));
    lines.extend(
        plan.changes.iter().map(|change| format!("  {:8} {}: {}", change.verb, change.node, change.why)),
    );
    if plan.settings_change {
        lines.push("  timing or limits change; no node is touched by that".to_owned());
    }
    if plan.changes.is_empty() && !plan.settings_change {
        lines.push("nothing to do".to_owned());
    }
    for group in &plan.replacements {
        let pace = match group.at_once {
            Some(at_once) => format!("{at_once} at a time"),
            None => "all at once (update.max_unavailable limits that)".to_owned(),
        };
        lines.push(format!("group {}: {} node(s) replaced, {pace}", group.group, group.count));
    }
    if !plan.trajectory.is_empty() {
        lines.push(format!("rehearsal ({}):", plan.outcome));
        lines.extend(plan.trajectory.iter().take(LINES).map(|step| format!("  {step}")));
        if let Some(more) = plan.trajectory.len().checked_sub(LINES + 1) {
            lines.push(format!("  and {} more; -o json shows them all", more + 1));
        }
    }
    if plan.outcome == "unfinished" {
        lines.push(format!("after {} the rehearsal had not converged", format_duration(rehearsal::LIMIT)));
    }
    lines.join("\n") + "\n"
}
