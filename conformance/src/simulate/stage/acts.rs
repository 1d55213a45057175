//! What is done to a schedule at its steps: edits, incidents, operators, and a process that is killed.

use executor_api::{AttemptKey, LogicalNodeId, NodeAttemptId, RunId, Timer};
use executor_fake::Incident;
use reconciler_core::{Hold, HoldBy};
use reconciler_driver::DriverInput;

use super::Stage;
use crate::simulate::plan::{Act, ShapePlan, run};

impl Stage<'_> {
    pub(super) fn act(&mut self, act: &Act) {
        let now = self.timer.now();
        self.watch.with(|oracle| oracle.tell(now, || format!("! {act}")));
        let mut done = None;
        match act {
            Act::Edit(shapes) => {
                for (index, shape) in shapes.iter().enumerate() {
                    self.edit(shape, index + 1 < shapes.len());
                }
                done = Some(if shapes.len() > 1 { "edits at once" } else { "edit" });
            }
            Act::Befall(slot, incident) => done = self.befall(slot, incident),
            Act::Suspend(time) => {
                self.timer.advance_to(now.checked_add(*time).unwrap_or(now));
                self.at_once = 0;
                done = Some("suspended");
            }
            Act::ClockBehind { by, inputs } => {
                self.watch.with(|oracle| oracle.behind = Some((*by, *inputs)));
            }
            Act::Die(clock) => {
                self.watch.with(|oracle| {
                    oracle.clock = Some(*clock);
                    oracle.count_clock(*clock);
                });
                self.die();
                done = Some("killed");
            }
            Act::Hold(slot) => {
                let hold = Hold { by: HoldBy::Operator, reason: "by hand".to_owned(), since: now };
                self.runner.tell(DriverInput::Hold { slot: slot.clone(), hold });
                done = Some("held");
            }
            Act::Release(slot) => {
                self.runner.tell(DriverInput::Release { slot: slot.clone(), by: HoldBy::Operator });
            }
            Act::Replace(slot) => {
                if self.runner.driver().state().nodes.contains_key(slot) {
                    done = Some("replacement asked for");
                }
                self.runner.tell(DriverInput::Replace { slot: slot.clone() });
            }
            Act::Tick => {
                self.runner.tell(DriverInput::Tick);
                done = Some("tick out of turn");
            }
            Act::Alien(slot) => {
                #[expect(clippy::expect_used, reason = "literal names")]
                let run = RunId::new("sim", "u2").expect("valid names");
                let attempt = NodeAttemptId(1);
                let key = AttemptKey { run, node: slot.clone(), attempt };
                self.aliens.push(self.world.plant(&key));
                done = Some("alien lease");
            }
        }
        if let Some(name) = done {
            self.watch.with(|oracle| oracle.count(name));
        }
    }

    /// Something befalls what our run has for a slot; names it if there was anything.
    fn befall(&mut self, slot: &LogicalNodeId, incident: &Incident) -> Option<&'static str> {
        let leases = self.world.leases_of_slot(&run(), slot);
        if leases.is_empty() {
            return None;
        }
        for lease in leases {
            match incident {
                Incident::Dies(why) => self.world.kill(&lease.id, why),
                Incident::Vanishes => self.world.vanish(&lease.id),
                Incident::Moves => self.world.move_lease(&lease.id),
                // Programs are found by their slot alone; those of other runs are left out of it.
                Incident::Exits(_) if !self.aliens.is_empty() => return None,
                Incident::Exits(_) => self.world.befall(slot, incident),
            }
        }
        Some(match incident {
            Incident::Dies(_) => "lease dies",
            Incident::Vanishes => "lease vanishes",
            Incident::Moves => "lease moves",
            Incident::Exits(_) => "program exits",
        })
    }

    pub(super) fn edit(&mut self, shape: &ShapePlan, skipped: bool) {
        self.generation += 1;
        self.watch.with(|oracle| if skipped { oracle.skip(shape) } else { oracle.force(shape) });
        if let Err(error) = self.runner.set_desired(shape.shape(&self.run, self.generation)) {
            self.violated("S3", None, || format!("a newer shape was refused: {error}"));
        }
        self.shape = shape.clone();
    }
}
