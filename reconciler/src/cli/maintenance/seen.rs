//! One look at the world: which gates the next step asks, what each of them sees, and which are asked later.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use reconciler_core::maintenance::{Phase, Recovery, Verdict};
use reconciler_driver::maintenance::MaintenanceDriver;
use serde::Serialize;

/// One look.
#[derive(Debug, Serialize)]
pub(super) struct Seen {
    label: String,
    gates: BTreeMap<&'static str, Verdict>,
    /// The gates that the present phase asks, or the one that comes next.
    asked_now: Vec<&'static str>,
    next: String,
    #[serde(skip)]
    later: Vec<(&'static str, Phase)>,
}

/// In which phases of the forward path a gate is asked.
fn asked(gate: &str) -> RangeInclusive<Phase> {
    match gate {
        "hosts ready" => Phase::PreconditionsCheck..=Phase::PreconditionsCheck,
        "bonds sound in the mode to leave" => Phase::PreconditionsCheck..=Phase::AcquireLock,
        "bonds as last verified" => Phase::SuspendMigration..=Phase::FlipNode2,
        "bonds alike in the mode to reach" | "copies may meet again" => Phase::ResumeDrbd..=Phase::ResumeDrbd,
        "machines pinned" => Phase::DisconnectDrbd..=Phase::ResumeDrbd,
        "nobody writes" => Phase::DisconnectDrbd..=Phase::DisconnectDrbd,
        "replication apart" => Phase::DrainSatellite..=Phase::FlipNode2,
        "storage pods gone" => Phase::FlipNode1..=Phase::FlipNode2,
        "lock held" => Phase::SuspendMigration..=Phase::ReleaseLock,
        // The copies are looked at in every phase; whether they are identical counts while they are together.
        _ => Phase::Idle..=Phase::Complete,
    }
}

fn is_asked(gate: &str, phase: Phase) -> bool {
    let together = phase <= Phase::SuspendMigration || phase >= Phase::RestoreMigration;
    match gate {
        "copies identical" | "storage pods running" => together,
        gate => asked(gate).contains(&phase),
    }
}

impl Seen {
    pub(super) fn of(driver: &MaintenanceDriver) -> Self {
        let state = driver.state();
        let phase = match state.phase {
            Phase::Idle => Phase::PreconditionsCheck,
            phase => phase,
        };
        let quiesces = matches!(driver.plan().io, reconciler_core::maintenance::IoPolicy::Quiesce { .. });
        let forward = matches!(state.recovery, Recovery::Forward | Recovery::Resumed);
        let survey = driver.survey();
        let (mut now, mut later) = (Vec::new(), Vec::new());
        for (gate, _) in &survey {
            if *gate == "nobody writes" && !quiesces {
                continue;
            }
            if !forward || is_asked(gate, phase) {
                now.push(*gate);
            } else if let Some(from) = Phase::ALL.into_iter().find(|p| *p > phase && is_asked(gate, *p)) {
                later.push((*gate, from));
            }
        }
        let gates = survey.into_iter().collect();
        Self { label: state.label(), gates, asked_now: now, next: driver.next_step().to_string(), later }
    }

    pub(super) fn table(&self) -> String {
        let mut text =
            format!("the plan is {}; this is a look, and nothing is changed\n\nasked now\n", self.label);
        for gate in &self.asked_now {
            let Some(verdict) = self.gates.get(gate) else { continue };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {} {gate}", if verdict.passed() { "yes" } else { "no " });
            for finding in verdict.findings() {
                let _ = writeln!(text, "        {finding}");
            }
        }
        if !self.later.is_empty() {
            text.push_str("\nasked later (what they see so early does not matter; -o json has it)\n");
            for (gate, from) in &self.later {
                let _ = writeln!(text, "  {gate}: from {from} on");
            }
        }
        let _ = writeln!(text, "\nnext: {}", self.next);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gate_is_asked_in_some_phase_and_those_of_the_flip_are_not_asked_at_the_start() {
        let gates =
            ["hosts ready", "bonds as last verified", "machines pinned", "copies identical", "lock held"];
        for gate in gates {
            assert!(Phase::ALL.into_iter().any(|phase| is_asked(gate, phase)), "{gate}");
        }
        assert!(!is_asked("storage pods gone", Phase::PreconditionsCheck));
        assert!(is_asked("copies identical", Phase::PreconditionsCheck));
        assert!(!is_asked("copies identical", Phase::FlipNode1));
        assert!(is_asked("a gate that is new", Phase::FlipNode1));
    }
}
