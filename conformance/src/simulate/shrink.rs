//! A failing schedule made small: disturbances, slots, lags and steps are left out while it still breaks the
//! same rule, and what is left is told as a story.

use std::time::Duration;

use executor_api::Visibility;
use executor_fake::{FakeBehaviour, Tokens};
use reconciler_core::RetryPolicy;

use super::oracle::Violation;
use super::plan::Plan;
use super::stage::play;
use super::{Failure, Options};

/// Most lines of a story, its disturbances and its end included.
const STORY_LINES: usize = 14;
/// Lines of what happened that it keeps in any case.
const LEAST_LINES: usize = 4;

/// Plays a schedule, and makes it small if it fails.
pub(super) fn explain(plan: Plan, options: &Options) -> Option<Failure> {
    let violation = play(&plan, &options.subject, false).violation?;
    let mut shrink =
        Shrink { options, rule: violation.rule, left: options.shrink_tries, smallest: plan.clone() };
    shrink.run();
    let smallest = shrink.smallest;
    let played = play(&smallest, &options.subject, true);
    let last = played.violation.unwrap_or_else(|| violation.clone());
    let story = story(&smallest, &played.story, &last);
    Some(Failure { plan, violation, smallest, story })
}

struct Shrink<'a> {
    options: &'a Options,
    rule: &'static str,
    left: u32,
    smallest: Plan,
}

impl Shrink<'_> {
    fn run(&mut self) {
        self.fewer_disturbances();
        self.simpler();
        self.fewer_steps();
        self.fewer_disturbances();
    }

    /// Whether this one fails the same way; then it is the smallest.
    fn fails(&mut self, plan: Plan) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let same = play(&plan, &self.options.subject, false).violation.is_some_and(|v| v.rule == self.rule);
        if same {
            self.smallest = plan;
        }
        same
    }

    /// Leaves out ever smaller stretches.
    fn fewer_disturbances(&mut self) {
        let mut size = self.smallest.disturbances.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < self.smallest.disturbances.len() {
                let mut plan = self.smallest.clone();
                let end = (at + size).min(plan.disturbances.len());
                plan.disturbances.drain(at..end);
                if !self.fails(plan) {
                    at += size;
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }

    /// Takes out what makes the world and the timing special.
    fn simpler(&mut self) {
        let changes: [fn(&mut Plan); 12] = [
            |plan| plan.victim = None,
            |plan| plan.shape.0.truncate(1),
            |plan| plan.shape.0.iter_mut().for_each(|group| group.count = group.count.min(1)),
            |plan| plan.shape.0.iter_mut().for_each(|group| group.limit = None),
            |plan| plan.behaviour = FakeBehaviour::default(),
            |plan| plan.behaviour.visibility = Visibility::default(),
            |plan| plan.behaviour.direct_lag = Duration::ZERO,
            |plan| plan.behaviour.tokens = Tokens::Honoured,
            |plan| plan.policy.extra.stable_after = Duration::ZERO,
            |plan| plan.policy.jitter_per_mille = 0,
            |plan| {
                plan.policy.extra.create_share = 64;
                plan.policy.extra.cleanup_share = 64;
            },
            |plan| {
                let tick_every = plan.policy.extra.tick_every;
                let loss_timeout = plan.policy.extra.loss_timeout;
                plan.policy = RetryPolicy::default();
                plan.policy.extra.tick_every = tick_every;
                plan.policy.extra.loss_timeout = loss_timeout;
            },
        ];
        for change in changes {
            let mut plan = self.smallest.clone();
            change(&mut plan);
            self.fails(plan);
        }
    }

    /// Shorter, by bisection: not monotone, but good enough.
    fn fewer_steps(&mut self) {
        let (mut low, mut high) = (0, self.smallest.steps);
        while low < high {
            let middle = low + (high - low) / 2;
            let mut plan = self.smallest.clone();
            plan.steps = middle;
            if self.fails(plan) { high = middle } else { low = middle + 1 }
        }
    }
}

/// The cluster, what went wrong, the last things that happened to the slot concerned, and the violation.
fn story(plan: &Plan, told: &[String], violation: &Violation) -> Vec<String> {
    let about = violation.node.as_ref().map(ToString::to_string);
    let matters = |line: &&String| {
        line.contains(" ! ")
            || line.contains("-- ")
            || (!line.contains(" fact: ") && about.as_ref().is_none_or(|slot| line.contains(slot.as_str())))
    };
    let lines: Vec<&String> = told.iter().filter(matters).collect();
    // The first line and the last, and the one that says how many are left out.
    let room = STORY_LINES.saturating_sub(plan.disturbances.len() + 3).max(LEAST_LINES);
    let skipped = lines.len().saturating_sub(room);
    let mut story = vec![format!("{}, {} steps", plan.shape, plan.steps)];
    for disturbance in &plan.disturbances {
        story.push(format!("with {disturbance}"));
    }
    if skipped > 0 {
        story.push(format!("... {skipped} lines ..."));
    }
    story.extend(lines.into_iter().skip(skipped).cloned());
    story.push(format!("-> {violation}"));
    story
}
