//! Exhaustive search of a small world: every order of passes, results, deadlines, edits and a bounded number
//! of faults, on the real `reconcile`, `fold` and `apply`. Every state reached is checked; every state in
//! which nothing more can happen must be exactly what was declared.
//!
//! The world here is smaller and coarser than the fake executor's: it exists to be enumerated. Time moves only
//! from one stored deadline to the next, and only when nothing else is under way.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use reconciler_core::RetryPolicy;
use reconciler_driver::Rules;

mod key;
mod model;
mod moves;

use model::Model;

/// What is searched.
#[derive(Clone, Debug)]
pub struct Search {
    /// Slots of the first shape.
    pub nodes: u32,
    /// Faults along one path: lost answers, late effects, refusals, deaths, exits.
    pub faults: u32,
    /// Edits of the shape along one path, in the order of [`Search::shapes`].
    pub edits: u32,
    /// The shapes, after the first: how many slots, of which spec.
    pub shapes: Vec<(u32, char)>,
    /// Whether a crash of the driver, with a restart from what was recorded, counts among the faults.
    pub crashes: bool,
    /// Give up beyond that many states.
    pub limit: usize,
}

/// What a search found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Distinct states reached.
    pub states: usize,
    /// Steps taken between them.
    pub steps: usize,
    /// States in which nothing more can happen.
    pub ends: usize,
    /// Longest path.
    pub depth: usize,
    /// The first violation, with the path that leads to it.
    pub violation: Option<Story>,
    /// Whether the limit was hit, so that the search proves nothing.
    pub truncated: bool,
}

/// A path to a violation.
#[derive(Clone, Debug)]
pub struct Story {
    /// What happened, step by step.
    pub steps: Vec<String>,
    /// What must not be.
    pub violation: String,
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        write!(f, "-> {}", self.violation)
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, steps, ends, depth, .. } = self;
        write!(f, "{states} states, {steps} steps, {ends} ends, longest path {depth}")?;
        if self.truncated {
            write!(f, ", TRUNCATED")?;
        }
        match &self.violation {
            Some(story) => write!(f, "\nviolation after {} steps:\n{story}", story.steps.len()),
            None => write!(f, ", no violation"),
        }
    }
}

impl Search {
    /// Two nodes that scale and change their spec.
    pub fn new(nodes: u32, faults: u32, edits: u32) -> Self {
        Self {
            nodes,
            faults,
            edits,
            shapes: vec![(nodes, 'b'), (nodes.saturating_sub(1), 'a'), (nodes, 'a')],
            crashes: true,
            limit: 20_000_000,
        }
    }

    /// The timing searched under: short waits, so that every one of them matters.
    pub fn policy() -> RetryPolicy {
        let mut policy = RetryPolicy {
            initial_delay: Duration::from_secs(1),
            cap: Duration::from_secs(4),
            operation_timeout: Duration::from_secs(30),
            endpoint_probe_interval: Duration::from_secs(5),
            ..RetryPolicy::default()
        };
        policy.extra.join_within = Duration::from_secs(40);
        policy
    }

    /// Searches breadth-first, so that the first violation has the shortest story.
    pub fn run(&self, rules: &Rules) -> Found {
        let mut found = Found::default();
        let mut seen: HashSet<u128> = HashSet::new();
        // Parents and labels only, to tell the story of a violation.
        let mut history: Vec<(usize, String)> = vec![(0, "start".to_owned())];
        let first = Model::new(self);
        seen.insert(first.key());
        let mut layer = vec![(0_usize, first)];
        while !layer.is_empty() {
            let mut next = Vec::new();
            for (index, model) in layer {
                let steps = model.moves(self, rules);
                if steps.iter().all(|step| step.optional) {
                    found.ends += 1;
                    if let Err(violation) = model.check_end() {
                        found.violation = Some(tell(&history, index, None, violation));
                        found.states = seen.len();
                        return found;
                    }
                }
                for step in steps {
                    found.steps += 1;
                    let model = match step.result {
                        Ok(model) => model,
                        Err(violation) => {
                            found.violation = Some(tell(&history, index, Some(step.label), violation));
                            found.states = seen.len();
                            return found;
                        }
                    };
                    if seen.insert(model.key()) {
                        history.push((index, step.label));
                        next.push((history.len() - 1, model));
                    }
                }
                if seen.len() > self.limit {
                    found.truncated = true;
                    found.states = seen.len();
                    return found;
                }
            }
            if !next.is_empty() {
                found.depth += 1;
            }
            layer = next;
        }
        found.states = seen.len();
        found
    }
}

/// The steps that lead to a state.
fn tell(history: &[(usize, String)], mut index: usize, last: Option<String>, violation: String) -> Story {
    let mut steps: Vec<String> = last.into_iter().collect();
    while index != 0 {
        let (parent, label) = &history[index];
        steps.push(label.clone());
        index = *parent;
    }
    steps.reverse();
    Story { steps, violation }
}
