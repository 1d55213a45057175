//! How far a session has come, folded from the events that its host tells. Pure.

use crate::plan::Plan;

/// How far a session has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What it is doing, in words.
    pub phase: String,
    /// Whether all steps and verifications are done, and the program runs if there is one.
    pub begun: bool,
    /// Why it failed, if a step or a verification did.
    pub failed: Option<String>,
    /// How its program ended, if it has.
    pub program_ended: Option<String>,
    /// Whether the runner ended of its own accord rather than being killed.
    pub over: bool,
    /// The beginning of an event whose end has not been read yet.
    partial: String,
}

impl Progress {
    /// Folds a piece of the events, cut anywhere.
    pub fn feed(&mut self, plan: &Plan, piece: &str) {
        self.partial.push_str(piece);
        while let Some(end) = self.partial.find('\n') {
            let line: String = self.partial.drain(..=end).collect();
            self.event(plan, line.trim_end());
        }
    }

    /// Why a session whose runner is gone is dead; `None` if it did all it had to do.
    pub fn death(&self, plan: &Plan) -> Option<String> {
        self.failed.clone().or_else(|| self.program_ended.clone()).or_else(|| {
            let done = self.over && self.begun && plan.program.is_none();
            (!done).then(|| "it was ended from outside, or its host was restarted".to_owned())
        })
    }

    /// Folds one event: `SECONDS WORD ...`. What is not understood is passed over: a newer host may say more.
    fn event(&mut self, plan: &Plan, line: &str) {
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        match words.as_slice() {
            ["begin", kind, n] => self.phase = describe(plan, kind, n),
            ["end", "program", _, code] => {
                self.program_ended = Some(format!("the program ended with {}", status(code)));
                self.phase.clone_from(self.program_ended.as_ref().unwrap_or(&String::new()));
            }
            ["end", kind, n, code] if *code != "0" => {
                self.failed = Some(format!("{} ended with {}", describe(plan, kind, n), status(code)));
            }
            ["started", "program", _] => {
                "the program runs".clone_into(&mut self.phase);
                self.begun = true;
            }
            ["over", how] => {
                self.over = true;
                if *how == "done" {
                    "all steps are done".clone_into(&mut self.phase);
                    self.begun = true;
                }
            }
            _ => {}
        }
    }
}

/// One part of the plan in words: `step 2 of 3 (apt-get install etcd)`.
fn describe(plan: &Plan, kind: &str, n: &str) -> String {
    let n: usize = n.parse().unwrap_or(0);
    let (what, count, shown) = match kind {
        "file" => ("file", plan.files.len(), plan.files.get(n).map(|file| file.path.clone())),
        "verify" => ("verification", plan.verify.len(), plan.verify.get(n).map(|words| words.join(" "))),
        _ => ("step", plan.steps.len(), plan.steps.get(n).map(|words| words.join(" "))),
    };
    let shown = executor_probe::tell::printable(&shown.unwrap_or_default());
    format!("{what} {} of {count} ({shown})", n + 1)
}

/// A shell's exit code in words.
fn status(code: &str) -> String {
    match code.parse::<u32>() {
        Ok(signal @ 129..=192) => format!("signal {}", signal - 128),
        Ok(127) => "status 127 (no such program)".to_owned(),
        Ok(126) => "status 126 (not executable)".to_owned(),
        _ => format!("status {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            steps: vec![vec!["apt-get".into(), "install".into()], vec!["true".into()]],
            program: Some(vec!["node".into()]),
            ..Plan::default()
        }
    }

    fn folded(events: &str) -> Progress {
        let mut progress = Progress::default();
        progress.feed(&plan(), events);
        progress
    }

    #[test]
    fn a_phase_names_the_step_and_its_command() {
        assert_eq!(folded("1 begin step 0\n").phase, "step 1 of 2 (apt-get install)");
        let started = folded("1 begin step 1\n1 end step 1 0\n2 started program 77\n");
        assert!(started.begun && started.failed.is_none());
    }

    #[test]
    fn a_failed_step_says_which_and_how() {
        let failed = folded("1 begin step 0\n1 end step 0 100\n1 over failed\n").failed.unwrap();
        assert_eq!(failed, "step 1 of 2 (apt-get install) ended with status 100");
        let killed = folded("1 end program 0 137\n").program_ended.unwrap();
        assert_eq!(killed, "the program ended with signal 9");
    }

    #[test]
    fn events_may_be_cut_anywhere() {
        let events =
            "1 begin step 0\n1 end step 0 0\n2 started program 7\n3 end program 0 1\n3 over exited\n";
        let whole = folded(events);
        for cut in 0..events.len() {
            let mut progress = Progress::default();
            progress.feed(&plan(), &events[..cut]);
            progress.feed(&plan(), &events[cut..]);
            assert_eq!(progress, whole, "cut at {cut}");
        }
    }

    #[test]
    fn a_session_without_a_program_is_not_dead_once_its_steps_are_done() {
        let plan = Plan { program: None, ..plan() };
        let mut progress = Progress::default();
        assert!(progress.death(&plan).unwrap().contains("from outside"));
        progress.feed(&plan, "1 over done\n");
        assert_eq!(progress.death(&plan), None);
    }

    #[test]
    fn what_is_not_understood_is_passed_over() {
        assert_eq!(folded("1 dance\n\nx\n"), Progress::default());
    }
}
