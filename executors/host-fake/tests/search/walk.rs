//! Depth first through all states, each expanded once for the most faults it was met with. The stack is the story.
//! What happens without a fault is walked first; from there each fault begins a walk of its own, on as many threads as
//! there are cores.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Mutex;

use crate::model::Model;
use crate::moves::{Move, Setting};

/// What a search came to.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    pub(crate) deepest: usize,
    /// How often the plan came to rest in which way.
    pub(crate) ends: BTreeMap<String, usize>,
    /// How often each fault was met.
    pub(crate) fired: BTreeMap<String, usize>,
    pub(crate) violation: Option<String>,
    pub(crate) truncated: bool,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, steps, deepest, .. } = self;
        writeln!(f, "{states} states, {steps} steps, longest path {deepest}")?;
        let told = |counts: &BTreeMap<String, usize>| {
            counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
        };
        writeln!(f, "  ends: {}", told(&self.ends))?;
        writeln!(f, "  faults: {}", told(&self.fired))?;
        match &self.violation {
            Some(story) => write!(f, "VIOLATION\n{story}"),
            None if self.truncated => f.write_str("TRUNCATED"),
            None => f.write_str("no violation"),
        }
    }
}

impl Found {
    fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.deepest = self.deepest.max(other.deepest);
        for (end, count) in other.ends {
            *self.ends.entry(end).or_default() += count;
        }
        for (fault, count) in other.fired {
            *self.fired.entry(fault).or_default() += count;
        }
        self.violation = self.violation.take().or(other.violation);
        self.truncated |= other.truncated;
    }
}

/// The states met so far, each with what could yet go wrong then.
struct Seen {
    budgets: Mutex<HashMap<u128, (u32, u32)>>,
    limit: usize,
}

impl Seen {
    /// Whether the state has to be expanded; `None` once there are too many.
    fn is_news(&self, key: u128, budget: (u32, u32)) -> Option<bool> {
        let mut budgets = self.budgets.lock().unwrap();
        if budgets.len() > self.limit {
            return None;
        }
        match budgets.get_mut(&key) {
            Some(known) if known.0 >= budget.0 && known.1 >= budget.1 => Some(false),
            Some(known) => {
                *known = (known.0.max(budget.0), known.1.max(budget.1));
                Some(true)
            }
            None => {
                budgets.insert(key, budget);
                Some(true)
            }
        }
    }
}

/// A fault that begins a walk, and how one gets there.
struct Task {
    model: Model,
    story: Vec<String>,
    step: Move,
}

struct Frame {
    model: Model,
    moves: VecDeque<Move>,
    label: String,
}

/// Searches everything that can be reached.
pub(crate) fn search(setting: &Setting) -> Found {
    let seen = Seen { budgets: Mutex::default(), limit: setting.limit };
    let first = Model::new(setting);
    seen.is_news(first.key(), first.budget());
    let mut tasks = Vec::new();
    let mut walk =
        Walk { setting, seen: &seen, found: Found::default(), stack: Vec::new(), begun: Vec::new() };
    walk.enter(first, "start".to_owned());
    walk.go(Some(&mut tasks));
    let mut found = walk.found;
    let tasks = Mutex::new(tasks);
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let others: Vec<Found> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(|| work(setting, &seen, &tasks))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for other in others {
        found.add(other);
    }
    found.states = seen.budgets.lock().unwrap().len();
    found
}

fn work(setting: &Setting, seen: &Seen, tasks: &Mutex<Vec<Task>>) -> Found {
    let mut found = Found::default();
    loop {
        let Some(Task { mut model, story, mut step }) = tasks.lock().unwrap().pop() else { return found };
        let mut walk = Walk { setting, seen, found: Found::default(), stack: Vec::new(), begun: story };
        if let Some(label) = walk.step(&mut model, &mut step) {
            walk.enter(model, label);
            walk.go(None);
        }
        found.add(walk.found);
        if found.violation.is_some() || found.truncated {
            tasks.lock().unwrap().clear();
            return found;
        }
    }
}

struct Walk<'a> {
    setting: &'a Setting,
    seen: &'a Seen,
    found: Found,
    stack: Vec<Frame>,
    /// How one comes to the bottom of the stack.
    begun: Vec<String>,
}

impl Walk<'_> {
    /// Until nothing is left. With `tasks`, faults are left to others.
    fn go(&mut self, mut tasks: Option<&mut Vec<Task>>) {
        while let Some(frame) = self.stack.last_mut() {
            let Some(mut step) = frame.moves.pop_front() else {
                self.stack.pop();
                continue;
            };
            let mut model = frame.model.before(&mut step);
            if let Some(tasks) = &mut tasks
                && step.fault().is_some()
            {
                tasks.push(Task { model, story: self.told(), step });
                continue;
            }
            if let Some(label) = self.step(&mut model, &mut step) {
                self.enter(model, label);
            }
            if self.found.violation.is_some() || self.found.truncated {
                return;
            }
        }
    }

    /// Takes a move: its label, if the state is a new one.
    fn step(&mut self, model: &mut Model, step: &mut Move) -> Option<String> {
        self.found.steps += 1;
        if let Some(fault) = step.fault() {
            *self.found.fired.entry(fault).or_default() += 1;
        }
        let label = match model.take(self.setting, step) {
            Ok(label) => label,
            Err(what) => {
                let mut lines = self.told();
                lines.push(format!("{step:?}"));
                lines.push(format!("-> {what}"));
                self.found.violation = Some(lines.join("\n"));
                return None;
            }
        };
        match self.seen.is_news(model.key(), model.budget()) {
            Some(true) => Some(label),
            Some(false) => None,
            None => {
                self.found.truncated = true;
                None
            }
        }
    }

    fn enter(&mut self, model: Model, label: String) {
        let moves = model.moves(self.setting);
        if let Some(end) = model.at_rest(&moves) {
            *self.found.ends.entry(end).or_default() += 1;
        }
        self.stack.push(Frame { model, moves: moves.into(), label });
        self.found.deepest = self.found.deepest.max(self.begun.len() + self.stack.len());
    }

    fn told(&self) -> Vec<String> {
        self.begun.iter().cloned().chain(self.stack.iter().map(|frame| frame.label.clone())).collect()
    }
}
